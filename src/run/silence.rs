//! Which groups of an update gave no gradient, and why.

use std::collections::BTreeMap;

use bevy_ecs::prelude::*;

use super::recorder::Recorder;
use crate::credit::signal::{Sign, in_words, silence};
use crate::learner::Updated;
use crate::record::Event;
use crate::rollout::{Roster, RunSettings};
use crate::trajectory::{MemoryRewards, Outcome};

/// Writes `signal_missing` and a line of the log when groups of a step gave no gradient.
pub fn explain_silence(
    mut recorder: ResMut<Recorder>,
    updated: Res<Updated>,
    settings: Res<RunSettings>,
    roster: Res<Roster>,
    trajectories: Query<(&Outcome, Option<&MemoryRewards>)>,
) -> Result {
    if updated.report.is_none() {
        return Ok(());
    }
    let mut groups: BTreeMap<u32, Vec<Sign>> = BTreeMap::new();
    let mut rows = updated.rows.iter().peekable();
    for (&id, &entity) in &roster.entities {
        let (mut sampled, mut weighted) = (0, 0);
        while let Some(packed) = rows.next_if(|packed| packed.id == id) {
            sampled += packed.row.mask.iter().filter(|on| **on).count();
            weighted += packed.credit.weight.iter().filter(|w| **w != 0.0).count();
        }
        let Ok((outcome, memory)) = trajectories.get(entity) else {
            continue;
        };
        let memory = memory
            .iter()
            .flat_map(|memory| &memory.0)
            .map(|round| {
                let compared = round.p_full.or(round.p_previous).or(round.p_empty);
                (round.p_memory, compared.unwrap_or(0.0), round.reward)
            })
            .collect();
        groups.entry(id.group).or_default().push(Sign {
            reward: outcome.reward,
            right: outcome.em > 0.5,
            valid: outcome.valid,
            sampled,
            weighted,
            memory,
        });
    }
    let memory_on = settings.0.credit.memory;
    let dead: Vec<_> = groups
        .iter()
        .filter_map(|(&group, rollouts)| silence(group, rollouts, memory_on))
        .collect();
    if dead.is_empty() {
        return Ok(());
    }
    let (step, count) = (updated.step + 1, groups.len() as u32);
    tracing::info!("step {step}: {}", in_words(count, &dead));
    recorder.writer.append(&Event::SignalMissing {
        step,
        groups: count,
        dead,
    })?;
    Ok(())
}

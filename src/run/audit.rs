//! Two looks at every update before it is written down: the audit, and which groups gave no
//! gradient.

use std::collections::BTreeMap;

use bevy_ecs::prelude::*;

use super::recorder::Recorder;
use crate::credit::audit::{self, Consumed, Declared, Fault};
use crate::credit::signal::{Sign, in_words, silence};
use crate::experiment::{Audit, Importance};
use crate::learner::{Updated, mini_batches};
use crate::record::Event;
use crate::rollout::{Roster, RunSettings};
use crate::trajectory::{Advantages, MemoryRewards, Outcome, TrajectoryId, TroubleFound, Turns};

/// Faults that are told one by one; the rest is a number.
const MOST_TOLD: usize = 3;

/// Audits the update whose report has come in. See [`audit`] for what is checked. A fault stops the
/// run, or is recorded as trouble (`record.audit`).
pub fn audit_update(
    updated: Res<Updated>,
    settings: Res<RunSettings>,
    roster: Res<Roster>,
    trajectories: Query<(&Turns, &Advantages)>,
    mut trouble: MessageWriter<TroubleFound>,
) -> Result {
    let mode = settings.0.record.audit;
    let Some(report) = updated.report.as_ref().filter(|_| mode != Audit::Off) else {
        return Ok(());
    };
    let declared: BTreeMap<TrajectoryId, Declared<'_>> = roster
        .entities
        .iter()
        .filter_map(|(&id, &entity)| {
            let (turns, advantages) = trajectories.get(entity).ok()?;
            let turns = &turns.0;
            Some((id, Declared { turns, advantages }))
        })
        .collect();
    let consumed: Vec<Consumed<'_>> = updated
        .rows
        .iter()
        .zip(&report.logprobs)
        .map(|(packed, learner)| Consumed {
            id: packed.id,
            row: &packed.row,
            weight: &packed.credit.weight,
            learner,
        })
        .collect();
    let learner = &settings.0.learner;
    let batches = mini_batches(
        updated.rows.len(),
        learner.mini_batches,
        learner.epochs,
        settings.0.seed,
        updated.step,
    );
    let trained = |mask: &[bool]| mask.iter().filter(|on| **on).count() as u64;
    let written: Vec<u64> = updated
        .rows
        .iter()
        .map(|packed| trained(&packed.row.mask))
        .collect();
    let tokens: Vec<u64> = report.mini_batches.iter().map(|mini| mini.tokens).collect();
    let mut faults = audit::consumption(&written, &batches, report.logprobs.len(), &tokens);
    faults.extend(audit::rows(&declared, &consumed));
    // A later epoch overwrites the log-probs of the first; and importance weights are there because
    // the one that sampled differs from the learner, whose own log-probs are then the old ones.
    let exact = learner.importance == Importance::Off;
    let first: Vec<Consumed<'_>> = batches
        .first()
        .filter(|_| learner.epochs == 1 && exact)
        .into_iter()
        .flatten()
        .filter_map(|&row| consumed.get(row).copied())
        .collect();
    let reported = report.mini_batches.first().map(|mini| mini.ratio_gap);
    faults.extend(audit::first_ratio(&first, reported));
    let Some(text) = told(updated.step + 1, &faults) else {
        return Ok(());
    };
    if mode == Audit::Stop {
        return Err(BevyError::from(format!(
            "{text}; nothing of this update is saved. Set record.audit to warn to go on all the same"
        )));
    }
    trouble.write(TroubleFound {
        id: faults.first().and_then(|fault| fault.id),
        what: text,
    });
    Ok(())
}

/// The faults of a step in one text; none if there are none.
fn told(step: u32, faults: &[Fault]) -> Option<String> {
    let more = match faults.len().saturating_sub(MOST_TOLD) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let first: Vec<String> = faults
        .iter()
        .take(MOST_TOLD)
        .map(ToString::to_string)
        .collect();
    (!first.is_empty()).then(|| {
        format!(
            "step {step}: the credit audit failed: {}{more}",
            first.join("; ")
        )
    })
}

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

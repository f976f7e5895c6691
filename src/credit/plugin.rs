//! The system that assigns credit, group by group.

use std::collections::BTreeMap;

use bevy_app::prelude::*;
use bevy_ecs::prelude::*;

use super::{CreditError, group, memory};
use crate::experiment::CreditSettings;
use crate::rollout::{Roster, RunSettings};
use crate::schedule::{Activity, PalimpsestSystems, Phase, stop_on_error};
use crate::trajectory::{Advantages, MemoryReward, MemoryRewards, Outcome, TrajectoryId};

/// Outcome and memory rewards of one rollout.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rewards {
    /// R_T.
    pub outcome: f64,
    /// r_t of every scored round.
    pub memory: Vec<MemoryReward>,
}

/// Advantages of the rollouts of one question, in their order.
///
/// # Errors
/// Rewards that are not finite, or an empty group.
pub fn group_advantages(
    rollouts: &[Rewards],
    settings: &CreditSettings,
) -> Result<Vec<Advantages>, CreditError> {
    let outcomes: Vec<f64> = rollouts.iter().map(|rollout| rollout.outcome).collect();
    let outcome = group::grpo(&outcomes, settings.outcome_std())?;
    if !settings.memory {
        return Ok(outcome
            .iter()
            .map(|&value| Advantages {
                outcome: value as f32,
                memory: Vec::new(),
            })
            .collect());
    }
    let rounds: Vec<Vec<memory::RoundReward>> = rollouts
        .iter()
        .map(|rollout| {
            let round = |of: &MemoryReward| memory::RoundReward {
                turn: of.turn,
                reward: f64::from(of.reward),
            };
            rollout.memory.iter().map(round).collect()
        })
        .collect();
    let memory = memory::advantages(&rounds, settings.baseline, settings.memory_std())?;
    let weigh = |(round, value): (&memory::RoundReward, &f64)| {
        (round.turn, (value * f64::from(settings.weight())) as f32)
    };
    Ok(outcome
        .iter()
        .zip(rounds.iter().zip(&memory))
        .map(|(&outcome, (rounds, values))| Advantages {
            outcome: outcome as f32,
            memory: rounds.iter().zip(values).map(weigh).collect(),
        })
        .collect())
}

/// When the learning phase is about to begin, turns the rewards of every group into advantages.
fn assign_credit(
    mut commands: Commands,
    phase: Res<Phase>,
    settings: Res<RunSettings>,
    roster: Res<Roster>,
    rewards: Query<(&Outcome, Option<&MemoryRewards>)>,
) -> Result {
    if phase.activity != Activity::Learning || phase.begun {
        return Ok(());
    }
    let mut groups: BTreeMap<u32, Vec<(TrajectoryId, Entity, Rewards)>> = BTreeMap::new();
    for (&id, &entity) in &roster.entities {
        let Ok((outcome, memory)) = rewards.get(entity) else {
            continue;
        };
        let memory = memory.map(|memory| memory.0.clone()).unwrap_or_default();
        let rewards = Rewards {
            outcome: f64::from(outcome.reward),
            memory,
        };
        groups
            .entry(id.group)
            .or_default()
            .push((id, entity, rewards));
    }
    for (number, members) in groups {
        let rollouts: Vec<Rewards> = members
            .iter()
            .map(|(_, _, rewards)| rewards.clone())
            .collect();
        let advantages = group_advantages(&rollouts, &settings.0.credit).with_context(|| {
            let names: Vec<String> = members.iter().map(|(id, ..)| id.to_string()).collect();
            format!("group {number} ({})", names.join(", "))
        })?;
        for ((_, entity, _), advantages) in members.into_iter().zip(advantages) {
            commands.entity(entity).insert(advantages);
        }
    }
    Ok(())
}

/// Wires the system of credit.
pub fn plugin(app: &mut App) {
    app.add_systems(
        Update,
        assign_credit
            .pipe(stop_on_error)
            .in_set(PalimpsestSystems::Credit),
    );
}

//! The system that assigns credit, group by group.

use std::collections::BTreeMap;

use bevy_app::prelude::*;
use bevy_ecs::prelude::*;

use super::memory::length::priced;
use super::memory::{GroupRounds, MemoryCreditState, RoundReward, round_advantages};
use super::{CreditError, group};
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

/// The outcome advantages of one question: the only place where an estimator is chosen.
fn outcome_advantages(
    outcomes: &[f64],
    settings: &CreditSettings,
) -> Result<Vec<f64>, CreditError> {
    group::grpo(outcomes, settings.outcome_std())
}

/// Advantages of the rollouts of one question, in their order, and the returns of their rounds.
///
/// # Errors
/// Rewards that are not finite, or an empty group.
pub fn credit_group(
    rollouts: &[Rewards],
    settings: &CreditSettings,
    step: u32,
    state: &MemoryCreditState,
) -> Result<(Vec<Advantages>, Vec<RoundReward>), CreditError> {
    let outcomes: Vec<f64> = rollouts.iter().map(|rollout| rollout.outcome).collect();
    let outcome = outcome_advantages(&outcomes, settings)?;
    if !settings.memory {
        let alone = |&value: &f64| Advantages {
            outcome: value as f32,
            memory: Vec::new(),
        };
        return Ok((outcome.iter().map(alone).collect(), Vec::new()));
    }
    let price = |of: &MemoryReward| RoundReward {
        turn: of.turn,
        reward: priced(
            f64::from(of.reward),
            of.notes_tokens,
            settings.length,
            state.multiplier,
        ),
    };
    let rounds: Vec<Vec<RoundReward>> = rollouts
        .iter()
        .map(|rollout| rollout.memory.iter().map(price).collect())
        .collect();
    let (memory, returns) = round_advantages(
        GroupRounds {
            outcomes: &outcomes,
            outcome_advantages: &outcome,
            rounds: &rounds,
        },
        settings,
        step,
        state,
    )?;
    let advantages = outcome
        .iter()
        .zip(rounds.iter().zip(&memory))
        .map(|(&outcome, (rounds, values))| Advantages {
            outcome: outcome as f32,
            memory: rounds
                .iter()
                .zip(values)
                .map(|(round, &value)| (round.turn, value as f32))
                .collect(),
        })
        .collect();
    Ok((advantages, returns.concat()))
}

/// Advantages of the rollouts of one question in the first step of a run.
///
/// # Errors
/// Rewards that are not finite, or an empty group.
pub fn group_advantages(
    rollouts: &[Rewards],
    settings: &CreditSettings,
) -> Result<Vec<Advantages>, CreditError> {
    Ok(credit_group(rollouts, settings, 0, &MemoryCreditState::default())?.0)
}

/// When the learning phase is about to begin, turns the rewards of every group into advantages.
fn assign_credit(
    mut commands: Commands,
    phase: Res<Phase>,
    settings: Res<RunSettings>,
    roster: Res<Roster>,
    mut state: ResMut<MemoryCreditState>,
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
    let (mut returns, mut lengths) = (Vec::new(), Vec::new());
    for (number, members) in groups {
        let rollouts: Vec<Rewards> = members
            .iter()
            .map(|(_, _, rewards)| rewards.clone())
            .collect();
        let step = members.first().map_or(0, |(id, ..)| id.step);
        let credited = credit_group(&rollouts, &settings.0.credit, step, &state);
        let (advantages, of_group) = credited.with_context(|| {
            let names: Vec<String> = members.iter().map(|(id, ..)| id.to_string()).collect();
            format!("group {number} ({})", names.join(", "))
        })?;
        returns.extend(of_group);
        let notes = rollouts.iter().flat_map(|rollout| &rollout.memory);
        lengths.extend(notes.map(|round| round.notes_tokens));
        for ((_, entity, _), advantages) in members.into_iter().zip(advantages) {
            commands.entity(entity).insert(advantages);
        }
    }
    state.learn(&settings.0.credit, &returns, &lengths);
    Ok(())
}

/// Wires the system of credit.
pub fn plugin(app: &mut App) {
    app.init_resource::<MemoryCreditState>().add_systems(
        Update,
        assign_credit
            .pipe(stop_on_error)
            .in_set(PalimpsestSystems::Credit),
    );
}

//! The system that assigns credit, to a whole step at once.

use std::collections::BTreeMap;

use bevy_app::prelude::*;
use bevy_ecs::prelude::*;

use super::CreditError;
use super::assign::{CreditContext, Rewards, credit_step};
use super::kl::KlController;
use super::memory::MemoryCreditState;
use crate::experiment::{Experiment, KlInReward};
use crate::rollout::{Roster, RunSettings};
use crate::schedule::{Activity, Cursor, PalimpsestSystems, Phase, stop_on_error};
use crate::trajectory::{KlToReference, MemoryRewards, Outcome, TrajectoryId, Turn, Turns};

/// What the last step paid for leaving the reference; none if that costs nothing.
#[derive(Resource, Clone, Copy, Debug, Default, PartialEq)]
pub struct KlPaid(pub Option<KlPrice>);

/// See [`KlPaid`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KlPrice {
    /// The weight that was used.
    pub weight: f64,
    /// Mean over trajectories of the mean KL of their sampled tokens.
    pub kl: f64,
}

/// The controller of the KL in the reward as it stands; none if the KL costs nothing.
#[must_use]
pub fn reward_controller(experiment: &Experiment, cursor: &Cursor) -> Option<KlController> {
    match experiment.learner.kl_in_reward {
        KlInReward::Off => None,
        KlInReward::Fixed(cost) => Some(KlController::Fixed {
            weight: f64::from(cost.weight),
        }),
        KlInReward::Adaptive(aim) => Some(KlController::Adaptive {
            weight: cursor.kl_reward_weight.unwrap_or(f64::from(aim.weight)),
            target: f64::from(aim.target),
            horizon: f64::from(aim.horizon),
        }),
    }
}

/// Mean over trajectories of the mean KL of their tokens (verl `apply_kl_penalty`).
fn mean_kl<'a>(trajectories: impl Iterator<Item = &'a Rewards>) -> (f64, u64) {
    let (mut sum, mut count) = (0.0, 0u64);
    for rewards in trajectories {
        let tokens: usize = rewards.kl.iter().map(Vec::len).sum();
        let of_tokens: f64 = rewards.kl.iter().flatten().map(|&kl| f64::from(kl)).sum();
        sum += of_tokens / tokens.max(1) as f64;
        count += 1;
    }
    (sum / count.max(1) as f64, count)
}

/// Number of sampled tokens of every turn.
fn sampled(turns: &[Turn]) -> Vec<u32> {
    let count = |turn: &Turn| (turn.ids.len() as u32).saturating_sub(turn.forced);
    turns.iter().map(count).collect()
}

/// When the learning phase is about to begin, turns the rewards of every group into advantages.
fn assign_credit(
    mut commands: Commands,
    phase: Res<Phase>,
    mut cursor: ResMut<Cursor>,
    settings: Res<RunSettings>,
    roster: Res<Roster>,
    mut state: ResMut<MemoryCreditState>,
    mut paid: ResMut<KlPaid>,
    rewards: Query<(
        &Turns,
        &Outcome,
        Option<&MemoryRewards>,
        Option<&KlToReference>,
    )>,
) -> Result {
    if phase.activity != Activity::Learning || phase.begun {
        return Ok(());
    }
    let experiment = &settings.0;
    let mut members: BTreeMap<u32, Vec<(TrajectoryId, Entity)>> = BTreeMap::new();
    let mut groups: BTreeMap<u32, Vec<Rewards>> = BTreeMap::new();
    for (&id, &entity) in &roster.entities {
        let Ok((turns, outcome, memory, kl)) = rewards.get(entity) else {
            continue;
        };
        members.entry(id.group).or_default().push((id, entity));
        groups.entry(id.group).or_default().push(Rewards {
            outcome: f64::from(outcome.reward),
            memory: memory.map(|memory| memory.0.clone()).unwrap_or_default(),
            sampled: sampled(&turns.0),
            kl: kl.map(|kl| kl.0.clone()).unwrap_or_default(),
        });
    }
    let groups: Vec<Vec<Rewards>> = groups.into_values().collect();
    let mut controller = reward_controller(experiment, &cursor);
    let kl_weight = controller.map_or(0.0, |controller| controller.weight());
    let context = CreditContext {
        settings: &experiment.credit,
        step: cursor.step,
        kl_weight,
        state: &state,
    };
    let credited = match credit_step(&groups, context) {
        Ok(credited) => credited,
        Err(error) => return Err(named(error, &members)),
    };
    let entities = members.values().flatten().map(|(_, entity)| *entity);
    for (entity, advantages) in entities.zip(credited.groups.into_iter().flatten()) {
        commands.entity(entity).insert(advantages);
    }
    let notes = groups.iter().flatten().flat_map(|rollout| &rollout.memory);
    let lengths: Vec<u32> = notes.map(|round| round.notes_tokens).collect();
    state.learn(&experiment.credit, &credited.returns, &lengths);
    paid.0 = controller.as_mut().map(|controller| {
        let (kl, trajectories) = mean_kl(groups.iter().flatten());
        controller.update(kl, trajectories);
        if let KlController::Adaptive { weight, .. } = *controller {
            cursor.kl_reward_weight = Some(weight);
        }
        let weight = kl_weight;
        KlPrice { weight, kl }
    });
    Ok(())
}

/// An error about a group by its place among the groups, with the number of the group and the names
/// of its trajectories.
fn named(error: CreditError, members: &BTreeMap<u32, Vec<(TrajectoryId, Entity)>>) -> BevyError {
    if let CreditError::InGroup { group, source } = &error
        && let Some((number, of)) = members.iter().nth(*group)
    {
        let names: Vec<String> = of.iter().map(|(id, _)| id.to_string()).collect();
        return BevyError::from(format!("group {number} ({}): {source}", names.join(", ")));
    }
    error.into()
}

/// Wires the system of credit.
pub fn plugin(app: &mut App) {
    app.init_resource::<MemoryCreditState>()
        .init_resource::<KlPaid>()
        .add_systems(
            Update,
            assign_credit
                .pipe(stop_on_error)
                .in_set(PalimpsestSystems::Credit),
        );
}

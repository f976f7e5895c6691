//! Rewards: what an answer was worth, and what the notes were worth.
//!
//! Reads finished trajectories; writes `Outcome` and `MemoryRewards`. P(gold | context) is asked of
//! the engine once per step, one request a trajectory.

mod answer;
mod memory;
mod plan;

use bevy_app::prelude::*;
use bevy_ecs::prelude::*;

use crate::schedule::{PalimpsestSystems, stop_on_error};

pub use answer::outcome_of;
pub use plan::{MemoryScorePlan, joined_first_alias, plan_memory_scores};

/// Wires the systems of rewards.
pub fn plugin(app: &mut App) {
    app.add_systems(
        Update,
        (
            answer::judge_outcomes,
            memory::ask_for_memory_scores.pipe(stop_on_error),
            memory::take_memory_scores_in.pipe(stop_on_error),
        )
            .chain()
            .in_set(PalimpsestSystems::Reward),
    );
}

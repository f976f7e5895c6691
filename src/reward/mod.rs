//! Rewards: what an answer was worth, and what the notes were worth.
//!
//! Reads finished trajectories; writes `Outcome`, `MemoryRewards` and `KlToReference`. Scores are asked
//! of the engine once per step: P(gold | context) in one request a trajectory, log-probs under the
//! reference in one a row.

mod answer;
mod gains;
mod plan;
mod reference;
mod scores;

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
            scores::ask_for_scores.pipe(stop_on_error),
            scores::take_scores_in.pipe(stop_on_error),
        )
            .chain()
            .in_set(PalimpsestSystems::Reward),
    );
}

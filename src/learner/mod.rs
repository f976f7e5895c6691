//! The learner: cold start steps, and RL updates from trajectories with credit.
//!
//! Reads `Turns` and `Advantages`; writes learn batches and the cursor. What tensors do is the
//! engine's business; here rows are packed and audited, and schedules are followed.

mod audit;
mod cold_start;
mod pack;
mod update;

use bevy_app::prelude::*;
use bevy_ecs::prelude::*;

use crate::schedule::{PalimpsestSystems, stop_on_error};

pub use cold_start::{ColdStartProgress, stage_at};
pub use pack::{PackedRow, mini_batches, pack_rows};
pub use update::{Updated, learning_rate};

/// Wires the systems of learning.
pub fn plugin(app: &mut App) {
    app.init_resource::<ColdStartProgress>()
        .init_resource::<Updated>()
        .add_systems(
            Update,
            update::pack_update
                .pipe(stop_on_error)
                .in_set(PalimpsestSystems::Pack),
        )
        .add_systems(
            Update,
            (
                cold_start::send_cold_start_step.pipe(stop_on_error),
                cold_start::take_cold_start_step_in,
                update::begin_rl.pipe(stop_on_error),
                audit::audit_update.pipe(stop_on_error),
                update::send_update.pipe(stop_on_error),
                update::take_update_in,
                audit::audit_report.pipe(stop_on_error),
            )
                .chain()
                .in_set(PalimpsestSystems::Learn),
        );
}

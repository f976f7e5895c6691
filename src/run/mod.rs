//! A run from beginning to end: which phase comes next, what is written down when, how it stops and
//! how it goes on.
//!
//! Reads everything; writes the phase, the record and checkpoints.

mod aside;
mod checkpoint;
mod control;
mod controls;
mod launch;
mod publish;
mod recorder;
mod silence;
mod step_metrics;
mod steps;

use bevy_app::prelude::*;
use bevy_ecs::prelude::*;

use crate::schedule::{PalimpsestSystems, stop_on_error};

pub use aside::{Aside, AsideAnswer};
pub use checkpoint::{CHECKPOINT_FILE, CheckpointState};
pub use control::next_activity;
pub use controls::{Controls, LaneTold, Pace, Told};
pub use launch::{Launch, Origin, Started, build_app, plugins, run_to_end};
pub use publish::{News, Screen};
pub use recorder::{Recorder, RunClock};

/// Wires control, checkpoints and the recorder.
pub fn plugin(app: &mut App) {
    app.init_resource::<control::SavedAt>()
        .init_resource::<RunClock>()
        .init_resource::<News>()
        .add_systems(
            Update,
            (
                control::conduct.in_set(PalimpsestSystems::Control),
                publish::publish_progress.in_set(PalimpsestSystems::Publish),
                (
                    recorder::record_spawns.pipe(stop_on_error),
                    recorder::record_turns.pipe(stop_on_error),
                    recorder::record_tool_results.pipe(stop_on_error),
                    recorder::record_endings.pipe(stop_on_error),
                    steps::record_cold_start.pipe(stop_on_error),
                    silence::explain_silence.pipe(stop_on_error),
                    steps::record_update.pipe(stop_on_error),
                    steps::record_evaluation.pipe(stop_on_error),
                    recorder::record_trouble.pipe(stop_on_error),
                    checkpoint::save_checkpoint.pipe(stop_on_error),
                    checkpoint::commit_checkpoint.pipe(stop_on_error),
                    recorder::flush_record.pipe(stop_on_error),
                )
                    .chain()
                    .in_set(PalimpsestSystems::Record),
            ),
        );
}

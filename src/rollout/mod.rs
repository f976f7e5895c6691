//! Rollouts: trajectories as entities, moved on turn by turn.
//!
//! Reads the experiment, the task, and the inboxes of engine and tools; writes `Turns`, `TurnState`,
//! and requests. `advance.rs` holds the transition as a pure function and the systems that apply it.

mod advance;
mod asearcher;
mod context;
mod handover;
mod mem1_row;
mod protocol;
mod spawn;
mod state;

use bevy_app::prelude::*;
use bevy_ecs::prelude::*;

use crate::schedule::{PalimpsestSystems, stop_on_error};
use crate::trajectory::{
    NotesWritten, ToolCalled, ToolReturned, TrajectorySpawned, TrajectoryTerminated, TroubleFound,
    TurnGenerated,
};

pub use advance::{AfterTool, AfterTurn, state_after_tool, state_after_turn, tool_result};
pub use asearcher::{AsearcherAgent, Asked, Entry, Reading, Source, Usage};
pub use context::{
    Context, ForcedIds, TurnForm, content_ids, next_context, notes_content_ids, notes_ids,
    training_rows, turn_form,
};
pub use mem1_row::{Mem1Block, Mem1Ids, Mem1Row};
pub use protocol::{ParsedTurn, parse_turn, reading_stop_strings, stop_strings};
pub use spawn::{draw_training_questions, seen_as};
pub use state::{
    Backlog, EvaluationEntry, Order, Roster, RunSettings, TaskHandle, Temperature, View,
};

/// Wires the systems of rollouts.
pub fn plugin(app: &mut App) {
    app.init_resource::<Backlog>()
        .init_resource::<Roster>()
        .add_message::<TrajectorySpawned>()
        .add_message::<TurnGenerated>()
        .add_message::<NotesWritten>()
        .add_message::<ToolCalled>()
        .add_message::<ToolReturned>()
        .add_message::<TrajectoryTerminated>()
        .add_message::<TroubleFound>()
        .add_systems(
            Update,
            (
                (
                    spawn::order_training_rollouts.pipe(stop_on_error),
                    spawn::spawn_trajectories,
                )
                    .chain()
                    .in_set(PalimpsestSystems::Spawn),
                (
                    advance::take_turns_in,
                    advance::take_tool_results_in,
                    advance::finish_rollouts,
                )
                    .chain()
                    .in_set(PalimpsestSystems::Advance),
                handover::dispatch_tool_calls.in_set(PalimpsestSystems::Tools),
                handover::dispatch_turns
                    .pipe(stop_on_error)
                    .in_set(PalimpsestSystems::Generate),
            ),
        );
}

//! Messages: past facts that systems tell each other. State lives in components; a message only
//! says that something happened.

use bevy_ecs::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Action, StopReason, ToolFailure, TrajectoryId};

/// A trajectory was spawned.
#[derive(Message, Clone, Debug, Serialize, Deserialize)]
pub struct TrajectorySpawned {
    /// Which.
    pub id: TrajectoryId,
}

/// The engine finished a turn.
#[derive(Message, Clone, Debug, Serialize, Deserialize)]
pub struct TurnGenerated {
    /// Which trajectory.
    pub id: TrajectoryId,
    /// Which turn, from 0.
    pub turn: u32,
}

/// A turn wrote notes.
#[derive(Message, Clone, Debug, Serialize, Deserialize)]
pub struct NotesWritten {
    /// Which trajectory.
    pub id: TrajectoryId,
    /// Which turn, from 0.
    pub turn: u32,
    /// Length of the notes, tokens.
    pub tokens: u32,
}

/// A turn asked for a tool.
#[derive(Message, Clone, Debug, Serialize, Deserialize)]
pub struct ToolCalled {
    /// Which trajectory.
    pub id: TrajectoryId,
    /// Which turn, from 0.
    pub turn: u32,
    /// What it asked for.
    pub action: Action,
}

/// A tool answered.
#[derive(Message, Clone, Debug, Serialize, Deserialize)]
pub struct ToolReturned {
    /// Which trajectory.
    pub id: TrajectoryId,
    /// Which turn, from 0.
    pub turn: u32,
    /// The text, or the error shown to the policy.
    pub text: String,
    /// Whether the tool failed, and how.
    pub failure: Option<ToolFailure>,
}

/// A trajectory is over.
#[derive(Message, Clone, Debug, Serialize, Deserialize)]
pub struct TrajectoryTerminated {
    /// Which.
    pub id: TrajectoryId,
    /// Why.
    pub reason: StopReason,
}

/// Something went wrong that the user should know of; the run goes on.
#[derive(Message, Clone, Debug, Serialize, Deserialize)]
pub struct TroubleFound {
    /// Where, if it is about one trajectory.
    pub id: Option<TrajectoryId>,
    /// What, in a sentence.
    pub what: String,
}

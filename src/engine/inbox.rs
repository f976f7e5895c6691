//! What has come back from the engine thread, where the systems of a tick find it.

use std::path::PathBuf;

use bevy_ecs::prelude::*;

use super::{Generated, LearnReport, Scored, SupervisedReport};

/// Replies taken in this tick; consumers take them out.
#[derive(Resource, Debug, Default)]
pub struct EngineInbox {
    /// Turns, sorted by (trajectory, turn).
    pub generated: Vec<Generated>,
    /// Log-probs.
    pub scored: Option<Vec<Scored>>,
    /// An update.
    pub learned: Option<LearnReport>,
    /// A supervised step.
    pub supervised: Option<SupervisedReport>,
    /// RL has begun.
    pub begun_rl: bool,
    /// A folder was written.
    pub saved: Option<PathBuf>,
}

/// Seconds the engine spent since they were last taken, by kind of work.
#[derive(Resource, Clone, Copy, Debug, Default)]
pub struct EngineSeconds {
    /// Generating.
    pub generate: f64,
    /// Scoring.
    pub score: f64,
    /// Learning, supervised or not.
    pub learn: f64,
    /// Saving.
    pub save: f64,
}

/// Whether a tick waits for all its replies.
#[derive(Resource, Clone, Copy, Debug)]
pub struct Lockstep(pub bool);

//! Resources and small components that the rollout systems share.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bevy_ecs::prelude::*;

use super::ForcedIds;
use crate::experiment::{ContextKind, Experiment};
use crate::task::Task;
use crate::trajectory::{QuestionData, TrajectoryId};

/// The resolved experiment.
#[derive(Resource, Clone)]
pub struct RunSettings(pub Arc<Experiment>);

/// The task, and what of its tokenizer the rollout needs at hand.
#[derive(Resource, Clone)]
pub struct TaskHandle {
    /// The task.
    pub task: Arc<dyn Task>,
    /// Ids of `<mem>`.
    pub forced: ForcedIds,
    /// Stop strings of a turn.
    pub stop: Arc<[String]>,
    /// Stop strings of a turn that only reads.
    pub stop_reading: Arc<[String]>,
}

impl TaskHandle {
    /// Wraps a task.
    #[must_use]
    pub fn new(task: Arc<dyn Task>) -> Self {
        let forced = ForcedIds(task.tokenizer().encode("<mem>"));
        Self {
            task,
            forced,
            stop: super::stop_strings().into(),
            stop_reading: super::reading_stop_strings().into(),
        }
    }
}

/// What a trajectory sees.
#[derive(Component, Clone, Copy, Debug, PartialEq, Eq)]
pub struct View(pub ContextKind);

/// Which line of the evaluation table a trajectory counts for.
#[derive(Component, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EvaluationEntry {
    /// Context it runs in.
    pub context: ContextKind,
    /// Objectives of its question.
    pub objectives: u32,
}

/// A trajectory that is to be spawned.
#[derive(Clone, Debug)]
pub struct Order {
    /// Its id.
    pub id: TrajectoryId,
    /// Its question.
    pub question: Arc<QuestionData>,
    /// What it sees.
    pub view: ContextKind,
    /// Sampling temperature, 0 = greedy.
    pub temperature: f32,
    /// For evaluations.
    pub entry: Option<EvaluationEntry>,
}

/// Trajectories that wait for a place.
#[derive(Resource, Debug, Default)]
pub struct Backlog(pub VecDeque<Order>);

/// Trajectories of the phase by id: systems walk it, so that order never depends on archetypes.
#[derive(Resource, Debug, Default)]
pub struct Roster {
    /// Every trajectory of the phase.
    pub entities: BTreeMap<TrajectoryId, Entity>,
    /// How many of them are not over.
    pub alive: usize,
}

/// Sampling temperature of a trajectory.
#[derive(Component, Clone, Copy, Debug, PartialEq)]
pub struct Temperature(pub f32);

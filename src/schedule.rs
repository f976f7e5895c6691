//! The order of everything: one enum of system sets, chained, on one thread. Two systems that touch
//! the same data without an order are an error when the schedule is built, so the order in which
//! plugins are registered changes nothing.

use bevy_app::prelude::*;
use bevy_ecs::error::BevyError;
use bevy_ecs::prelude::*;
use bevy_ecs::schedule::{LogLevel, ScheduleBuildSettings, SingleThreadedExecutor};
use serde::{Deserialize, Serialize};

/// The sets of one tick, in running order.
#[derive(SystemSet, Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PalimpsestSystems {
    /// Decides the phase of the run. Reads the cursor, interrupts; writes [`Phase`].
    Control,
    /// Draws questions and spawns trajectories. Reads the phase; writes entities.
    Spawn,
    /// Takes replies in from engine and tools; the only set that may wait. Writes the inboxes.
    Receive,
    /// Moves every trajectory one state on. Reads the inboxes; writes `Turns`, `TurnState`.
    Advance,
    /// Hands tool calls over. Reads `TurnState::ProcessingTools`.
    Tools,
    /// Hands the next turns to the engine. Reads `TurnState::Pending`; writes `TurnState::Generating`.
    Generate,
    /// Judges answers and asks for scores. Writes `Outcome`, `MemoryRewards`, `KlToReference`.
    Reward,
    /// Turns rewards into advantages. Writes `Advantages`.
    Credit,
    /// Lays advantages over training rows. Writes the update that is to be sent.
    Pack,
    /// Cold start steps and RL updates: audits the update, sends it, takes the report in.
    Learn,
    /// Sums up evaluations.
    Evaluate,
    /// Writes down what happened in this tick.
    Record,
    /// Shows progress.
    Publish,
}

/// What the run is doing. Each phase is driven by the folder named in its comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    /// Nothing yet.
    Starting,
    /// One supervised step (learner).
    ColdStart,
    /// The optimizer is made new for RL (learner).
    BeginRl,
    /// The policy is measured (rollout, eval).
    Evaluating,
    /// Trajectories are rolled out (rollout).
    RollingOut,
    /// P(gold | context) and the KL to the reference are scored (reward).
    Scoring,
    /// The policy is updated (learner).
    Learning,
    /// A checkpoint is written (run).
    Saving,
    /// The final policy is written (run).
    Finishing,
    /// Over.
    Finished,
}

/// The phase of the run.
#[derive(Resource, Clone, Copy, Debug)]
pub struct Phase {
    /// What is being done.
    pub activity: Activity,
    /// The driving system has sent or spawned what the phase needs.
    pub begun: bool,
    /// The driving system has everything it waited for.
    pub done: bool,
}

impl Phase {
    /// A phase that has not begun.
    #[must_use]
    pub fn new(activity: Activity) -> Self {
        Self {
            activity,
            begun: false,
            done: false,
        }
    }

    /// True once: the phase is `activity` and has not begun; it has from now on.
    pub fn begin(&mut self, activity: Activity) -> bool {
        let first = self.activity == activity && !self.begun;
        self.begun |= first;
        first
    }

    /// The phase is `activity`, has begun and is not done.
    #[must_use]
    pub fn waits_in(&self, activity: Activity) -> bool {
        self.activity == activity && self.begun && !self.done
    }
}

/// How far the run has come: everything that a checkpoint has to remember besides tensors. Random
/// numbers are addressed by these counters, so there is no other random state.
#[derive(Resource, Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cursor {
    /// Cold start steps done, over all stages.
    pub cold_start_step: u32,
    /// The RL stage has begun.
    pub rl_begun: bool,
    /// RL steps done.
    pub step: u32,
    /// The last RL step whose evaluation is recorded.
    pub evaluated: Option<u32>,
    /// The weight of the KL, if a controller moves it and has done so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kl_weight: Option<f64>,
    /// The weight of the KL in the reward, if a controller moves it and has done so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kl_reward_weight: Option<f64>,
    /// Mini-batches skipped in a row, up to the last one, as their loss or gradient was not finite.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped_in_row: u32,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Why the run must stop, though nothing is broken yet: once a checkpoint of the present weights is saved, this
/// becomes the [`RunFailure`].
#[derive(Resource, Debug, Default)]
pub struct RunHalt(pub Option<String>);

/// Why the run cannot go on. Set by any system, read by the runner after every tick.
#[derive(Resource, Debug, Default)]
pub struct RunFailure(pub Option<BevyError>);

/// Ends a fallible system: `system.pipe(stop_on_error)`. The first failure counts.
pub fn stop_on_error(result: In<Result>, mut failure: ResMut<RunFailure>) {
    if let Err(error) = result.0
        && failure.0.is_none()
    {
        failure.0 = Some(error);
    }
}

/// Chains the sets, puts the schedule on one thread, and makes ambiguity an error.
pub fn plugin(app: &mut App) {
    use PalimpsestSystems::{
        Advance, Control, Credit, Evaluate, Generate, Learn, Pack, Publish, Receive, Record,
        Reward, Spawn, Tools,
    };
    app.init_resource::<RunFailure>()
        .init_resource::<RunHalt>()
        .configure_sets(
            Update,
            (
                Control, Spawn, Receive, Advance, Tools, Generate, Reward, Credit, Pack, Learn,
                Evaluate, Record, Publish,
            )
                .chain(),
        )
        .edit_schedule(Update, |schedule| {
            schedule.set_executor(SingleThreadedExecutor::new());
            schedule.set_build_settings(ScheduleBuildSettings {
                ambiguity_detection: LogLevel::Error,
                ..ScheduleBuildSettings::default()
            });
        });
}

//! Draws the questions of a step and spawns their rollouts while there is room.

use std::sync::Arc;

use bevy_ecs::prelude::*;

use super::state::{Backlog, Order, Roster, RunSettings, TaskHandle, Temperature, View};
use crate::experiment::{ContextKind, Experiment};
use crate::random::{Domain, stream};
use crate::schedule::{Activity, Cursor, Phase};
use crate::task::{Split, Task, TaskError};
use crate::trajectory::{
    Budget, Group, MemberOf, Purpose, Question, QuestionData, TrajectoryId, TrajectorySpawned,
    TurnState, Turns,
};

/// The questions of one RL step. The same (seed, step) always gives the same questions.
#[must_use]
pub fn draw_training_questions(
    experiment: &Experiment,
    task: &dyn Task,
    step: u32,
) -> Vec<Arc<QuestionData>> {
    use rand::RngExt as _;
    (0..experiment.rollout.groups)
        .map(|group| {
            let mut rng = stream(experiment.seed, Domain::Questions, step, group, 1);
            let settings = &experiment.task;
            let objectives = rng.random_range(
                settings.objectives_min..=settings.objectives_max.max(settings.objectives_min),
            );
            Arc::new(task.question(
                experiment.seed,
                step,
                group,
                objectives,
                Split::Train,
                settings.redraw,
            ))
        })
        .collect()
}

/// A question as a context shows it: with other instructions, or with the parts of a document.
///
/// # Errors
/// [`TaskError`] if the document cannot be found.
pub fn seen_as(
    experiment: &Experiment,
    task: &dyn Task,
    question: &Arc<QuestionData>,
    context: ContextKind,
) -> Result<Arc<QuestionData>, TaskError> {
    let chunks = &experiment.task.chunks;
    let other = task.seen_as(question, context, chunks)?;
    Ok(other.map_or_else(|| Arc::clone(question), Arc::new))
}

/// At the start of a rollout phase, puts every rollout of the step into the backlog.
pub fn order_training_rollouts(
    mut phase: ResMut<Phase>,
    cursor: Res<Cursor>,
    settings: Res<RunSettings>,
    task: Res<TaskHandle>,
    mut backlog: ResMut<Backlog>,
) -> Result {
    if !phase.begin(Activity::RollingOut) {
        return Ok(());
    }
    let experiment = &settings.0;
    for (group, question) in draw_training_questions(experiment, task.task.as_ref(), cursor.step)
        .into_iter()
        .enumerate()
    {
        let view = experiment.rollout.context.of_group(group as u32);
        let question = seen_as(experiment, task.task.as_ref(), &question, view)?;
        backlog
            .0
            .extend((0..experiment.rollout.group_size).map(|member| Order {
                id: TrajectoryId {
                    step: cursor.step,
                    purpose: Purpose::Train,
                    group: group as u32,
                    member,
                },
                question: Arc::clone(&question),
                view,
                temperature: experiment.rollout.temperature,
                entry: None,
            }));
    }
    Ok(())
}

/// Spawns trajectories from the backlog while fewer than `rollout.in_flight` are alive.
pub fn spawn_trajectories(
    mut commands: Commands,
    settings: Res<RunSettings>,
    mut backlog: ResMut<Backlog>,
    mut roster: ResMut<Roster>,
    groups: Query<(Entity, &Group)>,
    mut spawned: MessageWriter<TrajectorySpawned>,
) {
    let rollout = &settings.0.rollout;
    let room = if rollout.in_flight == 0 {
        usize::MAX
    } else {
        rollout.in_flight as usize
    };
    let mut known: Vec<(Group, Entity)> = groups
        .iter()
        .map(|(entity, group)| (*group, entity))
        .collect();
    while roster.alive < room {
        let Some(order) = backlog.0.pop_front() else {
            return;
        };
        let key = Group {
            step: order.id.step,
            purpose: order.id.purpose,
            group: order.id.group,
        };
        let group = known
            .iter()
            .find(|(group, _)| *group == key)
            .map(|(_, entity)| *entity)
            .unwrap_or_else(|| {
                let entity = commands
                    .spawn((key, Question(Arc::clone(&order.question))))
                    .id();
                known.push((key, entity));
                entity
            });
        // Every part of a document takes a turn of its own.
        let turns = turn_limit(rollout.limits.turns, order.question.objectives.len() as u32)
            .max(order.question.chunks.len() as u32 + 1);
        let entity = commands
            .spawn((
                order.id,
                MemberOf(group),
                Question(order.question),
                View(order.view),
                Temperature(order.temperature),
                TurnState::Pending,
                Turns::default(),
                Budget {
                    turns,
                    tokens: rollout.limits.trajectory_tokens,
                },
            ))
            .id();
        if let Some(entry) = order.entry {
            commands.entity(entity).insert(entry);
        }
        roster.entities.insert(order.id, entity);
        roster.alive += 1;
        spawned.write(TrajectorySpawned { id: order.id });
    }
}

/// Turns a trajectory may take; 0 in the settings means one search per objective, the answer, and
/// two to spare.
fn turn_limit(setting: u32, objectives: u32) -> u32 {
    if setting == 0 {
        objectives + 3
    } else {
        setting
    }
}

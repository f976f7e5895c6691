//! Orders an evaluation, waits for it, and sums it up.

use bevy_app::prelude::*;
use bevy_ecs::prelude::*;

use super::{Evaluation, Measured, TrajectoryFigures, Transcript, evaluation_orders, summarise};
use crate::rollout::{Backlog, EvaluationEntry, Roster, RunSettings, TaskHandle};
use crate::schedule::{Activity, Cursor, PalimpsestSystems, Phase, stop_on_error};
use crate::trajectory::{Outcome, Question, TrajectoryId, TurnState, Turns};

/// The lines of the evaluation that has just ended. The recorder takes them out.
#[derive(Resource, Clone, Debug, Default)]
pub struct Evaluated(pub Vec<Evaluation>);

/// The trajectories of an evaluation that is all that is done, in the order of their ids.
#[derive(Resource, Clone, Debug, Default)]
pub struct Transcripts(pub Vec<Transcript>);

/// At the start of an evaluation, puts its trajectories into the backlog.
fn order_evaluation(
    mut phase: ResMut<Phase>,
    cursor: Res<Cursor>,
    settings: Res<RunSettings>,
    task: Res<TaskHandle>,
    mut backlog: ResMut<Backlog>,
) -> Result {
    if phase.begin(Activity::Evaluating) {
        let orders = evaluation_orders(&settings.0, task.task.as_ref(), cursor.step)?;
        backlog.0.extend(orders);
        phase.done = backlog.0.is_empty();
    }
    Ok(())
}

/// What is read of a trajectory that was measured.
type Judged<'w> = (
    &'w EvaluationEntry,
    &'w Outcome,
    &'w Turns,
    &'w TurnState,
    &'w Question,
);

/// When every evaluation trajectory has been judged, sums them up.
fn finish_evaluation(
    mut phase: ResMut<Phase>,
    mut cursor: ResMut<Cursor>,
    settings: Res<RunSettings>,
    backlog: Res<Backlog>,
    roster: Res<Roster>,
    judged: Query<Judged<'static>>,
    mut evaluated: ResMut<Evaluated>,
    mut transcripts: ResMut<Transcripts>,
) {
    if !phase.waits_in(Activity::Evaluating) || roster.alive > 0 || !backlog.0.is_empty() {
        return;
    }
    let found: Vec<(TrajectoryId, Judged<'_>)> = roster
        .entities
        .iter()
        .filter_map(|(&id, &entity)| judged.get(entity).ok().map(|of| (id, of)))
        .collect();
    if found.len() < roster.entities.len() {
        return; // judged next tick
    }
    let mut answers = Vec::with_capacity(found.len());
    for (id, (entry, outcome, turns, state, question)) in found {
        let TurnState::Terminated(reason) = *state else {
            continue;
        };
        answers.push(Measured {
            entry: *entry,
            group: id.group,
            outcome: *outcome,
            figures: TrajectoryFigures::of(&turns.0, reason),
        });
        if settings.0.evaluation.only {
            transcripts.0.push(Transcript {
                id,
                context: entry.context,
                objectives: entry.objectives,
                reason,
                outcome: *outcome,
                question: question.0.as_ref().clone(),
                turns: turns.0.clone(),
            });
        }
    }
    evaluated.0 = summarise(cursor.step, &answers, &settings.0.evaluation);
    cursor.evaluated = Some(cursor.step);
    phase.done = true;
}

/// Wires the systems of evaluation.
pub fn plugin(app: &mut App) {
    app.init_resource::<Evaluated>()
        .init_resource::<Transcripts>()
        .add_systems(
            Update,
            (
                order_evaluation
                    .pipe(stop_on_error)
                    .in_set(PalimpsestSystems::Evaluate),
                finish_evaluation
                    .in_set(PalimpsestSystems::Evaluate)
                    .after(order_evaluation),
            ),
        );
}

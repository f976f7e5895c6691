//! Evaluation: the same rollouts, greedy, on entities never trained on, summed up per context and
//! number of objectives.
//!
//! Reads `Outcome`s of evaluation trajectories; writes a table.

pub mod mem1;

use std::collections::BTreeMap;
use std::sync::Arc;

use bevy_app::prelude::*;
use bevy_ecs::prelude::*;
use serde::{Deserialize, Serialize};

use crate::experiment::{ContextKind, Experiment};
use crate::rollout::{Backlog, EvaluationEntry, Order, Roster, RunSettings, TaskHandle};
use crate::schedule::{Activity, Cursor, PalimpsestSystems, Phase};
use crate::task::Task;
use crate::trajectory::{Outcome, Purpose, TrajectoryId};

/// One line of the evaluation table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// RL steps done when it was measured.
    pub step: u32,
    /// What the policy saw.
    pub context: ContextKind,
    /// Objectives per question.
    pub objectives: u32,
    /// Questions.
    pub n: u32,
    /// Share of questions with every objective right and the format valid.
    pub em: f64,
    /// Mean F1.
    pub f1: f64,
    /// Mean share of seen facts that stood in the notes.
    pub notes_recall: f64,
    /// Mean length of the notes, tokens.
    pub notes_tokens: f64,
    /// Mean longest context, tokens.
    pub peak_tokens: f64,
    /// Mean of all tokens processed.
    pub total_tokens: f64,
}

/// The lines of the evaluation that has just ended. The recorder takes them out.
#[derive(Resource, Clone, Debug, Default)]
pub struct Evaluated(pub Vec<Evaluation>);

/// Whether the policy is measured after `step`, and if so with how many questions and objectives.
#[must_use]
pub fn evaluation_plan(experiment: &Experiment, step: u32) -> Option<(u32, &[u32])> {
    let evaluation = &experiment.evaluation;
    let whole = step == 0 || step == experiment.learner.steps;
    let plan = if whole {
        (evaluation.questions, evaluation.objectives.as_slice())
    } else if evaluation.every > 0 && step.is_multiple_of(evaluation.every) {
        (
            evaluation.questions_during,
            evaluation.objectives_during.as_slice(),
        )
    } else {
        return None;
    };
    (plan.0 > 0 && !plan.1.is_empty() && !evaluation.contexts.is_empty()).then_some(plan)
}

/// The trajectories of one evaluation. Questions depend on the evaluation's own seed and on nothing
/// else, so that every run, step and context is asked the same.
#[must_use]
pub fn evaluation_orders(experiment: &Experiment, task: &dyn Task, step: u32) -> Vec<Order> {
    let Some((questions, objectives)) = evaluation_plan(experiment, step) else {
        return Vec::new();
    };
    let evaluation = &experiment.evaluation;
    let mut orders = Vec::new();
    for &objectives in objectives {
        for index in 0..questions {
            let question = Arc::new(task.question(
                evaluation.seed,
                objectives,
                index,
                objectives,
                evaluation.split,
                false,
            ));
            for &context in &evaluation.contexts {
                let group = orders.len() as u32;
                orders.push(Order {
                    id: TrajectoryId {
                        step,
                        purpose: Purpose::Evaluate,
                        group,
                        member: 0,
                    },
                    question: Arc::clone(&question),
                    view: context,
                    temperature: evaluation.temperature,
                    entry: Some(EvaluationEntry {
                        context,
                        objectives,
                    }),
                });
            }
        }
    }
    orders
}

/// Sums outcomes up per line of the table.
#[must_use]
pub fn summarise(step: u32, outcomes: &[(EvaluationEntry, Outcome)]) -> Vec<Evaluation> {
    let mut lines: BTreeMap<EvaluationEntry, Vec<Outcome>> = BTreeMap::new();
    for (entry, outcome) in outcomes {
        lines.entry(*entry).or_default().push(*outcome);
    }
    lines
        .into_iter()
        .map(|(entry, outcomes)| {
            let mean = |of: fn(&Outcome) -> f64| {
                outcomes.iter().map(of).sum::<f64>() / outcomes.len() as f64
            };
            Evaluation {
                step,
                context: entry.context,
                objectives: entry.objectives,
                n: outcomes.len() as u32,
                em: mean(|outcome| f64::from(outcome.em)),
                f1: mean(|outcome| f64::from(outcome.f1)),
                notes_recall: mean(|outcome| f64::from(outcome.notes_recall)),
                notes_tokens: mean(|outcome| f64::from(outcome.notes_tokens)),
                peak_tokens: mean(|outcome| f64::from(outcome.peak_tokens)),
                total_tokens: mean(|outcome| f64::from(outcome.total_tokens)),
            }
        })
        .collect()
}

/// At the start of an evaluation, puts its trajectories into the backlog.
fn order_evaluation(
    mut phase: ResMut<Phase>,
    cursor: Res<Cursor>,
    settings: Res<RunSettings>,
    task: Res<TaskHandle>,
    mut backlog: ResMut<Backlog>,
) {
    if phase.begin(Activity::Evaluating) {
        backlog.0.extend(evaluation_orders(
            &settings.0,
            task.task.as_ref(),
            cursor.step,
        ));
        phase.done = backlog.0.is_empty();
    }
}

/// When every evaluation trajectory has been judged, sums them up.
fn finish_evaluation(
    mut phase: ResMut<Phase>,
    mut cursor: ResMut<Cursor>,
    backlog: Res<Backlog>,
    roster: Res<Roster>,
    judged: Query<(&EvaluationEntry, &Outcome)>,
    mut evaluated: ResMut<Evaluated>,
) {
    if !phase.waits_in(Activity::Evaluating) || roster.alive > 0 || !backlog.0.is_empty() {
        return;
    }
    let outcomes: Vec<(EvaluationEntry, Outcome)> = roster
        .entities
        .values()
        .filter_map(|&entity| judged.get(entity).ok())
        .map(|(entry, outcome)| (*entry, *outcome))
        .collect();
    if outcomes.len() < roster.entities.len() {
        return; // judged next tick
    }
    evaluated.0 = summarise(cursor.step, &outcomes);
    cursor.evaluated = Some(cursor.step);
    phase.done = true;
}

/// Wires the systems of evaluation.
pub fn plugin(app: &mut App) {
    app.init_resource::<Evaluated>().add_systems(
        Update,
        (
            order_evaluation.in_set(PalimpsestSystems::Evaluate),
            finish_evaluation
                .in_set(PalimpsestSystems::Evaluate)
                .after(order_evaluation),
        ),
    );
}

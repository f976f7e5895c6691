//! What an evaluation asks.

use std::sync::Arc;

use crate::experiment::Experiment;
use crate::rollout::{EvaluationEntry, Order, seen_as};
use crate::task::{Task, TaskError};
use crate::trajectory::{Purpose, TrajectoryId};

/// Whether the policy is measured after `step`, and if so with how many questions and objectives.
#[must_use]
pub fn evaluation_plan(experiment: &Experiment, step: u32) -> Option<(u32, &[u32])> {
    let evaluation = &experiment.evaluation;
    let whole = evaluation.only || step == 0 || step == experiment.learner.steps;
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
/// else, so that every run, step and context is asked the same. Every context
/// of a question is a group, its samples are the members. A set with fewer questions is asked once.
///
/// # Errors
/// [`TaskError`] if a document cannot be found.
pub fn evaluation_orders(
    experiment: &Experiment,
    task: &dyn Task,
    step: u32,
) -> Result<Vec<Order>, TaskError> {
    let Some((questions, objectives)) = evaluation_plan(experiment, step) else {
        return Ok(Vec::new());
    };
    let evaluation = &experiment.evaluation;
    let mut orders = Vec::new();
    let mut group = 0;
    for &objectives in objectives {
        let there = task.available(evaluation.seed, objectives, evaluation.split);
        for index in 0..there.map_or(questions, |there| there.min(questions)) {
            let question = Arc::new(task.question(
                evaluation.seed,
                objectives,
                index,
                objectives,
                evaluation.split,
                false,
            ));
            for &context in &evaluation.contexts {
                let question = seen_as(experiment, task, &question, context)?;
                orders.extend((0..evaluation.samples).map(|member| Order {
                    id: TrajectoryId {
                        step,
                        purpose: Purpose::Evaluate,
                        group,
                        member,
                    },
                    question: Arc::clone(&question),
                    view: context,
                    temperature: evaluation.temperature,
                    entry: Some(EvaluationEntry {
                        context,
                        objectives,
                    }),
                }));
                group += 1;
            }
        }
    }
    Ok(orders)
}

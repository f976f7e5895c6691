//! The RL update: rows with credit go out, the report comes back.

use bevy_ecs::prelude::*;

use super::pack::{PackedRow, mini_batches, pack_rows};
use crate::engine::{
    EngineInbox, EngineLink, EngineRequest, LearnBatch, LearnKnobs, LearnReport, LearnRow,
};
use crate::experiment::LearnerSettings;
use crate::rollout::{Roster, RunSettings, TaskHandle};
use crate::schedule::{Activity, Cursor, Phase};
use crate::trajectory::{Advantages, Question, Turns};

/// The rows of the update under way, and its report once it is in.
#[derive(Resource, Clone, Debug, Default)]
pub struct Updated {
    /// The rows, in the order of the learn batch.
    pub rows: Vec<PackedRow>,
    /// Learning rate.
    pub lr: f32,
    /// What the update did. The recorder takes it out.
    pub report: Option<LearnReport>,
    /// The step it belongs to.
    pub step: u32,
}

/// Learning rate of RL step `step`: linear warm-up, then linear to `final_lr_share` of the peak at
/// the last step.
#[must_use]
pub fn learning_rate(settings: &LearnerSettings, step: u32) -> f32 {
    if step < settings.warmup_steps {
        return settings.lr * (step + 1) as f32 / settings.warmup_steps as f32;
    }
    let span = settings
        .steps
        .saturating_sub(settings.warmup_steps)
        .saturating_sub(1)
        .max(1);
    let along = (step - settings.warmup_steps) as f32 / span as f32;
    settings.lr * (1.0 + (settings.final_lr_share - 1.0) * along.min(1.0))
}

/// Makes the optimizer new for RL, once.
pub fn begin_rl(
    mut phase: ResMut<Phase>,
    mut cursor: ResMut<Cursor>,
    mut inbox: ResMut<EngineInbox>,
    settings: Res<RunSettings>,
    mut link: ResMut<EngineLink>,
) -> Result {
    if phase.begin(Activity::BeginRl) {
        link.send(EngineRequest::BeginRl {
            reference: settings.0.needs_reference(),
        })?;
    }
    if std::mem::take(&mut inbox.begun_rl) {
        cursor.rl_begun = true;
        phase.done = true;
    }
    Ok(())
}

/// Packs the trajectories of the step into rows and sends the update.
pub fn send_update(
    mut phase: ResMut<Phase>,
    cursor: Res<Cursor>,
    settings: Res<RunSettings>,
    task: Res<TaskHandle>,
    roster: Res<Roster>,
    trajectories: Query<(&Question, &Turns, &Advantages)>,
    mut updated: ResMut<Updated>,
    mut link: ResMut<EngineLink>,
) -> Result {
    if !phase.begin(Activity::Learning) {
        return Ok(());
    }
    let experiment = &settings.0;
    let mut rows = Vec::new();
    for (&id, &entity) in &roster.entities {
        let Ok((question, turns, advantages)) = trajectories.get(entity) else {
            continue;
        };
        let packed = pack_rows(
            id,
            experiment.rollout.context,
            &question.0,
            &turns.0,
            &task.forced,
            advantages,
        )
        .with_context(|| format!("trajectory {id}"))?;
        rows.extend(packed);
    }
    let learner = &experiment.learner;
    let lr = learning_rate(learner, cursor.step);
    let batch = LearnBatch {
        rows: rows
            .iter()
            .map(|packed| LearnRow {
                ids: packed.row.ids.clone(),
                mask: packed.row.mask.clone(),
                old_logprobs: packed.row.logprobs.clone(),
                advantages: packed.credit.weight.clone(),
            })
            .collect(),
        mini_batches: mini_batches(
            rows.len(),
            learner.mini_batches,
            learner.epochs,
            experiment.seed,
            cursor.step,
        ),
        knobs: LearnKnobs {
            clip_low: learner.clip_low,
            clip_high: learner.clip_high,
            clip_dual: if learner.clip_dual > 0.0 {
                learner.clip_dual
            } else {
                f32::INFINITY
            },
            kl_weight: learner.kl_weight,
            lr,
            betas: learner.betas,
            eps: learner.eps,
            weight_decay: learner.weight_decay,
            grad_clip: learner.grad_clip,
            temperature: experiment.rollout.temperature,
        },
    };
    *updated = Updated {
        rows,
        lr,
        report: None,
        step: cursor.step,
    };
    link.send(EngineRequest::Learn(batch))?;
    Ok(())
}

/// Takes the report in and moves the cursor: the step is done.
pub fn take_update_in(
    mut phase: ResMut<Phase>,
    mut cursor: ResMut<Cursor>,
    mut inbox: ResMut<EngineInbox>,
    mut updated: ResMut<Updated>,
) {
    let Some(report) = inbox.learned.take() else {
        return;
    };
    updated.report = Some(report);
    cursor.step += 1;
    if phase.waits_in(Activity::Learning) {
        phase.done = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    #[test]
    fn the_learning_rate_warms_up_and_falls_to_its_share() {
        let mut settings = Experiment::default().learner;
        (
            settings.steps,
            settings.warmup_steps,
            settings.lr,
            settings.final_lr_share,
        ) = (11, 2, 1.0, 0.1);
        assert_eq!(learning_rate(&settings, 0), 0.5);
        assert_eq!(learning_rate(&settings, 2), 1.0);
        assert!((learning_rate(&settings, 10) - 0.1).abs() < 1e-6);
    }
}

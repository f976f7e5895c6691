//! The supervised stage: one step a phase.

use bevy_ecs::prelude::*;

use crate::engine::{EngineInbox, EngineLink, EngineRequest, SupervisedBatch, SupervisedReport};
use crate::experiment::{ColdStartSettings, StageSettings};
use crate::rollout::{RunSettings, TaskHandle};
use crate::schedule::{Activity, Cursor, Phase};

/// The last cold start step.
#[derive(Resource, Clone, Debug, Default)]
pub struct ColdStartProgress {
    /// Its number over all stages, from 0, and what it did. Consumers take it out.
    pub finished: Option<(u32, f32, SupervisedReport)>,
    sent_lr: f32,
}

/// The stage that step `step` (over all stages) belongs to, and its number inside the stage.
#[must_use]
pub fn stage_at(settings: &ColdStartSettings, step: u32) -> Option<(&StageSettings, u32)> {
    let mut first = 0;
    for stage in &settings.stages {
        if step < first + stage.steps {
            return Some((stage, step - first));
        }
        first += stage.steps;
    }
    None
}

/// Linear from `lr` to `lr_end` over the stage, times a linear warm-up over the first steps of the
/// whole cold start.
fn stage_rate(settings: &ColdStartSettings, stage: &StageSettings, inside: u32, step: u32) -> f32 {
    let along = inside as f32 / stage.steps.max(1) as f32;
    let warm = if settings.warmup_steps == 0 {
        1.0
    } else {
        ((step + 1) as f32 / settings.warmup_steps as f32).min(1.0)
    };
    (stage.lr + (stage.lr_end - stage.lr) * along) * warm
}

/// Sends the next supervised step.
pub fn send_cold_start_step(
    mut phase: ResMut<Phase>,
    cursor: Res<Cursor>,
    settings: Res<RunSettings>,
    task: Res<TaskHandle>,
    mut progress: ResMut<ColdStartProgress>,
    mut link: ResMut<EngineLink>,
) -> Result {
    if !phase.begin(Activity::ColdStart) {
        return Ok(());
    }
    let experiment = &settings.0;
    let step = cursor.cold_start_step;
    let Some((stage, inside)) = stage_at(&experiment.cold_start, step) else {
        phase.done = true;
        return Ok(());
    };
    let lr = stage_rate(&experiment.cold_start, stage, inside, step);
    progress.sent_lr = lr;
    let parts = task
        .task
        .cold_start_examples(experiment.seed, step, &stage.mix);
    link.send(EngineRequest::Supervise(SupervisedBatch {
        parts,
        matrix_lr: lr,
        other_lr: lr * experiment.cold_start.other_lr_share,
        beta2: experiment.cold_start.beta2,
        weight_decay: experiment.cold_start.weight_decay,
        grad_clip: experiment.cold_start.grad_clip,
        aid_weight: stage.aid_weight,
        address: (experiment.seed, step),
    }))?;
    Ok(())
}

/// Takes the finished step in and moves the cursor.
pub fn take_cold_start_step_in(
    mut phase: ResMut<Phase>,
    mut cursor: ResMut<Cursor>,
    mut inbox: ResMut<EngineInbox>,
    mut progress: ResMut<ColdStartProgress>,
) {
    let Some(report) = inbox.supervised.take() else {
        return;
    };
    progress.finished = Some((cursor.cold_start_step, progress.sent_lr, report));
    cursor.cold_start_step += 1;
    if phase.waits_in(Activity::ColdStart) {
        phase.done = true;
    }
}

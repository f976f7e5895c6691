//! The RL update: rows with credit go out, the report comes back.

use bevy_ecs::prelude::*;

use super::pack::{PackedRow, mini_batches, pack_rows};
use crate::credit::kl::KlController;
use crate::credit::spread::TokenCredit;
use crate::engine::{
    EngineInbox, EngineLink, EngineRequest, LearnBatch, LearnKnobs, LearnReport, LearnRow,
};
use crate::experiment::{Experiment, KlControl, LearnerSettings, LrDecay};
use crate::rollout::{Roster, RunSettings, TaskHandle, View, training_rows};
use crate::schedule::{Activity, Cursor, Phase, RunHalt};
use crate::trajectory::{Advantages, Question, TroubleFound, Turns};

/// The update under way: its rows, what is to be sent, and its report once it is in.
#[derive(Resource, Clone, Debug, Default)]
pub struct Updated {
    /// The rows, in the order of the learn batch.
    pub rows: Vec<PackedRow>,
    /// What is to be sent; none once it is.
    pub batch: Option<LearnBatch>,
    /// Row numbers of each mini-batch, as they are sent.
    pub mini_batches: Vec<Vec<usize>>,
    /// Learning rate.
    pub lr: f32,
    /// Weight of the KL to the reference in the loss.
    pub kl_weight: f32,
    /// What the update did. The recorder takes it out.
    pub report: Option<LearnReport>,
    /// The step it belongs to.
    pub step: u32,
    /// Lists of rows that have served, to be filled again.
    spare: Vec<TokenCredit>,
}

impl Updated {
    /// Forgets the rows, and keeps their lists for the next step.
    pub fn clear_rows(&mut self) {
        let rows = self.rows.drain(..);
        self.spare.extend(rows.map(|packed| packed.credit));
    }
}

/// Learning rate of RL step `step`: linear warm-up, then by `lr_decay` to `final_lr_share` of the peak
/// at the last step.
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
    let along = ((step - settings.warmup_steps) as f32 / span as f32).min(1.0);
    let fallen = match settings.lr_decay {
        LrDecay::Linear => along,
        LrDecay::Cosine => (1.0 - (std::f32::consts::PI * along).cos()) / 2.0,
    };
    settings.lr * (1.0 + (settings.final_lr_share - 1.0) * fallen)
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
            average: settings.0.average_decay().is_some(),
            lora: settings
                .0
                .learner
                .lora
                .settings()
                .map(|adapters| (adapters.clone(), settings.0.seed)),
        })?;
    }
    if std::mem::take(&mut inbox.begun_rl) {
        cursor.rl_begun = true;
        phase.done = true;
    }
    Ok(())
}

/// Packs the trajectories of the step into rows, and makes the update that is to be sent.
pub fn pack_update(
    mut phase: ResMut<Phase>,
    cursor: Res<Cursor>,
    settings: Res<RunSettings>,
    task: Res<TaskHandle>,
    roster: Res<Roster>,
    trajectories: Query<(&Question, &View, &Turns, &Advantages)>,
    mut updated: ResMut<Updated>,
) -> Result {
    if !phase.begin(Activity::Learning) {
        return Ok(());
    }
    let experiment = &settings.0;
    let mut spare = std::mem::take(&mut updated.spare);
    let mut rows = Vec::new();
    for (&id, &entity) in &roster.entities {
        let Ok((question, view, turns, advantages)) = trajectories.get(entity) else {
            continue;
        };
        let of = training_rows(view.0, &question.0, &turns.0, &task.forced);
        let packed = pack_rows(id, of, advantages, &mut spare)
            .with_context(|| format!("trajectory {id}"))?;
        rows.extend(packed);
    }
    let learner = &experiment.learner;
    let mini_batches = mini_batches(
        rows.len(),
        learner.mini_batches,
        learner.epochs,
        experiment.seed,
        cursor.step,
    );
    let lr = learning_rate(learner, cursor.step);
    // A weight moved by a controller is part of the cursor, so that a resumed run goes on with it.
    let kl_weight = cursor.kl_weight.map_or(learner.kl_weight, |w| w as f32);
    let row = |packed: &PackedRow| LearnRow {
        ids: packed.row.ids.clone(),
        mask: packed.row.mask.clone(),
        old_logprobs: packed.row.logprobs.clone(),
        advantages: packed.credit.weight.clone(),
    };
    let batch = LearnBatch {
        rows: rows.iter().map(row).collect(),
        mini_batches: mini_batches.clone(),
        knobs: knobs(experiment, cursor.step, lr, kl_weight),
    };
    *updated = Updated {
        rows,
        batch: Some(batch),
        mini_batches,
        lr,
        kl_weight,
        report: None,
        step: cursor.step,
        spare,
    };
    Ok(())
}

/// The knobs of RL step `step`.
fn knobs(experiment: &Experiment, step: u32, lr: f32, kl_weight: f32) -> LearnKnobs {
    let learner = &experiment.learner;
    LearnKnobs {
        clip_low: learner.clip_low,
        clip_high: learner.clip_high,
        clip_dual: if learner.clip_dual > 0.0 {
            learner.clip_dual
        } else {
            f32::INFINITY
        },
        kl_weight,
        kl_kind: learner.kl_kind,
        policy_loss: learner.policy_loss,
        aggregation: learner.aggregation,
        entropy_weight: learner.entropy_weight,
        importance: learner.importance,
        micro_tokens: learner.micro_tokens,
        precision: learner.precision,
        recompute: learner.recompute,
        address: (experiment.seed, step),
        lr,
        betas: learner.betas,
        eps: learner.eps,
        weight_decay: learner.weight_decay,
        grad_clip: learner.grad_clip,
        temperature: experiment.rollout.temperature,
        average_decay: experiment.average_decay(),
    }
}

/// Sends the update, once it has passed the audit.
pub fn send_update(mut updated: ResMut<Updated>, mut link: ResMut<EngineLink>) -> Result {
    if let Some(batch) = updated.batch.take() {
        link.send(EngineRequest::Learn(batch))?;
    }
    Ok(())
}

/// Takes the report in and moves the cursor: the step is done.
pub fn take_update_in(
    mut phase: ResMut<Phase>,
    mut cursor: ResMut<Cursor>,
    settings: Res<RunSettings>,
    mut inbox: ResMut<EngineInbox>,
    mut updated: ResMut<Updated>,
    mut halt: ResMut<RunHalt>,
    mut trouble: MessageWriter<TroubleFound>,
) {
    let Some(report) = inbox.learned.take() else {
        return;
    };
    let learner = &settings.0.learner;
    trouble.write_batch(report.skipped.iter().map(|what| TroubleFound {
        id: None,
        what: format!("step {}: {what}", updated.step + 1),
    }));
    let (after, reached) = skipped_in_row(cursor.skipped_in_row, &report, learner.max_skipped);
    cursor.skipped_in_row = after;
    if reached {
        halt.0 = Some(format!(
            "step {}: {} mini-batches in a row had a loss or gradient that is not finite, and were skipped \
             (learner.max_skipped)",
            updated.step + 1,
            learner.max_skipped
        ));
    }
    cursor.kl_weight = next_kl_weight(learner, cursor.kl_weight, &report, updated.rows.len());
    updated.report = Some(report);
    cursor.step += 1;
    if phase.waits_in(Activity::Learning) {
        phase.done = true;
    }
}

/// How many mini-batches were skipped in a row after this report, and whether `most` was reached. Then the
/// count begins again, so that a run that is resumed has its whole patience.
fn skipped_in_row(before: u32, report: &LearnReport, most: u32) -> (u32, bool) {
    let (mut now, mut reached) = (before, false);
    for mini in report.mini_batches.iter().filter(|mini| mini.tokens > 0) {
        now = if mini.skipped { now + 1 } else { 0 };
        reached |= now >= most;
    }
    (if reached { 0 } else { now }, reached)
}

/// The weight of the KL after an update with `rows` rows; `None` if no controller moves it.
fn next_kl_weight(
    settings: &LearnerSettings,
    now: Option<f64>,
    report: &LearnReport,
    rows: usize,
) -> Option<f64> {
    let KlControl::Adaptive(aim) = settings.kl_control else {
        return None;
    };
    let mut controller = KlController::Adaptive {
        weight: now.unwrap_or(f64::from(settings.kl_weight)),
        target: f64::from(aim.target),
        horizon: f64::from(aim.horizon),
    };
    let learned = report
        .mini_batches
        .iter()
        .filter(|mini| mini.tokens > 0 && !mini.skipped);
    let kls: Vec<f64> = learned.map(|mini| mini.kl_loss).collect();
    if !kls.is_empty() {
        controller.update(kls.iter().sum::<f64>() / kls.len() as f64, rows as u64);
    }
    Some(controller.weight())
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
        assert!((learning_rate(&settings, 4) - 0.775).abs() < 1e-6);
        settings.lr_decay = LrDecay::Cosine;
        // A quarter of the way: 0.1 + 0.9 (1 + cos(pi / 4)) / 2.
        assert!((learning_rate(&settings, 4) - 0.868_198).abs() < 1e-5);
        assert!((learning_rate(&settings, 6) - 0.55).abs() < 1e-6);
        assert!((learning_rate(&settings, 10) - 0.1).abs() < 1e-6);
        settings.final_lr_share = 1.0;
        assert_eq!(learning_rate(&settings, 7), 1.0);
    }

    #[test]
    fn the_weight_of_the_kl_follows_its_target_only_if_it_is_asked_to() {
        use crate::engine::MiniBatchReport;
        use crate::experiment::KlAim;
        let mut settings = Experiment::default().learner;
        settings.kl_weight = 0.5;
        let mini = |kl_loss| MiniBatchReport {
            tokens: 3,
            kl_loss,
            ..MiniBatchReport::default()
        };
        let report = LearnReport {
            mini_batches: vec![mini(0.3), mini(0.5), MiniBatchReport::default()],
            ..LearnReport::default()
        };
        assert_eq!(next_kl_weight(&settings, None, &report, 50), None);
        settings.kl_control = KlControl::Adaptive(KlAim {
            target: 0.25,
            horizon: 100.0,
        });
        // The KL is 0.4, above the target by more than a fifth: half a fifth more weight.
        let next = next_kl_weight(&settings, None, &report, 50).unwrap_or_default();
        assert!((next - 0.55).abs() < 1e-12, "{next}");
        let again = next_kl_weight(&settings, Some(next), &report, 50).unwrap_or_default();
        assert!((again - 0.605).abs() < 1e-12, "{again}");
    }

    #[test]
    fn skipped_mini_batches_are_counted_over_steps_until_one_is_learned_from() {
        use crate::engine::MiniBatchReport;
        let report = |skipped: &[bool]| LearnReport {
            mini_batches: skipped
                .iter()
                .map(|&skipped| MiniBatchReport {
                    tokens: 1,
                    skipped,
                    ..MiniBatchReport::default()
                })
                .collect(),
            ..LearnReport::default()
        };
        assert_eq!(skipped_in_row(0, &report(&[true, true]), 3), (2, false));
        assert_eq!(skipped_in_row(2, &report(&[false, true]), 3), (1, false));
        assert_eq!(skipped_in_row(2, &report(&[true, false]), 3), (0, true));
        assert_eq!(skipped_in_row(1, &report(&[]), 3), (1, false));
        assert_eq!(skipped_in_row(0, &report(&[true]), 1), (0, true));
    }

    #[test]
    fn a_checkpoint_keeps_a_moved_weight_and_one_without_it_is_read() {
        let plain = Cursor::default();
        let text = serde_json::to_string(&plain).unwrap_or_default();
        assert!(!text.contains("kl_"), "{text}");
        assert_eq!(serde_json::from_str::<Cursor>(&text).ok(), Some(plain));
        let moved = Cursor {
            kl_weight: Some(0.1 + 0.2),
            kl_reward_weight: Some(0.1),
            ..plain
        };
        let text = serde_json::to_string(&moved).unwrap_or_default();
        assert_eq!(serde_json::from_str::<Cursor>(&text).ok(), Some(moved));
    }
}

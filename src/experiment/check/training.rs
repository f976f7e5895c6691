//! Cold start and learner.

use super::Log;
use super::Severity::{Error, Note};
use crate::experiment::sizes::LookupTokens;
use crate::experiment::spec::{DecoderSettings, Experiment, PolicySettings, TaskKind};

pub(super) fn cold_start(experiment: &Experiment, shape: Option<&DecoderSettings>, log: &mut Log) {
    let mut end = 0;
    for (index, stage) in experiment.cold_start.stages.iter().enumerate() {
        let path = |name: &str| format!("cold_start.stages.{index}.{name}");
        end += u64::from(stage.steps);
        let mix = &stage.mix;
        let rows = [
            mix.full,
            mix.deployed,
            mix.probe,
            mix.drill,
            mix.copy,
            mix.sequence,
        ];
        if rows.iter().all(|rows| *rows == 0) && end > u64::from(mix.opening_steps) {
            log.report(
                Error,
                &[&path("mix")],
                format!("{} has no rows", path("mix")),
                "one kind of example at least, or opening_steps up to the end of the stage",
                "its steps would have nothing to learn from",
            );
        }
        if mix.keep.is_empty() && mix.full + mix.deployed > 0 {
            log.report(
                Error,
                &[&path("mix.keep"), &path("mix")],
                format!("{} []", path("mix.keep")),
                "one share at least",
                "nothing would say how much the notes keep",
            );
        }
        if stage.lr_end > stage.lr {
            log.report(
                Note,
                &[&path("lr_end"), &path("lr")],
                format!("{} {} above lr {}", path("lr_end"), stage.lr_end, stage.lr),
                "a stage usually ends with a smaller learning rate",
                "the learning rate rises",
            );
        }
        let most = mix.full_objectives_max;
        let positions = LookupTokens::of(most).trajectory()
            + u64::from(mix.position_gap) * (u64::from(most) + 1);
        let room = shape.map_or(u64::MAX, |s| s.max_position_embeddings.unsigned_abs());
        if mix.full > 0 && experiment.task.kind == TaskKind::Lookup && positions > room {
            log.report(
                Error,
                &[&path("mix.full_objectives_max"), &path("mix.position_gap"), "policy"],
                format!("{} {most} with position_gap {}", path("mix.full_objectives_max"), mix.position_gap),
                format!("about {positions} positions, but the policy's max_position_embeddings is {room}"),
                "examples would have tokens without a position",
            );
        }
    }
    let new = matches!(experiment.policy, PolicySettings::New(_));
    if new && experiment.cold_start.stages.is_empty() && experiment.learner.steps > 0 {
        log.report(
            Note,
            &["policy", "cold_start.stages"],
            "policy New without a cold start",
            "a new policy writes noise, which breaks the format in the first turn",
            "every outcome reward is 0 and RL has nothing to learn from",
        );
    }
}

pub(super) fn learner(experiment: &Experiment, log: &mut Log) {
    let (learner, rollout) = (&experiment.learner, &experiment.rollout);
    if learner.steps == 0 {
        if experiment.cold_start.stages.is_empty() {
            log.report(
                Note,
                &["learner.steps", "cold_start.stages"],
                "learner.steps 0 and no cold start",
                "steps above 0, or stages of a cold start",
                "the policy is measured and not trained",
            );
        }
        return;
    }
    let rows = rollout.trajectories();
    if u64::from(learner.mini_batches) > rows {
        log.report(
            Error,
            &[
                "learner.mini_batches",
                "rollout.groups",
                "rollout.group_size",
            ],
            format!("learner.mini_batches {}", learner.mini_batches),
            format!("at most groups * group_size = {rows}"),
            "some mini-batches would be empty",
        );
    }
    if learner.clip_dual > 0.0 && learner.clip_dual <= 1.0 + learner.clip_high {
        log.report(
            Error,
            &["learner.clip_dual", "learner.clip_high"],
            format!("learner.clip_dual {}", learner.clip_dual),
            format!(
                "above 1 + clip_high = {}, or 0 for off",
                1.0 + learner.clip_high
            ),
            "every bad token would already be clipped where the update begins",
        );
    }
    if learner.warmup_steps >= learner.steps {
        log.report(
            Note,
            &["learner.warmup_steps", "learner.steps"],
            format!("learner.warmup_steps {}", learner.warmup_steps),
            format!("below learner.steps = {}", learner.steps),
            "the run ends before the peak learning rate",
        );
    }
}

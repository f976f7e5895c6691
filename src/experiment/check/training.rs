//! Cold start and learner.

use std::collections::BTreeSet;

use super::Log;
use super::Severity::{Error, Note};
use crate::experiment::sizes::LookupTokens;
use crate::experiment::spec::{
    Aggregation, DecoderSettings, Experiment, Importance, KlControl, KlInReward, KlKind,
    LoraTarget, LrDecay, PolicyLoss, PolicySettings, Precision, TaskKind,
};

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
        if experiment.cold_start.stages.is_empty() && !experiment.evaluation.only {
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
    losses(experiment, log);
    sampling(experiment, log);
    computing(experiment, log);
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

/// How updates are computed.
fn computing(experiment: &Experiment, log: &mut Log) {
    let learner = &experiment.learner;
    if let Some(adapters) = learner.lora.settings() {
        let targets: BTreeSet<LoraTarget> = adapters.targets.iter().copied().collect();
        if targets.is_empty() || targets.len() < adapters.targets.len() {
            log.report(
                Error,
                &["learner.lora.targets", "learner.lora"],
                match targets.is_empty() {
                    true => "learner.lora.targets []",
                    false => "learner.lora.targets names a matrix twice",
                },
                "one matrix at least, each once",
                "no weight would learn, or one would have two adapters",
            );
        }
    }
    if learner.precision != Precision::F32 && learner.importance == Importance::Off {
        log.report(
            Note,
            &["learner.precision", "learner.importance"],
            "learner.precision bf16 without importance weights",
            "importance: truncate()",
            "ratios compare the learner's bf16 with the f32 that sampled: they are about 1 % off from the start",
        );
    }
    if learner.lr_decay != LrDecay::Linear && learner.final_lr_share == 1.0 {
        log.report(
            Note,
            &["learner.lr_decay", "learner.final_lr_share"],
            "learner.lr_decay cosine with final_lr_share 1",
            "final_lr_share below 1",
            "the learning rate ends where it began, and does not fall",
        );
    }
}

/// Losses whose settings contradict one another.
fn losses(experiment: &Experiment, log: &mut Log) {
    let learner = &experiment.learner;
    let of_rows = matches!(learner.policy_loss, PolicyLoss::Gspo | PolicyLoss::Gmpo);
    let given = log.places.contains_key("learner.aggregation");
    if of_rows && given && learner.aggregation != Aggregation::SeqMeanTokenMean {
        log.report(
            Error,
            &["learner.aggregation", "learner.policy_loss"],
            "learner.aggregation with a loss of whole rows",
            "seq_mean_token_mean, or leave it out",
            "gspo and gmpo are means over rows, and the aggregation would be passed over",
        );
    }
    if let PolicyLoss::ClipCov(tokens) = learner.policy_loss
        && tokens.lower >= tokens.upper
    {
        log.report(
            Error,
            &["learner.policy_loss", "learner.policy_loss.lower"],
            format!("learner.policy_loss.lower {}", tokens.lower),
            format!("below upper = {}", tokens.upper),
            "no token could be left out, and clip_cov would be ppo",
        );
    }
    if learner.kl_control != KlControl::Fixed {
        if learner.kl_weight == 0.0 {
            log.report(
                Error,
                &["learner.kl_control", "learner.kl_weight"],
                "learner.kl_control adaptive with kl_weight 0",
                "kl_weight above 0, the weight to begin with",
                "a weight of 0 stays 0 whatever it is multiplied by",
            );
        }
        let per_token = matches!(
            learner.aggregation,
            Aggregation::TokenMean | Aggregation::SeqMeanTokenMean
        );
        if !per_token && !of_rows {
            log.report(
                Error,
                &["learner.kl_control", "learner.aggregation"],
                "learner.kl_control adaptive with an aggregation that adds tokens up",
                "token_mean or seq_mean_token_mean",
                "the target is a KL per token, and sums over rows would be compared with it",
            );
        }
    }
    let kind = match learner.kl_in_reward {
        KlInReward::Off => None,
        KlInReward::Fixed(cost) => Some(cost.kind),
        KlInReward::Adaptive(aim) => Some(aim.kind),
    };
    if let Some(KlKind::K1Straight | KlKind::AbsStraight | KlKind::K3Straight) = kind {
        log.report(
            Error,
            &["learner.kl_in_reward.kind", "learner.kl_in_reward"],
            "learner.kl_in_reward with a straight-through kind",
            "k1, abs, k2 or k3",
            "straight-through kinds differ in their gradient, and a reward has none: it would be its namesake",
        );
    }
    if learner.kl_weight > 0.0 && learner.kl_kind == KlKind::K1 {
        log.report(
            Note,
            &["learner.kl_kind", "learner.kl_weight"],
            "learner.kl_kind k1 in the loss",
            "k1_straight, k2 or k3",
            "the gradient of k1 is 0 on average: noise without a pull to the reference",
        );
    }
    if learner.clip_dual > 0.0 && learner.policy_loss != PolicyLoss::Ppo {
        log.report(
            Note,
            &["learner.clip_dual", "learner.policy_loss"],
            format!("learner.clip_dual {}", learner.clip_dual),
            "policy_loss: ppo",
            "dual clip has no effect in other losses",
        );
    }
}

/// Cuts and penalties make rollouts come from another distribution than the one that is trained.
fn sampling(experiment: &Experiment, log: &mut Log) {
    let rollout = &experiment.rollout;
    let shaped = [
        (
            "rollout.top_k",
            rollout.top_k > 0,
            rollout.top_k.to_string(),
        ),
        (
            "rollout.top_p",
            rollout.top_p < 1.0,
            rollout.top_p.to_string(),
        ),
        (
            "rollout.min_p",
            rollout.min_p > 0.0,
            rollout.min_p.to_string(),
        ),
        (
            "rollout.repetition_penalty",
            rollout.repetition_penalty != 1.0,
            rollout.repetition_penalty.to_string(),
        ),
    ];
    let served = experiment.engine.generator.server().is_some();
    for (path, _, value) in shaped.into_iter().filter(|(_, on, _)| *on) {
        if served {
            log.report(
                Error,
                &[path, "engine.generator"],
                format!("{path} {value} with a server that generates"),
                "off",
                "servers tell log-probs of the distribution after their cuts, which no update could \
                 be made from",
            );
            continue;
        }
        log.report(
            Note,
            &[path],
            format!("{path} {value} in training"),
            "off, if updates shall be on-policy",
            "tokens are sampled from the shaped distribution, but their log-probs, and the policy that \
             is trained, are the whole distribution at the temperature",
        );
    }
}

//! The credit grammar: combinations that make no sense are refused with the reason.

use super::Log;
use super::Severity::{Error, Note};
use crate::experiment::refuse::excerpt;
use crate::experiment::setting::Setting;
use crate::experiment::spec::{
    Answers, Baseline, ContextKind, CreditSettings, Estimator, Experiment, First, Placebo,
    RolloutContext, Scale, Space, Support, Target, TaskKind, Threshold,
};

pub(super) fn credit(experiment: &Experiment, log: &mut Log) {
    let credit = &experiment.credit;
    what_makes_the_outcome(experiment, log);
    if credit.memory {
        what_is_compared(credit, log);
        what_is_scored(credit, log);
        beside_the_rest(experiment, log);
        where_notes_are(experiment, log);
    } else {
        without_memory(credit, log);
    }
}

/// The estimator beside rewards and the KL.
fn what_makes_the_outcome(experiment: &Experiment, log: &mut Log) {
    let estimator = experiment.credit.estimator;
    let shifts = experiment.reward.format > 0.0 || experiment.pays_for_kl();
    if estimator == Estimator::Gpg && shifts {
        log.report(
            Note,
            &["credit.estimator", "reward.format", "learner.kl_in_reward", "credit"],
            "credit.estimator gpg with reward.format or learner.kl_in_reward",
            "grpo, dr_grpo or rloo, or rewards of 0 and 1 alone",
            "gpg counts the rollouts with a reward that is not 0, and these make it count wrong answers",
        );
    }
    let divides = matches!(estimator, Estimator::Grpo | Estimator::Passk);
    if divides && experiment.pays_for_kl() {
        log.report(
            Note,
            &["learner.kl_in_reward", "credit.estimator", "credit"],
            "learner.kl_in_reward with an estimator that divides by the deviation of the question",
            "dr_grpo, rloo or reinforce_plus_plus_baseline",
            "where the rollouts of a question fare alike, only their KL differs, and dividing blows it up to full size whatever its weight",
        );
    }
}

/// Memory rewards need notes beside a history that they can be compared with.
fn where_notes_are(experiment: &Experiment, log: &mut Log) {
    let contexts = experiment.rollout.context.kinds(experiment.rollout.groups);
    let without = contexts
        .into_iter()
        .find(|context| !context.has_notes() || *context == ContextKind::Chunks);
    if let (Some(context), true) = (without, experiment.learner.steps > 0) {
        log.report(
            Error,
            &["rollout.context", "credit.memory", "credit"],
            format!("rollout.context {} with credit.memory", context.name()),
            "full, deployed, last_turn, memory_only or mixed; or credit: grpo",
            "its turns write no notes beside a history, so there is nothing that memory rewards could compare",
        );
    }
}

/// Lines that need memory rewards, while there are none.
fn without_memory(credit: &CreditSettings, log: &mut Log) {
    let plain = CreditSettings::grpo();
    let text = |value: &dyn Fn(&mut String)| {
        let mut text = String::new();
        value(&mut text);
        text
    };
    macro_rules! unused {
        ($($line:ident),+) => {$(
            let path = concat!("credit.", stringify!($line));
            if credit.$line != plain.$line && log.places.contains_key(path) {
                let value = text(&|out| credit.$line.write(out, ""));
                log.report(
                    Error,
                    &[path],
                    format!("{path} {} while credit.memory is false", excerpt(&value)),
                    "memory: true, or leave the line out",
                    "without memory rewards it has no effect: the arm would be plain GRPO under another name",
                );
            }
        )+};
    }
    unused!(
        target, space, threshold, answers, discount, baseline, scale, gate, weight, length, tokens,
        unclosed, support, scorer, first, placebo
    );
}

/// Target, discount, first round and threshold.
fn what_is_compared(credit: &CreditSettings, log: &mut Log) {
    let target = match credit.target {
        Target::MinusFull => "minus_full",
        Target::MinusPrevious => "minus_previous",
        Target::MinusEmpty => "minus_empty",
        Target::Absolute => "absolute",
    };
    if credit.discount > 0.0 && credit.target != Target::MinusPrevious {
        log.report(
            Error,
            &["credit.discount", "credit.target", "credit"],
            format!("credit.discount {} with credit.target {target}", credit.discount),
            "a discount above 0 goes with minus_previous",
            "only what each round added can be summed over rounds: here the same knowledge would be paid again in every later round",
        );
    }
    if credit.target == Target::Absolute && credit.first == First::MinusEmpty {
        log.report(
            Error,
            &["credit.first", "credit.target", "credit"],
            "credit.first minus_empty with credit.target absolute",
            "first: skip, or a target that is a difference",
            "the first round would be paid a difference and the others a level, in one pool",
        );
    }
    let union = matches!(credit.threshold, Threshold::Union(_));
    if union && credit.target == Target::Absolute {
        log.report(
            Error,
            &["credit.threshold", "credit.target", "credit"],
            "credit.threshold union with credit.target absolute",
            "own(p) or none",
            "there is no second context whose tokens could be united with those of the notes",
        );
    }
    if union && credit.answers == Answers::JoinedMaxAlias {
        log.report(
            Error,
            &["credit.threshold", "credit.answers", "credit"],
            "credit.threshold union with credit.answers joined_max_alias",
            "own(p) or none, or joined_first_alias",
            "each side takes the alias it knows best, and tokens of different texts cannot be united",
        );
    }
}

/// Space, support and scale.
fn what_is_scored(credit: &CreditSettings, log: &mut Log) {
    let log_space = matches!(credit.space, Space::Log(_));
    let zero = matches!(credit.threshold, Threshold::Own(p) | Threshold::Union(p) if p == 0.0);
    if log_space && zero {
        log.report(
            Error,
            &["credit.threshold", "credit.space", "credit"],
            "credit.threshold at 0 in log space",
            "none, or a threshold above 0",
            "an answer of which no token counts is worth the log of the threshold, minus infinity here",
        );
    }
    if log_space && credit.target == Target::Absolute && credit.support == Support::On {
        log.report(
            Error,
            &["credit.support", "credit.target", "credit"],
            "credit.support on with credit.target absolute in log space",
            "support: off, or a target that is a difference",
            "log-probs are never above 0, so there is no gain that could be withheld",
        );
    }
    if credit.weighs_nothing() {
        log.report(
            Note,
            &["credit.weight", "credit"],
            "credit.weight constant(0)",
            "`credit: grpo` leaves memory rewards out",
            "memory rewards are scored at full cost and count nothing",
        );
    }
    if matches!(credit.baseline, Baseline::PositionAverage(_)) && credit.scale == Scale::Std {
        log.report(
            Note,
            &["credit.scale", "credit.baseline", "credit"],
            "credit.scale std with credit.baseline position_average",
            "none or std_floor(s)",
            "the deviation of one question scales a difference to an average over all questions",
        );
    }
}

/// Credit beside rollouts and the task.
fn beside_the_rest(experiment: &Experiment, log: &mut Log) {
    let credit = &experiment.credit;
    if credit.target == Target::MinusFull && experiment.rollout.context == RolloutContext::Deployed
    {
        log.report(
            Note,
            &["rollout.context", "credit.target", "credit"],
            "rollout.context deployed with credit.target minus_full",
            "the target compares notes with the full history, which the policy does not see here",
            "notes are paid against a view that nobody acts on",
        );
    }
    if credit.placebo == Placebo::ShuffledGold && experiment.rollout.groups < 2 {
        log.report(
            Error,
            &["credit.placebo", "rollout.groups", "credit"],
            "credit.placebo shuffled_gold with rollout.groups 1",
            "2 questions per step or more",
            "no other question of the step has a gold answer to take, so nothing would be shuffled",
        );
    }
    if credit.answers == Answers::JoinedMaxAlias && experiment.task.kind == TaskKind::Lookup {
        log.report(
            Note,
            &["credit.answers", "credit"],
            "credit.answers joined_max_alias with task.kind Lookup",
            "joined_first_alias",
            "every answer of this task has one alias, so both are the same",
        );
    }
}

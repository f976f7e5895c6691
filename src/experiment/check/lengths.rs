//! Lengths: whether turns, contexts and questions fit into one another.

use super::Log;
use super::Severity::{Error, Note};
use crate::experiment::sizes::LookupTokens;
use crate::experiment::spec::{DecoderSettings, Experiment, Split, TaskKind};

pub(super) fn limits(experiment: &Experiment, shape: Option<&DecoderSettings>, log: &mut Log) {
    let limits = &experiment.rollout.limits;
    let (turn, trajectory, context) = (
        limits.turn_tokens,
        limits.trajectory_tokens,
        limits.context_tokens,
    );
    if let Some(shape) = shape.filter(|s| s.max_position_embeddings < i64::from(context)) {
        log.report(
            Error,
            &["rollout.limits.context_tokens", "policy"],
            format!("rollout.limits.context_tokens {context}"),
            format!(
                "at most the policy's max_position_embeddings = {}",
                shape.max_position_embeddings
            ),
            "a long context would have tokens without a position, and the engine would stop the run",
        );
    }
    if turn >= context {
        log.report(
            Error,
            &[
                "rollout.limits.turn_tokens",
                "rollout.limits.context_tokens",
            ],
            format!("rollout.limits.turn_tokens {turn}"),
            format!("below context_tokens = {context}"),
            "one turn could fill the context before any tool answers",
        );
    }
    if turn > trajectory {
        log.report(
            Note,
            &[
                "rollout.limits.turn_tokens",
                "rollout.limits.trajectory_tokens",
            ],
            format!("rollout.limits.turn_tokens {turn} above trajectory_tokens {trajectory}"),
            "trajectory_tokens counts all turns together",
            "the limit of a turn is never reached",
        );
    }
    let objectives = experiment.task.objectives_max;
    let turns = u64::from(experiment.rollout.turns(objectives));
    if experiment.learner.steps > 0 && turns * u64::from(turn) > u64::from(trajectory) {
        log.report(
            Note,
            &[
                "rollout.limits.trajectory_tokens",
                "rollout.limits.turn_tokens",
            ],
            format!("rollout.limits.trajectory_tokens {trajectory}"),
            format!(
                "{turns} turns of turn_tokens {turn} are {}",
                turns * u64::from(turn)
            ),
            "a trajectory of long turns ends by its tokens before its last turn",
        );
    }
    if experiment.task.kind == TaskKind::Lookup && experiment.learner.steps > 0 {
        let need = LookupTokens::of(objectives);
        let rollout = &experiment.rollout;
        let seen = (rollout.context.kinds(rollout.groups).into_iter())
            .map(|kind| need.context(kind))
            .max()
            .unwrap_or(0);
        if seen > u64::from(context) {
            log.report(
                Note,
                &["rollout.limits.context_tokens", "task.objectives_max"],
                format!("rollout.limits.context_tokens {context}"),
                format!("about {seen} tokens for {objectives} objectives"),
                "the longest training questions end with a full context",
            );
        }
        if need.last_turn() > u64::from(turn) {
            log.report(
                Note,
                &["rollout.limits.turn_tokens", "task.objectives_max"],
                format!("rollout.limits.turn_tokens {turn}"),
                format!(
                    "about {} tokens for notes and answer of {objectives} objectives",
                    need.last_turn()
                ),
                "the longest training questions cannot be answered",
            );
        }
    }
}

pub(super) fn evaluation(experiment: &Experiment, shape: Option<&DecoderSettings>, log: &mut Log) {
    let evaluation = &experiment.evaluation;
    let limits = &experiment.rollout.limits;
    let lists = [
        ("evaluation.objectives", &evaluation.objectives),
        (
            "evaluation.objectives_during",
            &evaluation.objectives_during,
        ),
    ];
    for (path, objectives) in lists {
        let repeated = objectives
            .iter()
            .enumerate()
            .find(|(index, count)| objectives.iter().take(*index).any(|other| other == *count));
        if let Some((_, count)) = repeated {
            log.report(
                Error,
                &[path],
                format!("{path} names {count} twice"),
                "each number of objectives once",
                "two entries would have the same name and the same questions",
            );
        }
        let Some(&most) = objectives.iter().max() else {
            continue;
        };
        if experiment.task.kind != TaskKind::Lookup {
            continue;
        }
        let contexts = evaluation.contexts.iter();
        let need = contexts
            .map(|kind| LookupTokens::of(most).context(*kind))
            .max();
        let need = need.unwrap_or_default();
        let room = shape.map_or(u64::MAX, |s| s.max_position_embeddings.unsigned_abs());
        if need > room {
            log.report(
                Error,
                &[path, "policy"],
                format!("{path} with {most} objectives"),
                format!("about {need} tokens, but the policy's max_position_embeddings is {room}"),
                "no such question could be answered",
            );
        } else if need > u64::from(limits.context_tokens) {
            log.report(
                Note,
                &[path, "rollout.limits.context_tokens"],
                format!("{path} with {most} objectives"),
                format!(
                    "about {need} tokens, but rollout.limits.context_tokens is {}",
                    limits.context_tokens
                ),
                "such questions end with a full context",
            );
        }
        let answer = LookupTokens::of(most).last_turn();
        if answer > u64::from(limits.turn_tokens) {
            log.report(
                Note,
                &[path, "rollout.limits.turn_tokens"],
                format!("{path} with {most} objectives"),
                format!("about {answer} tokens for notes and answer, but rollout.limits.turn_tokens is {}", limits.turn_tokens),
                "such questions cannot be answered",
            );
        }
    }
    if evaluation.contexts.is_empty() || evaluation.objectives.is_empty() {
        log.report(
            Note,
            &["evaluation.contexts", "evaluation.objectives"],
            "evaluation has no entries",
            "one context and one number of objectives at least",
            "the policy is not measured at the beginning and the end",
        );
    }
    if evaluation.split == Split::Train {
        log.report(
            Note,
            &["evaluation.split"],
            "evaluation.split Train",
            "Validation to choose settings, Test for numbers to report",
            "questions about entities that were trained on say little",
        );
    }
}

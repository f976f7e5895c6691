//! Rules that bind several settings. All of them are checked, and all findings reported at once.

use std::path::Path;

use super::finding::{Log, Severity};
use super::load::find_path;
use super::sizes::LookupTokens;
use super::spec::{
    ContextKind, CreditSettings, DecoderSettings, DeviceSetting, Experiment, PolicySettings, Split,
    TaskKind,
};

use Severity::{Error, Missing, Note};

/// Checks everything that no single setting can see.
pub(super) fn check(experiment: &Experiment, log: &mut Log) {
    let shape = experiment.policy.shape();
    what_is_there(experiment, log);
    questions(experiment, log);
    if let Some(shape) = &shape {
        heads(shape, log);
    }
    limits(experiment, shape.as_ref(), log);
    cold_start(experiment, shape.as_ref(), log);
    learner(experiment, log);
    credit(experiment, log);
    evaluation(experiment, shape.as_ref(), log);
}

/// Files, tasks and devices that must be there before a run.
fn what_is_there(experiment: &Experiment, log: &mut Log) {
    if let PolicySettings::Folder(folder) = &experiment.policy {
        match find_path(folder) {
            None => log.report(
                Missing,
                &["policy"],
                format!("policy folder {folder:?} is not there"),
                "a folder with config.json, model.safetensors and tokenizer.json, beside this file, in the current folder or beside the program",
                "there are no weights to begin with",
            ),
            Some(found) if found.join("model.safetensors.index.json").exists() => log.report(
                Missing,
                &["policy"],
                format!("policy folder {folder:?} holds a checkpoint in several files"),
                "one model.safetensors; large checkpoints in several files are planned",
                "the weights cannot be read",
            ),
            Some(_) => {}
        }
    }
    let facts = &experiment.task.facts;
    if !facts.is_empty() && find_path(facts).is_none() {
        log.report(
            Missing,
            &["task.facts"],
            format!("task.facts {facts:?} is not there"),
            "a file beside this one, in the current folder or beside the program; empty for the shipped facts",
            "there is nothing to ask",
        );
    }
    if experiment.task.kind == TaskKind::SearchQa {
        log.report(
            Missing,
            &["task.kind"],
            "task.kind SearchQa is not built yet",
            "tasks over a text corpus with search and page access are planned; available: Lookup",
            "there is nothing to ask",
        );
    }
    if let DeviceSetting::Cuda(number) = experiment.engine.device {
        let driver = ["/dev/nvidiactl", "/dev/dxg"];
        if cfg!(target_os = "linux") && !driver.iter().any(|file| Path::new(file).exists()) {
            log.report(
                Missing,
                &["engine.device"],
                format!("engine.device cuda({number}): this machine has no NVIDIA driver"),
                "a CUDA device, and a libtorch built for it; auto or cpu run anywhere",
                "the engine cannot start",
            );
        }
    }
    if experiment.record.runs.is_empty() {
        log.report(
            Error,
            &["record.runs"],
            "record.runs \"\"",
            "the name of a folder",
            "the record would have no place",
        );
    }
}

fn questions(experiment: &Experiment, log: &mut Log) {
    let task = &experiment.task;
    if task.objectives_min > task.objectives_max {
        log.report(
            Error,
            &["task.objectives_min", "task.objectives_max"],
            format!(
                "task.objectives_min {} above task.objectives_max {}",
                task.objectives_min, task.objectives_max
            ),
            "objectives_min at most objectives_max",
            "no number of objectives lies between them",
        );
    }
    let turns = experiment.rollout.turns(task.objectives_max);
    if task.kind == TaskKind::Lookup && turns < task.objectives_max.saturating_add(1) {
        log.report(
            Error,
            &["rollout.limits.turns", "task.objectives_max"],
            format!("rollout.limits.turns {turns}"),
            format!(
                "at least {}: one search for each of {} objectives and the answer; 0 for objectives + 3",
                task.objectives_max.saturating_add(1),
                task.objectives_max
            ),
            "the longest questions could never be answered",
        );
    }
}

fn heads(shape: &DecoderSettings, log: &mut Log) {
    let (width, heads, keys) = (
        shape.hidden_size,
        shape.num_attention_heads,
        shape.num_key_value_heads,
    );
    if heads > 0 && width % (2 * heads) != 0 {
        log.report(
            Error,
            &["policy.hidden_size", "policy.num_attention_heads"],
            format!("policy.hidden_size {width}"),
            format!("a multiple of 2 * num_attention_heads = {}", 2 * heads),
            "heads would have no whole, even width for the rotary embedding",
        );
    }
    if keys > 0 && heads % keys != 0 {
        log.report(
            Error,
            &["policy.num_key_value_heads", "policy.num_attention_heads"],
            format!("policy.num_key_value_heads {keys}"),
            format!("a divisor of num_attention_heads = {heads}"),
            "query heads could not share key heads evenly",
        );
    }
}

fn limits(experiment: &Experiment, shape: Option<&DecoderSettings>, log: &mut Log) {
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
        let seen = need.context(experiment.rollout.context);
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

fn cold_start(experiment: &Experiment, shape: Option<&DecoderSettings>, log: &mut Log) {
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

fn learner(experiment: &Experiment, log: &mut Log) {
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

fn credit(experiment: &Experiment, log: &mut Log) {
    let credit = &experiment.credit;
    if credit.memory && credit.weight() == 0.0 {
        log.report(
            Note,
            &["credit.weight", "credit"],
            "credit.weight constant(0)",
            "`credit: grpo` leaves memory rewards out",
            "memory rewards are scored at full cost and count nothing",
        );
    }
    if credit.memory && experiment.rollout.context == ContextKind::Deployed {
        log.report(
            Note,
            &["rollout.context", "credit.target", "credit"],
            "rollout.context deployed with credit.target minus_full",
            "the target compares notes with the full history, which the policy does not see here",
            "notes are paid against a view that nobody acts on",
        );
    }
    let plain = CreditSettings::grpo();
    let unused = [
        ("credit.threshold", credit.threshold != plain.threshold),
        ("credit.baseline", credit.baseline != plain.baseline),
        ("credit.scale", credit.scale != plain.scale),
        ("credit.weight", credit.weight != plain.weight),
    ];
    for (path, changed) in unused {
        if !credit.memory && changed && log.places.contains_key(path) {
            log.report(
                Note,
                &[path],
                format!("{path} is set while credit.memory is false"),
                "memory: true, or leave it out",
                "it has no effect",
            );
        }
    }
}

fn evaluation(experiment: &Experiment, shape: Option<&DecoderSettings>, log: &mut Log) {
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
        for &context in &evaluation.contexts {
            let need = LookupTokens::of(most).context(context);
            let room = shape.map_or(u64::MAX, |s| s.max_position_embeddings.unsigned_abs());
            if need > room {
                log.report(
                    Error,
                    &[path, "policy"],
                    format!("{path} with {most} objectives"),
                    format!(
                        "about {need} tokens, but the policy's max_position_embeddings is {room}"
                    ),
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

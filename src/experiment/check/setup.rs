//! Files, devices, questions and the shape of the policy.

use std::path::Path;

use super::Log;
use super::Severity::{Error, Missing, Note};
use crate::experiment::paths::find_path;
use crate::experiment::spec::{
    ContextKind, DecoderSettings, DeviceSetting, Experiment, PolicySettings, Retrieval,
    RetrieverSettings, RolloutContext, ScoringSetting, TaskKind,
};

/// The longest wait between two tries of a request to a retriever, seconds.
const LONGEST_WAIT: f64 = 30.0;

/// Files, tasks and devices that must be there before a run.
pub(super) fn what_is_there(experiment: &Experiment, log: &mut Log) {
    if let PolicySettings::Folder(folder) = &experiment.policy
        && find_path(folder).is_none()
    {
        log.report(
            Missing,
            &["policy"],
            format!("policy folder {folder:?} is not there"),
            "a folder with config.json, safetensors and tokenizer.json, beside this file, in the current folder or beside the program",
            "there are no weights to begin with",
        );
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
    if experiment.task.kind == TaskKind::Search {
        search_files(experiment, log);
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

/// The server that generates, if there is one.
pub(super) fn generator(experiment: &Experiment, log: &mut Log) {
    let Some(server) = experiment.engine.generator.server() else {
        return;
    };
    let url = &server.url;
    let host = ["http://", "https://"]
        .iter()
        .find_map(|scheme| url.strip_prefix(scheme));
    if host.is_none_or(|host| host.is_empty() || host.starts_with(['/', ':'])) {
        log.report(
            Error,
            &["engine.generator.url", "engine.generator"],
            format!("engine.generator.url {url:?}"),
            "the address of the server, as \"http://127.0.0.1:30000\"",
            "there is no server to ask",
        );
    }
    if host.is_some_and(|host| host.contains('@')) {
        log.report(
            Error,
            &["engine.generator.url", "engine.generator"],
            "engine.generator.url holds a user or password",
            "an address without them, and api_key_env: the name of the variable that holds the key",
            "the secret would stand in every run folder",
        );
    }
    let key = &server.api_key_env;
    let named = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !named {
        log.report(
            Error,
            &["engine.generator.api_key_env", "engine.generator"],
            "engine.generator.api_key_env is no name of a variable",
            "letters, digits and _ (the key itself belongs into the environment)",
            "a key would stand in every run folder",
        );
    } else if !key.is_empty() && std::env::var_os(key).is_none() {
        log.report(
            Missing,
            &["engine.generator.api_key_env", "engine.generator"],
            format!("the environment variable {key} is not set"),
            "the key of the server in that variable, or an empty api_key_env",
            "the server would refuse every request",
        );
    }
    if server.scoring == ScoringSetting::Learner && !experiment.trains() {
        log.report(
            Note,
            &["engine.generator.scoring"],
            "engine.generator.scoring learner in a run that only measures",
            "auto",
            "there is no learner in such a run, and nothing is scored",
        );
    }
}

/// The server that finds passages.
fn served(experiment: &Experiment, server: &RetrieverSettings, log: &mut Log) {
    let url = &server.url;
    let host = ["http://", "https://"]
        .iter()
        .find_map(|scheme| url.strip_prefix(scheme));
    if host.is_none_or(|host| host.is_empty() || host.starts_with(['/', ':']) || host.contains('@'))
    {
        log.report(
            Error,
            &["task.retrieval"],
            format!("task.retrieval served(url: {url:?})"),
            "the address of the server, without a user, as \"http://127.0.0.1:8000\"",
            "there is no server to ask",
        );
    }
    // One try that takes its whole time, and the waits before the others.
    let mut wait = f64::from(server.retry_seconds);
    let mut needed = f64::from(server.timeout_seconds);
    for _ in 1..server.tries.min(20) {
        needed += wait.min(LONGEST_WAIT);
        wait *= 2.0;
    }
    let seconds = f64::from(experiment.rollout.limits.tool_seconds);
    if seconds < needed {
        log.report(
            Note,
            &["rollout.limits.tool_seconds", "task.retrieval"],
            format!("rollout.limits.tool_seconds {seconds}"),
            format!(
                "at least {needed:.1}: the waits between {} tries, and one try of {} s",
                server.tries, server.timeout_seconds
            ),
            "a call would end as too slow before its last try, and nobody would hear that the server is dead",
        );
    }
    let chunks = experiment.rollout.context == RolloutContext::Chunks && experiment.trains()
        || experiment
            .evaluation
            .contexts
            .contains(&ContextKind::Chunks);
    if chunks {
        log.report(
            Error,
            &["task.retrieval", "evaluation.contexts"],
            "the context chunks with a retriever that is a server",
            "a corpus here and retrieval lexical, dense or hybrid",
            "there would be no document to read",
        );
    }
}

/// The files of a search task, and what it has not.
fn search_files(experiment: &Experiment, log: &mut Log) {
    let task = &experiment.task;
    let encoder = match &task.retrieval {
        Retrieval::Lexical => "",
        Retrieval::Dense(folder) | Retrieval::Hybrid(folder) => folder,
        Retrieval::Served(server) => {
            served(experiment, server, log);
            ""
        }
    };
    let has_server = matches!(task.retrieval, Retrieval::Served(_));
    for (setting, file, needed, wanted) in [
        (
            "task.corpus",
            task.corpus.as_str(),
            !has_server,
            "a file of JSON lines with \"contents\"",
        ),
        (
            "task.questions",
            &task.questions,
            true,
            "a file of JSON lines, or of verl's Parquet rows",
        ),
        (
            "task.test_questions",
            &task.test_questions,
            false,
            "a file of JSON lines, or of verl's Parquet rows",
        ),
        (
            "task.retrieval",
            encoder,
            false,
            "a folder with config.json, model.safetensors and tokenizer.json",
        ),
    ] {
        let missing = match file {
            "" => needed,
            file => find_path(file).is_none(),
        };
        if missing {
            log.report(
                Missing,
                &[setting],
                format!("{setting} {file:?} is not there"),
                format!("{wanted}, in the current folder or beside the program"),
                "the search task cannot begin",
            );
        }
    }
    if !experiment.cold_start.stages.is_empty() {
        log.report(
            Error,
            &["cold_start.stages", "task.kind"],
            format!(
                "cold_start.stages has {}",
                experiment.cold_start.stages.len()
            ),
            "none with task.kind Search: the scripted examples are the lookup task's",
            "there would be nothing to learn from",
        );
    }
}

pub(super) fn questions(experiment: &Experiment, log: &mut Log) {
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

pub(super) fn heads(shape: &DecoderSettings, log: &mut Log) {
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

//! Evaluations of the search task with a scripted policy, and their replay.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use palimpsest::engine::scripted::ScriptedEngine;
use palimpsest::engine::{EngineLink, GenerateRequest};
use palimpsest::eval::{Evaluation, Transcript, Transcripts};
use palimpsest::experiment::{
    ContextKind, Experiment, Retrieval, RetrieverSettings, Split, TaskKind,
};
use palimpsest::record::{Event, RunStatus, read_events};
use palimpsest::run::{Origin, Started, build_app, plugins, run_to_end};
use palimpsest::task::lookup::LookupTask;
use palimpsest::task::{Task, load};
use palimpsest::tokenizer::TextTokenizer;
use palimpsest::tools::{Interrupts, Tool, ToolCall, ToolError, ToolFuture, ToolLink};
use palimpsest::trajectory::{Action, StopReason, TokenId, ToolFailure};

use super::world::ROWS;

/// What a scripted policy writes, from the text it sees.
type Player = fn(&str) -> String;

/// Questions over the small corpus, to be measured only.
fn experiment(folder: &Path, contexts: &[ContextKind]) -> Experiment {
    let path = |name: &str| folder.join(name).display().to_string();
    std::fs::write(path("c.jsonl"), ROWS.join("\n")).unwrap();
    let questions = [
        r#"{"question": "Who is the mayor of Ulm?", "golden_answers": ["Ann Lee", "A. Lee"]}"#,
        r#"{"question": "Where is Rome?", "golden_answers": ["Italy"]}"#,
    ];
    std::fs::write(path("q.jsonl"), questions.join("\n")).unwrap();
    let mut experiment = Experiment::default();
    experiment.task.kind = TaskKind::Search;
    experiment.task.corpus = path("c.jsonl");
    experiment.task.questions = path("q.jsonl");
    experiment.cold_start.stages.clear();
    experiment.learner.steps = 0;
    experiment.record.tensorboard = false;
    experiment.rollout.lockstep = false;
    experiment.rollout.limits.context_tokens = 4096;
    experiment.rollout.limits.tool_chars = 2000;
    experiment.evaluation.only = true;
    experiment.evaluation.split = Split::Test;
    experiment.evaluation.objectives = vec![1];
    experiment.evaluation.questions = 2;
    experiment.evaluation.contexts = contexts.to_vec();
    experiment
}

/// What came of an evaluation.
struct Measured {
    lines: Vec<Evaluation>,
    transcripts: Vec<Transcript>,
    events: Vec<Event>,
}

fn measure(
    folder: &Path,
    experiment: Experiment,
    player: impl Fn(&GenerateRequest, &str) -> String + Send + Sync + 'static,
    tools: Option<ToolLink>,
) -> Measured {
    let tokenizer = TextTokenizer::clone(LookupTask::shipped().unwrap().tokenizer());
    let dense = &palimpsest::retrieval::no_dense;
    let task = load(&experiment.task, Some(tokenizer), dense, &mut |_, _, _| {}).unwrap();
    let task: Arc<dyn Task> = Arc::from(task);
    let run = folder.join("run");
    let text = experiment.to_ron();
    let origin = Origin::At(run.clone());
    let started = Started::new(&origin, experiment, &text, Arc::clone(&task), &[]).unwrap();
    let script = move |request: &GenerateRequest| -> Vec<TokenId> {
        let tokenizer = task.tokenizer();
        tokenizer.encode(&player(request, &tokenizer.decode(&request.context)))
    };
    let link = EngineLink::start(move || Ok(ScriptedEngine::new(Arc::new(script)))).unwrap();
    let mut app = build_app(started.launch, link, Interrupts::default(), plugins()).unwrap();
    if let Some(tools) = tools {
        app.insert_resource(tools);
    }
    assert_eq!(run_to_end(&mut app).unwrap(), RunStatus::Finished);
    let transcripts = app.world().resource::<Transcripts>().0.clone();
    drop(app);
    assert!(
        !run.join("checkpoints").join("latest").exists(),
        "nothing is saved"
    );
    let (events, _) = read_events(&run).unwrap();
    let events: Vec<Event> = events.into_iter().map(|recorded| recorded.event).collect();
    let lines = events
        .iter()
        .filter_map(|event| match event {
            Event::Evaluated(line) => Some(*line),
            _ => None,
        })
        .collect();
    Measured {
        lines,
        transcripts,
        events,
    }
}

fn by_text(player: Player) -> impl Fn(&GenerateRequest, &str) -> String + Send + Sync + 'static {
    move |_, text| player(text)
}

/// What the text says of the question it asks.
fn known(text: &str) -> Option<&'static str> {
    let shown = &text[text.find("</q>").unwrap()..];
    [("Ann Lee", "mayor"), ("Italy", "Rome")]
        .into_iter()
        .find(|(answer, of)| {
            shown.contains(answer) && text[..text.find("</q>").unwrap()].contains(of)
        })
        .map(|(answer, _)| answer)
}

/// Searches for the question, writes down what it sees, answers what it knows, in the form that the
/// context asks for.
fn diligent(text: &str) -> String {
    let question = &text[text.find("<q>").unwrap() + 3..text.find("</q>").unwrap()];
    let answer = known(text);
    let note = answer.unwrap_or("");
    let action = match answer {
        Some(answer) => format!("<answer>{answer}</answer>"),
        None => format!("<search>{question}</search>"),
    };
    let forced = text.ends_with("<mem>");
    let reading = text.contains("read in parts");
    let told_bare = !text.contains("<mem> and </mem>") && !reading;
    if reading && forced {
        format!(" {note}</mem>")
    } else if reading || told_bare {
        format!("<think>{note}</think>{action}")
    } else {
        let open = if forced { "" } else { "<mem>" };
        format!("{open} {note}</mem><think></think>{action}")
    }
}

#[test]
fn every_context_is_played_in_its_own_form_to_the_right_answer() {
    let folder = tempfile::tempdir().unwrap();
    let contexts = [
        ContextKind::Full,
        ContextKind::Deployed,
        ContextKind::LastTurn,
        ContextKind::Mem1,
        ContextKind::Chunks,
        ContextKind::NoNotes,
    ];
    let measured = measure(
        folder.path(),
        experiment(folder.path(), &contexts),
        by_text(diligent),
        None,
    );
    assert_eq!(measured.lines.len(), contexts.len());
    for line in &measured.lines {
        assert_eq!(
            (line.em, line.f1, line.cem, line.objectives_em),
            (1.0, 1.0, 1.0, 1.0),
            "{line:?}"
        );
        assert_eq!(
            (line.n, line.samples, line.format_errors),
            (2, 1, 0.0),
            "{line:?}"
        );
        let searches = if line.context == ContextKind::Chunks {
            0.0
        } else {
            1.0
        };
        assert_eq!((line.searches, line.answered), (searches, 1.0), "{line:?}");
        assert!(line.dependency > 0.0 && line.total_tokens >= line.peak_tokens);
        assert_eq!(line.pass_at_k, 1.0);
    }
    let text = |context: ContextKind| {
        let found = measured
            .transcripts
            .iter()
            .find(|of| of.context == context)
            .unwrap();
        found.turns[0]
            .tool
            .as_ref()
            .map(|tool| tool.text.clone())
            .unwrap_or_default()
    };
    assert!(
        text(ContextKind::Mem1).contains("You have 3 turns left."),
        "{}",
        text(ContextKind::Mem1)
    );
    assert!(!text(ContextKind::Deployed).contains("turns left"));
    let reader = measured
        .transcripts
        .iter()
        .find(|of| of.context == ContextKind::Chunks)
        .unwrap();
    assert!(!reader.question.chunks.is_empty());
    assert_eq!(
        reader.turns.len(),
        reader.question.chunks.len() + 1,
        "a turn a part, then the answer"
    );
}

#[test]
fn notes_alone_are_not_enough_for_a_policy_that_writes_none() {
    let folder = tempfile::tempdir().unwrap();
    let contexts = [ContextKind::MemoryOnly, ContextKind::Deployed];
    let measured = measure(
        folder.path(),
        experiment(folder.path(), &contexts),
        by_text(diligent),
        None,
    );
    for line in &measured.lines {
        // Results are never shown with memory_only, so nothing can be written down.
        let right = if line.context == ContextKind::MemoryOnly {
            0.0
        } else {
            1.0
        };
        assert_eq!(line.em, right, "{line:?}");
    }
}

#[test]
fn a_dead_server_costs_error_observations_and_never_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = super::world::runtime();
    let listener = super::world::listener(&runtime);
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut experiment = experiment(folder.path(), &[ContextKind::Deployed]);
    experiment.task.corpus.clear();
    experiment.task.retrieval = Retrieval::Served(RetrieverSettings {
        retry_seconds: 0.0,
        ..super::world::settings(address)
    });
    // It gives up after the first error.
    let player = |text: &str| {
        let action = if text.contains("error:") {
            "<answer>unknown</answer>"
        } else {
            "<search>x</search>"
        };
        format!("</mem><think></think>{action}")
    };
    let measured = measure(folder.path(), experiment.clone(), by_text(player), None);
    assert_eq!(measured.lines[0].tool_failures, 1.0);
    for transcript in &measured.transcripts {
        assert_eq!(transcript.reason, StopReason::Answered);
        let tool = transcript.turns[0].tool.as_ref().unwrap();
        assert_eq!(tool.failure, Some(ToolFailure::Failed));
        assert!(
            tool.text.contains("error: the tool \"search\" failed"),
            "{}",
            tool.text
        );
    }
    let told = measured.events.iter().filter(|event| {
        matches!(
            event,
            Event::ToolReturned {
                failure: Some(ToolFailure::Failed),
                ..
            }
        )
    });
    assert_eq!(told.count(), 2);
    // One that never gives up is ended by the limit, with a reason of its own.
    std::fs::remove_dir_all(folder.path().join("run")).unwrap();
    experiment.rollout.limits.turns = 64;
    experiment.rollout.limits.tool_failures = 2;
    let stubborn = |_: &str| "</mem><think></think><search>x</search>".to_owned();
    let measured = measure(folder.path(), experiment, by_text(stubborn), None);
    for transcript in &measured.transcripts {
        assert_eq!(
            (transcript.reason, transcript.turns.len()),
            (StopReason::ToolFailed, 3)
        );
    }
}

/// Answers at once, but for one call: that waits until everybody else has answered.
struct OneSlow {
    answered: Arc<AtomicU32>,
    others: u32,
}

impl Tool for OneSlow {
    fn name(&self) -> &'static str {
        "search"
    }

    fn serves(&self, action: &Action) -> bool {
        matches!(action, Action::Search(_))
    }

    fn call(&self, call: ToolCall) -> ToolFuture {
        let (answered, others) = (Arc::clone(&self.answered), self.others);
        Box::pin(async move {
            while call.id.group == 0 && answered.load(Ordering::SeqCst) < others {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            if call.id.group == 0 && answered.load(Ordering::SeqCst) > others {
                return Err(ToolError::Gone);
            }
            Ok("nothing".to_owned())
        })
    }
}

#[test]
fn an_evaluation_of_256_trajectories_never_waits_for_one_slow_tool() {
    let folder = tempfile::tempdir().unwrap();
    let mut experiment = experiment(folder.path(), &[ContextKind::Deployed]);
    let questions: Vec<String> = (0..256)
        .map(|n| format!(r#"{{"question": "Question {n}?", "golden_answers": ["no"]}}"#))
        .collect();
    std::fs::write(&experiment.task.questions, questions.join("\n")).unwrap();
    experiment.evaluation.questions = 256;
    let answered = Arc::new(AtomicU32::new(0));
    let tool = OneSlow {
        answered: Arc::clone(&answered),
        others: 255,
    };
    let tools = ToolLink::start(vec![Arc::new(tool)], 600.0, 120).unwrap();
    let player = move |request: &GenerateRequest, _: &str| {
        if request.turn == 0 {
            return "</mem><think></think><search>x</search>".to_owned();
        }
        answered.fetch_add(1, Ordering::SeqCst);
        "</mem><think></think><answer>no</answer>".to_owned()
    };
    let measured = measure(folder.path(), experiment, player, Some(tools));
    // Had anybody waited for the slow call, it would never have come back.
    assert_eq!((measured.lines[0].n, measured.lines[0].em), (256, 1.0));
    assert_eq!(measured.lines[0].tool_failures, 0.0);
}

#[test]
fn several_answers_to_a_question_are_its_samples() {
    let folder = tempfile::tempdir().unwrap();
    let mut experiment = experiment(folder.path(), &[ContextKind::NoNotes]);
    experiment.evaluation.samples = 4;
    experiment.evaluation.questions = 50;
    let player = |request: &GenerateRequest, text: &str| {
        let right = if text.contains("mayor") {
            "a. lee"
        } else {
            "in Italy"
        };
        let says = if request.id.member == 3 {
            right
        } else {
            "nobody"
        };
        format!("<think></think><answer>{says}</answer>")
    };
    let measured = measure(folder.path(), experiment, player, None);
    let line = measured.lines[0];
    // "in Italy" covers the words and is no exact match; the set has two questions, not fifty.
    assert_eq!((line.n, line.samples), (2, 4));
    assert_eq!((line.em, line.pass_at_k, line.cem), (0.125, 0.5, 0.25));
    assert!(line.em_low <= line.em && line.em <= line.em_high);
}

/// The program's own words about a run.
fn program(arguments: &[&str], folder: &Path) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_palimpsest"))
        .args(arguments)
        .current_dir(folder)
        .env("XDG_CACHE_HOME", folder)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
#[cfg(feature = "torch")]
fn an_evaluation_leaves_table_manifest_and_transcripts_that_replay() {
    let folder = tempfile::tempdir().unwrap();
    let smoke = std::path::absolute("experiments/smoke.ron").unwrap();
    let run = folder.path().join("run");
    let (run, smoke) = (run.to_str().unwrap(), smoke.to_str().unwrap());
    let (done, said) = program(
        &[
            "eval",
            "--experiment",
            smoke,
            "--run-dir",
            run,
            "--set",
            "evaluation.samples=2",
            "--set",
            "evaluation.temperature=1.0",
        ],
        folder.path(),
    );
    assert!(done, "{said}");
    assert!(
        said.contains("| full | 1 | 2 x 2 |") && said.contains("| deployed | 2 | 2 x 2 |"),
        "{said}"
    );
    let read = |name: &str| std::fs::read_to_string(Path::new(run).join(name)).unwrap();
    let json = |name: &str| -> serde_json::Value { serde_json::from_str(&read(name)).unwrap() };
    assert_eq!(
        json("results.json")["evaluations"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
    assert_eq!(read("results.csv").lines().count(), 5);
    let manifest = json("manifest.json");
    assert_eq!(manifest["trajectories"], 16);
    assert_eq!(manifest["seeds"]["questions"], 1000);
    assert_eq!(
        manifest["transcripts"]["xxh3_128"].as_str().unwrap().len(),
        32
    );
    assert_eq!(read("transcripts.jsonl").lines().count(), 16);
    let (same, said) = program(&["eval", "--replay", run], folder.path());
    assert!(
        same && said.contains("16 trajectories replayed: all the same"),
        "{said}"
    );
    // What is not in the record any more is found out.
    let mut lines: BTreeMap<usize, serde_json::Value> = read("transcripts.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .enumerate()
        .collect();
    lines.get_mut(&5).unwrap()["outcome"]["total_tokens"] = 1.into();
    let text: Vec<String> = lines.values().map(ToString::to_string).collect();
    std::fs::write(Path::new(run).join("transcripts.jsonl"), text.join("\n")).unwrap();
    let (same, said) = program(&["eval", "--replay", run], folder.path());
    assert!(
        !same && said.contains("1 of 16 trajectories differ"),
        "{said}"
    );
}

//! Scripted policies of the search task, and runs of the whole app with them.

use std::path::Path;
use std::sync::Arc;

use palimpsest::engine::scripted::ScriptedEngine;
use palimpsest::engine::{EngineLink, GenerateRequest};
use palimpsest::eval::{Evaluation, Transcript, Transcripts};
use palimpsest::experiment::{ContextKind, Experiment, Split, TaskKind};
use palimpsest::record::{Event, RunStatus, read_events};
use palimpsest::run::{Origin, Started, build_app, plugins, run_to_end};
use palimpsest::task::lookup::LookupTask;
use palimpsest::task::{Task, load};
use palimpsest::tokenizer::TextTokenizer;
use palimpsest::tools::{Interrupts, ToolLink};
use palimpsest::trajectory::TokenId;

use super::world::ROWS;

/// What a scripted policy writes, from the text it sees.
pub type Player = fn(&str) -> String;

/// Questions over the small corpus, to be measured only.
pub fn experiment(folder: &Path, contexts: &[ContextKind]) -> Experiment {
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
pub struct Measured {
    pub lines: Vec<Evaluation>,
    pub transcripts: Vec<Transcript>,
    pub events: Vec<Event>,
}

pub fn measure(
    folder: &Path,
    experiment: Experiment,
    player: impl Fn(&GenerateRequest, &str) -> String + Send + Sync + 'static,
    tools: Option<ToolLink>,
) -> Measured {
    let (transcripts, events) = play(folder, experiment, player, tools);
    let latest = folder.join("run").join("checkpoints").join("latest");
    assert!(!latest.exists(), "nothing is saved");
    let lines = events
        .iter()
        .filter_map(|event| match event {
            Event::Evaluated(line) => Some(**line),
            _ => None,
        })
        .collect();
    Measured {
        lines,
        transcripts,
        events,
    }
}

/// Runs the whole app with a scripted policy.
pub fn play(
    folder: &Path,
    experiment: Experiment,
    player: impl Fn(&GenerateRequest, &str) -> String + Send + Sync + 'static,
    tools: Option<ToolLink>,
) -> (Vec<Transcript>, Vec<Event>) {
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
    let (events, _) = read_events(&run).unwrap();
    let events = events.into_iter().map(|recorded| recorded.event).collect();
    (transcripts, events)
}

pub fn by_text(
    player: Player,
) -> impl Fn(&GenerateRequest, &str) -> String + Send + Sync + 'static {
    move |_, text| player(text)
}

/// What the text says of the question it asks.
pub fn known(text: &str) -> Option<&'static str> {
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
pub fn diligent(text: &str) -> String {
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

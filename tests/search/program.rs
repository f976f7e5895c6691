//! The program's evaluations of a policy that a server runs, and gives text alone.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use axum::routing::{get, post};
use axum::{Json, Router};
use palimpsest::engine::scripted::ScriptedEngine;
use palimpsest::engine::{EngineLink, GenerateRequest};
use palimpsest::experiment::{
    ContextKind, Experiment, GeneratorSetting, PolicySettings, Retrieval, ServerSettings,
};
use palimpsest::record::RunStatus;
use palimpsest::run::{Origin, Started, build_app, plugins, run_to_end};
use palimpsest::task::lookup::LookupTask;
use palimpsest::task::{Task as _, load};
use palimpsest::tokenizer::TextTokenizer;
use palimpsest::tools::{Interrupts, Runtime, Tool, ToolCall, ToolFuture, ToolLink};
use palimpsest::trajectory::Action;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use super::players::{Player, diligent, experiment};
use super::world::{raw, runtime, settings, theirs};

const POLICY: &str = "assets/lookup/policy";

/// A folder with an experiment whose policy is a server with completions of text.
struct World {
    folder: tempfile::TempDir,
    runtime: Runtime,
    experiment: Experiment,
}

impl World {
    fn new(contexts: &[ContextKind], player: Player) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let runtime = runtime();
        let words = Arc::new(TextTokenizer::load(Path::new(POLICY)).unwrap());
        let complete = move |Json(asked): Json<Value>| async move {
            let ids: Vec<u32> = serde_json::from_value(asked["prompt"].clone()).unwrap();
            let text = words.decode(&ids);
            // The handshake asks about something else.
            let written = if text.contains("</q>") && asked["stop"].is_array() {
                player(&text)
            } else {
                " x".to_owned()
            };
            Json(json!({"choices": [{"index": 0, "text": written, "finish_reason": "stop"}]}))
        };
        let routes = Router::new()
            .route(
                "/v1/models",
                get(|| async { Json(json!({"data": [{"id": "toy"}]})) }),
            )
            .route("/v1/completions", post(complete));
        let address = theirs(&runtime, routes);
        let mut experiment = experiment(folder.path(), contexts);
        experiment.policy = PolicySettings::Folder(words_of_policy(folder.path()));
        experiment.engine.generator = GeneratorSetting::OpenAi(ServerSettings {
            url: format!("http://{address}"),
            ..ServerSettings::default()
        });
        Self {
            folder,
            runtime,
            experiment,
        }
    }

    fn run_folder(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    fn questions(&self, rows: &[&str]) {
        std::fs::write(&self.experiment.task.questions, rows.join("\n")).unwrap();
    }

    /// The command that measures; a run folder that is there is removed.
    fn command(&self) -> Command {
        let run = self.run_folder();
        if run.exists() {
            std::fs::remove_dir_all(&run).unwrap();
        }
        let file = self.folder.path().join("e.ron");
        std::fs::write(&file, self.experiment.to_ron()).unwrap();
        let mut command = self.program();
        command.args(["eval", "--experiment"]).arg(file);
        command.arg("--run-dir").arg(run);
        command
    }

    fn replay(&self) -> Output {
        let mut command = self.program();
        command.args(["eval", "--replay"]).arg(self.run_folder());
        command.output().unwrap()
    }

    fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_palimpsest"));
        command
            .current_dir(self.folder.path())
            .env("XDG_CACHE_HOME", self.folder.path())
            .env("OMP_WAIT_POLICY", "passive")
            .env("OMP_NUM_THREADS", "1")
            .stdin(Stdio::null());
        command
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.run_folder().join(file)).unwrap()
    }
}

/// A folder with the tokenizer of the shipped policy, for a model with longer contexts: its weights are
/// on the server.
fn words_of_policy(folder: &Path) -> String {
    let copy = folder.join("policy");
    std::fs::create_dir(&copy).unwrap();
    for entry in std::fs::read_dir(POLICY).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|kind| kind != "safetensors") {
            std::fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
        }
    }
    let config = copy.join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    let mut fields: Value = serde_json::from_str(&text).unwrap();
    fields["max_position_embeddings"] = 8192.into();
    std::fs::write(config, fields.to_string()).unwrap();
    copy.display().to_string()
}

/// All that a program said.
fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn a_server_that_tells_no_log_probs_is_measured_and_replayed() {
    let contexts = [
        ContextKind::Deployed,
        ContextKind::Mem1,
        ContextKind::Chunks,
        ContextKind::NoNotes,
    ];
    let world = World::new(&contexts, diligent);
    let done = world.command().output().unwrap();
    assert!(done.status.success(), "{}", said(&done));
    assert!(
        world.read("transcripts.jsonl").contains("null"),
        "no log-prob is unknown"
    );
    let again = world.replay();
    let told = said(&again);
    assert!(
        again.status.success() && told.contains("8 trajectories replayed: all the same"),
        "{told}"
    );
    // Every figure is in every file; what was not measured is no number.
    let results: Value = serde_json::from_str(&world.read("results.json")).unwrap();
    for line in results["evaluations"].as_array().unwrap() {
        assert_eq!(line["em"], 1.0, "{line}");
        assert_eq!(line["stop"]["answered"], 1.0, "{line}");
        assert_eq!(line["format"]["one_action"], 0.0, "{line}");
        let kept = match line["context"].as_str() {
            Some("none") => Value::Null,
            _ => 1.0.into(),
        };
        assert_eq!(line["notes_recall"], kept, "{line}");
    }
    assert!(world.read("results.csv").contains(",stop/answered,"));
    assert!(world.read("results.md").contains(" failed |"));
    let metrics = world.read("metrics.jsonl");
    for name in ["stop/answered/mem1/1", "format/one_action/none/1"] {
        assert!(
            metrics.contains(&format!("\"val-aux/search/{name}\"")),
            "{metrics}"
        );
    }
    assert!(!metrics.contains("notes_recall/none"), "{metrics}");
    let manifest: Value = serde_json::from_str(&world.read("manifest.json")).unwrap();
    let words = manifest["tokenizer"]["files"].as_array().unwrap();
    assert!(
        words.iter().any(|file| file["file"] == "tokenizer.json"),
        "{manifest}"
    );
    // A record without trajectories is none that can be replayed.
    std::fs::write(world.run_folder().join("transcripts.jsonl"), "").unwrap();
    let empty = world.replay();
    assert_eq!(empty.status.code(), Some(1), "{}", said(&empty));
    assert!(
        said(&empty).contains("nothing to replay"),
        "{}",
        said(&empty)
    );
}

const SINGLE: &str = r#"{"question": "Where is Rome?", "golden_answers": ["Italy"]}"#;
const PAIRS: [&str; 3] = [
    r#"{"question": "Where is Rome?; Who is the mayor of Ulm?", "golden_answers": [["Italy"], ["Ann Lee"]]}"#,
    r#"{"question": "Who is the mayor of Ulm?; Where is Rome?", "golden_answers": [["Ann Lee"], ["Italy"]]}"#,
    r#"{"question": "Where is tea from?; Where is Rome?", "golden_answers": [["China"], ["Italy"]]}"#,
];

#[test]
fn questions_are_measured_under_the_number_of_objectives_that_they_have() {
    let answers = |_: &str| "</mem><think></think><answer>Italy; Ann Lee</answer>".to_owned();
    let mut world = World::new(&[ContextKind::Deployed], answers);
    world.questions(&PAIRS);
    let refused = world.command().output().unwrap();
    let told = said(&refused);
    assert_eq!(refused.status.code(), Some(1), "{told}");
    assert!(
        told.contains("they have 2 each") && told.contains("no question with 1"),
        "{told}"
    );
    world.experiment.evaluation.objectives = vec![2];
    world.experiment.evaluation.questions = 50;
    let done = world.command().output().unwrap();
    let told = said(&done);
    assert!(told.contains("| deployed | 2 | 3 x 1 | 0.333"), "{told}");
    assert!(
        told.contains("there are 3 questions, fewer than evaluation.questions 50"),
        "{told}"
    );
    let again = world.replay();
    assert!(again.status.success(), "{}", said(&again));
    // One single question is enough, whatever a training run would ask for; the rest is told of.
    world.experiment.evaluation.objectives = vec![1];
    world.questions(&[&[SINGLE], &PAIRS[..]].concat());
    let done = world.command().output().unwrap();
    let told = said(&done);
    assert!(told.contains("| deployed | 1 | 1 x 1 |"), "{told}");
    assert!(
        told.contains("3 of the 4 questions") && told.contains("are not asked"),
        "{told}"
    );
}

/// A server that says nothing, and what it hears: `asked` at the first words, `closed` at the end.
fn silent(runtime: &Runtime) -> (std::net::SocketAddr, Receiver<&'static str>) {
    let (told, hears) = channel();
    let address = raw(runtime, move |mut stream| {
        let told = told.clone();
        async move {
            let mut asked = [0; 4096];
            while stream.read(&mut asked).await.is_ok_and(|count| count > 0) {
                told.send("asked").ok();
            }
            told.send("closed").ok();
        }
    });
    (address, hears)
}

/// Longer than anything takes that does not wait for a tool.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
#[cfg(unix)]
fn ctrl_c_drops_the_connections_of_tools_that_are_at_work() {
    let searches = |_: &str| "</mem><think></think><search>x</search>".to_owned();
    let mut world = World::new(&[ContextKind::Deployed], searches);
    let (address, hears) = silent(&world.runtime);
    world.experiment.task.corpus.clear();
    world.experiment.rollout.limits.tool_seconds = 3600.0;
    let mut server = settings(address);
    server.timeout_seconds = 3600.0;
    world.experiment.task.retrieval = Retrieval::Served(server);
    let mut command = world.command();
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn().unwrap();
    assert_eq!(hears.recv_timeout(PATIENCE), Ok("asked"));
    let interrupt = ["-INT".to_owned(), child.id().to_string()];
    assert!(
        Command::new("kill")
            .args(interrupt)
            .status()
            .unwrap()
            .success()
    );
    while hears
        .recv_timeout(PATIENCE)
        .expect("the connection stayed open")
        != "closed"
    {}
    let (ended, waits) = channel();
    std::thread::spawn(move || ended.send(child.wait_with_output()).ok());
    let output = waits
        .recv_timeout(PATIENCE)
        .expect("it never ended")
        .unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", said(&output));
    assert!(
        said(&output).contains("there is no table"),
        "{}",
        said(&output)
    );
}

/// Asks the run to stop when it is called, and never answers.
struct Stops(Interrupts);

impl Tool for Stops {
    fn name(&self) -> &'static str {
        "search"
    }

    fn serves(&self, _: &Action) -> bool {
        true
    }

    fn call(&self, _: ToolCall) -> ToolFuture {
        self.0.request();
        Box::pin(std::future::pending())
    }
}

#[test]
fn a_run_in_lockstep_that_is_asked_to_stop_waits_for_no_tool() {
    let (ended, waits) = channel();
    std::thread::spawn(move || {
        let folder = tempfile::tempdir().unwrap();
        let mut experiment = experiment(folder.path(), &[ContextKind::Deployed]);
        experiment.rollout.lockstep = true;
        let words = TextTokenizer::clone(LookupTask::shipped().unwrap().tokenizer());
        let dense = &palimpsest::retrieval::no_dense;
        let task = load(
            &experiment.task,
            Some(words.clone()),
            dense,
            &mut |_, _, _| {},
        )
        .unwrap();
        let text = experiment.to_ron();
        let origin = Origin::At(folder.path().join("run"));
        let started = Started::new(&origin, experiment, &text, Arc::from(task), &[]).unwrap();
        let turn = words.encode("</mem><think></think><search>x</search>");
        let script = move |_: &GenerateRequest| turn.clone();
        let link = EngineLink::start(move || Ok(ScriptedEngine::new(Arc::new(script)))).unwrap();
        let interrupts = Interrupts::default();
        let tools = ToolLink::start(vec![Arc::new(Stops(interrupts.clone()))], 3600.0, 9).unwrap();
        let mut app = build_app(started.launch, link, interrupts, plugins()).unwrap();
        app.insert_resource(tools);
        ended.send(run_to_end(&mut app).unwrap()).unwrap();
    });
    let status = waits
        .recv_timeout(PATIENCE)
        .expect("it waits for a tool that never answers");
    assert_eq!(status, RunStatus::Stopped);
}

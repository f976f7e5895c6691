//! The modes of the program.

mod eval;
mod experiment;
mod library;
mod manifest;
mod replay;
mod retrieve;
mod serve;
mod settle;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use bevy_app::App;
use palimpsest::engine::remote::{NoLearner, RemoteEngine};
use palimpsest::engine::{Engine, EngineError, EngineLink};
use palimpsest::experiment::{Experiment, ExperimentErrors, PolicySettings, TaskKind};
#[cfg(feature = "torch")]
use palimpsest::hub::Hub;
use palimpsest::record::{RunFolder, RunRecord, RunStatus, Summary, write_report};
use palimpsest::run::{
    Controls, Launch, Recorder, Screen, Started, build_app, plugins, run_to_end,
};
use palimpsest::task::Task;
use palimpsest::tokenizer::TextTokenizer;
use palimpsest::tools::{Interrupts, ToolLink};

use crate::arguments::Train;
use experiment::{already_finished, read_experiment, recorded_text};
use settle::settle_paths;

pub use eval::eval;
pub use retrieve::retrieve;
pub use serve::serve;

/// Exit code of a bad experiment file.
const BAD_FILE: u8 = 2;
/// Exit code of a run that the user stopped.
const STOPPED: u8 = 130;

/// OpenMP reads its wait policy when libtorch is loaded, before `main`: if it is not set, the
/// program starts itself again with it set. Idle threads then sleep instead of spinning against
/// each other.
pub fn settle_openmp() {
    #[cfg(all(unix, feature = "torch"))]
    if std::env::var_os("OMP_WAIT_POLICY").is_none() {
        use std::os::unix::process::CommandExt as _;
        if let Ok(program) = std::env::current_exe() {
            // `exec` only returns if it failed; then the program goes on, a little slower.
            let _failed = std::process::Command::new(program)
                .args(std::env::args_os().skip(1))
                .env("OMP_WAIT_POLICY", "passive")
                .exec();
        }
    }
}

/// What stands beside a run: how it is stopped, how it is controlled, and who is told where it writes.
#[derive(Default)]
pub struct Beside {
    /// Stops the run at its next safe point.
    pub interrupts: Interrupts,
    /// What a window controls the run through.
    pub controls: Option<Controls>,
    /// Is told the run folder once there is one.
    pub folder: Option<std::sync::mpsc::Sender<PathBuf>>,
}

/// `palimpsest --experiment FILE` and `palimpsest --resume DIR`.
pub fn train(arguments: &Train, beside: Beside) -> anyhow::Result<ExitCode> {
    let (resolved, origin, checkpoint) = match read_experiment(arguments)? {
        Ok(read) => read,
        Err(problems) => return bad_file(&problems),
    };
    if arguments.check {
        write!(std::io::stdout(), "{}", resolved.describe())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(run) = &arguments.resume
        && already_finished(run, &resolved.experiment)?
    {
        return Ok(ExitCode::SUCCESS);
    }
    if let Err(missing) = resolved.ready() {
        return bad_file(&missing);
    }
    for note in &resolved.notes {
        tracing::warn!("{note}");
    }
    let mut experiment = resolved.experiment;
    settle_paths(&mut experiment)?;
    let text = recorded_text(&experiment, arguments.resume.as_deref());
    let task = open_task(&experiment, checkpoint.as_deref())?;
    // The engine comes first: a policy that cannot be loaded leaves no run folder behind.
    let link = start_engine(experiment.clone(), Arc::clone(&task), checkpoint.clone())?;
    let Started { launch, .. } =
        Started::new(&origin, experiment, &text, task, &arguments.set).map_err(plain)?;
    let run = launch.recorder.folder.path().to_path_buf();
    match &checkpoint {
        Some(checkpoint) => tracing::info!(
            "going on in {run:?} from {:?}",
            checkpoint.file_name().unwrap_or_default()
        ),
        None => tracing::info!("run folder {run:?}"),
    }
    if let Some(folder) = &beside.folder {
        folder.send(run.clone()).ok();
    }
    let (app, outcome) = drive(launch, link, None, beside)?;
    // The summary and the report tell of a failed run too.
    let seconds = app
        .world()
        .resource::<palimpsest::run::RunClock>()
        .seconds
        .clone();
    let recorder = app.world().resource::<Recorder>();
    let pages = write_pages(&recorder.folder, seconds);
    let status = outcome.inspect_err(|_| {
        tracing::error!(
            "the run stopped; go on with: palimpsest --resume {}",
            run.display()
        );
    })?;
    pages?;
    writeln!(std::io::stdout(), "{}", run.join("summary.json").display())?;
    tracing::info!("report: {}", run.join("report.html").display());
    if status == RunStatus::Stopped {
        tracing::warn!("stopped; go on with: palimpsest --resume {}", run.display());
        return Ok(ExitCode::from(STOPPED));
    }
    Ok(ExitCode::SUCCESS)
}

/// The task of an experiment, checked to be able to ask what is wanted.
fn open_task(experiment: &Experiment, checkpoint: Option<&Path>) -> anyhow::Result<Arc<dyn Task>> {
    let tokenizer = policy_tokenizer(experiment, checkpoint)?;
    let mut bar = library::Bar::default();
    let task: Arc<dyn Task> = Arc::from(palimpsest::task::load(
        &experiment.task,
        tokenizer,
        &|corpus, folder, tell| {
            let (engine, kind) = (&experiment.engine, experiment.task.index);
            library::open_dense(engine, kind, corpus, folder, tell)
        },
        &mut |what, done, total| bar.tell(what, done, total),
    )?);
    bar.end();
    task.ready(experiment)?;
    Ok(task)
}

/// Runs to the end with a progress line and Ctrl-C; with other tools than the task's if some are given.
fn drive(
    launch: Launch,
    link: EngineLink,
    tools: Option<ToolLink>,
    beside: Beside,
) -> anyhow::Result<(App, anyhow::Result<RunStatus>)> {
    let interrupts = beside.interrupts;
    let mut app = build_app(launch, link, interrupts.clone(), plugins()).map_err(plain)?;
    if let Some(tools) = tools {
        app.insert_resource(tools);
    }
    app.world()
        .resource::<ToolLink>()
        .listen_for_interrupts(&interrupts);
    app.insert_non_send(Screen::default());
    if let Some(controls) = beside.controls {
        app.insert_resource(controls);
    }
    let outcome = run_to_end(&mut app).map_err(plain);
    app.world_mut().remove_non_send::<Screen>();
    Ok((app, outcome))
}

fn bad_file(problems: &ExperimentErrors) -> anyhow::Result<ExitCode> {
    writeln!(std::io::stderr(), "{problems}")?;
    Ok(ExitCode::from(BAD_FILE))
}

fn plain(error: bevy_ecs::error::BevyError) -> anyhow::Error {
    anyhow!("{}", error.to_string().trim())
}

/// The tokenizer that the policy brings, if it is a folder.
fn policy_tokenizer(
    experiment: &Experiment,
    checkpoint: Option<&Path>,
) -> anyhow::Result<Option<TextTokenizer>> {
    let folder = match (checkpoint, &experiment.policy) {
        (Some(checkpoint), _) => checkpoint,
        (None, PolicySettings::Folder(folder)) => Path::new(folder),
        (None, PolicySettings::Hub(_) | PolicySettings::New(_)) => return Ok(None),
    };
    let tokenizer = TextTokenizer::load(folder)?;
    let file = folder.join("tokenizer.json");
    match experiment.task.kind {
        TaskKind::Lookup => tokenizer.require_protocol(&file)?,
        TaskKind::Search => tokenizer.require_text(&file)?,
    }
    Ok(Some(tokenizer))
}

/// Starts the engine thread: libtorch alone, or a server with libtorch as the learner beside it. A
/// run that only measures a server needs no libtorch.
fn start_engine(
    experiment: Experiment,
    task: Arc<dyn Task>,
    checkpoint: Option<PathBuf>,
) -> anyhow::Result<EngineLink> {
    let Some(url) = experiment.engine.generator.server().map(|s| s.url.clone()) else {
        let make = move || local_engine(&experiment, &task, checkpoint.as_deref());
        return Ok(EngineLink::start(make)?);
    };
    let link = EngineLink::start(move || {
        let tokenizer = Arc::clone(task.tokenizer());
        let learner = || -> Result<Box<dyn Engine>, EngineError> {
            if experiment.trains() {
                return local_engine(&experiment, &task, checkpoint.as_deref());
            }
            let tokenizer = Arc::clone(task.tokenizer());
            Ok(Box::new(NoLearner::new(tokenizer, url)))
        };
        RemoteEngine::connect(&experiment, tokenizer, learner)
    })?;
    Ok(link)
}

/// The engine in libtorch with the policy of the experiment, or the checkpoint of a resumed run.
#[cfg(feature = "torch")]
fn local_engine(
    experiment: &Experiment,
    task: &Arc<dyn Task>,
    checkpoint: Option<&Path>,
) -> Result<Box<dyn Engine>, EngineError> {
    use palimpsest::torch::TorchEngine;
    let tokenizer = Arc::clone(task.tokenizer());
    let settings = &experiment.engine;
    if let Some(checkpoint) = checkpoint {
        let mut engine = TorchEngine::from_folder(checkpoint, tokenizer, settings)?;
        engine.load(checkpoint, true)?;
        return Ok(Box::new(engine));
    }
    let engine = match &experiment.policy {
        PolicySettings::New(shape) => {
            TorchEngine::new(shape, experiment.seed, tokenizer, settings)?
        }
        PolicySettings::Folder(folder) => {
            TorchEngine::from_folder(Path::new(folder), tokenizer, settings)?
        }
        PolicySettings::Hub(name) => {
            let folder = Hub::from_env().folder(name);
            let folder = folder.map_err(|error| EngineError::BadRequest(error.to_string()))?;
            TorchEngine::from_folder(&folder, tokenizer, settings)?
        }
    };
    Ok(Box::new(engine))
}

#[cfg(not(feature = "torch"))]
fn local_engine(
    _: &Experiment,
    _: &Arc<dyn Task>,
    _: Option<&Path>,
) -> Result<Box<dyn Engine>, EngineError> {
    Err(EngineError::Backend(
        "this program was built without libtorch (feature `torch`), so it cannot train; build it with default features"
            .into(),
    ))
}

/// Writes summary.json and report.html from the record; says what of it was skipped.
fn write_pages(folder: &RunFolder, seconds: BTreeMap<String, f64>) -> anyhow::Result<()> {
    let record = RunRecord::read(folder)?;
    for notice in &record.notices {
        tracing::warn!("{notice}");
    }
    Summary::new(&record.view(), seconds).write(folder)?;
    write_report(folder)?;
    Ok(())
}

/// `palimpsest report RUN`.
pub fn report(run: &Path) -> anyhow::Result<ExitCode> {
    let folder = RunFolder::look(run)?;
    // The old page may be damaged; it is written anew.
    let seconds = Summary::read(&folder)
        .inspect_err(|error| tracing::warn!("{error}; it is written anew"))
        .ok()
        .flatten()
        .map(|summary| summary.wall_seconds)
        .unwrap_or_default();
    write_pages(&folder, seconds)?;
    writeln!(std::io::stdout(), "{}", run.join("report.html").display())?;
    Ok(ExitCode::SUCCESS)
}

/// `palimpsest study FILE`.
pub fn study(
    file: &Path,
    jobs: Option<std::num::NonZeroUsize>,
    out: Option<PathBuf>,
    overrides: &[String],
) -> anyhow::Result<ExitCode> {
    use palimpsest::study::{Results, Study, StudyError, run_all, write_results};
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let out = out.unwrap_or_else(|| Path::new("runs").join(name.as_ref()));
    let jobs = match jobs {
        Some(jobs) => jobs,
        None => std::thread::available_parallelism()?,
    };
    let program = std::env::current_exe().context("the program does not know its own place")?;
    let told = Study::load(file, overrides).and_then(|(study, plan)| {
        tracing::info!(
            "{} runs, {jobs} at a time, in {}",
            plan.jobs.len(),
            out.display()
        );
        let summaries = run_all(&program, &plan, &out, jobs.get())?;
        let results = Results::new(&name, &study, &plan, &summaries);
        write_results(&results, &out)
    });
    match told {
        Ok(table) => write!(std::io::stdout(), "{table}")?,
        Err(problems @ StudyError::File(_)) => {
            writeln!(std::io::stderr(), "{problems}")?;
            return Ok(ExitCode::from(BAD_FILE));
        }
        Err(error) => return Err(error.into()),
    }
    tracing::info!("report: {}", out.join("study.html").display());
    Ok(ExitCode::SUCCESS)
}

/// `palimpsest doctor`.
pub fn doctor() -> anyhow::Result<ExitCode> {
    #[cfg(feature = "torch")]
    let devices = Some(palimpsest::torch::cuda_devices());
    #[cfg(not(feature = "torch"))]
    let devices = None;
    let report = palimpsest::doctor::run(devices);
    write!(std::io::stdout(), "{report}")?;
    Ok(ExitCode::from(report.exit_code()))
}

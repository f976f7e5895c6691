//! Builds the app of a run and drives it to its end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use bevy_app::prelude::*;
use bevy_ecs::error::{ContextExt as _, Result};

use super::checkpoint::{CHECKPOINT_FILE, CheckpointState};
use super::control::SavedAt;
use super::controls::Controls;
use super::recorder::{Recorder, RunClock};
use crate::credit::memory::MemoryCreditState;
use crate::engine::{EngineLink, Lockstep};
use crate::experiment::Experiment;
use crate::record::{Event, RecordWriter, RunFolder, RunStart, RunStatus, write_atomic};
use crate::rollout::{RunSettings, TaskHandle};
use crate::schedule::{Activity, Cursor, Phase, RunFailure};
use crate::task::Task;
use crate::tools::{Interrupts, ToolLink};

/// Where a run comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A new folder under the folder of runs.
    New(PathBuf),
    /// A new run exactly here.
    At(PathBuf),
    /// The run in this folder goes on.
    Resume(PathBuf),
}

/// What a run needs besides an engine.
pub struct Launch {
    /// The resolved experiment.
    pub experiment: Arc<Experiment>,
    /// Its task.
    pub task: Arc<dyn Task>,
    /// Where the record goes.
    pub recorder: Recorder,
    /// How far an earlier process came.
    pub cursor: Cursor,
    /// What memory credit had kept by then.
    pub credit: MemoryCreditState,
    /// Whether that was read from a checkpoint.
    pub resumed: bool,
    /// What earlier processes spent.
    pub seconds: BTreeMap<String, f64>,
}

/// A run folder that is open, and the checkpoint to load into the engine first.
pub struct Started {
    /// Everything but the engine.
    pub launch: Launch,
    /// The checkpoint folder.
    pub checkpoint: Option<PathBuf>,
}

impl Started {
    /// Makes or opens the run folder, and notes `changes` that a resume makes to the settings. `text` is the resolved experiment as RON.
    ///
    /// # Errors
    /// A folder that is no run, is in use, or holds no readable checkpoint.
    pub fn new(
        origin: &Origin,
        experiment: Experiment,
        text: &str,
        task: Arc<dyn Task>,
        changes: &[String],
    ) -> Result<Self> {
        let keep = experiment.record.keep_checkpoints as usize;
        let tensorboard = experiment.record.tensorboard;
        let start = RunStart {
            name: &experiment.name,
            seed: experiment.seed,
            experiment: text,
            vocabulary: &vocabulary(task.as_ref()),
            tensorboard,
        };
        let (folder, writer, state, checkpoint) = match origin {
            Origin::New(runs) => {
                let folder = RunFolder::create(runs, &experiment.name)?;
                let writer = RecordWriter::create(&folder, &start)?;
                (folder, writer, None, None)
            }
            Origin::At(path) => {
                let folder = RunFolder::create_at(path)?;
                let writer = RecordWriter::create(&folder, &start)?;
                (folder, writer, None, None)
            }
            Origin::Resume(path) => {
                let folder = RunFolder::open(path)?;
                match folder.latest_checkpoint() {
                    Ok(checkpoint) => {
                        let saved = read_state(&checkpoint)?;
                        let cursor = saved.cursor;
                        let writer = RecordWriter::reopen(
                            &folder,
                            saved.from_seq,
                            cursor.step,
                            cursor.cold_start_step,
                            tensorboard,
                        )?;
                        (folder, writer, Some(saved), Some(checkpoint))
                    }
                    // Killed before its first checkpoint: everything is done again from the start.
                    Err(crate::record::RecordError::NoCheckpoint { .. }) => {
                        tracing::warn!(
                            "{path:?} has no checkpoint yet: starting again from the beginning"
                        );
                        let writer = RecordWriter::reopen(&folder, 0, 0, 0, tensorboard)?;
                        (folder, writer, None, None)
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        };
        let resumed = state.is_some();
        let (cursor, credit, seconds) = state
            .map(|saved| (saved.cursor, saved.credit, saved.wall_seconds))
            .unwrap_or_default();
        let mut recorder = Recorder::new(folder, writer, keep);
        if matches!(origin, Origin::Resume(_)) && !changes.is_empty() {
            write_atomic(&recorder.folder.file("experiment.ron"), text.as_bytes())?;
            let what = format!("resumed with other settings: {}", changes.join(", "));
            recorder
                .writer
                .append(&Event::TroubleFound { id: None, what })?;
        }
        let launch = Launch {
            experiment: Arc::new(experiment),
            task,
            recorder,
            cursor,
            credit,
            resumed,
            seconds,
        };
        Ok(Self { launch, checkpoint })
    }
}

fn read_state(checkpoint: &std::path::Path) -> Result<CheckpointState> {
    let path = checkpoint.join(CHECKPOINT_FILE);
    let text = std::fs::read(&path).with_context(|| format!("cannot read {path:?}"))?;
    serde_json::from_slice(&text).with_context(|| {
        format!("{path:?} is damaged: it must hold the cursor of the run; point checkpoints/latest at an older checkpoint")
    })
}

fn vocabulary(task: &dyn Task) -> Vec<String> {
    let tokenizer = task.tokenizer();
    (0..tokenizer.vocab_size() as u32)
        .map(|id| String::from_utf8_lossy(tokenizer.token_bytes(id)).into_owned())
        .collect()
}

/// The plugins of a run, in the order of the flow. Their order changes nothing; a test shuffles it.
#[must_use]
pub fn plugins() -> Vec<fn(&mut App)> {
    vec![
        crate::schedule::plugin,
        crate::engine::plugin,
        crate::rollout::plugin,
        crate::reward::plugin,
        crate::credit::plugin::plugin,
        crate::learner::plugin,
        crate::eval::plugin,
        super::plugin,
    ]
}

/// Builds the app: resources, links, plugins (in the order given).
///
/// # Errors
/// The tool runtime could not be started.
pub fn build_app(
    launch: Launch,
    engine: EngineLink,
    interrupts: Interrupts,
    plugins: Vec<fn(&mut App)>,
) -> Result<App> {
    let Launch {
        experiment,
        task,
        recorder,
        cursor,
        credit,
        resumed,
        seconds,
    } = launch;
    let limits = &experiment.rollout.limits;
    let tools = ToolLink::start(
        crate::tools::of(task.as_ref(), &experiment.task)?,
        limits.tool_seconds,
        limits.tools_in_flight,
    )
    .context("the tool runtime could not be started")?;
    let mut app = App::new();
    app.insert_resource(Lockstep(experiment.rollout.lockstep))
        .insert_resource(RunSettings(experiment))
        .insert_resource(TaskHandle::new(task))
        .insert_resource(recorder)
        .insert_resource(cursor)
        .insert_resource(credit)
        .insert_resource(SavedAt(resumed.then_some(cursor)))
        .insert_resource(RunClock::from_seconds(seconds))
        .insert_resource(Phase::new(Activity::Starting))
        .insert_resource(engine)
        .insert_resource(tools)
        .insert_resource(interrupts);
    for plugin in plugins {
        // Called by hand: bevy tells plugins apart by type, and these have one type.
        plugin(&mut app);
    }
    app.finish();
    app.cleanup();
    Ok(app)
}

/// Ticks until the run is over, writes how it ended, and returns that.
///
/// # Errors
/// What stopped the run; the record says so too.
pub fn run_to_end(app: &mut App) -> Result<RunStatus> {
    let controls = app.world().get_resource::<Controls>().cloned();
    let mut told = None;
    loop {
        if let Some(controls) = &controls {
            controls.before_tick(app.world_mut(), &mut told);
        }
        app.update();
        let world = app.world_mut();
        if let Some(error) = world.resource_mut::<RunFailure>().0.take() {
            let mut recorder = world.resource_mut::<Recorder>();
            // The disk may be what failed: the first error is the one to report.
            recorder
                .writer
                .append(&Event::TroubleFound {
                    id: None,
                    what: error.to_string().trim().to_owned(),
                })
                .ok();
            recorder
                .writer
                .append(&Event::RunEnded {
                    status: RunStatus::Failed,
                })
                .ok();
            recorder.writer.sync().ok();
            return Err(error);
        }
        if world.resource::<Phase>().activity == Activity::Finished {
            let mut recorder = world.resource_mut::<Recorder>();
            let status = if recorder.completed {
                RunStatus::Finished
            } else {
                RunStatus::Stopped
            };
            recorder.writer.append(&Event::RunEnded { status })?;
            recorder.writer.sync()?;
            return Ok(status);
        }
    }
}

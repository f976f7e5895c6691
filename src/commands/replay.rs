//! `palimpsest eval --replay RUN`: a measured evaluation run again from its transcripts. The program
//! parses, calls tools, judges and sums up as it did; only turns and tool results come from the record.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use palimpsest::engine::EngineLink;
use palimpsest::engine::scripted::ScriptedEngine;
use palimpsest::eval::{Transcript, Transcripts, read_transcripts, replay_parts, table_text};
use palimpsest::experiment::{Experiment, GeneratorSetting};
use palimpsest::record::{RunFolder, RunStatus};
use palimpsest::run::{Origin, Recorder, Started};
use palimpsest::task::{ReplayTask, Task};
use palimpsest::tokenizer::TextTokenizer;
use palimpsest::tools::ToolLink;

use super::eval::{TOKENIZER, TRANSCRIPTS, measured, stopped};
use super::{bad_file, drive, plain};

/// Differences that are told.
const TOLD: usize = 5;

/// Runs the evaluation of a folder again, in `run_dir` or a temporary folder, and compares.
pub fn replay(run: &Path, run_dir: Option<&Path>) -> anyhow::Result<ExitCode> {
    let recorded = RunFolder::look(run)?;
    let path = recorded.file(TRANSCRIPTS);
    let transcripts = read_transcripts(&path)
        .with_context(|| format!("{path:?} cannot be read; `palimpsest eval` writes it"))?;
    anyhow::ensure!(
        !transcripts.is_empty(),
        "{path:?} holds no trajectory: there is nothing to replay; measure again"
    );
    let before = measured(&recorded)?;
    let mut experiment = match Experiment::load(&recorded.file("experiment.ron"), &[]) {
        Ok(resolved) => resolved.experiment,
        Err(problems) => return bad_file(&problems),
    };
    experiment.engine.generator = GeneratorSetting::Libtorch;
    // What tools said was cut when it was recorded.
    let limits = &mut experiment.rollout.limits;
    (limits.tool_chars, limits.tool_tokens) = (u32::MAX, 0);
    let tokenizer = TextTokenizer::load(&recorded.file(TOKENIZER))?;
    let (turns, tools, questions) = replay_parts(&transcripts);
    let task: Arc<dyn Task> = Arc::new(ReplayTask::new(tokenizer, experiment.task.kind, questions));
    let link = EngineLink::start(move || Ok(ScriptedEngine::recorded(turns)))?;
    let spare = tempfile::tempdir()?;
    let place = run_dir.map_or_else(|| spare.path().join("replay"), Path::to_path_buf);
    let tools = ToolLink::start(vec![Arc::new(tools)], f32::MAX, limits.tools_in_flight)?;
    let text = experiment.to_ron();
    let started = Started::new(&Origin::At(place), experiment, &text, task, &[]);
    let Started { launch, .. } = started.map_err(plain)?;
    let beside = super::Beside::default();
    let interrupts = beside.interrupts.clone();
    let (app, outcome) = drive(launch, link, Some(tools), beside)?;
    if outcome? == RunStatus::Stopped {
        return stopped(&interrupts);
    }
    let again = &app.world().resource::<Transcripts>().0;
    let after = measured(&app.world().resource::<Recorder>().folder)?;
    let mut out = std::io::stdout();
    write!(out, "{}", table_text(&after))?;
    let differing = differences(&transcripts, again);
    for id in differing.iter().take(TOLD) {
        tracing::error!("trajectory {id} is another than the recorded one");
    }
    if before == after && differing.is_empty() {
        writeln!(out, "{} trajectories replayed: all the same", again.len())?;
        return Ok(ExitCode::SUCCESS);
    }
    anyhow::bail!(
        "{} of {} trajectories differ, and the table is {}; was the record made by another version?",
        differing.len(),
        transcripts.len(),
        if before == after {
            "the same"
        } else {
            "another"
        }
    )
}

/// The trajectories that are not the same in both.
fn differences(before: &[Transcript], after: &[Transcript]) -> Vec<String> {
    let missing = after.iter().skip(before.len());
    before
        .iter()
        .enumerate()
        .filter(|(number, transcript)| {
            after
                .get(*number)
                .is_none_or(|after| !after.same(transcript))
        })
        .map(|(_, transcript)| transcript.id.to_string())
        .chain(missing.map(|transcript| transcript.id.to_string()))
        .collect()
}

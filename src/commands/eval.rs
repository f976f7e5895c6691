//! `palimpsest eval`: a policy measured on questions, with everything that another needs to check it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use palimpsest::eval::{Evaluation, Transcripts, csv, table_text, write_transcripts};
use palimpsest::experiment::Experiment;
use palimpsest::record::{RunFolder, RunRecord, RunStatus, write_atomic};
use palimpsest::run::{Origin, Recorder, RunClock, Started};
use palimpsest::task::qa::Metric;
use palimpsest::tools::Interrupts;
use serde_json::json;

use super::manifest::manifest;
use super::replay::replay;
use super::settle::settle_paths;
use super::{STOPPED, bad_file, drive, open_task, plain, start_engine, write_pages};
use crate::arguments::Eval;

/// File of the transcripts in a run folder.
pub const TRANSCRIPTS: &str = "transcripts.jsonl";
/// Folder of the tokenizer in a run folder: a replay needs it, and nothing else of the model.
pub const TOKENIZER: &str = "tokenizer";

/// What an evaluation is, whatever the experiment trains: turns go on as they come, so that nothing
/// waits for a slow tool. The numbers that sample are addressed, so their order changes nothing.
const MEASURING: [&str; 5] = [
    "evaluation.only=true",
    "learner.steps=0",
    "cold_start.stages=[]",
    "rollout.lockstep=false",
    "record.tensorboard=false",
];

/// Runs the command.
pub fn eval(arguments: &Eval) -> anyhow::Result<ExitCode> {
    match (&arguments.replay, &arguments.experiment) {
        (Some(run), _) => replay(run, arguments.run_dir.as_deref()),
        (None, Some(file)) => measure(file, arguments),
        (None, None) => anyhow::bail!("--experiment FILE or --replay RUN is missing"),
    }
}

fn measure(file: &Path, arguments: &Eval) -> anyhow::Result<ExitCode> {
    let mut overrides: Vec<String> = MEASURING.map(str::to_owned).to_vec();
    overrides.extend_from_slice(&arguments.set);
    let resolved = match Experiment::load(file, &overrides) {
        Ok(resolved) => resolved,
        Err(problems) => return bad_file(&problems),
    };
    if let Err(missing) = resolved.ready() {
        return bad_file(&missing);
    }
    for note in &resolved.notes {
        tracing::warn!("{note}");
    }
    let mut experiment = resolved.experiment;
    settle_paths(&mut experiment)?;
    let task = open_task(&experiment, None)?;
    let link = start_engine(experiment.clone(), Arc::clone(&task), None)?;
    let origin = match &arguments.run_dir {
        Some(folder) => Origin::At(folder.clone()),
        None => Origin::New(PathBuf::from(&experiment.record.runs)),
    };
    let text = experiment.to_ron();
    let tokenizer = Arc::clone(task.tokenizer());
    let started = Started::new(&origin, experiment.clone(), &text, task, &[]);
    let Started { launch, .. } = started.map_err(plain)?;
    let run = launch.recorder.folder.path().to_path_buf();
    tracing::info!("run folder {run:?}");
    let beside = super::Beside::default();
    let interrupts = beside.interrupts.clone();
    let (app, outcome) = drive(launch, link, None, beside)?;
    let seconds: BTreeMap<String, f64> = app.world().resource::<RunClock>().seconds.clone();
    let folder = &app.world().resource::<Recorder>().folder;
    let pages = write_pages(folder, seconds);
    if outcome? == RunStatus::Stopped {
        return stopped(&interrupts);
    }
    pages?;
    let transcripts = &app.world().resource::<Transcripts>().0;
    write_transcripts(&folder.file(TRANSCRIPTS), transcripts)?;
    let words = folder.file(TOKENIZER);
    std::fs::create_dir_all(&words)?;
    tokenizer.save(&words)?;
    let lines = measured(folder)?;
    let table = write_results(folder, &lines)?;
    let manifest = manifest(&experiment, folder, transcripts.len())?;
    write_atomic(
        &folder.file("manifest.json"),
        format!("{manifest:#}\n").as_bytes(),
    )?;
    write!(std::io::stdout(), "{table}")?;
    tracing::info!("report: {}", run.join("report.html").display());
    Ok(ExitCode::SUCCESS)
}

/// Says why there is no table: the user stopped the evaluation, or it had nothing to ask.
pub fn stopped(interrupts: &Interrupts) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(
        interrupts.requested(),
        "nothing was measured: no question was asked; look at evaluation.objectives, contexts and questions"
    );
    tracing::warn!("stopped before the end: there is no table");
    Ok(ExitCode::from(STOPPED))
}

/// The lines of the evaluation in a run folder.
pub fn measured(folder: &RunFolder) -> anyhow::Result<Vec<Evaluation>> {
    let lines = RunRecord::read(folder)?.view().evaluations;
    anyhow::ensure!(
        !lines.is_empty(),
        "nothing was measured: there are no questions"
    );
    Ok(lines)
}

/// Writes results.json, results.csv and results.md; gives the table.
fn write_results(folder: &RunFolder, lines: &[Evaluation]) -> anyhow::Result<String> {
    let results = json!({
        "evaluations": lines,
        "definitions": {
            "em": Metric::ExactMatch.name(),
            "f1": Metric::SetF1.name(),
            "cem": Metric::WordsCovered.name(),
            "intervals": "bootstrap over questions, 95 %",
        },
    });
    let table = table_text(lines);
    let files = [
        ("results.json", format!("{results:#}\n")),
        ("results.csv", csv(lines)),
        ("results.md", table.clone()),
    ];
    for (name, text) in files {
        write_atomic(&folder.file(name), text.as_bytes())
            .with_context(|| format!("{name} cannot be written"))?;
    }
    Ok(table)
}

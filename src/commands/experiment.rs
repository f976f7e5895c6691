//! The experiment of a run: from a file, or from the folder of a run that goes on.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use palimpsest::experiment::{Experiment, ExperimentErrors, Resolved};
use palimpsest::record::{RecordError, RunFolder, RunRecord, RunStatus};
use palimpsest::run::Origin;

use super::settle::settle_paths;
use crate::arguments::Train;

/// What is run, where its record goes, and the checkpoint it begins from.
pub type Read = Result<(Resolved, Origin, Option<PathBuf>), ExperimentErrors>;

/// The experiment and where its run goes.
pub fn read_experiment(arguments: &Train) -> anyhow::Result<Read> {
    if let Some(run) = &arguments.resume {
        return read_resumed(arguments, run);
    }
    let file = arguments
        .experiment
        .as_deref()
        .context("--experiment FILE is missing")?;
    Ok(Experiment::load(file, &arguments.set).map(|read| {
        let origin = match &arguments.run_dir {
            Some(folder) => Origin::At(folder.clone()),
            None => Origin::New(read.experiment.record.runs.clone().into()),
        };
        (read, origin, None)
    }))
}

/// The experiment that a run folder holds, with the overrides that a resume allows. With a
/// checkpoint the policy's first folder is not needed any more.
fn read_resumed(arguments: &Train, run: &Path) -> anyhow::Result<Read> {
    let folder = RunFolder::look(run)?;
    let file = folder.file("experiment.ron");
    let checkpoint = match folder.latest_checkpoint() {
        Ok(checkpoint) => Some(checkpoint),
        Err(RecordError::NoCheckpoint { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let mut overrides = arguments.set.clone();
    if let Some(checkpoint) = &checkpoint {
        overrides.push(format!(
            "policy=Folder({:?})",
            checkpoint.display().to_string()
        ));
    }
    let recorded = match Experiment::load(&file, &overrides[arguments.set.len()..]) {
        Ok(recorded) => recorded.experiment,
        Err(problems) => return Ok(Err(problems)),
    };
    if let Some(named) = &arguments.experiment {
        warn_if_other(named, &recorded);
    }
    let resolved = match Experiment::load(&file, &overrides) {
        Ok(resolved) => resolved,
        Err(problems) => return Ok(Err(problems)),
    };
    let changed = &resolved.experiment;
    let fixed = [
        ("name", changed.name != recorded.name),
        ("seed", changed.seed != recorded.seed),
        ("task", changed.task != recorded.task),
        ("cold_start", changed.cold_start != recorded.cold_start),
        (
            "policy",
            arguments
                .set
                .iter()
                .any(|set| set.trim_start().starts_with("policy")),
        ),
    ];
    let fixed: Vec<&str> = fixed
        .iter()
        .filter(|(_, on)| *on)
        .map(|(name, _)| *name)
        .collect();
    if !fixed.is_empty() {
        return Err(anyhow!(
            "--set changes {} of a run that has begun; these stay as they are, start a run of its own for others",
            fixed.join(", ")
        ));
    }
    Ok(Ok((
        resolved,
        Origin::Resume(run.to_path_buf()),
        checkpoint,
    )))
}

/// The experiment as the run folder records it: a resumed run begins from a checkpoint, but its
/// file goes on naming the policy that it began with.
pub fn recorded_text(experiment: &Experiment, resumed: Option<&Path>) -> String {
    let mut recorded = experiment.clone();
    if let Some(run) = resumed
        && let Ok(begun) = Experiment::load(&run.join("experiment.ron"), &[])
    {
        recorded.policy = begun.experiment.policy;
    }
    recorded.to_ron()
}

/// Whether a run has done all its steps already; says so.
pub fn already_finished(run: &Path, experiment: &Experiment) -> anyhow::Result<bool> {
    let view = RunRecord::read(&RunFolder::look(run)?)?.view();
    let steps = experiment.learner.steps;
    if steps < view.steps {
        return Err(anyhow!(
            "learner.steps {steps}, but the run in {run:?} has done {} already; --set learner.steps to more",
            view.steps
        ));
    }
    let finished = view.status == RunStatus::Finished && view.steps == steps;
    if finished {
        tracing::info!(
            "the run in {run:?} is finished: nothing to do (more steps with --set learner.steps=N)"
        );
        writeln!(std::io::stdout(), "{}", run.join("summary.json").display())?;
    }
    Ok(finished)
}

/// Says so if a resumed run is named together with a file that holds something else: the run goes on
/// as it began.
fn warn_if_other(file: &Path, recorded: &Experiment) {
    let Ok(named) = Experiment::load(file, &[]) else {
        tracing::warn!("{file:?} cannot be read; the run goes on with the experiment it holds");
        return;
    };
    let mut named = named.experiment;
    named.policy.clone_from(&recorded.policy);
    if settle_paths(&mut named).is_err() || named != *recorded {
        tracing::warn!(
            "{file:?} holds another experiment than the run; the run goes on with its own (change settings with --set)"
        );
    }
}

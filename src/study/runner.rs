//! Runs the arms as processes of this program.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use super::error::StudyError;
use crate::record::{RunFolder, RunStatus, Summary, write_atomic};

/// What is to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The base experiment.
    pub base: PathBuf,
    /// The runs in their order.
    pub jobs: Vec<Job>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its arm.
    pub arm: String,
    /// Its seed.
    pub seed: u64,
    /// Everything that is laid over the base.
    pub set: Vec<String>,
    /// The resolved experiment.
    pub experiment: String,
}

impl Job {
    /// `grpo-seed3`.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}-seed{}", self.arm, self.seed)
    }
}

/// Runs everything that is not finished, `jobs` processes at a time, and returns the summaries in
/// the order of the plan. A finished run is not repeated; one that was cut off goes on.
///
/// # Errors
/// A folder of another experiment, or a run that ended badly (the others are waited for).
pub fn run_all(
    program: &Path,
    plan: &Plan,
    out: &Path,
    jobs: usize,
) -> Result<Vec<Summary>, StudyError> {
    for folder in [out.join("runs"), out.join("logs")] {
        std::fs::create_dir_all(&folder).map_err(StudyError::io("make", &folder))?;
    }
    claim(plan, out)?;
    let queue = Mutex::new(plan.jobs.iter().collect::<VecDeque<_>>());
    let failed = Mutex::new(Vec::new());
    let take = || {
        let stop = !lock(&failed).is_empty();
        lock(&queue).pop_front().filter(|_| !stop)
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(job) = take() {
                    if let Err(error) = run(program, &plan.base, job, out) {
                        lock(&failed).push(error.to_string());
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if !failed.is_empty() {
        return Err(StudyError::Runs(failed));
    }
    plan.jobs
        .iter()
        .map(|job| {
            let folder = out.join("runs").join(job.name());
            summary(&folder)?.ok_or_else(|| {
                StudyError::Runs(vec![format!("{} left no summary.json", job.name())])
            })
        })
        .collect()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes which experiment stands behind every run; refuses runs of another one.
fn claim(plan: &Plan, out: &Path) -> Result<(), StudyError> {
    let mut others = Vec::new();
    for job in &plan.jobs {
        let path = out.join("runs").join(format!("{}.ron", job.name()));
        match std::fs::read_to_string(&path) {
            Ok(text) if text != job.experiment => others.push(format!(
                "{path:?} holds another experiment than {} has now; name another --out, or delete it and its run",
                job.name()
            )),
            Ok(_) => {}
            Err(_) => write_atomic(&path, job.experiment.as_bytes())?,
        }
    }
    if others.is_empty() {
        Ok(())
    } else {
        Err(StudyError::File(others))
    }
}

fn summary(folder: &Path) -> Result<Option<Summary>, StudyError> {
    if !folder.join("events.jsonl").exists() {
        return Ok(None);
    }
    Ok(Summary::read(&RunFolder::look(folder)?)?)
}

fn run(program: &Path, base: &Path, job: &Job, out: &Path) -> Result<(), StudyError> {
    let folder = out.join("runs").join(job.name());
    let mut command = Command::new(program);
    let log = out.join("logs").join(format!("{}.log", job.name()));
    let file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&log)
        .map_err(StudyError::io("open", &log))?;
    // A study that was killed may have left a process at work: its run is waited for, not repeated. The
    // process holds this lock through its output, from before it has a run folder until it ends.
    if file.try_lock().is_err() {
        tracing::info!(
            "{} is still at work for an earlier study: it is waited for",
            job.name()
        );
        file.lock().map_err(StudyError::io("lock", &log))?;
    }
    if folder.join("events.jsonl").exists() {
        if summary(&folder)?.is_some_and(|summary| summary.status == RunStatus::Finished) {
            tracing::info!("{} is finished", job.name());
            return Ok(());
        }
        tracing::info!("{} goes on", job.name());
        command.arg("--resume").arg(&folder);
    } else {
        if folder.exists() {
            // Killed before there was a run.
            std::fs::remove_dir_all(&folder).map_err(StudyError::io("remove", &folder))?;
        }
        tracing::info!("{} begins", job.name());
        command.arg("--experiment").arg(base);
        command.arg("--run-dir").arg(&folder);
        for setting in &job.set {
            command.arg("--set").arg(setting);
        }
    }
    let again = file.try_clone().map_err(StudyError::io("open", &log))?;
    let status = command
        .env("OMP_NUM_THREADS", "1")
        .env("OMP_WAIT_POLICY", "passive")
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(again)
        .status()
        .map_err(StudyError::io("start", program))?;
    if status.success() {
        tracing::info!("{} is finished", job.name());
        return Ok(());
    }
    Err(StudyError::Runs(vec![format!(
        "{} ended with {status}, see {}",
        job.name(),
        log.display()
    )]))
}

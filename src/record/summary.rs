//! `summary.json`: the numbers that other programs read.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::append::write_atomic;
use super::{Evaluation, RecordError, RunFolder, RunStatus, RunView};

/// The content of `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Name in the experiment.
    pub name: String,
    /// Seed of the run.
    pub seed: u64,
    /// RL steps done.
    pub steps: u32,
    /// How the run stands.
    pub status: RunStatus,
    /// Seconds by stage, e.g. `cold_start`, `rl`, `evaluation`, `total`; over all resumes.
    pub wall_seconds: BTreeMap<String, f64>,
    /// Every measurement, in order: step 0 is after the cold start.
    pub evaluations: Vec<Evaluation>,
}

impl Summary {
    /// Takes the numbers out of a view.
    #[must_use]
    pub fn new(view: &RunView, wall_seconds: BTreeMap<String, f64>) -> Self {
        Self {
            name: view.name.clone(),
            seed: view.seed,
            steps: view.steps,
            status: view.status,
            wall_seconds,
            evaluations: view.evaluations.clone(),
        }
    }

    /// Writes `summary.json`.
    ///
    /// # Errors
    /// [`RecordError::Io`], or [`RecordError::DiskFull`].
    pub fn write(&self, folder: &RunFolder) -> Result<(), RecordError> {
        let mut text = serde_json::to_vec_pretty(self).map_err(|e| RecordError::Layout {
            what: "summary.json",
            why: e.to_string(),
        })?;
        text.push(b'\n');
        write_atomic(&folder.file("summary.json"), &text)
    }

    /// Reads `summary.json`; none if the run has not written it yet.
    ///
    /// # Errors
    /// [`RecordError::Io`], or [`RecordError::Damaged`].
    pub fn read(folder: &RunFolder) -> Result<Option<Self>, RecordError> {
        let path = folder.file("summary.json");
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(RecordError::io("read", &path, e)),
        };
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|e| RecordError::Damaged {
                path,
                place: format!("at line {}", e.line()),
                why: e.to_string(),
            })
    }
}

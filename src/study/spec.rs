//! The study file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::error::StudyError;
use super::runner::{Job, Plan};
use crate::experiment::Experiment;

/// The metrics that a study can show, as they stand in `summary.json`.
pub const METRICS: [&str; 6] = [
    "em",
    "f1",
    "notes_recall",
    "notes_tokens",
    "peak_tokens",
    "total_tokens",
];

/// A study: one base experiment, arms that change settings of it, and seeds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// Experiment file of all arms, relative to the study file.
    pub base: PathBuf,
    /// Settings of all arms, as `learner.steps=4`.
    #[serde(default)]
    pub set: Vec<String>,
    /// Seeds of every arm.
    pub seeds: Vec<u64>,
    /// What is compared.
    pub arms: Vec<Arm>,
    /// Objectives shown; empty: all that were measured.
    #[serde(default)]
    pub objectives: Vec<u32>,
    /// Metrics shown, the most telling first; empty: all.
    #[serde(default)]
    pub metrics: Vec<String>,
}

/// One arm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// Its name: part of the folders of its runs.
    pub name: String,
    /// Settings laid over those of the study.
    #[serde(default)]
    pub set: Vec<String>,
}

impl Study {
    /// Reads a study file and resolves the experiment of every arm and seed. `overrides` are laid
    /// over the arms.
    ///
    /// # Errors
    /// Every problem of the file and of its arms, at once.
    pub fn load(path: &Path, overrides: &[String]) -> Result<(Self, Plan), StudyError> {
        let one = |what: String| StudyError::File(vec![format!("{}: {what}", path.display())]);
        let text = std::fs::read_to_string(path)
            .map_err(|error| one(format!("the study file cannot be read ({error})")))?;
        let mut study: Self = ron::Options::default()
            .from_str(&text)
            .map_err(|error| one(format!("{}: {}", error.span.start, error.code)))?;
        if study.metrics.is_empty() {
            study.metrics = METRICS.map(String::from).to_vec();
        }
        let mut problems = study.problems();
        let base = path.parent().unwrap_or(Path::new("")).join(&study.base);
        let jobs = study.jobs(&base, overrides, &mut problems);
        if problems.is_empty() {
            return Ok((study, Plan { base, jobs }));
        }
        let label = path.display();
        Err(StudyError::File(
            problems
                .into_iter()
                .map(|problem| format!("{label}: {problem}"))
                .collect(),
        ))
    }

    fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.arms.is_empty() {
            problems.push("arms is empty: there is nothing to compare".into());
        }
        if self.seeds.is_empty() {
            problems.push("seeds is empty: nothing would run".into());
        }
        let mut seeds = BTreeSet::new();
        for seed in self.seeds.iter().filter(|seed| !seeds.insert(**seed)) {
            problems.push(format!(
                "seed {seed} is given twice: it would count twice in every mean"
            ));
        }
        let mut names = BTreeSet::new();
        for Arm { name, .. } in &self.arms {
            if !names.insert(name) {
                problems.push(format!(
                    "the arm {name:?} is given twice: its runs would share folders"
                ));
            }
            let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
            if name.is_empty() || name.starts_with('.') || !name.chars().all(plain) {
                problems.push(format!(
                    "the arm {name:?} cannot be a folder: a name is of letters, digits, _, - and ."
                ));
            }
        }
        for metric in &self.metrics {
            if !METRICS.contains(&metric.as_str()) {
                let known = METRICS.join(", ");
                problems.push(format!(
                    "there is no metric {metric:?}: metrics are {known}"
                ));
            }
        }
        problems
    }

    /// The runs, seed by seed, so that a study that is cut off has whole comparisons.
    fn jobs(&self, base: &Path, overrides: &[String], problems: &mut Vec<String>) -> Vec<Job> {
        let mut jobs = Vec::new();
        let mut told = BTreeSet::new();
        for &seed in &self.seeds {
            for arm in &self.arms {
                let mut set = [&self.set[..], &arm.set, overrides].concat();
                set.push(format!("name={}", arm.name));
                set.push(format!("seed={seed}"));
                set.push("engine.threads=1".into());
                let resolved = Experiment::load(base, &set)
                    .and_then(|resolved| resolved.ready().map(|()| resolved));
                match resolved {
                    Ok(resolved) => jobs.push(Job {
                        arm: arm.name.clone(),
                        seed,
                        set,
                        experiment: resolved.experiment.to_ron(),
                    }),
                    // Seeds of one arm have the same problems.
                    Err(errors) if told.insert(&arm.name) => problems.extend(
                        errors
                            .0
                            .iter()
                            .map(|finding| format!("arm {}: {finding}", arm.name)),
                    ),
                    Err(_) => {}
                }
            }
        }
        jobs
    }
}

//! Means and 95 % intervals over seeds.

use std::collections::BTreeMap;

use serde::Serialize;

use super::runner::Plan;
use super::spec::Study;
use crate::experiment::ContextKind;
use crate::record::{Evaluation, Summary};

/// Two-sided 95 % points of Student's t for 1 to 30 degrees of freedom.
const STUDENT: [f64; 30] = [
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010,
    2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687,
    2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
];

/// The two-sided 95 % point of Student's t; from 31 degrees on by the expansion in 1/n.
#[must_use]
pub fn student_t(degrees: usize) -> f64 {
    let z = 1.959_964_f64;
    degrees
        .checked_sub(1)
        .and_then(|at| STUDENT.get(at).copied())
        .unwrap_or_else(|| {
            let n = degrees.max(1) as f64;
            let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n);
            z + (z.powi(3) + z) / (4.0 * n) + second
        })
}

/// Mean, and half of the 95 % interval (none for a single value).
#[must_use]
pub fn interval(values: &[f64]) -> (f64, Option<f64>) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    if values.len() < 2 {
        return (mean, None);
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let deviation = (squares / (n - 1.0)).sqrt();
    (
        mean,
        Some(student_t(values.len() - 1) * deviation / n.sqrt()),
    )
}

/// One number of the table, over the seeds of an arm.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Which arm.
    pub arm: String,
    /// RL steps done when it was measured.
    pub step: u32,
    /// What the policy saw.
    pub context: ContextKind,
    /// Objectives per question.
    pub objectives: u32,
    /// Which metric.
    pub metric: String,
    /// Mean over seeds.
    pub mean: f64,
    /// Half of the 95 % interval; none with one seed.
    pub half: Option<f64>,
    /// Mean of the differences to the first arm, seed by seed.
    pub gain: f64,
    /// Half of its 95 % interval.
    pub gain_half: Option<f64>,
    /// The values in the order of the seeds.
    pub values: Vec<f64>,
}

/// What a study found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    /// Name of the study.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// The study file.
    pub study: Study,
    /// Every number: by arm, step, context, objectives, metric.
    pub cells: Vec<Cell>,
}

/// A figure of a line; none if it was not measured.
fn value(line: &Evaluation, metric: &str) -> Option<f64> {
    Some(match metric {
        "em" => line.em,
        "f1" => line.f1,
        "notes_recall" => line.notes_recall?,
        "notes_tokens" => line.notes_tokens?,
        "peak_tokens" => line.peak_tokens,
        "total_tokens" => line.total_tokens,
        _ => f64::NAN,
    })
}

/// Contexts that forget come before the full one.
fn order(context: ContextKind) -> (bool, ContextKind) {
    (context == ContextKind::Full, context)
}

impl Results {
    /// Sums the runs of a plan up.
    #[must_use]
    pub fn new(name: &str, study: &Study, plan: &Plan, summaries: &[Summary]) -> Self {
        type Key<'a> = (usize, u32, (bool, ContextKind), u32, &'a str);
        let mut values: BTreeMap<Key<'_>, (ContextKind, Vec<f64>)> = BTreeMap::new();
        let shown =
            |objectives| study.objectives.is_empty() || study.objectives.contains(&objectives);
        for (job, summary) in plan.jobs.iter().zip(summaries) {
            let arm = study.arms.iter().position(|arm| arm.name == job.arm);
            let Some(arm) = arm else { continue };
            for line in summary.evaluations.iter().filter(|l| shown(l.objectives)) {
                for metric in &study.metrics {
                    let Some(value) = value(line, metric) else {
                        continue;
                    };
                    let context = order(line.context);
                    let key = (arm, line.step, context, line.objectives, metric.as_str());
                    let entry = values.entry(key).or_insert((line.context, Vec::new()));
                    entry.1.push(value);
                }
            }
        }
        let cells = values
            .iter()
            .map(|(key, (context, of))| {
                let (mean, half) = interval(of);
                let first = values.get(&(0, key.1, key.2, key.3, key.4));
                let differences: Vec<f64> = first
                    .filter(|(_, first)| first.len() == of.len())
                    .map(|(_, first)| of.iter().zip(first).map(|(a, b)| a - b).collect())
                    .unwrap_or_default();
                let (gain, gain_half) = if differences.is_empty() {
                    (0.0, None)
                } else {
                    interval(&differences)
                };
                Cell {
                    arm: study
                        .arms
                        .get(key.0)
                        .map_or_else(String::new, |arm| arm.name.clone()),
                    step: key.1,
                    context: *context,
                    objectives: key.3,
                    metric: key.4.to_owned(),
                    mean,
                    half,
                    gain,
                    gain_half,
                    values: of.clone(),
                }
            })
            .collect();
        Self {
            name: name.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            study: study.clone(),
            cells,
        }
    }

    /// The last step that every arm was measured at.
    #[must_use]
    pub fn last_step(&self) -> u32 {
        self.cells.iter().map(|cell| cell.step).max().unwrap_or(0)
    }

    /// The contexts that were measured, the full one last.
    #[must_use]
    pub fn contexts(&self) -> Vec<ContextKind> {
        let mut contexts: Vec<ContextKind> = self.cells.iter().map(|cell| cell.context).collect();
        contexts.sort_unstable_by_key(|&context| order(context));
        contexts.dedup();
        contexts
    }

    /// One number.
    #[must_use]
    pub fn cell(
        &self,
        arm: &str,
        step: u32,
        context: ContextKind,
        objectives: u32,
        metric: &str,
    ) -> Option<&Cell> {
        self.cells.iter().find(|cell| {
            cell.arm == arm
                && cell.step == step
                && cell.context == context
                && cell.objectives == objectives
                && cell.metric == metric
        })
    }
}

//! `study.md`, `study.csv`, `study.json` and `study.html`.

use std::collections::BTreeSet;
use std::path::Path;

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment};
use serde::Serialize;

use super::error::StudyError;
use super::table::{Cell, Results};
use crate::experiment::ContextKind;
use crate::record::report::chart::{Chart, Line, Plan};
use crate::record::report::numbers::{short, signed};
use crate::record::write_atomic;

const CLASSES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// A table of one metric: arms down, objectives across.
#[derive(Serialize)]
struct MetricTable {
    metric: String,
    objectives: Vec<u32>,
    rows: Vec<(String, &'static str, Vec<(String, String)>)>,
}

#[derive(Serialize)]
struct Page<'a> {
    name: &'a str,
    version: &'a str,
    seeds: usize,
    base: String,
    first: String,
    step: u32,
    arms: Vec<(String, String)>,
    tables: Vec<MetricTable>,
    charts: Vec<Chart>,
}

/// Writes the results into `out` and returns the table in Markdown.
///
/// # Errors
/// A file cannot be written.
pub fn write_results(results: &Results, out: &Path) -> Result<String, StudyError> {
    let table = markdown(results);
    let layout = |what: &'static str| move |why: String| StudyError::Layout { what, why };
    let mut json = serde_json::to_vec_pretty(results)
        .map_err(|error| layout("study.json")(error.to_string()))?;
    json.push(b'\n');
    let page = page(results).map_err(|error| layout("study.html")(format!("{error:#}")))?;
    write_atomic(&out.join("study.json"), &json)?;
    write_atomic(&out.join("study.csv"), csv(results).as_bytes())?;
    write_atomic(&out.join("study.md"), table.as_bytes())?;
    write_atomic(&out.join("study.html"), page.as_bytes())?;
    Ok(table)
}

/// A number with the digits that its size asks for, and half of its interval.
fn with_half(mean: f64, half: Option<f64>) -> String {
    let digits = usize::from(mean.abs() < 10.0) * 2;
    match half {
        Some(half) => format!("{mean:.digits$} ± {half:.digits$}"),
        None => format!("{mean:.digits$}"),
    }
}

/// The tables of the last step, after a row of the start.
fn tables(results: &Results) -> Vec<MetricTable> {
    let last = results.last_step();
    let at_ends: BTreeSet<u32> = results
        .cells
        .iter()
        .filter(|cell| cell.step == last)
        .map(|cell| cell.objectives)
        .collect();
    let objectives: Vec<u32> = at_ends.into_iter().collect();
    let first_arm = results.study.arms.first().map_or("", |arm| &arm.name);
    let contexts = results.contexts();
    let row = |label: &str, arm: &str, step, context: ContextKind, metric: &str| {
        let of = |cell: &Cell| {
            let gain = if arm == first_arm {
                String::new()
            } else {
                let half = cell
                    .gain_half
                    .map_or_else(String::new, |half| format!(" ± {}", short(half)));
                format!("{}{half}", signed(cell.gain))
            };
            (with_half(cell.mean, cell.half), gain)
        };
        let cells: Vec<(String, String)> = objectives
            .iter()
            .map(|&objectives| {
                results
                    .cell(arm, step, context, objectives, metric)
                    .map_or_else(|| ("-".into(), String::new()), of)
            })
            .collect();
        let measured = cells.iter().any(|cell| cell.0 != "-");
        measured.then(|| (label.to_owned(), context.name(), cells))
    };
    results
        .study
        .metrics
        .iter()
        .map(|metric| {
            let mut rows = Vec::new();
            for &context in &contexts {
                if last > 0 {
                    rows.extend(row("at the start", first_arm, 0, context, metric));
                }
                for arm in &results.study.arms {
                    rows.extend(row(&arm.name, &arm.name, last, context, metric));
                }
            }
            MetricTable {
                metric: metric.clone(),
                objectives: objectives.clone(),
                rows,
            }
        })
        .collect()
}

fn markdown(results: &Results) -> String {
    let seeds = results.study.seeds.len();
    let mut text = String::new();
    for table in tables(results) {
        text.push_str(&format!(
            "\n{} at step {}, mean ± half of the 95 % interval over {seeds} seeds\n\n",
            table.metric,
            results.last_step()
        ));
        let heads: Vec<String> = table
            .objectives
            .iter()
            .map(|n| format!("{n} objectives"))
            .collect();
        text.push_str(&format!("| | context | {} |\n", heads.join(" | ")));
        text.push_str(&format!("| --- | --- |{}\n", " --- |".repeat(heads.len())));
        for (arm, context, cells) in table.rows {
            let cells: Vec<String> = cells.into_iter().map(|cell| cell.0).collect();
            text.push_str(&format!("| {arm} | {context} | {} |\n", cells.join(" | ")));
        }
    }
    text
}

fn csv(results: &Results) -> String {
    let mut text =
        String::from("arm,step,context,objectives,metric,seeds,mean,half,gain,gain_half,values\n");
    let number = |half: Option<f64>| half.map_or_else(String::new, |half| half.to_string());
    for cell in &results.cells {
        let values: Vec<String> = cell.values.iter().map(ToString::to_string).collect();
        text.push_str(&format!(
            "{},{},{},{},{},{},{},{},{},{},{}\n",
            cell.arm,
            cell.step,
            cell.context.name(),
            cell.objectives,
            cell.metric,
            cell.values.len(),
            cell.mean,
            number(cell.half),
            cell.gain,
            number(cell.gain_half),
            values.join(" ")
        ));
    }
    text
}

/// Curves with bands: one chart a metric and context, at the objectives measured most often.
fn charts(results: &Results) -> Vec<Chart> {
    let steps = |objectives: u32| -> usize {
        let of = results.cells.iter().filter(|c| c.objectives == objectives);
        of.map(|cell| cell.step).collect::<BTreeSet<_>>().len()
    };
    let all: BTreeSet<u32> = results.cells.iter().map(|cell| cell.objectives).collect();
    let Some(objectives) = all.into_iter().max_by_key(|&objectives| steps(objectives)) else {
        return Vec::new();
    };
    let mut charts = Vec::new();
    for metric in &results.study.metrics {
        for context in results.contexts() {
            let line = |(arm, class): (&super::Arm, &'static str)| {
                let cells: Vec<&Cell> = results
                    .cells
                    .iter()
                    .filter(|c| c.arm == arm.name && c.metric == *metric)
                    .filter(|c| c.context == context && c.objectives == objectives)
                    .collect();
                Line {
                    label: arm.name.clone(),
                    class,
                    points: cells.iter().map(|c| (c.step, c.mean)).collect(),
                    band: cells
                        .iter()
                        .filter_map(|c| c.half.map(|half| (c.step, c.mean - half, c.mean + half)))
                        .collect(),
                }
            };
            let classes = CLASSES.into_iter().cycle();
            let plan = Plan {
                title: format!("{metric}, {}", context.name()),
                caption: format!("{objectives} objectives; bands are 95 % intervals."),
                unit: "",
                steps: "RL step",
                share: false,
                lines: results.study.arms.iter().zip(classes).map(line).collect(),
            };
            charts.extend(plan.place());
        }
    }
    charts
}

fn page(results: &Results) -> Result<String, minijinja::Error> {
    let study = &results.study;
    let page = Page {
        name: &results.name,
        version: &results.version,
        seeds: study.seeds.len(),
        base: study.base.display().to_string(),
        first: study
            .arms
            .first()
            .map_or_else(String::new, |arm| arm.name.clone()),
        step: results.last_step(),
        arms: study
            .arms
            .iter()
            .map(|arm| (arm.name.clone(), arm.set.join(", ")))
            .collect(),
        tables: tables(results),
        charts: charts(results),
    };
    let mut pages = Environment::new();
    pages.set_auto_escape_callback(|_| AutoEscape::Html);
    pages.render_str(include_str!("../../assets/report/study.html"), Serde(&page))
}

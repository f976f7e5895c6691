//! Which curves the report shows, and from what.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::chart::{Chart, Line, Plan};
use crate::experiment::ContextKind;
use crate::record::{Evaluation, RunView};

/// A question, and the curves that answer it.
#[derive(Debug, Serialize)]
pub(super) struct Section {
    title: &'static str,
    charts: Vec<Chart>,
}

/// The curves of a run; sections without data are left out.
pub(super) fn sections(view: &RunView) -> Vec<Section> {
    let measured = |value| by_context(view, value);
    let metric = |label: &str, class, name| line(label, class, view.metric(name).to_vec());
    let plans = [
        (
            "Is it learning?",
            vec![
                share(
                    "Exact match",
                    "Questions with every objective right, in evaluations.",
                    measured(|r| Some(r.em)),
                ),
                plain(
                    "Training reward",
                    "reward",
                    "Mean reward of the trajectories of a step.",
                    vec![metric("reward", "a", "critic/score/mean")],
                ),
                share(
                    "Notes recall",
                    "Facts seen so far that stand in the notes.",
                    measured(|r| r.notes_recall),
                ),
            ],
        ),
        (
            "What are the notes worth?",
            vec![
                share(
                    "P(gold answer)",
                    "From the notes alone, and from everything seen. They meet when nothing is lost.",
                    vec![
                        metric("from notes", "a", "memory/p_memory/mean"),
                        metric("from all", "b", "memory/p_full/mean"),
                    ],
                ),
                plain(
                    "Memory reward",
                    "reward",
                    "Mean over the rounds of a step.",
                    vec![metric("reward", "a", "memory/reward/mean")],
                ),
                plain(
                    "Length of the notes",
                    "tokens",
                    "Mean, in evaluations. Good notes are short and complete.",
                    measured(|r| r.notes_tokens),
                ),
            ],
        ),
        (
            "Is it healthy?",
            vec![
                plain(
                    "Entropy",
                    "nats",
                    "Of the policy at trained tokens. Near 0 it no longer explores.",
                    vec![metric("entropy", "a", "actor/entropy")],
                ),
                plain(
                    "Gradient norm",
                    "norm",
                    "Before clipping. Spikes mean unsteady updates.",
                    vec![metric("norm", "a", "actor/grad_norm")],
                ),
                share(
                    "Groups without spread",
                    "Groups whose rollouts all earned the same: they teach nothing.",
                    vec![metric("groups", "a", "groups/without_spread")],
                ),
            ],
        ),
        (
            "How far does it carry?",
            vec![
                Plan {
                    steps: "objectives",
                    ..share(
                        "Exact match by objectives",
                        "The last evaluation, by the number of objectives of a question.",
                        by_objectives(view, |r| r.em),
                    )
                },
                Plan {
                    steps: "objectives",
                    ..plain(
                        "Peak by objectives",
                        "tokens",
                        "Longest context with its turn, in the last evaluation.",
                        by_objectives(view, |r| r.peak_tokens),
                    )
                },
            ],
        ),
        ("How did the cold start go?", cold_start(view)),
    ];
    plans
        .into_iter()
        .map(|(title, plans)| Section {
            title,
            charts: plans.into_iter().filter_map(Plan::place).collect(),
        })
        .filter(|section| !section.charts.is_empty())
        .collect()
}

fn plain(title: &'static str, unit: &'static str, caption: &'static str, lines: Vec<Line>) -> Plan {
    Plan {
        title: title.to_owned(),
        caption: caption.to_owned(),
        unit,
        steps: "RL step",
        share: false,
        lines,
    }
}

fn share(title: &'static str, caption: &'static str, lines: Vec<Line>) -> Plan {
    Plan {
        share: true,
        ..plain(title, "share", caption, lines)
    }
}

fn line(label: &str, class: &'static str, points: Vec<(u32, f64)>) -> Line {
    Line {
        label: label.to_owned(),
        class,
        points,
        band: Vec::new(),
    }
}

/// The number of objectives that was measured most often; the larger if several were.
pub(super) fn main_objectives(view: &RunView) -> Option<u32> {
    let mut counts = BTreeMap::<u32, usize>::new();
    for row in &view.evaluations {
        *counts.entry(row.objectives).or_default() += 1;
    }
    let best = counts.into_iter().max_by_key(|&(_, count)| count);
    best.map(|(objectives, _)| objectives)
}

fn by_context(view: &RunView, value: fn(&Evaluation) -> Option<f64>) -> Vec<Line> {
    let objectives = main_objectives(view);
    let measured: BTreeSet<u32> = view.evaluations.iter().map(|r| r.step).collect();
    if measured.len() < 2 {
        // One evaluation is no curve; the table has its numbers.
        return Vec::new();
    }
    let of = |context| {
        let points: BTreeMap<u32, f64> = view
            .evaluations
            .iter()
            .filter(|r| r.context == context && Some(r.objectives) == objectives)
            .filter_map(|r| Some((r.step, value(r)?)))
            .collect();
        points.into_iter().collect()
    };
    contexts(view)
        .into_iter()
        .map(|(context, class)| line(context.name(), class, of(context)))
        .collect()
}

/// The contexts that were measured, each with the class of its line.
fn contexts(view: &RunView) -> Vec<(ContextKind, &'static str)> {
    let measured: BTreeSet<ContextKind> = view.evaluations.iter().map(|r| r.context).collect();
    // The two that most runs have keep their colours.
    let first = [ContextKind::Deployed, ContextKind::Full];
    let others = measured
        .iter()
        .copied()
        .filter(|context| !first.contains(context));
    let all = first
        .into_iter()
        .filter(|context| measured.contains(context))
        .chain(others);
    let mut spare = ["c", "d", "e"].into_iter().cycle();
    all.map(|context| {
        let class = match context {
            ContextKind::Deployed => "a",
            ContextKind::Full => "b",
            _ => spare.next().unwrap_or("c"),
        };
        (context, class)
    })
    .collect()
}

/// The last evaluation by the number of objectives: how far a policy carries.
fn by_objectives(view: &RunView, value: fn(&Evaluation) -> f64) -> Vec<Line> {
    let Some(last) = view.evaluations.iter().map(|r| r.step).max() else {
        return Vec::new();
    };
    let asked: BTreeSet<u32> = view
        .evaluations
        .iter()
        .filter(|r| r.step == last)
        .map(|r| r.objectives)
        .collect();
    if asked.len() < 2 {
        return Vec::new();
    }
    let of = |context| {
        let points: BTreeMap<u32, f64> = view
            .evaluations
            .iter()
            .filter(|r| r.context == context && r.step == last)
            .map(|r| (r.objectives, value(r)))
            .collect();
        points.into_iter().collect()
    };
    contexts(view)
        .into_iter()
        .map(|(context, class)| line(context.name(), class, of(context)))
        .collect()
}

fn cold_start(view: &RunView) -> Vec<Plan> {
    const CLASSES: [&str; 5] = ["a", "b", "c", "d", "e"];
    let mut losses = BTreeMap::<&str, Vec<(u32, f64)>>::new();
    let mut hits = BTreeMap::<&str, Vec<(u32, f64)>>::new();
    for point in &view.cold_start {
        for (part, loss, hit) in &point.parts {
            losses.entry(part).or_default().push((point.step, *loss));
            hits.entry(part).or_default().push((point.step, *hit));
        }
    }
    let lines = |series: BTreeMap<&str, Vec<(u32, f64)>>| {
        let classes = CLASSES.into_iter().cycle();
        let of = |((part, points), class): ((&str, _), _)| line(part, class, points);
        series.into_iter().zip(classes).map(of).collect()
    };
    let steps = "cold start step";
    vec![
        Plan {
            steps,
            ..plain(
                "Loss by kind of example",
                "nats",
                "Mean cross-entropy of the targets.",
                lines(losses),
            )
        },
        Plan {
            steps,
            ..share(
                "Hits by kind of example",
                "Targets that the policy thinks most likely.",
                lines(hits),
            )
        },
    ]
}

//! Groups that taught nothing, by reason.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::record::RunView;

/// One reason why groups gave no gradient.
#[derive(Debug, Serialize)]
pub(super) struct SilentRow {
    outcome: String,
    memory: String,
    /// Groups of the whole run that were silent for it.
    groups: usize,
    /// Their share of all groups of the run's updates.
    share: String,
    /// Steps in which it was met, as far as they fit on a line.
    steps: String,
}

/// Steps that are named one by one.
const MOST_STEPS: usize = 8;

/// The reasons, the most frequent first.
pub(super) fn rows(view: &RunView) -> Vec<SilentRow> {
    let mut reasons = BTreeMap::<_, (usize, BTreeSet<u32>)>::new();
    let groups_of_a_step = view.silent.values().map(|silent| silent.groups).max();
    for (&step, silent) in &view.silent {
        for dead in &silent.dead {
            let entry = reasons.entry((dead.outcome, dead.memory)).or_default();
            entry.0 += 1;
            entry.1.insert(step);
        }
    }
    // Steps without a silent group leave no event, but each has as many groups.
    let all = view.updates.len().max(view.silent.len()) * groups_of_a_step.unwrap_or(0) as usize;
    let mut rows: Vec<SilentRow> = reasons
        .into_iter()
        .map(|((outcome, memory), (groups, steps))| SilentRow {
            outcome: outcome.to_string(),
            memory: memory.to_string(),
            groups,
            share: format!("{:.0} %", 100.0 * groups as f64 / all.max(1) as f64),
            steps: named(&steps),
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.groups));
    rows
}

fn named(steps: &BTreeSet<u32>) -> String {
    let first: Vec<String> = steps
        .iter()
        .take(MOST_STEPS)
        .map(ToString::to_string)
        .collect();
    match steps.len().saturating_sub(MOST_STEPS) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

//! The table of evaluations: first and last, by objectives and context.

use std::collections::BTreeMap;

use serde::Serialize;

use super::numbers::{short, signed};
use crate::experiment::ContextKind;
use crate::record::{Evaluation, RunView};

/// A line of the table.
#[derive(Debug, Serialize)]
pub(super) struct TableRow {
    objectives: u32,
    context: &'static str,
    n: u32,
    first_step: u32,
    last_step: u32,
    /// In the order of [`COLUMNS`].
    cells: Vec<Cell>,
    /// Where exact match lies with 95 % confidence, given n questions.
    interval: String,
}

#[derive(Debug, Serialize)]
struct Cell {
    first: String,
    /// None if there is only one evaluation.
    last: Option<String>,
    change: String,
    /// `better`, `worse` or `same`.
    trend: &'static str,
}

/// A number at the head of the page.
#[derive(Debug, Serialize)]
pub(super) struct Headline {
    label: String,
    value: String,
    from: Option<String>,
}

struct Column {
    name: &'static str,
    /// None where it is not measured.
    value: fn(&Evaluation) -> Option<f64>,
    /// 1 if more is better, -1 if less is, 0 if it depends.
    good: f64,
}

const COLUMNS: [Column; 6] = [
    column("Exact match", |r| Some(r.em), 1.0),
    column("F1", |r| Some(r.f1), 1.0),
    column("Notes recall", |r| r.notes_recall, 1.0),
    column("Notes, tokens", |r| r.notes_tokens, 0.0),
    column("Peak, tokens", |r| Some(r.peak_tokens), -1.0),
    column("Total, tokens", |r| Some(r.total_tokens), -1.0),
];

const fn column(name: &'static str, value: fn(&Evaluation) -> Option<f64>, good: f64) -> Column {
    Column { name, value, good }
}

/// The names of the columns.
pub(super) fn columns() -> Vec<&'static str> {
    COLUMNS.iter().map(|c| c.name).collect()
}

/// One line for each number of objectives and context that was measured.
pub(super) fn rows(view: &RunView) -> Vec<TableRow> {
    let mut spans = BTreeMap::<(u32, ContextKind), (Evaluation, Evaluation)>::new();
    for &row in &view.evaluations {
        spans
            .entry((row.objectives, row.context))
            .and_modify(|(_, last)| *last = row)
            .or_insert((row, row));
    }
    spans
        .into_values()
        .map(|(first, last)| TableRow {
            objectives: last.objectives,
            context: last.context.name(),
            n: last.n,
            first_step: first.step,
            last_step: last.step,
            cells: COLUMNS.iter().map(|c| c.cell(&first, &last)).collect(),
            interval: interval(last.em, last.n),
        })
        .collect()
}

/// Exact match in every context, and recall, as numbers to begin with.
pub(super) fn headlines(view: &RunView, objectives: Option<u32>) -> Vec<Headline> {
    let of = |label: &str, context, value: fn(&Evaluation) -> Option<f64>| {
        let rows = || {
            view.evaluations
                .iter()
                .filter(move |r| Some(r.objectives) == objectives && r.context == context)
        };
        let (first, last) = (rows().next()?, rows().next_back()?);
        Some(Headline {
            label: format!("{label}, {} context", context.name()),
            value: short(value(last)?),
            from: value(first).filter(|_| first.step != last.step).map(short),
        })
    };
    [
        of("Exact match", ContextKind::Deployed, |r| Some(r.em)),
        of("Exact match", ContextKind::Full, |r| Some(r.em)),
        of("Notes recall", ContextKind::Deployed, |r| r.notes_recall),
        of("Notes, tokens", ContextKind::Deployed, |r| r.notes_tokens),
    ]
    .into_iter()
    .flatten()
    .collect()
}

impl Column {
    fn cell(&self, first: &Evaluation, last: &Evaluation) -> Cell {
        let (Some(a), Some(b)) = ((self.value)(first), (self.value)(last)) else {
            return Cell {
                first: "-".to_owned(),
                last: None,
                change: String::new(),
                trend: "same",
            };
        };
        let change = b - a;
        let trend = match change * self.good {
            gain if gain > 0.0 => "better",
            gain if gain < 0.0 => "worse",
            _ => "same",
        };
        Cell {
            first: short(a),
            last: (first.step != last.step).then(|| short(b)),
            change: signed(change),
            trend,
        }
    }
}

/// Wilson's 95 % interval of a share seen in n questions.
fn interval(share: f64, n: u32) -> String {
    if n == 0 {
        return String::new();
    }
    let (z, n) = (1.96f64, f64::from(n));
    let centre = (share + z * z / (2.0 * n)) / (1.0 + z * z / n);
    let half = z / (1.0 + z * z / n) * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    format!(
        "{:.2} to {:.2}",
        (centre - half).max(0.0),
        (centre + half).min(1.0)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_wilsons() {
        assert_eq!(interval(0.5, 100), "0.40 to 0.60");
        assert_eq!(interval(0.0, 10), "0.00 to 0.28");
        assert_eq!(interval(0.0, 0), "");
    }
}

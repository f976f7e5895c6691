//! After an update: what the learner's report says it learned from.

use super::{Breach, Fault};
use crate::trajectory::{Row, TrajectoryId};

/// A row as the learner reports it.
#[derive(Clone, Copy, Debug)]
pub struct Learned<'a> {
    /// Whose.
    pub id: TrajectoryId,
    /// The tokens.
    pub row: &'a Row,
    /// Log-probs of the learner, 0 where not trained.
    pub learner: &'a [f32],
}

/// Checks that the learner consumed what was written. `written` are the trained tokens of every row,
/// `mini_batches` the row numbers that were sent; `report_rows` is the number of rows in the report,
/// `report_tokens` the trained tokens of each mini-batch in it.
#[must_use]
pub fn consumption(
    written: &[u64],
    mini_batches: &[Vec<usize>],
    report_rows: usize,
    report_tokens: &[u64],
) -> Vec<Fault> {
    let mut faults = Vec::new();
    if report_rows != written.len() {
        faults.push(Fault::whole(Breach::Rows {
            written: written.len(),
            consumed: report_rows,
        }));
    }
    for mini_batch in 0..mini_batches.len().max(report_tokens.len()) {
        let rows = mini_batches.get(mini_batch).map_or(&[][..], Vec::as_slice);
        let written = rows.iter().filter_map(|&row| written.get(row)).sum();
        let consumed = report_tokens.get(mini_batch).copied().unwrap_or(0);
        if written != consumed {
            faults.push(Fault::whole(Breach::Tokens {
                mini_batch,
                written,
                consumed,
            }));
        }
    }
    faults
}

/// Checks that the learner has a log-prob for every token, and exactly 0 where it must not train. At
/// most one fault a row, the first.
#[must_use]
pub fn masked(rows: &[Learned<'_>]) -> Vec<Fault> {
    let column = "learner's log-prob";
    let fault_of = |of: &Learned<'_>| {
        let (found, ids) = (of.learner.len(), of.row.ids.len());
        if found != ids {
            let breach = Breach::Lengths { column, found, ids };
            return Some(Fault::at(of.id, None, None, breach));
        }
        let tokens = of.learner.iter().zip(&of.row.mask).enumerate();
        let (token, (&value, _)) = tokens
            .into_iter()
            .find(|(_, (value, mask))| !**mask && **value != 0.0)?;
        let turn = of.row.turn.get(token).copied();
        let breach = Breach::MaskedNotZero { column, value };
        Some(Fault::at(of.id, turn, Some(token), breach))
    };
    rows.iter().filter_map(fault_of).collect()
}

/// Checks that |ratio - 1| is at most `limit` on the rows of the first mini-batch. Names the token
/// that is furthest off. `reported` is the learner's own figure: it counts where log-probs were
/// overwritten by a later epoch (`rows` is empty then).
#[must_use]
pub fn first_ratio(rows: &[Learned<'_>], reported: Option<f64>, limit: f64) -> Option<Fault> {
    let mut worst: Option<Fault> = None;
    let mut largest = limit;
    for row in rows {
        let numbers = row.row.logprobs.iter().zip(row.learner);
        let places = row.row.mask.iter().zip(&row.row.turn);
        for (token, ((sampled, learner), (_, &turn))) in numbers
            .zip(places)
            .enumerate()
            .filter(|(_, (_, (mask, _)))| **mask)
        {
            let gap = (f64::from(learner - sampled).exp() - 1.0).abs();
            if gap.is_nan() || gap > largest {
                largest = if gap.is_nan() { f64::INFINITY } else { gap };
                let breach = Breach::Ratio { gap, limit };
                worst = Some(Fault::at(row.id, Some(turn), Some(token), breach));
            }
        }
    }
    worst.or_else(|| {
        reported
            .filter(|gap| gap.is_nan() || *gap > limit)
            .map(|gap| Fault::whole(Breach::Ratio { gap, limit }))
    })
}

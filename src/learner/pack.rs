//! From trajectories to rows and mini-batches.

use rand::seq::SliceRandom as _;

use crate::credit::CreditError;
use crate::credit::spread::{TokenCredit, token_credit};
use crate::experiment::ContextKind;
use crate::random::{Domain, stream};
use crate::rollout::{ForcedIds, training_rows};
use crate::trajectory::{Advantages, QuestionData, Row, TrajectoryId, Turn};

/// A row with the credit of every token.
#[derive(Clone, Debug, PartialEq)]
pub struct PackedRow {
    /// Whose.
    pub id: TrajectoryId,
    /// Number of the row inside its trajectory.
    pub number: u32,
    /// The tokens.
    pub row: Row,
    /// Their weights.
    pub credit: TokenCredit,
}

/// The rows of one trajectory. Credit was assigned per trajectory first; here it is copied to the
/// rows. A row without a sampled token is left out.
///
/// # Errors
/// Notes spans that do not fit.
pub fn pack_rows(
    id: TrajectoryId,
    context: ContextKind,
    question: &QuestionData,
    turns: &[Turn],
    forced: &ForcedIds,
    advantages: &Advantages,
) -> Result<Vec<PackedRow>, CreditError> {
    training_rows(context, question, turns, forced)
        .into_iter()
        .filter(|row| row.mask.contains(&true))
        .enumerate()
        .map(|(number, row)| {
            let credit = token_credit(&row, advantages)?;
            Ok(PackedRow {
                id,
                number: number as u32,
                row,
                credit,
            })
        })
        .collect()
}

/// Deals shuffled row numbers into `count` mini-batches (fewer if there are fewer rows), once per
/// epoch. The same (seed, step) always deals the same.
#[must_use]
pub fn mini_batches(rows: usize, count: u32, epochs: u32, seed: u64, step: u32) -> Vec<Vec<usize>> {
    let count = (count.max(1) as usize).min(rows);
    let mut all = Vec::new();
    for epoch in 0..epochs.max(1) {
        let mut order: Vec<usize> = (0..rows).collect();
        order.shuffle(&mut stream(seed, Domain::MiniBatches, step, epoch, 0));
        all.extend(
            (0..count).map(|batch| order.iter().skip(batch).step_by(count).copied().collect()),
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_learned_once_an_epoch() {
        let batches = mini_batches(7, 2, 2, 1, 3);
        assert_eq!(batches.len(), 4);
        let mut first: Vec<usize> = batches[..2].concat();
        first.sort_unstable();
        assert_eq!(first, (0..7).collect::<Vec<_>>());
        assert_eq!(batches, mini_batches(7, 2, 2, 1, 3));
        assert_ne!(batches, mini_batches(7, 2, 2, 1, 4));
        assert!(mini_batches(0, 2, 1, 1, 1).is_empty());
    }
}

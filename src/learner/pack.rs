//! From trajectories to rows and mini-batches.

use rand::seq::SliceRandom as _;

use crate::credit::CreditError;
use crate::credit::spread::{TokenCredit, token_credit_into};
use crate::random::{Domain, stream};
use crate::trajectory::{Advantages, Row, TrajectoryId};

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

/// Lays the credit of one trajectory over its rows. Credit was assigned per trajectory first; here it
/// is copied to the rows. A row without a sampled token is left out. `spare` are lists of an earlier
/// step, which are filled again: memory fresh from the system costs more than all the arithmetic.
///
/// # Errors
/// Notes spans that do not fit, or sampled tokens without credit.
pub fn pack_rows(
    id: TrajectoryId,
    rows: Vec<Row>,
    advantages: &Advantages,
    spare: &mut Vec<TokenCredit>,
) -> Result<Vec<PackedRow>, CreditError> {
    let pack = |(number, row): (u32, Row)| {
        let mut credit = spare.pop().unwrap_or_default();
        token_credit_into(&row, advantages, &mut credit)?;
        Ok(PackedRow {
            id,
            number,
            row,
            credit,
        })
    };
    let trained = rows.into_iter().filter(|row| row.mask.contains(&true));
    (0..).zip(trained).map(pack).collect()
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

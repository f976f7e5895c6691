//! Building supervised rows: ids, what is trained, and positions with gaps.

use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

use crate::engine::SupervisedRow;
use crate::trajectory::TokenId;

/// Share of rows that get gaps.
const GAPPED_SHARE: f64 = 0.6;

/// A row under construction.
#[derive(Debug, Default)]
pub(super) struct RowBuilder {
    ids: Vec<TokenId>,
    mask: Vec<bool>,
    breaks: Vec<usize>,
}

impl RowBuilder {
    /// Adds what the policy is given.
    pub(super) fn given(&mut self, ids: &[TokenId]) -> &mut Self {
        self.push(ids, false)
    }

    /// Adds what the policy shall write.
    pub(super) fn written(&mut self, ids: &[TokenId]) -> &mut Self {
        self.push(ids, true)
    }

    fn push(&mut self, ids: &[TokenId], trained: bool) -> &mut Self {
        self.ids.extend_from_slice(ids);
        self.mask.resize(self.ids.len(), trained);
        self
    }

    /// Marks a place where positions may jump: the end of a turn.
    pub(super) fn may_jump(&mut self) -> &mut Self {
        self.breaks.push(self.ids.len());
        self
    }

    /// Ends the row. In most rows the positions jump by up to `gap` at every break, so that the
    /// policy knows distances longer than those it has been shown.
    pub(super) fn finish(self, rng: &mut ChaCha8Rng, gap: u32) -> SupervisedRow {
        let mut positions = Vec::with_capacity(self.ids.len());
        let gapped = gap > 0 && rng.random_bool(GAPPED_SHARE);
        let mut breaks = self.breaks.iter().peekable();
        let mut next = 0;
        for place in 0..self.ids.len() {
            while gapped && breaks.next_if(|&&at| at == place).is_some() {
                next += rng.random_range(0..=gap);
            }
            positions.push(next);
            next += 1;
        }
        SupervisedRow {
            ids: self.ids,
            mask: self.mask,
            positions,
        }
    }
}

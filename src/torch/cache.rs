//! Keys and values: of the rows that are generated side by side, and of the turns that trajectories
//! have finished.

use std::collections::BTreeMap;

use tch::{Kind, Tensor};

use crate::trajectory::{TokenId, TrajectoryId};

use super::decoder::Decoder;

/// Positions that a working cache grows by.
const GROWTH: i64 = 64;

/// Keys and values of a batch of rows of different lengths. A row's entries beyond its length are
/// stale or zero; masks hide them, and later writes cover them.
pub(super) struct WorkingCache {
    /// [layers, 2 (keys, values), rows, capacity, kv heads, head_dim]
    entries: Tensor,
    /// Views of `entries` for each layer: keys and values, [rows, capacity, kv heads, head_dim].
    layers: Vec<(Tensor, Tensor)>,
}

impl WorkingCache {
    /// An empty cache with room for `positions` and more.
    pub fn new(decoder: &Decoder, rows: usize, positions: i64) -> Self {
        let s = &decoder.shape.settings;
        let size = [
            s.num_hidden_layers,
            2,
            rows as i64,
            positions + GROWTH,
            s.num_key_value_heads,
            decoder.shape.head_dim(),
        ];
        Self::over(Tensor::zeros(size, (Kind::Float, decoder.device)))
    }

    fn over(entries: Tensor) -> Self {
        let layers = (0..entries.size()[0])
            .map(|layer| {
                let layer = entries.get(layer);
                (layer.get(0), layer.get(1))
            })
            .collect();
        Self { entries, layers }
    }

    /// Positions that fit.
    pub fn capacity(&self) -> i64 {
        self.entries.size()[3]
    }

    /// Makes room for `positions`.
    pub fn reserve(&mut self, positions: i64) {
        if positions <= self.capacity() {
            return;
        }
        let mut size = self.entries.size();
        let old = size[3];
        size[3] = positions + GROWTH;
        let grown = Tensor::zeros(&size, (Kind::Float, self.entries.device()));
        grown.narrow(3, 0, old).copy_(&self.entries);
        *self = Self::over(grown);
    }

    /// A cache of the rows numbered `rows`, which may repeat.
    pub fn select(&self, rows: &[i64]) -> Self {
        let rows = Tensor::from_slice(rows).to_device(self.entries.device());
        Self::over(self.entries.index_select(2, &rows))
    }

    /// Fills the first positions of a row with a kept cache.
    fn fill(&self, row: i64, kept: &Tensor, positions: i64) {
        self.entries
            .narrow(2, row, 1)
            .narrow(3, 0, positions)
            .copy_(&kept.narrow(2, 0, positions).unsqueeze(2));
    }

    /// A copy of the first positions of a row: [layers, 2, positions, kv heads, head_dim].
    fn cut(&self, row: i64, positions: i64) -> Tensor {
        let entries = self.entries.select(2, row);
        entries.narrow(2, 0, positions).copy()
    }

    /// Writes k and v [rows, n, kv heads, head_dim] of one layer at `positions` [rows, n] of the
    /// rows `rows` [rows, 1].
    pub fn write(&self, layer: usize, rows: &Tensor, positions: &Tensor, k: &Tensor, v: &Tensor) {
        let (keys, values) = &self.layers[layer];
        let at = [Some(rows), Some(positions)];
        let _ = keys.shallow_clone().index_put_(&at, k, false);
        let _ = values.shallow_clone().index_put_(&at, v, false);
    }

    /// Keys and values of one layer: `count` rows from `first`, the first `positions`.
    pub fn read(&self, layer: usize, first: i64, count: i64, positions: i64) -> (Tensor, Tensor) {
        let (keys, values) = &self.layers[layer];
        let cut = |x: &Tensor| x.narrow(0, first, count).narrow(1, 0, positions);
        (cut(keys), cut(values))
    }
}

/// The finished turns' keys and values of one trajectory.
struct Kept {
    ids: Vec<TokenId>,
    /// [layers, 2, ids, kv heads, head_dim]
    entries: Tensor,
}

/// What is kept from turn to turn, until the trajectory is released or the weights change.
#[derive(Default)]
pub(super) struct KeptCaches(BTreeMap<TrajectoryId, Kept>);

impl KeptCaches {
    /// How many leading ids of `context` are kept for this trajectory. Never all: the last one has
    /// to be run for its logits.
    pub fn reusable(&self, id: TrajectoryId, context: &[TokenId]) -> usize {
        let Some(kept) = self.0.get(&id) else {
            return 0;
        };
        let equal = kept.ids.iter().zip(context).take_while(|(a, b)| a == b);
        equal.count().min(context.len().saturating_sub(1))
    }

    /// Copies the first `positions` kept for this trajectory into a row.
    pub fn fill(&self, id: TrajectoryId, working: &WorkingCache, row: i64, positions: usize) {
        if let Some(kept) = self.0.get(&id).filter(|_| positions > 0) {
            working.fill(row, &kept.entries, positions as i64);
        }
    }

    /// Keeps a row whose entries are those of `ids`.
    pub fn keep(&mut self, id: TrajectoryId, ids: Vec<TokenId>, working: &WorkingCache, row: i64) {
        let entries = working.cut(row, ids.len() as i64);
        self.0.insert(id, Kept { ids, entries });
    }

    /// Forgets a trajectory.
    pub fn release(&mut self, id: TrajectoryId) {
        self.0.remove(&id);
    }

    /// Forgets all, as the weights have changed.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

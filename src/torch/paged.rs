//! Keys and values in blocks of 16 positions, and attention over them. A context is a list of blocks
//! in any order, so contexts grow without being moved, share what they have in common, and stand side
//! by side without padding.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use tch::{Device, Kind, Tensor};

use super::attention::attention;
use super::native;

/// Positions of a block.
pub(super) const BLOCK: usize = 16;

/// Who reads what in one forward pass of a packed row of ids: spans of rows, each with a list of blocks.
#[derive(Default)]
pub(super) struct Reads {
    /// (first row, rows, positions before the first row's own, place in `tables`). Row i sees
    /// `past + i + 1` positions.
    spans: Vec<[i64; 4]>,
    tables: Vec<i32>,
    /// Rows that read a position beyond the last span's.
    rows: i64,
    /// One more than the highest block.
    blocks: i64,
    gathered: OnceCell<Vec<Gathered>>,
}

impl Reads {
    /// The next `count` rows read the blocks of `table`; the first sees `past` positions and its own.
    ///
    /// # Panics
    /// If the table is too short: a fault of the caller.
    pub fn push(&mut self, count: usize, past: usize, table: &[u32]) {
        let needed = (past + count).div_ceil(BLOCK);
        assert!(
            count > 0 && needed <= table.len(),
            "a table must cover its rows"
        );
        let table = &table[..needed];
        self.spans.push([
            self.rows,
            count as i64,
            past as i64,
            self.tables.len() as i64,
        ]);
        let highest = table.iter().copied().max().unwrap_or(0);
        self.tables.extend(table.iter().map(|&block| block as i32));
        self.blocks = self.blocks.max(i64::from(highest) + 1);
        self.rows += count as i64;
        self.gathered = OnceCell::new();
    }

    pub fn spans(&self) -> &[[i64; 4]] {
        &self.spans
    }
    pub fn tables(&self) -> &[i32] {
        &self.tables
    }
    /// Rows that read.
    pub fn rows(&self) -> i64 {
        self.rows
    }
    /// One more than the highest block that is read.
    pub fn blocks(&self) -> i64 {
        self.blocks
    }
}

/// Where a pass writes: row `rows[i]` of the packed row to slot `slots[i]`.
#[derive(Default)]
pub(super) struct Writes {
    rows: Vec<i64>,
    slots: Vec<i64>,
    on_device: OnceCell<(Tensor, Tensor)>,
}

impl Writes {
    /// Row `row` holds position `position` of the context whose blocks are `table`.
    pub fn push(&mut self, row: usize, position: usize, table: &[u32]) {
        let block = table.get(position / BLOCK).copied().unwrap_or(u32::MAX);
        self.rows.push(row as i64);
        self.slots.push(slot(i64::from(block), position));
        self.on_device = OnceCell::new();
    }
}

fn slot(block: i64, position: usize) -> i64 {
    block * BLOCK as i64 + (position % BLOCK) as i64
}

/// Keys and values of one layer.
pub(super) struct Layer {
    /// Own kernel: [blocks, key heads, dim, 16], else [blocks * 16, key heads, dim].
    keys: Tensor,
    /// Own kernel: [blocks, key heads, 16, dim], else [blocks * 16, key heads, dim].
    values: Tensor,
    native: bool,
}

/// Sizes of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PoolShape {
    pub heads: i64,
    pub key_heads: i64,
    pub dim: i64,
    pub device: Device,
}

impl PoolShape {
    /// Bytes of one block in one layer.
    pub fn block_bytes(&self) -> u64 {
        2 * 4 * (BLOCK as u64) * (self.key_heads * self.dim).unsigned_abs()
    }

    /// Whether memory is taken only as it is written to.
    pub fn lazy(&self) -> bool {
        self.native()
    }

    fn native(&self) -> bool {
        native::can(
            self.device,
            Kind::Float,
            self.heads / self.key_heads.max(1),
            self.dim,
        )
    }
}

impl Layer {
    /// Room for `blocks` blocks. On the processor its memory is taken from the system only as it is
    /// written to.
    pub fn new(shape: PoolShape, blocks: i64) -> Self {
        Self::with(shape, blocks, shape.native())
    }

    fn with(shape: PoolShape, blocks: i64, native: bool) -> Self {
        let PoolShape {
            key_heads: heads,
            dim,
            device,
            ..
        } = shape;
        let options = (Kind::Float, device);
        let length = BLOCK as i64;
        if native {
            return Self {
                keys: Tensor::empty([blocks, heads, dim, length], options),
                values: Tensor::empty([blocks, heads, length, dim], options),
                native,
            };
        }
        // Operators read whole blocks and hide what is too much: it must be finite.
        let size = [blocks * length, heads, dim];
        Self {
            keys: Tensor::zeros(size, options),
            values: Tensor::zeros(size, options),
            native,
        }
    }

    /// Writes rows of k and v [1, rows, key heads, dim] into their slots.
    pub fn write(&self, k: &Tensor, v: &Tensor, writes: &Writes) {
        let (rows, slots) = (&writes.rows, &writes.slots);
        if self.native {
            return native::write(k, v, &self.keys, &self.values, rows, slots);
        }
        let (rows, slots) = writes.on_device.get_or_init(|| {
            let on_device = |list: &[i64]| Tensor::from_slice(list).to_device(k.device());
            (on_device(rows), on_device(slots))
        });
        for (to, from) in [(&self.keys, k), (&self.values, v)] {
            let from = from.squeeze_dim(0).index_select(0, rows);
            let _ = to.shallow_clone().index_copy_(0, slots, &from);
        }
    }

    /// Attention of q [1, rows, heads, dim]: [1, rows, heads * dim].
    pub fn attend(&self, q: &Tensor, reads: &Reads) -> Tensor {
        if self.native {
            return native::attend(q, &self.keys, &self.values, reads);
        }
        let gathered = reads
            .gathered
            .get_or_init(|| Gathered::all(reads, q.device()));
        let size = q.size();
        let (rows, heads, dim) = (size[1], size[2], size[3]);
        let q = q.squeeze_dim(0);
        let out = Tensor::empty([rows, heads * dim], (q.kind(), q.device()));
        for part in gathered {
            part.attend(&q, &self.keys, &self.values, &out);
        }
        out.unsqueeze(0)
    }
}

/// Spans of like size as one padded batch, for libtorch's operators.
struct Gathered {
    spans: i64,
    /// Rows of the packed row, [spans * rows of the longest].
    queries: Tensor,
    /// Slots of the keys, [spans * positions of the longest].
    slots: Tensor,
    /// 0 where a query sees a position, else -inf: [spans, 1, rows, positions].
    mask: Tensor,
    /// Entries of the batch that are no padding, and their rows.
    real: Tensor,
    real_rows: Tensor,
}

impl Gathered {
    fn all(reads: &Reads, device: Device) -> Vec<Self> {
        let mut like: BTreeMap<(u64, u64), Vec<[i64; 4]>> = BTreeMap::new();
        for &span in &reads.spans {
            let [_, count, past, _] = span;
            let size = |n: i64| n.unsigned_abs().next_power_of_two();
            like.entry((size(count), size(past + count)))
                .or_default()
                .push(span);
        }
        like.values()
            .map(|spans| Self::of(spans, &reads.tables, device))
            .collect()
    }

    fn of(spans: &[[i64; 4]], tables: &[i32], device: Device) -> Self {
        let rows = spans.iter().map(|span| span[1]).max().unwrap_or(0);
        let positions = spans
            .iter()
            .map(|span| span[1] + span[2])
            .max()
            .unwrap_or(0);
        let (mut queries, mut slots, mut sees) = (Vec::new(), Vec::new(), Vec::new());
        let (mut real, mut real_rows) = (Vec::new(), Vec::new());
        for (number, &[row, count, past, table]) in (0i64..).zip(spans) {
            for i in 0..rows {
                let i = i.min(count - 1);
                queries.push(row + i);
                sees.push(past + i);
            }
            real.extend((0..count).map(|i| number * rows + i));
            real_rows.extend(row..row + count);
            for position in 0..positions.unsigned_abs() as usize {
                let position = position.min((past + count - 1) as usize);
                let block = tables[table as usize + position / BLOCK];
                slots.push(slot(i64::from(block), position));
            }
        }
        let on_device = |list: &[i64]| Tensor::from_slice(list).to_device(device);
        let spans = spans.len() as i64;
        let sees = on_device(&sees).view([spans, 1, rows, 1]);
        let hidden = sees.lt_tensor(&Tensor::arange(positions, (Kind::Int64, device)));
        let mask = Tensor::zeros(hidden.size(), (Kind::Float, device))
            .masked_fill(&hidden, f64::NEG_INFINITY);
        Self {
            spans,
            queries: on_device(&queries),
            slots: on_device(&slots),
            mask,
            real: on_device(&real),
            real_rows: on_device(&real_rows),
        }
    }

    fn attend(&self, q: &Tensor, keys: &Tensor, values: &Tensor, out: &Tensor) {
        let batch = |x: &Tensor, index: &Tensor| {
            let size = x.size();
            x.index_select(0, index)
                .view([self.spans, -1, size[1], size[2]])
        };
        let attended = attention(
            &batch(q, &self.queries),
            &batch(keys, &self.slots),
            &batch(values, &self.slots),
            Some(&self.mask),
        );
        let width = out.size()[1];
        let rows = attended.reshape([-1, width]).index_select(0, &self.real);
        let _ = out.shallow_clone().index_copy_(0, &self.real_rows, &rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that look random.
    fn numbers(seed: i64, size: &[i64]) -> Tensor {
        let count: i64 = size.iter().product();
        let x = Tensor::arange(count, (Kind::Double, Device::Cpu)) + seed as f64 * 7.13;
        ((&x * 12.9898).sin() * 43_758.545_3)
            .frac()
            .to_kind(Kind::Float)
            .view(size)
    }

    /// Contexts of these (past, new) lengths; blocks are dealt in a scrambled order, and contexts of one
    /// family share their first `shared` blocks. Both ways of attention must give what plain attention
    /// over each context alone gives.
    fn compare(heads: i64, key_heads: i64, dim: i64, contexts: &[(usize, usize)], shared: usize) {
        let shape = PoolShape {
            heads,
            key_heads,
            dim,
            device: Device::Cpu,
        };
        let blocks: usize = contexts.iter().map(|(p, n)| (p + n).div_ceil(BLOCK)).sum();
        let mut free: Vec<u32> = (0..blocks as u32).collect();
        free.sort_by_key(|block| block.wrapping_mul(2_654_435_761));
        let ways = [true, false].map(|native| Layer::with(shape, blocks as i64, native));
        let (mut reads, mut expected, mut queries) = (Reads::default(), Vec::new(), Vec::new());
        let common = numbers(99, &[1, (shared * BLOCK) as i64, key_heads, dim]);
        let mut first: Vec<u32> = Vec::new();
        for (number, &(past, new)) in contexts.iter().enumerate() {
            let length = past + new;
            let mut table: Vec<u32> = first
                .iter()
                .copied()
                .take(shared.min(past / BLOCK))
                .collect();
            let kept = table.len() * BLOCK;
            table.extend(free.drain(..length.div_ceil(BLOCK) - table.len()));
            if first.is_empty() {
                first.clone_from(&table);
            }
            let whole = |seed: i64| {
                let own = numbers(seed, &[1, length as i64, key_heads, dim]);
                let kept = (shared * BLOCK).min(length) as i64;
                if kept > 0 && past / BLOCK >= shared {
                    let mut part = own.narrow(1, 0, kept);
                    part.copy_(&common.narrow(1, 0, kept));
                }
                own
            };
            let (k, v) = (whole(2 * number as i64), whole(2 * number as i64 + 1));
            let q = numbers(1000 + number as i64, &[1, new as i64, heads, dim]);
            let mut writes = Writes::default();
            for position in kept..length {
                writes.push(position, position, &table);
            }
            for layer in &ways {
                layer.write(&k, &v, &writes);
            }
            reads.push(new, past, &table);
            let rows =
                Tensor::arange(new as i64, (Kind::Int64, Device::Cpu)).unsqueeze(1) + past as i64;
            let hidden = rows.lt_tensor(&Tensor::arange(length as i64, (Kind::Int64, Device::Cpu)));
            let mask = Tensor::zeros([new as i64, length as i64], (Kind::Float, Device::Cpu))
                .masked_fill(&hidden, f64::NEG_INFINITY)
                .view([1, 1, new as i64, length as i64]);
            expected.push(attention(&q, &k, &v, Some(&mask)));
            queries.push(q);
        }
        let (expected, queries) = (Tensor::cat(&expected, 1), Tensor::cat(&queries, 1));
        for layer in &ways {
            let gap = (layer.attend(&queries, &reads) - &expected).abs().max();
            let gap = gap.double_value(&[]);
            assert!(gap < 2e-6, "{gap} with native {}", layer.native);
        }
    }

    #[test]
    fn contexts_in_scattered_blocks_are_attended_to_as_each_alone() {
        compare(
            4,
            2,
            24,
            &[(0, 1), (5, 1), (15, 1), (16, 1), (200, 1), (31, 1)],
            0,
        );
        compare(3, 3, 8, &[(0, 40), (7, 1), (100, 33), (0, 1), (64, 64)], 0);
        compare(9, 3, 64, &[(130, 1), (17, 20), (0, 100)], 0);
        compare(14, 2, 16, &[(40, 3), (9, 1)], 0);
    }

    #[test]
    fn contexts_that_share_blocks_are_attended_to_as_each_alone() {
        let decode: Vec<(usize, usize)> = (0..20).map(|n| (100 + 7 * n, 1)).collect();
        compare(4, 2, 24, &decode, 6);
        compare(4, 4, 8, &decode, 4);
        compare(
            6,
            2,
            32,
            &[(96, 1), (97, 1), (100, 30), (111, 1), (150, 9), (96, 1)],
            6,
        );
        compare(4, 1, 8, &[(64, 16), (64, 1), (70, 1), (64, 40), (64, 1)], 4);
    }

    #[test]
    fn a_row_gets_the_same_bits_whatever_stands_beside_it() {
        let shape = PoolShape {
            heads: 6,
            key_heads: 2,
            dim: 24,
            device: Device::Cpu,
        };
        let layer = Layer::new(shape, 40);
        assert!(layer.native);
        let table: Vec<u32> = (0..20).rev().collect();
        let (k, v) = (numbers(1, &[1, 300, 2, 24]), numbers(2, &[1, 300, 2, 24]));
        let mut writes = Writes::default();
        for position in 0..300 {
            writes.push(position, position, &table);
        }
        layer.write(&k, &v, &writes);
        let q = numbers(3, &[1, 300, 6, 24]);
        let mut whole = Reads::default();
        whole.push(300, 0, &table);
        let together = layer.attend(&q, &whole);
        for row in [0, 1, 15, 16, 120, 255, 299] {
            let mut alone = Reads::default();
            alone.push(1, row as usize, &table);
            let one = layer.attend(&q.narrow(1, row, 1), &alone);
            assert_eq!(one, together.narrow(1, row, 1), "row {row}");
        }
    }
}

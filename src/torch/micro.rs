//! The rows of an update as tensors: micro-batches, their trained tokens, and what has to be known
//! before the first mini-batch.

use tch::{Device, Kind, Tensor};

use crate::engine::{LearnBatch, LearnKnobs, LearnRow, Mismatch};
use crate::trajectory::TokenId;

use super::batch::{heat, packs, token_budget};
use super::decoder::Decoder;
use super::loss::{Aggregation, Bounds, Denominators, PolicyForm, PolicyTerms, Tokens, importance};
use super::precision::cast;
use super::recompute::{Kept, Packed, head, kept_bytes, logprobs, recomputes};
use super::score::host;

/// Trained tokens of a row.
pub(super) fn trained(batch: &LearnBatch, row: usize) -> usize {
    batch.rows[row].mask.iter().filter(|m| **m).count()
}

/// The rows that have a trained token; others teach nothing.
pub(super) fn with_trained(batch: &LearnBatch, rows: &[usize]) -> Vec<usize> {
    let rows = rows.iter().copied();
    rows.filter(|&row| trained(batch, row) > 0).collect()
}

/// The entries of a row's list at its trained tokens.
pub(super) fn only_trained<T: Copy>(mask: &[bool], list: &[T]) -> Vec<T> {
    let pairs = mask.iter().zip(list);
    pairs.filter(|(on, _)| **on).map(|(_, x)| *x).collect()
}

/// Activations that autograd may keep of a micro-batch whose size nobody has set, on the processor.
const USUAL_BYTES: i64 = 1 << 30;

/// Tokens of a micro-batch whose size nobody has set. On the processor a small model wants more tokens at
/// once than a large one: its operators are so short that threads wait for each other (8,192 tokens take
/// 0.75 of the time of 2,048 on two threads, docs/performance.md), and its activations are small.
fn usual_tokens(decoder: &Decoder) -> usize {
    let budget = token_budget(decoder.device);
    if decoder.device != Device::Cpu {
        return budget;
    }
    let fit = USUAL_BYTES / kept_bytes(decoder, Kind::Float).max(1);
    (fit as usize).clamp(budget, 4 * budget)
}

/// The ids of a row that are computed: those before its last trained one, since nobody asks what the
/// model says after the others.
fn inputs(row: &LearnRow) -> &[TokenId] {
    let last = row.mask.iter().rposition(|trained| *trained).unwrap_or(0);
    row.ids.get(..last).unwrap_or_default()
}

/// Row numbers of what is computed at once: rows of like length together (equal lengths keep their
/// order), at most `knobs.micro_tokens` tokens, without padding. Every micro-batch has at least one row.
pub(super) fn micro_batches(
    decoder: &Decoder,
    batch: &LearnBatch,
    members: &[usize],
) -> Vec<Vec<usize>> {
    let length = |row: usize| inputs(&batch.rows[row]).len();
    let mut order = members.to_vec();
    order.sort_by_key(|&row| length(row));
    let lengths: Vec<usize> = order.iter().map(|&row| length(row)).collect();
    let budget = match batch.knobs.micro_tokens {
        0 => usual_tokens(decoder),
        tokens => tokens as usize,
    };
    packs(&lengths, budget)
        .iter()
        .map(|pack| pack.iter().map(|&at| order[at]).collect())
        .collect()
}

/// Places in a packed row of the trained ids of some rows, and what is known of those ids.
#[derive(Default)]
pub(super) struct Trained {
    /// Of the hidden state that predicts.
    index: Vec<i64>,
    targets: Vec<i64>,
    /// Sampled log-probs.
    pub(super) old: Vec<f32>,
    /// Advantages.
    pub(super) advantages: Vec<f32>,
}

impl Trained {
    fn of(rows: &[&LearnRow]) -> Self {
        let mut all = Self::default();
        let mut first = 0;
        for row in rows {
            for (at, _) in row.mask.iter().enumerate().filter(|(_, m)| **m) {
                all.index.push(first + at as i64 - 1);
                all.targets.push(i64::from(row.ids[at]));
                all.old.push(row.old_logprobs[at]);
                all.advantages.push(row.advantages[at]);
            }
            first += inputs(row).len() as i64;
        }
        all
    }
}

/// Rows computed at once.
pub(super) struct Micro {
    /// Their numbers in the batch.
    pub(super) numbers: Vec<usize>,
    /// Their trained tokens, row after row.
    pub(super) trained: Trained,
    packed: Packed,
    index: Tensor,
    targets: Tensor,
    /// Trained tokens of each row.
    counts: Vec<usize>,
}

/// What the policy says of the trained tokens, flat, in f32.
pub(super) struct Said {
    /// Their log-probs.
    pub(super) new: Tensor,
    /// Entropies of their distributions.
    pub(super) entropy: Tensor,
    /// What the backward pass computes again; none if everything was kept.
    again: Option<Kept>,
}

impl Micro {
    pub(super) fn new(batch: &LearnBatch, numbers: Vec<usize>, device: Device) -> Self {
        let rows: Vec<&LearnRow> = numbers.iter().map(|&number| &batch.rows[number]).collect();
        let (mut ids, mut positions, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
        for row in &rows {
            let inputs = inputs(row);
            ids.extend(inputs.iter().map(|&id| i64::from(id)));
            positions.extend(0..inputs.len() as i64);
            lengths.push(inputs.len() as i64);
        }
        let trained = Trained::of(&rows);
        let on_device = |list: &[i64]| Tensor::from_slice(list).to_device(device);
        let counts = numbers.iter().map(|&row| self::trained(batch, row));
        Self {
            counts: counts.collect(),
            numbers,
            packed: Packed {
                ids: on_device(&ids).unsqueeze(0),
                positions: on_device(&positions).unsqueeze(0),
                lengths,
            },
            index: on_device(&trained.index),
            targets: on_device(&trained.targets).unsqueeze(1),
            trained,
        }
    }

    /// What `decoder` says of the trained tokens; [`Micro::backward`] goes back through it.
    pub(super) fn policy(&self, decoder: &Decoder, knobs: &LearnKnobs) -> Said {
        let heat = f64::from(heat(knobs.temperature));
        let tokens = self.packed.ids.numel() as i64;
        let trained = self.index.numel() as i64;
        let kind = decoder.embedding.kind();
        if recomputes(knobs.recompute, decoder, tokens, trained, kind) {
            let (new, entropy, kept) =
                Kept::forward(decoder, &self.packed, &self.index, &self.targets, heat);
            return Said {
                new,
                entropy,
                again: Some(kept),
            };
        }
        let picked = self.packed.forward(decoder, &self.index);
        let entropy_learns = knobs.entropy_weight != 0.0;
        let (new, entropy) = head(decoder, &picked, &self.targets, heat, entropy_learns);
        Said {
            new,
            entropy,
            again: None,
        }
    }

    /// Leaves the gradients of `loss`, which was computed from `said`.
    pub(super) fn backward(&self, decoder: &Decoder, said: Said, loss: &Tensor) {
        loss.backward();
        if let Some(kept) = said.again {
            kept.backward(decoder, &self.packed, &said.new, &said.entropy);
        }
    }

    /// Log-probs of the trained tokens, without a backward pass.
    pub(super) fn logprobs(&self, decoder: &Decoder, knobs: &LearnKnobs) -> Tensor {
        let heat = f64::from(heat(knobs.temperature));
        tch::no_grad(|| {
            let picked = self.packed.forward(decoder, &self.index);
            logprobs(decoder, &picked, &self.targets, heat)
        })
    }

    /// Entries of per-row lists at the trained tokens, row after row.
    pub(super) fn of_tokens(&self, batch: &LearnBatch, rows: &[Vec<f32>]) -> Vec<f32> {
        let numbers = self.numbers.iter();
        numbers
            .flat_map(|&row| only_trained(&batch.rows[row].mask, &rows[row]))
            .collect()
    }

    /// What each trained token weighs in the loss.
    pub(super) fn shares(
        &self,
        batch: &LearnBatch,
        mode: Aggregation,
        denominators: &Denominators,
    ) -> Vec<f32> {
        let of_row = |&row: &usize| {
            let count = trained(batch, row);
            vec![denominators.share(mode, count as f64) as f32; count]
        };
        self.numbers.iter().flat_map(of_row).collect()
    }

    /// The policy loss of every trained token; all tensors are flat, row after row.
    pub(super) fn terms(
        &self,
        form: &PolicyForm,
        new: &Tensor,
        old: &Tensor,
        advantages: &Tensor,
        chosen: Option<&Tensor>,
    ) -> PolicyTerms {
        if !form.needs_rows() {
            return form.terms(&Tokens {
                logprobs: new,
                old,
                advantages,
                mask: &new.detach().ones_like(),
                chosen,
            });
        }
        let (rows, width) = (self.counts.len(), self.counts.iter().max().copied());
        let width = width.unwrap_or(0) as i64;
        let places: Vec<i64> = (0i64..)
            .zip(&self.counts)
            .flat_map(|(row, &count)| (0..count as i64).map(move |at| row * width + at))
            .collect();
        let places = Tensor::from_slice(&places).to_device(new.device());
        let laid_out = |flat: &Tensor| {
            Tensor::zeros([rows as i64 * width], (flat.kind(), flat.device()))
                .index_copy(0, &places, flat)
                .view([rows as i64, width])
        };
        let terms = form.terms(&Tokens {
            logprobs: &laid_out(new),
            old: &laid_out(old),
            advantages: &laid_out(advantages),
            mask: &laid_out(&new.detach().ones_like()),
            chosen: None,
        });
        let flat = |grid: &Tensor| grid.reshape(-1).index_select(0, &places);
        PolicyTerms {
            loss: flat(&terms.loss),
            clipped: flat(&terms.clipped),
            clipped_lower: flat(&terms.clipped_lower),
            kl: flat(&terms.kl),
            ratio: flat(&terms.ratio),
        }
    }
}

/// Lays a micro-batch's numbers, one a trained token, out along its rows.
pub(super) fn fill_in(rows: &mut [Vec<f32>], batch: &LearnBatch, numbers: &[usize], new: &[f32]) {
    let mut new = new.iter();
    for &number in numbers {
        let slots = rows[number].iter_mut().zip(&batch.rows[number].mask);
        for ((slot, _), value) in slots.filter(|(_, m)| **m).zip(new.by_ref()) {
            *slot = *value;
        }
    }
}

/// Log-probs of the trained tokens of these rows under the weights as they are now, laid out along
/// all rows of the batch (0 elsewhere).
pub(super) fn logprobs_now(
    decoder: &Decoder,
    batch: &LearnBatch,
    members: &[usize],
) -> Vec<Vec<f32>> {
    let mut logprobs: Vec<Vec<f32>> = batch.rows.iter().map(|r| vec![0.0; r.ids.len()]).collect();
    let cast = tch::no_grad(|| cast(decoder, batch.knobs.precision));
    let decoder = cast.as_ref().unwrap_or(decoder);
    for numbers in micro_batches(decoder, batch, members) {
        let micro = Micro::new(batch, numbers, decoder.device);
        let new = host(&micro.logprobs(decoder, &batch.knobs));
        fill_in(&mut logprobs, batch, &micro.numbers, &new);
    }
    logprobs
}

/// What is fixed for all mini-batches of an update; lists as long as the rows.
#[derive(Default)]
pub(super) struct Prepared {
    /// Old log-probs that take the place of the sampled ones.
    pub(super) old: Option<Vec<Vec<f32>>>,
    /// Weights between engine and learner.
    pub(super) weights: Option<Vec<Vec<f32>>>,
}

/// Recomputes the old log-probs and weighs them against the sampled ones, if asked for: one forward
/// pass more over all rows.
pub(super) fn prepare(decoder: &Decoder, batch: &LearnBatch) -> (Prepared, Option<Mismatch>) {
    let members = with_trained(batch, &(0..batch.rows.len()).collect::<Vec<_>>());
    let bounds = match Bounds::of(batch.knobs.importance) {
        Some(bounds) if !members.is_empty() => bounds,
        _ => return (Prepared::default(), None),
    };
    let now = logprobs_now(decoder, batch, &members);
    let counts: Vec<usize> = members.iter().map(|&row| trained(batch, row)).collect();
    let width = counts.iter().max().copied().unwrap_or(0);
    let grid = |list: &dyn Fn(usize) -> Vec<f32>| {
        let mut flat = vec![0f64; members.len() * width];
        for (line, &row) in flat.chunks_mut(width).zip(&members) {
            for (slot, value) in line.iter_mut().zip(list(row)) {
                *slot = f64::from(value);
            }
        }
        Tensor::from_slice(&flat).view([members.len() as i64, width as i64])
    };
    let of = |row: usize, list: &[f32]| only_trained(&batch.rows[row].mask, list);
    let (weights, mismatch) = importance(
        &bounds,
        &grid(&|row| of(row, &now[row])),
        &grid(&|row| of(row, &batch.rows[row].old_logprobs)),
        &grid(&|row| vec![1.0; trained(batch, row)]),
    );
    let weights = host(&weights);
    let mut laid_out: Vec<Vec<f32>> = now.iter().map(|row| vec![0.0; row.len()]).collect();
    for (line, &row) in weights.chunks(width).zip(&members) {
        fill_in(&mut laid_out, batch, &[row], line);
    }
    let prepared = Prepared {
        old: Some(now),
        weights: Some(laid_out),
    };
    (prepared, Some(mismatch))
}

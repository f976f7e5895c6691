//! Activation checkpointing (Chen et al., 2016, "Training Deep Nets with Sublinear Memory Cost"): the forward
//! pass keeps what goes into each block, and the backward pass computes one block after the other again,
//! from the last to the first. Head and log-softmax are done the same way, a piece of tokens at a time.

use tch::{Kind, Tensor};

use crate::experiment::Recompute;

use super::attention::attention_of_rows;
use super::decoder::{Angles, Decoder};

/// Most bytes of activations that `auto` keeps.
const KEPT_BYTES: i64 = 4 << 30;
/// Most logits that are held at once while they are computed again.
const LOGITS: i64 = 1 << 24;
/// Numbers that an operator can write and the next one still find in a cache.
const CACHED: i64 = 1 << 19;

/// Bytes that autograd keeps of one token in all blocks, estimated: 16 hidden widths and 4 feed-forward
/// widths in each.
pub(super) fn kept_bytes(decoder: &Decoder, kind: Kind) -> i64 {
    let s = &decoder.shape.settings;
    let block = 16 * s.hidden_size + 4 * s.intermediate_size;
    s.num_hidden_layers * block * kind.elt_size_in_bytes() as i64
}

/// Whether a pass over so many tokens, so many of them trained, computes its blocks twice. What autograd
/// keeps is estimated: that of the blocks, and 3 vocabularies a trained token.
pub(super) fn recomputes(
    setting: Recompute,
    decoder: &Decoder,
    tokens: i64,
    trained: i64,
    kind: Kind,
) -> bool {
    let logits = 3 * decoder.shape.settings.vocab_size * 4;
    let bytes = tokens * kept_bytes(decoder, kind) + trained * logits;
    match setting {
        Recompute::Always => true,
        Recompute::Never => false,
        Recompute::Auto => bytes > KEPT_BYTES,
    }
}

/// A packed row: ids and positions [1, time], and the lengths of the rows in it.
pub(super) struct Packed {
    pub ids: Tensor,
    pub positions: Tensor,
    pub lengths: Vec<i64>,
}

impl Packed {
    /// The last hidden states of the places `wanted` [rows, hidden], with everything that a backward pass
    /// needs.
    pub fn forward(&self, decoder: &Decoder, wanted: &Tensor) -> Tensor {
        let attend = |_: usize, q: &Tensor, k: &Tensor, v: &Tensor| {
            attention_of_rows(q, k, v, &self.lengths)
        };
        decoder
            .forward(&self.ids, Some(&self.positions), wanted, attend)
            .last
    }

    fn block(&self, decoder: &Decoder, layer: usize, x: &Tensor, angles: &Angles) -> Tensor {
        let mut attend = |_: usize, q: &Tensor, k: &Tensor, v: &Tensor| {
            attention_of_rows(q, k, v, &self.lengths)
        };
        decoder.block(layer, x, angles, None, &mut attend)
    }
}

/// A forward pass of which little is kept.
pub(super) struct Kept {
    angles: Angles,
    /// What went into each block.
    inputs: Vec<Tensor>,
    /// What came out of the last one: a leaf, so that its gradient stays.
    out: Tensor,
    /// Hidden states of the trained tokens [tokens, hidden]: a graph from `out`, and a leaf.
    picked: (Tensor, Tensor),
    targets: Tensor,
    heat: f64,
}

/// Log-probs of `targets` [tokens, 1] after hidden states [tokens, hidden], and the entropies; in f32.
pub(super) fn head(
    decoder: &Decoder,
    hidden: &Tensor,
    targets: &Tensor,
    heat: f64,
    entropy_learns: bool,
) -> (Tensor, Tensor) {
    let log_softmax = log_softmax(decoder, hidden, heat);
    let new = log_softmax.gather(1, targets, false).squeeze_dim(1);
    let entropy = match entropy_learns {
        true => super::loss::entropy(&log_softmax),
        false => tch::no_grad(|| measured_entropy(&log_softmax)),
    };
    (new, entropy)
}

/// Entropies a few rows at a time, so that what is in between stays in the caches.
fn measured_entropy(log_softmax: &Tensor) -> Tensor {
    let rows = (CACHED / log_softmax.size()[1].max(1)).max(1);
    let parts: Vec<Tensor> = log_softmax
        .split(rows, 0)
        .iter()
        .map(super::loss::entropy)
        .collect();
    Tensor::cat(&parts, 0)
}

/// Log-probs of `targets` [tokens, 1] after hidden states [tokens, hidden], a piece of tokens at a time.
pub(super) fn logprobs(decoder: &Decoder, hidden: &Tensor, targets: &Tensor, heat: f64) -> Tensor {
    let pieces = pieces(decoder, hidden, targets).into_iter();
    let parts: Vec<Tensor> = pieces
        .map(|(hidden, targets)| log_softmax(decoder, &hidden, heat).gather(1, &targets, false))
        .collect();
    Tensor::cat(&parts, 0).squeeze_dim(1)
}

fn log_softmax(decoder: &Decoder, hidden: &Tensor, heat: f64) -> Tensor {
    let logits = decoder.logits(hidden).to_kind(Kind::Float);
    match heat == 1.0 {
        true => logits.log_softmax(-1, None::<Kind>),
        false => (logits / heat).log_softmax(-1, None::<Kind>),
    }
}

/// Hidden states and targets of so few tokens that their logits fit into memory.
fn pieces(decoder: &Decoder, hidden: &Tensor, targets: &Tensor) -> Vec<(Tensor, Tensor)> {
    let piece = (LOGITS / decoder.shape.settings.vocab_size.max(1)).max(1);
    let targets = targets.split(piece, 0);
    hidden.split(piece, 0).into_iter().zip(targets).collect()
}

impl Kept {
    /// Log-probs and entropies of the trained tokens, as leaves whose gradients [`Kept::backward`] hands
    /// on. `index` are places in the packed row.
    pub fn forward(
        decoder: &Decoder,
        packed: &Packed,
        index: &Tensor,
        targets: &Tensor,
        heat: f64,
    ) -> (Tensor, Tensor, Self) {
        let angles = decoder.angles(&packed.ids, Some(&packed.positions));
        let mut inputs = Vec::with_capacity(decoder.layers());
        let out = tch::no_grad(|| {
            let mut x = decoder.embedded(&packed.ids);
            for layer in 0..decoder.layers() {
                let next = packed.block(decoder, layer, &x, &angles);
                inputs.push(std::mem::replace(&mut x, next));
            }
            x
        });
        let out = leaf(&out);
        let picked = decoder.finished(&out.squeeze_dim(0).index_select(0, index));
        let kept = Self {
            angles,
            inputs,
            out,
            picked: (picked.shallow_clone(), leaf(&picked)),
            targets: targets.shallow_clone(),
            heat,
        };
        let (mut new, mut entropy) = (Vec::new(), Vec::new());
        for (hidden, targets) in pieces(decoder, &kept.picked.1, targets) {
            let both = tch::no_grad(|| head(decoder, &hidden, &targets, heat, false));
            new.push(both.0);
            entropy.push(both.1);
        }
        let (new, entropy) = (Tensor::cat(&new, 0), Tensor::cat(&entropy, 0));
        (leaf(&new), leaf(&entropy), kept)
    }

    /// Leaves the gradients of the weights, from those that a loss has left at the log-probs and entropies.
    pub fn backward(mut self, decoder: &Decoder, packed: &Packed, new: &Tensor, entropy: &Tensor) {
        let count = new.size()[0];
        let slope = |of: &Tensor| {
            let gradient = of.grad();
            gradient.defined().then_some(gradient)
        };
        let (new, entropy) = (slope(new), slope(entropy));
        let mut first = 0;
        for (hidden, targets) in pieces(decoder, &self.picked.1, &self.targets) {
            let length = targets.size()[0];
            let both = head(decoder, &hidden, &targets, self.heat, entropy.is_some());
            let weighed = [(&both.0, &new), (&both.1, &entropy)].into_iter();
            let parts = weighed.filter_map(|(values, slopes)| {
                let slopes = slopes.as_ref()?.narrow(0, first, length);
                Some((values * slopes).sum(Kind::Float))
            });
            if let Some(sum) = parts.reduce(|a, b| a + b) {
                sum.backward();
            }
            first += length;
        }
        debug_assert_eq!(first, count);
        let (picked, gathered) = &self.picked;
        push(picked, &gathered.grad());
        let mut gradient = self.out.grad();
        for layer in (0..decoder.layers()).rev() {
            let Some(input) = self.inputs.pop() else {
                return;
            };
            let input = leaf(&input);
            let out = packed.block(decoder, layer, &input, &self.angles);
            push(&out, &gradient);
            gradient = input.grad();
        }
        push(&decoder.embedded(&packed.ids), &gradient);
    }
}

/// A tensor of its own graph, whose gradient stays.
fn leaf(of: &Tensor) -> Tensor {
    of.detach().set_requires_grad(true)
}

/// Sends a gradient back through the graph of `out`, if it has one.
fn push(out: &Tensor, gradient: &Tensor) {
    if out.requires_grad() && gradient.defined() {
        (out * gradient).sum(Kind::Float).backward();
    }
}

//! The policy: the decoder that Llama, Qwen2 and Qwen3 share. RMSNorm, rotary positions in the
//! half-split convention of Hugging Face, grouped-query attention, SwiGLU. Biases, norms of the heads
//! and a head apart from the embedding are there where the [`Shape`] says so.
//!
//! Inside, q, k, v and gate, up are one matrix each, so that a step on a small model costs fewer
//! calls; on disk they stand apart under their Hugging Face names (see [`Decoder::exported`]).

use std::convert::Infallible;

use tch::{Device, Tensor};

use super::linear::Linear;
use super::weights::{Shape, Slot, initial, slots};

/// One block.
pub(super) struct Block {
    pub attention_norm: Tensor,
    pub qkv: Linear,
    /// The query heads' weight, then the key heads', [2 * head_dim].
    pub head_norms: Option<Tensor>,
    pub output: Linear,
    pub feed_forward_norm: Tensor,
    pub gate_up: Linear,
    pub down: Linear,
}

/// The decoder's weights on one device.
pub(super) struct Decoder {
    pub shape: Shape,
    pub device: Device,
    /// [vocab, hidden]
    pub embedding: Tensor,
    pub blocks: Vec<Block>,
    pub norm: Tensor,
    /// [vocab, hidden]; none if the embedding is the head.
    pub head: Option<Tensor>,
    /// [positions, head_dim / 2]
    pub cos: Tensor,
    pub sin: Tensor,
}

/// What a forward pass leaves.
pub(super) struct Hidden {
    /// After the last norm, the rows that were asked for, [rows, hidden].
    pub last: Tensor,
    /// The residual stream after the first block, [batch, time, hidden].
    pub first_block: Tensor,
}

impl Decoder {
    /// New weights: normal(0, `initializer_range`) matrices, each from its own random stream.
    pub fn new(shape: Shape, seed: u64, device: Device) -> Self {
        let tensors = initial(&shape, seed);
        Self::assemble(shape, tensors, device)
    }

    /// Builds the decoder from one f32 tensor for each of [`slots`], in that order.
    pub fn assemble(shape: Shape, tensors: Vec<Tensor>, device: Device) -> Self {
        let mut tensors = tensors.into_iter();
        let next = |slot: &Slot| {
            Ok::<_, Infallible>(
                tensors
                    .next()
                    .unwrap_or_else(|| Tensor::zeros(&slot.size, tch::kind::FLOAT_CPU)),
            )
        };
        match Self::assemble_from(shape, device, next) {
            Ok(decoder) => decoder,
        }
    }

    /// Builds the decoder from what `next` gives for each of [`slots`], f32 tensors of that size, so
    /// that a large model is read one matrix at a time.
    ///
    /// # Errors
    /// The first error of `next`.
    pub fn assemble_from<E>(
        shape: Shape,
        device: Device,
        mut next: impl FnMut(&Slot) -> Result<Tensor, E>,
    ) -> Result<Self, E> {
        let slots = slots(&shape);
        let mut slots = slots.iter();
        let mut fused = |count: usize| {
            let parts = slots.by_ref().take(count).map(&mut next);
            let parts: Vec<Tensor> = parts.collect::<Result<_, E>>()?;
            // A copy, never a view of what was passed in.
            let tensor = Tensor::cat(&parts, 0).to_device(device).detach();
            Ok(tensor.set_requires_grad(true))
        };
        let biases = shape.biases;
        let embedding = fused(1)?;
        let mut blocks = Vec::new();
        for _ in 0..shape.settings.num_hidden_layers {
            let attention_norm = fused(1)?;
            let qkv = linear(&mut fused, 3, biases.qkv)?;
            // Fields are filled from top to bottom, which is the order of the slots.
            blocks.push(Block {
                attention_norm,
                qkv,
                head_norms: shape.head_norms.then(|| fused(2)).transpose()?,
                output: linear(&mut fused, 1, biases.output)?,
                feed_forward_norm: fused(1)?,
                gate_up: linear(&mut fused, 2, biases.feed_forward)?,
                down: linear(&mut fused, 1, biases.feed_forward)?,
            });
        }
        let norm = fused(1)?;
        let head = (!shape.tied).then(|| fused(1)).transpose()?;
        let s = &shape.settings;
        let (cos, sin) = shape.rope.tables(
            s.rope_theta,
            shape.head_dim,
            s.max_position_embeddings,
            device,
        );
        Ok(Self {
            shape,
            device,
            embedding,
            blocks,
            norm,
            head,
            cos,
            sin,
        })
    }

    /// Every tensor under its Hugging Face name, in the order of [`slots`], without adapters; views.
    pub fn exported(&self) -> Vec<(String, Tensor)> {
        let (q, k, ff, dim) = (
            self.shape.query_rows(),
            self.shape.key_rows(),
            self.shape.settings.intermediate_size,
            self.shape.head_dim,
        );
        let mut tensors = vec![self.embedding.detach()];
        for block in &self.blocks {
            let mut add = |tensor: &Tensor, rows: &[i64]| {
                tensors.extend(tensor.detach().split_with_sizes(rows, 0));
            };
            let d = self.shape.settings.hidden_size;
            let linear = |add: &mut dyn FnMut(&Tensor, &[i64]), of: &Linear, rows: &[i64]| {
                add(&of.weight, rows);
                of.bias.iter().for_each(|bias| add(bias, rows));
            };
            add(&block.attention_norm, &[d]);
            linear(&mut add, &block.qkv, &[q, k, k]);
            block
                .head_norms
                .iter()
                .for_each(|both| add(both, &[dim, dim]));
            linear(&mut add, &block.output, &[d]);
            add(&block.feed_forward_norm, &[d]);
            linear(&mut add, &block.gate_up, &[ff, ff]);
            linear(&mut add, &block.down, &[d]);
        }
        tensors.push(self.norm.detach());
        tensors.extend(self.head.iter().map(Tensor::detach));
        slots(&self.shape)
            .into_iter()
            .map(|slot| slot.name)
            .zip(tensors)
            .collect()
    }

    /// Runs the blocks over `ids` [batch, time] at `positions` (same size; 0.. if none).
    /// `wanted` [rows] numbers the places of [batch * time] whose last state somebody reads: the others are
    /// left out of the last feed-forward, where they would only cost time.
    /// `attend(layer, q, k, v)` gets q [batch, time, heads, head_dim] and k, v [batch, time,
    /// kv heads, head_dim], already rotated, and returns [batch, time, heads * head_dim].
    pub fn forward(
        &self,
        ids: &Tensor,
        positions: Option<&Tensor>,
        wanted: &Tensor,
        mut attend: impl FnMut(usize, &Tensor, &Tensor, &Tensor) -> Tensor,
    ) -> Hidden {
        let angles = self.angles(ids, positions);
        let mut x = self.embedded(ids);
        let mut first_block = None;
        // The first block's output is read whole.
        let (last, before) = match self.blocks.len() {
            0 | 1 => (None, self.blocks.len()),
            layers => (Some(layers - 1), layers - 1),
        };
        for layer in 0..before {
            x = self.block(layer, &x, &angles, None, &mut attend);
            first_block.get_or_insert_with(|| x.shallow_clone());
        }
        let last = match last {
            Some(layer) => self.block(layer, &x, &angles, Some(wanted), &mut attend),
            None => rows(&x).index_select(0, wanted),
        };
        Hidden {
            last: self.finished(&last),
            first_block: first_block.unwrap_or(x),
        }
    }

    /// Number of blocks.
    pub fn layers(&self) -> usize {
        self.blocks.len()
    }

    /// Cosines and sines of `ids` [batch, time] at `positions` (0.. if none).
    pub fn angles(&self, ids: &Tensor, positions: Option<&Tensor>) -> Angles {
        let (batch, time) = (ids.size()[0], ids.size()[1]);
        let half = self.shape.head_dim() / 2;
        let of = |table: &Tensor| match positions {
            None => table.narrow(0, 0, time).view([1, time, 1, half]),
            Some(at) => table
                .index_select(0, &at.reshape([batch * time]))
                .view([batch, time, 1, half]),
        };
        Angles {
            cos: of(&self.cos),
            sin: of(&self.sin),
        }
    }

    /// What goes into the first block.
    pub fn embedded(&self, ids: &Tensor) -> Tensor {
        Tensor::embedding(&self.embedding, ids, -1, false, false)
    }

    /// What comes out of the last block, normed for the head.
    pub fn finished(&self, x: &Tensor) -> Tensor {
        self.normed(x, &self.norm)
    }

    /// Block `layer` over x [batch, time, hidden]; `attend` as in [`Decoder::forward`]. If places are
    /// `wanted`, only what comes out of them, [rows, hidden].
    pub fn block(
        &self,
        layer: usize,
        x: &Tensor,
        angles: &Angles,
        wanted: Option<&Tensor>,
        attend: &mut impl FnMut(usize, &Tensor, &Tensor, &Tensor) -> Tensor,
    ) -> Tensor {
        let block = &self.blocks[layer];
        let s = &self.shape.settings;
        let (batch, time) = (x.size()[0], x.size()[1]);
        let (heads, kv) = (s.num_attention_heads, s.num_key_value_heads);
        let qkv = block
            .qkv
            .apply(&self.normed(x, &block.attention_norm))
            .view([batch, time, heads + 2 * kv, self.shape.head_dim()]);
        // Split, not narrowed: one backward step puts the parts together again.
        let parts = qkv.split_with_sizes([heads + kv, kv], 2);
        let rotated = match &block.head_norms {
            Some(weights) => angles.rotate(&self.heads_normed(&parts[0], weights)),
            None => angles.rotate(&parts[0]),
        };
        let turned = rotated.split_with_sizes([heads, kv], 2);
        let attended = attend(layer, &turned[0], &turned[1], &parts[1]);
        let picked = |all: &Tensor| match wanted {
            Some(wanted) => rows(all).index_select(0, wanted),
            None => all.shallow_clone(),
        };
        let (attended, x) = (picked(&attended), picked(x));
        // Never in place: the backward pass still needs the old x.
        let x = block.output.apply(&attended) + &x;
        let gate_up = block
            .gate_up
            .apply(&self.normed(&x, &block.feed_forward_norm));
        let halves = gate_up.chunk(2, -1);
        let gated = halves[0].silu() * &halves[1];
        block.down.apply(&gated) + x
    }

    /// Logits [.., vocab] of hidden states [.., hidden].
    pub fn logits(&self, hidden: &Tensor) -> Tensor {
        let head = self.head.as_ref().unwrap_or(&self.embedding);
        hidden.linear(head, None::<&Tensor>)
    }

    fn normed(&self, x: &Tensor, weight: &Tensor) -> Tensor {
        x.rms_norm(
            [self.shape.settings.hidden_size],
            Some(weight),
            self.shape.norm_eps,
        )
    }

    /// Norms every query and key head of x [batch, time, heads + kv heads, head_dim].
    fn heads_normed(&self, x: &Tensor, weights: &Tensor) -> Tensor {
        let (s, dim) = (&self.shape.settings, self.shape.head_dim);
        let of = |first: i64, heads: i64| weights.narrow(0, first, dim).expand([heads, dim], false);
        let weights = Tensor::cat(
            &[of(0, s.num_attention_heads), of(dim, s.num_key_value_heads)],
            0,
        );
        x.rms_norm([dim], None::<&Tensor>, self.shape.norm_eps) * weights
    }
}

/// [batch, time, width] as [batch * time, width].
fn rows(x: &Tensor) -> Tensor {
    x.reshape([-1, x.size().last().copied().unwrap_or(1)])
}

/// Cosines and sines of positions, [batch or 1, time, 1, head_dim / 2], in f32.
pub(super) struct Angles {
    cos: Tensor,
    sin: Tensor,
}

impl Angles {
    /// Turns the two halves of the last dimension against each other.
    fn rotate(&self, x: &Tensor) -> Tensor {
        let (cos, sin) = (&self.cos, &self.sin);
        let halves = x.chunk(2, -1);
        let (a, b) = (&halves[0], &halves[1]);
        Tensor::cat(&[a * cos - b * sin, b * cos + a * sin], -1).to_kind(x.kind())
    }
}

/// A matrix and, if there is one, its bias, each of `count` tensors one below the other.
fn linear<E>(
    fused: &mut impl FnMut(usize) -> Result<Tensor, E>,
    count: usize,
    biased: bool,
) -> Result<Linear, E> {
    Ok(Linear {
        weight: fused(count)?,
        bias: biased.then(|| fused(count)).transpose()?,
        adapter: None,
    })
}

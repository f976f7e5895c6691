//! The policy: the decoder that Llama, Qwen2 and Qwen3 share. RMSNorm, rotary positions in the
//! half-split convention of Hugging Face, grouped-query attention, SwiGLU. Biases, norms of the heads
//! and a head apart from the embedding are there where the [`Shape`] says so.
//!
//! Inside, q, k, v and gate, up are one matrix each, so that a step on a small model costs fewer
//! calls; on disk they stand apart under their Hugging Face names (see [`Decoder::exported`]).

use std::convert::Infallible;

use tch::{Device, Tensor};

use super::batch::picked;
use super::weights::{Parameter, Shape, Slot, initial, slots};

/// One block. Matrices are [out, in].
struct Block {
    attention_norm: Tensor,
    qkv: Tensor,
    qkv_bias: Option<Tensor>,
    /// The query heads' weight, then the key heads', [2 * head_dim].
    head_norms: Option<Tensor>,
    output: Tensor,
    output_bias: Option<Tensor>,
    feed_forward_norm: Tensor,
    gate_up: Tensor,
    gate_up_bias: Option<Tensor>,
    down: Tensor,
    down_bias: Option<Tensor>,
}

/// The decoder's weights on one device.
pub(super) struct Decoder {
    pub shape: Shape,
    pub device: Device,
    /// [vocab, hidden]
    pub embedding: Tensor,
    blocks: Vec<Block>,
    norm: Tensor,
    /// [vocab, hidden]; none if the embedding is the head.
    head: Option<Tensor>,
    /// [positions, head_dim / 2]
    cos: Tensor,
    sin: Tensor,
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
            // Fields are filled from top to bottom, which is the order of the slots.
            blocks.push(Block {
                attention_norm: fused(1)?,
                qkv: fused(3)?,
                qkv_bias: biases.qkv.then(|| fused(3)).transpose()?,
                head_norms: shape.head_norms.then(|| fused(2)).transpose()?,
                output: fused(1)?,
                output_bias: biases.output.then(|| fused(1)).transpose()?,
                feed_forward_norm: fused(1)?,
                gate_up: fused(2)?,
                gate_up_bias: biases.feed_forward.then(|| fused(2)).transpose()?,
                down: fused(1)?,
                down_bias: biases.feed_forward.then(|| fused(1)).transpose()?,
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

    /// Every tensor under its Hugging Face name, in the order of [`slots`]; views.
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
            add(&block.attention_norm, &[d]);
            add(&block.qkv, &[q, k, k]);
            block.qkv_bias.iter().for_each(|bias| add(bias, &[q, k, k]));
            block
                .head_norms
                .iter()
                .for_each(|both| add(both, &[dim, dim]));
            add(&block.output, &[d]);
            block.output_bias.iter().for_each(|bias| add(bias, &[d]));
            add(&block.feed_forward_norm, &[d]);
            add(&block.gate_up, &[ff, ff]);
            block
                .gate_up_bias
                .iter()
                .for_each(|bias| add(bias, &[ff, ff]));
            add(&block.down, &[d]);
            block.down_bias.iter().for_each(|bias| add(bias, &[d]));
        }
        tensors.push(self.norm.detach());
        tensors.extend(self.head.iter().map(Tensor::detach));
        slots(&self.shape)
            .into_iter()
            .map(|slot| slot.name)
            .zip(tensors)
            .collect()
    }

    /// A copy that shares nothing.
    pub fn copy(&self) -> Self {
        let tensors = self.exported().into_iter().map(|(_, t)| t.copy()).collect();
        Self::assemble(self.shape.clone(), tensors, self.device)
    }

    /// The trainable tensors, in a fixed order.
    pub fn parameters(&self) -> Vec<Parameter> {
        let (q, k, ff, d) = (
            self.shape.query_rows(),
            self.shape.key_rows(),
            self.shape.settings.intermediate_size,
            self.shape.settings.hidden_size,
        );
        let parameter = |name: String, tensor: &Tensor, matrices: Option<Vec<i64>>| Parameter {
            name,
            tensor: tensor.shallow_clone(),
            matrices,
            decays: tensor.dim() > 1,
        };
        let mut all = vec![parameter("embedding".into(), &self.embedding, None)];
        for (layer, block) in self.blocks.iter().enumerate() {
            let mut add = |part: &str, tensor: Option<&Tensor>, matrices| {
                let name = format!("layers.{layer}.{part}");
                all.extend(tensor.map(|tensor| parameter(name, tensor, matrices)));
            };
            add("attention_norm", Some(&block.attention_norm), None);
            add("qkv", Some(&block.qkv), Some(vec![q, k, k]));
            add("qkv_bias", block.qkv_bias.as_ref(), None);
            add("head_norms", block.head_norms.as_ref(), None);
            add("output", Some(&block.output), Some(vec![d]));
            add("output_bias", block.output_bias.as_ref(), None);
            add("feed_forward_norm", Some(&block.feed_forward_norm), None);
            add("gate_up", Some(&block.gate_up), Some(vec![ff, ff]));
            add("gate_up_bias", block.gate_up_bias.as_ref(), None);
            add("down", Some(&block.down), Some(vec![d]));
            add("down_bias", block.down_bias.as_ref(), None);
        }
        all.push(parameter("norm".into(), &self.norm, None));
        let head = self.head.as_ref();
        all.extend(head.map(|head| parameter("head".into(), head, None)));
        all
    }

    /// Runs the blocks over `ids` [batch, time] at `positions` (same size; 0.. if none).
    /// `wanted` numbers the rows of [batch * time] whose last state somebody reads: the others are left
    /// out of the last feed-forward, where they would only cost time.
    /// `attend(layer, q, k, v)` gets q [batch, time, heads, head_dim] and k, v [batch, time,
    /// kv heads, head_dim], already rotated, and returns [batch, time, heads * head_dim].
    pub fn forward(
        &self,
        ids: &Tensor,
        positions: Option<&Tensor>,
        wanted: &[i64],
        mut attend: impl FnMut(usize, &Tensor, &Tensor, &Tensor) -> Tensor,
    ) -> Hidden {
        let s = &self.shape.settings;
        let (batch, time) = (ids.size()[0], ids.size()[1]);
        let (heads, kv, dim) = (
            s.num_attention_heads,
            s.num_key_value_heads,
            self.shape.head_dim(),
        );
        let table = |table: &Tensor| match positions {
            None => table.narrow(0, 0, time).view([1, time, 1, dim / 2]),
            Some(at) => {
                table
                    .index_select(0, &at.reshape([batch * time]))
                    .view([batch, time, 1, dim / 2])
            }
        };
        let (cos, sin) = (table(&self.cos), table(&self.sin));
        let mut x = Tensor::embedding(&self.embedding, ids, -1, false, false);
        let mut first_block = None;
        let last_layer = self.blocks.len().saturating_sub(1);
        let mut chosen = false;
        for (layer, block) in self.blocks.iter().enumerate() {
            let qkv = self
                .normed(&x, &block.attention_norm)
                .linear(&block.qkv, block.qkv_bias.as_ref())
                .view([batch, time, heads + 2 * kv, dim]);
            let mut queries_and_keys = qkv.narrow(2, 0, heads + kv);
            if let Some(weights) = &block.head_norms {
                queries_and_keys = self.heads_normed(&queries_and_keys, weights);
            }
            let rotated = rotate(&queries_and_keys, &cos, &sin);
            let mut attended = attend(
                layer,
                &rotated.narrow(2, 0, heads),
                &rotated.narrow(2, heads, kv),
                &qkv.narrow(2, heads + kv, kv),
            );
            // The first block's output is read whole.
            if layer == last_layer && first_block.is_some() {
                (attended, x) = (picked(&attended, wanted), picked(&x, wanted));
                chosen = true;
            }
            // Never in place: the backward pass still needs the old x.
            x = attended.linear(&block.output, block.output_bias.as_ref()) + &x;
            let gate_up = self
                .normed(&x, &block.feed_forward_norm)
                .linear(&block.gate_up, block.gate_up_bias.as_ref());
            let halves = gate_up.chunk(2, -1);
            let gated = halves[0].silu() * &halves[1];
            x = gated.linear(&block.down, block.down_bias.as_ref()) + &x;
            first_block.get_or_insert_with(|| x.shallow_clone());
        }
        let last = if chosen {
            x.shallow_clone()
        } else {
            picked(&x, wanted)
        };
        Hidden {
            last: self.normed(&last, &self.norm),
            first_block: first_block.unwrap_or(x),
        }
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

/// Attention of q [batch, n, heads, dim] over k, v [batch, time, kv heads, dim]; gives
/// [batch, n, heads * dim]. `mask` is added to the scores, [batch or 1, 1, n, time]; without one,
/// attention is causal.
pub(super) fn attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> Tensor {
    let size = q.size();
    let (batch, n, heads, dim) = (size[0], size[1], size[2], size[3]);
    let kv = k.size()[2];
    let group = heads / kv;
    let (k, v) = (k.transpose(1, 2), v.transpose(1, 2));
    if n == 1 && group > 1 {
        // The query heads that share a key head become rows of one query: nothing is repeated.
        let q = q.reshape([batch, kv, group, dim]);
        return Tensor::scaled_dot_product_attention(&q, &k, &v, mask, 0.0, false, None, false)
            .reshape([batch, 1, heads * dim]);
    }
    let repeated = |x: Tensor| {
        if group == 1 {
            return x;
        }
        let time = x.size()[2];
        x.unsqueeze(2)
            .expand([batch, kv, group, time, dim], false)
            .reshape([batch, heads, time, dim])
    };
    Tensor::scaled_dot_product_attention(
        &q.transpose(1, 2),
        &repeated(k),
        &repeated(v),
        mask,
        0.0,
        mask.is_none() && n > 1,
        None,
        false,
    )
    .transpose(1, 2)
    .reshape([batch, n, heads * dim])
}

/// Turns the two halves of the last dimension against each other.
fn rotate(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Tensor {
    let halves = x.chunk(2, -1);
    let (a, b) = (&halves[0], &halves[1]);
    Tensor::cat(&[a * cos - b * sin, b * cos + a * sin], -1)
}

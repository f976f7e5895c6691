//! The policy: a Qwen2 decoder. RMSNorm, rotary positions in the half-split convention of Hugging
//! Face, grouped-query attention, SwiGLU, biases on q, k and v, and a head tied to the embedding.
//!
//! Inside, q, k, v and gate, up are one matrix each, so that a step on a small model costs fewer
//! calls; on disk they stand apart under their Hugging Face names (see [`Decoder::exported`]).

use tch::{Device, Tensor};

use super::weights::{Parameter, Shape, initial, slots};

/// One block. Matrices are [out, in].
struct Block {
    attention_norm: Tensor,
    qkv: Tensor,
    qkv_bias: Tensor,
    output: Tensor,
    feed_forward_norm: Tensor,
    gate_up: Tensor,
    down: Tensor,
}

/// The decoder's weights on one device.
pub(super) struct Decoder {
    pub shape: Shape,
    pub device: Device,
    /// [vocab, hidden], also the head.
    pub embedding: Tensor,
    blocks: Vec<Block>,
    norm: Tensor,
    /// [positions, head_dim / 2]
    cos: Tensor,
    sin: Tensor,
}

/// What a forward pass leaves.
pub(super) struct Hidden {
    /// After the last norm, [batch, time, hidden].
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
        let mut fused = |count: usize| {
            let parts: Vec<Tensor> = tensors.by_ref().take(count).collect();
            // A copy, never a view of what was passed in.
            let tensor = Tensor::cat(&parts, 0).to_device(device).detach();
            tensor.set_requires_grad(true)
        };
        let embedding = fused(1);
        let blocks = (0..shape.settings.num_hidden_layers)
            .map(|_| Block {
                attention_norm: fused(1),
                qkv: fused(3),
                qkv_bias: fused(3),
                output: fused(1),
                feed_forward_norm: fused(1),
                gate_up: fused(2),
                down: fused(1),
            })
            .collect();
        let norm = fused(1);
        let (cos, sin) = rotary_tables(&shape, device);
        Self {
            shape,
            device,
            embedding,
            blocks,
            norm,
            cos,
            sin,
        }
    }

    /// Every tensor under its Hugging Face name, in the order of [`slots`]; views.
    pub fn exported(&self) -> Vec<(String, Tensor)> {
        let (q, k, ff) = (
            self.shape.query_rows(),
            self.shape.key_rows(),
            self.shape.settings.intermediate_size,
        );
        let mut tensors = vec![self.embedding.detach()];
        for block in &self.blocks {
            tensors.push(block.attention_norm.detach());
            tensors.extend(block.qkv.detach().split_with_sizes([q, k, k], 0));
            tensors.extend(block.qkv_bias.detach().split_with_sizes([q, k, k], 0));
            tensors.push(block.output.detach());
            tensors.push(block.feed_forward_norm.detach());
            tensors.extend(block.gate_up.detach().split_with_sizes([ff, ff], 0));
            tensors.push(block.down.detach());
        }
        tensors.push(self.norm.detach());
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
            let mut add = |part: &str, tensor, matrices| {
                all.push(parameter(
                    format!("layers.{layer}.{part}"),
                    tensor,
                    matrices,
                ));
            };
            add("attention_norm", &block.attention_norm, None);
            add("qkv", &block.qkv, Some(vec![q, k, k]));
            add("qkv_bias", &block.qkv_bias, None);
            add("output", &block.output, Some(vec![d]));
            add("feed_forward_norm", &block.feed_forward_norm, None);
            add("gate_up", &block.gate_up, Some(vec![ff, ff]));
            add("down", &block.down, Some(vec![d]));
        }
        all.push(parameter("norm".into(), &self.norm, None));
        all
    }

    /// Runs the blocks over `ids` [batch, time] at `positions` (same size; 0.. if none).
    /// `attend(layer, q, k, v)` gets q [batch, time, heads, head_dim] and k, v [batch, time,
    /// kv heads, head_dim], already rotated, and returns [batch, time, heads * head_dim].
    pub fn forward(
        &self,
        ids: &Tensor,
        positions: Option<&Tensor>,
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
        for (layer, block) in self.blocks.iter().enumerate() {
            let qkv = self
                .normed(&x, &block.attention_norm)
                .linear(&block.qkv, Some(&block.qkv_bias))
                .view([batch, time, heads + 2 * kv, dim]);
            let rotated = rotate(&qkv.narrow(2, 0, heads + kv), &cos, &sin);
            let attended = attend(
                layer,
                &rotated.narrow(2, 0, heads),
                &rotated.narrow(2, heads, kv),
                &qkv.narrow(2, heads + kv, kv),
            );
            // Never in place: the backward pass still needs the old x.
            x = attended.linear(&block.output, None::<&Tensor>) + &x;
            let gate_up = self
                .normed(&x, &block.feed_forward_norm)
                .linear(&block.gate_up, None::<&Tensor>);
            let halves = gate_up.chunk(2, -1);
            x = (halves[0].silu() * &halves[1]).linear(&block.down, None::<&Tensor>) + &x;
            first_block.get_or_insert_with(|| x.shallow_clone());
        }
        Hidden {
            last: self.normed(&x, &self.norm),
            first_block: first_block.unwrap_or(x),
        }
    }

    /// Logits [.., vocab] of hidden states [.., hidden].
    pub fn logits(&self, hidden: &Tensor) -> Tensor {
        hidden.linear(&self.embedding, None::<&Tensor>)
    }

    fn normed(&self, x: &Tensor, weight: &Tensor) -> Tensor {
        x.rms_norm(
            [self.shape.settings.hidden_size],
            Some(weight),
            self.shape.norm_eps,
        )
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

/// cos and sin of position * theta^(-2i / dim), computed in f32 as transformers does.
fn rotary_tables(shape: &Shape, device: Device) -> (Tensor, Tensor) {
    let half = shape.head_dim() / 2;
    let positions = shape.settings.max_position_embeddings;
    let frequency: Vec<f32> = (0..half)
        .map(|i| (shape.settings.rope_theta as f32).powf(-(i as f32) / half as f32))
        .collect();
    let angles: Vec<f32> = (0..positions)
        .flat_map(|p| frequency.iter().map(move |f| p as f32 * f))
        .collect();
    let angles = Tensor::from_slice(&angles).view([positions, half]);
    (
        angles.cos().to_device(device),
        angles.sin().to_device(device),
    )
}

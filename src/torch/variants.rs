//! Decoders made of a decoder: copies, other kinds of numbers, with and without adapters; and which of its
//! tensors learn.

use tch::{Kind, Tensor};

use super::decoder::{Block, Decoder};
use super::linear::{Adapter, Linear};
use super::weights::Parameter;

/// The matrices of a block, each with those that are fused in it.
pub(super) const MATRICES: [&str; 4] = ["qkv", "output", "gate_up", "down"];

impl Block {
    /// In the order of [`MATRICES`].
    fn matrices(&self) -> [&Linear; 4] {
        [&self.qkv, &self.output, &self.gate_up, &self.down]
    }

    fn matrices_mut(&mut self) -> [&mut Linear; 4] {
        [
            &mut self.qkv,
            &mut self.output,
            &mut self.gate_up,
            &mut self.down,
        ]
    }
}

impl Decoder {
    /// The tensors that learn, in a fixed order: all of them, or those of the adapters.
    pub fn parameters(&self) -> Vec<Parameter> {
        let parameter = |name: String, tensor: &Tensor, matrices: Option<&[i64]>| Parameter {
            name,
            tensor: tensor.shallow_clone(),
            matrices: matrices.map(<[i64]>::to_vec),
            decays: tensor.dim() > 1,
        };
        if self.has_adapters() {
            let of = |(layer, number, adapter): (usize, usize, &Adapter)| {
                let name = format!("layers.{layer}.{}", MATRICES[number]);
                [("lora_a", &adapter.down), ("lora_b", &adapter.up)]
                    .map(|(part, tensor)| parameter(format!("{name}.{part}"), tensor, None))
            };
            return self.adapters().flat_map(of).collect();
        }
        let rows = self.fused_rows();
        let mut all = vec![parameter("embedding".into(), &self.embedding, None)];
        for (layer, block) in self.blocks.iter().enumerate() {
            let mut add = |part: &str, tensor: Option<&Tensor>, matrices| {
                let name = format!("layers.{layer}.{part}");
                all.extend(tensor.map(|tensor| parameter(name, tensor, matrices)));
            };
            add("attention_norm", Some(&block.attention_norm), None);
            add("qkv", Some(&block.qkv.weight), Some(&rows[0][..]));
            add("qkv_bias", block.qkv.bias.as_ref(), None);
            add("head_norms", block.head_norms.as_ref(), None);
            add("output", Some(&block.output.weight), Some(&rows[1]));
            add("output_bias", block.output.bias.as_ref(), None);
            add("feed_forward_norm", Some(&block.feed_forward_norm), None);
            add("gate_up", Some(&block.gate_up.weight), Some(&rows[2]));
            add("gate_up_bias", block.gate_up.bias.as_ref(), None);
            add("down", Some(&block.down.weight), Some(&rows[3]));
            add("down_bias", block.down.bias.as_ref(), None);
        }
        all.push(parameter("norm".into(), &self.norm, None));
        let head = self.head.as_ref();
        all.extend(head.map(|head| parameter("head".into(), head, None)));
        all
    }

    /// A copy that learns by itself. What adapters leave as it is, it shares.
    pub fn copy(&self) -> Self {
        let leaf = |tensor: &Tensor| tensor.detach().copy().set_requires_grad(true);
        if self.has_adapters() {
            return self.map(Tensor::shallow_clone, |adapter| Some(adapter.map(leaf)));
        }
        self.map(leaf, |_| None)
    }

    /// The same without its adapters; shares its tensors.
    pub fn without_adapters(&self) -> Self {
        self.map(Tensor::shallow_clone, |_| None)
    }

    /// The same in numbers of this kind; gradients flow back to these tensors.
    pub fn in_kind(&self, kind: Kind) -> Self {
        let cast = |tensor: &Tensor| tensor.to_kind(kind);
        self.map(cast, |adapter| Some(adapter.map(cast)))
    }

    /// The same with its adapters merged into the matrices, as weights that learn.
    pub fn merged(&self) -> Self {
        let _guard = tch::no_grad_guard();
        let mut merged = self.map(|tensor| tensor.detach().copy(), |_| None);
        for (new, old) in merged.blocks.iter_mut().zip(&self.blocks) {
            for (new, old) in new.matrices_mut().into_iter().zip(old.matrices()) {
                if old.adapter.is_some() {
                    new.weight = old.merged_weight().detach();
                }
            }
        }
        merged.map(|tensor| tensor.set_requires_grad(true), |_| None)
    }

    /// Puts adapters beside matrices: `adapter(layer, matrix, weight)`, with the matrices of a block in
    /// the order of [`MATRICES`]. All other weights stay as they are from now on.
    pub fn adapt(&mut self, mut adapter: impl FnMut(usize, usize, &Tensor) -> Option<Adapter>) {
        for (layer, block) in self.blocks.iter_mut().enumerate() {
            for (number, linear) in block.matrices_mut().into_iter().enumerate() {
                linear.adapter = adapter(layer, number, &linear.weight);
            }
        }
        let _ = self.map(|tensor| tensor.set_requires_grad(false), |_| None);
    }

    /// Whether adapters learn in place of all weights.
    pub fn has_adapters(&self) -> bool {
        self.adapters().next().is_some()
    }

    /// The adapters: layer, number in [`MATRICES`], adapter.
    pub fn adapters(&self) -> impl Iterator<Item = (usize, usize, &Adapter)> {
        self.blocks.iter().enumerate().flat_map(|(layer, block)| {
            let matrices = block.matrices().into_iter().enumerate();
            matrices
                .filter_map(move |(number, linear)| Some((layer, number, linear.adapter.as_ref()?)))
        })
    }

    /// Rows of the matrices that are fused in each of [`MATRICES`].
    pub fn fused_rows(&self) -> [Vec<i64>; 4] {
        let (q, k) = (self.shape.query_rows(), self.shape.key_rows());
        let s = &self.shape.settings;
        let (ff, d) = (s.intermediate_size, s.hidden_size);
        [vec![q, k, k], vec![d], vec![ff, ff], vec![d]]
    }

    /// The same decoder with every tensor put through `of`, and every adapter through `adapt`.
    fn map(
        &self,
        mut of: impl FnMut(&Tensor) -> Tensor,
        mut adapt: impl FnMut(&Adapter) -> Option<Adapter>,
    ) -> Self {
        let mut blocks = Vec::with_capacity(self.blocks.len());
        let embedding = of(&self.embedding);
        for block in &self.blocks {
            blocks.push(Block {
                attention_norm: of(&block.attention_norm),
                qkv: block.qkv.map(&mut of, &mut adapt),
                head_norms: block.head_norms.as_ref().map(&mut of),
                output: block.output.map(&mut of, &mut adapt),
                feed_forward_norm: of(&block.feed_forward_norm),
                gate_up: block.gate_up.map(&mut of, &mut adapt),
                down: block.down.map(&mut of, &mut adapt),
            });
        }
        Self {
            shape: self.shape.clone(),
            device: self.device,
            embedding,
            blocks,
            norm: of(&self.norm),
            head: self.head.as_ref().map(&mut of),
            cos: self.cos.shallow_clone(),
            sin: self.sin.shallow_clone(),
        }
    }
}

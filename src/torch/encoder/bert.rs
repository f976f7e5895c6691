//! BERT (Devlin et al., 2019): learned positions, attention over everything that is shown, GELU, and
//! a layer norm after each half of a block.

use std::collections::BTreeMap;

use tch::{Device, Kind, Tensor};

use super::folder::{Activation, BertShape, WEIGHTS};
use crate::engine::EngineError;
use crate::torch::attention::attention;

/// A linear layer: matrix [out, in] and bias.
struct Linear(Tensor, Tensor);

impl Linear {
    fn of(&self, x: &Tensor) -> Tensor {
        x.linear(&self.0, Some(&self.1))
    }
}

/// A layer norm: weight and bias.
struct Norm(Tensor, Tensor, f64);

impl Norm {
    fn of(&self, x: &Tensor) -> Tensor {
        x.layer_norm(self.0.size(), Some(&self.0), Some(&self.1), self.2, false)
    }
}

struct Block {
    qkv: Linear,
    output: Linear,
    attention_norm: Norm,
    up: Linear,
    down: Linear,
    norm: Norm,
}

/// The encoder's weights on one device.
pub(super) struct Bert {
    shape: BertShape,
    words: Tensor,
    /// Positions, with the embedding of the first token type added.
    positions: Tensor,
    norm: Norm,
    blocks: Vec<Block>,
}

impl Bert {
    /// Builds the encoder from the tensors of a folder, named as in `BertModel`, with or without
    /// `bert.` before the names. Tensors that an encoder does not need (pooler, heads) are left.
    ///
    /// # Errors
    /// [`EngineError::BadFile`] naming a tensor that is missing or of another size.
    pub fn assemble(
        shape: BertShape,
        mut tensors: BTreeMap<String, Tensor>,
        device: Device,
    ) -> Result<Self, EngineError> {
        let prefix = if tensors.contains_key("bert.embeddings.word_embeddings.weight") {
            "bert."
        } else {
            ""
        };
        let (d, ff) = (shape.hidden_size, shape.intermediate_size);
        let mut take = |name: &str, size: &[i64]| -> Result<Tensor, EngineError> {
            let name = format!("{prefix}{name}");
            match tensors.remove(&name) {
                Some(tensor) if tensor.size() == size => Ok(tensor.to_device(device)),
                found => Err(shape.bad_tensor(&name, size, found.map(|tensor| tensor.size()))),
            }
        };
        let words = take("embeddings.word_embeddings.weight", &[shape.vocab_size, d])?;
        let types = take(
            "embeddings.token_type_embeddings.weight",
            &[shape.type_vocab_size, d],
        )?;
        let positions = take(
            "embeddings.position_embeddings.weight",
            &[shape.max_position_embeddings, d],
        )?;
        let eps = shape.norm_eps;
        let norm = Norm(
            take("embeddings.LayerNorm.weight", &[d])?,
            take("embeddings.LayerNorm.bias", &[d])?,
            eps,
        );
        let mut blocks = Vec::new();
        for layer in 0..shape.num_hidden_layers {
            let mut of =
                |part: &str, size: &[i64]| take(&format!("encoder.layer.{layer}.{part}"), size);
            let mut fused = (Vec::new(), Vec::new());
            for part in ["query", "key", "value"] {
                fused
                    .0
                    .push(of(&format!("attention.self.{part}.weight"), &[d, d])?);
                fused
                    .1
                    .push(of(&format!("attention.self.{part}.bias"), &[d])?);
            }
            blocks.push(Block {
                qkv: Linear(Tensor::cat(&fused.0, 0), Tensor::cat(&fused.1, 0)),
                output: Linear(
                    of("attention.output.dense.weight", &[d, d])?,
                    of("attention.output.dense.bias", &[d])?,
                ),
                attention_norm: Norm(
                    of("attention.output.LayerNorm.weight", &[d])?,
                    of("attention.output.LayerNorm.bias", &[d])?,
                    eps,
                ),
                up: Linear(
                    of("intermediate.dense.weight", &[ff, d])?,
                    of("intermediate.dense.bias", &[ff])?,
                ),
                down: Linear(
                    of("output.dense.weight", &[d, ff])?,
                    of("output.dense.bias", &[d])?,
                ),
                norm: Norm(
                    of("output.LayerNorm.weight", &[d])?,
                    of("output.LayerNorm.bias", &[d])?,
                    eps,
                ),
            });
        }
        Ok(Self {
            positions: positions + types.narrow(0, 0, 1),
            shape,
            words,
            norm,
            blocks,
        })
    }

    /// Length of a hidden state.
    pub fn width(&self) -> usize {
        self.shape.hidden_size as usize
    }

    /// The last hidden states [batch, time, hidden] of `ids` [batch, time]; a token sees those where
    /// `shown` [batch, time] is true.
    pub fn forward(&self, ids: &Tensor, shown: &Tensor) -> Tensor {
        let (batch, time) = (ids.size()[0], ids.size()[1]);
        let heads = self.shape.num_attention_heads;
        let dim = self.shape.hidden_size / heads;
        let words = Tensor::embedding(&self.words, ids, -1, false, false);
        let mut x = self.norm.of(&(words + self.positions.narrow(0, 0, time)));
        let mask = Tensor::zeros([batch, 1, 1, time], (Kind::Float, ids.device()))
            .masked_fill(
                &shown.logical_not().view([batch, 1, 1, time]),
                f64::NEG_INFINITY,
            )
            .expand([batch, 1, time, time], false);
        for block in &self.blocks {
            let qkv = block.qkv.of(&x).view([batch, time, 3 * heads, dim]);
            let part = |number: i64| qkv.narrow(2, number * heads, heads);
            let attended = attention(&part(0), &part(1), &part(2), Some(&mask));
            x = block.attention_norm.of(&(block.output.of(&attended) + &x));
            let up = block.up.of(&x);
            let active = match self.shape.activation {
                Activation::Gelu => up.gelu("none"),
                Activation::GeluTanh => up.gelu("tanh"),
                Activation::Relu => up.relu(),
            };
            x = block.norm.of(&(block.down.of(&active) + &x));
        }
        x
    }
}

impl BertShape {
    fn bad_tensor(&self, name: &str, size: &[i64], found: Option<Vec<i64>>) -> EngineError {
        let problem = match found {
            Some(found) => format!("{name:?} is {found:?}, but must be {size:?}"),
            None => format!("{name:?} is missing"),
        };
        crate::torch::tensor_file::bad_file(
            &self.folder.join(WEIGHTS),
            problem,
            "config.json and the weights are not of the same BERT model: copy both again",
        )
    }
}

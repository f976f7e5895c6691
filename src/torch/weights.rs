//! What the decoder is made of: its shape, the tensors of a Hugging Face folder, and their initial
//! values.

use rand::Rng as _;
use serde_json::{Map, Value};
use tch::{Device, Kind, Tensor};

use crate::experiment::DecoderSettings;
use crate::random::{self, Domain};

use super::rope::Rope;

/// Shape of the decoder, and what a Hugging Face folder says beyond the experiment's settings.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    pub settings: DecoderSettings,
    /// Width of a head. Need not be `hidden_size / num_attention_heads`.
    pub head_dim: i64,
    /// Whether the head is the embedding.
    pub tied: bool,
    pub biases: Biases,
    /// Whether every query and key head is normed before it is rotated (Qwen3).
    pub head_norms: bool,
    pub rope: Rope,
    /// Added to the mean square in every norm.
    pub norm_eps: f64,
    /// Sampling one of these ends a turn.
    pub end_of_text: Vec<i64>,
    /// What config.json says, to be written back with every field it had.
    pub config: Map<String, Value>,
    /// The text of generation_config.json.
    pub generation_config: Option<String>,
}

/// The matrices that have a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Biases {
    pub qkv: bool,
    pub output: bool,
    pub feed_forward: bool,
}

impl Shape {
    /// Width of a head.
    pub fn head_dim(&self) -> i64 {
        self.head_dim
    }
    /// Rows of the query matrix.
    pub fn query_rows(&self) -> i64 {
        self.settings.num_attention_heads * self.head_dim
    }
    /// Rows of the key matrix, and of the value matrix.
    pub fn key_rows(&self) -> i64 {
        self.settings.num_key_value_heads * self.head_dim
    }
}

/// A trainable tensor and how optimizers treat it.
pub(super) struct Parameter {
    /// Key of its optimizer state.
    pub name: String,
    /// Shares storage with the decoder.
    pub tensor: Tensor,
    /// For a block matrix: the row counts of the matrices that are fused in it.
    pub matrices: Option<Vec<i64>>,
    /// Whether weight decay applies (matrices and the embedding; not norms and biases).
    pub decays: bool,
}

/// A tensor of a Hugging Face folder: its name, its shape, and the rule of its initial value.
pub(super) struct Slot {
    pub name: String,
    pub size: Vec<i64>,
    initial: Initial,
}

#[derive(Clone, Copy)]
enum Initial {
    Normal,
    Ones,
    Zeros,
}

/// Every tensor of the decoder under its Hugging Face name, in the order in which
/// [`super::decoder::Decoder::assemble`] takes them.
pub(super) fn slots(shape: &Shape) -> Vec<Slot> {
    use Initial::{Normal, Ones, Zeros};
    let s = &shape.settings;
    let (d, q, k, ff) = (
        s.hidden_size,
        shape.query_rows(),
        shape.key_rows(),
        s.intermediate_size,
    );
    let slot = |name: String, size: &[i64], initial| Slot {
        name,
        size: size.to_vec(),
        initial,
    };
    let mut slots = vec![slot(
        "model.embed_tokens.weight".into(),
        &[s.vocab_size, d],
        Normal,
    )];
    for layer in 0..s.num_hidden_layers {
        let mut add = |there: bool, part: &str, size: &[i64], initial| {
            if there {
                slots.push(slot(format!("model.layers.{layer}.{part}"), size, initial));
            }
        };
        let Biases {
            qkv,
            output,
            feed_forward,
        } = shape.biases;
        add(true, "input_layernorm.weight", &[d], Ones);
        add(true, "self_attn.q_proj.weight", &[q, d], Normal);
        add(true, "self_attn.k_proj.weight", &[k, d], Normal);
        add(true, "self_attn.v_proj.weight", &[k, d], Normal);
        add(qkv, "self_attn.q_proj.bias", &[q], Zeros);
        add(qkv, "self_attn.k_proj.bias", &[k], Zeros);
        add(qkv, "self_attn.v_proj.bias", &[k], Zeros);
        let head = [shape.head_dim];
        add(shape.head_norms, "self_attn.q_norm.weight", &head, Ones);
        add(shape.head_norms, "self_attn.k_norm.weight", &head, Ones);
        add(true, "self_attn.o_proj.weight", &[d, q], Normal);
        add(output, "self_attn.o_proj.bias", &[d], Zeros);
        add(true, "post_attention_layernorm.weight", &[d], Ones);
        add(true, "mlp.gate_proj.weight", &[ff, d], Normal);
        add(true, "mlp.up_proj.weight", &[ff, d], Normal);
        add(feed_forward, "mlp.gate_proj.bias", &[ff], Zeros);
        add(feed_forward, "mlp.up_proj.bias", &[ff], Zeros);
        add(true, "mlp.down_proj.weight", &[d, ff], Normal);
        add(feed_forward, "mlp.down_proj.bias", &[d], Zeros);
    }
    slots.push(slot("model.norm.weight".into(), &[d], Ones));
    if !shape.tied {
        slots.push(slot("lm_head.weight".into(), &[s.vocab_size, d], Normal));
    }
    slots
}

/// New values for every slot, each from its own random stream.
pub(super) fn initial(shape: &Shape, seed: u64) -> Vec<Tensor> {
    let std = shape.settings.initializer_range;
    let numbered = slots(shape).into_iter().zip(0u32..);
    numbered
        .map(|(slot, number)| match slot.initial {
            Initial::Normal => normal(&slot.size, std, seed, number),
            Initial::Ones => Tensor::ones(&slot.size, (Kind::Float, Device::Cpu)),
            Initial::Zeros => Tensor::zeros(&slot.size, (Kind::Float, Device::Cpu)),
        })
        .collect()
}

/// normal(0, std) numbers from the stream of tensor `number`, by Box and Muller.
fn normal(size: &[i64], std: f64, seed: u64, number: u32) -> Tensor {
    let count: i64 = size.iter().product();
    let mut rng = random::stream(seed, Domain::Weights, number, 0, 0);
    let mut unit = || (rng.next_u64() >> 11) as f64 / 9_007_199_254_740_992.0;
    let values: Vec<f32> = (0..count)
        .map(|_| {
            let radius = (-2.0 * (1.0 - unit()).ln()).sqrt();
            (std * radius * (std::f64::consts::TAU * unit()).cos()) as f32
        })
        .collect();
    Tensor::from_slice(&values).view(size)
}

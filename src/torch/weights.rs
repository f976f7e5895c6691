//! What the decoder is made of: its shape, the tensors of a Hugging Face folder, and their initial
//! values.

use rand::Rng as _;
use tch::{Device, Kind, Tensor};

use crate::experiment::DecoderSettings;
use crate::random::{self, Domain};

/// Shape of the decoder, and what a Hugging Face folder says beyond the experiment's settings.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    pub settings: DecoderSettings,
    /// Added to the mean square in every norm.
    pub norm_eps: f64,
    /// Sampling one of these ends a turn.
    pub end_of_text: Vec<i64>,
}

impl Shape {
    /// Width of a head.
    pub fn head_dim(&self) -> i64 {
        self.settings.hidden_size / self.settings.num_attention_heads
    }
    /// Rows of the query matrix.
    pub fn query_rows(&self) -> i64 {
        self.settings.hidden_size
    }
    /// Rows of the key matrix, and of the value matrix.
    pub fn key_rows(&self) -> i64 {
        self.settings.num_key_value_heads * self.head_dim()
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

/// Every tensor of the decoder under its Hugging Face name, in a fixed order.
pub(super) fn slots(shape: &Shape) -> Vec<Slot> {
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
        Initial::Normal,
    )];
    for layer in 0..s.num_hidden_layers {
        let mut add = |part: &str, size: &[i64], initial| {
            slots.push(slot(format!("model.layers.{layer}.{part}"), size, initial));
        };
        add("input_layernorm.weight", &[d], Initial::Ones);
        add("self_attn.q_proj.weight", &[q, d], Initial::Normal);
        add("self_attn.k_proj.weight", &[k, d], Initial::Normal);
        add("self_attn.v_proj.weight", &[k, d], Initial::Normal);
        add("self_attn.q_proj.bias", &[q], Initial::Zeros);
        add("self_attn.k_proj.bias", &[k], Initial::Zeros);
        add("self_attn.v_proj.bias", &[k], Initial::Zeros);
        add("self_attn.o_proj.weight", &[d, q], Initial::Normal);
        add("post_attention_layernorm.weight", &[d], Initial::Ones);
        add("mlp.gate_proj.weight", &[ff, d], Initial::Normal);
        add("mlp.up_proj.weight", &[ff, d], Initial::Normal);
        add("mlp.down_proj.weight", &[d, ff], Initial::Normal);
    }
    slots.push(slot("model.norm.weight".into(), &[d], Initial::Ones));
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

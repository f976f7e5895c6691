//! config.json and generation_config.json of a Hugging Face folder.
//!
//! Fields that are absent have the values that transformers gives them; both spellings are read, that
//! of transformers 4 (`rope_theta`, `rope_scaling`) and that of 5 (`rope_parameters`). What the
//! decoder cannot do is refused by the field's name.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::engine::EngineError;
use crate::experiment::DecoderSettings;

use super::fields::{Fields, REMEDY, parse};
use super::rope::{Rope, Yarn};
use super::tensor_file::{bad_file, read};
use super::weights::{Biases, Shape};

/// File of the architecture.
pub(super) const CONFIG: &str = "config.json";
/// File of what generation does when it is told nothing.
pub(super) const GENERATION_CONFIG: &str = "generation_config.json";

/// Epsilon of the norms when config.json does not say.
const NORM_EPS: f64 = 1e-6;
/// Base of the rotary embedding when config.json does not say.
const ROPE_THETA: f64 = 10_000.0;

/// The architectures that the decoder is, by `model_type`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Architecture {
    Llama,
    Qwen2,
    Qwen3,
}

impl Architecture {
    const NAMES: [(&str, Self); 3] = [
        ("llama", Self::Llama),
        ("qwen2", Self::Qwen2),
        ("qwen3", Self::Qwen3),
    ];

    /// Vocabulary, feed-forward width and context length of its config class in transformers.
    fn defaults(self) -> (i64, i64, i64) {
        match self {
            Self::Llama => (32_000, 11_008, 2_048),
            Self::Qwen2 | Self::Qwen3 => (151_936, 22_016, 32_768),
        }
    }
}

/// Reads both files and refuses what the decoder is not.
///
/// # Errors
/// [`EngineError::BadFile`] naming the file, the field, the rule and the remedy.
pub(super) fn read_shape(folder: &Path) -> Result<Shape, EngineError> {
    let path = folder.join(CONFIG);
    let fields = parse(&path)?;
    let config = Fields::new(&path, &fields);
    let architecture = architecture(&config)?;
    let rope_fields = config.first_object(&["rope_scaling", "rope_parameters"])?;
    let heads = config.count("num_attention_heads", 32)?;
    let (vocabulary, feed_forward, context) = architecture.defaults();
    let theta = config.number("rope_theta", ROPE_THETA)?;
    let settings = DecoderSettings {
        hidden_size: config.count("hidden_size", 4_096)?,
        num_hidden_layers: config.count("num_hidden_layers", 32)?,
        num_attention_heads: heads,
        // Qwen's classes say 32 where the field is absent.
        num_key_value_heads: match architecture {
            Architecture::Llama => config.count("num_key_value_heads", heads)?,
            _ if fields.contains_key("num_key_value_heads") => {
                config.count("num_key_value_heads", heads)?
            }
            _ => heads.min(32),
        },
        intermediate_size: config.count("intermediate_size", feed_forward)?,
        rope_theta: match &rope_fields {
            Some(rope) => rope.number("rope_theta", theta)?,
            None => theta,
        },
        max_position_embeddings: config.count("max_position_embeddings", context)?,
        initializer_range: config.number("initializer_range", 0.02)?,
        vocab_size: config.count("vocab_size", vocabulary)?,
    };
    refuse_what_is_missing_here(&config, architecture, &settings)?;
    let head_dim = match config.get("head_dim") {
        Some(_) => Some(config.count("head_dim", 0)?),
        None if architecture == Architecture::Qwen3 && !fields.contains_key("head_dim") => {
            Some(128)
        }
        None => None,
    };
    check_shape(&settings, head_dim).map_err(|rule| bad_file(&path, rule, REMEDY))?;
    let attention_bias = config.flag("attention_bias", false)?;
    let generation_path = folder.join(GENERATION_CONFIG);
    let generation = generation_path
        .exists()
        .then(|| parse(&generation_path))
        .transpose()?;
    Ok(Shape {
        head_dim: head_dim.unwrap_or(settings.hidden_size / heads),
        tied: config.flag("tie_word_embeddings", false)?,
        biases: match architecture {
            Architecture::Qwen2 => QWEN2_BIASES,
            Architecture::Qwen3 => Biases {
                qkv: attention_bias,
                output: attention_bias,
                feed_forward: false,
            },
            Architecture::Llama => Biases {
                qkv: attention_bias,
                output: attention_bias,
                feed_forward: config.flag("mlp_bias", false)?,
            },
        },
        head_norms: architecture == Architecture::Qwen3,
        rope: match &rope_fields {
            Some(fields) => rope(fields, &config, settings.max_position_embeddings)?,
            None => Rope::Plain,
        },
        norm_eps: config.number("rms_norm_eps", NORM_EPS)?,
        end_of_text: end_of_text(architecture, &fields, generation.as_ref()),
        settings,
        generation_config: match &generation {
            Some(_) => Some(String::from_utf8_lossy(&read(&generation_path)?).into_owned()),
            None => None,
        },
        config: fields,
    })
}

fn architecture(config: &Fields<'_>) -> Result<Architecture, EngineError> {
    let kind = config.get("model_type").cloned().unwrap_or(Value::Null);
    let known = Architecture::NAMES.iter().find(|(name, _)| kind == *name);
    known.map(|(_, architecture)| *architecture).ok_or_else(|| {
        let names = Architecture::NAMES.map(|(name, _)| format!("{name:?}"));
        config.refusal(
            "model_type",
            &kind,
            &format!("must be one of {}", names.join(", ")),
        )
    })
}

/// Refuses what changes the results and is not built.
fn refuse_what_is_missing_here(
    config: &Fields<'_>,
    architecture: Architecture,
    settings: &DecoderSettings,
) -> Result<(), EngineError> {
    if let Some(act) = config
        .get("hidden_act")
        .filter(|act| **act != "silu" && **act != "swish")
    {
        return Err(config.refusal("hidden_act", act, "must be \"silu\""));
    }
    if let Some(quantised) = config.get("quantization_config") {
        let rule = "quantised weights are not read: take the model in bf16, f16 or f32";
        return Err(config.refusal("quantization_config", quantised, rule));
    }
    let turned = config.number("partial_rotary_factor", 1.0)?;
    if turned != 1.0 {
        let rule = "must be 1: heads are rotated whole";
        return Err(config.refusal("partial_rotary_factor", &json!(turned), rule));
    }
    if architecture == Architecture::Llama || !config.flag("use_sliding_window", false)? {
        return Ok(());
    }
    // A window that reaches over the whole context, or that no layer uses, changes nothing.
    let layers = settings.num_hidden_layers;
    let window = config.count("sliding_window", i64::MAX)?;
    let slides = match config.get("layer_types").and_then(Value::as_array) {
        Some(kinds) => kinds.iter().any(|kind| kind == "sliding_attention"),
        None => config.count("max_window_layers", 28)? < layers,
    };
    if slides && window < settings.max_position_embeddings {
        return Err(config.refusal(
            "use_sliding_window",
            &json!(true),
            "must be false: attention is over the whole context",
        ));
    }
    Ok(())
}

/// How the frequencies are stretched; `fields` is `rope_scaling` or `rope_parameters`.
fn rope(fields: &Fields<'_>, config: &Fields<'_>, context: i64) -> Result<Rope, EngineError> {
    let kind = fields.get("rope_type").or_else(|| fields.get("type"));
    let kind = kind.cloned().unwrap_or(json!("default"));
    let turned = fields.number("partial_rotary_factor", 1.0)?;
    if turned != 1.0 {
        let rule = "must be 1: heads are rotated whole";
        return Err(fields.refusal("partial_rotary_factor", &json!(turned), rule));
    }
    let original = |field| -> Result<f64, EngineError> {
        let beside = config.number(field, 0.0)?;
        if beside > 0.0 {
            return Ok(beside);
        }
        fields.number(field, context as f64)
    };
    let original = original("original_max_position_embeddings")?;
    match kind.as_str() {
        // Dynamic scaling begins beyond `max_position_embeddings`, where contexts end here.
        Some("default" | "dynamic") => Ok(Rope::Plain),
        Some("linear") => Ok(Rope::Linear {
            factor: fields.positive("factor")?,
        }),
        Some("llama3") => Ok(Rope::Llama3 {
            factor: fields.positive("factor")?,
            low_freq_factor: fields.positive("low_freq_factor")?,
            high_freq_factor: fields.positive("high_freq_factor")?,
            original,
        }),
        Some("yarn") => {
            let factor = match fields.get("factor") {
                Some(_) => fields.positive("factor")?,
                None => context as f64 / original,
            };
            let (above, below) = (
                fields.number("mscale", 0.0)?,
                fields.number("mscale_all_dim", 0.0)?,
            );
            let mscale = (above != 0.0 && below != 0.0).then_some((above, below));
            let said = fields.get("attention_factor").is_some();
            let or = |number: f64, default: f64| if number == 0.0 { default } else { number };
            Ok(Rope::Yarn(Yarn {
                factor,
                original,
                beta_fast: or(fields.number("beta_fast", 0.0)?, 32.0),
                beta_slow: or(fields.number("beta_slow", 0.0)?, 1.0),
                truncate: fields.flag("truncate", true)?,
                attention_factor: if said {
                    fields.positive("attention_factor")?
                } else {
                    Yarn::attention_factor(factor, mscale)
                },
            }))
        }
        _ => Err(fields.refusal(
            "rope_type",
            &kind,
            "must be \"default\", \"linear\", \"dynamic\", \"llama3\" or \"yarn\"",
        )),
    }
}

/// The biases of every Qwen2.
const QWEN2_BIASES: Biases = Biases {
    qkv: true,
    output: false,
    feed_forward: false,
};

/// The shape of a new policy: a Qwen2 with a tied head, and the config.json that transformers writes
/// for it. The rotary base stands in the old place and in the new one.
pub(super) fn new_shape(settings: &DecoderSettings) -> Shape {
    let s = settings;
    let config = json!({
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "attention_dropout": 0.0,
        "bos_token_id": null,
        "eos_token_id": null,
        "hidden_act": "silu",
        "hidden_size": s.hidden_size,
        "initializer_range": s.initializer_range,
        "intermediate_size": s.intermediate_size,
        "max_position_embeddings": s.max_position_embeddings,
        "num_attention_heads": s.num_attention_heads,
        "num_hidden_layers": s.num_hidden_layers,
        "num_key_value_heads": s.num_key_value_heads,
        "rms_norm_eps": NORM_EPS,
        "rope_parameters": { "rope_type": "default", "rope_theta": s.rope_theta },
        "rope_theta": s.rope_theta,
        "tie_word_embeddings": true,
        "torch_dtype": "float32",
        "use_cache": true,
        "use_sliding_window": false,
        "vocab_size": s.vocab_size,
    });
    Shape {
        settings: s.clone(),
        head_dim: s.hidden_size / s.num_attention_heads.max(1),
        tied: true,
        biases: QWEN2_BIASES,
        head_norms: false,
        rope: Rope::Plain,
        norm_eps: NORM_EPS,
        end_of_text: Vec::new(),
        config: config.as_object().cloned().unwrap_or_default(),
        generation_config: None,
    }
}

/// The text of config.json beside weights that we save: every field as it was read, but for the
/// kind of the numbers, which are f32 as they were trained.
pub(super) fn config_text(shape: &Shape) -> String {
    let mut fields = shape.config.clone();
    let spelled = ["torch_dtype", "dtype"].into_iter();
    let mut spelled: Vec<&str> = spelled.filter(|name| fields.contains_key(*name)).collect();
    if spelled.is_empty() {
        spelled.push("torch_dtype");
    }
    for name in spelled {
        fields.insert(name.to_owned(), json!("float32"));
    }
    format!("{:#}\n", Value::Object(fields))
}

/// Ids that end a turn: generation_config.json has the last word, as in transformers.
fn end_of_text(
    architecture: Architecture,
    config: &Map<String, Value>,
    generation: Option<&Map<String, Value>>,
) -> Vec<i64> {
    const FIELD: &str = "eos_token_id";
    let said = generation
        .and_then(|fields| fields.get(FIELD))
        .or_else(|| config.get(FIELD));
    match said {
        Some(Value::Array(ids)) => ids.iter().filter_map(Value::as_i64).collect(),
        Some(id) => id.as_i64().into_iter().collect(),
        None if architecture == Architecture::Llama => vec![2],
        None => Vec::new(),
    }
}

/// Checks that the numbers of a shape fit together; says the broken rule. Without a `head_dim` it is
/// `hidden_size / num_attention_heads`.
pub(super) fn check_shape(s: &DecoderSettings, head_dim: Option<i64>) -> Result<(), String> {
    let positive = [
        ("hidden_size", s.hidden_size),
        ("num_hidden_layers", s.num_hidden_layers),
        ("num_attention_heads", s.num_attention_heads),
        ("num_key_value_heads", s.num_key_value_heads),
        ("intermediate_size", s.intermediate_size),
        ("max_position_embeddings", s.max_position_embeddings),
        ("vocab_size", s.vocab_size),
    ];
    if let Some((field, value)) = positive.iter().find(|(_, value)| *value < 1) {
        return Err(format!("{field} is {value}, but must be at least 1"));
    }
    match head_dim {
        Some(dim) if dim < 2 || dim % 2 != 0 => {
            return Err(format!(
                "head_dim is {dim}, but must be even and above 0, as pairs are rotated"
            ));
        }
        None if s.hidden_size % (2 * s.num_attention_heads) != 0 => {
            return Err(format!(
                "hidden_size is {}, but must be a multiple of 2 * num_attention_heads = {}",
                s.hidden_size,
                2 * s.num_attention_heads
            ));
        }
        _ => {}
    }
    if s.num_attention_heads % s.num_key_value_heads != 0 {
        return Err(format!(
            "num_attention_heads is {}, but must be a multiple of num_key_value_heads = {}",
            s.num_attention_heads, s.num_key_value_heads
        ));
    }
    if s.rope_theta.is_nan() || s.rope_theta <= 0.0 {
        return Err(format!(
            "rope_theta is {}, but must be above 0",
            s.rope_theta
        ));
    }
    Ok(())
}

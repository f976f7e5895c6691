//! The policy as a Hugging Face folder: config.json and model.safetensors.

use std::path::Path;

use serde_json::{Map, Value, json};
use tch::Device;

use crate::engine::EngineError;
use crate::experiment::DecoderSettings;

use super::decoder::Decoder;
use super::tensor_file::{TensorFile, bad_file, read, write_whole};
use super::weights::{Shape, slots};

/// File of the architecture.
pub(super) const CONFIG: &str = "config.json";
/// File of the weights.
pub(super) const WEIGHTS: &str = "model.safetensors";

/// Epsilon of the norms when config.json does not say.
pub(super) const NORM_EPS: f64 = 1e-6;

/// Reads a folder's decoder, and the fingerprint of its weights file.
///
/// # Errors
/// [`EngineError::BadFile`] naming the file, the field, the rule and the remedy.
pub(super) fn read_decoder(folder: &Path, device: Device) -> Result<(Decoder, u64), EngineError> {
    let shape = read_shape(folder)?;
    let path = folder.join(WEIGHTS);
    let bytes = read(&path)?;
    let mut file = TensorFile::parse(&path, &bytes)?;
    let tensors = slots(&shape)
        .iter()
        .map(|slot| file.take(&path, &slot.name, &slot.size))
        .collect::<Result<_, _>>()?;
    // A tied head may be stored a second time.
    file.tensors.remove("lm_head.weight");
    if let Some(name) = file.tensors.keys().next() {
        return Err(bad_file(
            &path,
            format!("{name:?} has no place in a Qwen2 decoder of the shape in {CONFIG}"),
            "config.json and the weights are not of the same model",
        ));
    }
    Ok((
        Decoder::assemble(shape, tensors, device),
        fingerprint(&bytes),
    ))
}

/// Writes config.json and model.safetensors; gives the fingerprint of the weights file.
///
/// # Errors
/// [`EngineError::Io`].
pub(super) fn write_decoder(decoder: &Decoder, folder: &Path) -> Result<u64, EngineError> {
    std::fs::create_dir_all(folder).map_err(|source| EngineError::Io {
        path: folder.to_path_buf(),
        source,
    })?;
    let file = TensorFile {
        tensors: decoder.exported().into_iter().collect(),
        note: None,
    };
    let bytes = file.bytes()?;
    write_whole(folder, WEIGHTS, &bytes)?;
    let config = format!("{:#}\n", config(&decoder.shape));
    write_whole(folder, CONFIG, config.as_bytes())?;
    Ok(fingerprint(&bytes))
}

/// FNV-1a over a file's eight-byte words: ties an optimizer file to the weights it belongs to.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// config.json as transformers writes it for `Qwen2ForCausalLM`; the rotary base stands in the old
/// place and in the new one.
fn config(shape: &Shape) -> Value {
    let s = &shape.settings;
    let end_of_text = match &shape.end_of_text[..] {
        [] => Value::Null,
        [id] => json!(id),
        ids => json!(ids),
    };
    json!({
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "attention_dropout": 0.0,
        "bos_token_id": null,
        "eos_token_id": end_of_text,
        "hidden_act": "silu",
        "hidden_size": s.hidden_size,
        "initializer_range": s.initializer_range,
        "intermediate_size": s.intermediate_size,
        "max_position_embeddings": s.max_position_embeddings,
        "num_attention_heads": s.num_attention_heads,
        "num_hidden_layers": s.num_hidden_layers,
        "num_key_value_heads": s.num_key_value_heads,
        "rms_norm_eps": shape.norm_eps,
        "rope_parameters": { "rope_type": "default", "rope_theta": s.rope_theta },
        "rope_theta": s.rope_theta,
        "tie_word_embeddings": true,
        "torch_dtype": "float32",
        "use_cache": true,
        "use_sliding_window": false,
        "vocab_size": s.vocab_size,
    })
}

/// Reads config.json and refuses what this decoder is not.
fn read_shape(folder: &Path) -> Result<Shape, EngineError> {
    let path = folder.join(CONFIG);
    let config: Map<String, Value> = serde_json::from_slice(&read(&path)?).map_err(|error| {
        bad_file(
            &path,
            format!("it is no JSON object ({error})"),
            "copy it again from the model",
        )
    })?;
    let config = Config {
        path: &path,
        fields: config,
    };
    config.demand("model_type", &json!("qwen2"), None)?;
    config.demand("hidden_act", &json!("silu"), Some(json!("silu")))?;
    config.demand("tie_word_embeddings", &json!(true), Some(json!(false)))?;
    config.demand("use_sliding_window", &json!(false), Some(json!(false)))?;
    config.demand("rope_scaling", &Value::Null, Some(Value::Null))?;

    let nested = config.fields.get("rope_parameters");
    if let Some(kind) = nested
        .and_then(|r| r.get("rope_type"))
        .filter(|k| *k != "default")
    {
        return Err(config.refusal("rope_parameters.rope_type", kind, "must be \"default\""));
    }
    let rope_theta = config
        .fields
        .get("rope_theta")
        .or_else(|| nested.and_then(|r| r.get("rope_theta")))
        .and_then(Value::as_f64)
        .unwrap_or(10_000.0);
    let number = |field: &str, default: f64| {
        let value = config.fields.get(field).and_then(Value::as_f64);
        value.unwrap_or(default)
    };
    let heads = config.count("num_attention_heads", None)?;
    let settings = DecoderSettings {
        hidden_size: config.count("hidden_size", None)?,
        num_hidden_layers: config.count("num_hidden_layers", None)?,
        num_attention_heads: heads,
        num_key_value_heads: config.count("num_key_value_heads", Some(heads))?,
        intermediate_size: config.count("intermediate_size", None)?,
        rope_theta,
        max_position_embeddings: config.count("max_position_embeddings", None)?,
        initializer_range: number("initializer_range", 0.02),
        vocab_size: config.count("vocab_size", None)?,
    };
    if let Err(rule) = check_shape(&settings) {
        return Err(bad_file(&path, rule, "correct the file"));
    }
    let end_of_text = match config.fields.get("eos_token_id") {
        Some(Value::Array(ids)) => ids.iter().filter_map(Value::as_i64).collect(),
        Some(id) => id.as_i64().into_iter().collect(),
        None => Vec::new(),
    };
    Ok(Shape {
        settings,
        norm_eps: number("rms_norm_eps", NORM_EPS),
        end_of_text,
    })
}

/// Checks that the numbers of a shape fit together; says the broken rule.
pub(super) fn check_shape(s: &DecoderSettings) -> Result<(), String> {
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
    if s.hidden_size % (2 * s.num_attention_heads) != 0 {
        return Err(format!(
            "hidden_size is {}, but must be a multiple of 2 * num_attention_heads = {}",
            s.hidden_size,
            2 * s.num_attention_heads
        ));
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

/// The fields of config.json.
struct Config<'a> {
    path: &'a Path,
    fields: Map<String, Value>,
}

impl Config<'_> {
    fn refusal(&self, field: &str, value: &Value, rule: &str) -> EngineError {
        bad_file(
            self.path,
            format!("{field} is {value}, but {rule}"),
            "use a Qwen2ForCausalLM folder with a tied head, such as Qwen2.5-0.5B",
        )
    }

    /// Refuses any value of `field` but `wanted`; an absent field counts as `default`.
    fn demand(
        &self,
        field: &str,
        wanted: &Value,
        default: Option<Value>,
    ) -> Result<(), EngineError> {
        let value = self.fields.get(field).cloned().or(default);
        let value = value.unwrap_or(Value::Null);
        if value == *wanted {
            return Ok(());
        }
        Err(self.refusal(field, &value, &format!("must be {wanted}")))
    }

    /// A whole number.
    fn count(&self, field: &str, default: Option<i64>) -> Result<i64, EngineError> {
        let value = self.fields.get(field).cloned().unwrap_or(Value::Null);
        value
            .as_i64()
            .or(default.filter(|_| value.is_null()))
            .ok_or_else(|| self.refusal(field, &value, "must be a whole number"))
    }
}

//! What the files of an encoder's folder say: the shape, and how its vectors are to be made.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use serde_json::{Map, Value};
use tch::{Kind, Tensor};
use twox_hash::XxHash3_128;

use crate::engine::EngineError;
use crate::torch::tensor_file::{bad_file, read};

/// File of the weights.
pub(super) const WEIGHTS: &str = "model.safetensors";
/// File that says which of several files holds a tensor.
const INDEX: &str = "model.safetensors.index.json";
const CONFIG: &str = "config.json";
/// bge's instruction before a query, for its English models.
const BGE_QUERY: &str = "Represent this sentence for searching relevant passages: ";

/// config.json, under its own field names.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct BertShape {
    pub folder: PathBuf,
    /// What the model is called there, if it says.
    pub name: String,
    pub hidden_size: i64,
    pub num_hidden_layers: i64,
    pub num_attention_heads: i64,
    pub intermediate_size: i64,
    pub max_position_embeddings: i64,
    pub type_vocab_size: i64,
    pub vocab_size: i64,
    pub norm_eps: f64,
    pub activation: Activation,
}

/// `hidden_act`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activation {
    Gelu,
    GeluTanh,
    Relu,
}

/// Which hidden states become the vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pooling {
    /// The mean over the tokens of the text.
    Mean,
    /// That of the first token, `[CLS]`.
    First,
}

/// How vectors are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Habits {
    pub pooling: Pooling,
    /// Vectors have length 1, so that inner products are cosines.
    pub normalize: bool,
    /// What a query begins with.
    pub query_prefix: String,
    /// What a passage begins with.
    pub passage_prefix: String,
    /// Most tokens of a text.
    pub longest: usize,
}

impl std::fmt::Display for Habits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pooled = match self.pooling {
            Pooling::Mean => "the mean of all tokens",
            Pooling::First => "the first token",
        };
        let length = if self.normalize { ", of length 1" } else { "" };
        write!(
            f,
            "{pooled}{length}; queries begin with {:?}, passages with {:?}; texts of at most {} tokens",
            self.query_prefix, self.passage_prefix, self.longest
        )
    }
}

/// Reads config.json.
pub(super) fn read_shape(folder: &Path) -> Result<BertShape, EngineError> {
    let path = folder.join(CONFIG);
    let fields = read_json(&path)?;
    let refuse = |field: &str, value: &Value, rule: &str| {
        bad_file(
            &path,
            format!("{field} is {value}, but must be {rule}"),
            "use a BERT encoder, such as e5, bge or MiniLM in their English versions",
        )
    };
    let field = |name: &str| fields.get(name).cloned().unwrap_or(Value::Null);
    let kind = field("model_type");
    if kind != "bert" {
        return Err(refuse("model_type", &kind, "\"bert\""));
    }
    let positions = field("position_embedding_type");
    if !positions.is_null() && positions != "absolute" {
        return Err(refuse(
            "position_embedding_type",
            &positions,
            "\"absolute\"",
        ));
    }
    let activation = match field("hidden_act").as_str() {
        Some("gelu") => Activation::Gelu,
        Some("gelu_new" | "gelu_pytorch_tanh") => Activation::GeluTanh,
        Some("relu") => Activation::Relu,
        _ => {
            return Err(refuse(
                "hidden_act",
                &field("hidden_act"),
                "gelu, gelu_new or relu",
            ));
        }
    };
    let count = |name: &str| match field(name).as_i64() {
        Some(count) if count > 0 => Ok(count),
        _ => Err(refuse(name, &field(name), "a whole number above 0")),
    };
    let shape = BertShape {
        folder: folder.to_owned(),
        name: field("_name_or_path").as_str().unwrap_or("").to_owned(),
        hidden_size: count("hidden_size")?,
        num_hidden_layers: count("num_hidden_layers")?,
        num_attention_heads: count("num_attention_heads")?,
        intermediate_size: count("intermediate_size")?,
        max_position_embeddings: count("max_position_embeddings")?,
        type_vocab_size: count("type_vocab_size")?,
        vocab_size: count("vocab_size")?,
        norm_eps: field("layer_norm_eps").as_f64().unwrap_or(1e-12),
        activation,
    };
    if shape.hidden_size % shape.num_attention_heads != 0 {
        let rule = format!(
            "a multiple of num_attention_heads {}",
            shape.num_attention_heads
        );
        return Err(refuse("hidden_size", &shape.hidden_size.into(), &rule));
    }
    Ok(shape)
}

/// Reads what sentence-transformers wrote beside the model; what is missing follows from the name.
pub(super) fn read_habits(folder: &Path, shape: &BertShape) -> Result<Habits, EngineError> {
    // A link does not rename a model.
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let last = real.file_name().unwrap_or_default().to_string_lossy();
    let cached = name_in_cache(&real);
    let name = format!("{last} {cached} {}", shape.name).to_lowercase();
    // As a word: letters that happen to stand in a folder's name say nothing.
    let is = |family: &str| {
        name.split(|letter: char| !letter.is_ascii_alphanumeric())
            .any(|word| word == family)
    };
    let (pooling, normalize) = match read_modules(folder)? {
        Some(said) => said,
        // As Search-R1 and the models' own pages have it.
        None if is("bge") => (Pooling::First, true),
        None => (Pooling::Mean, !is("dpr")),
    };
    let by_name = if is("e5") {
        ("query: ", "passage: ")
    } else if is("bge") {
        (BGE_QUERY, "")
    } else {
        ("", "")
    };
    let prompts = read_optional(&folder.join("config_sentence_transformers.json"))?
        .and_then(|file| file.get("prompts").cloned())
        .unwrap_or(Value::Null);
    let prefix = |names: &[&str], otherwise: &str| {
        names
            .iter()
            .find_map(|name| prompts.get(*name)?.as_str())
            .filter(|said| !said.is_empty())
            .unwrap_or(otherwise)
            .to_owned()
    };
    let positions = shape.max_position_embeddings as usize;
    let said = read_optional(&folder.join("sentence_bert_config.json"))?
        .and_then(|file| file.get("max_seq_length")?.as_u64())
        .map_or(positions, |tokens| tokens as usize);
    Ok(Habits {
        pooling,
        normalize,
        query_prefix: prefix(&["query"], by_name.0),
        passage_prefix: prefix(&["passage", "document", "corpus"], by_name.1),
        longest: said.clamp(2, positions.max(2)),
    })
}

/// The name of a model in the cache of the Hugging Face Hub, `models--ORGANISATION--NAME/snapshots/..`;
/// empty elsewhere.
fn name_in_cache(folder: &Path) -> String {
    let mut above = folder.ancestors().filter_map(Path::file_name);
    above
        .find_map(|part| Some(part.to_str()?.strip_prefix("models--")?.to_owned()))
        .unwrap_or_default()
}

/// Pooling and normalisation as modules.json has them; none without that file.
fn read_modules(folder: &Path) -> Result<Option<(Pooling, bool)>, EngineError> {
    let path = folder.join("modules.json");
    if !path.exists() {
        return Ok(None);
    }
    let modules: Vec<Map<String, Value>> =
        serde_json::from_slice(&read(&path)?).map_err(|error| not_json(&path, &error))?;
    let (mut pooling, mut normalize) = (None, false);
    for module in &modules {
        let text = |name: &str| module.get(name).and_then(Value::as_str).unwrap_or("");
        let kind = text("type").rsplit('.').next().unwrap_or("");
        match kind {
            "Transformer" => {}
            "Pooling" => pooling = Some(read_pooling(&folder.join(text("path")))?),
            "Normalize" => normalize = true,
            other => {
                return Err(bad_file(
                    &path,
                    format!("the module {other:?} is none of Transformer, Pooling, Normalize"),
                    "use an encoder without further layers, such as e5, bge or MiniLM",
                ));
            }
        }
    }
    Ok(Some((pooling.unwrap_or(Pooling::Mean), normalize)))
}

fn read_pooling(folder: &Path) -> Result<Pooling, EngineError> {
    let path = folder.join(CONFIG);
    let fields = read_json(&path)?;
    if let Some(mode) = fields.get("pooling_mode").and_then(Value::as_str) {
        match mode {
            "mean" => return Ok(Pooling::Mean),
            "cls" => return Ok(Pooling::First),
            _ => {}
        }
    }
    let on: Vec<&str> = fields
        .iter()
        .filter(|(name, value)| name.starts_with("pooling_mode_") && **value == Value::Bool(true))
        .map(|(name, _)| name.as_str())
        .collect();
    match on[..] {
        ["pooling_mode_mean_tokens"] => Ok(Pooling::Mean),
        ["pooling_mode_cls_token"] => Ok(Pooling::First),
        _ => Err(bad_file(
            &path,
            format!(
                "it pools by {on:?}, but only pooling_mode_mean_tokens or pooling_mode_cls_token, one of them, is known"
            ),
            "use an encoder that takes the mean or the first token",
        )),
    }
}

/// The weights as f32 on the CPU, and a hash of their files: one file, or those that an index names.
pub(super) fn read_tensors(folder: &Path) -> Result<(BTreeMap<String, Tensor>, u128), EngineError> {
    let index = folder.join(INDEX);
    let files: BTreeSet<String> = if index.exists() && !folder.join(WEIGHTS).exists() {
        let said = read_json(&index)?;
        let map = said.get("weight_map").and_then(Value::as_object);
        map.into_iter()
            .flat_map(Map::values)
            .filter_map(|file| file.as_str().map(str::to_owned))
            .collect()
    } else {
        BTreeSet::from([WEIGHTS.to_owned()])
    };
    let (mut tensors, mut hash) = (BTreeMap::new(), XxHash3_128::new());
    for file in files {
        let path = folder.join(file);
        let bytes = read(&path)?;
        hash.write(&bytes);
        read_file(&path, &bytes, &mut tensors)?;
    }
    Ok((tensors, hash.finish_128()))
}

/// A hash of a file.
pub(super) fn hash_of(path: &Path) -> Result<u128, EngineError> {
    Ok(XxHash3_128::oneshot(&read(path)?))
}

/// Adds the tensors of one file.
fn read_file(
    path: &Path,
    bytes: &[u8],
    tensors: &mut BTreeMap<String, Tensor>,
) -> Result<(), EngineError> {
    let damaged = |error: &dyn std::fmt::Display| {
        bad_file(
            path,
            format!("it is no whole safetensors file ({error})"),
            "the file is damaged or of another kind: copy it again",
        )
    };
    let file = SafeTensors::deserialize(bytes).map_err(|error| damaged(&error))?;
    for (name, view) in file.iter() {
        let kind = match view.dtype() {
            safetensors::Dtype::F32 => Kind::Float,
            safetensors::Dtype::BF16 => Kind::BFloat16,
            safetensors::Dtype::F16 => Kind::Half,
            // Old files keep the numbers of the positions.
            _ => continue,
        };
        let size: Vec<i64> = view.shape().iter().map(|&n| n as i64).collect();
        let tensor =
            Tensor::f_from_data_size(view.data(), &size, kind).map_err(|error| damaged(&error))?;
        tensors.insert(name.to_owned(), tensor.to_kind(Kind::Float));
    }
    Ok(())
}

fn read_optional(path: &Path) -> Result<Option<Map<String, Value>>, EngineError> {
    if path.exists() {
        read_json(path).map(Some)
    } else {
        Ok(None)
    }
}

fn read_json(path: &Path) -> Result<Map<String, Value>, EngineError> {
    serde_json::from_slice(&read(path)?).map_err(|error| not_json(path, &error))
}

fn not_json(path: &Path, error: &serde_json::Error) -> EngineError {
    bad_file(
        path,
        format!("it is not the JSON of an encoder ({error})"),
        "copy it again from the model",
    )
}

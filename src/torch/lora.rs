//! Adapters (LoRA; Hu et al., 2021) as PEFT stores them: a folder with `adapter_config.json` and
//! `adapter_model.safetensors`. A checkpoint has that folder beside the weights that the adapters stand on.

use std::collections::BTreeMap;
use std::path::Path;

use rand::Rng as _;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tch::{Kind, Tensor};

use crate::engine::EngineError;
use crate::experiment::{LoraSettings, LoraTarget};
use crate::random::{self, Domain};

use super::decoder::Decoder;
use super::linear::Adapter;
use super::tensor_file::{TensorFile, bad_file, read, write, write_whole};
use super::variants::MATRICES;

/// The folder of the adapters inside a checkpoint.
pub(super) const FOLDER: &str = "adapter";
/// The file of their values.
pub(super) const VALUES: &str = "adapter_model.safetensors";
const CONFIG: &str = "adapter_config.json";
const REMEDY: &str = "train the adapter with plain LoRA, or merge it with PEFT (merge_and_unload) and load the \
                      merged folder";

/// The Hugging Face matrices that are fused in each of [`MATRICES`].
const FUSED: [&[LoraTarget]; 4] = [
    &[LoraTarget::Q, LoraTarget::K, LoraTarget::V],
    &[LoraTarget::O],
    &[LoraTarget::Gate, LoraTarget::Up],
    &[LoraTarget::Down],
];

/// What PEFT's file says, as far as it matters here.
#[derive(Serialize, Deserialize)]
struct Config {
    peft_type: String,
    #[serde(default)]
    task_type: Option<String>,
    #[serde(default)]
    base_model_name_or_path: Option<String>,
    r: i64,
    lora_alpha: f64,
    target_modules: Vec<String>,
    #[serde(default)]
    lora_dropout: f64,
    #[serde(default = "none")]
    bias: String,
    #[serde(default)]
    use_rslora: bool,
    /// Everything else; what changes the sums is refused.
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

fn none() -> String {
    "none".to_owned()
}

/// Puts new adapters on a decoder without any: down uniform in ±1/sqrt(in), as PEFT begins, and up 0, so
/// that the decoder says at first what it said before.
pub(super) fn begin(decoder: &mut Decoder, settings: &LoraSettings, seed: u64) {
    let (rank, device) = (i64::from(settings.rank), decoder.device);
    place(decoder, settings, |layer, target, part, size| {
        if part == "lora_B" {
            return Ok::<_, EngineError>(Tensor::zeros(size, (Kind::Float, device)));
        }
        let number = (layer * LoraTarget::ALL.len()) as u32 + target as u32;
        let mut rng = random::stream(seed, Domain::Weights, number, 2, 0);
        let bound = 1.0 / (size[1] as f64).sqrt();
        let values: Vec<f32> = (0..rank * size[1])
            .map(|_| {
                let unit = (rng.next_u64() >> 11) as f64 / 9_007_199_254_740_992.0;
                (bound * (2.0 * unit - 1.0)) as f32
            })
            .collect();
        Ok(Tensor::from_slice(&values).view(size).to_device(device))
    })
    .unwrap_or_default();
}

/// Puts adapters on a decoder; `next(layer, target, part, size)` gives their values, `part` being `lora_A`
/// or `lora_B`.
fn place<E>(
    decoder: &mut Decoder,
    settings: &LoraSettings,
    mut next: impl FnMut(usize, LoraTarget, &str, &[i64]) -> Result<Tensor, E>,
) -> Result<(), E> {
    let rank = i64::from(settings.rank);
    let rows = decoder.fused_rows();
    let mut failed = None;
    decoder.adapt(|layer, number, weight| {
        let (targets, rows) = (FUSED[number], &rows[number]);
        let adapted = |target: &LoraTarget| settings.targets.contains(target);
        if failed.is_some() || !targets.iter().any(adapted) {
            return None;
        }
        let (mut down, mut up) = (Vec::new(), Vec::new());
        for (target, &rows) in targets.iter().zip(rows).filter(|(of, _)| adapted(of)) {
            let both = next(layer, *target, "lora_A", &[rank, weight.size()[1]])
                .and_then(|a| Ok((a, next(layer, *target, "lora_B", &[rows, rank])?)));
            match both {
                Ok(both) => {
                    down.push(both.0);
                    up.push(both.1);
                }
                Err(error) => {
                    failed = Some(error);
                    return None;
                }
            }
        }
        let leaf = |parts: &[Tensor]| Tensor::cat(parts, 0).detach().set_requires_grad(true);
        Some(Adapter {
            down: leaf(&down),
            up: leaf(&up),
            parts: rows
                .iter()
                .zip(targets)
                .map(|(&rows, of)| (rows, adapted(of)))
                .collect(),
            rank,
            scale: f64::from(settings.alpha) / f64::from(settings.rank),
        })
    });
    failed.map_or(Ok(()), Err)
}

/// PEFT's name of a small matrix.
fn key(layer: usize, target: LoraTarget, part: &str) -> String {
    let within = match target {
        LoraTarget::Q | LoraTarget::K | LoraTarget::V | LoraTarget::O => "self_attn",
        LoraTarget::Gate | LoraTarget::Up | LoraTarget::Down => "mlp",
    };
    let name = target.name();
    format!("base_model.model.model.layers.{layer}.{within}.{name}.{part}.weight")
}

/// Writes the adapters of `decoder` into `folder`, the checkpoint, or removes what an earlier save left there
/// if it has none.
///
/// # Errors
/// [`EngineError::Io`].
pub(super) fn save(decoder: &Decoder, folder: &Path) -> Result<(), EngineError> {
    let folder = folder.join(FOLDER);
    let io = |source| EngineError::Io {
        path: folder.clone(),
        source,
    };
    let (mut tensors, mut targets, mut about) = (Vec::new(), Vec::new(), None);
    for (layer, number, adapter) in decoder.adapters() {
        about = Some((adapter.rank, adapter.scale * adapter.rank as f64));
        let adapted = FUSED[number]
            .iter()
            .zip(&adapter.parts)
            .filter(|(_, part)| part.1);
        let (downs, ups) = adapter.pairs();
        for (((target, _), down), up) in adapted.zip(downs).zip(ups) {
            tensors.push((key(layer, *target, "lora_A"), down));
            tensors.push((key(layer, *target, "lora_B"), up));
            if !targets.contains(target) {
                targets.push(*target);
            }
        }
    }
    let Some((rank, alpha)) = about else {
        return match folder.exists() {
            true => std::fs::remove_dir_all(&folder).map_err(io),
            false => Ok(()),
        };
    };
    std::fs::create_dir_all(&folder).map_err(io)?;
    let config = Config {
        peft_type: "LORA".into(),
        task_type: Some("CAUSAL_LM".into()),
        base_model_name_or_path: None,
        r: rank,
        lora_alpha: alpha,
        target_modules: targets
            .iter()
            .map(|target| target.name().to_owned())
            .collect(),
        lora_dropout: 0.0,
        bias: none(),
        use_rslora: false,
        rest: BTreeMap::from([("inference_mode".to_owned(), Value::Bool(true))]),
    };
    write(&folder, VALUES, tensors, None)?;
    let text = serde_json::to_string_pretty(&config)
        .map_err(|error| EngineError::Backend(error.to_string()))?;
    write_whole(&folder, CONFIG, format!("{text}\n").as_bytes())
}

/// Puts the adapters that lie in the checkpoint `folder` on its decoder; none lie there: none are put on.
///
/// # Errors
/// [`EngineError::BadFile`] naming the file, the field or tensor, the rule and the remedy.
pub(super) fn load(decoder: &mut Decoder, folder: &Path) -> Result<(), EngineError> {
    let folder = folder.join(FOLDER);
    if !folder.exists() {
        return Ok(());
    }
    let path = folder.join(CONFIG);
    let config: Config = serde_json::from_slice(&read(&path)?).map_err(|error| {
        bad_file(
            &path,
            format!("it is no LoRA config of PEFT ({error})"),
            REMEDY,
        )
    })?;
    let settings = settings_of(&path, &config)?;
    let mut file = TensorFile::open(&folder.join(VALUES))?;
    let device = decoder.device;
    place(decoder, &settings, |layer, target, part, size| {
        Ok::<_, EngineError>(
            file.take(&key(layer, target, part), size)?
                .to_device(device),
        )
    })?;
    match file.names().next() {
        None => Ok(()),
        Some(name) => Err(bad_file(
            file.path(),
            format!(
                "{name:?} belongs to no matrix that target_modules of {CONFIG} names in this decoder"
            ),
            "take the adapter that was trained on this model",
        )),
    }
}

/// Refuses what changes the sums and is not built.
fn settings_of(path: &Path, config: &Config) -> Result<LoraSettings, EngineError> {
    let refuse = |field: &str, value: String, rule: &str| {
        Err(bad_file(
            path,
            format!("{field} is {value}, but {rule}"),
            REMEDY,
        ))
    };
    if config.peft_type != "LORA" {
        return refuse(
            "peft_type",
            format!("{:?}", config.peft_type),
            "must be \"LORA\"",
        );
    }
    if !(1..=4096).contains(&config.r) {
        return refuse("r", config.r.to_string(), "must lie from 1 to 4096");
    }
    if config.lora_alpha.is_nan() || config.lora_alpha <= 0.0 {
        return refuse(
            "lora_alpha",
            config.lora_alpha.to_string(),
            "must be above 0",
        );
    }
    if config.bias != "none" {
        return refuse("bias", format!("{:?}", config.bias), "must be \"none\"");
    }
    let changing = [
        "use_dora",
        "fan_in_fan_out",
        "rank_pattern",
        "alpha_pattern",
        "modules_to_save",
        "layers_to_transform",
        "layers_pattern",
        "layer_replication",
        "lora_bias",
        "trainable_token_indices",
        "target_parameters",
        "alora_invocation_tokens",
        "use_qalora",
        "exclude_modules",
    ];
    let empty = |value: &Value| match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    for field in changing {
        if let Some(value) = config.rest.get(field).filter(|value| !empty(value)) {
            return refuse(field, value.to_string(), "must be empty: it is not built");
        }
    }
    let mut targets = Vec::new();
    for name in &config.target_modules {
        let known = LoraTarget::ALL
            .into_iter()
            .find(|target| target.name() == name);
        match known {
            Some(target) => targets.push(target),
            None => {
                let names = LoraTarget::ALL.map(LoraTarget::name).join(", ");
                let rule = format!("must be a list of {names}");
                return refuse(
                    "target_modules",
                    format!("{:?}", config.target_modules),
                    &rule,
                );
            }
        }
    }
    let rank = config.r as f64;
    let alpha = match config.use_rslora {
        true => config.lora_alpha * rank.sqrt(), // divided by the root of the rank, not by the rank
        false => config.lora_alpha,
    };
    Ok(LoraSettings {
        rank: config.r as u32,
        alpha: alpha as f32,
        targets,
    })
}

const _: () = assert!(FUSED.len() == MATRICES.len());

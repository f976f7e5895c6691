//! The weights of a Hugging Face folder: one safetensors file, or several with an index.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use tch::Tensor;

use crate::engine::EngineError;

use super::tensor_file::{TensorFile, bad_file, read};
use super::weights::{Shape, Slot, slots};

/// File of the weights when there is one.
pub(super) const WEIGHTS: &str = "model.safetensors";
/// File that says which of several files holds a tensor.
const INDEX: &str = "model.safetensors.index.json";

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// A folder's weights, open for reading.
pub(super) struct WeightFiles {
    files: Vec<TensorFile>,
    /// Which file holds a tensor.
    home: BTreeMap<String, usize>,
}

impl WeightFiles {
    /// Maps the files and checks that every tensor of the shape is there, and no other.
    ///
    /// # Errors
    /// [`EngineError::BadFile`] naming the file, the tensor, the rule and the remedy.
    pub fn open(folder: &Path, shape: &Shape) -> Result<Self, EngineError> {
        let (single, index) = (folder.join(WEIGHTS), folder.join(INDEX));
        let weights = if !single.exists() && index.exists() {
            Self::open_several(folder, &index)?
        } else {
            let pickled = folder.join("pytorch_model.bin");
            if !single.exists() && pickled.exists() {
                return Err(bad_file(
                    &pickled,
                    "pickled weights are not read, as they can run code",
                    "save the model as safetensors (save_pretrained of transformers does)",
                ));
            }
            Self::open_one(&single)?
        };
        weights.check(shape)?;
        Ok(weights)
    }

    fn open_one(path: &Path) -> Result<Self, EngineError> {
        let file = TensorFile::open(path)?;
        let home = file.names().map(|name| (name.to_owned(), 0)).collect();
        Ok(Self {
            files: vec![file],
            home,
        })
    }

    fn open_several(folder: &Path, path: &Path) -> Result<Self, EngineError> {
        let index: Index = serde_json::from_slice(&read(path)?).map_err(|error| {
            bad_file(
                path,
                format!("it is no index with a \"weight_map\" ({error})"),
                "copy it again from the model",
            )
        })?;
        let names: BTreeSet<&str> = index.weight_map.values().map(String::as_str).collect();
        if names.is_empty() {
            return Err(bad_file(
                path,
                "\"weight_map\" names no file",
                "copy it again from the model",
            ));
        }
        let mut files = Vec::new();
        let mut number = BTreeMap::new();
        for name in names {
            if Path::new(name).file_name() != Some(name.as_ref()) {
                return Err(bad_file(
                    path,
                    format!("\"weight_map\" names {name:?}, which is no file beside it"),
                    "copy it again from the model",
                ));
            }
            let shard = folder.join(name);
            if !shard.exists() {
                return Err(bad_file(
                    &shard,
                    format!("this shard is missing, but \"weight_map\" of {INDEX} names it"),
                    "copy all shards of the model",
                ));
            }
            number.insert(name, files.len());
            files.push(TensorFile::open(&shard)?);
        }
        let home = index
            .weight_map
            .iter()
            .filter_map(|(tensor, file)| Some((tensor.clone(), *number.get(file.as_str())?)))
            .collect();
        Ok(Self { files, home })
    }

    /// Checks every header before a number is read.
    fn check(&self, shape: &Shape) -> Result<(), EngineError> {
        let mut surplus: BTreeMap<&str, usize> = self
            .home
            .iter()
            .map(|(name, &file)| (name.as_str(), file))
            .collect();
        let slots = slots(shape);
        for slot in &slots {
            surplus.remove(slot.name.as_str());
            self.file_of(&slot.name)?.check(&slot.name, &slot.size)?;
        }
        // A tied head may be stored a second time; old Llama files hold rotary tables.
        surplus.retain(|name, _| {
            !(shape.tied && *name == "lm_head.weight" || name.ends_with(".rotary_emb.inv_freq"))
        });
        match surplus.first_key_value() {
            None => Ok(()),
            Some((name, _)) => Err(bad_file(
                self.file_of(name)?.path(),
                format!("{name:?} has no place in a decoder of the shape in config.json"),
                "config.json and the weights are not of the same model",
            )),
        }
    }

    /// The file that must hold the tensor `name`.
    fn file_of(&self, name: &str) -> Result<&TensorFile, EngineError> {
        // A tensor that no file claims is missing from the first.
        let at = self.home.get(name).copied().unwrap_or(0);
        self.files.get(at).ok_or_else(|| {
            EngineError::Backend(format!("the index names no file, so {name:?} is missing"))
        })
    }

    /// Takes the tensor of a slot out, as f32 on the CPU.
    ///
    /// # Errors
    /// As [`WeightFiles::open`], and for values that are not finite.
    pub fn take(&mut self, slot: &Slot) -> Result<Tensor, EngineError> {
        let at = self.home.get(&slot.name).copied().unwrap_or(0);
        match self.files.get_mut(at) {
            Some(file) => file.take(&slot.name, &slot.size),
            None => Err(EngineError::Backend(format!("{:?} is missing", slot.name))),
        }
    }
}

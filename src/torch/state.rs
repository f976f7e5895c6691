//! What training carries besides the weights, and its file: optimizer.safetensors.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tch::Tensor;

use crate::engine::EngineError;

use super::checkpoint::fingerprint;
use super::decoder::Decoder;
use super::optimizer::AdamW;
use super::supervise::{Aid, ColdStart};
use super::tensor_file::{TensorFile, bad_file, write};

const FILE: &str = "optimizer.safetensors";

/// Optimizers of both stages, and the copies of the policy.
#[derive(Default)]
pub(super) struct TrainingState {
    pub cold_start: ColdStart,
    /// AdamW of the RL stage.
    pub learner: AdamW,
    /// The policy at the start of RL.
    pub reference: Option<Decoder>,
    /// The moving average of the policy.
    pub average: Option<Decoder>,
}

/// Counters, and what the file belongs to; stored as JSON in the file's metadata.
#[derive(Serialize, Deserialize)]
struct Note {
    /// Fingerprint of the weights file it was saved with.
    weights: String,
    cold_start_steps: i64,
    aid_steps: i64,
    learner_steps: i64,
    /// Whether the reference is the policy without its adapters, which is not stored a second time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    reference_is_base: bool,
}

impl TrainingState {
    /// Writes everything beside the weights that were saved into the folder.
    ///
    /// # Errors
    /// [`EngineError::Io`].
    pub fn save(&self, folder: &Path, policy: &Decoder) -> Result<(), EngineError> {
        let weights = fingerprint(folder)?;
        let cold = &self.cold_start;
        let note = Note {
            weights: format!("{weights:016x}"),
            cold_start_steps: cold.adam.steps,
            aid_steps: cold.aid.as_ref().map_or(0, |aid| aid.adam.steps),
            learner_steps: self.learner.steps,
            reference_is_base: policy.has_adapters() && self.reference.is_some(),
        };
        let note = serde_json::to_string(&note)
            .map_err(|error| EngineError::Backend(error.to_string()))?;
        let mut tensors = Vec::new();
        let mut add = |name: String, tensor: &Tensor| tensors.push((name, tensor.shallow_clone()));
        for (name, momentum) in &cold.muon.momenta {
            add(format!("muon.{name}"), momentum);
        }
        let aid_adam = cold.aid.as_ref().map(|aid| ("aid_adam", &aid.adam));
        let adams = [("cold_adam", &cold.adam), ("learner", &self.learner)];
        for (prefix, adam) in adams.into_iter().chain(aid_adam) {
            for (name, (first, second)) in &adam.moments {
                add(format!("{prefix}.first.{name}"), first);
                add(format!("{prefix}.second.{name}"), second);
            }
        }
        for (number, probe) in cold
            .aid
            .iter()
            .flat_map(|aid| aid.probes.iter().enumerate())
        {
            add(format!("aid.{number}"), &probe.tensor);
        }
        for (prefix, copy) in [("reference", &self.reference), ("average", &self.average)] {
            let Some(copy) = copy else { continue };
            if !policy.has_adapters() {
                for (name, tensor) in copy.exported() {
                    add(format!("{prefix}.{name}"), &tensor);
                }
            }
            // What the adapters stand on is the policy's, and stored with it.
            for adapter in copy.parameters().iter().filter(|_| copy.has_adapters()) {
                add(format!("{prefix}.{}", adapter.name), &adapter.tensor);
            }
        }
        write(folder, FILE, tensors, Some(note))
    }

    /// Reads back what [`TrainingState::save`] wrote for `decoder`, which was read from the folder.
    ///
    /// # Errors
    /// [`EngineError::BadFile`].
    pub fn load(folder: &Path, decoder: &Decoder) -> Result<Self, EngineError> {
        let weights = fingerprint(folder)?;
        let path = folder.join(FILE);
        let remedy = "take a folder that was saved with its optimizer, or begin anew without it";
        let file = TensorFile::open(&path)?;
        let note: Note = file
            .note
            .as_deref()
            .and_then(|note| serde_json::from_str(note).ok())
            .ok_or_else(|| bad_file(&path, "it lacks the counters of the optimizers", remedy))?;
        if note.weights != format!("{weights:016x}") {
            return Err(bad_file(
                &path,
                format!(
                    "it belongs to weights {:?}, but model.safetensors beside it is {weights:016x}",
                    note.weights
                ),
                remedy,
            ));
        }
        let mut reader = Reader { file, decoder };
        let mut state = Self {
            cold_start: ColdStart {
                adam: reader.adam("cold_adam", note.cold_start_steps)?,
                ..ColdStart::default()
            },
            learner: reader.adam("learner", note.learner_steps)?,
            reference: match note.reference_is_base {
                true => Some(decoder.without_adapters()),
                false => reader.copy("reference")?,
            },
            average: reader.copy("average")?,
        };
        for name in reader.names("muon.") {
            let momentum = reader.take("muon.", &name)?;
            state.cold_start.muon.momenta.insert(name, momentum);
        }
        let mut probes = Vec::new();
        for name in reader.names("aid.") {
            probes.push(reader.take("", &format!("aid.{name}"))?);
        }
        if !probes.is_empty() {
            let adam = reader.adam("aid_adam", note.aid_steps)?;
            state.cold_start.aid = Some(Aid::assemble(probes, adam));
        }
        Ok(state)
    }
}

/// Takes state tensors out of a file, sized as the decoder's parameters.
struct Reader<'a> {
    file: TensorFile,
    decoder: &'a Decoder,
}

impl Reader<'_> {
    /// What follows `prefix` in the keys that begin with it, sorted.
    fn names(&self, prefix: &str) -> Vec<String> {
        let keys = self.file.names();
        keys.filter_map(|key| key.strip_prefix(prefix))
            .map(str::to_owned)
            .collect()
    }

    /// The tensor `prefix` + `name`, which must have the size of the parameter `name`.
    fn take(&mut self, prefix: &str, name: &str) -> Result<Tensor, EngineError> {
        let width = self.decoder.shape.settings.hidden_size;
        let parameter = self
            .decoder
            .parameters()
            .into_iter()
            .find(|p| p.name == name);
        let size = match parameter {
            Some(parameter) => parameter.tensor.size(),
            None => vec![width, width], // a probe of the aid
        };
        let tensor = self.file.take(&format!("{prefix}{name}"), &size)?;
        Ok(tensor.to_device(self.decoder.device))
    }

    fn adam(&mut self, prefix: &str, steps: i64) -> Result<AdamW, EngineError> {
        let mut adam = AdamW {
            steps,
            ..AdamW::default()
        };
        for name in self.names(&format!("{prefix}.first.")) {
            let first = self.take(&format!("{prefix}.first."), &name)?;
            let second = self.take(&format!("{prefix}.second."), &name)?;
            adam.moments.insert(name, (first, second));
        }
        Ok(adam)
    }

    /// A copy of the policy; none if the file holds none.
    fn copy(&mut self, prefix: &str) -> Result<Option<Decoder>, EngineError> {
        if self.names(&format!("{prefix}.")).is_empty() {
            return Ok(None);
        }
        if self.decoder.has_adapters() {
            let copy = self.decoder.copy();
            for parameter in copy.parameters() {
                let value = self.take(&format!("{prefix}."), &parameter.name)?;
                tch::no_grad(|| parameter.tensor.shallow_clone().copy_(&value));
            }
            return Ok(Some(copy));
        }
        let (shape, device) = (self.decoder.shape.clone(), self.decoder.device);
        let copy = Decoder::assemble_from(shape, device, |slot| {
            self.file
                .take(&format!("{prefix}.{}", slot.name), &slot.size)
        })?;
        Ok(Some(copy))
    }
}

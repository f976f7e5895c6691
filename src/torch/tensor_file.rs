//! Safetensors files: read with every defect named, written under a temporary name and renamed.

use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;
use std::path::Path;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use tch::{Device, Kind, Tensor};

use crate::engine::EngineError;

/// Where what we say about the file stands in its metadata.
const NOTE: &str = "palimpsest";

/// Tensors by name, and a note.
pub(super) struct TensorFile {
    pub tensors: BTreeMap<String, Tensor>,
    pub note: Option<String>,
}

/// An error about a file: what is wrong, and what to do.
pub(super) fn bad_file(
    path: &Path,
    problem: impl std::fmt::Display,
    remedy: impl std::fmt::Display,
) -> EngineError {
    EngineError::BadFile {
        path: path.to_path_buf(),
        problem: problem.to_string(),
        remedy: remedy.to_string(),
    }
}

/// Reads a file whole.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, EngineError> {
    std::fs::read(path).map_err(|error| {
        bad_file(
            path,
            format!("it cannot be read ({error})"),
            "point to a folder that holds config.json and model.safetensors",
        )
    })
}

impl TensorFile {
    /// Reads f32, bf16 and f16 tensors as f32 on the CPU.
    ///
    /// # Errors
    /// [`EngineError::BadFile`] for a missing, truncated or foreign file, and for values that are
    /// not finite.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, EngineError> {
        let again = "the file is damaged or of another kind: copy it again";
        let broken = |error| {
            bad_file(
                path,
                format!("it is no whole safetensors file ({error})"),
                again,
            )
        };
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(broken)?;
        let file = SafeTensors::deserialize(bytes).map_err(broken)?;
        let mut tensors = BTreeMap::new();
        for (name, view) in file.iter() {
            let kind = match view.dtype() {
                Dtype::F32 => Kind::Float,
                Dtype::BF16 => Kind::BFloat16,
                Dtype::F16 => Kind::Half,
                other => {
                    return Err(bad_file(
                        path,
                        format!("{name:?} is {other:?}, but tensors must be F32, BF16 or F16"),
                        "convert the weights",
                    ));
                }
            };
            let size: Vec<i64> = view.shape().iter().map(|&n| n as i64).collect();
            let tensor = Tensor::f_from_data_size(view.data(), &size, kind)
                .map_err(|error| bad_file(path, format!("{name:?}: {error}"), again))?
                .to_kind(Kind::Float);
            if tensor.isfinite().all().int64_value(&[]) == 0 {
                return Err(bad_file(
                    path,
                    format!("{name:?} holds values that are not finite"),
                    "take an earlier checkpoint",
                ));
            }
            tensors.insert(name.to_owned(), tensor);
        }
        let note = metadata
            .metadata()
            .as_ref()
            .and_then(|m| m.get(NOTE).cloned());
        Ok(Self { tensors, note })
    }

    /// Takes the tensor `name` out, which must have this size.
    ///
    /// # Errors
    /// [`EngineError::BadFile`] naming the key and the size.
    pub fn take(&mut self, path: &Path, name: &str, size: &[i64]) -> Result<Tensor, EngineError> {
        let Some(tensor) = self.tensors.remove(name) else {
            return Err(bad_file(
                path,
                format!("{name:?} is missing"),
                "the file belongs to another architecture or was not written whole",
            ));
        };
        if tensor.size() != size {
            return Err(bad_file(
                path,
                format!("{name:?} is {:?}, but must be {size:?}", tensor.size()),
                "config.json and the weights are not of the same model",
            ));
        }
        Ok(tensor)
    }

    /// The file's bytes: f32, in an order that only the names decide.
    ///
    /// # Errors
    /// [`EngineError::Backend`].
    pub fn bytes(&self) -> Result<Vec<u8>, EngineError> {
        let data: Vec<(&String, Vec<usize>, Vec<u8>)> = self
            .tensors
            .iter()
            .map(|(name, tensor)| {
                let tensor = tensor
                    .detach()
                    .to_device(Device::Cpu)
                    .to_kind(Kind::Float)
                    .contiguous();
                let mut bytes = vec![0u8; tensor.numel() * 4];
                tensor.copy_data_u8(&mut bytes, tensor.numel());
                let size = tensor.size().iter().map(|&n| n as usize).collect();
                (name, size, bytes)
            })
            .collect();
        let backend = |error: safetensors::SafeTensorError| EngineError::Backend(error.to_string());
        let views: Vec<(&String, TensorView<'_>)> = data
            .iter()
            .map(|(name, size, bytes)| {
                Ok((
                    *name,
                    TensorView::new(Dtype::F32, size.clone(), bytes).map_err(backend)?,
                ))
            })
            .collect::<Result<_, EngineError>>()?;
        // One entry, so that the map's order cannot reach the file. transformers wants `format`,
        // so a file of weights carries that one instead of a note.
        let metadata = match &self.note {
            Some(note) => HashMap::from([(NOTE.to_owned(), note.clone())]),
            None => HashMap::from([("format".to_owned(), "pt".to_owned())]),
        };
        safetensors::serialize(views, Some(metadata)).map_err(backend)
    }
}

/// Writes a file so that a reader sees the old one or the new one, never a part.
///
/// # Errors
/// [`EngineError::Io`].
pub(super) fn write_whole(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), EngineError> {
    let path = folder.join(name);
    let partial = folder.join(format!(".{name}.partial"));
    let write = || {
        let mut file = std::fs::File::create(&partial)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&partial, &path)
    };
    write().map_err(|source| EngineError::Io {
        path: path.clone(),
        source,
    })
}

//! Safetensors files: mapped into memory and checked before a tensor is touched, written under a
//! temporary name and renamed.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use safetensors::tensor::{Metadata, View};
use safetensors::{Dtype, SafeTensorError};
use tch::{Device, Kind, Tensor};

use crate::engine::EngineError;

/// Where what we say about the file stands in its metadata.
const NOTE: &str = "palimpsest";
/// Most bytes that a header may have, as in the safetensors crate.
const LONGEST_HEADER: u64 = 100_000_000;
const AGAIN: &str = "the file is damaged or of another kind: copy it again";

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

/// Reads a small file whole.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, EngineError> {
    std::fs::read(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &std::io::Error) -> EngineError {
    bad_file(
        path,
        format!("it cannot be read ({error})"),
        "point to a folder that holds config.json and the weights as safetensors",
    )
}

/// A tensor's place in the mapped file.
struct Place {
    dtype: Dtype,
    size: Vec<i64>,
    start: i64,
    length: i64,
}

/// A safetensors file that is open for reading.
pub(super) struct TensorFile {
    path: PathBuf,
    /// The file as bytes; libtorch maps it, so only what is taken is read.
    mapped: Tensor,
    places: BTreeMap<String, Place>,
    /// What [`write`] was told to say about the file.
    pub note: Option<String>,
}

impl TensorFile {
    /// Maps a file and checks its header against its length.
    ///
    /// # Errors
    /// [`EngineError::BadFile`] for a missing, truncated or foreign file.
    pub fn open(path: &Path) -> Result<Self, EngineError> {
        let (header, length) = header(path)?;
        let broken = |error: String| {
            let problem = format!("it is no whole safetensors file ({error})");
            bad_file(path, problem, AGAIN)
        };
        // Reading it checks that tensors fill their places and that these leave no gaps.
        let metadata: Metadata = serde_json::from_slice(header.get(8..).unwrap_or_default())
            .map_err(|error| broken(error.to_string()))?;
        let data = header.len() as u64;
        let said = data.saturating_add(metadata.data_len() as u64);
        if said != length {
            return Err(broken(format!(
                "its header speaks of {said} bytes, but it has {length}"
            )));
        }
        let places = metadata
            .tensors()
            .into_iter()
            .map(|(name, info)| {
                let (start, end) = info.data_offsets;
                let place = Place {
                    dtype: info.dtype,
                    size: info.shape.iter().map(|&n| n as i64).collect(),
                    start: data as i64 + start as i64,
                    length: (end - start) as i64,
                };
                (name, place)
            })
            .collect();
        let name = path
            .to_str()
            .ok_or_else(|| bad_file(path, "its path is not UTF-8", "move it"))?;
        // Private, so nothing that is done to a tensor reaches the file.
        let mapped = Tensor::f_from_file(name, false, length as i64, (Kind::Uint8, Device::Cpu))
            .map_err(|error| broken(error.to_string()))?;
        let notes = metadata.metadata().as_ref();
        Ok(Self {
            path: path.to_owned(),
            mapped,
            places,
            note: notes.and_then(|notes| notes.get(NOTE).cloned()),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names of the tensors that were not taken, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.places.keys().map(String::as_str)
    }

    /// Checks that the tensor `name` is there, has this size and can be read.
    ///
    /// # Errors
    /// [`EngineError::BadFile`] naming the key, the value and the rule.
    pub fn check(&self, name: &str, size: &[i64]) -> Result<(), EngineError> {
        self.find(name, size).map(|_| ())
    }

    fn find(&self, name: &str, size: &[i64]) -> Result<(&Place, Kind), EngineError> {
        let bad = |problem, remedy| Err(bad_file(&self.path, problem, remedy));
        let Some(place) = self.places.get(name) else {
            return bad(
                format!("{name:?} is missing"),
                "the file belongs to another architecture or was not written whole",
            );
        };
        if place.size != size {
            return bad(
                format!("{name:?} is {:?}, but must be {size:?}", place.size),
                "config.json and the weights are not of the same model",
            );
        }
        match place.dtype {
            Dtype::F32 => Ok((place, Kind::Float)),
            Dtype::BF16 => Ok((place, Kind::BFloat16)),
            Dtype::F16 => Ok((place, Kind::Half)),
            other => bad(
                format!("{name:?} is {other:?}, but tensors must be F32, BF16 or F16"),
                "convert the weights",
            ),
        }
    }

    /// Takes the tensor `name` out as f32 on the CPU; it must have this size.
    ///
    /// # Errors
    /// As [`TensorFile::check`], and for values that are not finite.
    pub fn take(&mut self, name: &str, size: &[i64]) -> Result<Tensor, EngineError> {
        let (place, kind) = self.find(name, size)?;
        let bytes = self.mapped.narrow(0, place.start, place.length);
        let (path, wrong) = (&self.path, |error| format!("{name:?}: {error}"));
        // A copy begins at an address that fits every kind; the file need not.
        let tensor = bytes
            .copy()
            .f_view_dtype(kind)
            .and_then(|tensor| tensor.f_view(size))
            .map_err(|error| bad_file(path, wrong(error), AGAIN))?
            .to_kind(Kind::Float);
        if tensor.isfinite().all().int64_value(&[]) == 0 {
            return Err(bad_file(
                path,
                format!("{name:?} holds values that are not finite"),
                "take an earlier checkpoint",
            ));
        }
        self.places.remove(name);
        Ok(tensor)
    }
}

/// The file's first bytes up to the end of its header, and its length.
fn header(path: &Path) -> Result<(Vec<u8>, u64), EngineError> {
    let failed = |error: std::io::Error| unreadable(path, &error);
    let mut file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let cut = |problem: String| {
        let problem = format!("it is no whole safetensors file ({problem})");
        Err(bad_file(path, problem, AGAIN))
    };
    if length < 8 {
        return cut(format!("it has {length} bytes"));
    }
    let mut header = vec![0; 8];
    file.read_exact(&mut header).map_err(failed)?;
    let said = header
        .iter()
        .rev()
        .fold(0, |n, &byte| n << 8 | u64::from(byte));
    if said > LONGEST_HEADER || said > length - 8 {
        return cut(format!(
            "its first 8 bytes speak of a header of {said} bytes, but it has {length} in all"
        ));
    }
    header.resize(8 + said as usize, 0);
    file.read_exact(&mut header[8..]).map_err(failed)?;
    Ok((header, length))
}

/// A tensor that becomes bytes only while it is written.
struct Written {
    size: Vec<usize>,
    tensor: Tensor,
}

impl View for &Written {
    fn dtype(&self) -> Dtype {
        Dtype::F32
    }
    fn shape(&self) -> &[usize] {
        &self.size
    }
    fn data(&self) -> Cow<'_, [u8]> {
        let tensor = self.tensor.detach().to_device(Device::Cpu);
        let tensor = tensor.to_kind(Kind::Float).contiguous();
        let mut bytes = vec![0u8; self.data_len()];
        tensor.copy_data_u8(&mut bytes, tensor.numel());
        bytes.into()
    }
    fn data_len(&self) -> usize {
        self.tensor.numel() * 4
    }
}

/// Writes tensors as f32, in an order that only the names decide, so that a reader sees the old file
/// or the new one, never a part.
///
/// # Errors
/// [`EngineError::Io`], [`EngineError::Backend`].
pub(super) fn write(
    folder: &Path,
    name: &str,
    tensors: impl IntoIterator<Item = (String, Tensor)>,
    note: Option<String>,
) -> Result<(), EngineError> {
    let tensors: BTreeMap<String, Written> = tensors
        .into_iter()
        .map(|(name, tensor)| {
            let size = tensor.size().iter().map(|&n| n as usize).collect();
            (name, Written { size, tensor })
        })
        .collect();
    // One entry, so that the map's order cannot reach the file. transformers wants `format`, so a
    // file of weights carries that one instead of a note.
    let metadata = match note {
        Some(note) => HashMap::from([(NOTE.to_owned(), note)]),
        None => HashMap::from([("format".to_owned(), "pt".to_owned())]),
    };
    in_one_step(folder, name, |partial| {
        safetensors::serialize_to_file(&tensors, Some(metadata), partial).map_err(|error| {
            match error {
                SafeTensorError::IoError(source) => source,
                other => std::io::Error::other(other),
            }
        })?;
        File::open(partial)?.sync_all()
    })
}

/// Writes a file so that a reader sees the old one or the new one, never a part.
///
/// # Errors
/// [`EngineError::Io`].
pub(super) fn write_whole(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), EngineError> {
    in_one_step(folder, name, |partial| {
        let mut file = File::create(partial)?;
        file.write_all(bytes)?;
        file.sync_all()
    })
}

fn in_one_step(
    folder: &Path,
    name: &str,
    write: impl FnOnce(&Path) -> std::io::Result<()>,
) -> Result<(), EngineError> {
    let path = folder.join(name);
    let partial = folder.join(format!(".{name}.partial"));
    write(&partial)
        .and_then(|()| std::fs::rename(&partial, &path))
        .map_err(|source| EngineError::Io { path, source })
}

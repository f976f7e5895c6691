//! Texts as vectors: BERT-family encoders (e5, bge, MiniLM) read from Hugging Face folders, and the
//! indexes over a corpus that they make: the exact one, and a graph of near neighbours.

mod bert;
mod folder;
mod index;
mod near;

#[cfg(test)]
mod tests;

use std::path::Path;

use tch::{Device, Kind, Tensor};
use tokenizers::{Encoding, Tokenizer, TruncationParams};

use super::batch::{chunks, padded};
use super::tensor_file::bad_file;
use super::{guarded, prepare};
use crate::engine::EngineError;
use crate::experiment::EngineSettings;
use bert::Bert;
use folder::{Habits, Pooling};

pub use index::DenseIndex;
pub use near::NearIndex;

/// File of the tokenizer.
const TOKENIZER: &str = "tokenizer.json";

/// What a text is to the encoder: some models want the two to begin differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is looked for.
    Query,
    /// It is found.
    Passage,
}

/// An encoder on one device.
pub struct Encoder {
    bert: Bert,
    habits: Habits,
    tokenizer: Tokenizer,
    device: Device,
    fingerprint: String,
}

impl Encoder {
    /// Reads a folder: config.json of a `bert` model, model.safetensors, tokenizer.json, and how to
    /// pool, to normalise and to begin texts from the files of sentence-transformers; where those are
    /// missing, from the model's name, as Search-R1 does.
    ///
    /// # Errors
    /// [`EngineError::BadFile`] naming the file, the rule and the remedy; [`EngineError::BadRequest`]
    /// for a device that is not there.
    pub fn open(folder: &Path, settings: &EngineSettings) -> Result<Self, EngineError> {
        let device = prepare(settings)?;
        guarded(|| {
            let shape = folder::read_shape(folder)?;
            let habits = folder::read_habits(folder, &shape)?;
            let (tensors, weights) = folder::read_tensors(folder)?;
            let words = folder::hash_of(&folder.join(TOKENIZER))?;
            tracing::info!("encoder {folder:?}: {habits}");
            let fingerprint = format!(
                "weights {weights:032x}, tokenizer {words:032x}, {} heads, {:?}, epsilon {:e}, {habits:?}",
                shape.num_attention_heads, shape.activation, shape.norm_eps
            );
            let bert = Bert::assemble(shape, tensors, device)?;
            let tokenizer = read_tokenizer(folder, habits.longest)?;
            Ok(Self {
                bert,
                habits,
                tokenizer,
                device,
                fingerprint,
            })
        })
    }

    /// Length of a vector.
    #[must_use]
    pub fn width(&self) -> usize {
        self.bert.width()
    }

    /// The vectors of texts, one after the other, [texts, width]. A text that is too long loses its
    /// end.
    ///
    /// # Errors
    /// [`EngineError::Backend`].
    pub fn encode(&self, texts: &[String], role: Role) -> Result<Vec<f32>, EngineError> {
        let prefix = match role {
            Role::Query => &self.habits.query_prefix,
            Role::Passage => &self.habits.passage_prefix,
        };
        let texts: Vec<String> = texts.iter().map(|text| format!("{prefix}{text}")).collect();
        let encoded = self
            .tokenizer
            .encode_batch_fast(texts, true)
            .map_err(|error| EngineError::Backend(error.to_string()))?;
        let rows: Vec<&[u32]> = encoded.iter().map(Encoding::get_ids).collect();
        guarded(|| {
            let mut vectors = vec![0.0f32; rows.len() * self.width()];
            let lengths: Vec<usize> = rows.iter().map(|row| row.len()).collect();
            for chunk in chunks(&lengths, self.device) {
                let picked: Vec<&[u32]> = chunk.iter().map(|&row| rows[row]).collect();
                let made = Vec::<f32>::try_from(self.vectors(&picked).flatten(0, -1))
                    .map_err(|error| EngineError::Backend(error.to_string()))?;
                for (&row, vector) in chunk.iter().zip(made.chunks_exact(self.width())) {
                    vectors[row * self.width()..][..self.width()].copy_from_slice(vector);
                }
            }
            Ok(vectors)
        })
    }

    /// The vectors of rows of ids, [rows, width], on the CPU.
    fn vectors(&self, rows: &[&[u32]]) -> Tensor {
        let ids = padded(rows, self.device);
        let lengths: Vec<i64> = rows.iter().map(|row| row.len() as i64).collect();
        let lengths = Tensor::from_slice(&lengths)
            .to_device(self.device)
            .unsqueeze(1);
        let places = Tensor::arange(ids.size()[1], (Kind::Int64, self.device)).unsqueeze(0);
        let shown = places.lt_tensor(&lengths);
        let hidden = self.bert.forward(&ids, &shown);
        let pooled = match self.habits.pooling {
            Pooling::First => hidden.select(1, 0),
            Pooling::Mean => {
                let weight = shown.to_kind(Kind::Float).unsqueeze(-1);
                let sum = (hidden * &weight).sum_dim_intlist([1i64].as_slice(), false, Kind::Float);
                sum / weight.sum_dim_intlist([1i64].as_slice(), false, Kind::Float)
            }
        };
        let vectors = if self.habits.normalize {
            let square = (&pooled * &pooled).sum_dim_intlist([-1i64].as_slice(), true, Kind::Float);
            pooled / square.sqrt().clamp_min(1e-12)
        } else {
            pooled
        };
        vectors.to_device(Device::Cpu)
    }
}

/// The tokenizer of a folder, cutting at `longest` tokens and padding nothing, whatever its file says.
fn read_tokenizer(folder: &Path, longest: usize) -> Result<Tokenizer, EngineError> {
    let path = folder.join(TOKENIZER);
    let bad = |error: tokenizers::Error| {
        bad_file(
            &path,
            format!("it is no tokenizer ({error})"),
            "copy it again from the model, or save the tokenizer with transformers",
        )
    };
    let mut tokenizer = Tokenizer::from_file(&path).map_err(bad)?;
    let truncation = TruncationParams {
        max_length: longest,
        ..TruncationParams::default()
    };
    tokenizer.with_truncation(Some(truncation)).map_err(bad)?;
    tokenizer.with_padding(None);
    Ok(tokenizer)
}

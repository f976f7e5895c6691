//! The policy as a Hugging Face folder: config.json, generation_config.json and the weights.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use tch::Device;

use crate::engine::EngineError;

use super::config::{CONFIG, GENERATION_CONFIG, config_text, read_shape};
use super::decoder::Decoder;
use super::tensor_file::{bad_file, write, write_whole};
use super::vocabulary::Vocabulary;
use super::weight_files::{WEIGHTS, WeightFiles};

/// Reads a folder's decoder. Everything that the headers say is checked before a weight is read.
///
/// # Errors
/// [`EngineError::BadFile`] naming the file, the field, the rule and the remedy.
pub(super) fn read_decoder(
    folder: &Path,
    vocabulary: &dyn Vocabulary,
    device: Device,
) -> Result<Decoder, EngineError> {
    let shape = read_shape(folder)?;
    let mut weights = WeightFiles::open(folder, &shape)?;
    check_vocabulary(shape.settings.vocab_size, vocabulary).map_err(|problem| {
        let remedy = "use the tokenizer that lies beside the weights";
        bad_file(&folder.join(CONFIG), problem, remedy)
    })?;
    let mut decoder = Decoder::assemble_from(shape, device, |slot| weights.take(slot))?;
    super::lora::load(&mut decoder, folder)?;
    Ok(decoder)
}

/// Checks that every id of the tokenizer has a row of the embedding; says the broken rule.
pub(super) fn check_vocabulary(rows: i64, vocabulary: &dyn Vocabulary) -> Result<(), String> {
    let ids = vocabulary.size();
    if ids as i64 <= rows {
        return Ok(());
    }
    Err(format!(
        "vocab_size is {rows}, but the tokenizer has {ids} ids, and each needs a row of the embedding"
    ))
}

/// Writes the configs and model.safetensors in f32, the kind that was trained.
///
/// # Errors
/// [`EngineError::Io`].
pub(super) fn write_decoder(decoder: &Decoder, folder: &Path) -> Result<(), EngineError> {
    std::fs::create_dir_all(folder).map_err(|source| EngineError::Io {
        path: folder.to_path_buf(),
        source,
    })?;
    write(folder, WEIGHTS, decoder.exported(), None)?;
    if let Some(text) = &decoder.shape.generation_config {
        write_whole(folder, GENERATION_CONFIG, text.as_bytes())?;
    }
    write_whole(folder, CONFIG, config_text(&decoder.shape).as_bytes())
}

/// FNV-1a over the eight-byte words of model.safetensors, and of the adapters' values if there are any: ties
/// an optimizer file to its weights.
///
/// # Errors
/// [`EngineError::BadFile`].
pub(super) fn fingerprint(folder: &Path) -> Result<u64, EngineError> {
    let hash = hashed(&folder.join(WEIGHTS), 0xcbf2_9ce4_8422_2325)?;
    let adapter = folder.join(super::lora::FOLDER).join(super::lora::VALUES);
    match adapter.exists() {
        true => hashed(&adapter, hash),
        false => Ok(hash),
    }
}

fn hashed(path: &Path, mut hash: u64) -> Result<u64, EngineError> {
    let unreadable = |error: std::io::Error| {
        let remedy = "take a folder that palimpsest saved with its optimizer";
        bad_file(path, format!("it cannot be read ({error})"), remedy)
    };
    let mut file = File::open(path).map_err(unreadable)?;
    // Whole words: only the last piece may end inside one.
    let mut piece = Vec::with_capacity(PIECE as usize);
    loop {
        piece.clear();
        let read = file.by_ref().take(PIECE).read_to_end(&mut piece);
        if read.map_err(unreadable)? == 0 {
            return Ok(hash);
        }
        for chunk in piece.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Bytes of the weights file that are read at a time.
const PIECE: u64 = 1 << 20;

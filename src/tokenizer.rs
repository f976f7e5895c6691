//! The tokenizer: a thin face over the `tokenizers` crate that also knows the bytes of every token.
//!
//! It reads and writes the Hugging Face layout, so that `transformers.AutoTokenizer` loads what is
//! saved here. Token ids are the truth and text is derived from them: [`TextTokenizer::decode`] is
//! the concatenation of [`TextTokenizer::token_bytes`], nothing else.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer};

use crate::engine::EngineError;
use crate::trajectory::TokenId;

/// The tokens that are never split: padding, then the tags of the protocol. Their ids are their
/// places in this list when [`TextTokenizer::train`] made the vocabulary.
pub const SPECIAL_TOKENS: [&str; 15] = [
    "<pad>",
    "<q>",
    "</q>",
    "<mem>",
    "</mem>",
    "<think>",
    "</think>",
    "<search>",
    "</search>",
    "<access>",
    "</access>",
    "<answer>",
    "</answer>",
    "<tool>",
    "</tool>",
];

const TOKENIZER_FILE: &str = "tokenizer.json";
const CONFIG_FILE: &str = "tokenizer_config.json";
/// What `transformers` needs to load the folder as a fast tokenizer.
const CONFIG: &str = r#"{
  "tokenizer_class": "PreTrainedTokenizerFast",
  "pad_token": "<pad>",
  "padding_side": "left",
  "clean_up_tokenization_spaces": false
}
"#;

/// A byte-level BPE tokenizer with the protocol's tags as special tokens.
#[derive(Clone)]
pub struct TextTokenizer {
    inner: Tokenizer,
    /// Bytes of every id, special tokens as their text.
    bytes: Vec<Vec<u8>>,
    /// The file as it was read or first written: saving changes no byte.
    json: String,
}

impl TextTokenizer {
    /// Learns a vocabulary of at most `vocab_size` tokens from `lines`. The same lines in the same
    /// order give the same file, byte for byte.
    ///
    /// # Errors
    /// [`EngineError::Backend`] if the `tokenizers` crate fails.
    pub fn train(lines: &[String], vocab_size: usize) -> Result<Self, EngineError> {
        let backend = |error: tokenizers::Error| EngineError::Backend(error.to_string());
        let mut inner = Tokenizer::new(BPE::default());
        inner.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
        inner.with_decoder(Some(ByteLevel::default()));
        let trainer = BpeTrainer::builder()
            .vocab_size(vocab_size)
            .show_progress(false)
            .special_tokens(
                SPECIAL_TOKENS
                    .map(|tag| AddedToken::from(tag, true))
                    .to_vec(),
            )
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect::<HashSet<char>>())
            .build();
        inner
            .train(&mut TrainerWrapper::from(trainer), lines.iter())
            .map_err(backend)?;
        let json = inner.to_string(true).map_err(backend)?;
        Self::from_json(&json, Path::new("the trained tokenizer"))
    }

    /// Reads the text of a tokenizer.json; `path` stands in error messages.
    ///
    /// # Errors
    /// [`EngineError::BadFile`] for damaged JSON, for a vocabulary that is not byte-level or has
    /// holes, and for one without the protocol's tags.
    pub fn from_json(json: &str, path: &Path) -> Result<Self, EngineError> {
        let bad = |problem: String, remedy: &str| EngineError::BadFile {
            path: path.to_owned(),
            problem,
            remedy: remedy.to_owned(),
        };
        let inner = Tokenizer::from_bytes(json).map_err(|error| {
            bad(
                format!("it is not a tokenizer.json ({error})"),
                "fetch or save the file again",
            )
        })?;
        let bytes = bytes_of_tokens(&inner)
            .map_err(|problem| bad(problem, "use a byte-level BPE, as GPT-2 and Qwen have it"))?;
        if let Some(tag) = SPECIAL_TOKENS.iter().find(|tag| !is_special(&inner, tag)) {
            return Err(bad(
                format!(
                    "\"added_tokens\" lacks {tag:?} as a special token: every tag of the protocol must be one token"
                ),
                "add the tag, or load a tokenizer that palimpsest has saved",
            ));
        }
        Ok(Self {
            inner,
            bytes,
            json: json.to_owned(),
        })
    }

    /// Ids of `text`; tags become their special tokens, nothing is added.
    #[must_use]
    pub fn encode(&self, text: &str) -> Vec<TokenId> {
        // A byte-level vocabulary with all 256 bytes (checked when it is read) can encode anything.
        self.inner
            .encode_fast(text, false)
            .map(|encoding| encoding.get_ids().to_vec())
            .unwrap_or_default()
    }

    /// Text of `ids`, special tokens included; invalid UTF-8 becomes the replacement character.
    #[must_use]
    pub fn decode(&self, ids: &[TokenId]) -> String {
        let bytes: Vec<u8> = ids
            .iter()
            .flat_map(|&id| self.token_bytes(id))
            .copied()
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The bytes that one id adds to the decoded text; empty if out of range.
    #[must_use]
    pub fn token_bytes(&self, id: TokenId) -> &[u8] {
        usize::try_from(id)
            .ok()
            .and_then(|id| self.bytes.get(id))
            .map_or(&[], Vec::as_slice)
    }

    /// The id of one special token, such as `<mem>`.
    #[must_use]
    pub fn special_id(&self, tag: &str) -> Option<TokenId> {
        self.inner
            .token_to_id(tag)
            .filter(|_| SPECIAL_TOKENS.contains(&tag))
    }

    /// Whether the id is padding or a tag.
    #[must_use]
    pub fn is_special_id(&self, id: TokenId) -> bool {
        SPECIAL_TOKENS
            .iter()
            .any(|tag| tag.as_bytes() == self.token_bytes(id))
    }

    /// Number of ids.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.bytes.len()
    }

    /// The text of tokenizer.json.
    #[must_use]
    pub fn to_json(&self) -> &str {
        &self.json
    }

    /// Writes tokenizer.json and tokenizer_config.json into a folder, as transformers expects them.
    ///
    /// # Errors
    /// [`EngineError::Io`].
    pub fn save(&self, folder: &Path) -> Result<(), EngineError> {
        for (name, text) in [(TOKENIZER_FILE, self.json.as_str()), (CONFIG_FILE, CONFIG)] {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|source| EngineError::Io { path, source })?;
        }
        Ok(())
    }

    /// Reads tokenizer.json from a folder.
    ///
    /// # Errors
    /// [`EngineError::BadFile`].
    pub fn load(folder: &Path) -> Result<Self, EngineError> {
        let path = folder.join(TOKENIZER_FILE);
        match std::fs::read_to_string(&path) {
            Ok(json) => Self::from_json(&json, &path),
            Err(error) => Err(EngineError::BadFile {
                path,
                problem: format!("it cannot be read ({error})"),
                remedy: "name a folder that holds a tokenizer.json".to_owned(),
            }),
        }
    }
}

fn is_special(inner: &Tokenizer, tag: &str) -> bool {
    inner
        .token_to_id(tag)
        .and_then(|id| inner.get_added_tokens_decoder().get(&id).cloned())
        .is_some_and(|added| added.special)
}

/// Bytes of every id from 0 on, or what is wrong with the vocabulary.
fn bytes_of_tokens(inner: &Tokenizer) -> Result<Vec<Vec<u8>>, String> {
    let byte_of = byte_of_char();
    let added = inner.get_added_tokens_decoder();
    let vocabulary = inner.get_vocab(true);
    let by_id: BTreeMap<TokenId, &String> =
        vocabulary.iter().map(|(token, &id)| (id, token)).collect();
    let mut bytes = Vec::with_capacity(by_id.len());
    let mut single = HashSet::new();
    for (place, (&id, &token)) in (0..).zip(&by_id) {
        if id != place {
            return Err(format!(
                "\"model.vocab\" has no token for id {place}: ids must run from 0 without holes"
            ));
        }
        if let Some(added) = added.get(&id) {
            bytes.push(added.content.as_bytes().to_vec());
            continue;
        }
        let found: Option<Vec<u8>> = token.chars().map(|c| byte_of.get(&c).copied()).collect();
        let found = found.ok_or_else(|| {
            format!("\"model.vocab\" holds {token:?} (id {id}), which is not byte-level text")
        })?;
        if let [byte] = found[..] {
            single.insert(byte);
        }
        bytes.push(found);
    }
    match (0..=u8::MAX).find(|byte| !single.contains(byte)) {
        Some(byte) => Err(format!(
            "\"model.vocab\" has no token for the byte {byte:#04x}: all 256 must be there, or some text has no ids"
        )),
        None => Ok(bytes),
    }
}

/// GPT-2's disguise of bytes: printable ones stand for themselves, the others for the characters
/// from U+0100 on, in order.
fn byte_of_char() -> BTreeMap<char, u8> {
    let mut stand_in = (0x100..).filter_map(char::from_u32);
    (0..=u8::MAX)
        .filter_map(|byte| match byte {
            b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => Some((char::from(byte), byte)),
            _ => stand_in.next().map(|c| (c, byte)),
        })
        .collect()
}

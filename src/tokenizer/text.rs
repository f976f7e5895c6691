//! A thin face over the `tokenizers` crate that also knows the bytes of every token.
//!
//! It reads and writes the Hugging Face layout, so that `transformers.AutoTokenizer` loads what is
//! saved here. [`TextTokenizer::decode`] is the concatenation of [`TextTokenizer::token_bytes`],
//! nothing else.

use std::collections::HashSet;
use std::path::Path;

use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer};

use crate::engine::EngineError;
use crate::trajectory::TokenId;

use super::ChatTemplate;
use super::bytes::{bytes_of_tokens, check_complete, is_ordinary};

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
/// What may lie beside tokenizer.json and belongs to it.
const COMPANIONS: [&str; 7] = [
    CONFIG_FILE,
    "chat_template.jinja",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
];
/// What `transformers` needs to load a tokenizer that we trained. Version 5 takes its own Qwen2
/// tokenizer, which splits text in other places, for every qwen2 folder whose tokenizer has no
/// `auto_map`; with one that names a class of its own it reads tokenizer.json as it is.
const CONFIG: &str = r#"{
  "tokenizer_class": "PreTrainedTokenizerFast",
  "auto_map": { "AutoTokenizer": ["PreTrainedTokenizerFast", "PreTrainedTokenizerFast"] },
  "pad_token": "<pad>",
  "padding_side": "left",
  "clean_up_tokenization_spaces": false
}
"#;

/// The tokenizer of a model. One that the lookup task uses has the protocol's tags as special tokens
/// (see [`TextTokenizer::require_protocol`]); elsewhere a tag may be several ordinary ones.
#[derive(Clone)]
pub struct TextTokenizer {
    inner: Tokenizer,
    /// Bytes of every id, special tokens as their text.
    bytes: Vec<Vec<u8>>,
    /// The file as it was read or first written: saving changes no byte.
    json: String,
    /// The files beside it, by name.
    companions: Vec<(String, Vec<u8>)>,
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
    /// [`EngineError::BadFile`] for a file that the `tokenizers` crate does not read.
    pub fn from_json(json: &str, path: &Path) -> Result<Self, EngineError> {
        let mut inner = Tokenizer::from_bytes(json).map_err(|error| EngineError::BadFile {
            path: path.to_owned(),
            problem: format!("it is not a tokenizer.json ({error})"),
            remedy: "fetch or save the file again".to_owned(),
        })?;
        // Some files carry the settings of the batch they were last used for.
        inner.with_padding(None);
        let untruncated = inner.with_truncation(None).map(|_| ());
        untruncated.map_err(|error| EngineError::Backend(error.to_string()))?;
        Ok(Self {
            bytes: bytes_of_tokens(&inner, json),
            inner,
            json: json.to_owned(),
            companions: vec![(CONFIG_FILE.to_owned(), CONFIG.as_bytes().to_vec())],
        })
    }

    /// The chat template that lies beside it; none if there is none.
    ///
    /// # Errors
    /// [`EngineError::BadFile`] for a template that cannot be read.
    pub fn chat_template(&self) -> Result<Option<ChatTemplate>, EngineError> {
        ChatTemplate::find(Path::new("the policy's folder"), |wanted| {
            let found = self.companions.iter().find(|(name, _)| name == wanted);
            found.map(|(_, bytes)| bytes.clone())
        })
    }

    /// Checks that ordinary text has ids, so that the tags of the protocol can be written with ordinary
    /// tokens. Control characters may be missing. `path` stands in error messages.
    ///
    /// # Errors
    /// [`EngineError::BadFile`] naming the field, the rule and the remedy.
    pub fn require_text(&self, path: &Path) -> Result<(), EngineError> {
        self.complete(path, is_ordinary)
    }

    fn complete(&self, path: &Path, needed: fn(u8) -> bool) -> Result<(), EngineError> {
        check_complete(&self.inner, needed).map_err(|problem| EngineError::BadFile {
            path: path.to_owned(),
            problem,
            remedy: "use a byte-level BPE, as GPT-2 and Qwen have it".to_owned(),
        })
    }

    /// Checks that the lookup task can use it: every tag of the protocol is one special token, and any text
    /// has ids. `path` stands in error messages.
    ///
    /// # Errors
    /// [`EngineError::BadFile`] naming the field, the rule and the remedy.
    pub fn require_protocol(&self, path: &Path) -> Result<(), EngineError> {
        self.complete(path, |_| true)?;
        match SPECIAL_TOKENS
            .iter()
            .find(|tag| !is_special(&self.inner, tag))
        {
            None => Ok(()),
            Some(tag) => Err(EngineError::BadFile {
                path: path.to_owned(),
                problem: format!(
                    "\"added_tokens\" lacks {tag:?} as a special token: every tag of the protocol must be one token"
                ),
                remedy: "add the tag, or load a tokenizer that palimpsest has saved".to_owned(),
            }),
        }
    }

    /// Ids of a prompt as a model's own tokenizer gives them: with the token that begins a text, if
    /// the file says so.
    #[must_use]
    pub fn encode_prompt(&self, text: &str) -> Vec<TokenId> {
        self.ids(text, true)
    }

    /// Ids of `text`; tags become their special tokens, nothing is added.
    #[must_use]
    pub fn encode(&self, text: &str) -> Vec<TokenId> {
        self.ids(text, false)
    }

    fn ids(&self, text: &str, with_template: bool) -> Vec<TokenId> {
        // A byte-level vocabulary with all 256 bytes can encode anything; others leave things out.
        self.inner
            .encode_fast(text, with_template)
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

    /// Writes tokenizer.json and the files beside it into a folder, as transformers expects them.
    ///
    /// # Errors
    /// [`EngineError::Io`].
    pub fn save(&self, folder: &Path) -> Result<(), EngineError> {
        let json = (TOKENIZER_FILE, self.json.as_bytes());
        let companions = self
            .companions
            .iter()
            .map(|(name, text)| (name.as_str(), &text[..]));
        for (name, text) in companions.chain([json]) {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|source| EngineError::Io { path, source })?;
        }
        Ok(())
    }

    /// Reads tokenizer.json from a folder, and what lies beside it.
    ///
    /// # Errors
    /// [`EngineError::BadFile`].
    pub fn load(folder: &Path) -> Result<Self, EngineError> {
        let path = folder.join(TOKENIZER_FILE);
        let json = std::fs::read_to_string(&path).map_err(|error| EngineError::BadFile {
            path: path.clone(),
            problem: format!("it cannot be read ({error})"),
            remedy: "name a folder that holds a tokenizer.json".to_owned(),
        })?;
        let mut tokenizer = Self::from_json(&json, &path)?;
        let companions: Vec<(String, Vec<u8>)> = COMPANIONS
            .iter()
            .filter_map(|&name| Some((name.to_owned(), std::fs::read(folder.join(name)).ok()?)))
            .collect();
        if companions.iter().any(|(name, _)| name == CONFIG_FILE) {
            tokenizer.companions = companions;
        } else {
            tokenizer.companions.extend(companions);
        }
        Ok(tokenizer)
    }
}

fn is_special(inner: &Tokenizer, tag: &str) -> bool {
    inner
        .token_to_id(tag)
        .and_then(|id| inner.get_added_tokens_decoder().get(&id).cloned())
        .is_some_and(|added| added.special)
}

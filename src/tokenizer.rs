//! The tokenizer: a thin face over the `tokenizers` crate that also knows the bytes of every token.
use std::path::Path;

use crate::engine::EngineError;
use crate::trajectory::TokenId;

/// A byte-level BPE tokenizer with the protocol's tags as special tokens.
pub struct TextTokenizer {
    inner: tokenizers::Tokenizer,
    bytes: Vec<Vec<u8>>,
}

impl TextTokenizer {
    /// Ids of `text`; tags become their special tokens, nothing is added.
    #[must_use]
    pub fn encode(&self, text: &str) -> Vec<TokenId> {
        let _ = (text, &self.inner, &self.bytes);
        unimplemented!()
    }
    /// Text of `ids`, special tokens included; invalid UTF-8 becomes the replacement character.
    #[must_use]
    pub fn decode(&self, ids: &[TokenId]) -> String {
        let _ = ids;
        unimplemented!()
    }
    /// The bytes that one id adds to the decoded text; empty if out of range.
    #[must_use]
    pub fn token_bytes(&self, id: TokenId) -> &[u8] {
        let _ = id;
        unimplemented!()
    }
    /// Number of ids.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        unimplemented!()
    }
    /// Writes tokenizer.json and tokenizer_config.json into a folder, as transformers expects them.
    ///
    /// # Errors
    /// [`EngineError::Io`].
    pub fn save(&self, folder: &Path) -> Result<(), EngineError> {
        let _ = folder;
        unimplemented!()
    }
    /// Reads tokenizer.json from a folder.
    ///
    /// # Errors
    /// [`EngineError::BadFile`].
    pub fn load(folder: &Path) -> Result<Self, EngineError> {
        let _ = folder;
        unimplemented!()
    }
}

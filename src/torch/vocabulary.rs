//! What the engine needs of a tokenizer.

use std::path::Path;

use crate::engine::EngineError;
use crate::tokenizer::TextTokenizer;
use crate::trajectory::TokenId;

/// The bytes of ids, for stop strings; and the files that go beside saved weights. An
/// `Arc<TextTokenizer>` is one.
pub trait Vocabulary {
    /// Number of ids.
    fn size(&self) -> usize;
    /// The bytes that one id adds to the decoded text; empty if out of range.
    fn bytes(&self, id: TokenId) -> &[u8];
    /// Writes the tokenizer's files into a folder.
    ///
    /// # Errors
    /// [`EngineError::Io`].
    fn save(&self, folder: &Path) -> Result<(), EngineError>;
}

impl Vocabulary for TextTokenizer {
    fn size(&self) -> usize {
        self.vocab_size()
    }
    fn bytes(&self, id: TokenId) -> &[u8] {
        self.token_bytes(id)
    }
    fn save(&self, folder: &Path) -> Result<(), EngineError> {
        Self::save(self, folder)
    }
}

//! Opening what takes long, with a bar, and dense indexes, which need libtorch.

use std::path::Path;
use std::sync::Arc;

use palimpsest::experiment::EngineSettings;
use palimpsest::record::{PlainLines, Progress};
use palimpsest::retrieval::{Corpus, OnProgress, RetrievalError, Retriever};

/// Opens a dense index with the encoder of a folder.
#[cfg(feature = "torch")]
pub fn open_dense(
    settings: &EngineSettings,
    corpus: &Corpus,
    folder: &Path,
    tell: OnProgress<'_>,
) -> Result<Arc<dyn Retriever>, RetrievalError> {
    use palimpsest::torch::{DenseIndex, Encoder};
    let encoder = Encoder::open(folder, settings)
        .map_err(|error| RetrievalError::Encoder(error.to_string()))?;
    Ok(Arc::new(DenseIndex::open(corpus, encoder, tell)?))
}

/// Refuses: encoders are libtorch's.
#[cfg(not(feature = "torch"))]
pub fn open_dense(
    _: &EngineSettings,
    corpus: &Corpus,
    folder: &Path,
    tell: OnProgress<'_>,
) -> Result<Arc<dyn Retriever>, RetrievalError> {
    palimpsest::retrieval::no_dense(corpus, folder, tell)
}

/// A progress bar that changes with what is being done; nothing is drawn for what is done at once.
#[derive(Default)]
pub struct Bar {
    at: Option<(&'static str, Progress)>,
}

impl Bar {
    /// So much of `what` is done.
    pub fn tell(&mut self, what: &'static str, done: u64, total: u64) {
        if self.at.as_ref().is_none_or(|(at, _)| *at != what) {
            self.end();
            if done >= total {
                return;
            }
            self.at = Some((what, Progress::new(what, total, 0, PlainLines::Sparse)));
        }
        if let Some((_, progress)) = &mut self.at {
            progress.advance(done, "");
        }
    }

    /// Nothing more is done.
    pub fn end(&mut self) {
        if let Some((_, progress)) = self.at.take() {
            progress.finish();
        }
    }
}

//! Opening a corpus and its index, with a bar; dense indexes need libtorch.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use palimpsest::experiment::{DenseKind, EngineSettings, find_path};
use palimpsest::record::{PlainLines, Progress};
use palimpsest::retrieval::{
    Corpus, Hybrid, LexicalIndex, Library, OnProgress, RetrievalError, Retriever,
};

use crate::arguments::{DenseMode, Finding, RetrieveMode};

/// Opens a dense index of a kind with the encoder of a folder.
#[cfg(feature = "torch")]
pub fn open_dense(
    settings: &EngineSettings,
    kind: DenseKind,
    corpus: &Corpus,
    folder: &Path,
    tell: OnProgress<'_>,
) -> Result<Arc<dyn Retriever>, RetrievalError> {
    use palimpsest::torch::{DenseIndex, Encoder, NearIndex};
    let encoder = Encoder::open(folder, settings)
        .map_err(|error| RetrievalError::Encoder(error.to_string()))?;
    Ok(match kind {
        DenseKind::Exact => Arc::new(DenseIndex::open(corpus, encoder, tell)?),
        DenseKind::Hnsw => Arc::new(NearIndex::open(corpus, encoder, tell)?),
    })
}

/// Refuses: encoders are libtorch's.
#[cfg(not(feature = "torch"))]
pub fn open_dense(
    _: &EngineSettings,
    _: DenseKind,
    corpus: &Corpus,
    folder: &Path,
    tell: OnProgress<'_>,
) -> Result<Arc<dyn Retriever>, RetrievalError> {
    palimpsest::retrieval::no_dense(corpus, folder, tell)
}

/// Opens a corpus and what finds its passages; builds the index if there is none yet.
pub fn open_library(arguments: &Finding, bar: &mut Bar) -> anyhow::Result<Library> {
    let mut tell = |what, done, total| bar.tell(what, done, total);
    let corpus = Arc::new(Corpus::open(&arguments.corpus, &mut tell)?);
    let retriever: Arc<dyn Retriever> = match arguments.mode {
        RetrieveMode::Lexical => Arc::new(LexicalIndex::open(&corpus, &mut tell)?),
        RetrieveMode::Dense => dense(arguments, &corpus, &mut tell)?,
        RetrieveMode::Hybrid => {
            let words: Arc<dyn Retriever> = Arc::new(LexicalIndex::open(&corpus, &mut tell)?);
            Arc::new(Hybrid(vec![words, dense(arguments, &corpus, &mut tell)?]))
        }
    };
    Ok(Library { corpus, retriever })
}

fn dense(
    arguments: &Finding,
    corpus: &Corpus,
    tell: OnProgress<'_>,
) -> anyhow::Result<Arc<dyn Retriever>> {
    let folder = arguments
        .encoder
        .clone()
        .or_else(|| std::env::var_os("PALIMPSEST_ENCODER").map(PathBuf::from))
        .or_else(|| find_path(".encoder"))
        .context(
            "--mode dense and hybrid need an encoder: --encoder DIR (or PALIMPSEST_ENCODER) with config.json, \
             model.safetensors and tokenizer.json; `make encoder` fetches a small one",
        )?;
    Ok(open_dense(
        &EngineSettings::default(),
        match arguments.index {
            DenseMode::Exact => DenseKind::Exact,
            DenseMode::Hnsw => DenseKind::Hnsw,
        },
        corpus,
        &folder,
        tell,
    )?)
}

/// Less time than this is no time.
const AT_ONCE: Duration = Duration::from_millis(500);

/// A progress bar that changes with what is being done; nothing stays of what is done at once.
#[derive(Default)]
pub struct Bar {
    at: Option<(&'static str, Instant, Progress)>,
}

impl Bar {
    /// So much of `what` is done.
    pub fn tell(&mut self, what: &'static str, done: u64, total: u64) {
        if self.at.as_ref().is_none_or(|(at, ..)| *at != what) {
            self.end();
            if done >= total {
                return;
            }
            let progress = Progress::new(what, total, 0, PlainLines::Sparse);
            self.at = Some((what, Instant::now(), progress));
        }
        match &mut self.at {
            Some((_, began, _)) if done >= total && began.elapsed() < AT_ONCE => {
                if let Some((_, _, progress)) = self.at.take() {
                    progress.forget();
                }
            }
            // The beginning is shown, and no line.
            Some((_, _, progress)) if done > 0 => progress.advance(done, ""),
            _ => {}
        }
    }

    /// Nothing more is done.
    pub fn end(&mut self) {
        if let Some((_, _, progress)) = self.at.take() {
            progress.finish();
        }
    }
}

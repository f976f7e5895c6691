//! The exact index: every passage's vector, one after the other in a file that is mapped into
//! memory. A query's score is its inner product with the passage.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tch::{Device, Kind, Tensor};

use super::{Encoder, Role};
use crate::engine::EngineError;
use crate::retrieval::{
    Corpus, Hit, IndexCache, OnProgress, Recipe, RetrievalError, Retriever, sort_hits,
};
use crate::torch::guarded;

const VECTORS: &str = "vectors.f32";
/// Passages that are encoded at a time.
const BATCH: usize = 256;
/// Passages that are compared at a time, so that scores stay in the caches.
const COMPARED: i64 = 1 << 15;

/// A dense index over a corpus, with its encoder.
pub struct DenseIndex {
    path: PathBuf,
    inner: Mutex<Inner>,
}

/// Tensors may be sent to another thread, but not shared by threads.
struct Inner {
    encoder: Encoder,
    /// [passages, width]
    vectors: Tensor,
}

impl DenseIndex {
    /// Opens the index of a corpus by an encoder; builds it first if there is none.
    ///
    /// # Errors
    /// [`RetrievalError`] if it can neither be opened nor built.
    pub fn open(
        corpus: &Corpus,
        encoder: Encoder,
        progress: OnProgress<'_>,
    ) -> Result<Self, RetrievalError> {
        let recipe = Recipe {
            kind: "dense",
            settings: format!("f32 vectors, {}", encoder.fingerprint),
        };
        let cache = IndexCache::new(corpus, &recipe)?;
        let folder = cache.folder(|folder| build(corpus, &encoder, folder, progress))?;
        let path = folder.join(VECTORS);
        let (rows, width) = (corpus.len() as i64, encoder.width() as i64);
        let length = std::fs::metadata(&path)
            .map_err(|source| RetrievalError::reading(&path, source))?
            .len();
        if length != (rows * width * 4) as u64 {
            let problem = format!(
                "{VECTORS} has {length} bytes, but {rows} vectors of {width} numbers have {}",
                rows * width * 4
            );
            return Err(RetrievalError::index(folder, problem));
        }
        let name = path.to_string_lossy();
        let vectors = Tensor::f_from_file(&name, false, rows * width, (Kind::Float, Device::Cpu))
            .and_then(|flat| flat.f_view([rows, width]))
            .map_err(|error| RetrievalError::index(folder, error))?;
        Ok(Self {
            path: folder.to_owned(),
            inner: Mutex::new(Inner { encoder, vectors }),
        })
    }

    /// Gives all vectors to `take`, in order, some at a time, [some, width].
    pub(super) fn rows(
        &self,
        take: &mut dyn FnMut(&[f32]) -> Result<(), RetrievalError>,
    ) -> Result<(), RetrievalError> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let total = inner.vectors.size()[0];
        let mut first = 0;
        while first < total {
            let some = COMPARED.min(total - first);
            let part = inner.vectors.narrow(0, first, some).flatten(0, -1);
            let part = Vec::<f32>::try_from(part)
                .map_err(|error| RetrievalError::index(&self.path, error))?;
            take(&part)?;
            first += some;
        }
        Ok(())
    }

    /// The encoder, back from the index.
    pub(super) fn into_encoder(self) -> Encoder {
        let inner = self.inner.into_inner();
        inner.unwrap_or_else(PoisonError::into_inner).encoder
    }
}

impl Retriever for DenseIndex {
    fn search(&self, queries: &[String], count: usize) -> Result<Vec<Vec<Hit>>, RetrievalError> {
        if queries.is_empty() {
            return Ok(Vec::new());
        }
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let encoded = inner.encoder.encode(queries, Role::Query).map_err(failed)?;
        let hits = guarded(|| {
            let queries = Tensor::from_slice(&encoded).view([queries.len() as i64, -1]);
            Ok(best(&queries, &inner.vectors, count))
        });
        hits.map_err(|error| RetrievalError::index(&self.path, error))
    }
}

pub(super) fn failed(error: EngineError) -> RetrievalError {
    RetrievalError::Encoder(error.to_string())
}

/// For each of `queries` [q, width] the best `count` rows of `vectors` [n, width].
fn best(queries: &Tensor, vectors: &Tensor, count: usize) -> Vec<Vec<Hit>> {
    let total = vectors.size()[0];
    let count = count.min(total as usize);
    let mut hits = vec![Vec::new(); queries.size()[0] as usize];
    let mut first = 0;
    while first < total {
        let rows = COMPARED.min(total - first);
        let scores = queries.matmul(&vectors.narrow(0, first, rows).transpose(0, 1));
        let kept = rows.min(count as i64);
        let (scores, places) = scores.topk(kept, 1, true, true);
        let scores = Vec::<f32>::try_from(scores.flatten(0, -1)).unwrap_or_default();
        let places = Vec::<i64>::try_from(places.flatten(0, -1)).unwrap_or_default();
        let width = (kept as usize).max(1);
        for (of_query, (scores, places)) in hits
            .iter_mut()
            .zip(scores.chunks(width).zip(places.chunks(width)))
        {
            of_query.extend(scores.iter().zip(places).map(|(&score, &place)| Hit {
                passage: (first + place) as u32,
                score,
            }));
            sort_hits(of_query);
            of_query.truncate(count);
        }
        first += rows;
    }
    hits
}

/// Encodes the corpus into a file of vectors.
fn build(
    corpus: &Corpus,
    encoder: &Encoder,
    folder: &Path,
    progress: OnProgress<'_>,
) -> Result<(), RetrievalError> {
    let path = folder.join(VECTORS);
    let writing = |source| RetrievalError::writing(&path, source);
    let mut file = BufWriter::new(File::create(&path).map_err(writing)?);
    let total = corpus.len() as u64;
    let mut done = 0;
    progress("indexing meanings", 0, total);
    let mut passages = corpus.iter();
    loop {
        let texts = passages
            .by_ref()
            .take(BATCH)
            .map(|passage| Ok(passage?.contents))
            .collect::<Result<Vec<String>, RetrievalError>>()?;
        if texts.is_empty() {
            break;
        }
        for number in encoder.encode(&texts, Role::Passage).map_err(failed)? {
            file.write_all(&number.to_ne_bytes()).map_err(writing)?;
        }
        done += texts.len() as u64;
        progress("indexing meanings", done, total);
    }
    let file = file
        .into_inner()
        .map_err(|error| writing(error.into_error()))?;
    file.sync_all().map_err(writing)
}

//! The index for large corpora: a graph of near neighbours (HNSW, Malkov and Yashunin, 2018) over the
//! vectors of the exact index, in a file that is mapped into memory. It finds almost what the exact
//! index finds, in time that hardly grows with the corpus.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use usearch::{Index, IndexOptions, MetricKind, ScalarKind};

use super::index::{DenseIndex, failed};
use super::{Encoder, Role};
use crate::retrieval::{
    Corpus, Hit, IndexCache, OnProgress, Recipe, RetrievalError, Retriever, sort_hits,
};

const GRAPH: &str = "near.usearch";
/// Names library and parameters; a change of any builds anew.
const SETTINGS: &str = "usearch 2, f32, inner product, 32 links, 200 candidates";
/// Links of a passage (M).
const LINKS: usize = 32;
/// Candidates while building (ef_construction).
const BUILDING: usize = 200;
/// Candidates while searching (ef): at least so many, and so many times those asked for.
const SEARCHING: (usize, usize) = (256, 4);
/// How many passages pass between two words on progress.
const TOLD_EVERY: u64 = 500;

/// A dense index of near neighbours over a corpus, with its encoder.
pub struct NearIndex {
    path: PathBuf,
    inner: Mutex<Inner>,
}

struct Inner {
    encoder: Encoder,
    graph: Index,
}

impl NearIndex {
    /// Opens the index of a corpus by an encoder; builds it first if there is none, and the exact
    /// index that it is made from.
    ///
    /// # Errors
    /// [`RetrievalError`] if it can neither be opened nor built.
    pub fn open(
        corpus: &Corpus,
        encoder: Encoder,
        progress: OnProgress<'_>,
    ) -> Result<Self, RetrievalError> {
        let recipe = Recipe {
            kind: "hnsw",
            settings: format!("{SETTINGS}, {}", encoder.fingerprint),
        };
        let width = encoder.width();
        let cache = IndexCache::new(corpus, &recipe)?;
        // The encoder is lent to the exact index, and taken back.
        let mut lent = Some(encoder);
        let folder = cache.folder(|folder| {
            let Some(encoder) = lent.take() else {
                return Err(RetrievalError::index(folder, "it has no encoder"));
            };
            let exact = DenseIndex::open(corpus, encoder, progress)?;
            let rows = corpus.len() as u64;
            let built = build(rows, width, folder, progress, |take| exact.rows(take));
            lent = Some(exact.into_encoder());
            built
        })?;
        let broken = |problem: String| RetrievalError::index(folder, problem);
        let encoder = lent.ok_or_else(|| broken("it has no encoder".to_owned()))?;
        let graph = open(&folder.join(GRAPH)).map_err(broken)?;
        if graph.size() != corpus.len() || graph.dimensions() != width {
            return Err(broken(format!(
                "{GRAPH} has {} vectors of {} numbers, but must have {} of {width}",
                graph.size(),
                graph.dimensions(),
                corpus.len()
            )));
        }
        Ok(Self {
            path: folder.to_owned(),
            inner: Mutex::new(Inner { encoder, graph }),
        })
    }
}

impl Retriever for NearIndex {
    fn search(&self, queries: &[String], count: usize) -> Result<Vec<Vec<Hit>>, RetrievalError> {
        if queries.is_empty() {
            return Ok(Vec::new());
        }
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let encoded = inner.encoder.encode(queries, Role::Query).map_err(failed)?;
        encoded
            .chunks_exact(inner.encoder.width())
            .map(|query| {
                near(&inner.graph, query, count)
                    .map_err(|problem| RetrievalError::index(&self.path, problem))
            })
            .collect()
    }
}

fn options(width: usize) -> IndexOptions {
    IndexOptions {
        dimensions: width,
        metric: MetricKind::IP,
        quantization: ScalarKind::F32,
        connectivity: LINKS,
        expansion_add: BUILDING,
        expansion_search: SEARCHING.0,
        multi: false,
    }
}

/// The best `count` rows of a query.
fn near(graph: &Index, query: &[f32], count: usize) -> Result<Vec<Hit>, String> {
    let count = count.min(graph.size());
    graph.change_expansion_search(SEARCHING.0.max(count.saturating_mul(SEARCHING.1)));
    let found = graph
        .search(query, count)
        .map_err(|error| error.to_string())?;
    let mut hits: Vec<Hit> = found
        .keys
        .iter()
        .zip(&found.distances)
        // The distance of an inner product is 1 less the product.
        .map(|(&row, &distance)| Hit {
            passage: row as u32,
            score: 1.0 - distance,
        })
        .collect();
    sort_hits(&mut hits);
    Ok(hits)
}

fn open(path: &Path) -> Result<Index, String> {
    let path = path.to_str().ok_or("its path is no UTF-8")?;
    Index::restore_view(path).map_err(|error| error.to_string())
}

/// Takes vectors, one after the other.
type Take<'a> = &'a mut dyn FnMut(&[f32]) -> Result<(), RetrievalError>;

/// Builds the graph of `total` vectors, which `feed` gives in their order, by one thread: the same
/// vectors give the same graph.
fn build(
    total: u64,
    width: usize,
    folder: &Path,
    progress: OnProgress<'_>,
    feed: impl FnOnce(Take<'_>) -> Result<(), RetrievalError>,
) -> Result<(), RetrievalError> {
    let broken = |problem: String| RetrievalError::index(folder, problem);
    let graph = Index::new(&options(width)).map_err(|error| broken(error.to_string()))?;
    graph
        .reserve(total as usize)
        .map_err(|error| broken(error.to_string()))?;
    let mut row = 0u64;
    progress("linking meanings", 0, total);
    feed(&mut |vectors| {
        for vector in vectors.chunks_exact(width) {
            graph
                .add(row, vector)
                .map_err(|error| broken(error.to_string()))?;
            row += 1;
            if row.is_multiple_of(TOLD_EVERY) {
                progress("linking meanings", row, total);
            }
        }
        Ok(())
    })?;
    let path = folder.join(GRAPH);
    let path = path
        .to_str()
        .ok_or_else(|| broken("its path is no UTF-8".to_owned()))?;
    graph
        .save(path)
        .map_err(|error| broken(error.to_string()))?;
    progress("linking meanings", total, total);
    Ok(())
}

#[cfg(test)]
mod tests {
    use rand::RngExt as _;

    use super::*;
    use crate::random::{Domain, stream};

    /// Vectors of length 1 around a hundred centres, as texts about a hundred things.
    fn vectors(count: usize, width: usize, seed: u64) -> Vec<f32> {
        let normal = |rng: &mut dyn rand::Rng| -> f32 {
            (0..12)
                .map(|_| rng.next_u32() as f32 / u32::MAX as f32)
                .sum::<f32>()
                - 6.0
        };
        let mut rng = stream(1, Domain::Weights, 0, 0, 0);
        let centres: Vec<f32> = (0..100 * width).map(|_| normal(&mut rng)).collect();
        let mut rng = stream(seed, Domain::Weights, 1, 0, 0);
        (0..count)
            .flat_map(|_| {
                let centre = rng.random_range(0..100usize) * width;
                let one: Vec<f32> = centres[centre..centre + width]
                    .iter()
                    .map(|middle| middle + 0.7 * normal(&mut rng))
                    .collect();
                let length = one.iter().map(|x| x * x).sum::<f32>().sqrt();
                one.into_iter()
                    .map(move |x| x / length)
                    .collect::<Vec<f32>>()
            })
            .collect()
    }

    #[test]
    fn near_neighbours_are_almost_always_the_exact_ones_with_their_scores() {
        const WIDTH: usize = 48;
        let (rows, queries) = (vectors(5000, WIDTH, 2), vectors(100, WIDTH, 3));
        let folder = tempfile::tempdir().unwrap();
        let mut told = Vec::new();
        build(
            5000,
            WIDTH,
            folder.path(),
            &mut |_, done, total| told.push((done, total)),
            |take| take(&rows),
        )
        .unwrap();
        assert_eq!(told.first(), Some(&(0, 5000)));
        assert_eq!(told.last(), Some(&(5000, 5000)));
        let graph = open(&folder.path().join(GRAPH)).unwrap();
        let mut found = 0;
        for query in queries.chunks_exact(WIDTH) {
            let product = |row: &[f32]| -> f32 { row.iter().zip(query).map(|(a, b)| a * b).sum() };
            let mut exact: Vec<Hit> = (0u32..)
                .zip(rows.chunks_exact(WIDTH))
                .map(|(passage, row)| Hit {
                    passage,
                    score: product(row),
                })
                .collect();
            sort_hits(&mut exact);
            let hits = near(&graph, query, 10).unwrap();
            assert_eq!(hits.len(), 10);
            for hit in &hits {
                let row = &rows[hit.passage as usize * WIDTH..][..WIDTH];
                assert!((hit.score - product(row)).abs() < 1e-4);
            }
            found += hits
                .iter()
                .filter(|hit| exact[..10].iter().any(|of| of.passage == hit.passage))
                .count();
        }
        assert!(found >= 980, "recall@10 {}", found as f64 / 1000.0);
        let all = near(&graph, &queries[..WIDTH], usize::MAX).unwrap();
        assert!(all.len() <= 5000, "more than there are");
        // The same vectors give the same graph.
        let again = tempfile::tempdir().unwrap();
        build(5000, WIDTH, again.path(), &mut |_, _, _| {}, |take| {
            take(&rows)
        })
        .unwrap();
        let graph_again = open(&again.path().join(GRAPH)).unwrap();
        for query in queries.chunks_exact(WIDTH) {
            assert_eq!(
                near(&graph, query, 10).unwrap(),
                near(&graph_again, query, 10).unwrap()
            );
        }
    }
}

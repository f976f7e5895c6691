//! Finding passages of a corpus: the corpus itself, indexes over it, and their cache.
//!
//! Reads corpora (`corpus.rs`); writes indexes beside them (`cache.rs`). A [`Retriever`] gives the
//! best passages of a query: by words (`lexical.rs`), by meaning (the encoder in `torch`), or by
//! both (`hybrid.rs`). `server.rs` offers one over HTTP, `client.rs` asks one there.

mod cache;
mod client;
mod corpus;
mod error;
mod hybrid;
mod lexical;
mod library;
mod recall;
mod server;

pub use cache::{IndexCache, Recipe};
pub use client::{RetrieverClient, ServedError};
pub use corpus::{Corpus, Passage};
pub use error::RetrievalError;
pub use hybrid::{Hybrid, fuse};
pub use lexical::LexicalIndex;
pub use library::{Library, OpenDense, no_dense};
pub use recall::{recall_at, same_title};
pub use server::{ServeLimits, serve};

/// A passage that was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// Its position in the corpus, from 0.
    pub passage: u32,
    /// How well it fits; the scale is the retriever's own.
    pub score: f32,
}

/// Finds passages.
pub trait Retriever: Send + Sync {
    /// For every query the best `count` passages, or all that fit where these are fewer, best first;
    /// equal scores in corpus order.
    ///
    /// # Errors
    /// [`RetrievalError`] if the index fails.
    fn search(&self, queries: &[String], count: usize) -> Result<Vec<Vec<Hit>>, RetrievalError>;
}

/// Told while something long is built: what, how much is done, of how much.
pub type OnProgress<'a> = &'a mut dyn FnMut(&'static str, u64, u64);

/// Best first, equal scores in corpus order.
pub fn sort_hits(hits: &mut [Hit]) {
    hits.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.passage.cmp(&b.passage)));
}

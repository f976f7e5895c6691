use std::sync::Arc;

use super::{Corpus, OnProgress, RetrievalError, Retriever};

/// A corpus, and what finds its passages.
#[derive(Clone)]
pub struct Library {
    /// The passages.
    pub corpus: Arc<Corpus>,
    /// What finds them.
    pub retriever: Arc<dyn Retriever>,
}

/// Opens a dense retriever over a corpus with the encoder of a folder. It is given from outside,
/// because encoders live where libtorch is.
pub type OpenDense<'a> = &'a dyn Fn(
    &Corpus,
    &std::path::Path,
    OnProgress<'_>,
) -> Result<Arc<dyn Retriever>, RetrievalError>;

/// Where there is no libtorch there is no encoder.
///
/// # Errors
/// [`RetrievalError::Encoder`], always.
pub fn no_dense(
    _: &Corpus,
    _: &std::path::Path,
    _: OnProgress<'_>,
) -> Result<Arc<dyn Retriever>, RetrievalError> {
    Err(RetrievalError::Encoder(
        "this program was built without libtorch (feature `torch`); lexical retrieval works".into(),
    ))
}

use std::path::{Path, PathBuf};

/// Why passages could not be found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetrievalError {
    /// A file could not be read or written.
    #[error("cannot {action} {path:?}: {source}")]
    Io {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A row of a corpus breaks a rule.
    #[error("{path:?}, line {line}: {problem}; {remedy}")]
    BadRow {
        /// The file.
        path: PathBuf,
        /// Where, counted from 1.
        line: u64,
        /// What is wrong, and the rule.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A corpus has no passage.
    #[error(
        "{0:?} holds no passage; name a file with one JSON row a line, as {{\"id\": \"0\", \"contents\": \"Title\\nText\"}}"
    )]
    Empty(PathBuf),
    /// No folder for an index can be written.
    #[error(
        "no index can be kept: neither {beside:?} nor {cache:?} can be written ({source}); set XDG_CACHE_HOME to a folder that can"
    )]
    NoPlace {
        /// Beside the corpus.
        beside: PathBuf,
        /// In the user's cache.
        cache: PathBuf,
        /// What the system said of the second.
        source: std::io::Error,
    },
    /// An index is damaged or failed.
    #[error("the index in {path:?} failed: {problem}; delete the folder, it is built anew")]
    Index {
        /// Its folder.
        path: PathBuf,
        /// What went wrong.
        problem: String,
    },
    /// An encoder failed.
    #[error("the encoder failed: {0}")]
    Encoder(String),
}

impl RetrievalError {
    /// A file that could not be read.
    pub fn reading(path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            action: "read",
            path: path.to_owned(),
            source,
        }
    }

    /// A file that could not be written.
    pub fn writing(path: &Path, source: std::io::Error) -> Self {
        Self::Io {
            action: "write",
            path: path.to_owned(),
            source,
        }
    }

    /// An index that failed.
    pub fn index(path: &Path, problem: impl std::fmt::Display) -> Self {
        Self::Index {
            path: path.to_owned(),
            problem: problem.to_string(),
        }
    }
}

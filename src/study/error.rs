//! What can go wrong with a study.

use std::path::PathBuf;

use crate::record::RecordError;

/// Why a study cannot be run or told.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StudyError {
    /// Everything that is wrong with the study file and the experiments of its arms.
    #[error("{}\n{} problem{}; nothing was run", .0.join("\n"), .0.len(), if .0.len() == 1 { "" } else { "s" })]
    File(Vec<String>),
    /// The system refused.
    #[error("cannot {doing} {path:?}: {source}")]
    Io {
        /// What was tried, as a verb.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A run folder could not be read.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Runs ended badly.
    #[error(
        "{}; finished runs are kept: mend the cause and run the study again",
        .0.join("; ")
    )]
    Runs(Vec<String>),
    /// A result could not be laid out.
    #[error("cannot lay out {what}: {why}")]
    Layout {
        /// Which file.
        what: &'static str,
        /// What the serialiser said.
        why: String,
    },
}

impl StudyError {
    pub(super) fn io(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            doing,
            path,
            source,
        }
    }
}

//! What can go wrong with a run folder.

use std::io;
use std::path::{Path, PathBuf};

/// Why a run folder could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The system refused.
    #[error("cannot {doing} {path:?}: {source}")]
    Io {
        /// What was tried, as a verb.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// No room is left (or the quota is used up); what was written before is whole.
    #[error(
        "the disk is full: {path:?} could not be written ({source}); free space, then go on with --resume {run:?}"
    )]
    DiskFull {
        /// The file that did not fit.
        path: PathBuf,
        /// The run folder to resume.
        run: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The folder holds no run.
    #[error(
        "{path:?} is not a run folder: {missing}; a run folder is what `palimpsest --experiment FILE` makes, and it holds events.jsonl"
    )]
    NotARun {
        /// The folder.
        path: PathBuf,
        /// What is missing or wrong.
        missing: String,
    },
    /// Something lies where a new run should begin.
    #[error(
        "{path:?} is not empty, and a new run needs a folder of its own; name another --run-dir, or go on with the run in it by --resume {path:?}"
    )]
    Taken {
        /// The folder.
        path: PathBuf,
    },
    /// Another process is writing into it.
    #[error(
        "{path:?} is in use: another process holds its lock ({lock:?}); stop that process, or start a run of its own without --resume"
    )]
    Locked {
        /// The run folder.
        path: PathBuf,
        /// The lock file.
        lock: PathBuf,
    },
    /// A later program wrote it.
    #[error(
        "{path:?} was written with record schema {found} by palimpsest {version}; this program knows schemas up to {known}; open it with palimpsest {version} or later"
    )]
    NewerSchema {
        /// The run folder.
        path: PathBuf,
        /// Its schema.
        found: u32,
        /// The newest schema that is understood here.
        known: u32,
        /// The program that wrote it.
        version: String,
    },
    /// Part of a file does not hold what it should.
    #[error("{path:?} is damaged {place}: {why}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it.
        place: String,
        /// What is wrong.
        why: String,
    },
    /// There is nothing to resume from.
    #[error(
        "{path:?} holds no checkpoint: {why}; start the experiment anew, or name a checkpoint folder"
    )]
    NoCheckpoint {
        /// The run folder.
        path: PathBuf,
        /// What is missing.
        why: String,
    },
    /// A value could not be laid out as JSON or as a page.
    #[error("cannot lay out {what}: {why}")]
    Layout {
        /// Which file or event.
        what: &'static str,
        /// What the serialiser said.
        why: String,
    },
}

impl RecordError {
    /// Names the file and what was tried; a full disk becomes its own variant with a remedy.
    pub(crate) fn io(doing: &'static str, path: &Path, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull {
                path: path.to_path_buf(),
                run: run_of(path),
                source,
            },
            _ => Self::Io {
                doing,
                path: path.to_path_buf(),
                source,
            },
        }
    }

    /// Whether the run stopped for want of room on the disk.
    #[must_use]
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::DiskFull { .. })
    }
}

/// The run folder that a file belongs to: the nearest folder above that holds events.
fn run_of(path: &Path) -> PathBuf {
    path.ancestors()
        .skip(1)
        .find(|folder| folder.join("events.jsonl").is_file())
        .or_else(|| path.parent())
        .unwrap_or(path)
        .to_path_buf()
}

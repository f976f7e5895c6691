//! What can go wrong in the window.

use std::path::PathBuf;

/// An error of the window.
#[derive(Debug, thiserror::Error)]
pub enum GuiError {
    /// A file inside the program is wrong.
    #[error(
        "{name:?} inside the program is wrong: {why}; build palimpsest anew from a clean checkout"
    )]
    Asset {
        /// The file.
        name: &'static str,
        /// What is wrong.
        why: String,
    },
    /// No window could be opened.
    #[error(
        "no window could be opened: {why}; a window needs a display (DISPLAY or WAYLAND_DISPLAY) and OpenGL 2.1 or later, \
         without one try `xvfb-run palimpsest ...`, or read report.html in the run folder"
    )]
    NoWindow {
        /// What the system said.
        why: String,
    },
    /// A lesson of this name does not exist.
    #[error("there is no lesson {name:?}; lessons are {known}")]
    NoLesson {
        /// What was asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A folder that was to be a lesson is no run folder.
    #[error(
        "{path:?} is no run folder: events.jsonl is missing in it; name a run folder, or one of the lessons {known}"
    )]
    NoRun {
        /// The folder.
        path: PathBuf,
        /// The names of the lessons.
        known: String,
    },
    /// A picture or table could not be written.
    #[error("cannot write {path:?}: {why}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The picture of the window never came.
    #[error("the picture {path:?} was not taken: {why}")]
    NoPicture {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// What a run holds does not suffice for what was asked.
    #[error("this cannot be worked out from the record: {0}")]
    NotRecorded(String),
    /// The credit functions refused.
    #[error("credit cannot be assigned: {0}")]
    Credit(#[from] crate::credit::CreditError),
    /// The record could not be read.
    #[error(transparent)]
    Record(#[from] crate::record::RecordError),
}

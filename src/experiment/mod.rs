//! Experiments: typed settings read from RON files.
//!
//! Reads `experiments/*.ron` and overrides from the command line; gives a resolved [`Experiment`]
//! with everything that is worth knowing about it, or all problems of its files at once. From one
//! definition (`spec`) come the types, the defaults, the reader, the writer, the rules and
//! `docs/experiment.md`.

#[macro_use]
mod define;
mod check;
mod finding;
mod load;
mod preset;
mod reader;
mod reference;
mod refuse;
mod setting;
mod sizes;
mod spec;

pub use finding::{ExperimentErrors, Finding, Place, Severity};
pub use load::{Resolved, find_path};
pub use reference::reference_markdown;
pub use spec::*;

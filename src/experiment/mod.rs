//! Experiments: typed settings read from RON files.
//!
//! Reads `experiments/*.ron` and overrides from the command line; gives a resolved [`Experiment`]
//! with everything that is worth knowing about it, or all problems of its files at once. From one
//! definition (`spec`) come the types, the defaults, the reader, the writer, the rules and
//! `docs/experiment.md`.

#[macro_use]
mod define;
#[macro_use]
mod choice;

mod check;
mod finding;
mod leaf;
mod load;
mod paths;
mod preset;
mod reader;
mod reference;
mod refuse;
mod setting;
mod sizes;
mod spec;

pub use finding::{ExperimentErrors, Finding, Place, Severity};
pub use load::Resolved;
pub use paths::find_path;
pub use reference::reference_markdown;
pub use spec::*;

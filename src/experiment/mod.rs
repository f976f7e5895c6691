//! Experiments: typed settings read from RON files.

mod spec;

pub use spec::*;

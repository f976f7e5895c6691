//! Tools: what a trajectory may ask for between two turns.
//!
//! Reads calls, writes replies; every call runs as a future on one tokio runtime behind crossbeam
//! channels (`runtime.rs`, which makes every runtime of the program), so that a slow tool never stops the simulation. A tool is one file and
//! one line in [`embedded`].

mod access;
mod runtime;
mod search;

use std::sync::Arc;

pub use access::Access;
pub use runtime::{
    Interrupts, Runtime, Tool, ToolCall, ToolError, ToolFuture, ToolLink, ToolReply, limit_text,
    start_runtime,
};
pub use search::Search;

/// The tools that need nothing but the question's own documents.
#[must_use]
pub fn embedded() -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(Search), Arc::new(Access)]
}

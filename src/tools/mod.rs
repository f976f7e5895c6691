//! Tools: what a trajectory may ask for between two turns.
//!
//! Reads calls, writes replies; every call runs as a future on one tokio runtime behind crossbeam
//! channels (`runtime.rs`), so that a slow tool never stops the simulation. A tool is one file and
//! one line in [`embedded`].

mod access;
mod limit;
mod runtime;
mod search;
mod shape;

use std::sync::Arc;

pub use access::Access;
pub use limit::limit_text;
pub use runtime::{Interrupts, Tool, ToolCall, ToolError, ToolFuture, ToolLink, ToolReply};
pub use search::Search;
pub use shape::{
    Shown, VerlStatus, asearcher_block, head, information, search_r1_action, search_r1_block,
    search_r1_cut, search_r1_text, verl_text, verl_tool_text,
};

/// The tools that need nothing but the question's own documents.
#[must_use]
pub fn embedded() -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(Search), Arc::new(Access)]
}

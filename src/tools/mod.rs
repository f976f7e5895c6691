//! Tools: what a trajectory may ask for between two turns.
//!
//! Reads calls, writes replies; every call runs as a future on one tokio runtime behind crossbeam
//! channels (`runtime.rs`, which makes every runtime of the program), so that a slow tool never stops
//! the simulation. A tool is one file and one line in [`of`].

mod access;
mod corpus_access;
mod corpus_search;
mod limit;
mod runtime;
mod search;
mod shape;

use std::sync::Arc;

use crate::experiment::TaskSettings;
use crate::task::Task;

pub use access::Access;
pub use corpus_access::CorpusAccess;
pub use corpus_search::CorpusSearch;
pub use limit::{limit_text, limit_tokens};
pub use runtime::{
    Interrupts, Runtime, Tool, ToolCall, ToolError, ToolFuture, ToolLink, ToolReply, start_runtime,
};
pub use search::Search;
pub use shape::{
    Shown, VerlStatus, asearcher_block, asearcher_text, head, information, search_r1_action,
    search_r1_block, search_r1_cut, search_r1_text, verl_text, verl_tool_text,
};

/// The tools of a task: over its library if it has one, else over each question's own documents.
#[must_use]
pub fn of(task: &dyn Task, settings: &TaskSettings) -> Vec<Arc<dyn Tool>> {
    let Some(library) = task.library() else {
        return embedded();
    };
    vec![
        Arc::new(CorpusSearch {
            library: library.clone(),
            passages: settings.passages as usize,
            shape: settings.result_shape,
        }),
        Arc::new(CorpusAccess {
            library: library.clone(),
        }),
    ]
}

/// The tools that need nothing but the question's own documents.
#[must_use]
pub fn embedded() -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(Search), Arc::new(Access)]
}

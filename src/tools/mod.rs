//! Tools: what a trajectory may ask for between two turns.
//!
//! Reads calls, writes replies; every call runs as a future on one tokio runtime behind crossbeam
//! channels (`runtime.rs`, which makes every runtime of the program), so that a slow tool never stops
//! the simulation. A tool is one file and one line in [`of`]; `calculator.rs` shows how little it takes.

mod access;
mod calculator;
mod corpus_access;
mod corpus_search;
mod limit;
mod live;
mod recorded;
mod runtime;
mod search;
mod served;
mod shape;

use std::sync::Arc;

use crate::experiment::{Retrieval, TaskKind, TaskSettings};
use crate::retrieval::{RetrieverClient, ServedError};
use crate::task::Task;

pub use access::Access;
pub use calculator::Calculator;
pub use corpus_access::CorpusAccess;
pub use corpus_search::CorpusSearch;
pub use limit::{limit_text, limit_tokens};
pub use live::{LiveAccess, LivePages};
pub use recorded::{RecordedCall, RecordedTools};
pub use runtime::{
    Interrupts, Runtime, Tool, ToolCall, ToolError, ToolFuture, ToolLink, ToolReply, start_runtime,
    wait_for_signal,
};
pub use search::Search;
pub use served::{ServedAccess, ServedSearch};
pub use shape::{
    Shown, VerlStatus, asearcher_block, asearcher_text, head, information, search_r1_action,
    search_r1_block, search_r1_cut, search_r1_text, verl_text, verl_tool_text,
};

/// What ASearcher says of a page that is not there.
pub(crate) const NO_PAGE: &str = "No More Information is Found for this URL.";

/// The tools of a task, asked in this order: a call goes to the first that serves it.
///
/// # Errors
/// [`ServedError::Setting`] if a retriever that is a server cannot be asked.
pub fn of(task: &dyn Task, settings: &TaskSettings) -> Result<Vec<Arc<dyn Tool>>, ServedError> {
    if settings.kind != TaskKind::Search {
        return Ok(embedded());
    }
    let (passages, shape) = (settings.passages as usize, settings.result_shape);
    let (search, mut access): (Arc<dyn Tool>, Arc<dyn Tool>) =
        match (&settings.retrieval, task.library()) {
            (Retrieval::Served(server), _) => {
                let client = Arc::new(RetrieverClient::new(server)?);
                let access = ServedAccess {
                    client: Arc::clone(&client),
                };
                let search = ServedSearch {
                    client,
                    passages,
                    shape,
                };
                (Arc::new(search), Arc::new(access))
            }
            (_, Some(library)) => {
                let library = library.clone();
                let access = CorpusAccess {
                    library: library.clone(),
                };
                let search = CorpusSearch {
                    library,
                    passages,
                    shape,
                };
                (Arc::new(search), Arc::new(access))
            }
            (_, None) => return Ok(embedded()),
        };
    if settings.live_pages {
        access = Arc::new(LiveAccess {
            inner: access,
            pages: Arc::default(),
        });
    }
    Ok(vec![Arc::new(Calculator), search, access])
}

/// The tools that need nothing but the question's own documents.
#[must_use]
pub fn embedded() -> Vec<Arc<dyn Tool>> {
    vec![Arc::new(Search), Arc::new(Access)]
}

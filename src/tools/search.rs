//! `<search>`: looks a query up in the documents of the question.

use super::{Tool, ToolCall, ToolFuture};
use crate::task::{NOTHING_FOUND, find_document};
use crate::trajectory::Action;

/// Finds the document whose query is exactly the one asked.
pub struct Search;

impl Tool for Search {
    fn name(&self) -> &'static str {
        "search"
    }

    fn serves(&self, action: &Action) -> bool {
        matches!(action, Action::Search(_))
    }

    fn call(&self, call: ToolCall) -> ToolFuture {
        Box::pin(async move {
            let Action::Search(query) = &call.action else {
                return Ok(NOTHING_FOUND.to_owned());
            };
            Ok(find_document(&call.question, query)
                .unwrap_or(NOTHING_FOUND)
                .to_owned())
        })
    }
}

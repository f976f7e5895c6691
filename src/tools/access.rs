//! `<access>`: opens the page of a name in the documents of the question.

use super::{Tool, ToolCall, ToolFuture};
use crate::task::{NOTHING_FOUND, find_document};
use crate::trajectory::Action;

/// Opens the document `page:NAME`.
pub struct Access;

impl Tool for Access {
    fn name(&self) -> &'static str {
        "access"
    }

    fn serves(&self, action: &Action) -> bool {
        matches!(action, Action::Access(_))
    }

    fn call(&self, call: ToolCall) -> ToolFuture {
        Box::pin(async move {
            let Action::Access(page) = &call.action else {
                return Ok(NOTHING_FOUND.to_owned());
            };
            let key = format!("page:{}", page.trim());
            Ok(find_document(&call.question, &key)
                .unwrap_or(NOTHING_FOUND)
                .to_owned())
        })
    }
}

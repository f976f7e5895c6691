//! `<access>`: opens the page of a name in the documents of the question.

use super::search::NOTHING_FOUND;
use super::{Tool, ToolCall, ToolFuture};
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
            Ok(call
                .question
                .find_document(&key)
                .unwrap_or(NOTHING_FOUND)
                .to_owned())
        })
    }
}

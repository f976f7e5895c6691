//! `<search>` and `<access>` of a retriever that is a server.

use std::sync::Arc;

use super::corpus_search::told;
use super::{NO_PAGE, Tool, ToolCall, ToolError, ToolFuture};
use crate::experiment::ResultShape;
use crate::retrieval::{RetrieverClient, ServedError};
use crate::trajectory::Action;

/// Finds passages on a server.
pub struct ServedSearch {
    /// The server; the same as that of [`ServedAccess`], so that one rate holds for both.
    pub client: Arc<RetrieverClient>,
    /// How many passages.
    pub passages: usize,
    /// How they are told.
    pub shape: ResultShape,
}

impl Tool for ServedSearch {
    fn name(&self) -> &'static str {
        "search"
    }

    fn serves(&self, action: &Action) -> bool {
        matches!(action, Action::Search(_))
    }

    fn call(&self, call: ToolCall) -> ToolFuture {
        let (client, count, shape) = (Arc::clone(&self.client), self.passages, self.shape);
        Box::pin(async move {
            let query = match call.action {
                Action::Search(query) => query.trim().to_owned(),
                other => return Err(ToolError::Unknown(other)),
            };
            let found = client.retrieve(&[query], count).await;
            let passages = found.map_err(|error| failed("search", &error))?;
            Ok(told(&passages.concat(), shape))
        })
    }
}

/// Reads pages from a server. Nothing is fetched from anywhere else.
pub struct ServedAccess {
    /// The server.
    pub client: Arc<RetrieverClient>,
}

impl Tool for ServedAccess {
    fn name(&self) -> &'static str {
        "access"
    }

    fn serves(&self, action: &Action) -> bool {
        matches!(action, Action::Access(_))
    }

    fn call(&self, call: ToolCall) -> ToolFuture {
        let client = Arc::clone(&self.client);
        Box::pin(async move {
            let url = match call.action {
                Action::Access(url) => url.trim().to_owned(),
                other => return Err(ToolError::Unknown(other)),
            };
            let pages = client.access(&[url]).await;
            let pages = pages.map_err(|error| failed("access", &error))?;
            Ok(pages
                .into_iter()
                .flatten()
                .next()
                .unwrap_or_else(|| NO_PAGE.to_owned()))
        })
    }
}

fn failed(name: &str, error: &ServedError) -> ToolError {
    ToolError::Failed {
        name: name.into(),
        problem: error.to_string(),
    }
}

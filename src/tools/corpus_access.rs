//! `<access>` to the pages of a corpus.

use super::{NO_PAGE, Tool, ToolCall, ToolError, ToolFuture};
use crate::retrieval::Library;
use crate::trajectory::Action;

/// Reads the page at an address, if the corpus has it. Nothing is fetched from anywhere else.
pub struct CorpusAccess {
    /// Where.
    pub library: Library,
}

impl Tool for CorpusAccess {
    fn name(&self) -> &'static str {
        "access"
    }

    fn serves(&self, action: &Action) -> bool {
        matches!(action, Action::Access(_))
    }

    fn call(&self, call: ToolCall) -> ToolFuture {
        let corpus = self.library.corpus.clone();
        Box::pin(async move {
            let url = match call.action {
                Action::Access(url) => url,
                other => return Err(ToolError::Unknown(other)),
            };
            let failed = |problem: String| ToolError::Failed {
                name: "access".into(),
                problem,
            };
            let page = tokio::task::spawn_blocking(move || corpus.page(&url))
                .await
                .map_err(|error| failed(error.to_string()))?
                .map_err(|error| failed(error.to_string()))?;
            Ok(page.unwrap_or_else(|| NO_PAGE.to_owned()))
        })
    }
}

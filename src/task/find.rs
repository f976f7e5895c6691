use std::path::Path;

use crate::experiment::{TaskKind, TaskSettings};
use crate::retrieval::{OnProgress, OpenDense};
use crate::tokenizer::TextTokenizer;
use crate::trajectory::QuestionData;

use super::lookup::LookupTask;
use super::search::SearchTask;
use super::{Task, TaskError};

/// What a tool answers to a query that no document has.
pub const NOTHING_FOUND: &str = "nothing found.";

/// The document of a question that has exactly this query; spaces around it do not matter. None is
/// shown to the policy as [`NOTHING_FOUND`].
#[must_use]
pub fn find_document<'a>(question: &'a QuestionData, query: &str) -> Option<&'a str> {
    let query = query.trim();
    question
        .documents
        .iter()
        .find(|(key, _)| key == query)
        .map(|(_, text)| text.as_str())
}

/// Sets up the task that an experiment names. `tokenizer` is that of the policy, if it brings one;
/// without it the lookup task has the shipped tokenizer, or one trained on its own file of facts.
/// `dense` opens a dense retriever where one is asked for; `progress` hears of what takes long.
///
/// # Errors
/// [`TaskError`] if a file breaks a rule.
pub fn load(
    settings: &TaskSettings,
    tokenizer: Option<TextTokenizer>,
    dense: OpenDense<'_>,
    progress: OnProgress<'_>,
) -> Result<Box<dyn Task>, TaskError> {
    match settings.kind {
        TaskKind::Lookup => {
            let task = match (settings.facts.as_str(), tokenizer) {
                ("", None) => LookupTask::shipped()?,
                ("", Some(tokenizer)) => LookupTask::shipped_for(tokenizer)?,
                (path, tokenizer) => LookupTask::from_file(Path::new(path), tokenizer)?,
            };
            Ok(Box::new(task))
        }
        TaskKind::Search => {
            let tokenizer = tokenizer.ok_or(TaskError::NoTokenizer)?;
            Ok(Box::new(SearchTask::open(
                settings, tokenizer, dense, progress,
            )?))
        }
    }
}

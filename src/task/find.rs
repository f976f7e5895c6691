use std::path::Path;

use crate::experiment::{TaskKind, TaskSettings};
use crate::trajectory::QuestionData;

use super::lookup::LookupTask;
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

/// Sets up the task that an experiment names.
///
/// # Errors
/// [`TaskError`] if its file of facts breaks a rule.
pub fn load(settings: &TaskSettings) -> Result<Box<dyn Task>, TaskError> {
    match settings.kind {
        TaskKind::Lookup if settings.facts.is_empty() => Ok(Box::new(LookupTask::shipped()?)),
        TaskKind::Lookup => Ok(Box::new(LookupTask::from_file(
            Path::new(&settings.facts),
            None,
        )?)),
        kind @ TaskKind::SearchQa => Err(TaskError::NotBuilt { kind }),
    }
}

//! Questions over a corpus: read from files, and put together to questions with several objectives.

mod compose;
mod judge;
mod question;
mod ready;
mod row;
mod task;
mod told;
mod verl_rows;

pub use compose::compose;
pub(in crate::task) use judge::{count_notes, judge};
pub use question::{Asked, SearchQuestion};
pub use task::SearchTask;

use std::path::Path;

use super::TaskError;

/// Reads questions: `.parquet` in verl's rows, anything else as JSON lines.
///
/// # Errors
/// [`TaskError`] naming file, line (or row) and what is wrong.
pub fn read_questions(path: &Path) -> Result<Vec<SearchQuestion>, TaskError> {
    read(path, row::question)
}

/// Reads questions that are only looked up: whole, with one objective and without right answers,
/// whether the file has some or not.
///
/// # Errors
/// As [`read_questions`].
pub fn read_queries(path: &Path) -> Result<Vec<SearchQuestion>, TaskError> {
    read(path, row::query)
}

fn read(path: &Path, make: row::Make) -> Result<Vec<SearchQuestion>, TaskError> {
    let is_parquet = path
        .extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("parquet"));
    let questions = if is_parquet {
        verl_rows::read(path, make)?
    } else {
        row::read_lines(path, make)?
    };
    if questions.is_empty() {
        return Err(TaskError::NoQuestions {
            path: path.to_owned(),
        });
    }
    Ok(questions)
}

#[cfg(test)]
pub(crate) mod tests;

use std::path::PathBuf;

use crate::engine::EngineError;
use crate::task::Split;

/// Why a task could not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// The file of facts could not be read.
    #[error(
        "cannot read the facts in {path:?} ({source}); name a file, or \"\" for the shipped facts"
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file of facts breaks a rule.
    #[error("{path:?}, line {line}: {problem}; {remedy}")]
    BadFacts {
        /// The file.
        path: PathBuf,
        /// Where, counted from 1.
        line: usize,
        /// Which entity and field, its value in quotes, and the rule.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
    /// Too few entities can be asked about.
    #[error(
        "the facts in {path:?} leave {usable} usable entities in the split {split:?} and at least {needed} are needed; \
         an entity is usable if it has a name and two values of at most 3 tokens, and its name does not begin with \"The\""
    )]
    TooFewEntities {
        /// The file.
        path: PathBuf,
        /// The split.
        split: Split,
        /// How many it has.
        usable: usize,
        /// How many it needs.
        needed: usize,
    },
    /// A file of questions could not be read.
    #[error("cannot read the questions in {path:?} ({source})")]
    UnreadableQuestions {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A row of questions breaks a rule.
    #[error("{path:?}, {unit} {number}: {problem}; {remedy}")]
    BadQuestion {
        /// The file.
        path: PathBuf,
        /// What is counted: `line` or `row`.
        unit: &'static str,
        /// Where, counted from 1.
        number: usize,
        /// What is wrong, and the rule.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A file of questions is no file that can be read.
    #[error("{path:?}: {problem}; {remedy}")]
    BadQuestions {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A file holds no question.
    #[error(
        "{path:?} holds no question; write one JSON object a line, as {{\"question\": .., \"golden_answers\": [..]}}"
    )]
    NoQuestions {
        /// The file.
        path: PathBuf,
    },
    /// Too few questions for so many objectives.
    #[error(
        "the {questions} questions in {path:?} give no question with {objectives} objectives: they have {having} each, and only such with 1 are put together; name a file of more, or ask for another number of objectives"
    )]
    TooFewQuestions {
        /// The file.
        path: PathBuf,
        /// How many it has.
        questions: usize,
        /// How many objectives they have, as words.
        having: String,
        /// How many are wanted in one.
        objectives: u32,
    },
    /// A search task has no tokenizer of its own.
    #[error(
        "the search task needs the tokenizer of the policy; name a folder as policy, as Folder(\"..\")"
    )]
    NoTokenizer,
    /// The policy brings no chat template that shows what the user says.
    #[error(
        "task.chat is on, but the policy's folder has no chat template that shows a message of the user; set task.chat: false, or bring chat_template.jinja"
    )]
    NoTemplate,
    /// A corpus or its index could not be used.
    #[error(transparent)]
    Retrieval(#[from] crate::retrieval::RetrievalError),
    /// The tokenizer could not be read or trained.
    #[error(transparent)]
    Tokenizer(#[from] EngineError),
}

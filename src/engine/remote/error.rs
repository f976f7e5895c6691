//! What can go wrong with a server.

use super::Lack;

/// Why a server did not do what was asked. `what` names the request, such as
/// `POST /generate for turn 2 of trajectory 0/t/1/3`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The settings do not make a client.
    #[error("engine.generator: {0}")]
    Setting(String),
    /// No connection, or it broke.
    #[error(
        "{what}: the server at {url} could not be reached, or broke off, {tries} times ({problem}); start it, or correct engine.generator.url"
    )]
    Unreachable {
        /// The request.
        what: String,
        /// Where.
        url: String,
        /// How often it was tried.
        tries: u32,
        /// The last problem.
        problem: String,
    },
    /// No answer in time.
    #[error(
        "{what}: no answer within {seconds} s; look at the server's load, lower engine.generator.in_flight, or raise its {setting}"
    )]
    TimedOut {
        /// The request.
        what: String,
        /// The limit.
        seconds: f32,
        /// The setting that holds the limit.
        setting: &'static str,
    },
    /// A status that another try would not change.
    #[error("{what}: the server refused it with status {status}: {said:?}{hint}")]
    Refused {
        /// The request.
        what: String,
        /// HTTP status.
        status: u16,
        /// The beginning of its answer.
        said: String,
        /// What may help.
        hint: &'static str,
    },
    /// A status that says "later", every time.
    #[error(
        "{what}: the server failed with status {status} {tries} times: {said:?}; its log says why"
    )]
    Failing {
        /// The request.
        what: String,
        /// HTTP status.
        status: u16,
        /// How often it was tried.
        tries: u32,
        /// The beginning of its answer.
        said: String,
    },
    /// The answer is too long to be one.
    #[error(
        "{what}: the answer has more than {limit} bytes, the most that is read; is this address the server's?"
    )]
    TooLong {
        /// The request.
        what: String,
        /// The limit.
        limit: usize,
    },
    /// The answer is no JSON.
    #[error("{what}: the answer is no JSON ({problem}): {said:?}")]
    NotJson {
        /// The request.
        what: String,
        /// What the parser said.
        problem: String,
        /// The beginning of the answer.
        said: String,
    },
    /// The answer contradicts the request or itself.
    #[error("{what}: in the answer, {field} {problem}")]
    BadReply {
        /// The request.
        what: String,
        /// The field.
        field: String,
        /// The value and the rule it breaks.
        problem: String,
    },
    /// The server cannot do what the run needs.
    #[error("the server at {url} ({product}) cannot serve this run:{}", told(.lacks))]
    Lacks {
        /// Where.
        url: String,
        /// What it is.
        product: String,
        /// Everything that is missing.
        lacks: Vec<Lack>,
    },
    /// The server did not load the weights.
    #[error(
        "the server did not load the weights in {folder:?}: {said:?}; that folder must be one that the server sees (engine.generator.server_folder), of the model it was started with"
    )]
    NotLoaded {
        /// The folder as the server was told.
        folder: String,
        /// What it said.
        said: String,
    },
    /// Server and learner do not compute the same.
    #[error(
        "after weight update {update}, the server's log-probs are not the learner's: {problem}"
    )]
    Disagrees {
        /// Number of the update.
        update: u64,
        /// The gap, the rule, the remedy.
        problem: String,
    },
}

fn told(lacks: &[Lack]) -> String {
    lacks
        .iter()
        .map(|lack| format!("\n  - {}: {}", lack.what, lack.remedy))
        .collect()
}

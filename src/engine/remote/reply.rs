//! Reading answers without trusting them: every id is one of the vocabulary, every log-prob is a
//! number a probability can have, and lists that belong together have one length.

use serde_json::Value;

use super::RemoteError;
use crate::trajectory::TokenId;

/// Log-prob of an impossible token in a score: vLLM's stand-in for minus infinity.
pub(super) const IMPOSSIBLE: f32 = -9999.0;
/// Rounding may lift the log-prob of a certain token this far above 0.
const ABOVE_ZERO: f64 = 1e-3;

/// What is asked of a server for one piece of a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    /// For messages: whose turn.
    pub what: &'a str,
    pub context: &'a [TokenId],
    pub max_new_tokens: u32,
    pub temperature: f32,
    pub seed: u32,
    /// Empty: the server is not to look for any.
    pub stop: &'a [String],
}

/// Why the server ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The most new tokens.
    Length,
    /// It says `stop` and names no string: the end-of-text id.
    Text,
    /// This stop string.
    Stop(String),
}

/// What a server answered.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Answer {
    /// None if it returns only text.
    pub ids: Option<Vec<TokenId>>,
    /// One for each id; none if it returns none.
    pub logprobs: Option<Vec<f32>>,
    pub text: String,
    pub end: End,
}

/// One answer being read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading<'a> {
    pub what: &'a str,
    pub value: &'a Value,
}

impl<'a> Reading<'a> {
    pub fn new(what: &'a str, value: &'a Value) -> Self {
        Self { what, value }
    }

    pub fn bad(&self, field: impl Into<String>, problem: impl Into<String>) -> RemoteError {
        RemoteError::BadReply {
            what: self.what.to_owned(),
            field: field.into(),
            problem: problem.into(),
        }
    }

    /// A value by its JSON pointer; none if absent or null.
    pub fn at(&self, pointer: &str) -> Option<&'a Value> {
        self.value.pointer(pointer).filter(|value| !value.is_null())
    }

    /// A list that must be there.
    pub fn list(&self, pointer: &str) -> Result<&'a [Value], RemoteError> {
        match self.at(pointer) {
            Some(Value::Array(list)) => Ok(list),
            Some(other) => {
                Err(self.bad(pointer, format!("is {}, but must be a list", short(other))))
            }
            None => Err(self.bad(pointer, "is missing")),
        }
    }

    /// A token id.
    pub fn id(&self, field: &str, value: &Value) -> Result<TokenId, RemoteError> {
        let id = value.as_u64().and_then(|id| TokenId::try_from(id).ok());
        id.ok_or_else(|| {
            self.bad(
                field,
                format!("is {}, but must be a token id", short(value)),
            )
        })
    }

    /// Token ids.
    pub fn ids(&self, field: &str, values: &[Value]) -> Result<Vec<TokenId>, RemoteError> {
        values.iter().map(|value| self.id(field, value)).collect()
    }

    /// A log-prob: a number of at most 0, or one of the ways to write minus infinity (null, a string,
    /// -9999, the lowest float), which becomes [`IMPOSSIBLE`].
    pub fn logprob(&self, field: &str, value: &Value) -> Result<f32, RemoteError> {
        let number = match value {
            Value::Null => f64::NEG_INFINITY,
            Value::Number(number) => number.as_f64().unwrap_or(f64::NAN),
            Value::String(text) => match text.to_ascii_lowercase().as_str() {
                "-inf" | "-infinity" => f64::NEG_INFINITY,
                _ => f64::NAN,
            },
            _ => f64::NAN,
        };
        if number.is_nan() || number > ABOVE_ZERO {
            return Err(self.bad(
                field,
                format!("is {}, but must be a number of at most 0", short(value)),
            ));
        }
        Ok(number.clamp(f64::from(IMPOSSIBLE), 0.0) as f32)
    }

    /// The log-prob of a token that was sampled, so that it cannot be impossible.
    pub fn sampled(&self, field: &str, value: &Value) -> Result<f32, RemoteError> {
        let logprob = self.logprob(field, value)?;
        if logprob <= IMPOSSIBLE {
            return Err(self.bad(
                field,
                format!("is {} for a token that was sampled", short(value)),
            ));
        }
        Ok(logprob)
    }

    /// Log-probs of sampled tokens.
    pub fn all_sampled(&self, field: &str, values: &[Value]) -> Result<Vec<f32>, RemoteError> {
        values
            .iter()
            .map(|value| self.sampled(field, value))
            .collect()
    }

    /// Refuses an answer to another prompt: a server that adds or cuts ids scores other contexts than
    /// those trained on.
    pub fn same_prompt(&self, pointer: &str, length: usize) -> Result<(), RemoteError> {
        match self.at(pointer).and_then(Value::as_u64) {
            Some(seen) if seen != length as u64 => Err(self.bad(
                pointer,
                format!("is {seen}, but {length} ids were sent: the server adds or cuts ids"),
            )),
            _ => Ok(()),
        }
    }
}

/// Checks an answer against its request and the vocabulary.
pub(super) fn check(ask: &Ask<'_>, answer: &Answer, vocabulary: usize) -> Result<(), RemoteError> {
    let bad = |field: &str, problem: String| RemoteError::BadReply {
        what: ask.what.to_owned(),
        field: field.to_owned(),
        problem,
    };
    let Some(ids) = &answer.ids else {
        return Ok(());
    };
    if let Some(logprobs) = answer.logprobs.as_ref().filter(|l| l.len() != ids.len()) {
        return Err(bad(
            "log-probs",
            format!("are {}, but there are {} ids", logprobs.len(), ids.len()),
        ));
    }
    if ids.is_empty() {
        return Err(bad(
            "the list of ids",
            "is empty: nothing was sampled".into(),
        ));
    }
    if ids.len() > ask.max_new_tokens as usize {
        return Err(bad(
            "the list of ids",
            format!(
                "has {}, but at most {} were asked for",
                ids.len(),
                ask.max_new_tokens
            ),
        ));
    }
    if let Some(id) = ids.iter().find(|id| **id as usize >= vocabulary) {
        return Err(bad(
            "an id",
            format!(
                "is {id}, but the policy's tokenizer has {vocabulary} ids: the server has another model"
            ),
        ));
    }
    Ok(())
}

/// A value short enough for a message.
pub(super) fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

//! A server with everything that is known of it: what `generate.rs`, `score.rs` and `load.rs` work
//! with.

use std::sync::Arc;

use serde_json::Value;

use super::http::{Http, Patience};
use super::reply::{Answer, Ask};
use super::{Capabilities, RemoteError, ScoreWay, openai, sglang};
use crate::tokenizer::TextTokenizer;
use crate::trajectory::TokenId;

/// The language that is spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    /// SGLang's own.
    Sglang,
    /// Completions; the model has to be named.
    OpenAi { model: String },
}

/// A way to talk to a server.
pub(super) struct Line {
    pub http: Http,
    pub protocol: Protocol,
    /// Whether sampling takes a seed.
    pub seeded: bool,
}

impl Line {
    /// One piece of a turn, as the server answers it.
    pub async fn generate(&self, ask: &Ask<'_>) -> Result<Answer, RemoteError> {
        let (path, body) = match &self.protocol {
            Protocol::Sglang => (sglang::GENERATE, sglang::generate_body(ask, self.seeded)),
            Protocol::OpenAi { model } => (openai::COMPLETIONS, openai::generate_body(ask, model)),
        };
        let value = self.post(path, &body, ask.what).await?;
        match self.protocol {
            Protocol::Sglang => sglang::read_generated(ask, &value),
            Protocol::OpenAi { .. } => openai::read_generated(ask, &value),
        }
    }

    /// Log-probs of `ids[from..]` at temperature 1; `from` is at least 1.
    pub async fn score(
        &self,
        what: &str,
        ids: &[TokenId],
        from: usize,
        way: ScoreWay,
    ) -> Result<Vec<f32>, RemoteError> {
        let (path, body) = match &self.protocol {
            Protocol::Sglang => (sglang::GENERATE, sglang::score_body(ids, from)),
            Protocol::OpenAi { model } => {
                (openai::COMPLETIONS, openai::score_body(ids, model, way))
            }
        };
        let value = self.post(path, &body, what).await?;
        match self.protocol {
            Protocol::Sglang => sglang::read_scored(what, &value, ids, from),
            Protocol::OpenAi { .. } => openai::read_scored(what, &value, ids, from, way),
        }
    }

    async fn post(&self, path: &str, body: &Value, what: &str) -> Result<Value, RemoteError> {
        self.http.post(path, body, what, Patience::Work).await
    }
}

/// A server after the handshake.
pub(super) struct Server {
    pub line: Line,
    pub can: Capabilities,
    pub tokenizer: Arc<TextTokenizer>,
    /// Whether ids and log-probs must come from the server.
    pub strict: bool,
}

//! A retriever that is a server: Search-R1's, ASearcher's, or our own (`server.rs`).
//!
//! Every try has a time limit, answers are bounded and checked, redirects are not followed, and
//! requests keep to one rate. What can be better the next time is tried again: a broken connection, a
//! time-out, an answer that breaks off, 429, 500, 502, 503, 504. The wait before it doubles, and is no
//! shorter than the server asks for (`Retry-After`). A dropped future drops its connection.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::MonotonicClock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};

use super::Passage;
use crate::experiment::RetrieverSettings;
use crate::http::{beginning, breaks_off, chain, client_of, untimed};

/// The longest wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Most bytes of an answer that an error repeats.
const MOST_TOLD: usize = 200;

/// Why a server gave no passages. The texts go to the policy, so they name no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServedError {
    /// The settings make no client.
    #[error("task.retrieval: {0}")]
    Setting(String),
    /// No try came through.
    #[error("the server could not be reached in {tries} tries ({problem})")]
    Unreachable {
        /// Tries made.
        tries: u32,
        /// What went wrong the last time.
        problem: String,
    },
    /// The server answered with an error.
    #[error("the server answered {status} in {tries} tries ({said})")]
    Status {
        /// The HTTP status.
        status: u16,
        /// Tries made.
        tries: u32,
        /// The beginning of the answer.
        said: String,
    },
    /// The answer is longer than it may be.
    #[error("the server's answer is longer than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: u64,
    },
    /// The answer has another shape.
    #[error("the server's answer makes no sense: {0}")]
    Nonsense(String),
}

/// A client of one server. One rate holds for everything that is asked of it.
pub struct RetrieverClient {
    client: Client,
    base: String,
    settings: RetrieverSettings,
    rate: Option<
        RateLimiter<NotKeyed, InMemoryState, MonotonicClock, NoOpMiddleware<std::time::Instant>>,
    >,
}

/// What became of one try.
enum Failure {
    Final(ServedError),
    Broken(String),
    /// With the wait that the server asks for.
    Status(StatusCode, String, Option<Duration>),
}

impl RetrieverClient {
    /// A client of the server that the settings name.
    ///
    /// # Errors
    /// [`ServedError::Setting`] for an address that is none, or if TLS cannot be set up.
    pub fn new(settings: &RetrieverSettings) -> Result<Self, ServedError> {
        let base = settings.url.trim().trim_end_matches('/');
        // verl's files name the whole address of the route.
        let base = base.strip_suffix("/retrieve").unwrap_or(base).to_owned();
        let parsed = reqwest::Url::parse(&base);
        if !parsed.is_ok_and(|url| matches!(url.scheme(), "http" | "https")) {
            return Err(ServedError::Setting(format!(
                "{:?} is no address of a server; write http://HOST:PORT",
                settings.url
            )));
        }
        let client = client_of(&base).build().map_err(|error| {
            ServedError::Setting(format!("no HTTP client can be made: {}", chain(&error)))
        })?;
        let rate = NonZeroU32::new(settings.rate)
            .map(|rate| RateLimiter::direct_with_clock(Quota::per_second(rate), MonotonicClock));
        Ok(Self {
            client,
            base,
            settings: settings.clone(),
            rate,
        })
    }

    /// For every query its passages, best first.
    ///
    /// # Errors
    /// [`ServedError`].
    pub async fn retrieve(
        &self,
        queries: &[String],
        count: usize,
    ) -> Result<Vec<Vec<Passage>>, ServedError> {
        let body = json!({"queries": queries, "topk": count, "return_scores": true});
        let lists = self.results("/retrieve", &body, queries.len()).await?;
        lists
            .iter()
            .map(|list| {
                let rows = list
                    .as_array()
                    .ok_or_else(|| nonsense("the passages of a query are no list", list))?;
                // A server that knows better than its request is cut to what was asked.
                rows.iter().take(count).map(passage).collect()
            })
            .collect()
    }

    /// For every address its page; none where the server has no such page.
    ///
    /// # Errors
    /// [`ServedError`].
    pub async fn access(&self, urls: &[String]) -> Result<Vec<Option<String>>, ServedError> {
        let body = json!({"urls": urls});
        let rows = self.results("/access", &body, urls.len()).await?;
        rows.iter()
            .map(|row| match row {
                Value::Null => Ok(None),
                row => passage(row).map(|page| Some(page.contents)),
            })
            .collect()
    }

    /// The list under `result`, which must have so many entries.
    async fn results(
        &self,
        path: &str,
        body: &Value,
        entries: usize,
    ) -> Result<Vec<Value>, ServedError> {
        let bytes = self.ask(path, body).await?;
        let mut answer: Value = serde_json::from_slice(&bytes).map_err(|error| {
            ServedError::Nonsense(format!(
                "it is no JSON ({error}): {}",
                beginning(&bytes, MOST_TOLD)
            ))
        })?;
        let Some(Value::Array(list)) = answer.get_mut("result").map(Value::take) else {
            return Err(nonsense("it has no list \"result\"", &answer));
        };
        if list.len() != entries {
            return Err(ServedError::Nonsense(format!(
                "{} results for {entries} queries",
                list.len()
            )));
        }
        Ok(list)
    }

    async fn ask(&self, path: &str, body: &Value) -> Result<Vec<u8>, ServedError> {
        let limit = Duration::from_secs_f32(self.settings.timeout_seconds.clamp(0.001, 86_400.0));
        let mut wait = Duration::from_secs_f32(self.settings.retry_seconds);
        let tries = self.settings.tries.max(1);
        let mut tried = 0;
        loop {
            if let Some(rate) = &self.rate {
                // A rate that is ours is no slowness of the server.
                untimed(rate.until_ready()).await;
            }
            tried += 1;
            let failure = match tokio::time::timeout(limit, self.once(path, body)).await {
                Ok(Ok(bytes)) => return Ok(bytes),
                Ok(Err(failure)) => failure,
                Err(_) => {
                    Failure::Broken(format!("no whole answer within {} s", limit.as_secs_f32()))
                }
            };
            let (error, asked) = match failure {
                Failure::Final(error) => return Err(error),
                Failure::Broken(problem) => (ServedError::Unreachable { tries, problem }, None),
                Failure::Status(status, said, asked) => {
                    let status = status.as_u16();
                    (
                        ServedError::Status {
                            status,
                            tries,
                            said,
                        },
                        asked,
                    )
                }
            };
            if tried >= tries {
                tracing::warn!("{}{path}: {error}", self.base);
                return Err(error);
            }
            tracing::debug!("{}{path}: try {tried} failed: {error}", self.base);
            // A server that names a time is not asked before.
            tokio::time::sleep(wait.max(asked.unwrap_or_default()).min(LONGEST_WAIT)).await;
            wait = wait.saturating_mul(2).min(LONGEST_WAIT);
        }
    }

    async fn once(&self, path: &str, body: &Value) -> Result<Vec<u8>, Failure> {
        let broken = |error: reqwest::Error| Failure::Broken(chain(&error.without_url()));
        let limit = self.settings.answer_bytes;
        let too_long = || Failure::Final(ServedError::TooLong { limit });
        let mut response = self
            .client
            .post(format!("{}{path}", self.base))
            .header(CONTENT_TYPE, "application/json")
            .body(body.to_string())
            .send()
            .await
            .map_err(broken)?;
        let status = response.status();
        if status.is_success()
            && response
                .content_length()
                .is_some_and(|length| length > limit)
        {
            return Err(too_long());
        }
        let asked = response.headers().get(RETRY_AFTER);
        let asked = asked.and_then(|after| after.to_str().ok()?.trim().parse().ok());
        let asked = asked.map(Duration::from_secs);
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() as u64 > limit {
                return Err(too_long());
            }
            if !status.is_success() && bytes.len() > MOST_TOLD {
                break;
            }
        }
        if status.is_success() {
            return if breaks_off(&bytes) {
                let problem = format!("the answer breaks off after {} bytes", bytes.len());
                Err(Failure::Broken(problem))
            } else {
                Ok(bytes)
            };
        }
        let said = if status.is_redirection() {
            "redirects are not followed".to_owned()
        } else {
            beginning(&bytes, MOST_TOLD)
        };
        let again = matches!(status.as_u16(), 429 | 500 | 502 | 503 | 504);
        Err(if again {
            Failure::Status(status, said, asked)
        } else {
            Failure::Final(ServedError::Status {
                status: status.as_u16(),
                tries: 1,
                said,
            })
        })
    }
}

/// A passage of an answer: a row of a corpus, bare or with a score beside it.
fn passage(entry: &Value) -> Result<Passage, ServedError> {
    let row = entry.get("document").unwrap_or(entry);
    let text = |name: &str| row.get(name).and_then(Value::as_str);
    let Some(contents) = text("contents") else {
        return Err(nonsense("a passage has no text \"contents\"", entry));
    };
    Ok(Passage {
        contents: contents.to_owned(),
        url: text("url").unwrap_or("").to_owned(),
    })
}

fn nonsense(problem: &str, value: &Value) -> ServedError {
    ServedError::Nonsense(format!(
        "{problem}: {}",
        beginning(value.to_string().as_bytes(), MOST_TOLD)
    ))
}

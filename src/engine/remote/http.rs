//! The HTTP client: a limit on requests under way, time limits, bounded answers, and further tries
//! where another try can help.
//!
//! A broken connection, an answer that breaks off, 429 and 5xx are tried again, with a wait that
//! doubles; any other status and a time-out are not. A dropped future drops its connection, which
//! tells the server to stop generating.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Method, StatusCode};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::RemoteError;
use crate::experiment::ServerSettings;
use crate::http::{beginning, breaks_off, chain, client_of};

/// Most bytes of an answer. A log-prob with its id takes about 40: a million of them.
const MOST_BYTES: usize = 64 << 20;
/// Most bytes of an answer that an error repeats.
const MOST_TOLD: usize = 400;
/// Time for a question about the server itself.
const ASK: Duration = Duration::from_secs(30);
/// The longest wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A client of one server.
pub(super) struct Http {
    client: Client,
    url: String,
    room: Semaphore,
    tries: u32,
    first_wait: Duration,
    timeout: Duration,
    load_timeout: Duration,
}

/// How long a request may take, and the setting that says so.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    /// A question about the server.
    Ask,
    /// Generating or scoring.
    Work,
    /// Loading weights.
    Load,
}

/// What became of one try.
enum Failure {
    Final(RemoteError),
    /// Worth another try: the error if it was the last, and a wait that the server asks for.
    Again(Last, Option<Duration>),
}

enum Last {
    Broken(String),
    Status(StatusCode, String),
}

impl Http {
    /// A client of the server that the settings name.
    ///
    /// # Errors
    /// [`RemoteError::Setting`] for a key that is not there or no header, or if TLS cannot be set up.
    pub fn new(settings: &ServerSettings) -> Result<Self, RemoteError> {
        let url = settings.url.trim_end_matches('/');
        let url = url.strip_suffix("/v1").unwrap_or(url).to_owned();
        let builder = client_of(&url)
            .pool_max_idle_per_host(settings.in_flight as usize)
            .default_headers(headers(settings)?);
        let client = builder.build().map_err(|error| {
            RemoteError::Setting(format!("no HTTP client can be made: {}", chain(&error)))
        })?;
        Ok(Self {
            client,
            url,
            room: Semaphore::new(settings.in_flight as usize),
            tries: settings.tries,
            first_wait: Duration::from_secs_f32(settings.retry_seconds),
            timeout: seconds(settings.timeout_seconds),
            load_timeout: seconds(settings.load_seconds),
        })
    }

    /// The server's address, without `/v1`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What `path` says; none if the server has no such path.
    pub async fn get(&self, path: &str) -> Result<Option<Value>, RemoteError> {
        let what = format!("GET {path}");
        match self
            .call(Method::GET, path, None, &what, Patience::Ask)
            .await
        {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
            Err(RemoteError::Refused {
                status: 404 | 405 | 501,
                ..
            }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the server takes POST at `path`, found out without doing what it does: a GET is
    /// refused as the wrong method (405) where there is one, and as unknown (404) where there is not.
    pub async fn takes_post(&self, path: &str) -> Result<bool, RemoteError> {
        let what = format!("GET {path}");
        match self
            .call(Method::GET, path, None, &what, Patience::Ask)
            .await
        {
            Ok(_) => Ok(true),
            Err(RemoteError::Refused { status, .. }) => Ok(!matches!(status, 404 | 501)),
            Err(RemoteError::Failing { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sends `body` and reads a JSON answer.
    pub async fn post(
        &self,
        path: &str,
        body: &Value,
        what: &str,
        patience: Patience,
    ) -> Result<Value, RemoteError> {
        let what = format!("POST {path} for {what}");
        let bytes = self
            .call(Method::POST, path, Some((body, true)), &what, patience)
            .await?;
        parse(&bytes, &what)
    }

    /// Sends `body`; whatever the answer holds is not read.
    pub async fn tell(
        &self,
        path: &str,
        body: &Value,
        patience: Patience,
    ) -> Result<(), RemoteError> {
        let what = format!("POST {path}");
        self.call(Method::POST, path, Some((body, false)), &what, patience)
            .await?;
        Ok(())
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<(&Value, bool)>,
        what: &str,
        patience: Patience,
    ) -> Result<Vec<u8>, RemoteError> {
        let (limit, setting) = match patience {
            Patience::Ask => (ASK.min(self.timeout), "timeout_seconds"),
            Patience::Work => (self.timeout, "timeout_seconds"),
            Patience::Load => (self.load_timeout, "load_seconds"),
        };
        // The semaphore is never closed.
        let _place = self.room.acquire().await.ok();
        let mut wait = self.first_wait;
        let mut tried = 0;
        loop {
            tried += 1;
            let once = self.once(method.clone(), path, body, what);
            let failure = match tokio::time::timeout(limit, once).await {
                Ok(Ok(bytes)) => return Ok(bytes),
                Ok(Err(failure)) => failure,
                Err(_) => {
                    return Err(RemoteError::TimedOut {
                        what: what.to_owned(),
                        seconds: limit.as_secs_f32(),
                        setting,
                    });
                }
            };
            let (last, asked) = match failure {
                Failure::Final(error) => return Err(error),
                Failure::Again(last, asked) => (last, asked),
            };
            if tried >= self.tries {
                return Err(self.given_up(what, last));
            }
            let pause = asked.unwrap_or(wait).min(LONGEST_WAIT);
            tracing::debug!(
                "{what}: try {tried} failed, the next in {} s",
                pause.as_secs_f32()
            );
            tokio::time::sleep(pause).await;
            wait = wait.saturating_mul(2);
        }
    }

    fn given_up(&self, what: &str, last: Last) -> RemoteError {
        let (what, tries) = (what.to_owned(), self.tries);
        match last {
            Last::Broken(problem) => RemoteError::Unreachable {
                what,
                url: self.url.clone(),
                tries,
                problem,
            },
            Last::Status(status, said) => RemoteError::Failing {
                what,
                status: status.as_u16(),
                tries,
                said,
            },
        }
    }

    async fn once(
        &self,
        method: Method,
        path: &str,
        body: Option<(&Value, bool)>,
        what: &str,
    ) -> Result<Vec<u8>, Failure> {
        let broken = |error: reqwest::Error| Failure::Again(Last::Broken(chain(&error)), None);
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        let wants_json = body.is_some_and(|(_, read)| read);
        if let Some((body, _)) = body {
            request = request
                .header("content-type", "application/json")
                .body(body.to_string());
        }
        let mut response = request.send().await.map_err(broken)?;
        let status = response.status();
        let asked = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse().ok())
            .map(Duration::from_secs);
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(broken)? {
            if bytes.len() + chunk.len() > MOST_BYTES {
                return Err(Failure::Final(RemoteError::TooLong {
                    what: what.to_owned(),
                    limit: MOST_BYTES,
                }));
            }
            bytes.extend_from_slice(&chunk);
        }
        if status.is_success() {
            return if wants_json && breaks_off(&bytes) {
                let problem = format!("the JSON breaks off after {} bytes", bytes.len());
                Err(Failure::Again(Last::Broken(problem), None))
            } else {
                Ok(bytes)
            };
        }
        let said = beginning(&bytes, MOST_TOLD);
        if status == StatusCode::TOO_MANY_REQUESTS
            || status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED
        {
            return Err(Failure::Again(Last::Status(status, said), asked));
        }
        Err(Failure::Final(RemoteError::Refused {
            what: what.to_owned(),
            status: status.as_u16(),
            said,
            hint: match status.as_u16() {
                401 | 403 => {
                    "; name the variable that holds the server's key in engine.generator.api_key_env"
                }
                404 => "; is this the right kind of server (sglang or openai)?",
                _ => "",
            },
        }))
    }
}

fn headers(settings: &ServerSettings) -> Result<HeaderMap, RemoteError> {
    let mut headers = HeaderMap::new();
    let name = &settings.api_key_env;
    if name.is_empty() {
        return Ok(headers);
    }
    // The key itself appears in no message.
    let key = std::env::var(name).map_err(|_| {
        RemoteError::Setting(format!(
            "api_key_env names {name:?}, but the environment has no such text; set it to the server's key"
        ))
    })?;
    let mut value = HeaderValue::from_str(&format!("Bearer {}", key.trim())).map_err(|_| {
        RemoteError::Setting(format!(
            "the key in {name:?} holds characters that no header may have; copy it again"
        ))
    })?;
    value.set_sensitive(true);
    headers.insert(AUTHORIZATION, value);
    Ok(headers)
}

fn seconds(number: f32) -> Duration {
    Duration::try_from_secs_f32(number).unwrap_or(Duration::MAX)
}

fn parse(bytes: &[u8], what: &str) -> Result<Value, RemoteError> {
    serde_json::from_slice(bytes).map_err(|error| RemoteError::NotJson {
        what: what.to_owned(),
        problem: error.to_string(),
        said: beginning(bytes, MOST_TOLD),
    })
}

//! What a request asks for, and the answer, in the words of the peers' servers.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest as _, Request};
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::body::Body;
use super::{ServeLimits, Server, Work, time};
use crate::retrieval::{Library, RetrievalError};

/// Most passages of one answer, over all its queries.
const MOST_PASSAGES: usize = 100_000;
/// Seconds after which a client should try again when there is no room.
const AGAIN: &str = "1";

/// Why a request is not answered.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    /// FastAPI's `detail`: a text, or a list of what is wrong with the body.
    detail: Value,
}

impl Refusal {
    fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: Value::String(detail.into()),
        }
    }

    /// A body that breaks a rule, as FastAPI says it.
    fn body(problem: impl Into<String>) -> Self {
        Self::rule("value_error", &["body"], problem)
    }

    /// The same with the kind of the fault and its place in the body.
    pub(super) fn rule(kind: &str, place: &[&str], problem: impl Into<String>) -> Self {
        let problem: String = problem.into();
        Self {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            detail: json!([{"type": kind, "loc": place, "msg": problem}]),
        }
    }

    /// There is no such route.
    pub(super) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "Not Found")
    }

    /// The route is asked by another method.
    pub(super) fn wrong_method() -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed")
    }
}

impl From<RetrievalError> for Refusal {
    fn from(error: RetrievalError) -> Self {
        // What failed may name files of this machine; that is for its log alone.
        tracing::error!("{error}");
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the index failed; the server's log says why",
        )
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(json!({"detail": self.detail}))).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            let headers = response.headers_mut();
            headers.insert(RETRY_AFTER, axum::http::HeaderValue::from_static(AGAIN));
        }
        response
    }
}

impl Server {
    /// Reads the body and does the work, within the time of a request.
    pub(super) async fn answer(self: Arc<Self>, request: Request, work: Work) -> Response {
        let limit = time(self.limits.seconds);
        let seconds = self.limits.seconds;
        match tokio::time::timeout(limit, self.work(request, work)).await {
            Ok(answer) => answer,
            Err(_) => Refusal::new(
                StatusCode::GATEWAY_TIMEOUT,
                format!("the request took longer than {seconds} s"),
            )
            .into_response(),
        }
    }

    async fn work(self: Arc<Self>, request: Request, work: Work) -> Response {
        let Ok(_place) = self.queue.try_acquire() else {
            let full = format!(
                "{} requests are under way already; try again",
                self.limits.queue
            );
            return Refusal::new(StatusCode::SERVICE_UNAVAILABLE, full).into_response();
        };
        let body = match Bytes::from_request(request, &()).await {
            Ok(body) => body,
            Err(refused) => {
                return Refusal::new(refused.status(), refused.body_text()).into_response();
            }
        };
        // The semaphore is never closed. The place goes with the thread: work that outlives its
        // request is still work.
        let worker = Arc::clone(&self.workers).acquire_owned().await.ok();
        let server = Arc::clone(&self);
        let done = tokio::task::spawn_blocking(move || {
            let _worker = worker;
            work(&server.library, &server.limits, &body)
        });
        match done.await {
            Ok(Ok(value)) => Json(value).into_response(),
            Ok(Err(refusal)) => refusal.into_response(),
            Err(error) => {
                tracing::error!("a request ended with {error}");
                Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "the request failed")
                    .into_response()
            }
        }
    }
}

/// `/retrieve`: for every query its passages, best first.
pub(super) fn retrieve(
    library: &Library,
    limits: &ServeLimits,
    body: &[u8],
) -> Result<Value, Refusal> {
    let body = Body::parse(body)?;
    let (queries, topk) = (body.texts("queries")?, body.count("topk")?);
    let return_scores = body.truth("return_scores")?;
    let count = topk.filter(|count| *count > 0).unwrap_or(limits.topk);
    let count = count.min(library.corpus.len());
    if queries.len().saturating_mul(count) > MOST_PASSAGES {
        return Err(Refusal::body(format!(
            "{} queries with {count} passages each are more than {MOST_PASSAGES} passages; ask in parts",
            queries.len()
        )));
    }
    let found = if queries.is_empty() {
        Vec::new()
    } else {
        library.retriever.search(&queries, count)?
    };
    let mut result = Vec::with_capacity(found.len());
    for hits in found {
        let mut rows = Vec::with_capacity(hits.len());
        for hit in hits {
            let row = Value::Object(library.corpus.row(hit.passage)?);
            rows.push(if return_scores {
                json!({"document": row, "score": hit.score})
            } else {
                row
            });
        }
        result.push(rows);
    }
    Ok(json!({"result": result}))
}

/// `/access`: for every address its page, or null.
pub(super) fn access(library: &Library, _: &ServeLimits, body: &[u8]) -> Result<Value, Refusal> {
    let urls = Body::parse(body)?.texts("urls")?;
    if urls.len() > MOST_PASSAGES {
        return Err(Refusal::body(format!(
            "{} addresses are more than {MOST_PASSAGES}; ask in parts",
            urls.len()
        )));
    }
    let mut pages = Vec::with_capacity(urls.len());
    for url in &urls {
        pages.push(
            library
                .corpus
                .page_row(url)?
                .map_or(Value::Null, Value::Object),
        );
    }
    Ok(json!({"result": pages}))
}

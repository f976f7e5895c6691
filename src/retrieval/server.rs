//! A library over HTTP, as the servers of Search-R1 and ASearcher are, so that their clients need
//! not know the difference:
//!
//! ```text
//! POST /retrieve  {"queries": [..], "topk": 3, "return_scores": true}
//!                 -> {"result": [[{"document": row, "score": 1.5}, ..], ..]}
//!                 without scores the rows themselves -> {"result": [[row, ..], ..]}
//! POST /access    {"urls": [..]} -> {"result": [row or null, ..]}
//! GET  /health    -> {"status": "ok", ..}
//! ```
//!
//! Rows are those of the corpus, with every field they have. Bodies, connections, requests that wait
//! and the time of each are bounded. Search-R1's own server fails without scores, or mixes the rows of
//! two queries up; here the shape never depends on them.

mod answer;
mod body;
mod connections;

use std::future::{Future, IntoFuture as _};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};

use super::Library;
use answer::{Refusal, access, retrieve};
use connections::Connections;

/// Bounds of a server.
#[derive(Clone, Copy, Debug)]
pub struct ServeLimits {
    /// Passages a query where the request names no number, or 0.
    pub topk: usize,
    /// Requests that are worked on at once.
    pub workers: usize,
    /// Requests under way, those that wait included; a further one is answered with 503.
    pub queue: usize,
    /// Connections that are open; a further one waits.
    pub connections: usize,
    /// Longest body, bytes.
    pub body_bytes: usize,
    /// Time of a request, its reading included, seconds.
    pub seconds: f32,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self {
            topk: 3,
            workers: 2,
            queue: 256,
            connections: 1024,
            body_bytes: 1 << 20,
            seconds: 30.0,
        }
    }
}

struct Server {
    library: Library,
    limits: ServeLimits,
    queue: Semaphore,
    workers: Arc<Semaphore>,
}

/// What answers the body of a request; runs on a thread of its own.
type Work = fn(&Library, &ServeLimits, &[u8]) -> Result<Value, Refusal>;

/// Answers requests until `stop` is there; then takes no more, ends those under way, and returns.
///
/// # Errors
/// What the system said of the listener.
pub async fn serve(
    listener: TcpListener,
    library: Library,
    limits: ServeLimits,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let patience = time(limits.seconds);
    let server = Arc::new(Server {
        library,
        limits,
        queue: Semaphore::new(limits.queue.max(1)),
        workers: Arc::new(Semaphore::new(limits.workers.max(1))),
    });
    let routes = Router::new()
        .route("/retrieve", post(on_retrieve))
        .route("/access", post(on_access))
        .route("/health", get(on_health))
        .fallback(|| async { Refusal::not_found() })
        .method_not_allowed_fallback(|| async { Refusal::wrong_method() })
        .layer(DefaultBodyLimit::max(limits.body_bytes))
        .with_state(server);
    let stopping = Arc::new(Notify::new());
    let told = Arc::clone(&stopping);
    let connections = Connections::new(listener, limits.connections, patience);
    let serving = axum::serve(connections, routes).with_graceful_shutdown(async move {
        stop.await;
        told.notify_one();
    });
    tokio::select! {
        ended = serving.into_future() => ended,
        // A connection that never ends its request holds the end up no longer than a request may take.
        () = async { stopping.notified().await; tokio::time::sleep(patience).await } => Ok(()),
    }
}

async fn on_retrieve(State(server): State<Arc<Server>>, request: Request) -> Response {
    server.answer(request, retrieve).await
}

async fn on_access(State(server): State<Arc<Server>>, request: Request) -> Response {
    server.answer(request, access).await
}

async fn on_health(State(server): State<Arc<Server>>) -> Json<Value> {
    Json(json!({
        "status": "ok",
        "passages": server.library.corpus.len(),
        "version": env!("CARGO_PKG_VERSION"),
        "room": server.queue.available_permits(),
    }))
}

fn time(seconds: f32) -> Duration {
    Duration::from_secs_f32(seconds.clamp(0.001, 86_400.0))
}

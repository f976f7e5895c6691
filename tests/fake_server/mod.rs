//! A server that speaks the protocols of SGLang, vLLM and llama.cpp over real HTTP, and can be told
//! to lie, fail, hang and be slow.

#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

mod brain;
mod speak;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use palimpsest::tokenizer::TextTokenizer;
use serde_json::{Value, json};

#[cfg(feature = "torch")]
pub use brain::Local;
pub use brain::{Brain, Said, Toy, ToyLearner};

/// Which server it plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Sglang,
    Vllm,
    Llama,
    /// Completions with text alone.
    Plain,
}

/// What goes wrong with the next requests for generation, one each.
#[derive(Clone, Debug, PartialEq)]
pub enum Trouble {
    Status(u16),
    /// The JSON ends in its middle.
    Truncated,
    /// Text that is no JSON.
    Garbage,
}

/// What is wrong with every answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    FewerLogprobs,
    NoNumber,
    CertainAndMore,
    ImpossibleButSampled,
    IdOutOfVocabulary,
    TooManyIds,
    NoIds,
    OtherPrompt,
    ShiftedScores,
    FewerScores,
    Aborted,
}

/// How it differs from a well-behaved server.
#[derive(Clone, Debug, Default)]
pub struct Quirks {
    pub no_logprobs: bool,
    pub no_scores: bool,
    pub echo_only: bool,
    pub no_loader: bool,
    pub ignores_stops: bool,
    pub trims_stops: bool,
    /// Tells log-probs at temperature 1, whatever it samples at.
    pub raw_logprobs: bool,
    /// Says that it has loaded weights, and has not.
    pub ignores_loads: bool,
    pub refuses_loads: bool,
    pub other_text: bool,
    pub context: Option<u32>,
    /// Value of the authorization header that it wants.
    pub key: Option<String>,
    /// Folder that it says it was started with.
    pub root: Option<String>,
}

/// A running server.
pub struct Fake {
    pub url: String,
    pub state: Arc<Inner>,
    _runtime: tokio::runtime::Runtime,
}

/// What the handlers share.
pub struct Inner {
    pub kind: Kind,
    pub quirks: Quirks,
    pub tokenizer: Arc<TextTokenizer>,
    pub brain: Arc<dyn Brain>,
    /// Bodies of the requests for generation and scoring.
    pub bodies: Mutex<Vec<Value>>,
    /// Paths of the requests about weights, in order.
    pub steps: Mutex<Vec<String>>,
    pub troubles: Mutex<VecDeque<Trouble>>,
    pub lie: Mutex<Option<Lie>>,
    /// Requests for generation that came.
    pub hits: AtomicUsize,
    /// Answers wait here until so many requests are under way.
    pub gate: Mutex<Option<Arc<tokio::sync::Barrier>>>,
    /// Requests are never answered, but for those whose context ends with this id, which are refused
    /// once the others have come.
    pub hang: Mutex<Option<(u32, usize)>>,
    /// Requests that hang.
    pub hanging: AtomicUsize,
    pub paused: AtomicBool,
}

impl Fake {
    pub fn start(kind: Kind, quirks: Quirks, brain: Arc<dyn Brain>) -> Self {
        let tokenizer = tokenizer();
        let state = Arc::new(Inner {
            kind,
            quirks,
            tokenizer,
            brain,
            bodies: Mutex::default(),
            steps: Mutex::default(),
            troubles: Mutex::default(),
            lie: Mutex::default(),
            hits: AtomicUsize::new(0),
            gate: Mutex::default(),
            hang: Mutex::default(),
            hanging: AtomicUsize::new(0),
            paused: AtomicBool::new(false),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new()
            .fallback(handle)
            .with_state(Arc::clone(&state));
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self {
            url,
            state,
            _runtime: runtime,
        }
    }

    pub fn toy(kind: Kind, quirks: Quirks) -> Self {
        Self::start(kind, quirks, Arc::new(Toy::new(&tokenizer())))
    }

    pub fn lie(&self, lie: Lie) {
        *self.state.lie.lock().unwrap() = Some(lie);
    }

    pub fn trouble(&self, troubles: &[Trouble]) {
        self.state
            .troubles
            .lock()
            .unwrap()
            .extend(troubles.iter().cloned());
    }

    pub fn hits(&self) -> usize {
        self.state.hits.load(Ordering::SeqCst)
    }

    pub fn steps(&self) -> Vec<String> {
        self.state.steps.lock().unwrap().clone()
    }

    pub fn last_body(&self) -> Value {
        self.state.bodies.lock().unwrap().last().unwrap().clone()
    }
}

/// The tokenizer of the shipped policy.
pub fn tokenizer() -> Arc<TextTokenizer> {
    Arc::new(TextTokenizer::load(std::path::Path::new("assets/lookup/policy")).unwrap())
}

fn answer(value: &Value) -> Response {
    reply(200, value.to_string())
}

fn reply(status: u16, text: String) -> Response {
    let status = StatusCode::from_u16(status).unwrap();
    (status, [("content-type", "application/json")], text).into_response()
}

async fn handle(
    State(inner): State<Arc<Inner>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let given = headers.get("authorization").and_then(|v| v.to_str().ok());
    if inner.quirks.key.is_some() && given != inner.quirks.key.as_deref() {
        return reply(401, json!({"error": "no key"}).to_string());
    }
    let post = method == Method::POST;
    let path = uri.path().to_owned();
    let body: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let q = &inner.quirks;
    let (sglang, vllm) = (inner.kind == Kind::Sglang, inner.kind == Kind::Vllm);
    let known: &[&str] = match inner.kind {
        _ if q.no_loader => &[],
        Kind::Sglang => &[
            "/update_weights_from_disk",
            "/pause_generation",
            "/continue_generation",
        ],
        Kind::Vllm => &["/pause", "/collective_rpc", "/resume"],
        _ => &[],
    };
    if known.contains(&path.as_str()) {
        if !post {
            return reply(405, json!({"detail": "Method Not Allowed"}).to_string());
        }
        let whole = uri.to_string();
        inner.steps.lock().unwrap().push(whole);
        return load(&inner, &path, body).await;
    }
    match (post, path.as_str()) {
        (false, "/get_model_info") if sglang => answer(&json!({
            "model_path": "toy", "tokenizer_path": "toy", "is_generation": true
        })),
        (false, "/get_server_info") if sglang => {
            answer(&json!({"version": "0.5.2", "context_length": q.context}))
        }
        (false, "/v1/models") if !sglang => answer(&json!({"object": "list", "data": [{
            "id": "toy",
            "owned_by": if vllm { "vllm" } else if inner.kind == Kind::Llama { "llamacpp" } else { "me" },
            "root": q.root,
            "max_model_len": q.context,
        }]})),
        (false, "/version") if vllm => answer(&json!({"version": "0.14.0"})),
        (false, "/is_paused") if vllm && !q.no_loader => {
            answer(&json!({"is_paused": inner.paused.load(Ordering::SeqCst)}))
        }
        (false, "/props") if inner.kind == Kind::Llama => answer(&json!({
            "default_generation_settings": {"n_ctx": q.context.unwrap_or(1024)}, "build_info": "b6000"
        })),
        (true, "/generate") if sglang => generate(inner, body).await,
        (true, "/v1/completions") if !sglang => generate(inner, body).await,
        _ => reply(404, json!({"detail": "Not Found"}).to_string()),
    }
}

async fn load(inner: &Arc<Inner>, path: &str, body: Value) -> Response {
    let q = &inner.quirks;
    match path {
        "/pause" | "/pause_generation" => inner.paused.store(true, Ordering::SeqCst),
        "/resume" | "/continue_generation" => inner.paused.store(false, Ordering::SeqCst),
        _ => {
            assert!(
                inner.paused.load(Ordering::SeqCst),
                "loading without a pause"
            );
            let folder = match body.get("model_path").and_then(Value::as_str) {
                Some(folder) => folder.to_owned(),
                None => q.root.clone().unwrap(),
            };
            if q.refuses_loads {
                let said = json!({"success": false, "message": "shapes differ"});
                return reply(400, said.to_string());
            }
            if !q.ignores_loads {
                let brain = Arc::clone(&inner.brain);
                let loading = tokio::task::spawn_blocking(move || brain.load(&folder));
                if let Err(message) = loading.await.unwrap() {
                    let said = json!({"success": false, "message": message});
                    return reply(400, said.to_string());
                }
            }
        }
    }
    if path == "/collective_rpc" {
        // vLLM answers with nothing.
        assert_eq!(body, json!({"method": "reload_weights"}));
        return reply(200, String::new());
    }
    answer(&json!({"success": true, "message": "done"}))
}

async fn generate(inner: Arc<Inner>, body: Value) -> Response {
    inner.hits.fetch_add(1, Ordering::SeqCst);
    inner.bodies.lock().unwrap().push(body.clone());
    assert!(!inner.paused.load(Ordering::SeqCst), "asked while paused");
    let trouble = inner.troubles.lock().unwrap().pop_front();
    if let Some(Trouble::Status(status)) = trouble {
        return reply(status, json!({"error": "trouble"}).to_string());
    }
    let gate = inner.gate.lock().unwrap().clone();
    if let Some(gate) = gate {
        gate.wait().await;
    }
    let hang = *inner.hang.lock().unwrap();
    if let Some((refused, others)) = hang {
        return stay(&inner, &body, refused, others).await;
    }
    let speaking = Arc::clone(&inner);
    let text = tokio::task::spawn_blocking(move || speak::answer(&speaking, &body).to_string())
        .await
        .unwrap();
    match trouble {
        Some(Trouble::Truncated) => reply(200, text[..text.len() / 2].to_owned()),
        Some(Trouble::Garbage) => reply(200, "<html>not yet</html>".to_owned()),
        _ => reply(200, text),
    }
}

/// Never answers, and notices when the client goes; the one that is refused waits for the others.
async fn stay(inner: &Arc<Inner>, body: &Value, refused: u32, others: usize) -> Response {
    struct Guard(Arc<Inner>);
    impl Drop for Guard {
        fn drop(&mut self) {
            self.0.hanging.fetch_sub(1, Ordering::SeqCst);
        }
    }
    if speak::context(inner.kind, body).last() == Some(&refused) {
        while inner.hanging.load(Ordering::SeqCst) < others {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        return reply(400, json!({"error": "this one is bad"}).to_string());
    }
    inner.hanging.fetch_add(1, Ordering::SeqCst);
    let _guard = Guard(Arc::clone(inner));
    std::future::pending().await
}

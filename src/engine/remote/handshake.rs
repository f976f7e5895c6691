//! What a server is and can do, found out before anything depends on it: by what it says of itself,
//! and by tiny requests whose answers are looked at.

use serde_json::Value;

use super::capability::{Lack, Loader, ScoreWay, Stops};
use super::http::Http;
use super::reply::{Answer, Ask, check};
use super::server::{Line, Protocol};
use super::{Capabilities, RemoteError};
use crate::engine::StopMatcher;
use crate::experiment::{GeneratorSetting, ServerSettings};
use crate::tokenizer::TextTokenizer;
use crate::trajectory::TokenId;

/// The text that probes go on from. What comes of it does not matter.
pub(super) const PROBE: &str = "<q> capital of Peru; capital of Chile</q><mem>";
/// Ids that a probe samples.
pub(super) const PROBE_IDS: u32 = 16;

/// What a server says of itself.
struct Introduction {
    protocol: Protocol,
    product: String,
    model: String,
    root: Option<String>,
    context: Option<u32>,
    seeded: bool,
}

/// Meets the server.
///
/// # Errors
/// [`RemoteError`] if it cannot be reached, is of another kind, or fails on the simplest request.
pub(super) async fn meet(
    http: Http,
    generator: &GeneratorSetting,
    settings: &ServerSettings,
    tokenizer: &TextTokenizer,
) -> Result<(Line, Capabilities), RemoteError> {
    let intro = match generator {
        GeneratorSetting::Sglang(_) => sglang(&http).await?,
        _ => openai(&http, &settings.model).await?,
    };
    let loader = loader(&http).await?;
    let line = Line {
        http,
        protocol: intro.protocol,
        seeded: intro.seeded,
    };
    let context = tokenizer.encode(PROBE);
    let mut ask = Ask {
        what: "a probe",
        context: &context,
        max_new_tokens: PROBE_IDS,
        temperature: 1.0,
        seed: 1,
        stop: &[],
    };
    let answer = line.generate(&ask).await?;
    check(&ask, &answer, tokenizer.vocab_size())?;
    ask.temperature = 0.0;
    let stops = stops(&line, ask, tokenizer).await?;
    let scores = scores(&line, &context).await?;
    let can = Capabilities {
        product: intro.product,
        model: intro.model,
        root: intro.root,
        context: intro.context,
        ids: answer.ids.is_some(),
        logprobs: answer.logprobs.is_some(),
        same_text: same_text(&answer, tokenizer),
        stops,
        scores,
        loader,
        seeded: intro.seeded,
    };
    Ok((line, can))
}

async fn sglang(http: &Http) -> Result<Introduction, RemoteError> {
    let info = first(http, ["/get_model_info", "/model_info"]).await?;
    let Some(info) = info.filter(|info| info.get("model_path").is_some()) else {
        return Err(stranger(
            http,
            "/get_model_info, by which SGLang is known",
            "for another server take generator: openai(url: ..)",
        ));
    };
    let server = first(http, ["/get_server_info", "/server_info"]).await?;
    let server = server.unwrap_or(Value::Null);
    let model = text(&info, "model_path").unwrap_or_default();
    let on = |name: &str| server.get(name).and_then(Value::as_bool) == Some(true);
    Ok(Introduction {
        protocol: Protocol::Sglang,
        product: named("SGLang", text(&server, "version")),
        root: Some(model.clone()),
        model,
        context: number(&server, "/context_length")
            .or_else(|| number(&server, "/max_req_input_len")),
        // Elsewhere a seed is an unknown field, which refuses the request.
        seeded: on("enable_deterministic_inference"),
    })
}

async fn openai(http: &Http, wanted: &str) -> Result<Introduction, RemoteError> {
    let models = http.get("/v1/models").await?.unwrap_or(Value::Null);
    let known: Vec<&Value> = models
        .get("data")
        .and_then(Value::as_array)
        .map(|list| list.iter().collect())
        .unwrap_or_default();
    let of = |model: &Value| text(model, "id").unwrap_or_default();
    let chosen = match (known.as_slice(), wanted) {
        ([], _) => {
            return Err(stranger(
                http,
                "a model in /v1/models, by which a server with completions is known",
                "for SGLang's own protocol take generator: sglang(url: ..)",
            ));
        }
        ([only], "") => *only,
        (several, _) => match several.iter().find(|model| of(model) == wanted) {
            Some(model) => model,
            None => {
                let names: Vec<String> = several.iter().map(|model| of(model)).collect();
                return Err(stranger(
                    http,
                    &format!("the model {wanted:?} (engine.generator.model)"),
                    &format!("name one of {}", names.join(", ")),
                ));
            }
        },
    };
    let owner = text(chosen, "owned_by").unwrap_or_default();
    let version = http
        .get("/version")
        .await?
        .and_then(|v| text(&v, "version"));
    let props = http.get("/props").await?.unwrap_or(Value::Null);
    let kind = match owner.as_str() {
        "vllm" => "vLLM",
        "sglang" => "SGLang",
        "llamacpp" => "llama.cpp",
        _ if props.get("default_generation_settings").is_some() => "llama.cpp",
        _ => "a server with /v1/completions",
    };
    Ok(Introduction {
        protocol: Protocol::OpenAi { model: of(chosen) },
        product: named(kind, version.or_else(|| text(&props, "build_info"))),
        model: of(chosen),
        root: text(chosen, "root"),
        context: number(chosen, "/max_model_len")
            .or_else(|| number(&props, "/default_generation_settings/n_ctx")),
        seeded: matches!(kind, "vLLM" | "llama.cpp"),
    })
}

/// The first of several paths that is there.
async fn first(http: &Http, paths: [&str; 2]) -> Result<Option<Value>, RemoteError> {
    for path in paths {
        if let Some(value) = http.get(path).await? {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

fn stranger(http: &Http, what: &str, remedy: &str) -> RemoteError {
    RemoteError::Lacks {
        url: http.url().to_owned(),
        product: "of an unknown kind".into(),
        lacks: vec![Lack {
            what: what.to_owned(),
            remedy: remedy.to_owned(),
        }],
    }
}

fn text(value: &Value, name: &str) -> Option<String> {
    value.get(name)?.as_str().map(str::to_owned)
}

fn number(value: &Value, pointer: &str) -> Option<u32> {
    u32::try_from(value.pointer(pointer)?.as_u64()?).ok()
}

fn named(kind: &str, version: Option<String>) -> String {
    match version {
        Some(version) => format!("{kind} {version}"),
        None => kind.to_owned(),
    }
}

async fn loader(http: &Http) -> Result<Option<Loader>, RemoteError> {
    if http.takes_post("/update_weights_from_disk").await? {
        let pauses = http.takes_post("/pause_generation").await?
            && http.takes_post("/continue_generation").await?;
        return Ok(Some(Loader::FromDisk { pauses }));
    }
    let pausable = http.get("/is_paused").await?.is_some();
    Ok((pausable && http.takes_post("/collective_rpc").await?).then_some(Loader::Reload))
}

/// Whether the server's text is ours of the same ids. It may leave off the end: an end-of-text id, or
/// half a character.
fn same_text(answer: &Answer, tokenizer: &TextTokenizer) -> Option<bool> {
    let ours = tokenizer.decode(answer.ids.as_deref()?);
    let theirs = answer.text.trim().trim_end_matches('\u{FFFD}');
    if ours.contains('\u{FFFD}') || theirs.is_empty() {
        return None;
    }
    Some(ours.trim().starts_with(theirs))
}

/// What becomes of a stop string: one that the greedy continuation of the probe holds is asked for.
async fn stops(
    line: &Line,
    mut ask: Ask<'_>,
    tokenizer: &TextTokenizer,
) -> Result<Stops, RemoteError> {
    let free = line.generate(&ask).await?;
    let Some(ids) = free.ids else {
        // Text is all there is, and the server ends it where it ends it.
        return Ok(Stops::Kept);
    };
    let Some(stop) = a_stop_in(&ids, tokenizer) else {
        return Ok(Stops::Unreliable);
    };
    let stop = [stop];
    ask.stop = &stop;
    let answer = match line.generate(&ask).await {
        Ok(answer) => answer,
        // Without a tokenizer the server refuses stop strings.
        Err(RemoteError::Refused { .. } | RemoteError::BadReply { .. }) => {
            return Ok(Stops::Unreliable);
        }
        Err(error) => return Err(error),
    };
    let ids = answer.ids.unwrap_or_default();
    let kept = ends_with(&ids, &stop, tokenizer) == Some(ids.len());
    Ok(if kept { Stops::Kept } else { Stops::Unreliable })
}

/// Number of ids up to the one that completes a stop string.
fn ends_with(ids: &[TokenId], stop: &[String], tokenizer: &TextTokenizer) -> Option<usize> {
    let mut matcher = StopMatcher::new(&stop.into());
    ids.iter()
        .position(|&id| matcher.push(tokenizer.token_bytes(id)))
        .map(|at| at + 1)
}

/// The text of an id, not the last, that does not occur before it.
fn a_stop_in(ids: &[TokenId], tokenizer: &TextTokenizer) -> Option<String> {
    let (_, inner) = ids.split_last()?;
    inner.iter().enumerate().find_map(|(at, &id)| {
        let text = std::str::from_utf8(tokenizer.token_bytes(id)).ok()?;
        let stop = [text.to_owned()];
        let found = !text.trim().is_empty() && ends_with(ids, &stop, tokenizer) == Some(at + 1);
        found.then(|| text.to_owned())
    })
}

/// The first way in which the server gives log-probs of a prompt.
async fn scores(line: &Line, ids: &[TokenId]) -> Result<Option<ScoreWay>, RemoteError> {
    let ways: &[ScoreWay] = match line.protocol {
        Protocol::Sglang => &[ScoreWay::InputLogprobs],
        Protocol::OpenAi { .. } => &[ScoreWay::PromptLogprobs, ScoreWay::Echo],
    };
    for &way in ways {
        match line.score("a probe of scoring", ids, 2, way).await {
            Ok(_) => return Ok(Some(way)),
            Err(error @ (RemoteError::Unreachable { .. } | RemoteError::TimedOut { .. })) => {
                return Err(error);
            }
            Err(error) => tracing::debug!("no scoring by {way:?}: {error}"),
        }
    }
    Ok(None)
}

//! The completions protocol: POST /v1/completions, with the fields of vLLM, SGLang and llama.cpp side
//! by side; each passes over those of the others.
//!
//! Ids come in one of three places: `token_ids` (vLLM, with `return_token_ids`), tokens spelled
//! `token_id:123` (vLLM, with `return_tokens_as_token_ids`), or `logprobs.content[].id` (llama.cpp).

use serde_json::{Value, json};

use super::reply::{Answer, Ask, End, Reading, short};
use super::{RemoteError, ScoreWay};
use crate::trajectory::TokenId;

pub(super) const COMPLETIONS: &str = "/v1/completions";

/// The request of one piece of a turn. Everything that a model's `generation_config.json` could set
/// behind our back is said.
pub(super) fn generate_body(ask: &Ask<'_>, model: &str) -> Value {
    let mut body = json!({
        "model": model,
        "prompt": ask.context,
        "max_tokens": ask.max_new_tokens,
        "temperature": ask.temperature,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "repetition_penalty": 1.0,
        "repeat_penalty": 1.0,
        "n": 1,
        "seed": ask.seed,
        // One more than the sampled token: 0 switches them off in llama.cpp.
        "logprobs": 1,
        "skip_special_tokens": false,
        "spaces_between_special_tokens": false,
        "add_special_tokens": false,
        "return_token_ids": true,
        "return_tokens_as_token_ids": true,
        "cache_prompt": true,
        "stream": false,
    });
    if !ask.stop.is_empty() {
        body["stop"] = json!(ask.stop);
        body["include_stop_str_in_output"] = json!(true);
        body["no_stop_trim"] = json!(true);
    }
    body
}

pub(super) fn read_generated(ask: &Ask<'_>, value: &Value) -> Result<Answer, RemoteError> {
    let reply = Reading::new(ask.what, value);
    reply.same_prompt("/usage/prompt_tokens", ask.context.len())?;
    if reply.at("/choices/0").is_none() {
        return Err(reply.bad("choices", "holds no choice"));
    }
    if reply.at("/choices/0/prompt_token_ids").is_some() {
        let pointer = "/choices/0/prompt_token_ids";
        if reply.ids(pointer, reply.list(pointer)?)? != ask.context {
            return Err(reply.bad(pointer, "are not the ids that were sent"));
        }
    }
    let text = reply.at("/choices/0/text").and_then(Value::as_str);
    Ok(Answer {
        ids: ids(&reply)?,
        logprobs: logprobs(&reply)?,
        text: text.unwrap_or("").to_owned(),
        end: end(&reply)?,
    })
}

fn ids(reply: &Reading<'_>) -> Result<Option<Vec<TokenId>>, RemoteError> {
    let (plain, spelled) = ("/choices/0/token_ids", "/choices/0/logprobs/tokens");
    if reply.at(plain).is_some() {
        return Ok(Some(reply.ids(plain, reply.list(plain)?)?));
    }
    if let Some(content) = content(reply)? {
        let ids: Option<Vec<&Value>> = content.iter().map(|entry| entry.get("id")).collect();
        let field = "/choices/0/logprobs/content/id";
        let read = ids.map(|ids| ids.into_iter().map(|id| reply.id(field, id)).collect());
        return read.transpose();
    }
    if reply.at(spelled).is_none() {
        return Ok(None);
    }
    Ok(reply
        .list(spelled)?
        .iter()
        .map(|token| token.as_str()?.strip_prefix("token_id:")?.parse().ok())
        .collect())
}

fn logprobs(reply: &Reading<'_>) -> Result<Option<Vec<f32>>, RemoteError> {
    let pointer = "/choices/0/logprobs/token_logprobs";
    if reply.at(pointer).is_some() {
        return Ok(Some(reply.all_sampled(pointer, reply.list(pointer)?)?));
    }
    let Some(content) = content(reply)? else {
        return Ok(None);
    };
    let field = "/choices/0/logprobs/content/logprob";
    content
        .iter()
        .map(|entry| reply.sampled(field, entry.get("logprob").unwrap_or(&Value::Null)))
        .collect::<Result<_, _>>()
        .map(Some)
}

/// The log-probs of a chat completion, which llama.cpp returns from here too.
fn content<'a>(reply: &Reading<'a>) -> Result<Option<&'a [Value]>, RemoteError> {
    let pointer = "/choices/0/logprobs/content";
    if reply.at(pointer).is_none() {
        return Ok(None);
    }
    reply.list(pointer).map(Some)
}

fn end(reply: &Reading<'_>) -> Result<End, RemoteError> {
    let reason = reply.at("/choices/0/finish_reason");
    match reason.and_then(Value::as_str) {
        Some("length") => Ok(End::Length),
        Some("stop") => {
            // vLLM, then SGLang. A number is an end-of-text id.
            let stop = reply
                .at("/choices/0/stop_reason")
                .or_else(|| reply.at("/choices/0/matched_stop"))
                .and_then(Value::as_str);
            Ok(stop.map_or(End::Text, |text| End::Stop(text.to_owned())))
        }
        _ => Err(reply.bad(
            "choices[0].finish_reason",
            format!(
                "is {}, but must be stop or length",
                reason.map_or_else(|| "missing".to_owned(), short)
            ),
        )),
    }
}

/// Asks for the log-probs of a prompt.
pub(super) fn score_body(ids: &[TokenId], model: &str, way: ScoreWay) -> Value {
    let mut body = json!({
        "model": model,
        "prompt": ids,
        "max_tokens": 1,
        "temperature": 1.0,
        "add_special_tokens": false,
        "stream": false,
    });
    if way == ScoreWay::Echo {
        body["echo"] = json!(true);
        body["logprobs"] = json!(1);
        body["return_tokens_as_token_ids"] = json!(true);
    } else {
        // The prompt's own ids, and no others beside them.
        body["prompt_logprobs"] = json!(0);
    }
    body
}

pub(super) fn read_scored(
    what: &str,
    value: &Value,
    ids: &[TokenId],
    from: usize,
    way: ScoreWay,
) -> Result<Vec<f32>, RemoteError> {
    let reply = Reading::new(what, value);
    reply.same_prompt("/usage/prompt_tokens", ids.len())?;
    let pointer = match way {
        ScoreWay::Echo => "/choices/0/logprobs/token_logprobs",
        _ => "/choices/0/prompt_logprobs",
    };
    let entries = reply.list(pointer)?;
    // With echo the sampled token follows the prompt.
    let fits = match way {
        ScoreWay::Echo => (ids.len()..=ids.len() + 1).contains(&entries.len()),
        _ => entries.len() == ids.len(),
    };
    if !fits {
        return Err(reply.bad(
            pointer,
            format!(
                "has {} entries for a prompt of {} ids",
                entries.len(),
                ids.len()
            ),
        ));
    }
    let spelled = reply
        .at("/choices/0/logprobs/tokens")
        .and_then(Value::as_array);
    let pairs = entries.iter().zip(ids).enumerate().skip(from);
    pairs
        .map(|(at, (entry, id))| {
            let field = format!("{pointer}/{at}");
            if way != ScoreWay::Echo {
                // Every entry is a table by id; null only before the first id.
                let found = entry.get(id.to_string()).and_then(|of| of.get("logprob"));
                let found = found.ok_or_else(|| {
                    reply.bad(
                        &field,
                        format!("is {} and does not name {id}", short(entry)),
                    )
                })?;
                return reply.logprob(&field, found);
            }
            let token = spelled.and_then(|tokens| tokens.get(at)?.as_str());
            let other = token
                .and_then(|token| token.strip_prefix("token_id:"))
                .filter(|token| **token != id.to_string());
            if let Some(other) = other {
                return Err(reply.bad(&field, format!("is of id {other}, but {id} was sent")));
            }
            reply.logprob(&field, entry)
        })
        .collect()
}

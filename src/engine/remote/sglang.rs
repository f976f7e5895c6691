//! SGLang's own protocol: POST /generate. A log-prob comes as (log-prob, id, text or null).

use serde_json::{Value, json};

use super::RemoteError;
use super::reply::{Answer, Ask, End, Reading, short};
use crate::trajectory::TokenId;

pub(super) const GENERATE: &str = "/generate";

/// The request of one piece of a turn. Everything that a model's `generation_config.json` could set
/// behind our back is said. `seeded`: whether the server takes a seed (deterministic inference).
pub(super) fn generate_body(ask: &Ask<'_>, seeded: bool) -> Value {
    let mut sampling = json!({
        "max_new_tokens": ask.max_new_tokens,
        "temperature": ask.temperature,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "frequency_penalty": 0.0,
        "presence_penalty": 0.0,
        "repetition_penalty": 1.0,
        "min_new_tokens": 0,
        "ignore_eos": false,
        "skip_special_tokens": false,
        "spaces_between_special_tokens": false,
    });
    if !ask.stop.is_empty() {
        sampling["stop"] = json!(ask.stop);
        sampling["no_stop_trim"] = json!(true);
    }
    if seeded {
        sampling["sampling_seed"] = json!(ask.seed);
    }
    json!({
        "input_ids": ask.context,
        "sampling_params": sampling,
        "return_logprob": true,
        // Only those of the output.
        "logprob_start_len": -1,
        "stream": false,
    })
}

pub(super) fn read_generated(ask: &Ask<'_>, value: &Value) -> Result<Answer, RemoteError> {
    let reply = Reading::new(ask.what, value);
    reply.same_prompt("/meta_info/prompt_tokens", ask.context.len())?;
    let listed = match reply.at("/output_ids") {
        Some(_) => Some(reply.ids("output_ids", reply.list("/output_ids")?)?),
        None => None,
    };
    let pointer = "/meta_info/output_token_logprobs";
    let (ids, logprobs) = if reply.at(pointer).is_some() {
        let (ids, logprobs) = pairs(&reply, pointer, true)?;
        if let Some(listed) = listed.filter(|listed| *listed != ids) {
            return Err(reply.bad(
                "output_ids",
                format!(
                    "are {} ids and not those of the {} log-probs beside them",
                    listed.len(),
                    ids.len()
                ),
            ));
        }
        (Some(ids), Some(logprobs))
    } else {
        (listed, None)
    };
    let text = reply.at("/text").and_then(Value::as_str).unwrap_or("");
    Ok(Answer {
        ids,
        logprobs,
        text: text.to_owned(),
        end: end(&reply)?,
    })
}

/// Ids and log-probs of a list of (log-prob, id, text).
fn pairs(
    reply: &Reading<'_>,
    pointer: &str,
    sampled: bool,
) -> Result<(Vec<TokenId>, Vec<f32>), RemoteError> {
    let (mut ids, mut logprobs) = (Vec::new(), Vec::new());
    for (at, entry) in reply.list(pointer)?.iter().enumerate() {
        let field = format!("{pointer}/{at}");
        let (Some(logprob), Some(id)) = (entry.get(0), entry.get(1)) else {
            let problem = format!("is {}, but must be [log-prob, id, text]", short(entry));
            return Err(reply.bad(field, problem));
        };
        logprobs.push(if sampled {
            reply.sampled(&field, logprob)?
        } else {
            reply.logprob(&field, logprob)?
        });
        ids.push(reply.id(&field, id)?);
    }
    Ok((ids, logprobs))
}

fn end(reply: &Reading<'_>) -> Result<End, RemoteError> {
    let reason = reply.at("/meta_info/finish_reason");
    // Early versions gave the word alone.
    let kind = reason.and_then(|reason| reason.get("type").unwrap_or(reason).as_str());
    match kind {
        Some("length") => Ok(End::Length),
        Some("stop") => {
            let matched = reason.and_then(|reason| reason.get("matched")?.as_str());
            Ok(matched.map_or(End::Text, |text| End::Stop(text.to_owned())))
        }
        _ => Err(reply.bad(
            "meta_info.finish_reason",
            format!(
                "is {}, but must be of type stop or length",
                reason.map_or_else(|| "missing".to_owned(), short)
            ),
        )),
    }
}

/// Asks for the log-probs of `ids[from..]`. The log-probs begin one id early, since the first that is
/// returned can be null.
pub(super) fn score_body(ids: &[TokenId], from: usize) -> Value {
    json!({
        "input_ids": ids,
        "sampling_params": {"max_new_tokens": 1, "temperature": 1.0, "skip_special_tokens": false},
        "return_logprob": true,
        "logprob_start_len": from.saturating_sub(1),
        "stream": false,
    })
}

pub(super) fn read_scored(
    what: &str,
    value: &Value,
    ids: &[TokenId],
    from: usize,
) -> Result<Vec<f32>, RemoteError> {
    let reply = Reading::new(what, value);
    reply.same_prompt("/meta_info/prompt_tokens", ids.len())?;
    let pointer = "/meta_info/input_token_logprobs";
    let (of, logprobs) = pairs(&reply, pointer, false)?;
    let wanted = ids.get(from..).unwrap_or_default();
    // One more than wanted: the early one.
    let first = of
        .len()
        .checked_sub(wanted.len())
        .filter(|first| *first > 0);
    match first.and_then(|first| Some((of.get(first..)?, logprobs.get(first..)?))) {
        Some((seen, scores)) if seen == wanted => Ok(scores.to_vec()),
        Some(_) => Err(reply.bad(pointer, "does not end with the ids that were sent")),
        None => Err(reply.bad(
            pointer,
            format!(
                "has {} entries, but the last {} ids and the one before them were asked for",
                of.len(),
                wanted.len()
            ),
        )),
    }
}

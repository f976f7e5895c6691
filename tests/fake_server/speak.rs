//! The answers, field by field as the servers write them.

use palimpsest::trajectory::TokenId;
use serde_json::{Value, json};

use super::{Inner, Kind, Lie, Said};

pub fn context(kind: Kind, body: &Value) -> Vec<TokenId> {
    let field = if kind == Kind::Sglang {
        "input_ids"
    } else {
        "prompt"
    };
    let ids = body[field].as_array().expect("ids in the request");
    ids.iter()
        .map(|id| id.as_u64().unwrap() as TokenId)
        .collect()
}

pub fn answer(inner: &Inner, body: &Value) -> Value {
    let context = context(inner.kind, body);
    let sglang = inner.kind == Kind::Sglang;
    let sampling = if sglang {
        &body["sampling_params"]
    } else {
        body
    };
    let most = sampling[if sglang {
        "max_new_tokens"
    } else {
        "max_tokens"
    }]
    .as_u64()
    .unwrap();
    assert!(!sampling["skip_special_tokens"].as_bool().unwrap_or(false));
    let stop: Vec<String> = match sampling["stop"].as_array() {
        Some(list) if !inner.quirks.ignores_stops => list
            .iter()
            .map(|stop| stop.as_str().unwrap().to_owned())
            .collect(),
        _ => Vec::new(),
    };
    let kept = if sglang {
        "no_stop_trim"
    } else {
        "include_stop_str_in_output"
    };
    assert!(sampling["stop"].is_null() || sampling[kept] == json!(true));
    let temperature = sampling["temperature"].as_f64().unwrap() as f32;
    let seed = body["seed"]
        .as_u64()
        .unwrap_or_else(|| inner.hits.load(super::Ordering::SeqCst) as u64);
    let mut said = inner
        .brain
        .generate(&context, most as usize, temperature, seed, &stop);
    let trims = inner.quirks.trims_stops || inner.kind == Kind::Llama;
    if trims && said.stop.is_some() {
        // As many as the stop string has by itself.
        let stop = said.stop.clone().unwrap();
        let cut = inner.tokenizer.encode(&stop).len().min(said.ids.len());
        said.ids.truncate(said.ids.len() - cut);
        said.logprobs.truncate(said.ids.len());
        said.raw.truncate(said.ids.len());
    }
    let lie = *inner.lie.lock().unwrap();
    let mut logprobs: Vec<Value> = match inner.quirks.raw_logprobs {
        true => said.raw.iter().map(|&l| json!(l)).collect(),
        false => said.logprobs.iter().map(|&l| json!(l)).collect(),
    };
    match lie {
        Some(Lie::FewerLogprobs) => drop(logprobs.pop()),
        Some(Lie::NoNumber) => logprobs[0] = json!("NaN"),
        Some(Lie::CertainAndMore) => logprobs[0] = json!(0.7),
        Some(Lie::ImpossibleButSampled) => logprobs[0] = json!(-9999.0),
        Some(Lie::IdOutOfVocabulary) => said.ids[0] = 999_999,
        Some(Lie::TooManyIds) => {
            said.ids = vec![40; most as usize + 1];
            logprobs = vec![json!(-1.0); most as usize + 1];
        }
        Some(Lie::NoIds) => {
            said.ids.clear();
            logprobs.clear();
        }
        _ => {}
    }
    let prompt = context.len() + usize::from(lie == Some(Lie::OtherPrompt));
    let mut text = inner.tokenizer.decode(&said.ids);
    if inner.quirks.other_text {
        text = "something else".to_owned();
    }
    if sglang {
        return as_sglang(inner, body, &context, &said, &logprobs, prompt, &text);
    }
    as_openai(inner, body, &context, &said, &logprobs, prompt, &text)
}

fn scores(inner: &Inner, ids: &[TokenId]) -> Vec<Value> {
    let of = inner
        .brain
        .score(ids)
        .into_iter()
        .map(|logprob| json!(logprob));
    std::iter::once(Value::Null).chain(of).collect()
}

fn as_sglang(
    inner: &Inner,
    body: &Value,
    context: &[TokenId],
    said: &Said,
    logprobs: &[Value],
    prompt: usize,
    text: &str,
) -> Value {
    let lie = *inner.lie.lock().unwrap();
    let finish = match (&said.stop, lie) {
        (_, Some(Lie::Aborted)) => json!({"type": "abort", "message": "out of memory"}),
        (Some(stop), _) => json!({"type": "stop", "matched": stop}),
        (None, _) if said.ended => json!({"type": "stop", "matched": 0}),
        _ => json!({"type": "length", "length": said.ids.len()}),
    };
    let mut reply = json!({
        "text": text,
        "output_ids": said.ids,
        "meta_info": {
            "id": "1", "finish_reason": finish, "prompt_tokens": prompt,
            "completion_tokens": said.ids.len(), "cached_tokens": 0,
        },
    });
    if body["return_logprob"] == json!(true) && !inner.quirks.no_logprobs {
        let pairs = logprobs.iter().zip(&said.ids);
        reply["meta_info"]["output_token_logprobs"] = pairs
            .map(|(logprob, id)| json!([logprob, id, null]))
            .collect();
    }
    let start = body["logprob_start_len"].as_i64().unwrap_or(-1);
    if start >= 0 && !inner.quirks.no_scores {
        let mut scored: Vec<Value> = scores(inner, context)
            .into_iter()
            .zip(context)
            .skip(start as usize)
            .map(|(logprob, id)| json!([logprob, id, null]))
            .collect();
        // The first is not known there.
        scored[0][0] = Value::Null;
        match lie {
            Some(Lie::ShiftedScores) => drop(scored.pop()),
            Some(Lie::FewerScores) => drop(scored.remove(0)),
            _ => {}
        }
        reply["meta_info"]["input_token_logprobs"] = json!(scored);
    }
    reply
}

fn as_openai(
    inner: &Inner,
    body: &Value,
    context: &[TokenId],
    said: &Said,
    logprobs: &[Value],
    prompt: usize,
    text: &str,
) -> Value {
    let lie = *inner.lie.lock().unwrap();
    let ended = said.stop.is_some() || said.ended;
    let mut choice = json!({
        "index": 0,
        "text": text,
        "finish_reason": match lie {
            Some(Lie::Aborted) => "abort",
            _ if ended => "stop",
            _ => "length",
        },
    });
    let wants = !body["logprobs"].is_null() && !inner.quirks.no_logprobs;
    match inner.kind {
        Kind::Vllm => {
            choice["stop_reason"] = json!(said.stop);
            if body["return_token_ids"] == json!(true) {
                choice["token_ids"] = json!(said.ids);
                choice["prompt_token_ids"] = json!(context);
            }
            if wants {
                let spelled = |id: &TokenId| format!("token_id:{id}");
                let (mut tokens, mut values) = (Vec::new(), Vec::new());
                if body["echo"] == json!(true) && !inner.quirks.no_scores {
                    tokens.extend(context.iter().map(spelled));
                    values.extend(scores(inner, context));
                }
                tokens.extend(said.ids.iter().map(spelled));
                values.extend(logprobs.iter().cloned());
                if lie == Some(Lie::ShiftedScores) {
                    tokens.rotate_left(1);
                }
                choice["logprobs"] = json!({"tokens": tokens, "token_logprobs": values});
            }
            let quirks = &inner.quirks;
            if !body["prompt_logprobs"].is_null() && !quirks.no_scores && !quirks.echo_only {
                let mut table: Vec<Value> = scores(inner, context)
                    .into_iter()
                    .zip(context)
                    .map(|(logprob, id)| match logprob {
                        Value::Null => Value::Null,
                        _ => json!({id.to_string(): {"logprob": logprob, "rank": 1}}),
                    })
                    .collect();
                match lie {
                    Some(Lie::ShiftedScores) => table[1..].rotate_left(1),
                    Some(Lie::FewerScores) => drop(table.pop()),
                    _ => {}
                }
                choice["prompt_logprobs"] = json!(table);
            }
        }
        Kind::Llama if wants => {
            let content = said.ids.iter().zip(logprobs);
            let content: Vec<Value> = content
                .map(|(id, logprob)| json!({"id": id, "token": "", "logprob": logprob}))
                .collect();
            choice["logprobs"] = json!({"content": content});
        }
        _ => {}
    }
    json!({
        "id": "cmpl-1", "object": "text_completion", "model": "toy", "choices": [choice],
        "usage": {"prompt_tokens": prompt, "completion_tokens": said.ids.len()},
    })
}

//! Vectors of agent loops.

use palimpsest::engine::Finish;
use palimpsest::experiment::LimitSettings;
use palimpsest::rollout::{AfterTool, AfterTurn, state_after_tool, state_after_turn};
use palimpsest::tools::limit_text;
use palimpsest::trajectory::{Budget, TurnState};
use serde_json::Value;

use crate::{Runner, WAITS, floats};

/// What runs the cases of a family, if it is one of agent loops.
pub fn runner(family: &str) -> Option<Runner> {
    match family {
        "tool_agent_loop" => Some(tool_agent_loop),
        _ => None,
    }
}

/// verl's loop, driven through our transition functions. Their `response_length` is our context
/// limit less the prompt; a turn that reaches it was cut off by length.
fn tool_agent_loop(case: &Value, _: &Value) -> Result<(), String> {
    let (inputs, expected) = (&case["inputs"], &case["expected"]);
    let config = &inputs["config"];
    let name = case["name"].as_str().unwrap();
    if inputs.get("interactions").is_some() {
        return Err(format!(
            "{WAITS}interactions: our protocol has no user turns"
        ));
    }
    if name == "empty_first_generation_bug" {
        return Err(format!(
            "{WAITS}a bug of the peer: an empty response becomes the whole prompt"
        ));
    }
    let generations = inputs["generations"].as_array().unwrap();
    let calls = |turn: &Value| turn["tool_calls"].as_array().map_or(0, Vec::len);
    if generations.iter().any(|turn| calls(turn) > 1) {
        return Err(format!(
            "{WAITS}several calls in a turn: our protocol has exactly one action"
        ));
    }
    let side = config["tool_response_truncate_side"].as_str().unwrap();
    let texts = expected["tool_texts"].as_array().unwrap();
    if side != "left"
        && texts
            .iter()
            .any(|text| text.as_str().unwrap().contains("(truncated)"))
    {
        return Err(format!(
            "{WAITS}only the head of a long result is kept so far"
        ));
    }
    let prompt: Vec<u32> = ids(&expected["prompt_ids"]);
    let response_length = config["response_length"].as_u64().unwrap() as u32;
    let assistant = config["max_assistant_turns"].as_u64().unwrap_or(0);
    let user = config["max_user_turns"]
        .as_u64()
        .map_or(0, |turns| if turns == 0 { 0 } else { turns + 1 });
    let turns = [assistant, user]
        .into_iter()
        .filter(|&limit| limit > 0)
        .min()
        .unwrap_or(1_000) as u32;
    let limits = LimitSettings {
        turns,
        turn_tokens: response_length,
        trajectory_tokens: u32::MAX,
        context_tokens: prompt.len() as u32 + response_length,
        tool_chars: config["max_tool_response_length"].as_u64().unwrap() as u32,
        tool_seconds: 1.0,
    };
    let (mut response, mut mask, mut logprobs, mut generated) =
        (Vec::new(), Vec::new(), Vec::new(), 0);
    for (number, turn) in generations.iter().enumerate() {
        let sampled = ids(&turn["token_ids"]);
        generated += 1;
        let context = (prompt.len() + response.len() + sampled.len()) as u32;
        response.extend_from_slice(&sampled);
        mask.extend(sampled.iter().map(|_| 1));
        logprobs.extend(
            turn["log_probs"]
                .as_array()
                .map(|_| floats(&turn["log_probs"]))
                .unwrap_or_default(),
        );
        let finish = if context >= limits.context_tokens {
            Finish::Length
        } else {
            Finish::Stop
        };
        let after = AfterTurn {
            finish,
            broken: false,
            answered: calls(turn) == 0,
            left: Budget {
                turns: turns.saturating_sub(number as u32 + 1),
                tokens: u32::MAX,
            },
            context,
        };
        if state_after_turn(after, &limits) != TurnState::ProcessingTools {
            break;
        }
        // The result as verl renders it: [70] + a token a character + [80].
        let text = texts[number].as_str().unwrap();
        if let Some(full) = turn["tool_calls"][0]["arguments"]
            .as_str()
            .and_then(|text| serde_json::from_str::<Value>(text).ok())
            && let (Some(reply), false) = (full["reply"].as_str(), text.starts_with("Error"))
        {
            let ours = limit_text(reply, limits.tool_chars as usize);
            if ours != text {
                return Err(format!("tool text: ours {ours:?}, theirs {text:?}"));
            }
        }
        let mut rendered = vec![70];
        rendered.extend(text.chars().map(|letter| 100 + letter as u32 % 50));
        rendered.push(80);
        let next_context = (prompt.len() + response.len() + rendered.len()) as u32;
        if state_after_tool(
            AfterTool {
                error: None,
                next_context,
            },
            &limits,
        ) != TurnState::Pending
        {
            break;
        }
        mask.extend(rendered.iter().map(|_| 0));
        logprobs.extend(rendered.iter().map(|_| 0.0));
        response.extend(rendered);
    }
    response.truncate(response_length as usize);
    mask.truncate(response_length as usize);
    logprobs.truncate(response_length as usize);
    let differs = |what: &str, ours: String, theirs: &Value| {
        Err(format!("{what}: ours {ours}, theirs {theirs}"))
    };
    if response != ids(&expected["response_ids"]) {
        return differs(
            "response_ids",
            format!("{response:?}"),
            &expected["response_ids"],
        );
    }
    if mask != ids(&expected["response_mask"]) {
        return differs(
            "response_mask",
            format!("{mask:?}"),
            &expected["response_mask"],
        );
    }
    if !expected["response_logprobs"].is_null()
        && logprobs != floats(&expected["response_logprobs"])
    {
        return differs(
            "response_logprobs",
            format!("{logprobs:?}"),
            &expected["response_logprobs"],
        );
    }
    if generated != expected["generate_calls"].as_u64().unwrap() {
        return differs(
            "generate_calls",
            generated.to_string(),
            &expected["generate_calls"],
        );
    }
    Ok(())
}

fn ids(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap() as u32)
        .collect()
}

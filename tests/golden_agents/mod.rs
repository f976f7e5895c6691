//! Vectors of agent loops.

use palimpsest::engine::Finish;
use palimpsest::experiment::{KeptSide, LimitSettings};
use palimpsest::rollout::{
    AfterTool, AfterTurn, AsearcherAgent, Entry, Source, state_after_tool, state_after_turn,
};
use palimpsest::tools::{Shown, limit_text};
use palimpsest::trajectory::{Budget, TurnState};
use serde_json::{Value, json};

use crate::{Runner, floats};

/// What runs the cases of a family, if it is one of agent loops.
pub fn runner(family: &str) -> Option<Runner> {
    match family {
        "tool_agent_loop" => Some(tool_agent_loop),
        "asearcher_agent" => Some(asearcher_agent),
        _ => None,
    }
}

/// What a loop leaves behind.
struct Looped {
    response: Vec<u32>,
    mask: Vec<u32>,
    logprobs: Vec<f64>,
    generated: u64,
}

/// verl's loop, driven through our transition functions.
fn tool_agent_loop(case: &Value, _: &Value) -> Result<(), String> {
    let ours = looped(case)?;
    let expected = &case["expected"];
    let check = |what: &str, ours: Value| {
        let theirs = &expected[what];
        // Without sampled log-probs theirs is null, ours holds those of the tool tokens alone.
        if ours == *theirs || (what == "response_logprobs" && theirs.is_null()) {
            Ok(())
        } else {
            Err(format!("{what}: ours {ours}, theirs {theirs}"))
        }
    };
    check("response_ids", json!(ours.response))?;
    check("response_mask", json!(ours.mask))?;
    check("response_logprobs", json!(ours.logprobs))?;
    check("generate_calls", json!(ours.generated))
}

/// An empty generation leaves an empty response; verl's is the prompt.
pub fn an_empty_response_stays_empty(case: &Value, _: &Value) -> Result<(), String> {
    let ours = looped(case)?;
    let expected = &case["expected"];
    let peer = expected["response_ids"] == expected["prompt_ids"];
    if ours.response.is_empty() && ours.mask.is_empty() && peer {
        Ok(())
    } else {
        Err(format!(
            "ours {:?}, theirs {}",
            ours.response, expected["response_ids"]
        ))
    }
}

/// Runs a case. Their `response_length` is our context limit less the prompt; a turn that reaches it
/// was cut off by length. Several calls of a turn count as one tool result.
fn looped(case: &Value) -> Result<Looped, String> {
    let (inputs, expected) = (&case["inputs"], &case["expected"]);
    let config = &inputs["config"];
    if inputs.get("interactions").is_some() {
        return Err("our protocol has no user turns".into());
    }
    let generations = inputs["generations"].as_array().unwrap();
    let parallel = config["max_parallel_calls"].as_u64().unwrap() as usize;
    let calls = |turn: &Value| {
        turn["tool_calls"]
            .as_array()
            .map_or(0, Vec::len)
            .min(parallel)
    };
    let kept = match config["tool_response_truncate_side"].as_str().unwrap() {
        "left" => KeptSide::Head,
        "right" => KeptSide::Tail,
        _ => KeptSide::Ends,
    };
    let texts = expected["tool_texts"].as_array().unwrap();
    let mut heard = 0;
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
        tool_tokens: 0,
        tool_kept: kept,
        tool_seconds: 1.0,
        ..LimitSettings::default()
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
            reading: false,
            left: Budget {
                turns: turns.saturating_sub(number as u32 + 1),
                tokens: u32::MAX,
            },
            context,
        };
        if state_after_turn(after, &limits) != TurnState::ProcessingTools {
            break;
        }
        // The results as verl renders them: for each [70] + a token a character, at the end [80].
        let mut rendered = Vec::new();
        for call in 0..calls(turn) {
            let text = texts[heard].as_str().unwrap();
            heard += 1;
            if let Some(full) = turn["tool_calls"][call]["arguments"]
                .as_str()
                .and_then(|text| serde_json::from_str::<Value>(text).ok())
                && let (Some(reply), false) = (full["reply"].as_str(), text.starts_with("Error"))
            {
                let ours = limit_text(reply, limits.tool_chars as usize, limits.tool_kept);
                if ours != text {
                    return Err(format!("tool text: ours {ours:?}, theirs {text:?}"));
                }
            }
            rendered.push(70);
            rendered.extend(text.chars().map(|letter| 100 + letter as u32 % 50));
        }
        rendered.push(80);
        let next_context = (prompt.len() + response.len() + rendered.len()) as u32;
        if state_after_tool(
            AfterTool {
                error: None,
                failures: 0,
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
    Ok(Looped {
        response,
        mask,
        logprobs,
        generated,
    })
}

fn asearcher_agent(case: &Value, _: &Value) -> Result<(), String> {
    asearcher(case, false)
}

/// ASearcher's figures of pages: a part of a page that is not its first counts as failed.
pub fn asearcher_agent_counting_parts(case: &Value, _: &Value) -> Result<(), String> {
    asearcher(case, true)
}

/// Drives our agent through the steps of a case.
fn asearcher(case: &Value, count_parts: bool) -> Result<(), String> {
    let (inputs, expected) = (&case["inputs"], &case["expected"]);
    let prompt = inputs["prompt"].as_str().unwrap();
    let mut agent = AsearcherAgent::new(prompt);
    for (number, step) in inputs["steps"].as_array().unwrap().iter().enumerate() {
        let ours = match step["op"].as_str().unwrap() {
            "query" => {
                let asked = agent.ask();
                json!({"prompt": asked.prompt, "stop": asked.stop})
            }
            "llm" => {
                let calls = agent.hear(step["text"].as_str().unwrap());
                json!({
                    "tool_calls": calls, "num_turns": agent.turns(), "finished": agent.finished(),
                })
            }
            "answer" => json!({"answer": agent.answer()}),
            "tool" if step["res"]["type"] == "search" => {
                let list = |name: &str| -> Vec<String> {
                    serde_json::from_value(step["res"][name].clone()).unwrap_or_default()
                };
                let (documents, urls) = (list("documents"), list("urls"));
                let passages: Vec<Shown<'_>> = documents
                    .iter()
                    .zip(&urls)
                    .map(|(contents, url)| Shown { contents, url })
                    .collect();
                json!({"queued": agent.take_passages(&passages)})
            }
            "tool" => {
                json!({"queued": agent.take_page(step["res"]["page"].as_str().unwrap_or(""))})
            }
            other => return Err(format!("step {number}: unknown operation {other:?}")),
        };
        let theirs = &expected["steps"][number];
        if ours != *theirs {
            return Err(format!("step {number}: ours {ours}, theirs {theirs}"));
        }
    }
    let records: Vec<Value> = std::iter::once(json!(["prompt", prompt, ""]))
        .chain(agent.memory().iter().map(|entry| match entry {
            Entry::Generation(text) => json!(["llm_gen", text, ""]),
            Entry::Result(reading) => {
                let kind = match reading.from {
                    Source::Search => "search_results",
                    Source::Page => "webpage",
                };
                json!([kind, reading.text, reading.short])
            }
        }))
        .collect();
    if json!(records) != expected["records"] {
        return Err(format!(
            "records: ours {records:?}, theirs {}",
            expected["records"]
        ));
    }
    let usage = agent.usage();
    let (read, failed) = if count_parts {
        let first = usage.pages - usage.pages_failed;
        (first, usage.parts - first)
    } else {
        (usage.pages - usage.pages_failed, usage.pages_failed)
    };
    let stats = json!({
        "num_llm_gens": usage.generations,
        // The peer's token counts come from its server; these vectors have none.
        "num_input_tokens": 0,
        "num_output_tokens": 0,
        "num_search_queries": usage.searches,
        "num_success_search_queries": usage.searches - usage.searches_failed,
        "num_failed_search_queries": usage.searches_failed,
        "num_pages": usage.parts,
        "num_success_url_accesses": read,
        "num_failed_url_accesses": failed,
    });
    if stats == expected["stats"] {
        Ok(())
    } else {
        Err(format!("stats: ours {stats}, theirs {}", expected["stats"]))
    }
}

fn ids(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap() as u32)
        .collect()
}

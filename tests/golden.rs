//! Golden vectors: figures made by running the peers' own code. Reads every `*.json` of the folder
//! in PALIMPSEST_GOLDEN (default `tests/golden`), dispatches by `meta.family`, and prints how many
//! cases of each family ran. Cases that wait for a later feature stand in one explicit table.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod golden_memory;

use palimpsest::credit::group;
use palimpsest::engine::Finish;
use palimpsest::experiment::LimitSettings;
use palimpsest::rollout::{AfterTool, AfterTurn, state_after_tool, state_after_turn};
use palimpsest::tools::limit_text;
use palimpsest::trajectory::{Budget, TurnState};
use serde_json::Value;

/// What a case came to: it ran, or it waits for a feature that is not built.
enum Ran {
    Yes,
    Waits(&'static str),
}

#[test]
fn the_peers_own_figures_are_met() {
    let folder = std::env::var("PALIMPSEST_GOLDEN").unwrap_or_else(|_| "tests/golden".into());
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("PALIMPSEST_GOLDEN {folder:?} cannot be read: {error}"))
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        })
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{folder:?} holds no vectors");
    let mut failures = Vec::new();
    for path in files {
        let file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let family = file["meta"]["family"]
            .as_str()
            .unwrap_or("unnamed")
            .to_owned();
        let Some(run) = runner(&family) else {
            println!("{family}: not read by this version");
            continue;
        };
        let (mut ran, mut waiting) = (0, 0);
        for case in file["cases"].as_array().unwrap() {
            let name = case["name"].as_str().unwrap();
            match run(case, &file["meta"]) {
                Ok(Ran::Yes) => ran += 1,
                Ok(Ran::Waits(why)) => {
                    println!("{family} {name} waits: {why}");
                    waiting += 1;
                }
                Err(problem) => failures.push(format!("{family} {name}: {problem}")),
            }
        }
        println!("{family}: {ran} ran, {waiting} wait for a later feature");
        assert!(ran > 0 || !failures.is_empty(), "{family}: no case ran");
    }
    assert!(
        failures.is_empty(),
        "{} cases failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

type Runner = fn(&Value, &Value) -> Result<Ran, String>;

fn runner(family: &str) -> Option<Runner> {
    match family {
        "grpo" => Some(grpo),
        "mempo_reward" | "mempo_advantage" => Some(of_memory),
        "tool_agent_loop" => Some(tool_agent_loop),
        // Run by the tests of the engine, which own the loss.
        _ => None,
    }
}

fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(number).collect()
}

fn number(value: &Value) -> f64 {
    match value.as_str() {
        Some("nan") => f64::NAN,
        Some("inf") => f64::INFINITY,
        Some("-inf") => f64::NEG_INFINITY,
        _ => value.as_f64().unwrap(),
    }
}

fn close(name: &str, ours: f64, theirs: f64, absolute: f64, relative: f64) -> Result<(), String> {
    let near = (ours - theirs).abs() <= absolute + relative * theirs.abs()
        || (ours.is_nan() && theirs.is_nan());
    if near {
        Ok(())
    } else {
        Err(format!("{name}: ours {ours}, theirs {theirs}"))
    }
}

/// Row numbers by question, in order of first appearance.
fn groups(uid: &Value) -> Vec<Vec<usize>> {
    let mut names: Vec<(&str, Vec<usize>)> = Vec::new();
    for (row, name) in uid.as_array().unwrap().iter().enumerate() {
        let name = name.as_str().unwrap();
        match names.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rows)) => rows.push(row),
            None => names.push((name, vec![row])),
        }
    }
    names.into_iter().map(|(_, rows)| rows).collect()
}

fn grpo(case: &Value, meta: &Value) -> Result<Ran, String> {
    let inputs = &case["inputs"];
    let scores: Vec<f64> = inputs["token_level_rewards"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| floats(row).iter().sum())
        .collect();
    let std = inputs["norm_by_std"].as_bool().unwrap();
    let passk = inputs["fn"] == "grpo_passk";
    let near_equal = case["name"].as_str().unwrap().contains("near_equal");
    let absolute = inputs["tol_abs"]
        .as_f64()
        .or(meta["tolerance"]["abs"].as_f64())
        .unwrap();
    let relative = if near_equal {
        1e-6
    } else {
        meta["tolerance"]["rel"].as_f64().unwrap()
    };
    for rows in groups(&inputs["uid"]) {
        let of_group: Vec<f64> = rows.iter().map(|&row| scores[row]).collect();
        let ours = if passk {
            group::grpo_passk(&of_group, std)
        } else {
            group::grpo(&of_group, std)
        };
        let ours = ours.map_err(|error| error.to_string())?;
        for (&row, value) in rows.iter().zip(ours) {
            let mask = floats(&inputs["response_mask"][row]);
            for (at, (&on, theirs)) in mask
                .iter()
                .zip(floats(&case["expected"]["advantages"][row]))
                .enumerate()
            {
                close(
                    &format!("row {row} token {at}"),
                    value * on,
                    theirs,
                    absolute,
                    relative,
                )?;
            }
        }
    }
    Ok(Ran::Yes)
}

fn of_memory(case: &Value, meta: &Value) -> Result<Ran, String> {
    let family = meta["family"].as_str().unwrap();
    golden_memory::runner(family).unwrap()(case, meta).map(|()| Ran::Yes)
}

/// verl's loop, driven through our transition functions. Their `response_length` is our context
/// limit less the prompt; a turn that reaches it was cut off by length.
fn tool_agent_loop(case: &Value, _: &Value) -> Result<Ran, String> {
    let (inputs, expected) = (&case["inputs"], &case["expected"]);
    let config = &inputs["config"];
    let name = case["name"].as_str().unwrap();
    if inputs.get("interactions").is_some() {
        return Ok(Ran::Waits("interactions: our protocol has no user turns"));
    }
    if name == "empty_first_generation_bug" {
        return Ok(Ran::Waits(
            "a bug of the peer: an empty response becomes the whole prompt",
        ));
    }
    let generations = inputs["generations"].as_array().unwrap();
    let calls = |turn: &Value| turn["tool_calls"].as_array().map_or(0, Vec::len);
    if generations.iter().any(|turn| calls(turn) > 1) {
        return Ok(Ran::Waits(
            "several calls in a turn: our protocol has exactly one action",
        ));
    }
    let side = config["tool_response_truncate_side"].as_str().unwrap();
    let texts = expected["tool_texts"].as_array().unwrap();
    if side != "left"
        && texts
            .iter()
            .any(|text| text.as_str().unwrap().contains("(truncated)"))
    {
        return Ok(Ran::Waits("only the head of a long result is kept so far"));
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
    Ok(Ran::Yes)
}

fn ids(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap() as u32)
        .collect()
}

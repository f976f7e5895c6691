//! Vectors of memory credit.

use palimpsest::credit::group;
use palimpsest::credit::memory::{RoundReward, advantages, probability};
use palimpsest::credit::spread::token_credit;
use palimpsest::experiment::{Baseline, Threshold};
use palimpsest::trajectory::{Advantages, Row};
use serde_json::Value;

use crate::{Runner, WAITS, close, floats, groups, number};

/// What runs the cases of a family, if it is one of memory credit.
pub fn runner(family: &str) -> Option<Runner> {
    match family {
        "mempo_reward" => Some(mempo_reward),
        "mempo_advantage" => Some(mempo_advantage),
        _ => None,
    }
}

fn mempo_reward(case: &Value, _: &Value) -> Result<(), String> {
    let (inputs, expected) = (&case["inputs"], &case["expected"]);
    if inputs.get("gold").is_some() {
        return Err(format!(
            "{WAITS}gold answers of search questions come with that task"
        ));
    }
    if inputs.get("mem_token_logp").is_none() {
        return Err(format!(
            "{WAITS}our branches name the first scored token; there is no tail to mask"
        ));
    }
    let (core, tail) = (
        inputs["core_len"].as_u64().unwrap() as usize,
        inputs["tail_len"].as_u64().unwrap() as usize,
    );
    let answer = |of: &str| -> Vec<f32> {
        let all = floats(&inputs[of]);
        all[all.len() - core - tail..all.len() - tail]
            .iter()
            .map(|&value| value as f32)
            .collect()
    };
    let threshold = Threshold::Own(inputs["threshold"].as_f64().unwrap().exp() as f32);
    let p = |of: &str, threshold| {
        probability(&answer(of), threshold).map_err(|error| error.to_string())
    };
    let (own_memory, own_full) = (
        p("mem_token_logp", threshold)?,
        p("full_token_logp", threshold)?,
    );
    // Our log-probs are f32: the tolerance is theirs rounded to it.
    let check = |name: &str, ours: f64| close(name, ours, number(&expected[name]), 1e-6, 1e-6);
    check("P_mem_prob", own_memory)?;
    check("P_full_prob", own_full)?;
    check("reward_prob_own", own_memory - own_full)?;
    check(
        "reward_prob_none",
        p("mem_token_logp", Threshold::Off)? - p("full_token_logp", Threshold::Off)?,
    )?;
    Ok(())
}

fn mempo_advantage(case: &Value, _: &Value) -> Result<(), String> {
    let (inputs, expected) = (&case["inputs"], &case["expected"]);
    if inputs["conditional"].as_bool().unwrap() {
        return Err(format!("{WAITS}gate: sign is a later line of the grammar"));
    }
    let std = inputs["norm_by_std"].as_bool().unwrap();
    let scores = floats(&inputs["scores"]);
    for rows in groups(&inputs["uid"]) {
        let of_group: Vec<f64> = rows.iter().map(|&row| scores[row]).collect();
        let outcome = group::grpo(&of_group, std).map_err(|error| error.to_string())?;
        let rewards: Vec<Vec<RoundReward>> = rows
            .iter()
            .map(|&row| {
                let rounds = floats(&inputs["mem_rewards"][row]);
                rounds
                    .iter()
                    .enumerate()
                    .map(|(at, &reward)| RoundReward {
                        turn: at as u32 + 1,
                        reward,
                    })
                    .collect()
            })
            .collect();
        let memory =
            advantages(&rewards, Baseline::Pooled, std).map_err(|error| error.to_string())?;
        for ((&row, outcome), memory) in rows.iter().zip(outcome).zip(memory) {
            let mask: Vec<bool> = floats(&inputs["response_mask"][row])
                .iter()
                .map(|&on| on > 0.0)
                .collect();
            let length = mask.len() as u32;
            let spans = inputs["mem_spans"][row].as_array().unwrap();
            // The vectors clip spans to the row; ours are refused there, so they are clipped here.
            let notes = spans
                .iter()
                .enumerate()
                .map(|(at, span)| {
                    (
                        at as u32 + 1,
                        span[0].as_u64().unwrap() as u32,
                        (span[1].as_u64().unwrap() as u32).min(length),
                    )
                })
                .filter(|(_, start, end)| start < end)
                .collect();
            let ours = token_credit(
                &Row {
                    ids: vec![0; mask.len()],
                    mask,
                    notes,
                    ..Row::default()
                },
                &Advantages {
                    outcome: outcome as f32,
                    memory: memory
                        .iter()
                        .enumerate()
                        .map(|(at, &value)| (at as u32 + 1, value as f32))
                        .collect(),
                },
            )
            .map_err(|error| error.to_string())?;
            for (name, ours) in [
                ("outcome_adv", &ours.outcome),
                ("mem_adv", &ours.memory),
                ("final_adv", &ours.weight),
            ] {
                for (at, (&ours, theirs)) in
                    ours.iter().zip(floats(&expected[name][row])).enumerate()
                {
                    // Token weights are f32.
                    close(
                        &format!("{name} row {row} token {at}"),
                        f64::from(ours),
                        theirs,
                        1e-6,
                        1e-6,
                    )?;
                }
            }
        }
    }
    Ok(())
}

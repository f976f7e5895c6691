//! Runs the vectors of the families `mempo_reward` and `mempo_advantage` through our functions.

use palimpsest::credit::group;
use palimpsest::credit::memory::gain::{Gain, gain};
use palimpsest::credit::memory::value::value;
use palimpsest::credit::memory::{GroupRounds, MemoryCreditState, RoundReward, round_advantages};
use palimpsest::credit::spread::token_credit;
use palimpsest::experiment::{CreditSettings, Gate, Scale, Space, Threshold};
use palimpsest::trajectory::{Advantages, Row};
use serde_json::Value;

/// Runs one case of a file: (case, meta).
pub type Runner = fn(&Value, &Value) -> Result<(), String>;

/// The runner of a family, if it is one of ours.
pub fn runner(family: &str) -> Option<Runner> {
    match family {
        "mempo_reward" => Some(mempo_reward),
        "mempo_advantage" => Some(mempo_advantage),
        _ => None,
    }
}

fn number(value: &Value) -> Result<f64, String> {
    match value.as_str() {
        Some("nan") => Ok(f64::NAN),
        Some("inf") => Ok(f64::INFINITY),
        Some("-inf") => Ok(f64::NEG_INFINITY),
        _ => value.as_f64().ok_or(format!("{value} is no number")),
    }
}

fn list(value: &Value) -> Result<&Vec<Value>, String> {
    value.as_array().ok_or(format!("{value} is no list"))
}

fn floats(value: &Value) -> Result<Vec<f64>, String> {
    list(value)?.iter().map(number).collect()
}

fn close(name: &str, ours: f64, theirs: f64, absolute: f64, relative: f64) -> Result<(), String> {
    let near = (ours - theirs).abs() <= absolute + relative * theirs.abs()
        || (ours.is_nan() && theirs.is_nan())
        || ours == theirs;
    if near {
        Ok(())
    } else {
        Err(format!("{name}: ours {ours}, theirs {theirs}"))
    }
}

fn tolerance(meta: &Value) -> (f64, f64) {
    let of = |name: &str| meta["tolerance"][name].as_f64().unwrap_or(1e-9);
    (of("abs"), of("rel"))
}

fn mempo_reward(case: &Value, meta: &Value) -> Result<(), String> {
    let inputs = &case["inputs"];
    if inputs.get("gold").is_some() {
        return joined(case);
    }
    if inputs.get("seq_len").is_some() {
        return answer_mask(case);
    }
    let count = |name: &str| inputs[name].as_u64().map(|n| n as usize);
    let (Some(core), Some(tail)) = (count("core_len"), count("tail_len")) else {
        return Err("core_len and tail_len are needed".to_owned());
    };
    let expected = &case["expected"];
    let mut answers = Vec::new();
    for (of, mask) in [
        ("mem_token_logp", "mem_ans_mask"),
        ("full_token_logp", "full_ans_mask"),
    ] {
        let all = floats(&inputs[of])?;
        let ours = answer_range(all.len(), core, tail);
        let theirs: Vec<bool> = floats(&expected[mask])?
            .iter()
            .map(|&on| on > 0.0)
            .collect();
        let ours_mask: Vec<bool> = (0..all.len()).map(|at| ours.contains(&at)).collect();
        if ours_mask != theirs {
            return Err(format!("{mask}: ours {ours_mask:?}, theirs {theirs:?}"));
        }
        answers.push(all[ours].to_vec());
    }
    let floor = number(&inputs["threshold"])?;
    let p = floor.exp() as f32;
    // The file gives the log; ours is made of a 32-bit probability.
    close("threshold", f64::from(p).ln(), floor, 1e-7, 0.0)?;
    let (absolute, relative) = tolerance(meta);
    let check =
        |name: &str, ours: f64| close(name, ours, number(&expected[name])?, absolute, relative);
    let refused = |error: palimpsest::credit::CreditError| error.to_string();
    for (name, space) in [("prob", Space::Prob), ("log", Space::Log(f32::INFINITY))] {
        for (side, answer) in [("mem", &answers[0]), ("full", &answers[1])] {
            let ours = value(answer, space, Threshold::Own(p)).map_err(refused)?;
            check(&format!("P_{side}_{name}"), ours)?;
        }
        for (rule, threshold) in [
            ("own", Threshold::Own(p)),
            ("none", Threshold::Off),
            ("union", Threshold::Union(p)),
        ] {
            let Gain { gain, .. } =
                gain(&answers[0], Some(&answers[1]), space, threshold).map_err(refused)?;
            check(&format!("reward_{name}_{rule}"), gain)?;
        }
    }
    Ok(())
}

/// Where the scored answer stands in a sequence that ends with a tail: what our branches name as the
/// first scored id. A sequence shorter than that holds as much of it as there is room for.
fn answer_range(length: usize, core: usize, tail: usize) -> std::ops::Range<usize> {
    length.saturating_sub(core + tail)..length.saturating_sub(tail)
}

fn answer_mask(case: &Value) -> Result<(), String> {
    let count = |name: &str| case["inputs"][name].as_u64().unwrap_or(0) as usize;
    let range = answer_range(count("seq_len"), count("core_len"), count("tail_len"));
    let ours: Vec<u64> = (0..count("seq_len"))
        .map(|at| u64::from(range.contains(&at)))
        .collect();
    let theirs: Vec<u64> = floats(&case["expected"]["mask"])?
        .iter()
        .map(|&on| on as u64)
        .collect();
    if ours == theirs {
        Ok(())
    } else {
        Err(format!("mask: ours {ours:?}, theirs {theirs:?}"))
    }
}

/// MemPO's gold text, made by the function that joins golds for the reward.
fn joined(case: &Value) -> Result<(), String> {
    let gold = &case["inputs"]["gold"];
    let words = |value: &Value| -> Result<Vec<String>, String> {
        list(value)?
            .iter()
            .map(|word| word.as_str().map(str::to_owned).ok_or("no text".to_owned()))
            .collect()
    };
    let answers: Vec<Vec<String>> = match gold {
        Value::String(only) => vec![vec![only.clone()]],
        Value::Array(all) if all.iter().all(Value::is_string) => vec![words(gold)?],
        _ => list(gold)?.iter().map(words).collect::<Result<_, _>>()?,
    };
    let ours = palimpsest::reward::joined_first_alias(&answers);
    match case["expected"]["core"].as_str() {
        Some(theirs) if theirs == ours => Ok(()),
        theirs => Err(format!("ours {ours:?}, theirs {theirs:?}")),
    }
}

/// Row numbers by question, in order of first appearance.
fn groups(uid: &Value) -> Result<Vec<Vec<usize>>, String> {
    let mut names: Vec<(String, Vec<usize>)> = Vec::new();
    for (row, name) in list(uid)?.iter().enumerate() {
        let name = name.to_string();
        match names.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rows)) => rows.push(row),
            None => names.push((name, vec![row])),
        }
    }
    Ok(names.into_iter().map(|(_, rows)| rows).collect())
}

fn mempo_advantage(case: &Value, _: &Value) -> Result<(), String> {
    let (inputs, expected) = (&case["inputs"], &case["expected"]);
    let on = |name: &str| inputs[name].as_bool().ok_or(format!("{name} is needed"));
    let (std, conditional) = (on("norm_by_std")?, on("conditional")?);
    let settings = CreditSettings {
        gate: if conditional { Gate::Sign } else { Gate::Off },
        scale: if std { Scale::Std } else { Scale::Off },
        ..CreditSettings::mempo()
    };
    let scores = floats(&inputs["scores"])?;
    let rewards: Vec<Vec<f64>> = list(&inputs["mem_rewards"])?
        .iter()
        .map(floats)
        .collect::<Result<_, _>>()?;
    for rows in groups(&inputs["uid"])? {
        let outcomes: Vec<f64> = rows.iter().map(|&row| scores[row]).collect();
        let outcome = group::grpo(&outcomes, std).map_err(|error| error.to_string())?;
        let rounds: Vec<Vec<RoundReward>> = rows
            .iter()
            .map(|&row| {
                (1u32..)
                    .zip(&rewards[row])
                    .map(|(turn, &reward)| RoundReward { turn, reward })
                    .collect()
            })
            .collect();
        let group = GroupRounds {
            outcomes: &outcomes,
            outcome_advantages: &outcome,
            rounds: &rounds,
        };
        let (memory, _) = round_advantages(group, &settings, 0, &MemoryCreditState::default())
            .map_err(|error| error.to_string())?;
        for ((&row, outcome), memory) in rows.iter().zip(outcome).zip(memory) {
            same_tokens(row, outcome, &memory, inputs, expected)?;
        }
    }
    Ok(())
}

/// Compares the parts of every token's weight.
fn same_tokens(
    row: usize,
    outcome: f64,
    memory: &[f64],
    inputs: &Value,
    expected: &Value,
) -> Result<(), String> {
    let mask: Vec<bool> = floats(&inputs["response_mask"][row])?
        .iter()
        .map(|&on| on > 0.0)
        .collect();
    let mut notes = Vec::new();
    for (turn, span) in (1u32..).zip(list(&inputs["mem_spans"][row])?) {
        let span = floats(span)?;
        // The vectors clip spans to the row; ours are refused there, so they are clipped here.
        let end = (span[1] as usize).min(mask.len());
        if (span[0] as usize) < end {
            notes.push((turn, span[0] as u32, end as u32));
        }
    }
    let row_of = Row {
        ids: vec![0; mask.len()],
        mask,
        notes,
        ..Row::default()
    };
    let advantages = Advantages {
        outcome: (outcome as f32).into(),
        memory: (1u32..)
            .zip(memory)
            .map(|(turn, &value)| (turn, value as f32))
            .collect(),
        ..Advantages::default()
    };
    let ours = token_credit(&row_of, &advantages).map_err(|error| error.to_string())?;
    for (name, ours) in [
        ("outcome_adv", &ours.outcome),
        ("mem_adv", &ours.memory),
        ("final_adv", &ours.weight),
    ] {
        let theirs = floats(&expected[name][row])?;
        if theirs.len() != ours.len() {
            return Err(format!(
                "{name} row {row}: {} tokens, theirs {}",
                ours.len(),
                theirs.len()
            ));
        }
        for (at, (&ours, theirs)) in ours.iter().zip(theirs).enumerate() {
            // Token weights are f32.
            let name = format!("{name} row {row} token {at}");
            close(&name, f64::from(ours), theirs, 1e-6, 1e-6)?;
        }
    }
    Ok(())
}

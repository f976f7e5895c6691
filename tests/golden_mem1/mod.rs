//! Vectors of MEM1: evaluation and training row.

use palimpsest::eval::mem1::{Mem1Step, mem1_scores, mem1_tags_balanced, mem1_tokens};
use palimpsest::rollout::{Mem1Block, Mem1Ids, Mem1Row};
use serde_json::{Value, json};

use crate::{Runner, close, number, tolerance};

/// What runs the cases of a family, if it is one of MEM1's.
pub fn runner(family: &str) -> Option<Runner> {
    match family {
        "mem1_eval" => Some(mem1_eval),
        "mem1_mask" => Some(mem1_mask),
        _ => None,
    }
}

fn mem1_eval(case: &Value, meta: &Value) -> Result<(), String> {
    let (inputs, expected) = (&case["inputs"], &case["expected"]);
    let (absolute, relative) = tolerance(case, meta);
    let check = |name: &str, ours: Option<f64>| match (ours, &expected[name]) {
        (None, Value::Null) => Ok(()),
        (Some(ours), theirs) if !theirs.is_null() => {
            close(name, ours, number(theirs), absolute, relative)
        }
        (ours, theirs) => Err(format!("{name}: ours {ours:?}, theirs {theirs}")),
    };
    if let Some(text) = inputs["solution_str"].as_str() {
        let golds: Vec<Vec<String>> =
            serde_json::from_value(inputs["golds"].clone()).map_err(|error| error.to_string())?;
        let scores = mem1_scores(text, &golds);
        check("f1", Some(scores.f1))?;
        check("em", Some(scores.em))?;
        let balanced = json!(mem1_tags_balanced(text));
        return match balanced == expected["tags_balanced"] {
            true => Ok(()),
            false => Err(format!("tags_balanced: ours {balanced}")),
        };
    }
    let written = &inputs["traj"];
    let block =
        |kind: &str, step: usize| written[format!("{kind}{step}")].as_str().map(str::to_owned);
    let steps: Vec<Mem1Step> = (0..)
        .map(|step| [block("t", step), block("r", step), block("i", step)])
        .take_while(|blocks| blocks.iter().any(Option::is_some))
        .map(|[think, action, information]| Mem1Step {
            think: think.unwrap_or_default(),
            action: action.unwrap_or_default(),
            information: information.unwrap_or_default(),
        })
        .collect();
    let memories: Vec<String> =
        serde_json::from_value(written.get("memories").cloned().unwrap_or(json!([])))
            .map_err(|error| error.to_string())?;
    let figures = mem1_tokens(&steps, &memories, |text| text.chars().count());
    // MEM1 takes the peaks of solved trajectories alone.
    let solved = figures.filter(|_| number(&written["Exact_match"]) != 0.0);
    check("peak_compression", solved.map(|of| of.peak_pruned as f64))?;
    check("peak_non_compression", solved.map(|of| of.peak_full as f64))?;
    check(
        "dependency_compression",
        figures.map(|of| of.dependency_pruned as f64),
    )?;
    check(
        "dependency_non_compression",
        figures.map(|of| of.dependency_full as f64),
    )?;
    check("compression_ratio", figures.map(|of| of.compression))
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap_or_default()
}

/// The rows, then the batch that MEM1 pads them to: questions on the left, the rest on the right.
fn mem1_mask(case: &Value, _: &Value) -> Result<(), String> {
    let (inputs, expected) = (&case["inputs"], &case["expected"]);
    let pad = inputs["pad_token_id"].as_u64().unwrap() as u32;
    let rows: Vec<Mem1Row> = inputs["trajectories"]
        .as_array()
        .unwrap()
        .iter()
        .map(|written| {
            let steps: Vec<Mem1Ids> = (0..written["num_rounds"].as_u64().unwrap())
                .map(|step| Mem1Ids {
                    think: ids(&written[format!("t{step}")]),
                    action: ids(&written[format!("r{step}")]),
                    information: ids(&written[format!("i{step}")]),
                })
                .collect();
            Mem1Row::new(&ids(&written["q"]), &steps, pad)
        })
        .collect();
    let left = rows.iter().map(|row| row.question).max().unwrap();
    let right = rows
        .iter()
        .map(|row| row.ids.len() - row.question)
        .max()
        .unwrap();
    let width = left + right;
    let kinds = [
        Mem1Block::Question,
        Mem1Block::Think,
        Mem1Block::Action,
        Mem1Block::Information,
    ];
    let check = |what: &str, ours: Value, theirs: &Value| match ours == *theirs {
        true => Ok(()),
        false => Err(format!("{what}: ours {ours}, theirs {theirs}")),
    };
    for (number, row) in rows.iter().enumerate() {
        let kind: Vec<usize> = row
            .of
            .iter()
            .map(|(block, _)| kinds.iter().position(|kind| kind == block).unwrap())
            .collect();
        let step: Vec<usize> = row.of.iter().map(|(_, step)| *step).collect();
        let flat = json!({
            "seq": row.ids, "kind": kind, "step": step, "prompt_len": row.question,
        });
        check("flat", flat, &expected["flat"][number])?;
        // Place in the batch of every place in the row.
        let place = |column: usize| column.checked_sub(left - row.question);
        let at = |column: usize| place(column).filter(|&at| at < row.ids.len());
        let over = |of: &dyn Fn(usize) -> u32| -> Vec<u32> {
            (0..width)
                .map(|column| at(column).map_or(pad, of))
                .collect()
        };
        let input_ids = over(&|at| row.ids[at]);
        let shown = |at: usize| u32::from(row.of[at].0 != Mem1Block::Information);
        check(
            "prompts",
            json!(input_ids[..left]),
            &expected["prompts"][number],
        )?;
        check(
            "responses",
            json!(input_ids[left..]),
            &expected["responses"][number],
        )?;
        check(
            "input_ids",
            json!(input_ids),
            &expected["input_ids"][number],
        )?;
        check(
            "attention_mask",
            json!(over(&|_| 1)),
            &expected["attention_mask"][number],
        )?;
        check(
            "position_ids",
            json!(over(&|at| at as u32)),
            &expected["position_ids"][number],
        )?;
        check(
            "info_mask",
            json!(over(&shown)),
            &expected["info_mask"][number],
        )?;
        let mask: Vec<String> = (0..width)
            .map(|query| {
                (0..width)
                    .map(|key| match (at(query), at(key)) {
                        (Some(query), Some(key)) if row.sees(query, key) => '1',
                        _ => '0',
                    })
                    .collect()
            })
            .collect();
        check(
            "attention_mask_4d",
            json!(mask),
            &expected["attention_mask_4d"][number],
        )?;
    }
    Ok(())
}

//! Vectors of judging, of Search-R1's format, and of the text of search results.

use palimpsest::task::qa::{
    ShapedScores, all_words_covered, answer_after_example, exact_match, last_answer, mem1_reward,
    normalize_answer, search_r1_evidence_shown, search_r1_format_holds, search_r1_information,
    search_r1_shaped_score, set_f1, spaced_words, substring_match, truth_as_yes_no,
    verl_search_score,
};
use palimpsest::tools::{
    Shown, search_r1_action, search_r1_block, search_r1_cut, search_r1_text, verl_text,
    verl_tool_text,
};
use serde_json::{Value, json};

use crate::{Runner, close, tolerance};

/// What runs the cases of a family, if it is one of judging or searching.
pub fn runner(family: &str) -> Option<Runner> {
    match family {
        "qa_normalize" => Some(qa_normalize),
        "qa_match" => Some(qa_match),
        "qa_extract" => Some(qa_extract),
        "searchr1_format" => Some(searchr1_format),
        "search_observation" => Some(search_observation),
        _ => None,
    }
}

/// Compares two values.
fn same(what: &str, ours: &Value, theirs: &Value) -> Result<(), String> {
    if ours == theirs {
        Ok(())
    } else {
        Err(format!("{what}: ours {ours}, theirs {theirs}"))
    }
}

/// Compares two rows of numbers that may be written 1, 1.0 or true.
fn near(
    what: &str,
    ours: &[f64],
    theirs: &Value,
    case: &Value,
    meta: &Value,
) -> Result<(), String> {
    let (absolute, relative) = tolerance(case, meta);
    let theirs = theirs.as_array().cloned().unwrap_or(vec![theirs.clone()]);
    if ours.len() != theirs.len() {
        return Err(format!(
            "{what}: {} figures, theirs {}",
            ours.len(),
            theirs.len()
        ));
    }
    for (ours, theirs) in ours.iter().zip(&theirs) {
        close(what, *ours, crate::number(theirs), absolute, relative)?;
    }
    Ok(())
}

/// A right answer as the peers write it: a text, or a list of aliases.
fn aliases(gold: &Value) -> Vec<String> {
    match gold {
        Value::Array(list) => list.iter().map(text).collect(),
        one => vec![text(one)],
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn qa_normalize(case: &Value, _: &Value) -> Result<(), String> {
    let given = case["inputs"]["s"].as_str().unwrap();
    let expected = &case["expected"];
    for (name, ours) in [
        ("normalize_answer", normalize_answer(given)),
        ("asearcher_normalize_text", spaced_words(given)),
        ("mem1_preprocess_text", spaced_words(given)),
        ("asearcher_bool_mapping", truth_as_yes_no(given).to_owned()),
    ] {
        same(name, &json!(ours), &expected[name])?;
    }
    Ok(())
}

fn qa_match(case: &Value, meta: &Value) -> Result<(), String> {
    let answer = case["inputs"]["prediction"].as_str().unwrap();
    let gold = aliases(&case["inputs"]["gold"]);
    let expected = &case["expected"];
    let truth = |holds: bool| if holds { 1.0 } else { 0.0 };
    let (em, part) = (
        truth(exact_match(answer, &gold)),
        truth(substring_match(answer, &gold)),
    );
    let f1: Vec<f64> = gold.iter().map(|gold| set_f1(answer, gold)).collect();
    let covered: Vec<f64> = gold
        .iter()
        .map(|gold| truth(all_words_covered(answer, gold)))
        .collect();
    for (name, ours) in [
        ("em", vec![em]),
        ("subem", vec![part]),
        ("asearcher_em", vec![em]),
        ("asearcher_subem", vec![part]),
        ("asearcher_f1_per_gold", f1),
        ("asearcher_cem_per_gold", covered),
    ] {
        near(name, &ours, &expected[name], case, meta)?;
    }
    Ok(())
}

fn qa_extract(case: &Value, meta: &Value) -> Result<(), String> {
    extract(case, meta, |crash| {
        Err(format!("mem1 reward: theirs {crash}"))
    })
}

/// Where MEM1's reward fails for want of an answer, ours is 0; all the rest must agree.
pub fn qa_extract_where_mem1_fails(case: &Value, meta: &Value) -> Result<(), String> {
    let ours = mem1_of(case);
    extract(case, meta, |_| {
        close("mem1 reward without an answer", ours, 0.0, 0.0, 0.0)
    })
}

fn mem1_of(case: &Value) -> f64 {
    let golds: Vec<Vec<String>> = case["inputs"]["mem1_target"]
        .as_array()
        .unwrap()
        .iter()
        .map(aliases)
        .collect();
    mem1_reward(case["inputs"]["solution_str"].as_str().unwrap(), &golds)
}

fn extract(
    case: &Value,
    meta: &Value,
    crash: impl Fn(&Value) -> Result<(), String>,
) -> Result<(), String> {
    let (inputs, expected) = (&case["inputs"], &case["expected"]);
    let given = inputs["solution_str"].as_str().unwrap();
    for name in ["search_r1", "mem1"] {
        same(name, &json!(answer_after_example(given)), &expected[name])?;
    }
    for name in ["asearcher", "verl_extract"] {
        same(name, &json!(last_answer(given)), &expected[name])?;
    }
    let targets: Vec<Vec<String>> = inputs["targets"]
        .as_array()
        .unwrap()
        .iter()
        .map(aliases)
        .collect();
    let format_score = inputs["format_score"].as_f64().unwrap();
    let scored = |holds: fn(&str, &[String]) -> bool| -> Vec<f64> {
        let answer = answer_after_example(given);
        let score = |gold: &Vec<String>| match answer {
            None => 0.0,
            Some(answer) if holds(answer, gold) => 1.0,
            Some(_) => format_score,
        };
        targets.iter().map(score).collect()
    };
    let verl: Vec<f64> = targets
        .iter()
        .map(|gold| verl_search_score(given, gold, format_score))
        .collect();
    for (name, ours) in [
        ("search_r1_score_em", scored(exact_match)),
        ("search_r1_score_subem", scored(substring_match)),
        ("verl_compute_score", verl),
    ] {
        near(name, &ours, &expected[name], case, meta)?;
    }
    let theirs = &expected["mem1_score_em_multi"];
    if theirs.is_object() {
        return crash(theirs);
    }
    near("mem1_score_em_multi", &[mem1_of(case)], theirs, case, meta)
}

fn searchr1_format(case: &Value, meta: &Value) -> Result<(), String> {
    let (inputs, expected) = (&case["inputs"], &case["expected"]);
    let given = inputs["text"].as_str().unwrap();
    let gold = aliases(&inputs["target"]);
    let pay = |name: &str| inputs[name].as_f64().unwrap();
    let scores = ShapedScores {
        right: pay("score"),
        structure: pay("structure_format_score"),
        answered: pay("final_format_score"),
        evidence: pay("retrieval_score"),
    };
    same(
        "valid",
        &json!(search_r1_format_holds(given)),
        &expected["valid"],
    )?;
    same(
        "retrieval_correct",
        &json!(search_r1_evidence_shown(given, &gold)),
        &expected["retrieval_correct"],
    )?;
    same(
        "information_blocks",
        &json!(search_r1_information(given)),
        &expected["information_blocks"],
    )?;
    let ours = search_r1_shaped_score(given, &gold, scores);
    near("score", &[ours], &expected["score"], case, meta)
}

fn search_observation(case: &Value, _: &Value) -> Result<(), String> {
    let (inputs, expected) = (&case["inputs"], &case["expected"]);
    if let Some(rows) = inputs["result"].as_array() {
        let passages: Vec<Shown<'_>> = rows
            .iter()
            .map(|row| Shown {
                contents: row["document"]["contents"].as_str().unwrap(),
                url: "",
            })
            .collect();
        same(
            "search_r1",
            &json!(search_r1_text(&passages)),
            &expected["search_r1"],
        )?;
        same(
            "search_r1_information",
            &json!(search_r1_block(&passages)),
            &expected["search_r1_information"],
        )?;
        return same("verl", &json!(verl_text(&passages)), &expected["verl"]);
    }
    if let Some(response) = inputs["response"].as_str() {
        let cut = search_r1_cut(response);
        same("cut", &json!(cut), &expected["cut"])?;
        let (action, content) = search_r1_action(cut).unzip();
        same("action", &json!(action), &expected["action"])?;
        return same(
            "content",
            &json!(content.unwrap_or("")),
            &expected["content"],
        );
    }
    let (text, status, total) = verl_tool_text(&inputs["api_response"], inputs["error"].as_str());
    same("text", &json!(text), &expected["text"])?;
    same("status", &json!(status.name()), &expected["status"])?;
    same("total_results", &json!(total), &expected["total_results"])
}

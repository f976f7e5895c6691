//! Golden vectors: figures made by running the peers' own code. Reads every `*.json` of the folder
//! in PALIMPSEST_GOLDEN (default `tests/golden`), dispatches by `meta.family`, compares with
//! `meta.tolerance`, and prints how many cases of each family ran. A family or case that cannot be
//! run is a failure; what may stand apart stands in the tables below, with its reason.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod golden_agents;
mod golden_estimators;
#[cfg(feature = "torch")]
mod golden_losses;
/// The losses are libtorch's: without it their families are known and not run.
#[cfg(not(feature = "torch"))]
mod golden_losses {
    pub fn runner(family: &str) -> Option<crate::Runner> {
        let known = [
            "ppo_loss",
            "policy_loss_other",
            "agg_loss",
            "kl",
            "value_loss",
            "entropy_logprob",
            "rollout_is",
        ];
        known.contains(&family).then_some(|_, _| Ok(()))
    }
}
mod golden_mem1;
mod golden_memory;
mod golden_qa;

use serde_json::Value;

const FOLDER: &str = "tests/golden";

/// A kind of case that records what a peer does and palimpsest does not. A case is tried against
/// ours first; only if that differs does the table apply, and then the peer's behaviour must be met
/// by a named compatibility function, if there is one.
struct Exception {
    family: &'static str,
    /// Case names, `*` standing for anything.
    cases: &'static str,
    reason: &'static str,
    /// Runs the case against the compatibility function, and ours wherever the two should agree.
    compatible: Option<Runner>,
}

const EXCEPTIONS: &[Exception] = &[
    Exception {
        family: "grpo",
        cases: "grpo_vectorized_*",
        reason: "verl's twin counts in 32 bits and floors the deviation at 1e-3",
        compatible: Some(golden_estimators::grpo_vectorized),
    },
    Exception {
        family: "grpo",
        cases: "grpo_std1_*equal*",
        reason: "verl divides what rounding leaves of equal scores by 1e-6; ours are exactly zero",
        compatible: Some(golden_estimators::grpo_of_equal_scores),
    },
    Exception {
        family: "rloo_opo_gpg",
        cases: "rloo_vectorized_*",
        reason: "verl's twin gives a group of one 0 instead of its score",
        compatible: Some(golden_estimators::rloo_vectorized),
    },
    Exception {
        family: "rloo_opo_gpg",
        cases: "gpg_*",
        reason: "verl divides 1 by an integer count in 32 bits; ours counts in 64",
        compatible: Some(golden_estimators::gpg_in_32_bits),
    },
    Exception {
        family: "reinforce_remax",
        cases: "rfpp_g*",
        reason: "verl resets the return at every tool token (verl#7278), and leaves returns there",
        compatible: Some(golden_estimators::reinforce_plus_plus_reset),
    },
    Exception {
        family: "reinforce_remax",
        cases: "remax_*",
        reason: "verl leaves the bare return on tool tokens; ours carry exactly zero",
        compatible: Some(golden_estimators::remax_unmasked),
    },
    Exception {
        family: "gae",
        cases: "gae_*",
        reason: "verl leaves what the scan carries on masked tokens; ours carry exactly zero",
        compatible: Some(golden_estimators::gae_unmasked),
    },
    Exception {
        family: "kl",
        cases: "kl_*+",
        reason: "verl documents straight-through kinds and raises NotImplementedError (PR #6058); ours work",
        compatible: None,
    },
    Exception {
        family: "agg_loss",
        cases: "agg05_seq-mean-token-mean_fully_masked_row*",
        reason: "one row without a trained token makes verl's loss NaN; ours counts it as nothing",
        compatible: None,
    },
    Exception {
        family: "agg_loss",
        cases: "agg05_seq-mean-token-mean_all_masked*",
        reason: "without a trained token verl's loss is NaN; ours is 0",
        compatible: None,
    },
    Exception {
        family: "agg_loss",
        cases: "aggmain_*all_masked*",
        reason: "without a trained token verl's loss is NaN; ours is 0",
        compatible: None,
    },
    Exception {
        family: "qa_extract",
        cases: "extract_*",
        reason: "without an answer MEM1's reward fails; ours is 0",
        compatible: Some(golden_qa::qa_extract_where_mem1_fails),
    },
    Exception {
        family: "asearcher_agent",
        cases: "*",
        reason: "ASearcher counts every later part of a page as a failed access",
        compatible: Some(golden_agents::asearcher_agent_counting_parts),
    },
    Exception {
        family: "tool_agent_loop",
        cases: "empty_first_generation*",
        reason: "verl hands the prompt out as the response of an empty generation; ours stays empty",
        compatible: Some(golden_agents::an_empty_response_stays_empty),
    },
    Exception {
        family: "tool_agent_loop",
        cases: "interaction*",
        reason: "verl lets a user speak between turns, and leaves the reward on a masked token; our protocol has tools only",
        compatible: None,
    },
];

/// Runs one case: the case, then the file's meta.
pub type Runner = fn(&Value, &Value) -> Result<(), String>;

fn runner(family: &str) -> Option<Runner> {
    golden_estimators::runner(family)
        .or_else(|| golden_memory::runner(family))
        .or_else(|| golden_losses::runner(family))
        .or_else(|| golden_agents::runner(family))
        .or_else(|| golden_qa::runner(family))
        .or_else(|| golden_mem1::runner(family))
}

#[derive(Default)]
struct Count {
    ran: usize,
    excepted: usize,
}

#[test]
fn the_peers_own_figures_are_met() {
    let folder = std::env::var("PALIMPSEST_GOLDEN").unwrap_or_else(|_| FOLDER.into());
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("PALIMPSEST_GOLDEN {folder:?} cannot be read: {error}"))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|of| of == "json"))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{folder:?} holds no vectors");
    let mut failures = Vec::new();
    for path in files {
        let shown = path.display().to_string();
        let file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap())
            .unwrap_or_else(|error| panic!("{shown}: {error}"));
        let (Some(family), Some(cases)) =
            (file["meta"]["family"].as_str(), file["cases"].as_array())
        else {
            failures.push(format!("{shown}: not a file of vectors"));
            continue;
        };
        let Some(run) = runner(family) else {
            failures.push(format!("{family}: no runner ({shown})"));
            continue;
        };
        let mut count = Count::default();
        for (number, case) in cases.iter().enumerate() {
            let name = case["name"].as_str().unwrap_or("unnamed");
            if let Err(problem) = one(run, family, name, case, &file["meta"], &mut count) {
                failures.push(format!("{family} {name} (case {number}): {problem}"));
            }
        }
        println!(
            "{family}: {} of {} ran, {} of them by the table of exceptions",
            count.ran,
            cases.len(),
            count.excepted
        );
    }
    assert!(
        failures.is_empty(),
        "{} cases failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// Runs one case against ours, or by the table of exceptions.
fn one(
    run: Runner,
    family: &str,
    name: &str,
    case: &Value,
    meta: &Value,
    count: &mut Count,
) -> Result<(), String> {
    let Err(problem) = run(case, meta) else {
        count.ran += 1;
        return Ok(());
    };
    let Some(exception) = EXCEPTIONS
        .iter()
        .find(|of| of.family == family && fits(of.cases, name))
    else {
        return Err(problem);
    };
    if let Some(compatible) = exception.compatible {
        compatible(case, meta).map_err(|error| {
            format!("{problem}; nor as the peer ({}): {error}", exception.reason)
        })?;
    }
    count.ran += 1;
    count.excepted += 1;
    Ok(())
}

/// Whether a name fits a pattern in which `*` stands for anything.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|left| {
            (0..=left.len()).any(|at| left.is_char_boundary(at) && fits(rest, &left[at..]))
        }),
    }
}

#[test]
fn patterns_stand_for_anything_between() {
    assert!(fits("gae_*", "gae_raw") && fits("a*c*e", "abcde") && fits("x", "x"));
    assert!(!fits("gae_*", "gpg") && !fits("a*c", "abcd") && !fits("x", "xy"));
}

/// A row of numbers; `"nan"`, `"inf"` and `"-inf"` are numbers, and so are truth values.
pub fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(number).collect()
}

/// One number.
pub fn number(value: &Value) -> f64 {
    match value {
        Value::String(text) => text.parse().unwrap(),
        Value::Bool(on) => f64::from(u8::from(*on)),
        _ => value.as_f64().unwrap(),
    }
}

/// Rows of numbers.
pub fn table(value: &Value) -> Vec<Vec<f64>> {
    value.as_array().unwrap().iter().map(floats).collect()
}

/// Compares two numbers; NaN equals NaN, and an infinity itself.
pub fn close(
    name: &str,
    ours: f64,
    theirs: f64,
    absolute: f64,
    relative: f64,
) -> Result<(), String> {
    let near = ours == theirs
        || (ours - theirs).abs() <= absolute + relative * theirs.abs()
        || (ours.is_nan() && theirs.is_nan());
    if near {
        Ok(())
    } else {
        Err(format!("{name}: ours {ours}, theirs {theirs}"))
    }
}

/// Absolute and relative tolerance of a case: the file's, unless the inputs name their own; nearly
/// equal groups are ill-conditioned.
pub fn tolerance(case: &Value, meta: &Value) -> (f64, f64) {
    let of = |key: &str| {
        case["inputs"][format!("tol_{key}")]
            .as_f64()
            .or_else(|| meta["tolerance"][key].as_f64())
            .or_else(|| meta["tolerance"].as_f64())
            .unwrap_or(1e-9)
    };
    let near_equal = case["name"]
        .as_str()
        .is_some_and(|name| name.contains("near_equal"));
    let relative = if near_equal {
        of("rel").max(1e-6)
    } else {
        of("rel")
    };
    (of("abs"), relative)
}

/// Row numbers by question, in order of first appearance. Labels are strings or numbers.
pub fn groups(uid: &Value) -> Vec<Vec<usize>> {
    let mut names: Vec<(&Value, Vec<usize>)> = Vec::new();
    for (row, name) in uid.as_array().unwrap().iter().enumerate() {
        match names.iter_mut().find(|(known, _)| *known == name) {
            Some((_, rows)) => rows.push(row),
            None => names.push((name, vec![row])),
        }
    }
    names.into_iter().map(|(_, rows)| rows).collect()
}

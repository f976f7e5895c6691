//! `palimpsest retrieve`, from files to the last line.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const ENCODER: &str = "tests/fixtures/bert";

fn retrieve(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_palimpsest"))
        .arg("retrieve")
        .arg("--corpus")
        .arg(folder.join("c.jsonl"))
        .arg("--questions")
        .arg(folder.join("q.jsonl"))
        .args(arguments)
        .env("OMP_WAIT_POLICY", "passive")
        .env("OMP_NUM_THREADS", "1")
        .output()
        .unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", said(output));
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn small() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let corpus = [
        r#"{"id": "0", "contents": "\"Ulm\"\nUlm is a city in germany."}"#,
        r#"{"id": "1", "contents": "\"Rome\"\nRome is a town of old towns."}"#,
        r#"{"id": "2", "contents": "\"Minster\"\nThe minster of Ulm is old."}"#,
    ];
    let questions = [
        r#"{"id": "a", "question": "Where is Ulm?", "golden_answers": ["Germany"], "supporting_titles": ["Ulm", "Minster"]}"#,
        r#"{"id": "b", "question": "Who is in Rome?", "golden_answers": ["Romans"], "supporting_titles": ["Nowhere"]}"#,
        r#"{"id": "c", "question": "Old towns?", "golden_answers": ["Rome"]}"#,
    ];
    std::fs::write(folder.path().join("c.jsonl"), corpus.join("\n")).unwrap();
    std::fs::write(folder.path().join("q.jsonl"), questions.join("\n")).unwrap();
    folder
}

#[test]
fn a_line_a_question_and_a_last_one_with_the_recall() {
    let folder = small();
    let found = lines(&retrieve(folder.path(), &["--topk", "10", "--json"]));
    assert_eq!(found.len(), 4);
    assert_eq!(found[0]["id"], "a");
    let titles: Vec<&str> = found[0]["titles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|title| title.as_str().unwrap())
        .collect();
    assert!(
        titles.contains(&"Ulm") && titles.contains(&"Minster"),
        "{titles:?}"
    );
    assert_eq!(found[2]["titles"][0], "Rome");
    // One of two questions that name titles has all of them, the other none.
    let last = &found[3];
    assert_eq!(
        (&last["recall@5"], &last["recall@10"]),
        (&Value::from(0.5), &Value::from(0.5))
    );
    assert_eq!(last["n"], 2);
    assert!(folder.path().join("c.jsonl.index").is_dir());
    let one = lines(&retrieve(folder.path(), &["--topk", "1", "--json"]));
    assert_eq!(one[3]["recall@1"], 0.25);
    // Deeper than what was asked for: the key is there, and no number that means another depth.
    assert_eq!(one[3].get("recall@5"), Some(&Value::Null));
    assert_eq!(one[3].get("recall@10"), Some(&Value::Null));
}

#[test]
fn more_passages_than_there_are_may_be_asked_for_and_answers_need_not_be_known() {
    let folder = small();
    let questions = [
        r#"{"id": "a", "question": "Where is Ulm?", "supporting_titles": ["Ulm"]}"#,
        r#"{"question": "Old towns?", "golden_answers": [], "supporting_titles": ["Rome"]}"#,
    ];
    std::fs::write(folder.path().join("q.jsonl"), questions.join("\n")).unwrap();
    let found = lines(&retrieve(
        folder.path(),
        &["--topk", "10000000000", "--json"],
    ));
    assert_eq!(found[0]["titles"][0], "Ulm");
    assert_eq!(found[2]["recall@5"], 1.0);
    assert_eq!(found[2]["n"], 2);
}

#[cfg(feature = "torch")]
#[test]
fn dense_and_hybrid_search_with_the_encoder_of_a_folder() {
    let folder = small();
    for mode in ["dense", "hybrid"] {
        let found = lines(&retrieve(
            folder.path(),
            &["--mode", mode, "--encoder", ENCODER, "--json"],
        ));
        // An exact index ranks every passage.
        assert_eq!(found[1]["passages"].as_array().unwrap().len(), 3, "{mode}");
        assert_eq!(found[3]["n"], 2);
        for index in ["exact", "hnsw"] {
            let arguments = ["--mode", mode, "--encoder", ENCODER, "--index", index];
            let more = [&arguments[..], &["--topk", "10000000000", "--json"]].concat();
            let all = lines(&retrieve(folder.path(), &more));
            assert_eq!(
                all[1]["passages"].as_array().unwrap().len(),
                3,
                "{mode} {index}"
            );
        }
    }
    let none = retrieve(folder.path(), &["--mode", "dense", "--encoder", "no/such"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(
        said(&none).contains("no/such/config.json"),
        "{}",
        said(&none)
    );
}

#[test]
fn a_wrong_row_ends_the_command_with_file_and_line() {
    let folder = small();
    std::fs::write(
        folder.path().join("c.jsonl"),
        "{\"contents\": \"a\"}\n{\"text\": 1}\n",
    )
    .unwrap();
    let output = retrieve(folder.path(), &["--json"]);
    assert_eq!(output.status.code(), Some(1));
    let told = said(&output);
    assert!(told.contains("c.jsonl\", line 2"), "{told}");
    assert!(output.stdout.is_empty());
    std::fs::remove_file(folder.path().join("c.jsonl")).unwrap();
    let told = said(&retrieve(folder.path(), &["--json"]));
    assert_eq!(told.matches("No such file").count(), 1, "{told}");
}

#[test]
fn supporting_passages_of_real_questions_are_found_by_words() {
    let data = std::env::var_os("PALIMPSEST_DATA")
        .map_or_else(|| PathBuf::from("../shared/data"), PathBuf::from);
    if !data.join("corpus.jsonl").exists() {
        eprintln!(
            "skipped: {} holds no corpus.jsonl; PALIMPSEST_DATA names the folder",
            data.display()
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (from, to) in [("corpus.jsonl", "c.jsonl"), ("hotpotqa.jsonl", "q.jsonl")] {
        std::fs::copy(data.join(from), folder.path().join(to)).unwrap();
    }
    let found = lines(&retrieve(folder.path(), &["--json"]));
    let last = found.last().unwrap();
    assert_eq!(last["n"], 50);
    assert!(last["recall@10"].as_f64().unwrap() > 0.6, "{last}");
}

/// A Python with transformers, and the encoders to compare with: the small one of the fixtures, and
/// the real one where it is.
fn peers() -> Result<(PathBuf, Vec<PathBuf>), String> {
    let python = std::env::var_os("PALIMPSEST_PYTHON").map_or("python3".into(), PathBuf::from);
    let has = Command::new(&python)
        .args(["-c", "import torch, transformers"])
        .output();
    if !has.is_ok_and(|output| output.status.success()) {
        return Err(format!(
            "{} has no torch and transformers; PALIMPSEST_PYTHON names another Python",
            python.display()
        ));
    }
    let real = std::env::var_os("PALIMPSEST_ENCODER").map_or(".encoder".into(), PathBuf::from);
    let encoders = [PathBuf::from(ENCODER), real];
    let there = encoders
        .into_iter()
        .filter(|folder| folder.join("config.json").exists());
    Ok((python, there.collect()))
}

#[cfg(feature = "torch")]
#[test]
fn dense_scores_equal_those_of_transformers_where_it_is_there() {
    let (python, encoders) = match peers() {
        Ok(peers) => peers,
        Err(reason) => {
            eprintln!("skipped: {reason}");
            return;
        }
    };
    for encoder in encoders {
        let folder = small();
        let theirs = Command::new(&python)
            .arg("tests/fixtures/bert/scores.py")
            .arg(&encoder)
            .args(["c.jsonl", "q.jsonl"].map(|name| folder.path().join(name)))
            .output()
            .unwrap();
        assert!(theirs.status.success(), "{}", said(&theirs));
        let encoder = encoder.to_str().unwrap();
        let ours = lines(&retrieve(
            folder.path(),
            &["--mode", "dense", "--encoder", encoder, "--json"],
        ));
        for (line, expected) in ours.iter().zip(lines(&theirs)) {
            let numbers = |value: &Value| value.as_array().unwrap().clone();
            for (row, score) in numbers(&line["passages"])
                .iter()
                .zip(numbers(&line["scores"]))
            {
                let theirs = expected[row.as_u64().unwrap() as usize].as_f64().unwrap();
                let apart = (score.as_f64().unwrap() - theirs).abs();
                assert!(apart < 1e-4, "{encoder}: {score} against {theirs}");
            }
        }
    }
}

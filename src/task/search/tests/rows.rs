//! Rows of questions as they are read.

use std::path::Path;

use crate::task::TaskError;
use crate::task::search::{SearchQuestion, read_queries, read_questions};

fn read(name: &str, text: &str) -> Result<Vec<SearchQuestion>, TaskError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    read_questions(&path)
}

#[test]
fn every_shape_of_the_peers_is_read() {
    let rows = [
        r#"{"id": "n1", "question": "Who?", "golden_answers": ["Ann", "Anna"], "source": "nq", "supporting_titles": ["T"]}"#,
        r#"{"question": "Who?", "answer": "Ann"}"#,
        r#"{"question": "How many?", "gt": 3}"#,
        r#"{"question": "Who; or what?", "golden_answers": [["Ann"]]}"#,
        r#"{"id": 4, "question": "Who?; Where?", "golden_answers": [["Ann", "Anna"], ["Ulm"]]}"#,
        r#"{"data_source": "hotpotqa", "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "Answer. Question: Where? \n"}], "reward_model": {"style": "rule", "ground_truth": {"target": ["Ulm"]}}, "extra_info": {"index": 7}}"#,
        r#"{"prompt": "Where?", "reward_model": {"ground_truth": [["Ulm"]]}, "extra_info": {"question": "Where is it?"}}"#,
    ];
    let questions = read("q.jsonl", &(rows.join("\n\n") + "\n")).unwrap();
    let told: Vec<String> = questions
        .iter()
        .map(|question| {
            let golds: Vec<String> = question.golds().iter().map(|gold| gold.join("|")).collect();
            format!(
                "{} {} {} {}",
                question.id,
                question.source,
                question.text(),
                golds.join(";")
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            "n1 nq Who? Ann|Anna",
            "2  Who? Ann",
            "4  How many? 3",
            "6  Who; or what? Ann",
            "4  Who?; Where? Ann|Anna;Ulm",
            "7 hotpotqa Where? Ulm",
            "12  Where is it? Ulm",
        ]
    );
    assert_eq!(questions[0].supporting_titles, ["T"]);
    assert_eq!(questions[4].objectives[1].question, "Where?");
}

#[test]
fn a_wrong_row_names_its_line_and_what_is_wrong() {
    for (row, said) in [
        ("{", "it is no JSON"),
        ("[]", "a row must be an object"),
        (r#"{"question": "q"}"#, "no right answer"),
        (
            r#"{"golden_answers": ["a"]}"#,
            "neither \"question\" nor \"prompt\"",
        ),
        (
            r#"{"question": " ", "golden_answers": ["a"]}"#,
            "the question is empty",
        ),
        (
            r#"{"question": "q", "golden_answers": []}"#,
            "needs a right answer",
        ),
        (
            r#"{"question": "q", "golden_answers": [["a"], []]}"#,
            "needs a right answer",
        ),
        (
            r#"{"question": "q", "golden_answers": {"a": 1}}"#,
            "must be a text, a list",
        ),
        (
            r#"{"question": "q1; q2", "golden_answers": [["a"], ["b"], ["c"]]}"#,
            "for 3 questions",
        ),
        (
            r#"{"question": "q", "answer": "a", "supporting_titles": 3}"#,
            "list of texts",
        ),
        (
            r#"{"prompt": [{"role": "system", "content": "s"}], "answer": "a"}"#,
            "one is the user's",
        ),
    ] {
        let error = read(
            "q.jsonl",
            &format!("{{\"question\": \"q\", \"answer\": \"a\"}}\n{row}\n"),
        )
        .unwrap_err()
        .to_string();
        assert!(error.contains("q.jsonl\", line 2: "), "{error}");
        assert!(error.contains(said), "{row}: {error}");
    }
    assert!(matches!(
        read("q.jsonl", "\n"),
        Err(TaskError::NoQuestions { .. })
    ));
    assert!(
        read("q.parquet", "no parquet")
            .unwrap_err()
            .to_string()
            .contains("no Parquet file")
    );
}

#[test]
fn empty_fields_and_a_byte_order_mark_are_passed_over() {
    let rows = [
        "\u{feff}{\"question\": \"Who?\", \"golden_answers\": null, \"answer\": \"x\"}",
        r#"{"question": "Who?", "golden_answers": [], "gt": "x"}"#,
        r#"{"question": "Who?", "reward_model": {"ground_truth": null}, "golden_answers": ["x"]}"#,
        r#"{"question": "Who?", "reward_model": {"ground_truth": {"target": ""}}, "answer": "x"}"#,
        r#"{"question": "Who?", "extra_info": {"question": ""}, "answer": "x"}"#,
        r#"{"question": " ", "prompt": "Question: Who?", "answer": "x"}"#,
        r#"{"question": null, "prompt": "Question: Who?", "answer": "x"}"#,
    ];
    let questions = read("q.jsonl", &rows.join("\n")).unwrap();
    for (question, row) in questions.iter().zip(rows) {
        assert_eq!(
            (question.text().as_str(), &question.golds()[0][..]),
            ("Who?", &["x".to_owned()][..]),
            "{row}"
        );
    }
    let null = read("q.jsonl", r#"{"question": "q", "answer": null}"#);
    let error = null.unwrap_err().to_string();
    assert!(error.contains("\"answer\" is null"), "{error}");
}

#[test]
fn a_line_that_is_no_utf8_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.jsonl");
    let good = br#"{"question": "q", "answer": "a"}"#;
    let bad = b"{\"question\": \"Z\xfcrich?\", \"answer\": \"a\"}";
    std::fs::write(&path, [&good[..], b"\n", bad].concat()).unwrap();
    let error = read_questions(&path).unwrap_err().to_string();
    assert!(error.contains("q.jsonl\", line 2: "), "{error}");
    assert!(error.contains("in UTF-8"), "{error}");
}

#[test]
fn questions_that_are_only_looked_up_need_no_answers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("q.jsonl");
    let rows = [
        r#"{"id": "a", "question": "Who?; Where?", "supporting_titles": ["T"]}"#,
        r#"{"question": "Who?; Where; or not?", "golden_answers": [["Ann"], ["Ulm"], [], []]}"#,
    ];
    std::fs::write(&path, rows.join("\n")).unwrap();
    assert!(read_questions(&path).is_err());
    let queries = read_queries(&path).unwrap();
    let texts: Vec<String> = queries.iter().map(SearchQuestion::text).collect();
    assert_eq!(texts, ["Who?; Where?", "Who?; Where; or not?"]);
    assert_eq!(queries[0].supporting_titles, ["T"]);
    assert_eq!(
        read_queries(Path::new("tests/fixtures/verl_rows.parquet"))
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn a_compression_that_is_not_read_is_named_with_the_way_out() {
    let path = Path::new("tests/fixtures/verl_rows_zstd.parquet");
    let error = read_questions(path).unwrap_err().to_string();
    for part in [
        "verl_rows_zstd.parquet",
        "compressed with zstd",
        "to_parquet",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert!(!error.contains("row 0"), "{error}");
}

#[test]
fn verls_parquet_rows_are_read() {
    let path = Path::new("tests/fixtures/verl_rows.parquet");
    let questions = read_questions(path).unwrap();
    let told: Vec<String> = questions
        .iter()
        .map(|question| {
            format!(
                "{} {} {:?}",
                question.source,
                question.text(),
                question.golds()
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            "nq who wrote Hamlet? [[\"Shakespeare\", \"William Shakespeare\"]]",
            "nq where is Ulm? [[\"Germany\"]]",
        ]
    );
    let path = Path::new("tests/fixtures/verl_rows_multi.parquet");
    let error = read_questions(path).unwrap_err().to_string();
    assert!(
        error.contains("verl_rows_multi.parquet\", row 2: "),
        "{error}"
    );
}

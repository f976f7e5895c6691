//! How the lookup task finds documents, judges answers and counts notes.
#![allow(clippy::unwrap_used)]

use palimpsest::task::lookup::LookupTask;
use palimpsest::task::{
    Judgement, NOTHING_FOUND, NotesCount, Observed, Split, Task as _, find_document,
};
use palimpsest::trajectory::{Objective, QuestionData};

fn task() -> LookupTask {
    LookupTask::shipped().unwrap()
}

/// Two objectives, the first with an alias.
fn sample() -> QuestionData {
    let objective = |key: &str, gold: &[&str]| Objective {
        key: key.to_owned(),
        gold: gold.iter().map(|&gold| gold.to_owned()).collect(),
    };
    let document = |key: &str, text: &str| (key.to_owned(), text.to_owned());
    QuestionData {
        objectives: vec![
            objective("capital of Peru", &["Lima", "City of Kings"]),
            objective("symbol of tin", &["Sn"]),
        ],
        documents: vec![
            document(
                "capital of Peru",
                "The capital of Peru is Lima. The number of iron is 26.",
            ),
            document(
                "symbol of tin",
                "The symbol of lead is Pb. The symbol of tin is Sn.",
            ),
            document("page:Peru", "The capital of Peru is Lima."),
        ],
        ..QuestionData::default()
    }
}

#[test]
fn searches_are_exact_but_for_the_spaces_around_them() {
    let question = sample();
    assert_eq!(
        find_document(&question, " capital of Peru "),
        Some("The capital of Peru is Lima. The number of iron is 26.")
    );
    assert_eq!(
        find_document(&question, "page:Peru"),
        Some("The capital of Peru is Lima.")
    );
    for query in [
        "",
        "capital of",
        "Capital of Peru",
        "capital  of Peru",
        "capital of Peru;",
    ] {
        assert_eq!(find_document(&question, query), None, "{query}");
    }
    let (text, ids) = task().render_tool(NOTHING_FOUND);
    assert_eq!(text, "<tool> nothing found.</tool>");
    assert_eq!(ids.len(), 5);
}

#[test]
fn documents_cannot_open_or_close_blocks() {
    let task = task();
    let (text, ids) = task.render_tool(" a</tool><mem> b</m<mem>em> c ");
    assert_eq!(text, "<tool> a b c</tool>");
    let special: Vec<_> = ids
        .iter()
        .filter(|id| task.tokenizer().is_special_id(**id))
        .collect();
    assert_eq!(special.len(), 2);
}

#[test]
fn the_judge_wants_every_fact_once_and_nothing_else() {
    let cases: [(&str, &str, f32, f32); 14] = [
        (
            "right",
            " capital of Peru = Lima; symbol of tin = Sn;",
            1.0,
            1.0,
        ),
        (
            "another order",
            " symbol of tin = Sn; capital of Peru = Lima;",
            1.0,
            1.0,
        ),
        (
            "an alias",
            " capital of Peru = City of Kings; symbol of tin = Sn;",
            1.0,
            1.0,
        ),
        (
            "other spaces",
            "capital of Peru =Lima ;symbol of tin= Sn; ",
            1.0,
            1.0,
        ),
        (
            "one wrong",
            " capital of Peru = Cusco; symbol of tin = Sn;",
            0.0,
            0.5,
        ),
        ("one missing", " capital of Peru = Lima;", 0.0, 2.0 / 3.0),
        (
            "one too many",
            " capital of Peru = Lima; symbol of tin = Sn; number of iron = 26;",
            0.0,
            0.8,
        ),
        (
            "twice, first right",
            " capital of Peru = Lima; symbol of tin = Sn; symbol of tin = Pb;",
            0.0,
            0.8,
        ),
        (
            "twice, first wrong",
            " capital of Peru = Lima; symbol of tin = Pb; symbol of tin = Sn;",
            0.0,
            0.4,
        ),
        (
            "the last not closed",
            " capital of Peru = Lima; symbol of tin = Sn",
            0.0,
            2.0 / 3.0,
        ),
        (
            "text after",
            " capital of Peru = Lima; symbol of tin = Sn; done",
            0.0,
            1.0,
        ),
        (
            "not a fact between",
            " capital of Peru = Lima; hm; symbol of tin = Sn;",
            0.0,
            1.0,
        ),
        (
            "another case",
            " capital of peru = Lima; symbol of tin = sn;",
            0.0,
            0.0,
        ),
        ("nothing", "", 0.0, 0.0),
    ];
    let (task, question) = (task(), sample());
    for (name, answer, em, f1) in cases {
        let judged = task.judge(&question, answer);
        assert_eq!(judged.em, em, "{name}");
        assert!((judged.f1 - f1).abs() < 1e-6, "{name}: {judged:?}");
    }
    // Every gold answer is exact.
    let gold = task.question(1, 0, 0, 5, Split::Test, false);
    assert_eq!(
        task.judge(&gold, &gold.gold_text),
        Judgement {
            em: 1.0,
            f1: 1.0,
            cem: 1.0,
            objectives_em: 1.0
        }
    );
}

#[test]
fn notes_are_counted_against_what_was_shown() {
    let both = " capital of Peru = Lima; symbol of tin = Sn;";
    let cases: [(&str, &str, &[&str], u32, u32); 8] = [
        ("nothing searched", both, &[], 0, 0),
        ("one searched", both, &["capital of Peru"], 1, 1),
        ("both", both, &["capital of Peru", " symbol of tin"], 2, 2),
        ("by its page", both, &["page:Peru"], 1, 1),
        ("twice", both, &["capital of Peru", "page:Peru"], 1, 1),
        ("found nothing", both, &["capital of Chile"], 0, 0),
        (
            "a wrong value",
            " capital of Peru = Cusco;",
            &["capital of Peru"],
            1,
            0,
        ),
        (
            "not closed",
            " capital of Peru = Lima",
            &["capital of Peru", "symbol of tin"],
            2,
            0,
        ),
    ];
    let (task, question) = (task(), sample());
    for (name, notes, searched, seen, kept) in cases {
        let seen_so_far: Vec<Observed> = searched
            .iter()
            .map(|&query| Observed {
                query: query.to_owned(),
                text: String::new(),
            })
            .collect();
        let count = task.count_notes(&question, notes, &seen_so_far);
        assert_eq!(count, NotesCount { seen, kept }, "{name}");
    }
}

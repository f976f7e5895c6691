//! Files of facts of one's own.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use palimpsest::experiment::{TaskKind, TaskSettings};
use palimpsest::retrieval::no_dense;
use palimpsest::task::lookup::LookupTask;
use palimpsest::task::{Split, Task, load};
use palimpsest::tokenizer::TextTokenizer;
use serde_json::{Value, json};

/// A small file of facts, with `change` made to its entities.
fn custom(change: &dyn Fn(&mut Vec<Value>)) -> Result<LookupTask, String> {
    let mut entities: Vec<Value> = Vec::new();
    for (split, names) in [
        ("train", ["Ada", "Bob", "Cleo"]),
        ("validation", ["Dan", "Eve", "Fay"]),
        ("test", ["Gus", "Hal", "Ivy"]),
    ] {
        for name in names {
            let facts = json!({"age": format!("{}{}", name.len(), entities.len()), "town": format!("{name} City")});
            entities.push(json!({"name": name, "kind": "person", "split": split, "facts": facts}));
        }
    }
    change(&mut entities);
    let lines: Vec<String> = entities.iter().map(Value::to_string).collect();
    let text = format!(
        "{{\"source\": \"me\", \"licence\": \"CC0\", \"entities\": [\n{}\n]}}",
        lines.join(",\n")
    );
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("people.json");
    std::fs::write(&path, text).unwrap();
    LookupTask::from_file(&path, None).map_err(|error| error.to_string())
}

#[test]
fn a_file_of_facts_of_ones_own_makes_a_task() {
    let task = custom(&|_| ()).unwrap_or_else(|error| panic!("{error}"));
    let question = task.question(1, 0, 0, 2, Split::Train, true);
    assert_eq!(question.objectives.len(), 2);
    assert_eq!(task.tokenizer().encode(&question.text), question.prompt_ids);
    // Two objectives and one distractor: the third of the three entities.
    let pages = question
        .documents
        .iter()
        .filter(|(key, _)| key.starts_with("page:"));
    assert_eq!(pages.count(), 3);
}

#[test]
fn files_of_facts_that_break_a_rule_are_refused_by_line_entity_and_field() {
    type Change = fn(&mut Vec<Value>);
    let cases: [(&str, Change, &[&str]); 7] = [
        (
            "a reserved character",
            |e| e[1]["facts"]["town"] = json!("Rome; Italy"),
            &["line 3", "\"town\" of \"Bob\"", "\"Rome; Italy\"", "';'"],
        ),
        (
            "a double space",
            |e| e[2]["name"] = json!("Cleo  B"),
            &["line 4", "\"Cleo  B\"", "single spaces"],
        ),
        (
            "an empty value",
            |e| e[0]["facts"]["age"] = json!(""),
            &["line 2", "\"age\" of \"Ada\"", "empty"],
        ),
        (
            "a name twice",
            |e| e[3]["name"] = json!("Ada"),
            &["\"Ada\"", "twice"],
        ),
        (
            "an unknown split",
            |e| e[4]["split"] = json!("tset"),
            &["line 6", "tset", "validation"],
        ),
        (
            "an unknown field",
            |e| e[5]["fact"] = json!({}),
            &["line 7", "`fact`", "`facts`"],
        ),
        (
            "a split without entities",
            |e| e.truncate(6),
            &["split Test", "0 usable"],
        ),
    ];
    for (name, change, needles) in cases {
        let error = custom(&change)
            .err()
            .unwrap_or_else(|| panic!("{name} was accepted"));
        for needle in needles.iter().chain(&["people.json"]) {
            assert!(error.contains(needle), "{name}: {error}");
        }
    }
    let missing = LookupTask::from_file(Path::new("no/such.json"), None)
        .err()
        .unwrap();
    assert!(missing.to_string().contains("no/such.json"), "{missing}");
}

#[test]
fn the_settings_choose_the_facts_and_the_policy_the_tokenizer() {
    let settings = |facts: &str| TaskSettings {
        kind: TaskKind::Lookup,
        facts: facts.to_owned(),
        objectives_min: 1,
        objectives_max: 4,
        redraw: true,
        ..TaskSettings::default()
    };
    let task = load(&settings(""), None, &no_dense, &mut |_, _, _| {}).unwrap();
    let shipped = TextTokenizer::clone(task.tokenizer());
    let people = custom(&|_| ()).unwrap_or_else(|error| panic!("{error}"));
    let other = load(
        &settings(""),
        Some(TextTokenizer::clone(people.tokenizer())),
        &no_dense,
        &mut |_, _, _| {},
    );
    match other {
        // A tokenizer of other names cuts these into too many tokens, and says so.
        Err(error) => assert!(error.to_string().contains("usable"), "{error}"),
        Ok(other) => assert_eq!(other.tokenizer().to_json(), people.tokenizer().to_json()),
    }
    let same = load(&settings(""), Some(shipped), &no_dense, &mut |_, _, _| {}).unwrap();
    let question = |task: &dyn Task| task.question(1, 0, 0, 3, Split::Test, false);
    assert_eq!(question(&*same), question(&*task));
}

//! The questions of the lookup task: what they say, and about whom.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

use palimpsest::task::lookup::LookupTask;
use palimpsest::task::{Split, Task as _, find_document};
use palimpsest::trajectory::QuestionData;
use serde_json::Value;

const SPLITS: [Split; 3] = [Split::Train, Split::Validation, Split::Test];

fn task() -> &'static LookupTask {
    static TASK: LazyLock<LookupTask> = LazyLock::new(|| LookupTask::shipped().unwrap());
    &TASK
}

/// (entity, relation) -> value, and entity -> split, from the file itself.
fn file() -> (BTreeMap<(String, String), String>, BTreeMap<String, String>) {
    let file: Value = serde_json::from_str(include_str!("../assets/lookup/facts.json")).unwrap();
    let (mut facts, mut splits) = (BTreeMap::new(), BTreeMap::new());
    for entity in file["entities"].as_array().unwrap() {
        let name = entity["name"].as_str().unwrap().to_owned();
        splits.insert(name.clone(), entity["split"].as_str().unwrap().to_owned());
        for (relation, value) in entity["facts"].as_object().unwrap() {
            let value = value.as_str().unwrap().to_owned();
            facts.insert((name.clone(), relation.clone()), value);
        }
    }
    (facts, splits)
}

/// Every fact that a question's documents tell: (entity, relation, value).
fn told(question: &QuestionData) -> Vec<(String, String, String)> {
    let pages = question
        .documents
        .iter()
        .filter(|(key, _)| key.starts_with("page:"));
    let fact = |text: &str| {
        let text = text
            .strip_prefix("The ")
            .unwrap()
            .strip_suffix('.')
            .unwrap();
        let (key, value) = text.split_once(" is ").unwrap();
        let (relation, entity) = key.split_once(" of ").unwrap();
        (entity.to_owned(), relation.to_owned(), value.to_owned())
    };
    pages.map(|(_, text)| fact(text)).collect()
}

/// `BLESS=1 cargo test` writes the golden file anew after a change of the questions.
#[test]
fn questions_read_as_the_protocol_says() {
    let task = task();
    let question = |index: u32| {
        let split = SPLITS[index as usize % 3];
        task.question(7, 0, index, index + 1, split, index % 2 == 1)
    };
    let drawn: Vec<QuestionData> = (0..4).map(question).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/questions.json");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, serde_json::to_string_pretty(&drawn).unwrap()).unwrap();
    }
    let golden: Vec<QuestionData> =
        serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(drawn, golden);
}

#[test]
fn texts_and_ids_are_two_views_of_the_same_question() {
    let task = task();
    let tokenizer = task.tokenizer();
    for index in 0..400 {
        for redraw in [false, true] {
            let question = task.question(
                1,
                0,
                index,
                1 + index % 6,
                SPLITS[index as usize % 3],
                redraw,
            );
            assert_eq!(tokenizer.encode(&question.text), question.prompt_ids);
            assert_eq!(tokenizer.encode(&question.gold_text), question.gold_ids);
            let prefix = tokenizer.decode(&question.answer_prefix_ids);
            assert_eq!(prefix, "<think> done</think><answer>");
            // One transcript, tokenised at once and piece by piece.
            let mut text = question.text.clone();
            let mut ids = question.prompt_ids.clone();
            for objective in &question.objectives {
                let document = find_document(&question, &objective.key).unwrap();
                let (shown, shown_ids) = task.render_tool(document);
                assert_eq!(shown, format!("<tool> {document}</tool>"));
                text += &shown;
                ids.extend(shown_ids);
            }
            text += &prefix;
            text += &question.gold_text;
            ids.extend(&question.answer_prefix_ids);
            ids.extend(&question.gold_ids);
            assert_eq!(tokenizer.encode(&text), ids);
        }
    }
}

#[test]
fn the_splits_share_no_entity_and_have_the_sizes_settings_were_chosen_with() {
    let task = task();
    assert_eq!(
        SPLITS.map(|split| task.objectives_max(split)),
        [212, 30, 28]
    );
}

#[test]
fn evaluation_tells_the_truth_about_entities_that_training_never_names() {
    let (facts, splits) = file();
    let task = task();
    for (split, name) in SPLITS.into_iter().zip(["train", "validation", "test"]) {
        for index in 0..2000 {
            let question = task.question(3, 1, index, 1 + index % 6, split, false);
            for (entity, relation, value) in told(&question) {
                assert_eq!(splits[&entity], name, "{entity}");
                assert_eq!(facts[&(entity, relation)], value);
            }
        }
    }
}

#[test]
fn redrawn_questions_keep_to_the_split_and_repeat_no_value() {
    let (facts, splits) = file();
    let task = task();
    let mut values: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for index in 0..2000 {
        let question = task.question(3, 0, index, 1 + index % 6, Split::Train, true);
        let told = told(&question);
        let different: BTreeSet<_> = told.iter().map(|(_, _, value)| value).collect();
        assert_eq!(different.len(), told.len(), "{question:#?}");
        for (entity, relation, value) in told {
            assert_eq!(splits[&entity], "train", "{entity}");
            values.entry((entity, relation)).or_default().push(value);
        }
    }
    // Most redrawn facts are not the real ones, and what was asked often had several values.
    let all = values.values().map(Vec::len).sum::<usize>();
    let real =
        |(key, values): (_, &Vec<String>)| values.iter().filter(|v| facts[key] == **v).count();
    let real: usize = values.iter().map(real).sum();
    assert!(real * 10 < all, "{real} of {all} are real");
    for (key, values) in values.iter().filter(|(_, values)| values.len() >= 10) {
        let different: BTreeSet<_> = values.iter().collect();
        assert!(different.len() >= 3, "{key:?}: {values:?}");
    }
}

#[test]
fn distractors_are_about_entities_the_question_does_not_ask_about() {
    let task = task();
    for index in 0..500 {
        let question = task.question(5, 0, index, 6, Split::Validation, index % 2 == 0);
        let told = told(&question);
        let entities: BTreeSet<_> = told.iter().map(|(entity, _, _)| entity).collect();
        assert_eq!(told.len(), 12);
        assert_eq!(entities.len(), 12, "{question:#?}");
        let (facts, distractors) = told.split_at(6);
        let say = |fact: &(String, String, String)| {
            format!("The {} of {} is {}.", fact.1, fact.0, fact.2)
        };
        for ((objective, fact), distractor) in
            question.objectives.iter().zip(facts).zip(distractors)
        {
            let text = find_document(&question, &objective.key).unwrap();
            let (fact, distractor) = (say(fact), say(distractor));
            let orders = [
                format!("{fact} {distractor}"),
                format!("{distractor} {fact}"),
            ];
            assert!(orders.contains(&text.to_owned()), "{text}");
        }
    }
}

#[test]
fn an_address_has_one_question_and_other_addresses_have_others() {
    let task = task();
    let at = |seed, a, index| task.question(seed, a, index, 3, Split::Train, true);
    assert_eq!(at(1, 2, 3), at(1, 2, 3));
    for other in [at(2, 2, 3), at(1, 3, 3), at(1, 2, 4)] {
        assert_ne!(at(1, 2, 3).text, other.text);
    }
}

#[test]
fn a_question_for_more_than_there_is_asks_for_what_there_is() {
    let task = task();
    let question = task.question(1, 0, 0, 1000, Split::Test, false);
    assert_eq!(question.objectives.len(), 28);
    let key = &question.objectives[0].key;
    let sentence = format!("The {key} is {}.", question.objectives[0].gold[0]);
    assert_eq!(find_document(&question, key), Some(&sentence[..]));
}

//! The tokenizer: the shipped file, round trips, agreement with transformers, damaged files.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use palimpsest::task::Task as _;
use palimpsest::task::lookup::LookupTask;
use palimpsest::tokenizer::{SPECIAL_TOKENS, TextTokenizer};
use serde::Deserialize;
use serde_json::{Value, json};

fn assets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/lookup")
}

fn shipped() -> TextTokenizer {
    TextTokenizer::load(&assets()).unwrap()
}

/// `BLESS=1 cargo test --test tokenizer` writes the file anew after a change of the facts.
#[test]
fn the_shipped_tokenizer_is_the_one_trained_on_the_shipped_facts() {
    let task = LookupTask::from_file(&assets().join("facts.json"), None).unwrap();
    let path = assets().join("tokenizer.json");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, task.tokenizer().to_json()).unwrap();
    }
    let shipped = std::fs::read_to_string(&path).unwrap();
    assert!(
        shipped == task.tokenizer().to_json(),
        "training gave another vocabulary"
    );
}

#[test]
fn every_tag_is_one_token_and_the_first_ids_are_the_tags() {
    let tokenizer = shipped();
    assert_eq!(tokenizer.vocab_size(), 1536);
    for (place, tag) in (0..).zip(SPECIAL_TOKENS) {
        assert_eq!(tokenizer.special_id(tag), Some(place), "{tag}");
        let ids = tokenizer.encode(&format!(" capital{tag} of"));
        assert_eq!(ids.len(), 3, "{tag}");
        assert_eq!(ids[1], place, "{tag}");
        assert!(tokenizer.is_special_id(place), "{tag}");
    }
    assert!(!tokenizer.is_special_id(15));
    assert_eq!(tokenizer.special_id(" of"), None);
}

#[test]
fn every_fact_survives_the_round_trip() {
    let tokenizer = shipped();
    let text = std::fs::read_to_string(assets().join("facts.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let mut facts = 0;
    for entity in file["entities"].as_array().unwrap() {
        for (relation, value) in entity["facts"].as_object().unwrap() {
            let (name, value) = (entity["name"].as_str().unwrap(), value.as_str().unwrap());
            let text =
                format!("<mem> {relation} of {name} = {value};</mem><tool> Is {value}?</tool>");
            assert_eq!(tokenizer.decode(&tokenizer.encode(&text)), text);
            facts += 1;
        }
    }
    assert!(facts > 2000, "only {facts} facts");
}

#[test]
fn decoded_text_is_the_bytes_of_its_tokens() {
    let tokenizer = shipped();
    let text = "<mem> naïve ☃ \u{1F980}\n\ttwo  spaces</mem>";
    let ids = tokenizer.encode(text);
    let bytes: Vec<u8> = ids
        .iter()
        .flat_map(|&id| tokenizer.token_bytes(id).to_vec())
        .collect();
    assert_eq!(bytes, text.as_bytes());
    // A token may end inside a character: its text is then the replacement character.
    let snowman = tokenizer.encode("☃");
    assert!(snowman.len() > 1);
    assert_eq!(tokenizer.decode(&snowman[..1]), "\u{FFFD}");
    assert_eq!(tokenizer.decode(&snowman), "☃");
    assert!(tokenizer.token_bytes(1536).is_empty());
    assert_eq!(tokenizer.decode(&[1536, u32::MAX]), "");
}

#[derive(Deserialize)]
struct Golden {
    text: String,
    ids: Vec<u32>,
}

/// `fixtures/tokenizer_ids.json` was written by transformers 5.24.0 (`AutoTokenizer`, no added tokens).
#[test]
fn transformers_gives_the_same_ids() {
    let golden: Vec<Golden> =
        serde_json::from_str(include_str!("fixtures/tokenizer_ids.json")).unwrap();
    let tokenizer = shipped();
    for Golden { text, ids } in golden {
        assert_eq!(tokenizer.encode(&text), ids, "{text}");
        assert_eq!(tokenizer.decode(&ids), text);
    }
}

#[test]
fn saving_and_loading_changes_no_byte() {
    let folder = tempfile::tempdir().unwrap();
    shipped().save(folder.path()).unwrap();
    let again = TextTokenizer::load(folder.path()).unwrap();
    assert_eq!(again.to_json(), shipped().to_json());
    let config = std::fs::read_to_string(folder.path().join("tokenizer_config.json")).unwrap();
    let config: Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["tokenizer_class"], "PreTrainedTokenizerFast");
}

/// The shipped file with one thing spoilt, and what the error must name.
#[test]
fn damaged_files_are_refused_with_the_field_and_the_rule() {
    let sound: Value = serde_json::from_str(shipped().to_json()).unwrap();
    let spoil = |change: &dyn Fn(&mut Value)| {
        let mut file = sound.clone();
        change(&mut file);
        file.to_string()
    };
    let cut = shipped().to_json()[..5000].to_owned();
    let cases: [(&str, String, &[&str]); 5] = [
        ("cut off", cut, &["not a tokenizer.json", "line", "again"]),
        (
            "no tags",
            spoil(&|file| file["added_tokens"] = json!([])),
            &["added_tokens", "<pad>", "one token"],
        ),
        (
            "an ordinary tag",
            spoil(&|file| file["added_tokens"][3]["special"] = json!(false)),
            &["added_tokens", "<mem>", "one token"],
        ),
        (
            "a hole",
            spoil(&|file| file["model"]["vocab"]["nium"] = json!(9999)),
            &["model.vocab", "without holes"],
        ),
        (
            "not byte-level",
            spoil(&|file| {
                let vocab = file["model"]["vocab"].as_object_mut().unwrap();
                let id = vocab.remove("~").unwrap();
                vocab.insert("▁x".to_owned(), id);
            }),
            &["model.vocab", "▁x", "byte-level"],
        ),
    ];
    for (name, json, needles) in cases {
        let error = TextTokenizer::from_json(&json, Path::new("folder/tokenizer.json"))
            .err()
            .unwrap_or_else(|| panic!("{name} was accepted"))
            .to_string();
        for needle in needles.iter().chain(&["folder/tokenizer.json"]) {
            assert!(error.contains(needle), "{name}: {error}");
        }
    }
    let missing = TextTokenizer::load(Path::new("no/such/folder"))
        .err()
        .unwrap();
    assert!(missing.to_string().contains("no/such/folder"), "{missing}");
}

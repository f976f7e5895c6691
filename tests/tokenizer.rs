//! The tokenizer: round trips, the shipped file, and what it says about damaged files.

use std::path::{Path, PathBuf};

use palimpsest::task::Task as _;
use palimpsest::task::lookup::LookupTask;
use palimpsest::tokenizer::{SPECIAL_TOKENS, TextTokenizer};

fn assets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/lookup")
}

fn shipped() -> TextTokenizer {
    LookupTask::shipped().unwrap().tokenizer().clone()
}

/// `BLESS=1 cargo test` writes the file anew after a change of the facts.
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

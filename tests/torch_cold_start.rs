//! The cold start on the libtorch engine: it learns, it repeats, it resumes.
#![cfg(feature = "torch")]
#![allow(clippy::unwrap_used)]

#[path = "common/torch.rs"]
mod common;

use std::sync::Arc;

use common::{Ascii, engine, settings, supervised};
use palimpsest::engine::{Engine, EngineError, SupervisedReport};
use palimpsest::torch::TorchEngine;

fn steps(engine: &mut TorchEngine, range: std::ops::Range<u32>) -> Vec<SupervisedReport> {
    range
        .map(|step| engine.supervise(&supervised(step, 0.01, 0.5)).unwrap())
        .collect()
}

#[test]
fn the_cold_start_overfits_a_tiny_batch() {
    let mut engine = engine(3);
    let reports = steps(&mut engine, 0..60);
    let (first, last) = (&reports[0], reports.last().unwrap());
    assert!(first.parts[0].1 > 4.0, "{first:?}");
    assert!(last.parts[0].1 < 0.1 && last.parts[0].2 > 0.99, "{last:?}");
    assert!(last.aid_loss < 0.5 * first.aid_loss, "{last:?}");
    assert_eq!(first.tokens, 43);
}

#[test]
fn the_same_seed_gives_the_same_bits_and_another_seed_does_not() {
    let (a, b) = (steps(&mut engine(3), 0..5), steps(&mut engine(3), 0..5));
    assert_eq!(a, b);
    assert_ne!(a, steps(&mut engine(4), 0..5));
}

#[test]
fn a_saved_and_loaded_cold_start_goes_on_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let mut whole = engine(3);
    steps(&mut whole, 0..4);
    whole.freeze_reference();
    whole.save(folder.path(), true).unwrap();
    let expected = steps(&mut whole, 4..8);

    let mut resumed = engine(99);
    resumed.load(folder.path(), true).unwrap();
    assert_eq!(steps(&mut resumed, 4..8), expected);

    let mut fresh = TorchEngine::from_folder(folder.path(), Arc::new(Ascii), &settings()).unwrap();
    assert_ne!(steps(&mut fresh, 4..8), expected, "the optimizer counts");
}

#[test]
fn saving_twice_writes_the_same_bytes() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut engine = engine(3);
    steps(&mut engine, 0..2);
    engine.save(a.path(), true).unwrap();
    engine.save(b.path(), true).unwrap();
    for file in ["config.json", "model.safetensors", "optimizer.safetensors"] {
        let read = |folder: &tempfile::TempDir| std::fs::read(folder.path().join(file)).unwrap();
        assert_eq!(read(&a), read(&b), "{file}");
    }
}

/// Saves a folder, spoils it, and gives the error of loading it.
fn refusal(spoil: impl FnOnce(&std::path::Path)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = engine(3);
    steps(&mut engine, 0..1);
    engine.save(folder.path(), true).unwrap();
    spoil(folder.path());
    let before = steps(&mut common::engine(5), 0..1);
    let mut victim = common::engine(5);
    let error = victim.load(folder.path(), true).unwrap_err();
    assert!(matches!(error, EngineError::BadFile { .. }), "{error}");
    assert_eq!(
        steps(&mut victim, 0..1),
        before,
        "a refused load changes nothing"
    );
    error.to_string()
}

fn edit_config(folder: &std::path::Path, from: &str, to: &str) {
    let path = folder.join("config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn spoiled_folders_are_refused_with_the_file_the_field_and_the_rule() {
    let missing = refusal(|f| std::fs::remove_file(f.join("model.safetensors")).unwrap());
    assert!(
        missing.contains("model.safetensors") && missing.contains("cannot be read"),
        "{missing}"
    );

    let truncated = refusal(|f| {
        let path = f.join("model.safetensors");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(path, &bytes[..bytes.len() - 10]).unwrap();
    });
    assert!(
        truncated.contains("no whole safetensors file"),
        "{truncated}"
    );

    let foreign = refusal(|f| edit_config(f, "\"qwen2\"", "\"mamba\""));
    assert!(foreign.contains("model_type is \"mamba\""), "{foreign}");

    let biased = refusal(|f| edit_config(f, "\"qwen2\"", "\"llama\""));
    assert!(
        biased.contains("k_proj.bias") && biased.contains("has no place"),
        "{biased}"
    );

    let untied = refusal(|f| {
        edit_config(
            f,
            "\"tie_word_embeddings\": true",
            "\"tie_word_embeddings\": false",
        );
    });
    assert!(untied.contains("\"lm_head.weight\" is missing"), "{untied}");

    let wide =
        refusal(|f| edit_config(f, "\"intermediate_size\": 48", "\"intermediate_size\": 64"));
    assert!(
        wide.contains("mlp.gate_proj.weight") && wide.contains("[48, 32]"),
        "{wide}"
    );

    let deep = refusal(|f| edit_config(f, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"));
    assert!(
        deep.contains("layers.2") && deep.contains("is missing"),
        "{deep}"
    );

    let shallow =
        refusal(|f| edit_config(f, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1"));
    assert!(shallow.contains("has no place"), "{shallow}");

    let small = refusal(|f| edit_config(f, "\"vocab_size\": 96", "\"vocab_size\": 90"));
    assert!(small.contains("embed_tokens"), "{small}");

    let mixed = refusal(|f| {
        let mut other = engine(8);
        other.save(f, false).unwrap();
    });
    assert!(
        mixed.contains("optimizer.safetensors") && mixed.contains("belongs to weights"),
        "{mixed}"
    );
}

#[test]
fn broken_batches_are_refused_and_change_nothing() {
    let mut engine = engine(3);
    let mut batch = supervised(0, 0.01, 0.0);
    batch.parts[0].rows[1].ids[4] = 96;
    let error = engine.supervise(&batch).unwrap_err().to_string();
    assert!(
        error.contains("row 1 of part \"full\"") && error.contains("id 96"),
        "{error}"
    );

    let mut batch = supervised(0, 0.01, 0.0);
    batch.parts[0].rows[0].positions[9] = 256;
    let error = engine.supervise(&batch).unwrap_err().to_string();
    assert!(error.contains("position 256"), "{error}");

    let mut batch = supervised(0, 0.01, 0.0);
    batch.parts[0].weight = f32::NAN;
    let error = engine.supervise(&batch).unwrap_err();
    assert!(matches!(error, EngineError::NotFinite(_)), "{error}");
    assert_eq!(
        steps(&mut engine, 0..2),
        steps(&mut common::engine(3), 0..2)
    );
}

#[test]
fn a_folder_with_the_shipped_tokenizer_is_whole() {
    use palimpsest::tokenizer::TextTokenizer;
    let tokenizer = Arc::new(TextTokenizer::load(std::path::Path::new("assets/lookup")).unwrap());
    let mut shape = common::shape();
    shape.vocab_size = tokenizer.vocab_size() as i64;
    let folder = tempfile::tempdir().unwrap();
    let mut engine = TorchEngine::new(&shape, 1, tokenizer.clone(), &settings()).unwrap();
    engine.save(folder.path(), false).unwrap();
    let again = TextTokenizer::load(folder.path()).unwrap();
    assert_eq!(again.to_json(), tokenizer.to_json());
    TorchEngine::from_folder(folder.path(), Arc::new(again), &settings()).unwrap();

    shape.vocab_size -= 1;
    let Err(error) = TorchEngine::new(&shape, 1, tokenizer, &settings()) else {
        panic!("the tokenizer has more ids than the embedding has rows");
    };
    assert!(error.to_string().contains("vocab_size"), "{error}");
}

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::*;
use crate::experiment::DeviceSetting;
use crate::retrieval::{Corpus, Retriever as _};

const FOLDER: &str = "tests/fixtures/bert";

fn settings() -> EngineSettings {
    EngineSettings {
        device: DeviceSetting::Cpu,
        threads: 2,
        ..EngineSettings::default()
    }
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn texts(value: &Value) -> Vec<String> {
    serde_json::from_value(value.clone()).unwrap()
}

/// Largest difference of a list of vectors from the expected ones.
fn difference(vectors: &[f32], expected: &Value) -> f32 {
    let expected: Vec<Vec<f32>> = serde_json::from_value(expected.clone()).unwrap();
    let expected: Vec<f32> = expected.into_iter().flatten().collect();
    assert_eq!(vectors.len(), expected.len());
    vectors
        .iter()
        .zip(&expected)
        .map(|(ours, theirs)| (ours - theirs).abs())
        .fold(0.0, f32::max)
}

/// A copy of the fixture in which a file is other.
fn copy_with(name: &str, text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("1_Pooling")).unwrap();
    for file in [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "modules.json",
        "1_Pooling/config.json",
        "sentence_bert_config.json",
    ] {
        std::fs::copy(Path::new(FOLDER).join(file), folder.path().join(file)).unwrap();
    }
    match text {
        "" => std::fs::remove_file(folder.path().join(name)).unwrap(),
        text => std::fs::write(folder.path().join(name), text).unwrap(),
    }
    folder
}

fn with_rule(field: &str, value: &str) -> Option<String> {
    let mut config = json(&Path::new(FOLDER).join("config.json"));
    config[field] = serde_json::from_str(value).unwrap();
    let folder = copy_with("config.json", &config.to_string());
    Encoder::open(folder.path(), &settings())
        .err()
        .map(|error| error.to_string())
}

#[test]
fn vectors_equal_those_of_transformers_whatever_stands_beside_a_text() {
    let encoder = Encoder::open(Path::new(FOLDER), &settings()).unwrap();
    let expected = json(&Path::new(FOLDER).join("expected.json"));
    let texts = texts(&expected["texts"]);
    let together = encoder.encode(&texts, Role::Query).unwrap();
    assert!(difference(&together, &expected["mean_normalized"]) < 1e-5);
    for (text, vector) in texts.iter().zip(together.chunks(encoder.width())) {
        let alone = encoder
            .encode(std::slice::from_ref(text), Role::Passage)
            .unwrap();
        let far = alone.iter().zip(vector).any(|(a, b)| (a - b).abs() > 1e-5);
        assert!(!far, "{text:?}");
    }
}

#[test]
fn weights_may_stand_in_several_files() {
    let folder = copy_with("model.safetensors", "");
    let bytes = std::fs::read(Path::new(FOLDER).join("model.safetensors")).unwrap();
    let all = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let mut map = serde_json::Map::new();
    for part in 0..2 {
        let file = format!("model-0000{part}-of-00002.safetensors");
        let tensors: Vec<_> = all
            .iter()
            .enumerate()
            .filter(|(number, _)| number % 2 == part)
            .map(|(_, tensor)| tensor)
            .collect();
        for (name, _) in &tensors {
            map.insert((*name).to_owned(), file.clone().into());
        }
        let written = safetensors::serialize(tensors, None).unwrap();
        std::fs::write(folder.path().join(file), written).unwrap();
    }
    let index = serde_json::json!({"weight_map": map});
    let path = folder.path().join("model.safetensors.index.json");
    std::fs::write(path, index.to_string()).unwrap();
    let encode = |folder: &Path| {
        let encoder = Encoder::open(folder, &settings()).unwrap();
        encoder.encode(&["Ulm".to_owned()], Role::Query).unwrap()
    };
    assert_eq!(encode(folder.path()), encode(Path::new(FOLDER)));
}

#[test]
fn the_folder_says_how_to_pool_and_how_texts_begin() {
    let pooling = r#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}"#;
    let folder = copy_with("1_Pooling/config.json", pooling);
    let modules = json(&Path::new(FOLDER).join("modules.json"));
    let unscaled: Vec<Value> = modules.as_array().unwrap()[..2].to_vec();
    std::fs::write(
        folder.path().join("modules.json"),
        Value::from(unscaled).to_string(),
    )
    .unwrap();
    let encoder = Encoder::open(folder.path(), &settings()).unwrap();
    let expected = json(&Path::new(FOLDER).join("expected.json"));
    let first = encoder
        .encode(&texts(&expected["texts"]), Role::Query)
        .unwrap();
    assert!(difference(&first, &expected["first"]) < 1e-5);

    let prompts = r#"{"prompts": {"query": "query: ", "passage": ""}}"#;
    let folder = copy_with("config_sentence_transformers.json", prompts);
    let encoder = Encoder::open(folder.path(), &settings()).unwrap();
    let encode = |text: &str, role| encoder.encode(&[text.to_owned()], role).unwrap();
    assert_eq!(
        encode("Ulm", Role::Query),
        encode("query: Ulm", Role::Passage)
    );
    assert_ne!(encode("Ulm", Role::Query), encode("Ulm", Role::Passage));
}

#[test]
fn without_those_files_the_name_decides() {
    for (name, first, begins) in [
        ("intfloat/e5-base-v2", false, "query: "),
        ("BAAI/bge-small-en-v1.5", true, "Represent this sentence"),
        ("nreimers/MiniLM-L6-H384-uncased", false, ""),
        ("someone/cafe5-bged", false, ""),
    ] {
        let mut config = json(&Path::new(FOLDER).join("config.json"));
        config["_name_or_path"] = name.into();
        let folder = copy_with("modules.json", "");
        std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let encoder = Encoder::open(folder.path(), &settings()).unwrap();
        assert_eq!(encoder.habits.pooling == Pooling::First, first, "{name}");
        assert!(encoder.habits.normalize, "{name}");
        assert!(encoder.habits.query_prefix.starts_with(begins), "{name}");
        assert_eq!(encoder.habits.query_prefix.is_empty(), begins.is_empty());
    }
}

#[test]
fn a_folder_in_the_cache_of_the_hub_has_the_name_of_its_model() {
    let folder = copy_with("modules.json", "");
    let cache = tempfile::tempdir().unwrap();
    let snapshots = cache.path().join("models--intfloat--e5-small/snapshots");
    std::fs::create_dir_all(&snapshots).unwrap();
    let snapshot = snapshots.join("0abc12");
    std::fs::rename(folder.path(), &snapshot).unwrap();
    let encoder = Encoder::open(&snapshot, &settings()).unwrap();
    assert_eq!(encoder.habits.query_prefix, "query: ");
    assert_eq!(encoder.habits.passage_prefix, "passage: ");
    let told = encoder.habits.to_string();
    assert!(told.contains("queries begin with \"query: \""), "{told}");
}

#[test]
fn what_is_no_bert_encoder_is_refused_with_the_field_and_the_rule() {
    for (field, value, said) in [
        (
            "model_type",
            "\"xlm-roberta\"",
            "model_type is \"xlm-roberta\", but must be \"bert\"",
        ),
        ("hidden_act", "\"silu\"", "hidden_act is \"silu\""),
        (
            "position_embedding_type",
            "\"relative_key\"",
            "must be \"absolute\"",
        ),
        (
            "num_attention_heads",
            "5",
            "a multiple of num_attention_heads 5",
        ),
        (
            "num_hidden_layers",
            "3",
            "encoder.layer.2.attention.self.query.weight\" is missing",
        ),
        ("vocab_size", "26", "is [25, 24], but must be [26, 24]"),
    ] {
        let error = with_rule(field, value).unwrap_or_default();
        assert!(error.contains(said), "{field}: {error}");
    }
    let pooling = r#"{"pooling_mode_max_tokens": true}"#;
    let folder = copy_with("1_Pooling/config.json", pooling);
    let error = Encoder::open(folder.path(), &settings()).err().unwrap();
    assert!(
        error.to_string().contains("pooling_mode_max_tokens"),
        "{error}"
    );
}

#[test]
fn the_index_is_exact_built_once_and_follows_the_encoder() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.jsonl");
    let passages = [
        "Ulm\\nUlm is a city.",
        "Rome\\nA town.",
        "Who\\nis old?",
        "Ulm\\nUlm is a city.",
    ];
    let rows: String = passages
        .iter()
        .map(|row| format!("{{\"contents\": \"{row}\"}}\n"))
        .collect();
    std::fs::write(&path, rows).unwrap();
    let corpus = Corpus::open(&path, &mut |_, _, _| {}).unwrap();
    let open = |folder: &Path, built: &mut bool| {
        let encoder = Encoder::open(folder, &settings()).unwrap();
        DenseIndex::open(&corpus, encoder, &mut |_, _, _| *built = true).unwrap()
    };
    let mut built = false;
    let index = open(Path::new(FOLDER), &mut built);
    assert!(built);
    let queries = ["Ulm is a city".to_owned(), "old town?".to_owned()];
    let found = index.search(&queries, 3).unwrap();
    // The same by hand.
    let encoder = Encoder::open(Path::new(FOLDER), &settings()).unwrap();
    let texts: Vec<String> = passages
        .iter()
        .map(|row| row.replace("\\n", "\n"))
        .collect();
    let vectors = encoder.encode(&texts, Role::Passage).unwrap();
    let asked = encoder.encode(&queries, Role::Query).unwrap();
    for (hits, query) in found.iter().zip(asked.chunks(encoder.width())) {
        let score = |row: &[f32]| row.iter().zip(query).map(|(a, b)| a * b).sum::<f32>();
        let mut all: Vec<(usize, f32)> = vectors
            .chunks(encoder.width())
            .map(score)
            .enumerate()
            .collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        assert_eq!(hits.len(), 3);
        for (hit, (_, score)) in hits.iter().zip(&all) {
            assert!((hit.score - score).abs() < 1e-5);
        }
    }
    let twins: Vec<u32> = found[0]
        .iter()
        .map(|hit| hit.passage)
        .filter(|row| [0, 3].contains(row))
        .collect();
    assert_eq!(twins, [0, 3], "equal scores in corpus order");
    let mut again = false;
    assert_eq!(
        open(Path::new(FOLDER), &mut again)
            .search(&queries, 3)
            .unwrap(),
        found
    );
    assert!(!again, "it was there");
    let other = copy_with("sentence_bert_config.json", r#"{"max_seq_length": 3}"#);
    open(other.path(), &mut again);
    assert!(again, "another encoder is another index");
    let words = std::fs::read_to_string(Path::new(FOLDER).join("tokenizer.json")).unwrap();
    let other = copy_with("tokenizer.json", &format!("{words}\n"));
    again = false;
    open(other.path(), &mut again);
    assert!(again, "another tokenizer is another index");
    // More than there is, is all there is.
    for count in [5, 10_000_000_000] {
        assert_eq!(index.search(&queries, count).unwrap()[0].len(), 4);
    }
}

#[test]
fn real_minilm_vectors_equal_those_of_transformers() {
    let Some(folder) = std::env::var_os("PALIMPSEST_MINILM").map(PathBuf::from) else {
        // Not a failure: the weights are 90 MB.
        eprintln!("skipped: PALIMPSEST_MINILM names no folder of all-MiniLM-L6-v2");
        return;
    };
    let encoder = Encoder::open(&folder, &settings()).unwrap();
    let expected = json(&Path::new(FOLDER).join("minilm.json"));
    let vectors = encoder
        .encode(&texts(&expected["texts"]), Role::Passage)
        .unwrap();
    let difference = difference(&vectors, &expected["vectors"]);
    assert!(difference < 1e-4, "{difference}");
}

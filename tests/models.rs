//! Checkpoints as they are published: every architecture and spelling against what transformers says,
//! saved so that transformers reads them, and refused with the file and the field.
#![cfg(feature = "torch")]
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "common/torch.rs"]
mod common;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use common::settings;
use palimpsest::engine::{Engine, EngineError, GenerateRequest, Sampling, ScoreRequest};
use palimpsest::tokenizer::TextTokenizer;
use palimpsest::torch::{TorchEngine, Vocabulary};
use palimpsest::trajectory::TrajectoryId;
use serde::Deserialize;
use serde_json::{Value, json};

const MODELS: &str = "tests/fixtures/models";
const NAMES: [&str; 7] = [
    "llama_biases_llama3",
    "llama_sharded_linear",
    "llama_partial_config",
    "qwen2_untied_yarn",
    "qwen2_dynamic",
    "qwen3_wide_heads",
    "qwen3_biases_untied",
];
/// The one with a tokenizer.
const WITH_TEXT: &str = "llama_partial_config";
/// Log-probs must agree to this.
const TOLERANCE: f32 = 2e-4;

/// A vocabulary of as many ids as it says.
struct Ids(usize);

impl Vocabulary for Ids {
    fn size(&self) -> usize {
        self.0
    }
    fn bytes(&self, _: u32) -> &[u8] {
        &[]
    }
    fn save(&self, _: &Path) -> Result<(), EngineError> {
        Ok(())
    }
}

/// expected.json, as make.py wrote it.
#[derive(Deserialize)]
struct Expected {
    score: Vec<Scored>,
    generate: Vec<Written>,
}

#[derive(Deserialize)]
struct Scored {
    ids: Vec<u32>,
    logprobs: Vec<Option<f32>>,
}

#[derive(Clone, Deserialize)]
struct Written {
    input_ids: Vec<u32>,
    ignore_eos: bool,
    ids: Vec<u32>,
    messages: Option<Value>,
    prompt: Option<String>,
    text: Option<String>,
}

fn expected(name: &str) -> Expected {
    let text = std::fs::read(Path::new(MODELS).join(name).join("expected.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn engine(folder: &Path) -> TorchEngine {
    TorchEngine::from_folder(folder, Arc::new(Ids(0)), &settings()).unwrap()
}

fn score(engine: &mut TorchEngine, rows: &[&[u32]]) -> Vec<Vec<f32>> {
    let request = |ids: &&[u32]| ScoreRequest {
        id: TrajectoryId::default(),
        trunk: ids.to_vec(),
        score_trunk: true,
        branches: vec![],
        temperature: 1.0,
        under: Default::default(),
    };
    let requests: Vec<ScoreRequest> = rows.iter().map(request).collect();
    let scored = engine.score(&requests).unwrap();
    scored.into_iter().map(|scored| scored.trunk).collect()
}

fn assert_close(name: &str, found: &[f32], expected: &[Option<f32>]) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let expected = expected.unwrap_or(0.0);
        assert!(
            (found - expected).abs() <= TOLERANCE,
            "{name}, place {at}: {found} against {expected}"
        );
    }
}

#[test]
fn log_probs_of_every_architecture_and_spelling_are_those_of_transformers() {
    for name in NAMES {
        let mut engine = engine(&Path::new(MODELS).join(name));
        let expected = expected(name).score;
        let rows: Vec<&[u32]> = expected.iter().map(|row| &row.ids[..]).collect();
        for (found, row) in score(&mut engine, &rows).iter().zip(&expected) {
            assert_close(name, found, &row.logprobs);
        }
    }
}

#[test]
fn greedy_ids_of_every_architecture_and_spelling_are_those_of_transformers() {
    let mut ended = 0;
    for name in NAMES {
        let mut engine = engine(&Path::new(MODELS).join(name));
        let expected = expected(name).generate;
        let request = |(member, turn): (u32, &Written)| GenerateRequest {
            id: TrajectoryId {
                member,
                ..TrajectoryId::default()
            },
            turn: 0,
            context: turn.input_ids.clone(),
            max_new_tokens: 24,
            sampling: Sampling::plain(0.0, 0),
            stop: Arc::from(vec![]),
            ignore_eos: turn.ignore_eos,
        };
        let requests: Vec<GenerateRequest> = (0..).zip(&expected).map(request).collect();
        for (turn, expected) in engine.generate(&requests).unwrap().iter().zip(&expected) {
            assert_eq!(turn.ids, expected.ids, "{name}");
            ended += u32::from(turn.ids.len() < 24);
        }
    }
    assert!(ended > 0, "no end-of-text id was sampled");
}

#[test]
fn a_saved_model_is_the_same_model_with_every_field_and_file_it_had() {
    for name in NAMES {
        let folder = Path::new(MODELS).join(name);
        let tokenizer: Arc<dyn Vocabulary + Send + Sync> = match name {
            WITH_TEXT => Arc::new(TextTokenizer::load(&folder).unwrap()),
            _ => Arc::new(Ids(0)),
        };
        let mut first = TorchEngine::from_folder(&folder, tokenizer, &settings()).unwrap();
        let saved = tempfile::tempdir().unwrap();
        first.save(saved.path(), true).unwrap();
        let mut again = engine(saved.path());
        again.load(saved.path(), true).unwrap();
        let rows = expected(name).score;
        let rows: Vec<&[u32]> = rows.iter().map(|row| &row.ids[..]).collect();
        assert_eq!(score(&mut first, &rows), score(&mut again, &rows), "{name}");

        let config = |folder: &Path| -> BTreeMap<String, Value> {
            let text = std::fs::read(folder.join("config.json")).unwrap();
            serde_json::from_slice(&text).unwrap()
        };
        let (mut before, mut after) = (config(&folder), config(saved.path()));
        for (config, kept) in [(&mut before, false), (&mut after, true)] {
            let kinds = ["dtype", "torch_dtype"].map(|field| config.remove(field));
            let kinds: Vec<Value> = kinds.into_iter().flatten().collect();
            assert_eq!(kinds.len(), 1, "{name}");
            assert!(!kept || kinds[0] == "float32", "{name}");
        }
        assert_eq!(before, after, "{name}");
        let mut files = vec!["generation_config.json"];
        if name == WITH_TEXT {
            files.extend([
                "tokenizer.json",
                "tokenizer_config.json",
                "chat_template.jinja",
            ]);
        }
        for file in files {
            let read = |folder: &Path| std::fs::read(folder.join(file)).unwrap();
            assert_eq!(read(&folder), read(saved.path()), "{name}: {file}");
        }
    }
}

/// Every architecture learns: a supervised step moves every kind of weight, and goes on bit for bit
/// after saving and loading.
#[test]
fn every_architecture_learns_and_resumes() {
    for name in NAMES {
        let folder = Path::new(MODELS).join(name);
        let mut first = engine(&folder);
        let before = first.supervise(&common::supervised(0, 0.01, 0.0)).unwrap();
        let saved = tempfile::tempdir().unwrap();
        first.save(saved.path(), true).unwrap();
        let mut again = engine(saved.path());
        again.load(saved.path(), true).unwrap();
        let next = common::supervised(1, 0.01, 0.0);
        let after = first.supervise(&next).unwrap();
        assert_eq!(after, again.supervise(&next).unwrap(), "{name}");
        assert_ne!(before.parts, after.parts, "{name}");
    }
}

/// A copy of a fixture that is spoilt, and the error of loading it.
fn refusal(name: &str, spoil: impl FnOnce(&Path)) -> String {
    let folder = copy(name);
    spoil(folder.path());
    match TorchEngine::from_folder(folder.path(), Arc::new(Ids(0)), &settings()) {
        Ok(_) => panic!("the spoilt {name} was loaded"),
        Err(error) => {
            assert!(matches!(error, EngineError::BadFile { .. }), "{error}");
            error.to_string()
        }
    }
}

fn copy(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(Path::new(MODELS).join(name)).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    folder
}

/// Sets fields of a JSON file; `null` stays as a value.
fn edit(path: &Path, fields: Value) {
    let mut file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    for (name, value) in fields.as_object().unwrap() {
        file[name] = value.clone();
    }
    std::fs::write(path, file.to_string()).unwrap();
}

fn assert_says(text: &str, needles: &[&str]) {
    for needle in needles {
        assert!(text.contains(needle), "{needle:?} is not in: {text}");
    }
}

#[test]
fn what_the_decoder_is_not_is_refused_by_the_name_of_its_field() {
    let cases: [(&str, Value, &[&str]); 11] = [
        (
            "qwen2_dynamic",
            json!({"model_type": "mamba2"}),
            &["model_type is \"mamba2\"", "\"qwen3\""],
        ),
        (
            "qwen2_dynamic",
            json!({"hidden_act": "gelu"}),
            &["hidden_act is \"gelu\""],
        ),
        (
            "qwen2_dynamic",
            json!({"use_sliding_window": true, "sliding_window": 32, "layer_types": null, "max_window_layers": 1}),
            &["use_sliding_window is true"],
        ),
        (
            "qwen2_dynamic",
            json!({"quantization_config": {"quant_method": "gptq"}}),
            &["quantization_config", "gptq"],
        ),
        (
            "qwen2_dynamic",
            json!({"rope_parameters": {"rope_type": "longrope", "factor": 2.0}}),
            &["rope_parameters.rope_type is \"longrope\"", "\"yarn\""],
        ),
        (
            "qwen2_untied_yarn",
            json!({"rope_scaling": {"type": "linear", "factor": "two"}}),
            &["rope_scaling.factor is \"two\"", "must be a number"],
        ),
        (
            "llama_partial_config",
            json!({"hidden_size": "24"}),
            &["hidden_size is \"24\"", "whole number"],
        ),
        (
            "llama_partial_config",
            json!({"num_attention_heads": 0}),
            &["num_attention_heads is 0"],
        ),
        (
            "llama_partial_config",
            json!({"num_attention_heads": 5}),
            &["hidden_size is 24", "= 10"],
        ),
        (
            "qwen3_wide_heads",
            json!({"head_dim": 7}),
            &["head_dim is 7", "even"],
        ),
        (
            "qwen3_wide_heads",
            json!({"num_key_value_heads": 3}),
            &["num_key_value_heads = 3"],
        ),
    ];
    for (name, fields, needles) in cases {
        let text = refusal(name, |folder| edit(&folder.join("config.json"), fields));
        assert_says(&text, needles);
        assert_says(&text, &["config.json"]);
    }
    let broken = refusal("qwen2_dynamic", |f| {
        std::fs::write(f.join("config.json"), "{\"a\":").unwrap();
    });
    assert_says(&broken, &["config.json", "no JSON object", "line 1"]);
    let broken = refusal("qwen2_dynamic", |f| {
        std::fs::write(f.join("generation_config.json"), "[]").unwrap();
    });
    assert_says(&broken, &["generation_config.json", "no JSON object"]);
}

#[test]
fn windows_that_nothing_looks_out_of_are_no_reason_to_refuse() {
    for fields in [
        json!({"use_sliding_window": true, "sliding_window": 256, "layer_types": null}),
        json!({"use_sliding_window": true, "sliding_window": null}),
        json!({"use_sliding_window": true, "sliding_window": 8, "layer_types": null, "max_window_layers": 2}),
        json!({"use_sliding_window": false, "sliding_window": 8}),
    ] {
        let folder = copy("qwen2_dynamic");
        edit(&folder.path().join("config.json"), fields);
        engine(folder.path());
    }
}

/// Writes a safetensors file by hand: its header's length as `said`, its header, zeros.
fn write_by_hand(path: &Path, said: Option<u64>, header: &str, data: usize) {
    let mut bytes = said.unwrap_or(header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn damaged_and_lying_weights_are_refused_with_file_and_tensor() {
    let one = r#"{"model.norm.weight":{"dtype":"F32","shape":[32],"data_offsets":[0,128]}}"#;
    let cases: [(&str, Option<u64>, String, usize, &str); 7] = [
        (
            "a huge header",
            Some(u64::MAX),
            one.into(),
            128,
            "first 8 bytes speak of",
        ),
        (
            "a header beyond the end",
            Some(5_000),
            one.into(),
            128,
            "first 8 bytes speak of",
        ),
        ("too little data", None, one.into(), 100, "speaks of"),
        ("too much data", None, one.into(), 200, "speaks of"),
        (
            "a size that its place denies",
            None,
            one.replace("[32]", "[33]"),
            128,
            "no whole safetensors",
        ),
        ("no JSON", None, "x".repeat(60), 128, "no whole safetensors"),
        (
            "an integer kind",
            None,
            one.replace("F32", "I32"),
            128,
            "embed_tokens.weight\" is missing",
        ),
    ];
    for (what, said, header, data, needle) in cases {
        let text = refusal("qwen2_dynamic", |folder| {
            write_by_hand(&folder.join("model.safetensors"), said, &header, data);
        });
        assert!(
            text.contains(needle) && text.contains("model.safetensors"),
            "{what}: {text}"
        );
    }
    let short = refusal("qwen2_dynamic", |f| {
        std::fs::write(f.join("model.safetensors"), "abc").unwrap();
    });
    assert_says(&short, &["model.safetensors", "3 bytes"]);

    // A header that is whole in itself, with one tensor of another kind, or beyond all numbers.
    let respell = |from: &'static str, to: &'static str| {
        refusal("llama_biases_llama3", move |folder| {
            let path = folder.join("model.safetensors");
            let bytes = std::fs::read(&path).unwrap();
            let length = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
            let header = String::from_utf8(bytes[8..length].to_vec()).unwrap();
            assert!(header.contains(from), "{header}");
            write_by_hand(&path, None, &header.replacen(from, to, 1), 0);
            let mut file = std::fs::OpenOptions::new()
                .append(true)
                .open(&path)
                .unwrap();
            file.write_all(&bytes[length..]).unwrap();
        })
    };
    let kind = respell(
        "\"lm_head.weight\":{\"dtype\":\"F32\"",
        "\"lm_head.weight\":{\"dtype\":\"I32\"",
    );
    assert_says(
        &kind,
        &["model.safetensors", "\"lm_head.weight\" is I32", "BF16"],
    );
    let name = respell("model.norm.weight", "model.nonn.weight");
    assert_says(&name, &["\"model.norm.weight\" is missing"]);
    let endless = refusal("llama_biases_llama3", |folder| {
        let path = folder.join("model.safetensors");
        let mut bytes = std::fs::read(&path).unwrap();
        let end = bytes.len();
        bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
        std::fs::write(path, bytes).unwrap();
    });
    assert_says(&endless, &["model.safetensors", "not finite"]);

    let pickled = refusal("qwen2_dynamic", |f| {
        std::fs::rename(f.join("model.safetensors"), f.join("pytorch_model.bin")).unwrap();
    });
    assert_says(&pickled, &["pytorch_model.bin", "save_pretrained"]);
}

#[test]
fn shards_that_are_missing_or_elsewhere_are_named() {
    let spoil = |change: &dyn Fn(&Path)| refusal("llama_sharded_linear", change);
    let third = "model-00003-of-00004.safetensors";
    let index = "model.safetensors.index.json";
    let gone = spoil(&|f| std::fs::remove_file(f.join(third)).unwrap());
    assert_says(&gone, &[third, "shard is missing", index]);
    let cut = spoil(&|f| std::fs::write(f.join(third), "1234567890").unwrap());
    assert_says(&cut, &[third, "no whole safetensors file"]);
    let elsewhere = spoil(&|f| {
        let path = f.join(index);
        let mut read: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let home = read["weight_map"]["model.norm.weight"].clone();
        let other = if home == third {
            "model-00001-of-00004.safetensors"
        } else {
            third
        };
        read["weight_map"]["model.norm.weight"] = json!(other);
        std::fs::write(path, read.to_string()).unwrap();
    });
    assert_says(
        &elsewhere,
        &["\"model.norm.weight\" is missing", "model-0000"],
    );
    let outside = spoil(&|f| {
        edit(
            &f.join(index),
            json!({"weight_map": {"a": "../x.safetensors"}}),
        );
    });
    assert_says(&outside, &[index, "../x.safetensors"]);
    let empty = spoil(&|f| edit(&f.join(index), json!({"weight_map": {}})));
    assert_says(&empty, &[index, "names no file"]);
    let none = spoil(&|f| std::fs::write(f.join(index), "{}").unwrap());
    assert_says(&none, &[index, "weight_map"]);
}

#[test]
fn a_tokenizer_with_more_ids_than_the_embedding_has_rows_is_refused() {
    let folder = Path::new(MODELS).join("qwen2_dynamic");
    let error = TorchEngine::from_folder(&folder, Arc::new(Ids(97)), &settings());
    let text = error.err().unwrap().to_string();
    assert_says(&text, &["config.json", "vocab_size is 96", "97 ids"]);
}

/// Runs the program.
fn palimpsest(arguments: &[&str], input: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_palimpsest");
    let mut command = Command::new(program);
    command.args(arguments).env("OMP_NUM_THREADS", "1");
    run(command, input)
}

fn run(mut command: Command, input: &str) -> Output {
    let piped = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    // A program that refuses its arguments reads nothing.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    let (out, err) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{err}");
    let text = String::from_utf8(out.clone()).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn generate(lines_in: &[Value]) -> Vec<Value> {
    let input: Vec<String> = lines_in.iter().map(Value::to_string).collect();
    let folder = format!("{MODELS}/{WITH_TEXT}");
    lines(&palimpsest(
        &["generate", "--model", &folder],
        &input.join("\n"),
    ))
}

#[test]
fn score_prints_one_line_for_each_it_reads() {
    let expected = expected(WITH_TEXT).score;
    let mut input = String::from("{\"id\": \"none\", \"input_ids\": []}\n\n");
    for (number, row) in expected.iter().enumerate() {
        input += &format!("{}\n", json!({"id": {"n": number}, "input_ids": row.ids}));
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &input).unwrap();
    let folder = format!("{MODELS}/{WITH_TEXT}");
    let asked = [
        "score",
        "--model",
        &folder,
        "--ids",
        file.path().to_str().unwrap(),
    ];
    let told = lines(&palimpsest(&asked, ""));
    assert_eq!(told[0], json!({"id": "none", "logprobs": []}));
    assert_eq!(told.len(), expected.len() + 1);
    for (number, (line, row)) in told[1..].iter().zip(&expected).enumerate() {
        assert_eq!(line["id"], json!({"n": number}));
        assert!(line["logprobs"][0].is_null());
        let found = line["logprobs"].as_array().unwrap().iter();
        let found: Vec<f32> = found.map(|x| x.as_f64().unwrap_or(0.0) as f32).collect();
        assert_close(WITH_TEXT, &found, &row.logprobs);
    }
    // Standard input says the same.
    assert_eq!(
        lines(&palimpsest(
            &["score", "--model", &folder, "--ids", "-"],
            &input
        )),
        told
    );
}

#[test]
fn generate_reads_ids_prompts_and_messages_as_transformers_does() {
    let expected = expected(WITH_TEXT).generate;
    let line = |turn: &Written| {
        let mut line = json!({"id": 1, "max_new_tokens": 24, "ignore_eos": turn.ignore_eos});
        match (&turn.messages, &turn.prompt) {
            (Some(messages), _) => line["messages"] = messages.clone(),
            (None, Some(prompt)) => line["prompt"] = json!(prompt),
            (None, None) => line["input_ids"] = json!(turn.input_ids),
        }
        line
    };
    let input: Vec<Value> = expected.iter().map(line).collect();
    let written = generate(&input);
    assert_eq!(written.len(), expected.len());
    for (line, expected) in written.iter().zip(&expected) {
        assert_eq!(line["ids"], json!(expected.ids));
        if let Some(text) = &expected.text {
            assert_eq!(line["text"], json!(text));
        }
        assert_eq!(
            line["logprobs"].as_array().unwrap().len(),
            expected.ids.len()
        );
        assert_eq!(line["finish_reason"], "length");
    }
    assert!(expected.iter().any(|turn| turn.messages.is_some()));
}

#[test]
fn a_stop_string_ends_a_line_inside_its_text_and_keeps_the_sampled_ids() {
    let turns = expected(WITH_TEXT).generate;
    let turn = turns.iter().find(|turn| turn.messages.is_some()).unwrap();
    let whole = turn.text.as_ref().unwrap();
    // Three letters from the middle, which begin and end inside tokens.
    let letters: Vec<char> = whole.chars().collect();
    let middle = letters.len() / 2;
    let stop: String = letters[middle..middle + 3]
        .iter()
        .filter(|c| **c != '\u{FFFD}')
        .collect();
    let ask = |stop: Value| json!({"id": "s", "messages": turn.messages, "max_new_tokens": 24, "stop": stop});
    let told = generate(&[
        ask(json!([stop, "never there"])),
        ask(json!(stop)),
        ask(json!([])),
    ]);
    let ids = told[0]["ids"].as_array().unwrap();
    assert_eq!(ids[..], json!(turn.ids).as_array().unwrap()[..ids.len()]);
    assert!(ids.len() < turn.ids.len(), "{stop:?}");
    assert!(told[0]["text"].as_str().unwrap().contains(&stop));
    assert_eq!(told[0]["finish_reason"], "stop");
    assert_eq!(told[1]["ids"], told[0]["ids"]);
    assert_eq!(told[2]["ids"], json!(turn.ids));
}

#[test]
fn a_line_is_sampled_as_it_would_be_alone() {
    let line = |id: u32, seed: u32| json!({"id": id, "input_ids": [5, 6, 7 + id], "max_new_tokens": 12, "temperature": 1.0, "seed": seed});
    let together = generate(&[line(1, 0), line(2, 0), line(3, 9), line(3, 9)]);
    let ids: Vec<&Value> = together.iter().map(|line| &line["ids"]).collect();
    assert_eq!(*ids[1], generate(&[line(2, 0)])[0]["ids"]);
    assert_eq!(*ids[2], generate(&[line(3, 9)])[0]["ids"]);
    assert_ne!(ids[2], ids[3], "the same line twice is sampled twice");
    assert_ne!(
        *ids[0],
        generate(&[line(1, 5)])[0]["ids"],
        "the seed counts"
    );
}

#[test]
fn a_bad_line_is_named_before_anything_is_computed() {
    let good = json!({"id": 1, "input_ids": [1, 2, 3]});
    let cases: [(Value, &[&str]); 10] = [
        (
            json!({"id": 2, "input_ids": [1, 320]}),
            &["id 1 is 320", "below 320", "vocab_size"],
        ),
        (json!({"id": 2, "input_ids": [-1]}), &["-1"]),
        (
            json!({"id": 2, "input_ids": vec![1; 256]}),
            &["256 ids", "max_position_embeddings"],
        ),
        (json!({"id": 2, "input_ids": []}), &["0 ids"]),
        (
            json!({"id": 2}),
            &["exactly one of input_ids, prompt and messages"],
        ),
        (
            json!({"id": 2, "prompt": "a", "input_ids": [1]}),
            &["exactly one of"],
        ),
        (
            json!({"id": 2, "prompt": "a", "temprature": 1.0}),
            &["temprature"],
        ),
        (
            json!({"id": 2, "prompt": "a", "temperature": -1.0}),
            &["temperature is -1"],
        ),
        (
            json!({"id": 2, "messages": ["hello"]}),
            &["a message must be an object"],
        ),
        (
            json!({"id": 2, "messages": [{"role": "user"}]}),
            &["chat template"],
        ),
    ];
    let folder = format!("{MODELS}/{WITH_TEXT}");
    for (bad, needles) in cases {
        let output = palimpsest(
            &["generate", "--model", &folder],
            &format!("{good}\n{bad}\n"),
        );
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{bad}: {text}");
        assert!(output.stdout.is_empty(), "{bad}");
        assert_says(&text, needles);
        assert_says(&text, &["standard input, line 2"]);
    }
    let long = json!({"id": 2, "input_ids": vec![1; 257]});
    let output = palimpsest(
        &["score", "--model", &folder, "--ids", "-"],
        &format!("{good}\n{long}\n"),
    );
    assert_says(
        &String::from_utf8_lossy(&output.stderr),
        &["line 2", "257 ids", "at most 256"],
    );
    assert!(output.stdout.is_empty());
    // A folder without a tokenizer can still continue ids.
    let bare = format!("{MODELS}/qwen2_dynamic");
    let output = palimpsest(
        &["generate", "--model", &bare],
        &json!({"id": 1, "prompt": "a"}).to_string(),
    );
    assert_says(
        &String::from_utf8_lossy(&output.stderr),
        &["no tokenizer.json", "input_ids"],
    );
    let output = palimpsest(&["generate", "--model", &bare], &good.to_string());
    assert!(lines(&output)[0]["text"].is_null());
}

/// A Python with torch and transformers: PALIMPSEST_PYTHON, or python3. None, with the reason said,
/// where there is none.
fn python() -> Option<String> {
    let program = std::env::var("PALIMPSEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let asked = Command::new(&program)
        .args(["-c", "import torch, transformers"])
        .output();
    match asked {
        Ok(output) if output.status.success() => Some(program),
        Ok(_) => {
            println!(
                "skipped: {program} lacks torch or transformers (PALIMPSEST_PYTHON names another)"
            );
            None
        }
        Err(error) => {
            println!("skipped: {program} cannot be run ({error})");
            None
        }
    }
}

/// What transformers says about these lines; see reference.py.
fn transformers(python: &str, asked: &[Value]) -> Vec<Value> {
    let mut command = Command::new(python);
    command
        .arg(format!("{MODELS}/reference.py"))
        .env("OMP_WAIT_POLICY", "passive");
    let input: Vec<String> = asked.iter().map(Value::to_string).collect();
    lines(&run(command, &input.join("\n")))
}

fn floats(value: &Value) -> Vec<Option<f32>> {
    let values = value.as_array().unwrap().iter();
    values.map(|x| x.as_f64().map(|x| x as f32)).collect()
}

#[test]
fn transformers_loads_what_we_trained_and_says_the_same() {
    let Some(python) = python() else { return };
    let ids = common::ids(2, 50);
    let folders = NAMES.map(|_| tempfile::tempdir().unwrap());
    let (mut asked, mut ours) = (Vec::new(), Vec::new());
    for (name, folder) in NAMES.iter().zip(&folders) {
        let mut trained = engine(&Path::new(MODELS).join(name));
        trained
            .supervise(&common::supervised(0, 0.01, 0.0))
            .unwrap();
        trained.save(folder.path(), false).unwrap();
        ours.extend(score(&mut trained, &[&ids]));
        asked.push(json!({"folder": folder.path(), "input_ids": ids, "max_new_tokens": 1}));
    }
    let told = transformers(&python, &asked);
    assert_eq!(told.len(), NAMES.len());
    for ((name, ours), told) in NAMES.iter().zip(&ours).zip(&told) {
        assert_close(name, ours, &floats(&told["logprobs"]));
    }
}

#[test]
fn transformers_reads_the_shipped_policys_tokenizer_as_we_do() {
    let Some(python) = python() else { return };
    let folder = "assets/lookup/policy";
    let tokenizer = TextTokenizer::load(Path::new(folder)).unwrap();
    // What Qwen2's own tokenizer would cut elsewhere is among them.
    let texts = [
        "<mem> capital of Peru = Lima;</mem>",
        "It's 1984, I'LL say\n\n  two\tspaces",
        "éé ☃",
    ];
    let asked = texts.map(|text| json!({"folder": folder, "text": text}));
    for (text, told) in texts.iter().zip(transformers(&python, &asked)) {
        assert_eq!(told["ids"], json!(tokenizer.encode(text)), "{text}");
    }
}

/// The folder that scripts/smollm2.py writes.
fn smollm2() -> Option<PathBuf> {
    let cache = std::env::var("XDG_CACHE_HOME").map(PathBuf::from);
    let cache =
        cache.or_else(|_| std::env::var("HOME").map(|home| Path::new(&home).join(".cache")));
    let folder = match std::env::var("PALIMPSEST_SMOLLM2") {
        Ok(folder) => PathBuf::from(folder),
        Err(_) => cache.ok()?.join("palimpsest/SmolLM2-135M-Instruct"),
    };
    if folder.join("config.json").exists() {
        return Some(folder);
    }
    println!("skipped: {folder:?} is not there; scripts/smollm2.py makes it");
    None
}

#[test]
fn smollm2_scores_and_writes_as_transformers_does() {
    let (Some(folder), Some(python)) = (smollm2(), python()) else {
        return;
    };
    let folder = folder.to_str().unwrap();
    let messages = json!([{"role": "user", "content": "What is the capital of France?"}]);
    let text = "It’s 2024. The river Rhine rises in the Swiss Alps, flows through 6 countries\nand ends at Rotterdam.";
    let asked = [
        json!({"folder": folder, "messages": messages, "max_new_tokens": 24}),
        json!({"folder": folder, "text": text, "max_new_tokens": 24}),
    ];
    let expected = transformers(&python, &asked);
    let tokenizer = TextTokenizer::load(Path::new(folder)).unwrap();
    assert_eq!(expected[1]["ids"], json!(tokenizer.encode(text)));

    let input = expected
        .iter()
        .map(|told| json!({"input_ids": told["ids"]}).to_string());
    let input: Vec<String> = input.collect();
    let asked = ["score", "--model", folder, "--ids", "-"];
    let scored = lines(&palimpsest(&asked, &input.join("\n")));
    for (line, told) in scored.iter().zip(&expected) {
        let found = floats(&line["logprobs"]);
        let found: Vec<f32> = found.iter().map(|x| x.unwrap_or(0.0)).collect();
        assert_close("SmolLM2", &found, &floats(&told["logprobs"]));
    }
    let input = [
        json!({"id": 0, "messages": messages, "max_new_tokens": 24}).to_string(),
        json!({"id": 1, "prompt": text, "max_new_tokens": 24}).to_string(),
    ];
    let asked = ["generate", "--model", folder];
    let written = lines(&palimpsest(&asked, &input.join("\n")));
    assert_eq!(written.len(), 2);
    for (line, told) in written.iter().zip(&expected) {
        assert_eq!(line["ids"], told["greedy"]);
    }
    let answer = written[0]["text"].as_str().unwrap();
    assert!(answer.contains("Paris"), "{answer}");
}

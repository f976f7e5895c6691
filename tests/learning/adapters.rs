//! Adapters from their first value to the file that PEFT reads.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use palimpsest::engine::{
    Engine, GenerateRequest, LearnBatch, LearnKnobs, LearnRow, Sampling, ScoreRequest, Weights,
};
use palimpsest::experiment::{Lora, LoraSettings, LoraTarget, Recompute};
use palimpsest::record::RunStatus;
use palimpsest::torch::TorchEngine;
use palimpsest::trajectory::TrajectoryId;

use super::common::{self, Ascii, ids, settings};
use super::{experiment, run, weights};

fn adapters() -> LoraSettings {
    LoraSettings {
        rank: 4,
        alpha: 8.0,
        targets: vec![
            LoraTarget::Q,
            LoraTarget::V,
            LoraTarget::O,
            LoraTarget::Gate,
            LoraTarget::Down,
        ],
    }
}

fn score(engine: &mut TorchEngine, ids: &[u32], under: Weights) -> Vec<f32> {
    let request = ScoreRequest {
        id: TrajectoryId::default(),
        trunk: ids.to_vec(),
        score_trunk: true,
        branches: vec![],
        temperature: 1.0,
        under,
    };
    engine.score(&[request]).unwrap()[0].trunk.clone()
}

fn rows(engine: &mut TorchEngine) -> LearnBatch {
    let row = |n: u32| {
        let ids = ids(n, 10 + 6 * n as usize);
        let mask: Vec<bool> = (0..ids.len()).map(|i| i > 2).collect();
        LearnRow {
            old_logprobs: score(engine, &ids, Weights::Policy),
            advantages: vec![if n.is_multiple_of(2) { 1.0 } else { -1.0 }; ids.len()],
            ids,
            mask,
        }
    };
    LearnBatch {
        rows: (0..6).map(row).collect(),
        mini_batches: vec![vec![0, 1, 2], vec![3, 4, 5]],
        knobs: LearnKnobs {
            kl_weight: 0.05,
            lr: 5e-3,
            ..LearnKnobs::default()
        },
    }
}

/// An engine whose adapters have learned, with a reference and an average.
fn adapted() -> (TorchEngine, LearnBatch) {
    let mut engine = common::engine(5);
    engine.begin_rl();
    engine.begin_adapters(&adapters(), 3).unwrap();
    engine.freeze_reference();
    engine.begin_average();
    let mut batch = rows(&mut engine);
    batch.knobs.average_decay = Some(0.5);
    engine.learn(&batch).unwrap();
    (engine, batch)
}

fn gap(a: &[f32], b: &[f32]) -> f32 {
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max)
}

#[test]
fn new_adapters_change_nothing_learn_alone_and_leave_the_reference_where_it_was() {
    let text = ids(50, 60);
    let before = score(&mut common::engine(5), &text, Weights::Policy);
    let mut engine = common::engine(5);
    let all = engine.parameter_count();
    engine.begin_rl();
    engine.begin_adapters(&adapters(), 3).unwrap();
    assert!(engine.parameter_count() < all / 3);
    assert_eq!(score(&mut engine, &text, Weights::Policy), before);
    let (mut engine, _) = adapted();
    assert_eq!(score(&mut engine, &text, Weights::Reference), before);
    let policy = score(&mut engine, &text, Weights::Policy);
    let average = score(&mut engine, &text, Weights::Average);
    assert!(gap(&policy, &before) > 0.01);
    assert!(gap(&average, &before) > 0.001 && gap(&average, &policy) > 0.001);
}

#[test]
fn sampled_log_probs_are_those_of_scoring_and_of_learning_with_adapters_too() {
    let (mut engine, mut batch) = adapted();
    let request = GenerateRequest {
        id: TrajectoryId::default(),
        turn: 0,
        context: ids(60, 20),
        max_new_tokens: 24,
        sampling: Sampling::plain(1.0, 3),
        stop: Arc::from(Vec::<String>::new()),
        ignore_eos: true,
    };
    let turn = engine
        .generate(std::slice::from_ref(&request))
        .unwrap()
        .remove(0);
    let whole = [&request.context[..], &turn.ids].concat();
    let scored = score(&mut engine, &whole, Weights::Policy);
    assert!(gap(&turn.logprobs, &scored[20..]) < 1e-4);
    let mask: Vec<bool> = (0..whole.len()).map(|i| i >= 20).collect();
    batch.rows = vec![LearnRow {
        advantages: vec![1.0; whole.len()],
        old_logprobs: scored.clone(),
        ids: whole,
        mask,
    }];
    batch.mini_batches = vec![vec![0]];
    let report = engine.learn(&batch).unwrap();
    assert!(gap(&report.logprobs[0][20..], &turn.logprobs) < 1e-4);
    assert!(report.mini_batches[0].ratio_gap < 1e-4);
}

#[test]
fn merged_adapters_say_what_they_say_apart_and_the_plain_folder_needs_no_peft() {
    let text = ids(51, 70);
    let (mut engine, _) = adapted();
    let expected = score(&mut engine, &text, Weights::Policy);
    let folder = tempfile::tempdir().unwrap();
    let (apart, merged) = (folder.path().join("apart"), folder.path().join("merged"));
    engine.save(&apart, true).unwrap();
    engine.save(&merged, false).unwrap();
    assert!(!merged.join("adapter").exists());
    let read = |folder: &Path| {
        let mut engine = TorchEngine::from_folder(folder, Arc::new(Ascii), &settings()).unwrap();
        score(&mut engine, &text, Weights::Policy)
    };
    assert_eq!(read(&apart), expected);
    assert!(gap(&read(&merged), &expected) < 1e-4);
    // Merging in place is the same, and so is what is saved over adapters.
    engine.begin_rl();
    assert!(gap(&score(&mut engine, &text, Weights::Policy), &expected) < 1e-4);
    engine.save(&apart, true).unwrap();
    assert!(!apart.join("adapter").exists());
    assert!(gap(&read(&apart), &expected) < 1e-4);
}

#[test]
fn a_run_with_adapters_goes_on_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let (mut whole, mut batch) = adapted();
    whole.save(folder.path(), true).unwrap();
    let mut resumed = common::engine(6);
    resumed.load(folder.path(), true).unwrap();
    for recompute in [Recompute::Never, Recompute::Always] {
        batch.knobs.recompute = recompute;
        let report = whole.learn(&batch).unwrap();
        assert!(report.mini_batches[0].kl_loss > 0.0);
        assert_eq!(resumed.learn(&batch).unwrap(), report);
    }
    let text = ids(52, 40);
    for under in [Weights::Policy, Weights::Reference, Weights::Average] {
        assert_eq!(
            score(&mut whole, &text, under),
            score(&mut resumed, &text, under)
        );
    }
}

#[test]
fn a_whole_run_with_adapters_keeps_the_base_and_ends_in_a_merged_policy() {
    let folder = tempfile::tempdir().unwrap();
    let run_folder = folder.path().join("run");
    let mut experiment = experiment();
    experiment.learner.steps = 2;
    experiment.learner.kl_weight = 0.01;
    experiment.learner.lora = Lora::On(adapters());
    assert_eq!(
        run(&run_folder, experiment, &[]).unwrap(),
        RunStatus::Finished
    );
    assert_eq!(
        weights(&run_folder, "step-00001"),
        weights(&run_folder, "step-00002")
    );
    let values = |step: &str| {
        let folder = run_folder.join("checkpoints").join(step).join("adapter");
        std::fs::read(folder.join("adapter_model.safetensors")).unwrap()
    };
    assert_ne!(values("step-00001"), values("step-00002"));
    let last = std::fs::read(run_folder.join("checkpoints/final/model.safetensors")).unwrap();
    assert_ne!(last, weights(&run_folder, "step-00002"));
    assert!(!run_folder.join("checkpoints/final/adapter").exists());
}

#[test]
fn adapters_that_do_not_fit_are_refused_by_file_and_field() {
    let (mut engine, _) = adapted();
    let refusal = |spoil: &dyn Fn(&Path)| {
        let folder = tempfile::tempdir().unwrap();
        let mut fresh = common::engine(5);
        fresh.begin_adapters(&adapters(), 3).unwrap();
        fresh.save(folder.path(), true).unwrap();
        spoil(&folder.path().join("adapter"));
        match TorchEngine::from_folder(folder.path(), Arc::new(Ascii), &settings()) {
            Ok(_) => panic!("it must be refused"),
            Err(error) => error.to_string(),
        }
    };
    let edit = |field: &'static str, value: serde_json::Value| {
        move |folder: &Path| {
            let path = folder.join("adapter_config.json");
            let mut config: serde_json::Value =
                serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            config[field] = value.clone();
            std::fs::write(&path, config.to_string()).unwrap();
        }
    };
    for (field, value) in [
        ("peft_type", serde_json::json!("LOHA")),
        ("r", serde_json::json!(0)),
        ("bias", serde_json::json!("all")),
        ("use_dora", serde_json::json!(true)),
        ("rank_pattern", serde_json::json!({"q_proj": 2})),
        ("target_modules", serde_json::json!(["q_proj", "lm_head"])),
    ] {
        let text = refusal(&edit(field, value));
        assert!(
            text.contains(field) && text.contains("adapter_config.json"),
            "{text}"
        );
    }
    let text = refusal(&edit("r", serde_json::json!(5)));
    assert!(
        text.contains("lora_A") && text.contains("adapter_model.safetensors"),
        "{text}"
    );
    let text = refusal(&edit("target_modules", serde_json::json!(["q_proj"])));
    assert!(text.contains("belongs to no matrix"), "{text}");
    let text =
        refusal(&|folder| std::fs::remove_file(folder.join("adapter_model.safetensors")).unwrap());
    assert!(text.contains("adapter_model.safetensors"), "{text}");
    engine.learn(&rows(&mut common::engine(5))).unwrap();
}

const PEFT: &str = r#"
import json, sys
import torch
from peft import PeftModel, LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM
folder, out, ids = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
def logprobs(model):
    with torch.no_grad():
        ids_ = torch.tensor([ids])
        scores = model(ids_).logits[0, :-1].log_softmax(-1)
        return scores.gather(1, ids_[0, 1:, None])[:, 0].tolist()
base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
ours = logprobs(PeftModel.from_pretrained(base, folder + "/adapter").eval())
base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
torch.manual_seed(1)
made = get_peft_model(base, LoraConfig(r=3, lora_alpha=5, target_modules=["k_proj", "up_proj", "o_proj"],
                                       init_lora_weights=False, task_type="CAUSAL_LM")).eval()
made.save_pretrained(out)
print(json.dumps({"ours": ours, "made": logprobs(made)}))
"#;

#[test]
fn peft_reads_our_adapters_and_we_read_those_of_peft() {
    let python = std::env::var("PALIMPSEST_PYTHON").unwrap_or_else(|_| "python3".into());
    let there = Command::new(&python)
        .args(["-c", "import peft, transformers"])
        .output();
    if !there.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: {python} lacks peft or transformers (set PALIMPSEST_PYTHON)");
        return;
    }
    let (mut engine, _) = adapted();
    let text = ids(53, 40);
    let expected = score(&mut engine, &text, Weights::Policy);
    let folder = tempfile::tempdir().unwrap();
    engine.save(folder.path(), true).unwrap();
    let made = folder.path().join("made");
    let output = Command::new(&python)
        .args(["-c", PEFT])
        .args([folder.path(), &made])
        .arg(serde_json::to_string(&text).unwrap())
        .env("OMP_WAIT_POLICY", "passive")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let line = String::from_utf8_lossy(&output.stdout);
    let said: serde_json::Value = serde_json::from_str(line.lines().last().unwrap()).unwrap();
    let list = |name: &str| -> Vec<f32> { serde_json::from_value(said[name].clone()).unwrap() };
    assert!(gap(&list("ours"), &expected[1..]) < 2e-4);

    let adapter = folder.path().join("adapter");
    for file in ["adapter_config.json", "adapter_model.safetensors"] {
        std::fs::copy(made.join(file), adapter.join(file)).unwrap();
    }
    let mut read = TorchEngine::from_folder(folder.path(), Arc::new(Ascii), &settings()).unwrap();
    let theirs = score(&mut read, &text, Weights::Policy);
    assert!(gap(&theirs, &expected) > 0.01, "another adapter");
    assert!(gap(&theirs[1..], &list("made")) < 2e-4);
}

//! An evaluation by the program with its replay, and training in every kind of context.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use palimpsest::engine::GenerateRequest;
use palimpsest::experiment::{ContextKind, CreditSettings, RolloutContext};
use palimpsest::record::Event;

use super::players::{diligent, experiment, play};

/// The program's own words about a run.
fn program(arguments: &[&str], folder: &Path) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_palimpsest"))
        .args(arguments)
        .current_dir(folder)
        .env("XDG_CACHE_HOME", folder)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
#[cfg(feature = "torch")]
fn an_evaluation_leaves_table_manifest_and_transcripts_that_replay() {
    let folder = tempfile::tempdir().unwrap();
    let smoke = std::path::absolute("experiments/smoke.ron").unwrap();
    let run = folder.path().join("run");
    let (run, smoke) = (run.to_str().unwrap(), smoke.to_str().unwrap());
    let (done, said) = program(
        &[
            "eval",
            "--experiment",
            smoke,
            "--run-dir",
            run,
            "--set",
            "evaluation.samples=2",
            "--set",
            "evaluation.temperature=1.0",
        ],
        folder.path(),
    );
    assert!(done, "{said}");
    assert!(
        said.contains("| full | 1 | 2 x 2 |") && said.contains("| deployed | 2 | 2 x 2 |"),
        "{said}"
    );
    let read = |name: &str| std::fs::read_to_string(Path::new(run).join(name)).unwrap();
    let json = |name: &str| -> serde_json::Value { serde_json::from_str(&read(name)).unwrap() };
    assert_eq!(
        json("results.json")["evaluations"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
    assert_eq!(read("results.csv").lines().count(), 5);
    let manifest = json("manifest.json");
    assert_eq!(manifest["trajectories"], 16);
    assert_eq!(manifest["seeds"]["questions"], 1000);
    assert_eq!(
        manifest["transcripts"]["xxh3_128"].as_str().unwrap().len(),
        32
    );
    assert_eq!(read("transcripts.jsonl").lines().count(), 16);
    let (same, said) = program(&["eval", "--replay", run], folder.path());
    assert!(
        same && said.contains("16 trajectories replayed: all the same"),
        "{said}"
    );
    // What is not in the record any more is found out.
    let mut lines: BTreeMap<usize, serde_json::Value> = read("transcripts.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .enumerate()
        .collect();
    lines.get_mut(&5).unwrap()["outcome"]["total_tokens"] = 1.into();
    let text: Vec<String> = lines.values().map(ToString::to_string).collect();
    std::fs::write(Path::new(run).join("transcripts.jsonl"), text.join("\n")).unwrap();
    let (same, said) = program(&["eval", "--replay", run], folder.path());
    assert!(
        !same && said.contains("1 of 16 trajectories differ"),
        "{said}"
    );
}

#[test]
fn training_in_a_rewritten_context_learns_a_row_a_turn_with_credit_by_trajectory() {
    for (context, kind) in [
        (RolloutContext::Full, ContextKind::Full),
        (RolloutContext::LastTurn, ContextKind::LastTurn),
        (RolloutContext::Mem1, ContextKind::Mem1),
        (RolloutContext::Chunks, ContextKind::Chunks),
        (RolloutContext::NoNotes, ContextKind::NoNotes),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let mut experiment = experiment(folder.path(), &[]);
        experiment.evaluation.only = false;
        experiment.task.objectives_max = 1;
        experiment.task.objectives_min = 1;
        experiment.credit = CreditSettings::grpo();
        experiment.rollout.context = context;
        experiment.rollout.groups = 2;
        experiment.rollout.group_size = 2;
        experiment.learner.steps = 1;
        // One rollout of each question is right, the other is not: both have an advantage.
        let player = |request: &GenerateRequest, text: &str| {
            let turn = diligent(text);
            if request.id.member == 0 {
                return turn;
            }
            turn.replace("<answer>", "<answer>not ")
        };
        let events = play(folder.path(), experiment, player, None).1;
        let (mut turns, mut credited) = (BTreeMap::new(), 0);
        for event in events {
            match event {
                Event::TurnGenerated(turn) => *turns.entry(turn.id).or_insert(0) += 1,
                Event::CreditAssigned {
                    id,
                    outcome,
                    tokens,
                    ..
                } => {
                    let rows = if kind.grows() { 1 } else { turns[&id] };
                    assert_eq!(tokens.len(), rows, "{kind:?}");
                    assert!(turns[&id] > 1, "{kind:?}");
                    // The mean of a group of two is in the middle, whatever the lengths.
                    let sign = if id.member == 0 { 1.0 } else { -1.0 };
                    assert!(
                        (outcome - sign * 0.5f32.sqrt()).abs() < 1e-3,
                        "{kind:?}: {outcome}"
                    );
                    credited += 1;
                }
                _ => {}
            }
        }
        assert_eq!(credited, 4, "{kind:?}");
    }
}

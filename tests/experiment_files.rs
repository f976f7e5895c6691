//! Experiment files: reading, overriding, refusing and writing them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use palimpsest::experiment::{Experiment, PolicySettings, Threshold, Weight};

fn read(text: &str, overrides: &[&str]) -> Experiment {
    let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
    match Experiment::from_ron("test.ron", text, &overrides) {
        Ok(resolved) => resolved.experiment,
        Err(errors) => panic!("{errors}"),
    }
}

#[test]
fn an_empty_file_is_the_defaults() {
    let mut defaults = Experiment::default();
    defaults.name = "test".to_owned();
    assert_eq!(read("()", &[]), defaults);
    assert_eq!(read("Experiment()", &[]), defaults);
}

#[test]
fn a_partial_file_changes_only_what_it_names() {
    let experiment = read(
        "// a comment\n(\n  seed: 7, /* another */ rollout: (groups: 4, limits: (turns: 2)),\n  credit: mempo(threshold: none, weight: constant(0.5)),\n)",
        &[],
    );
    assert_eq!(experiment.seed, 7);
    assert_eq!(experiment.rollout.groups, 4);
    assert_eq!(experiment.rollout.limits.turns, 2);
    assert_eq!(experiment.rollout.group_size, 16);
    assert!(experiment.credit.memory);
    assert_eq!(experiment.credit.threshold, Threshold::Off);
    assert_eq!(experiment.credit.weight, Weight::Constant(0.5));
}

#[test]
fn every_spelling_of_the_settings_is_read() {
    let experiment = read(
        "(policy: New(hidden_size: 64), credit: grpo, engine: (device: cuda(1)), learner: (betas: (0.8, 0.9), lr: 1e-3, grad_clip: inf))",
        &[],
    );
    assert!(matches!(&experiment.policy, PolicySettings::New(shape) if shape.hidden_size == 64));
    assert!(!experiment.credit.memory);
    assert_eq!(experiment.learner.betas, (0.8, 0.9));
    assert_eq!(
        read("(policy: Folder(\"a b\"))", &[]).policy,
        PolicySettings::Folder("a b".into())
    );
}

#[test]
fn a_resolved_experiment_reads_back_equal() {
    let text = "(name: \"a \\\"b\\\" ü\", policy: New(rope_theta: 1e6), cold_start: (stages: [(steps: 3), (mix: (keep: [0.1]))]), credit: grpo, engine: (device: cuda(1)), learner: (lr: 0.1234567))";
    let experiment = read(text, &["evaluation.objectives=[2, 9]"]);
    let again = read(&experiment.to_ron(), &[]);
    assert_eq!(experiment, again);
    assert_eq!(experiment.to_ron(), again.to_ron());
}

#[test]
fn overrides_are_read_as_ron_and_as_bare_words() {
    let experiment = read(
        "(cold_start: (stages: [(steps: 3), (steps: 4)]), policy: New())",
        &[
            "name=my run",
            "rollout.groups=3",
            "evaluation.objectives=[2,3]",
            "credit.threshold=own(0.25)",
            "cold_start.stages.1.steps=9",
            "policy.hidden_size=32",
            "record.runs=\"out\"",
        ],
    );
    assert_eq!(experiment.name, "my run");
    assert_eq!(experiment.rollout.groups, 3);
    assert_eq!(experiment.evaluation.objectives, [2, 3]);
    assert_eq!(experiment.credit.threshold, Threshold::Own(0.25));
    assert_eq!(experiment.cold_start.stages[1].steps, 9);
    assert!(matches!(&experiment.policy, PolicySettings::New(shape) if shape.hidden_size == 32));
    assert_eq!(experiment.record.runs, "out");
    let experiment = read("()", &["policy=Folder(some/where)", "credit=grpo"]);
    assert_eq!(
        experiment.policy,
        PolicySettings::Folder("some/where".into())
    );
    assert!(!experiment.credit.memory);
}

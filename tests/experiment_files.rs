//! Experiment files: reading, overriding, refusing and writing them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use palimpsest::experiment::{
    CreditSettings, Experiment, PolicySettings, Resolved, Severity, Threshold, Weight,
    reference_markdown,
};

fn read(text: &str, overrides: &[&str]) -> Experiment {
    let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
    match Experiment::from_ron("test.ron", text, &overrides) {
        Ok(resolved) => resolved.experiment,
        Err(errors) => panic!("{errors}"),
    }
}

#[test]
fn an_empty_file_is_the_defaults() {
    let defaults = Experiment {
        name: "test".to_owned(),
        ..Experiment::default()
    };
    assert_eq!(read("()", &[]), defaults);
    assert_eq!(read("Experiment()", &[]), defaults);
}

#[test]
fn a_partial_file_changes_only_what_it_names() {
    let experiment = read(
        "// a comment\n(\n  seed: 7, /* another */ rollout: (groups: 4, limits: (turns: 5)),\n  credit: mempo(threshold: none, weight: constant(0.5)),\n)",
        &[],
    );
    assert_eq!(experiment.seed, 7);
    assert_eq!(experiment.rollout.groups, 4);
    assert_eq!(experiment.rollout.limits.turns, 5);
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
    assert_eq!(
        read("(policy: Hub(\"some/model@v1\"))", &[]).policy,
        PolicySettings::Hub("some/model@v1".into())
    );
}

#[test]
fn every_value_of_the_credit_grammar_is_read_and_written() {
    let lines = [
        (
            "target",
            &["minus_full", "minus_previous", "minus_empty", "absolute"][..],
        ),
        ("space", &["prob", "log(4.0)"]),
        ("threshold", &["none", "own(0.25)", "union(0.25)"]),
        (
            "answers",
            &["joined_first_alias", "joined_max_alias", "per_answer"],
        ),
        ("discount", &["0.0"]),
        (
            "baseline",
            &[
                "pooled",
                "per_round",
                "leave_one_out",
                "absorbing",
                "position_average(0.9)",
            ],
        ),
        ("scale", &["std", "std_floor(0.1)", "none"]),
        ("gate", &["none", "sign", "success", "group_spread"]),
        (
            "weight",
            &[
                "constant(0.5)",
                "linear(1.0, 0.0, 7)",
                "linear(from: 2.0, to: 1.0, steps: 3)",
            ],
        ),
        (
            "length",
            &[
                "none",
                "price(0.05, 60.0)",
                "price(beta: 0.1, budget: 9.0)",
                "budget(60.0)",
            ],
        ),
        ("support", &["off", "on"]),
        ("scorer", &["policy", "frozen", "average(0.9)"]),
        (
            "estimator",
            &[
                "grpo",
                "dr_grpo",
                "rloo",
                "opo",
                "gpg",
                "reinforce_plus_plus(0.99)",
                "reinforce_plus_plus_baseline",
                "passk",
            ],
        ),
        ("first", &["skip", "minus_empty"]),
        ("placebo", &["off", "shuffled_gold"]),
    ];
    for (line, values) in lines {
        for value in values {
            let text = format!("(credit: mempo({line}: {value}))");
            let experiment = read(&text, &[]);
            assert_eq!(read(&experiment.to_ron(), &[]), experiment, "{text}");
            let path = format!("credit.{line}={value}");
            assert_eq!(
                read("(credit: mempo)", &[&path]).credit,
                experiment.credit,
                "{path}"
            );
        }
    }
    let linear = read("(credit: mempo(weight: linear(1.0, 0.0, 7)))", &[])
        .credit
        .weight;
    assert!(
        matches!(linear, Weight::Linear(line) if (line.from, line.to, line.steps) == (1.0, 0.0, 7))
    );
    let presets = [
        "mempo",
        "grpo",
        "mempo_prob",
        "information_gain",
        "infomem",
        "mgpo",
        "himpo",
        "per_answer",
        "unbiased",
        "guarded",
        "placebo",
    ];
    let mut seen: Vec<CreditSettings> = Vec::new();
    for preset in presets {
        let credit = read(&format!("(credit: {preset})"), &[]).credit;
        assert!(!seen.contains(&credit), "{preset}");
        seen.push(credit);
        assert_eq!(read("()", &[&format!("credit={preset}")]).credit, credit);
    }
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

/// The committed text beside the code, rewritten if the environment asks for it.
fn same_as_file(path: &Path, text: &str, variable: &str) -> bool {
    if std::env::var_os(variable).is_some() {
        fs::write(path, text).expect("the file can be written");
    }
    fs::read_to_string(path).is_ok_and(|committed| committed == text)
}

#[test]
fn the_reference_is_what_the_code_says() {
    let path = Path::new("docs/experiment.md");
    assert!(
        same_as_file(path, &reference_markdown(), "UPDATE_DOCS"),
        "docs/experiment.md is out of date: UPDATE_DOCS=1 cargo test --test experiment_files"
    );
}

/// Every wrong file has its messages beside it. A first line `// --set a=b --set c=d` gives overrides.
#[test]
fn every_wrong_file_is_refused_with_its_golden_message() {
    let mut files: Vec<PathBuf> = fs::read_dir("tests/experiments_bad")
        .expect("the folder is there")
        .map(|entry| entry.expect("a readable entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ron"))
        .collect();
    files.sort();
    assert!(files.len() >= 10);
    let mut wrong = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("the file can be read");
        let first = text.lines().next().unwrap_or_default();
        let overrides: Vec<String> = first
            .split(" --set ")
            .skip(1)
            .map(|argument| argument.trim().to_owned())
            .collect();
        let message = match Experiment::load(&file, &overrides) {
            Err(errors) => format!("{errors}\n"),
            Ok(_) => panic!("{} is not refused", file.display()),
        };
        // Golden messages name files with forward slashes on every system.
        let message = message.replace('\\', "/");
        if !same_as_file(&file.with_extension("txt"), &message, "UPDATE_GOLDEN") {
            wrong.push(format!("{}:\n{message}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "messages changed:\n{}", wrong.join("\n"));
}

#[test]
fn cuts_of_the_sampled_distribution_are_noted_when_a_file_is_read() {
    let text = "(rollout: (top_p: 0.9, top_k: 40))";
    let resolved = Experiment::from_ron("cuts.ron", text, &[]).expect("the file is well formed");
    let notes: Vec<String> = resolved.notes.iter().map(ToString::to_string).collect();
    for part in [
        "rollout.top_k 40",
        "rollout.top_p 0.9",
        "the whole distribution",
    ] {
        assert!(notes.iter().any(|note| note.contains(part)), "{notes:?}");
    }
    let plain = Experiment::from_ron("plain.ron", "()", &[]).expect("the file is well formed");
    let notes: Vec<String> = plain.notes.iter().map(ToString::to_string).collect();
    assert!(!notes.iter().any(|note| note.contains("top_")), "{notes:?}");
}

fn shipped() -> Vec<(String, Resolved)> {
    let mut files: Vec<PathBuf> = fs::read_dir("experiments")
        .expect("the folder is there")
        .map(|entry| entry.expect("a readable entry").path())
        .filter(|path| !path.to_string_lossy().contains("study"))
        .collect();
    files.sort();
    files
        .into_iter()
        .map(|path| match Experiment::load(&path, &[]) {
            Ok(resolved) => (resolved.experiment.name.clone(), resolved),
            Err(errors) => panic!("{errors}"),
        })
        .collect()
}

#[test]
fn every_shipped_experiment_is_well_formed_and_its_description_is_an_experiment_again() {
    for (name, resolved) in shipped() {
        let again = Experiment::from_ron("again.ron", &resolved.describe(), &[]);
        assert_eq!(
            again.map(|again| again.experiment).as_ref(),
            Ok(&resolved.experiment),
            "{name}"
        );
        let notes = resolved
            .notes
            .iter()
            .filter(|note| note.severity == Severity::Note);
        assert_eq!(notes.count(), 0, "{name}: {:?}", resolved.notes);
    }
}

#[test]
fn the_three_arms_differ_in_credit_alone() {
    let all: BTreeMap<String, Resolved> = shipped().into_iter().collect();
    let of = |name: &str| all[name].experiment.clone();
    let quickstart = of("quickstart");
    for (name, credit) in [
        ("grpo", CreditSettings::grpo()),
        ("mempo", CreditSettings::mempo()),
    ] {
        let arm = Experiment {
            name: quickstart.name.clone(),
            ..of(name)
        };
        assert_eq!(
            arm,
            Experiment {
                credit,
                ..quickstart.clone()
            }
        );
        assert_eq!(all[name].sources.len(), 2);
    }
    assert_eq!(quickstart.credit.threshold, Threshold::Off);
    assert_eq!(CreditSettings::mempo().threshold, Threshold::Own(0.5));
}

#[test]
fn a_tool_with_no_time_for_its_tries_is_noted_when_a_file_is_read() {
    let notes = |settings: &str| -> Vec<String> {
        let task = "kind: Search, retrieval: served(url: \"http://127.0.0.1:8000\")";
        let text = format!("(task: ({task}), cold_start: (stages: []), {settings})");
        let resolved = Experiment::from_ron("test.ron", &text, &[]);
        let resolved = resolved.unwrap_or_else(|errors| panic!("{errors}"));
        let notes = resolved.notes.iter().map(ToString::to_string);
        notes.filter(|note| note.contains("tool_seconds")).collect()
    };
    assert_eq!(notes(""), [""; 0], "the default is long enough");
    // 0.5, 1, 2 and 4 seconds between five tries, and one try of 30.
    assert!(notes("rollout: (limits: (tool_seconds: 5.0))")[0].contains("at least 37.5"));
}

#[test]
fn the_experiment_of_the_paper_is_checked_and_says_what_is_missing() {
    let all: BTreeMap<String, Resolved> = shipped().into_iter().collect();
    let missing = all["mempo_qwen2.5_7b"].ready().unwrap_err().to_string();
    assert!(missing.contains("task.corpus"), "{missing}");
    assert!(missing.contains("Qwen2.5-7B"), "{missing}");
}

#[test]
fn the_file_nearest_to_the_reader_wins_and_places_say_where_a_value_was_given() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("the file can be written");
        path
    };
    fs::create_dir(folder.path().join("weights")).expect("a folder");
    file(
        "one.ron",
        "(seed: 1, rollout: (groups: 3, group_size: 4), policy: Folder(\"weights\"))",
    );
    file("two.ron", "(base: \"one.ron\", rollout: (groups: 5))");
    let three = file("three.ron", "(\n  base: \"two.ron\",\n  seed: 9,\n)");
    let resolved = Experiment::load(&three, &["rollout.group_size=6".to_owned()]);
    let resolved = resolved
        .map_err(|errors| errors.to_string())
        .expect("well-formed");
    let experiment = &resolved.experiment;
    assert_eq!(experiment.name, "three");
    assert_eq!((experiment.seed, experiment.rollout.groups), (9, 5));
    assert_eq!(experiment.rollout.group_size, 6);
    assert_eq!(resolved.sources.len(), 3);
    let place = |path: &str| resolved.places[path].to_string().replace('\\', "/");
    assert!(place("seed").ends_with("three.ron:3:9"));
    assert!(place("rollout.groups").ends_with("two.ron:1:37"));
    assert_eq!(place("rollout.group_size"), "--set rollout.group_size=6");
    // A path beside the file that names it works from any folder.
    assert!(
        matches!(&experiment.policy, PolicySettings::Folder(path) if Path::new(path).is_absolute())
    );
}

#[test]
fn a_file_that_is_cut_off_or_broken_anywhere_is_refused_in_words() {
    let text = fs::read_to_string("experiments/smoke.ron").expect("the file can be read");
    for at in (0..text.len())
        .step_by(3)
        .filter(|at| text.is_char_boundary(*at))
    {
        let (head, tail) = text.split_at(at);
        let _ = Experiment::from_ron("cut.ron", head, &[]);
        for wrong in ["(", "]", "\"", ",", "/*", "x", "'", "\u{fc}"] {
            let _ = Experiment::from_ron("broken.ron", &format!("{head}{wrong}{tail}"), &[]);
        }
    }
}

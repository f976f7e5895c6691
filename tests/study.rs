//! Studies: the table's mathematics, wrong files, and the real program over arms and seeds, killed
//! and resumed.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[cfg(feature = "torch")]
use std::path::Path;
use std::process::{Command, Output, Stdio};

use palimpsest::eval::Evaluation;
use palimpsest::experiment::ContextKind;
use palimpsest::record::{RunStatus, Summary};
use palimpsest::study::{Arm, Job, Plan, Results, Study, interval, student_t};

fn study(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_palimpsest"));
    command
        .arg("study")
        .args(arguments)
        .env("OMP_WAIT_POLICY", "passive")
        .env("OMP_NUM_THREADS", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn intervals_are_students() {
    // Mean 3, deviation 1.5811, t(4) = 2.7764: half is 2.7764 * 1.5811 / sqrt(5).
    let (mean, half) = interval(&[1.0, 2.0, 3.0, 4.0, 5.0]);
    assert_eq!(mean, 3.0);
    assert!((half.unwrap() - 1.963_2).abs() < 1e-3, "{half:?}");
    // Two values: t(1) = 12.706, deviation 0.7071, half 12.706 * 0.7071 / 1.4142.
    assert!((interval(&[0.0, 1.0]).1.unwrap() - 6.353_1).abs() < 1e-3);
    assert_eq!(interval(&[0.5]), (0.5, None));
    assert!((student_t(31) - 2.0395).abs() < 1e-3);
    assert!((student_t(120) - 1.9799).abs() < 1e-3);
}

fn summary(seed: u64, em: f64) -> Summary {
    let line = |step, em| Evaluation {
        step,
        context: ContextKind::Deployed,
        objectives: 3,
        n: 10,
        em,
        f1: em,
        notes_recall: Some(em),
        notes_tokens: Some(5.0),
        peak_tokens: 100.0,
        total_tokens: 1000.0,
        ..Evaluation::default()
    };
    Summary {
        name: String::new(),
        seed,
        steps: 2,
        status: RunStatus::Finished,
        wall_seconds: Default::default(),
        evaluations: vec![line(0, 0.25), line(2, em)],
    }
}

#[test]
fn the_table_holds_means_and_differences_seed_by_seed() {
    let arm = |name: &str| Arm {
        name: name.into(),
        set: Vec::new(),
    };
    let file = Study {
        base: "base.ron".into(),
        set: Vec::new(),
        seeds: vec![0, 1, 2],
        arms: vec![arm("a"), arm("b")],
        objectives: vec![3],
        metrics: vec!["em".into()],
    };
    let mut jobs = Vec::new();
    let mut summaries = Vec::new();
    for (seed, a, b) in [(0, 0.1, 0.3), (1, 0.2, 0.5), (2, 0.6, 0.7)] {
        for (name, em) in [("a", a), ("b", b)] {
            summaries.push(summary(seed, em));
            jobs.push(Job {
                arm: name.into(),
                seed,
                set: Vec::new(),
                experiment: String::new(),
            });
        }
    }
    let plan = Plan {
        base: "base.ron".into(),
        jobs,
    };
    let results = Results::new("test", &file, &plan, &summaries);
    assert_eq!(results.last_step(), 2);
    let cell = results
        .cell("b", 2, ContextKind::Deployed, 3, "em")
        .unwrap();
    assert_eq!(cell.values, [0.3, 0.5, 0.7]);
    assert!((cell.mean - 0.5).abs() < 1e-12);
    // Deviation 0.2, t(2) = 4.3027.
    assert!((cell.half.unwrap() - 4.3027 * 0.2 / 3f64.sqrt()).abs() < 1e-9);
    // Differences 0.2, 0.3, 0.1: mean 0.2, deviation 0.1. Paired seeds are told apart better.
    assert!((cell.gain - 0.2).abs() < 1e-12);
    assert!((cell.gain_half.unwrap() - 4.3027 * 0.1 / 3f64.sqrt()).abs() < 1e-9);
}

#[test]
fn a_wrong_study_file_tells_every_problem_and_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.ron");
    let base = std::path::absolute("experiments/smoke.ron").unwrap();
    let text = format!(
        r#"(base: {base:?}, seeds: [1, 1], metrics: ["em", "luck"], arms: [
            (name: "a b"),
            (name: "twin"), (name: "twin"),
            (name: "bad", set: ["rollout.group_size=1", "learner.stepz=3"]),
        ])"#
    );
    std::fs::write(&file, text).unwrap();
    let out = folder.path().join("out");
    let path = file.to_str().unwrap();
    let done = study(&[path, "--out", out.to_str().unwrap()])
        .output()
        .unwrap();
    let said = said(&done);
    assert_eq!(done.status.code(), Some(2), "{said}");
    for part in [
        "seed 1 is given twice",
        "no metric \"luck\"",
        "\"a b\" cannot be a folder",
        "\"twin\" is given twice",
        "arm bad:",
        "stepz",
        "group_size 1",
        "6 problems; nothing was run",
    ] {
        assert!(said.contains(part), "{part:?} is missing in {said}");
    }
    assert!(!out.exists());
    std::fs::write(&file, "(base: \"x.ron\", seeds: [1], arms: [], colour: 3)").unwrap();
    let unknown = study(&[path]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    assert!(self::said(&unknown).contains("colour"));
}

#[test]
fn the_shipped_study_files_can_be_read() {
    for file in [
        "experiments/study_smoke.ron",
        "experiments/credit_study.ron",
        "experiments/scale_study.ron",
        "experiments/longer_study.ron",
        "experiments/readme_study.ron",
    ] {
        let text = std::fs::read_to_string(file).unwrap();
        let study: Study = ron::from_str(&text).unwrap();
        assert!(study.arms.len() >= 2, "{file}");
    }
}

#[cfg(all(feature = "torch", unix))]
#[test]
fn a_study_that_is_killed_goes_on_and_repeats_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let arguments = [
        "experiments/study_smoke.ron",
        "--jobs",
        "2",
        "--out",
        out.to_str().unwrap(),
    ];
    let events = |name: &str| out.join("runs").join(name).join("events.jsonl");
    let finished = |name: &str| {
        std::fs::read_to_string(out.join("runs").join(name).join("summary.json"))
            .is_ok_and(|text| text.contains("\"finished\""))
    };
    let mut child = study(&arguments).spawn().unwrap();
    // Killed once its second pair of runs is under way.
    for _ in 0..3000 {
        if events("grpo-seed1").exists() || child.try_wait().unwrap().is_some() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let before = finished("grpo-seed0").then(|| std::fs::read(events("grpo-seed0")).unwrap());
    let done = study(&arguments).output().unwrap();
    assert!(done.status.success(), "{}", said(&done));
    if let Some(before) = before {
        assert!(
            before == std::fs::read(events("grpo-seed0")).unwrap(),
            "a finished run was touched"
        );
    }
    let table = String::from_utf8(done.stdout).unwrap();
    assert!(table.contains("| mempo | deployed |"), "{table}");
    assert_eq!(
        std::fs::read_to_string(out.join("study.md")).unwrap(),
        table
    );
    let json = read(&out, "study.json");
    let again = study(&arguments).output().unwrap();
    assert!(
        said(&again).matches("is finished").count() == 4,
        "{}",
        said(&again)
    );
    assert!(!said(&again).contains("begins"), "{}", said(&again));
    assert_eq!(json, read(&out, "study.json"));
    assert!(read(&out, "study.csv").starts_with("arm,step,context"));
    let page = read(&out, "study.html");
    assert!(page.contains("class=\"band a\"") && !page.contains("<script"));

    let changed = study(&[&arguments[..], &["--set", "learner.lr=0.1"]].concat())
        .output()
        .unwrap();
    assert_eq!(changed.status.code(), Some(2));
    assert!(said(&changed).contains("holds another experiment"));
}

#[cfg(all(feature = "torch", unix))]
fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).unwrap()
}

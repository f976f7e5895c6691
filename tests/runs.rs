//! Runs of the real program that are killed, interrupted or refused. Needs libtorch.

#![cfg(all(feature = "torch", unix))]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use palimpsest::random::{Domain, stream};

const PROGRAM: &str = env!("CARGO_BIN_EXE_palimpsest");
const SMOKE: &str = "experiments/smoke.ron";
/// A few steps of the shipped policy: unlike the smoke run it learns, so that every step changes
/// the weights and the optimizer.
const LEARNING: [&str; 18] = [
    "--experiment",
    "experiments/quickstart.ron",
    "--set",
    "rollout.groups=2",
    "--set",
    "rollout.group_size=4",
    "--set",
    "learner.steps=4",
    "--set",
    "record.checkpoint_every=1",
    "--set",
    "evaluation.every=2",
    "--set",
    "evaluation.questions=2",
    "--set",
    "evaluation.objectives=[2]",
    "--set",
    "evaluation.questions_during=2",
];

fn palimpsest(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command
        .args(arguments)
        .env("OMP_WAIT_POLICY", "passive")
        .env("OMP_NUM_THREADS", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn output(arguments: &[&str]) -> Output {
    palimpsest(arguments).output().unwrap()
}

fn finish(arguments: &[&str]) {
    let done = output(arguments);
    assert!(
        done.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn learning(run: &Path) -> Vec<&str> {
    [&LEARNING[..], &["--run-dir", text(run)]].concat()
}

fn weights(run: &Path) -> Vec<u8> {
    std::fs::read(run.join("checkpoints/final/model.safetensors")).unwrap()
}

/// SIGKILL after a while; true if the process was still there.
fn kill_after(mut child: Child, milliseconds: u64) -> bool {
    std::thread::sleep(Duration::from_millis(milliseconds));
    let alive = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    child.wait().unwrap();
    alive
}

#[test]
fn a_run_killed_at_ten_random_moments_ends_with_the_same_weights() {
    use rand::RngExt as _;
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    let started = std::time::Instant::now();
    finish(&learning(&whole));
    let whole_run = started.elapsed().as_millis() as u64;
    let expected = weights(&whole);
    let first = std::fs::read(whole.join("checkpoints/step-00000/model.safetensors")).unwrap();
    assert!(
        expected != first,
        "the run learned nothing, so it proves nothing"
    );
    let mut rng = stream(20_261_129, Domain::Questions, 0, 0, 0);
    let (mut kills, mut runs) = (0, 0);
    while kills < 10 {
        let run = folder.path().join(format!("killed-{runs}"));
        runs += 1;
        let mut arguments = learning(&run);
        // A run that is killed this often must still come to its end.
        while !run.join("checkpoints/final").exists() && kills < 10 {
            let child = palimpsest(&arguments).spawn().unwrap();
            let moment = rng.random_range(50..whole_run.max(200));
            kills += u32::from(kill_after(child, moment));
            if run.join("events.jsonl").exists() {
                arguments = vec!["--resume", text(&run)];
            } else if run.exists() {
                // Killed before there was a run: nothing to resume.
                std::fs::remove_dir_all(&run).unwrap();
            }
        }
        finish(&arguments);
        assert!(
            expected == weights(&run),
            "run {} has other weights after {kills} kills",
            runs - 1
        );
    }
}

/// A scorer that lags behind the policy, a price on leaving the reference that moves, and advantages by
/// token: what such a run keeps over steps stands in its checkpoints.
#[test]
fn a_run_with_an_average_scorer_and_a_moving_price_goes_on_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let settings = |scorer: &str| {
        let credit = format!(
            "credit=mempo(threshold: none, estimator: reinforce_plus_plus(0.99), scorer: {scorer})"
        );
        let price =
            "learner.kl_in_reward=adaptive(weight: 0.5, kind: k1, target: 0.0001, horizon: 20.0)";
        [
            credit,
            price.to_owned(),
            "learner.final_lr_share=1.0".to_owned(),
        ]
    };
    let run = |name: &str, scorer: &str, steps: &str| {
        let run = path(name);
        let mut arguments = learning(&run);
        let settings = settings(scorer);
        for setting in &settings {
            arguments.extend(["--set", setting]);
        }
        arguments.extend(["--set", steps]);
        finish(&arguments);
    };
    run("whole", "average(0.5)", "learner.steps=4");
    run("parts", "average(0.5)", "learner.steps=2");
    finish(&["--resume", text(&path("parts")), "--set", "learner.steps=4"]);
    assert!(weights(&path("whole")) == weights(&path("parts")));
    // The scorer is another one than the policy, so it must have lagged behind.
    run("policy", "policy", "learner.steps=4");
    assert!(weights(&path("whole")) != weights(&path("policy")));

    use palimpsest::record::{RunFolder, RunRecord, TokenReader};
    let view = RunRecord::read(&RunFolder::look(&path("whole")).unwrap())
        .unwrap()
        .view();
    assert_eq!(view.troubles, []);
    let prices = view.metric("actor/reward_kl_penalty_coeff");
    assert!(
        prices.windows(2).any(|pair| pair[0].1 != pair[1].1),
        "{prices:?}"
    );
    let mut tokens = TokenReader::open(&path("whole")).unwrap();
    let mut paid = 0;
    for trajectory in view.trajectories.values() {
        for &at in &trajectory.tokens {
            let block = tokens.read(at).unwrap();
            for i in 0..block.ids.len() {
                let whole = block.outcome[i] + block.kl[i] + block.memory[i];
                assert_eq!(block.weight[i], whole);
                paid += usize::from(block.kl[i].abs() > 1e-3);
            }
        }
    }
    assert!(paid > 100, "the KL changed the weights of {paid} tokens");
}

#[test]
fn an_interrupted_run_says_how_to_go_on_and_ends_with_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, stopped) = (folder.path().join("whole"), folder.path().join("stopped"));
    finish(&learning(&whole));
    let child = palimpsest(&learning(&stopped)).spawn().unwrap();
    let checkpoint = stopped.join("checkpoints/latest");
    for _ in 0..600 {
        if checkpoint.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    if done.status.code() == Some(130) {
        assert!(said.contains("--resume"), "{said}");
        let summary = std::fs::read_to_string(stopped.join("summary.json")).unwrap();
        assert!(summary.contains("\"stopped\""), "{summary}");
        finish(&["--resume", text(&stopped)]);
    } else {
        // It was done before the interrupt came.
        assert!(done.status.success(), "{said}");
    }
    assert!(
        weights(&whole) == weights(&stopped),
        "other weights after an interrupt"
    );
}

#[test]
fn two_runs_of_one_seed_write_the_same_events_and_a_second_process_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    finish(&["--experiment", SMOKE, "--run-dir", text(&a)]);
    let child = palimpsest(&["--experiment", SMOKE, "--run-dir", text(&b)])
        .spawn()
        .unwrap();
    for _ in 0..600 {
        if b.join("events.jsonl").exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let refused = output(&["--resume", text(&b)]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("in use"), "{said}");
    assert!(child.wait_with_output().unwrap().status.success());
    for file in [
        "events.jsonl",
        "tokens.bin",
        "checkpoints/final/model.safetensors",
    ] {
        assert!(
            std::fs::read(a.join(file)).unwrap() == std::fs::read(b.join(file)).unwrap(),
            "{file} differs"
        );
    }
    let taken = output(&["--experiment", SMOKE, "--run-dir", text(&a)]);
    assert!(String::from_utf8_lossy(&taken.stderr).contains("is not empty"));
}

#[test]
fn bad_input_is_named_and_nothing_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("bad.ron"), "(rollout: (group_size: 1))").unwrap();
    let bad = output(&["--experiment", text(&path("bad.ron"))]);
    let said = String::from_utf8_lossy(&bad.stderr);
    assert_eq!(bad.status.code(), Some(2), "{said}");
    assert!(
        said.contains("group_size 1") && said.contains("every advantage is 0"),
        "{said}"
    );

    let not_a_run = output(&["--resume", text(folder.path())]);
    let said = String::from_utf8_lossy(&not_a_run.stderr);
    assert_eq!(not_a_run.status.code(), Some(1), "{said}");
    assert!(said.contains("is not a run folder"), "{said}");

    std::fs::write(path("facts.json"), "{\"entities\": [{]}").unwrap();
    let facts = format!("task.facts={}", text(&path("facts.json")));
    let damaged = output(&[
        "--experiment",
        SMOKE,
        "--run-dir",
        text(&path("run")),
        "--set",
        &facts,
    ]);
    let said = String::from_utf8_lossy(&damaged.stderr);
    assert_eq!(damaged.status.code(), Some(1), "{said}");
    assert!(
        said.contains("facts.json") && said.contains("line"),
        "{said}"
    );
    assert!(!path("run").exists(), "a run folder was made for nothing");
}

#[test]
fn a_damaged_checkpoint_or_tokenizer_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    finish(&["--experiment", SMOKE, "--run-dir", text(&run)]);
    let policy = run.join("checkpoints/final");
    let start = |name: &str| {
        let setting = format!("policy=Folder({:?})", text(&policy));
        output(&[
            "--experiment",
            SMOKE,
            "--run-dir",
            text(&folder.path().join(name)),
            "--set",
            &setting,
        ])
    };
    let model = policy.join("model.safetensors");
    let whole = std::fs::read(&model).unwrap();
    std::fs::write(&model, &whole[..whole.len() / 2]).unwrap();
    let said = String::from_utf8_lossy(&start("a").stderr).into_owned();
    assert!(said.contains("model.safetensors"), "{said}");
    std::fs::write(&model, &whole).unwrap();
    std::fs::write(policy.join("tokenizer.json"), "{}").unwrap();
    let said = String::from_utf8_lossy(&start("b").stderr).into_owned();
    assert!(said.contains("tokenizer.json"), "{said}");
    std::fs::write(
        run.join("checkpoints")
            .join(latest(&run))
            .join("optimizer.safetensors"),
        "short",
    )
    .unwrap();
    let said = String::from_utf8_lossy(
        &output(&["--resume", text(&run), "--set", "learner.steps=3"]).stderr,
    )
    .into_owned();
    assert!(said.contains("optimizer.safetensors"), "{said}");
}

fn latest(run: &Path) -> String {
    std::fs::read_to_string(run.join("checkpoints/latest"))
        .unwrap()
        .trim()
        .to_owned()
}

#[test]
fn one_or_many_in_flight_write_the_same_turns() {
    use palimpsest::record::{Event, read_events};
    let folder = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    for in_flight in [1, 64] {
        let run = folder.path().join(in_flight.to_string());
        let setting = format!("rollout.in_flight={in_flight}");
        finish(&[
            "--experiment",
            SMOKE,
            "--run-dir",
            text(&run),
            "--set",
            &setting,
        ]);
        let (events, _) = read_events(&run).unwrap();
        let mut turns: Vec<_> = events
            .into_iter()
            .filter_map(|recorded| match recorded.event {
                // The weights are the same up to the first update; rounding may part them later.
                Event::TurnGenerated(turn) if turn.id.step == 0 => Some(turn),
                _ => None,
            })
            .collect();
        turns.sort_by_key(|turn| (turn.id, turn.turn));
        all.push(turns);
    }
    assert!(all[0].len() > 8, "{} turns", all[0].len());
    assert_eq!(all[0], all[1]);
}

#[test]
fn a_full_disk_stops_the_run_and_says_how_to_go_on() {
    // Needs a small file system of its own, so it runs where that can be mounted (as root).
    let folder = tempfile::tempdir().unwrap();
    let disk = folder.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=400k", "tmpfs", text(&disk)])
        .stderr(Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        println!(
            "no file system could be mounted here; the writer's own test covers a full device"
        );
        return;
    }
    let run = disk.join("run");
    let full = output(&["--experiment", SMOKE, "--run-dir", text(&run)]);
    let said = String::from_utf8_lossy(&full.stderr).into_owned();
    let grown = Command::new("mount")
        .args(["-o", "remount,size=64m", text(&disk)])
        .status()
        .unwrap();
    let resumed = output(&["--resume", text(&run)]);
    let resumed_said = String::from_utf8_lossy(&resumed.stderr).into_owned();
    Command::new("umount").arg(&disk).status().unwrap();
    assert_eq!(full.status.code(), Some(1), "{said}");
    assert!(said.contains("full") && said.contains("--resume"), "{said}");
    assert!(grown.success());
    assert!(resumed.status.success(), "{resumed_said}");
}

#[test]
fn a_finished_run_is_left_alone_and_a_lost_pointer_is_no_new_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    finish(&["--experiment", SMOKE, "--run-dir", text(&run)]);
    let events = std::fs::read(run.join("events.jsonl")).unwrap();
    let again = output(&["--resume", text(&run)]);
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(
        again.status.success() && said.contains("finished"),
        "{said}"
    );
    assert!(
        events == std::fs::read(run.join("events.jsonl")).unwrap(),
        "a finished run was changed"
    );
    let refused = output(&["--resume", text(&run), "--set", "seed=9"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("--set changes seed"),
        "{said}"
    );
    // More steps go on from the newest checkpoint, even if nothing points at it.
    std::fs::remove_file(run.join("checkpoints/latest")).unwrap();
    let more = output(&["--resume", text(&run), "--set", "learner.steps=3"]);
    let said = String::from_utf8_lossy(&more.stderr).into_owned();
    assert!(
        more.status.success() && said.contains("step-00002"),
        "{said}"
    );
}

#[test]
fn an_interrupt_in_the_last_evaluation_is_no_finish() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let arguments = [
        "--experiment",
        SMOKE,
        "--run-dir",
        text(&run),
        "--set",
        "evaluation.questions=400",
    ];
    let child = palimpsest(&arguments).spawn().unwrap();
    for _ in 0..1200 {
        let last = std::fs::read_to_string(run.join("checkpoints/latest")).unwrap_or_default();
        if last.trim() == "step-00002" {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    let done = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    let finished = run.join("checkpoints/final").exists();
    assert_eq!(
        done.status.code(),
        Some(if finished { 0 } else { 130 }),
        "{said}"
    );
    if !finished {
        finish(&["--resume", text(&run)]);
        assert!(run.join("checkpoints/final").exists());
    }
}

//! What the window has to survive.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use eframe::egui::{Key, Role};
use palimpsest::gui::{Health, Tab};
use palimpsest::record::{Event, Follower, RecordWriter, RunFolder, TokenBlock, TurnEvent};
use palimpsest::trajectory::{Action, Outcome, StopReason, TrajectoryId};

use crate::sample_run::start;
use crate::support::{all_text, labels, press, sample, show, window, window_of};

fn every_tab(harness: &mut egui_kittest::Harness<'static, palimpsest::gui::Window>) {
    for tab in Tab::ALL {
        show(harness, tab);
    }
}

#[test]
fn an_empty_window_offers_what_can_be_done() {
    let mut harness = window(&[]);
    let text = all_text(&harness);
    assert!(
        text.contains("No run is open") && text.contains("Open a run..."),
        "{text}"
    );
    every_tab(&mut harness);
    for command in palimpsest::gui::Command::ALL {
        if !matches!(
            command,
            palimpsest::gui::Command::Quit | palimpsest::gui::Command::Export
        ) {
            harness.state_mut().world.todo.push(command);
        }
    }
    harness.run_steps(4);
}

#[test]
fn a_torn_last_line_is_told_and_everything_before_it_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let mut file = fs::OpenOptions::new()
        .append(true)
        .open(run.join("events.jsonl"))
        .unwrap();
    file.write_all(br#"{"seq":99,"kind":"turn_gen"#).unwrap();
    let harness = window(&[&run]);
    assert_eq!(labels(&harness, Role::ListItem).len(), 2);
    assert!(all_text(&harness).contains("last line of events.jsonl has no end"));
}

#[test]
fn a_run_of_a_newer_schema_is_refused_with_the_version_that_opens_it() {
    let folder = tempfile::tempdir().unwrap();
    let line = r#"{"seq":0,"kind":"run_started","schema":9,"name":"a","seed":0,"version":"7.0.0","experiment":"x"}"#;
    fs::write(folder.path().join("events.jsonl"), format!("{line}\n")).unwrap();
    let mut harness = window(&[folder.path()]);
    let text = all_text(&harness);
    assert!(
        text.contains("cannot be opened") && text.contains("palimpsest 7.0.0 or later"),
        "{text}"
    );
    every_tab(&mut harness);
}

#[test]
fn a_folder_that_is_no_run_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let harness = window(&[folder.path()]);
    assert!(all_text(&harness).contains("events.jsonl is missing"));
}

#[test]
fn a_folder_that_vanishes_leaves_what_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let mut harness = window(&[&run]);
    fs::remove_dir_all(&run).unwrap();
    let lost = |harness: &egui_kittest::Harness<'_, palimpsest::gui::Window>| {
        matches!(harness.state().world.run().unwrap().health, Health::Lost(_))
    };
    for _ in 0..200 {
        harness.run_steps(1);
        if lost(&harness) {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(lost(&harness));
    harness.run_steps(2);
    assert!(
        all_text(&harness).contains("what was read stays"),
        "{}",
        all_text(&harness)
    );
    assert_eq!(labels(&harness, Role::ListItem).len(), 2);
    every_tab(&mut harness);
}

#[test]
fn a_run_without_trajectories_says_that_it_waits() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunFolder::create(folder.path(), "empty").unwrap();
    let words = ["a".to_owned()];
    drop(RecordWriter::create(&run, &start(&words)).unwrap());
    let path = run.path().to_path_buf();
    let mut harness = window(&[&path]);
    assert!(all_text(&harness).contains("Nothing to show yet"));
    every_tab(&mut harness);
}

#[test]
fn small_windows_and_double_size_still_show_every_panel() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 3);
    for (size, zoom) in [
        ([900.0, 600.0], 1.0),
        ([1400.0, 900.0], 2.0),
        ([900.0, 600.0], 2.0),
        ([480.0, 360.0], 1.0),
    ] {
        let mut harness = window_of(size, &[&run]);
        harness.ctx.set_zoom_factor(zoom);
        harness.run_steps(3);
        every_tab(&mut harness);
        show(&mut harness, Tab::Tokens);
        assert!(
            labels(&harness, Role::ListItem)
                .iter()
                .any(|line| line.contains("tokens ")),
            "{size:?} at {zoom}: {}",
            all_text(&harness)
        );
    }
}

/// Writes trajectories with so many tokens each.
pub fn write_long(folder: &Path, members: u32, tokens: usize) -> std::path::PathBuf {
    let run = RunFolder::create(folder, "long").unwrap();
    let words: Vec<String> = [
        "<mem>",
        "</mem>",
        "<think>",
        "</think>",
        "<answer>",
        "</answer>",
    ]
    .into_iter()
    .map(str::to_owned)
    .chain((0..500).map(|number| format!(" word{number}")))
    .collect();
    let mut writer = RecordWriter::create(&run, &start(&words)).unwrap();
    for member in 0..members {
        let id = TrajectoryId {
            member,
            ..TrajectoryId::default()
        };
        let mut block = TokenBlock {
            id,
            ..TokenBlock::default()
        };
        for token in 0..tokens {
            // Twenty turns: notes, then an answer.
            let place = token % (tokens / 20);
            let last = tokens / 20 - 1;
            block.ids.push(match place {
                0 => 0,
                20 => 1,
                21 => 2,
                22 => 3,
                23 => 4,
                place if place == last => 5,
                place => 6 + (place as u32 * 7 + member) % 500,
            });
            block.turn.push((token / (tokens / 20)) as u32);
            block.mask.push(true);
            block.sampled.push(-0.5);
            block.learner.push(-0.4);
            block.outcome.push(0.25);
            block.memory.push(if place <= 20 { 0.5 } else { 0.0 });
            block.kl.push(0.0);
            block.entropy.push(0.7);
            block.weight.push(if place <= 20 { 0.75 } else { 0.25 });
        }
        let at = writer.append_tokens(&block).unwrap();
        for turn in 0..20 {
            let turn = TurnEvent {
                id,
                turn,
                text: "<mem> word1</mem><think></think><search> x</search>".into(),
                tokens: (tokens / 20) as u32,
                context_tokens: 10,
                notes: Some(" word1".into()),
                action: Some(Action::Search(" x".into())),
                broken: None,
            };
            writer.append(&Event::TurnGenerated(turn)).unwrap();
        }
        let reason = StopReason::TurnLimit;
        writer
            .append(&Event::TrajectoryTerminated {
                id,
                reason,
                outcome: Outcome::default(),
            })
            .unwrap();
        let event = Event::CreditAssigned {
            id,
            outcome: 0.25,
            kl: 0.0,
            memory: Vec::new(),
            scores: Vec::new(),
            tokens: vec![at],
        };
        writer.append(&event).unwrap();
    }
    writer.sync().unwrap();
    run.path().to_path_buf()
}

#[test]
fn sixty_four_rollouts_of_four_thousand_tokens_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let run = write_long(folder.path(), 64, 4096 / 20 * 20);
    let mut harness = window(&[&run]);
    // Only what is on the screen is made.
    let lanes = labels(&harness, Role::ListItem).len();
    assert!((4..=20).contains(&lanes), "{lanes} lanes of 64");
    press(&mut harness, Key::Num2);
    let lines = labels(&harness, Role::ListItem).len();
    assert!((10..=80).contains(&lines), "{lines} lines on the screen");
    every_tab(&mut harness);
}

#[test]
fn a_run_that_is_written_at_a_thousand_events_a_second_is_followed_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunFolder::create(folder.path(), "busy").unwrap();
    let words = ["a".to_owned()];
    let mut writer = RecordWriter::create(&run, &start(&words)).unwrap();
    let path = run.path().to_path_buf();
    let mut harness = window(&[&path]);
    let written = std::thread::spawn(move || {
        let _held = run;
        for number in 0..3000u32 {
            let id = TrajectoryId {
                group: number / 8,
                member: number % 8,
                ..TrajectoryId::default()
            };
            let turn = TurnEvent {
                id,
                turn: 0,
                text: format!("turn {number}"),
                tokens: 3,
                context_tokens: 3,
                notes: None,
                action: None,
                broken: None,
            };
            writer.append(&Event::TurnGenerated(turn)).unwrap();
            if number % 10 == 0 {
                writer.flush().unwrap();
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        writer.sync().unwrap();
    });
    let count = |harness: &egui_kittest::Harness<'_, palimpsest::gui::Window>| {
        harness.state().world.run().unwrap().view.trajectories.len()
    };
    let mut seen = Vec::new();
    for _ in 0..1200 {
        harness.run_steps(1);
        seen.push(count(&harness));
        if count(&harness) == 3000 {
            break;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    written.join().unwrap();
    assert_eq!(seen.last(), Some(&3000), "everything is there in the end");
    assert!(
        seen.iter().any(|count| (1..3000).contains(count)),
        "and it came bit by bit"
    );
}

#[test]
fn a_resume_makes_what_was_read_void() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 3);
    let mut follower = Follower::new(&run);
    let mut first = palimpsest::record::RunView::default();
    let drain = |follower: &mut Follower, view: &mut palimpsest::record::RunView| loop {
        let news = follower.poll().unwrap();
        if news.restart {
            *view = palimpsest::record::RunView::default();
        }
        for event in &news.events {
            view.apply(event);
        }
        for line in &news.metrics {
            view.apply_metrics(line.step, &line.metrics);
        }
        if !news.more {
            return;
        }
    };
    drain(&mut follower, &mut first);
    assert_eq!(first.trajectories.len(), 6);
    let opened = RunFolder::open(&run).unwrap();
    drop(RecordWriter::reopen(&opened, 130, 0, 120, false).unwrap());
    drain(&mut follower, &mut first);
    let whole = palimpsest::record::RunRecord::read(&opened).unwrap().view();
    assert_eq!(first, whole, "following ends where reading at once does");
    assert!(first.trajectories.len() < 6);
}

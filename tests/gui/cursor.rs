//! Every panel obeys the one cursor, and following survives a look at another run.

use std::time::Duration;

use eframe::egui::{Key, Modifiers, Role};
use palimpsest::gui::Tab;
use palimpsest::record::{RecordWriter, RunFolder};

use crate::support::{all_text, labels, press, press_with, sample, show, window};

#[test]
fn before_a_rollout_has_ended_no_panel_tells_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let mut harness = window(&[&run]);
    let told = |text: &str| {
        text.contains("right 1.00")
            || text.contains("mean 0.50")
            || text.contains("memory advantage")
    };
    assert!(told(&all_text(&harness)));
    press(&mut harness, Key::Home);
    let text = all_text(&harness);
    assert!(!told(&text), "{text}");
    assert!(
        text.contains("0/2 done") && text.contains("at event"),
        "{text}"
    );
    let bars = labels(&harness, Role::Button);
    let counted = bars
        .iter()
        .filter(|bar| bar.starts_with("reward ") && !bar.ends_with(": 0 rollouts"));
    assert_eq!(counted.count(), 0, "{bars:?}");
    show(&mut harness, Tab::Memory);
    let cards = labels(&harness, Role::Group);
    let cards = cards
        .iter()
        .filter(|card| card.starts_with("notes of turn"));
    assert_eq!(cards.count(), 1);
    assert!(!told(&all_text(&harness)));
    show(&mut harness, Tab::Tokens);
    let text = all_text(&harness);
    assert!(text.contains("was not known yet"), "{text}");
    show(&mut harness, Tab::Watch);
    press(&mut harness, Key::ArrowDown);
    let text = all_text(&harness);
    assert!(text.contains("had written nothing yet"), "{text}");
    press(&mut harness, Key::End);
    assert!(told(&all_text(&harness)));
}

#[test]
fn looking_at_another_run_does_not_end_following() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 3);
    let other = sample(&folder.path().join("other"), 2);
    let mut harness = window(&[&run, &other]);
    press(&mut harness, Key::Home);
    press_with(&mut harness, Modifiers::COMMAND, Key::E);
    let world = &harness.state().world;
    assert_eq!((world.current, world.follow), (1, true));
    assert_eq!(
        world.cursor,
        palimpsest::gui::Cursor::Live,
        "an event of one run is none of another"
    );
    press_with(&mut harness, Modifiers::COMMAND, Key::ArrowLeft);
    assert!(!harness.state().world.follow, "a chosen step does");
}

#[test]
fn a_resume_says_what_became_void_and_leaves_what_is_selected() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 3);
    let mut harness = window(&[&run]);
    for _ in 0..2 {
        press_with(&mut harness, Modifiers::COMMAND, Key::ArrowLeft);
    }
    let selected = harness.state().world.selection.id;
    assert_eq!(selected.step, 0);
    let opened = RunFolder::open(&run).unwrap();
    drop(RecordWriter::reopen(&opened, 150, 0, 120, false).unwrap());
    for _ in 0..400 {
        harness.run_steps(1);
        if harness.state().world.run().unwrap().view.resumes > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    harness.run_steps(3);
    let text = all_text(&harness);
    assert!(text.contains("became void"), "{text}");
    assert!(
        text.contains("The run was resumed: events 151 to"),
        "{text}"
    );
    let world = &harness.state().world;
    let there = world
        .run()
        .unwrap()
        .view
        .trajectories
        .contains_key(&selected);
    assert!(there, "the first step was before the checkpoint");
    assert_eq!(world.selection.id, selected);
}

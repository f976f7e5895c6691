//! A run and its window in one process: pause, step, fork, stop; and nothing of it changes the run.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use palimpsest::engine::EngineLink;
use palimpsest::engine::scripted::ScriptedEngine;
use palimpsest::experiment::Experiment;
use palimpsest::gui::{Live, ThemePreference, Window};
use palimpsest::record::RunStatus;
use palimpsest::run::{
    Aside, AsideAnswer, Controls, Origin, Pace, Started, build_app, plugins, run_to_end,
};
use palimpsest::task::Task;
use palimpsest::tools::Interrupts;
use palimpsest::trajectory::TrajectoryId;

use crate::common::{Player, play, run, small_experiment};
use crate::support::{all_text, click};

/// A run in a thread of its own, held at its first tick.
fn begin(
    folder: &Path,
    experiment: Experiment,
) -> (Controls, Interrupts, std::thread::JoinHandle<RunStatus>) {
    let controls = Controls::default();
    let interrupts = Interrupts::default();
    controls.set(Pace::Paused);
    let (held, stop, folder) = (controls.clone(), interrupts.clone(), folder.to_path_buf());
    let thread = std::thread::spawn(move || {
        let task: Arc<dyn Task> = Arc::from(
            palimpsest::task::load(
                &experiment.task,
                None,
                &palimpsest::retrieval::no_dense,
                &mut |_, _, _| {},
            )
            .unwrap(),
        );
        let text = experiment.to_ron();
        let started = Started::new(
            &Origin::At(folder),
            experiment,
            &text,
            Arc::clone(&task),
            &[],
        )
        .unwrap();
        let link = EngineLink::start(move || {
            Ok(ScriptedEngine::new(Arc::new(move |request| {
                play(task.as_ref(), Player::Careless, request)
            })))
        })
        .unwrap();
        let mut app = build_app(started.launch, link, stop, plugins()).unwrap();
        app.insert_resource(held.clone());
        let status = run_to_end(&mut app).unwrap();
        held.end();
        status
    });
    (controls, interrupts, thread)
}

/// Waits until something is so.
fn until(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..2400 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    panic!("never: {what}");
}

/// Steps tick by tick until a trajectory has finished a turn with a tool answer.
fn step_until_forkable(controls: &Controls) -> TrajectoryId {
    for _ in 0..200 {
        let told = controls.told();
        let ready = told.lanes.iter().find(|(id, lane)| {
            id.purpose == palimpsest::trajectory::Purpose::Train && lane.turns >= 2
        });
        if let Some((id, _)) = ready {
            return *id;
        }
        controls.set(Pace::Ticks(1));
        until("the tick is done", || controls.pace() == Pace::Paused);
    }
    panic!("no rollout came to its second turn");
}

#[test]
fn pausing_stepping_forking_and_scoring_aside_change_nothing_in_the_record() {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    run(&plain, small_experiment(), Player::Careless, false);
    let watched = folder.path().join("watched");
    let (controls, _, thread) = begin(&watched, small_experiment());
    let id = step_until_forkable(&controls);
    controls.ask(Aside::Fork {
        id,
        turn: 0,
        notes: Some(" nothing at all;".into()),
        tool: None,
        number: 1,
    });
    controls.ask(Aside::WithoutNotes { id, turn: 0 });
    until("both are answered", || controls.told().asides.len() == 2);
    let told = controls.told();
    match &told.asides[0].1 {
        Ok(AsideAnswer::Forked { turns, .. }) => assert!(!turns.is_empty()),
        other => panic!("{other:?}"),
    }
    match &told.asides[1].1 {
        // The scripted engine gives every token the same log-prob, so nothing is lost.
        Ok(AsideAnswer::WithoutNotes { with, without }) => assert!((with - without).abs() < 1e-6),
        other => panic!("{other:?}"),
    }
    controls.set(Pace::Until(id, None));
    until("its state changed", || controls.pace() == Pace::Paused);
    controls.set(Pace::Free);
    assert_eq!(thread.join().unwrap(), RunStatus::Finished);
    for file in ["events.jsonl", "tokens.bin"] {
        let bytes = |run: &Path| std::fs::read(run.join(file)).unwrap();
        assert!(bytes(&plain) == bytes(&watched), "{file} differs");
    }
}

#[test]
fn a_fork_that_cannot_be_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let (controls, interrupts, thread) = begin(&folder.path().join("run"), small_experiment());
    let stranger = TrajectoryId {
        step: 77,
        ..TrajectoryId::default()
    };
    controls.ask(Aside::Fork {
        id: stranger,
        turn: 0,
        notes: None,
        tool: None,
        number: 1,
    });
    until("it is answered", || !controls.told().asides.is_empty());
    let why = controls.told().asides[0].1.clone().unwrap_err();
    assert!(why.contains("forgotten"), "{why}");
    interrupts.request();
    assert_eq!(
        thread.join().unwrap(),
        RunStatus::Stopped,
        "an interrupt ends a pause"
    );
}

#[test]
fn the_window_pauses_steps_and_stops_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    let (controls, interrupts, thread) = begin(&path, small_experiment());
    until("the folder is there", || {
        path.join("events.jsonl").is_file()
    });
    let mut harness = egui_kittest::Harness::builder()
        .with_size([1400.0, 900.0])
        .build_eframe(|creation| Window::new(&creation.egui_ctx, ThemePreference::Light).unwrap());
    harness.state_mut().world.open(&path);
    harness.state_mut().world.live = Some(Live::new(controls.clone(), interrupts));
    harness.run_steps(3);
    let text = all_text(&harness);
    assert!(text.contains("paused") && text.contains("Go on"), "{text}");
    click(&mut harness, "One step");
    until("one tick was done", || controls.pace() == Pace::Paused);
    let id = step_until_forkable(&controls);
    until("the window has it", || {
        let told = controls.told();
        told.lanes.contains_key(&id)
    });
    for _ in 0..40 {
        harness.run_steps(1);
        std::thread::sleep(Duration::from_millis(25));
    }
    harness.state_mut().world.selection = palimpsest::gui::Selection::of(id);
    harness.run_steps(3);
    click(&mut harness, "turn 0");
    let text = all_text(&harness);
    assert!(
        text.contains("turns and") && text.contains("tokens left"),
        "{text}"
    );
    // The engine has this rollout, so it can be asked before there is any credit.
    crate::support::show(&mut harness, palimpsest::gui::Tab::Memory);
    click(&mut harness, "What if these notes were empty?");
    until("the notes were scored", || controls.told().answered == 1);
    harness.run_steps(4);
    let text = all_text(&harness);
    assert!(text.contains("had the notes been empty"), "{text}");
    crate::support::press(&mut harness, eframe::egui::Key::E);
    until("a key asks it too", || controls.told().answered == 2);
    crate::support::show(&mut harness, palimpsest::gui::Tab::Watch);
    harness
        .state_mut()
        .world
        .todo
        .push(palimpsest::gui::Command::Fork);
    harness.run_steps(3);
    assert!(
        all_text(&harness).contains("It is not trained on"),
        "{}",
        all_text(&harness)
    );
    click(&mut harness, "Go on from here");
    until("the fork is answered", || controls.told().answered == 3);
    harness.run_steps(4);
    let text = all_text(&harness);
    assert!(
        text.contains("nothing edited, sampled again: not trained on, not recorded"),
        "{text}"
    );
    assert!(
        text.contains("side by side") && text.contains("What came in the run"),
        "{text}"
    );
    assert!(
        !text.contains(&format!("fork of {id}")),
        "places are named as everywhere: {text}"
    );
    click(&mut harness, "Stop");
    assert_eq!(thread.join().unwrap(), RunStatus::Stopped);
    harness.run_steps(3);
    assert!(harness.state().world.live.as_ref().unwrap().over());
    let text = all_text(&harness);
    assert!(
        text.contains("over, ") && !text.contains("rolling out"),
        "{text}"
    );
}

#[test]
fn without_an_engine_the_question_what_if_says_what_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let run = crate::support::sample(folder.path(), 2);
    let mut harness = crate::support::window(&[&run]);
    crate::support::show(&mut harness, palimpsest::gui::Tab::Memory);
    let buttons = crate::support::labels(&harness, eframe::egui::Role::Button);
    let asked = buttons
        .iter()
        .filter(|label| label.starts_with("What if these notes were empty?"));
    let asked: Vec<&String> = asked.collect();
    assert_eq!(asked.len(), 3, "one a turn: {buttons:?}");
    assert!(asked[0].contains("This needs an engine"), "{asked:?}");
}

#[test]
fn a_fork_without_an_engine_says_what_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let run = crate::support::sample(folder.path(), 2);
    let mut harness = crate::support::window(&[&run]);
    harness
        .state_mut()
        .world
        .todo
        .push(palimpsest::gui::Command::Fork);
    harness.run_steps(3);
    assert!(
        all_text(&harness).contains("start the run with --gui"),
        "{}",
        all_text(&harness)
    );
}

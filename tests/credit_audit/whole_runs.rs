//! The audit inside a run: what a fault does, and when it is found.

use std::path::Path;
use std::sync::Arc;

use bevy_app::{App, Update};
use bevy_ecs::prelude::*;
use palimpsest::credit::signal::OutcomeSilence;
use palimpsest::engine::scripted::ScriptedEngine;
use palimpsest::engine::{EngineInbox, EngineLink};
use palimpsest::experiment::{Audit, Experiment};
use palimpsest::learner::Updated;
use palimpsest::record::{Event, RunStatus, read_events};
use palimpsest::run::{Origin, Started, build_app, plugins, run_to_end};
use palimpsest::schedule::PalimpsestSystems;
use palimpsest::task::Task;
use palimpsest::tools::Interrupts;

use crate::common::{Player, play, small_experiment};

/// Moves the weights of every row of the update by one token before it is audited.
fn shift_weights(mut updated: ResMut<Updated>) {
    for row in updated.batch.iter_mut().flat_map(|batch| &mut batch.rows) {
        row.advantages.rotate_right(1);
    }
}

fn shifted(app: &mut App) {
    let between = shift_weights
        .after(PalimpsestSystems::Pack)
        .before(PalimpsestSystems::Learn);
    app.add_systems(Update, between);
}

/// Deals the first row of the update to no mini-batch.
fn lose_a_row(mut updated: ResMut<Updated>) {
    for rows in updated
        .batch
        .iter_mut()
        .flat_map(|batch| &mut batch.mini_batches)
    {
        rows.retain(|&row| row != 0);
    }
}

fn lost(app: &mut App) {
    let between = lose_a_row
        .after(PalimpsestSystems::Pack)
        .before(PalimpsestSystems::Learn);
    app.add_systems(Update, between);
}

/// Claims that every token was sampled with another log-prob than the engine says, as far as the
/// audit of the report can see.
fn drift(mut inbox: ResMut<EngineInbox>) {
    for row in inbox
        .learned
        .iter_mut()
        .flat_map(|report| &mut report.logprobs)
    {
        for logprob in row.iter_mut().filter(|logprob| **logprob != 0.0) {
            *logprob += 0.05;
        }
    }
}

fn drifted(app: &mut App) {
    let before = drift
        .after(PalimpsestSystems::Receive)
        .before(PalimpsestSystems::Advance);
    app.add_systems(Update, before);
}

fn run(
    folder: &Path,
    experiment: Experiment,
    player: Player,
    more: Option<fn(&mut App)>,
) -> (Result<RunStatus, String>, Vec<Event>) {
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
    let origin = Origin::At(folder.to_path_buf());
    let started = Started::new(&origin, experiment, &text, Arc::clone(&task), &[]).unwrap();
    let link = EngineLink::start(move || {
        Ok(ScriptedEngine::new(Arc::new(move |request| {
            play(task.as_ref(), player, request)
        })))
    })
    .unwrap();
    let mut wired = plugins();
    wired.extend(more);
    let mut app = build_app(started.launch, link, Interrupts::default(), wired).unwrap();
    let ended = run_to_end(&mut app).map_err(|error| error.to_string());
    drop(app);
    let (events, _) = read_events(folder).unwrap();
    (ended, events.into_iter().map(|event| event.event).collect())
}

fn learned(events: &[Event]) -> usize {
    let is = |event: &&Event| matches!(event, Event::Learned { .. });
    events.iter().filter(is).count()
}

fn troubles(events: &[Event]) -> Vec<String> {
    let of = |event: &Event| match event {
        Event::TroubleFound { what, .. } => Some(what.clone()),
        _ => None,
    };
    events.iter().filter_map(of).collect()
}

#[test]
fn a_mistake_stops_the_run_warns_or_passes_as_the_setting_says() {
    let folder = tempfile::tempdir().unwrap();
    let with = |audit: Audit, name: &str| {
        let mut experiment = small_experiment();
        experiment.record.audit = audit;
        let folder = folder.path().join(name);
        run(&folder, experiment, Player::Careless, Some(shifted))
    };
    let (ended, events) = with(Audit::Stop, "stop");
    let why = ended.unwrap_err();
    for part in [
        "step 1: the credit audit failed",
        "trajectory 0/",
        "turn ",
        "token ",
        "the update was not sent",
    ] {
        assert!(why.contains(part), "{part:?} is missing in {why}");
    }
    assert!(troubles(&events)[0].contains("the credit audit failed"));
    let failed = RunStatus::Failed;
    assert_eq!(events.last(), Some(&Event::RunEnded { status: failed }));
    assert_eq!(
        learned(&events),
        0,
        "a faulty update never reaches the weights"
    );

    let (ended, events) = with(Audit::Warn, "warn");
    assert_eq!(ended, Ok(RunStatus::Finished));
    assert_eq!(troubles(&events).len(), 2, "one a step");
    assert_eq!(learned(&events), 2);

    let (ended, events) = with(Audit::Off, "off");
    assert_eq!(
        (ended, troubles(&events).len()),
        (Ok(RunStatus::Finished), 0)
    );
}

#[test]
fn the_mini_batches_that_are_sent_are_audited_and_so_is_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let with = |mistake: fn(&mut App), limit: f32, name: &str| {
        let mut experiment = small_experiment();
        experiment.record.audit_ratio = limit;
        let folder = folder.path().join(name);
        run(&folder, experiment, Player::Careless, Some(mistake))
    };
    let (ended, events) = with(lost, 0.01, "lost");
    let why = ended.unwrap_err();
    assert!(
        why.contains("rows were written") && why.contains("not sent"),
        "{why}"
    );
    assert_eq!(learned(&events), 0);
    let (ended, _) = with(drifted, 0.01, "drifted");
    let why = ended.unwrap_err();
    assert!(why.contains("|ratio - 1| is 0.0513"), "{why}");
    assert!(why.contains("nothing of this update is saved"), "{why}");
    // As far as the setting allows.
    let (ended, _) = with(drifted, 0.1, "allowed");
    assert_eq!(ended, Ok(RunStatus::Finished));
}

#[test]
fn a_step_without_gradient_says_which_groups_and_why() {
    let folder = tempfile::tempdir().unwrap();
    let mut experiment = small_experiment();
    experiment.credit = palimpsest::experiment::CreditSettings::grpo();
    let (ended, events) = run(
        &folder.path().join("run"),
        experiment,
        Player::Perfect,
        None,
    );
    assert_eq!(ended, Ok(RunStatus::Finished));
    let silent: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            Event::SignalMissing { step, groups, dead } => Some((*step, *groups, dead)),
            _ => None,
        })
        .collect();
    assert_eq!(silent.len(), 2);
    for (number, (step, groups, dead)) in (1..).zip(silent) {
        assert_eq!((step, groups, dead.len()), (number, 2, 2));
        assert!(
            dead.iter()
                .all(|group| group.outcome == OutcomeSilence::AllRight)
        );
    }
    assert_eq!(troubles(&events), Vec::<String>::new());
}

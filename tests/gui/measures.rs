//! Curves: which evaluations are shown, where a click leads, and runs that have had a cold start alone.

use std::path::{Path, PathBuf};

use eframe::egui::{Key, Role};
use egui_kittest::kittest::{By, Queryable as _};
use palimpsest::gui::Tab;
use palimpsest::record::{Event, Metrics, RecordWriter, RunFolder, TurnEvent};
use palimpsest::trajectory::{Purpose, TrajectoryId};

use crate::sample_run::{start, write_cold_start};
use crate::support::{all_text, click, labels, press, sample, scripted, show, window, window_of};

/// A run that was measured with three objectives often, and with six at its ends, and kept a rollout of
/// every evaluation.
fn measured(folder: &Path) -> PathBuf {
    let run = RunFolder::create(folder, "measured").unwrap();
    let words = ["a".to_owned()];
    let mut writer = RecordWriter::create(&run, &start(&words)).unwrap();
    for step in [0, 4, 8] {
        let id = TrajectoryId {
            step,
            purpose: Purpose::Evaluate,
            ..TrajectoryId::default()
        };
        let turn = TurnEvent {
            id,
            turn: 0,
            text: "x".into(),
            tokens: 1,
            context_tokens: 1,
            notes: None,
            action: None,
            broken: None,
        };
        writer.append(&Event::TurnGenerated(turn)).unwrap();
        let mut metrics = Metrics::default();
        metrics.set("val-core/lookup/em/full/3", f64::from(step) / 10.0);
        if step != 4 {
            metrics.set("val-core/lookup/em/full/6", 0.0);
        }
        metrics.set("critic/score/mean", 0.5);
        writer.append_metrics(step, &metrics).unwrap();
    }
    writer.sync().unwrap();
    run.path().to_path_buf()
}

fn chart(harness: &egui_kittest::Harness<'_, palimpsest::gui::Window>, title: &str) -> String {
    let charts = labels(harness, Role::Image);
    let found = charts.iter().find(|chart| chart.starts_with(title));
    found.cloned().unwrap_or_default()
}

#[test]
fn evaluations_made_while_training_are_shown_and_others_can_be_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let run = measured(folder.path());
    let mut harness = window(&[&run]);
    press(&mut harness, Key::Num4);
    let shown = chart(&harness, "Evaluation, exact match:");
    assert!(shown.contains("full/3 last 0.8000 at 8, rising"), "{shown}");
    click(&mut harness, "Evaluations of 3 objectives");
    click(&mut harness, "6 objectives");
    let shown = chart(&harness, "Evaluation, exact match:");
    assert!(shown.contains("full/6 last 0.0000"), "{shown}");
}

#[test]
fn a_click_into_an_evaluation_leads_to_its_rollouts() {
    let folder = tempfile::tempdir().unwrap();
    let run = measured(folder.path());
    let mut harness = window(&[&run]);
    press(&mut harness, Key::Num4);
    let title = By::new().predicate(|node| {
        node.label()
            .is_some_and(|label| label.starts_with("Evaluation, exact match:"))
    });
    harness.query_all(title).next().unwrap().click();
    harness.run_steps(3);
    let world = &harness.state().world;
    assert_eq!(world.tab, Tab::Watch);
    let id = world.selection.id;
    assert_eq!((id.purpose, id.step), (Purpose::Evaluate, 4));
    assert!(all_text(&harness).contains("The rollouts of evaluation after 4"));
}

#[test]
fn charts_name_their_metrics_and_can_be_pinned() {
    let folder = tempfile::tempdir().unwrap();
    let run = measured(folder.path());
    let mut harness = window(&[&run]);
    press(&mut harness, Key::Num4);
    assert!(all_text(&harness).contains("critic/score/mean"));
    let count = |harness: &egui_kittest::Harness<'_, palimpsest::gui::Window>| {
        let charts = labels(harness, Role::Image);
        charts.iter().filter(|of| of.starts_with("Reward:")).count()
    };
    assert_eq!(count(&harness), 1);
    click(&mut harness, "Pin Reward");
    assert_eq!(count(&harness), 2, "it stands at its place, and above all");
}

#[test]
fn the_reward_has_a_band_over_its_groups() {
    let folder = tempfile::tempdir().unwrap();
    let run = scripted(folder.path(), |_| {});
    let mut harness = window(&[&run]);
    press(&mut harness, Key::Num4);
    let shown = chart(&harness, "Reward:");
    assert!(shown.contains(", band "), "{shown}");
}

#[test]
fn a_run_that_had_a_cold_start_alone_shows_it() {
    let folder = tempfile::tempdir().unwrap();
    let run = RunFolder::create(folder.path(), "cold").unwrap();
    let words = ["a".to_owned()];
    let mut writer = RecordWriter::create(&run, &start(&words)).unwrap();
    write_cold_start(&mut writer, 30);
    writer.sync().unwrap();
    drop(writer);
    let path = run.path().to_path_buf();
    let mut harness = window_of([1400.0, 1400.0], &[&path]);
    let text = all_text(&harness);
    assert!(
        text.contains("30 steps of cold start, and no rollout"),
        "{text}"
    );
    assert!(!text.contains("passes the filter"), "{text}");
    show(&mut harness, Tab::Curves);
    let shown = chart(&harness, "Cold start, loss:");
    assert!(
        shown.contains("full/loss last") && shown.contains("falling"),
        "{shown}"
    );
    assert!(!all_text(&harness).contains("not written by this run"));
}

#[test]
fn a_filter_of_rewards_leads_to_the_groups_that_match() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let mut harness = window(&[&run]);
    press(&mut harness, Key::ArrowDown);
    assert_eq!(harness.state().world.selection.id.member, 1);
    click(&mut harness, "reward 0.92 to 1.00: 1 rollouts");
    assert_eq!(
        harness.state().world.selection.id.member,
        0,
        "the selected rollout passes the filter"
    );
    let text = all_text(&harness);
    assert!(text.contains("group 0   1 of 2 match"), "{text}");
    press(&mut harness, Key::F);
    assert!(!all_text(&harness).contains("of 2 match"));
}

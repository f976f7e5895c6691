//! Every panel, by what it says.

use std::path::Path;

use eframe::egui::{Key, Modifiers, Role};
use egui_kittest::kittest::Queryable as _;
use palimpsest::gui::{Cursor, Tab};

use crate::support::{
    all_text, click, labels, press, press_with, sample, scripted, show, window, window_of,
};

#[test]
fn watch_lists_groups_rollouts_and_what_they_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 4);
    let mut harness = window(&[&run]);
    let lanes = labels(&harness, Role::ListItem);
    assert_eq!(
        lanes,
        [
            "rollout 0, 3 turns, right 1.00  adv +0.60",
            "rollout 1, 3 turns, wrong 0.00  adv -0.90"
        ],
    );
    let text = all_text(&harness);
    assert!(text.contains("capital of Peru"), "{text}");
    click(&mut harness, "rollout 1,");
    assert_eq!(harness.state().world.selection.id.member, 1);
    assert!(all_text(&harness).contains("Cusco"));
    press(&mut harness, Key::ArrowUp);
    assert_eq!(harness.state().world.selection.id.member, 0);
}

#[test]
fn a_click_on_the_histogram_keeps_the_rollouts_of_that_reward() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let mut harness = window(&[&run]);
    assert_eq!(labels(&harness, Role::ListItem).len(), 2);
    click(&mut harness, "reward 0.92 to 1.00: 1 rollouts");
    assert!(harness.state().world.filter.is_some());
    let lanes = labels(&harness, Role::ListItem);
    assert_eq!(lanes.len(), 1, "{lanes:?}");
    assert!(lanes[0].contains("right"));
    press(&mut harness, Key::F);
    assert_eq!(labels(&harness, Role::ListItem).len(), 2);
}

#[test]
fn trouble_leads_to_its_cause() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 4);
    let mut harness = window(&[&run]);
    press(&mut harness, Key::Num2);
    click(&mut harness, "the tool <search> found nothing");
    let world = &harness.state().world;
    assert_eq!(
        (
            world.tab,
            world.selection.id.step,
            world.selection.id.member
        ),
        (Tab::Watch, 0, 1)
    );
    click(&mut harness, "step 2, group 1: no gradient");
    assert_eq!(harness.state().world.selection.id.step, 1);
}

#[test]
fn the_cursor_walks_through_events_and_the_panels_obey() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let mut harness = window(&[&run]);
    press(&mut harness, Key::Home);
    assert!(matches!(harness.state().world.cursor, Cursor::At(_)));
    let lanes = labels(&harness, Role::ListItem);
    assert!(lanes[0].starts_with("rollout 0, 1 turns"), "{lanes:?}");
    assert!(lanes[1].starts_with("rollout 1, 0 turns"), "{lanes:?}");
    press(&mut harness, Key::ArrowRight);
    press(&mut harness, Key::ArrowRight);
    assert!(labels(&harness, Role::ListItem)[0].starts_with("rollout 0, 2 turns"));
    press(&mut harness, Key::End);
    assert_eq!(harness.state().world.cursor, Cursor::Live);
    // Space plays the record from the start of the step.
    press(&mut harness, Key::Space);
    assert!(harness.state().world.playing);
}

#[test]
fn tokens_have_labels_values_and_an_audit() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let mut harness = window(&[&run]);
    press(&mut harness, Key::Num2);
    let lines = labels(&harness, Role::ListItem);
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("turn 0, context") && line.contains("not trained")),
        "{lines:?}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("turn 1, notes") && line.contains("mean weight")),
        "{lines:?}"
    );
    assert!(
        all_text(&harness).contains("(ok)"),
        "{}",
        all_text(&harness)
    );
    assert!(
        labels(&harness, Role::Image)
            .iter()
            .any(|label| label.starts_with("Scale from"))
    );
    press(&mut harness, Key::V);
    assert!(
        labels(&harness, Role::ListItem)
            .iter()
            .any(|line| line.contains("mean outcome part"))
    );
    press(&mut harness, Key::G);
    assert!(all_text(&harness).contains("tag"));
    // The strongest token is pinned, and the details say all its numbers.
    press(&mut harness, Key::CloseBracket);
    assert!(harness.state().world.selection.token.is_some());
    let text = all_text(&harness);
    assert!(
        text.contains("pinned") && text.contains("p for the learner"),
        "{text}"
    );
    press(&mut harness, Key::D);
    assert!(
        labels(&harness, Role::ListItem).len() > lines.len(),
        "the sibling stands beside it"
    );
    press(&mut harness, Key::L);
    assert!(all_text(&harness).contains("lock range"));
}

#[test]
fn entropies_are_shown_where_they_are_recorded_and_asked_for_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    // The shipped lessons were recorded by version 2.
    let lessons = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/lessons");
    let old = folder.path().join("old");
    std::fs::create_dir(&old).unwrap();
    for file in [
        "late/events.jsonl",
        "late/experiment.ron",
        "late/tokens.bin",
        "vocab.json",
    ] {
        let from = lessons.join(file);
        std::fs::copy(&from, old.join(from.file_name().unwrap())).unwrap();
    }
    for (run, recorded) in [(run.as_path(), true), (old.as_path(), false)] {
        let mut harness = window(&[run]);
        press(&mut harness, Key::Num2);
        // From the weight to the entropy.
        for _ in 0..6 {
            press(&mut harness, Key::V);
        }
        let lines = labels(&harness, Role::ListItem);
        let shown = lines.iter().any(|line| line.contains("mean entropy +0.6"));
        assert_eq!(shown, recorded, "{lines:?}");
        let text = all_text(&harness);
        assert_eq!(
            text.contains("does not record the entropy"),
            !recorded,
            "{text}"
        );
    }
}

#[test]
fn evaluations_say_why_they_have_no_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let run = scripted(folder.path(), |_| {});
    let mut harness = window(&[&run]);
    for _ in 0..9 {
        press_with(&mut harness, Modifiers::COMMAND, Key::ArrowLeft);
    }
    let steps = harness.state().world.run().unwrap().steps();
    let evaluation = steps
        .iter()
        .find(|(purpose, _)| *purpose == palimpsest::trajectory::Purpose::Evaluate);
    let &(purpose, step) = evaluation.unwrap();
    let first = harness
        .state()
        .world
        .run()
        .unwrap()
        .members(purpose, step, None)[0];
    harness.state_mut().world.selection = palimpsest::gui::Selection::of(first);
    show(&mut harness, Tab::Memory);
    let text = all_text(&harness);
    let place = format!(
        "evaluation after step {step}, group {}, rollout 0",
        first.group
    );
    assert!(
        text.contains(&format!("{place}, full context")),
        "what the policy saw is told: {text}"
    );
    show(&mut harness, Tab::Tokens);
    assert!(all_text(&harness).contains("Evaluations are not trained on"));
    show(&mut harness, Tab::WhatIf);
    assert!(all_text(&harness).contains("Evaluations are not trained on"));
}

#[test]
fn memory_shows_notes_as_changes_with_rewards_and_facts() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let mut harness = window(&[&run]);
    press(&mut harness, Key::Num3);
    let cards = labels(&harness, Role::Group);
    let of = |turn: &str| {
        cards
            .iter()
            .find(|card| card.starts_with(&format!("notes of turn {turn}:")))
    };
    let first = of("1").unwrap();
    assert!(first.contains("added") && first.contains("Lima"), "{first}");
    assert!(first.contains("reward +0.40"), "{first}");
    let charts = labels(&harness, Role::Image);
    assert!(
        charts
            .iter()
            .any(|chart| chart.contains("P(answer | notes)")),
        "{charts:?}"
    );
    let text = all_text(&harness);
    assert!(
        text.contains("read in turn 0, written in turn 1, kept to the end"),
        "{text}"
    );
    press(&mut harness, Key::N);
    assert_eq!(harness.state().world.selection.turn, 1);
    assert!(all_text(&harness).contains("What turn 1 wrote"));
    press(&mut harness, Key::T);
    assert_eq!(
        harness.state().world.selection.turn,
        1,
        "no tool call comes after turn 1"
    );
}

#[test]
fn curves_tell_their_last_value_and_lead_to_rollouts() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 6);
    let other = sample(&folder.path().join("other"), 4);
    let mut harness = window(&[&run, &other]);
    press(&mut harness, Key::Num4);
    let charts = labels(&harness, Role::Image);
    let reward = charts
        .iter()
        .find(|chart| chart.starts_with("Reward:"))
        .unwrap();
    assert!(
        reward.contains("last") && reward.contains("rising"),
        "{reward}"
    );
    assert!(
        reward.matches("score/mean").count() == 2,
        "both runs: {reward}"
    );
    click(&mut harness, "bands over seeds");
    let charts = labels(&harness, Role::Image);
    let reward = charts
        .iter()
        .find(|chart| chart.starts_with("Reward:"))
        .unwrap();
    assert_eq!(
        reward.matches("score/mean").count(),
        1,
        "one line with a band: {reward}"
    );
    // A click into the chart selects its step.
    harness
        .query_all(egui_kittest::kittest::By::new().predicate(|node| {
            node.label()
                .is_some_and(|label| label.starts_with("Reward:"))
        }))
        .next()
        .unwrap()
        .click();
    harness.run_steps(3);
    assert_eq!(harness.state().world.tab, Tab::Watch);
}

#[test]
fn no_chart_is_empty_in_a_run_of_the_whole_app() {
    let folder = tempfile::tempdir().unwrap();
    let run = scripted(folder.path(), |_| {});
    let mut harness = window_of([1400.0, 3000.0], &[&run]);
    press(&mut harness, Key::Num4);
    let text = all_text(&harness);
    assert!(text.contains("Length of a rollout:"), "{text}");
    assert!(!text.contains("not written by this run"), "{text}");
}

#[test]
fn what_if_moves_weights_and_goes_back() {
    let folder = tempfile::tempdir().unwrap();
    let run = scripted(folder.path(), |_| {});
    let mut harness = window(&[&run]);
    press(&mut harness, Key::Num6);
    let text = all_text(&harness);
    assert!(
        text.contains(": 0 of "),
        "the recorded settings change nothing: {text}"
    );
    click(&mut harness, "memory credit");
    click(&mut harness, "outcome estimator");
    click(&mut harness, "Dr. GRPO");
    let text = all_text(&harness);
    assert!(!text.contains(": 0 of "), "{text}");
    press(&mut harness, Key::R);
    assert!(all_text(&harness).contains(": 0 of "));
}

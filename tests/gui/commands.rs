//! Commands: by key, by palette, by help; and the keyboard alone.

use std::collections::BTreeSet;

use eframe::egui::{Key, Modifiers, Theme};
use palimpsest::gui::{Command, Tab};

use crate::support::{all_text, click, press, press_with, sample, window};

#[test]
fn every_tab_has_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let mut harness = window(&[&run]);
    for (key, tab) in [
        (Key::Num2, Tab::Tokens),
        (Key::Num3, Tab::Memory),
        (Key::Num4, Tab::Curves),
        (Key::Num5, Tab::Lesson),
        (Key::Num6, Tab::WhatIf),
        (Key::Num1, Tab::Watch),
    ] {
        press(&mut harness, key);
        assert_eq!(harness.state().world.tab, tab);
    }
}

#[test]
fn the_palette_finds_a_command_and_enter_does_it() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let mut harness = window(&[&run]);
    press_with(&mut harness, Modifiers::COMMAND, Key::P);
    harness.event(eframe::egui::Event::Text("show memory".into()));
    harness.run_steps(3);
    press(&mut harness, Key::Enter);
    assert_eq!(harness.state().world.tab, Tab::Memory);
    assert!(
        !all_text(&harness).contains("Type a command"),
        "the palette is closed"
    );
}

#[test]
fn letters_wait_while_a_text_field_has_the_focus() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let mut harness = window(&[&run]);
    press_with(&mut harness, Modifiers::COMMAND, Key::P);
    press(&mut harness, Key::Num3);
    assert_eq!(harness.state().world.tab, Tab::Watch);
    press(&mut harness, Key::Escape);
    press(&mut harness, Key::Num3);
    assert_eq!(harness.state().world.tab, Tab::Memory);
}

#[test]
fn the_help_lists_every_command_with_its_keys() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let mut harness = window(&[&run]);
    press(&mut harness, Key::F1);
    let text = all_text(&harness);
    for command in Command::ALL {
        assert!(text.contains(command.tooltip()), "{command:?}");
    }
    click(&mut harness, "Close");
    assert!(!all_text(&harness).contains(Command::Fork.tooltip()));
}

#[test]
fn steps_groups_runs_and_the_ground_are_changed_by_keys() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 4);
    let other = sample(&folder.path().join("other"), 2);
    let mut harness = window(&[&run, &other]);
    let step = |harness: &egui_kittest::Harness<'_, palimpsest::gui::Window>| {
        harness.state().world.selection.id.step
    };
    let before = step(&harness);
    press_with(&mut harness, Modifiers::COMMAND, Key::ArrowLeft);
    assert_eq!(step(&harness), before - 1);
    press_with(&mut harness, Modifiers::COMMAND, Key::ArrowRight);
    assert_eq!(step(&harness), before);
    press_with(&mut harness, Modifiers::SHIFT, Key::ArrowRight);
    assert_eq!(harness.state().world.selection.turn, 1);
    press_with(&mut harness, Modifiers::COMMAND, Key::E);
    assert_eq!(harness.state().world.current, 1);
    press_with(&mut harness, Modifiers::COMMAND, Key::T);
    assert_eq!(harness.ctx.theme(), Theme::Light);
    press_with(&mut harness, Modifiers::COMMAND, Key::W);
    assert_eq!(harness.state().world.runs.len(), 1);
    press_with(&mut harness, Modifiers::COMMAND, Key::Equals);
    assert!(harness.ctx.zoom_factor() > 1.05);
    press_with(&mut harness, Modifiers::COMMAND, Key::Num0);
    assert!((harness.ctx.zoom_factor() - 1.0).abs() < 1e-6);
}

#[test]
fn tab_alone_reaches_every_kind_of_thing() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let mut harness = window(&[&run]);
    let mut reached = BTreeSet::new();
    for _ in 0..90 {
        press(&mut harness, Key::Tab);
        use egui_kittest::kittest::NodeT as _;
        let focused = harness
            .root()
            .children_recursive()
            .find(egui_kittest::Node::is_focused);
        if let Some(label) = focused.and_then(|node| node.accesskit_node().label()) {
            reached.insert(label);
        }
    }
    for wanted in [
        "Watch",
        "Tokens",
        "Commands...",
        "reward 0.92 to 1.00",
        "group 0",
        "rollout 0,",
        "turn 1",
        "Cursor:",
        "Follow",
    ] {
        assert!(
            reached.iter().any(|label| label.starts_with(wanted)),
            "{wanted}: {reached:#?}"
        );
    }
}

#[test]
fn a_line_of_tokens_takes_the_focus_and_arrows_move_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let mut harness = window(&[&run]);
    press(&mut harness, Key::Num2);
    use egui_kittest::kittest::{By, Queryable as _};
    let line = By::new().predicate(|node| {
        node.label()
            .is_some_and(|label| label.starts_with("turn 1, notes"))
    });
    harness.query_all(line).next().unwrap().focus();
    harness.run_steps(2);
    press(&mut harness, Key::ArrowRight);
    let first = harness.state().world.selection.token.unwrap();
    press(&mut harness, Key::ArrowRight);
    assert_eq!(harness.state().world.selection.token, Some(first + 1));
    press(&mut harness, Key::ArrowLeft);
    assert_eq!(harness.state().world.selection.token, Some(first));
    assert_eq!(harness.state().world.selection.turn, 1);
}

//! The keyboard alone: tokens, dialogs, and what has the focus.

use eframe::egui::{Key, Modifiers, Role};
use egui_kittest::Harness;
use egui_kittest::kittest::{By, NodeT as _, Queryable as _};
use palimpsest::gui::{Tab, Window};

use crate::support::{all_text, labels, press, press_with, sample, show, window, window_of};
use crate::survival::write_long;

fn lines(harness: &Harness<'_, Window>) -> Vec<String> {
    labels(harness, Role::ListItem)
}

fn focused(harness: &Harness<'_, Window>) -> String {
    let node = harness
        .root()
        .children_recursive()
        .find(egui_kittest::Node::is_focused);
    node.and_then(|node| node.accesskit_node().label())
        .unwrap_or_default()
}

#[test]
fn tokens_scroll_to_the_selected_turn_and_mark_it() {
    let folder = tempfile::tempdir().unwrap();
    let run = write_long(folder.path(), 1, 4000);
    let mut harness = window(&[&run]);
    press(&mut harness, Key::Num2);
    assert!(
        !lines(&harness)
            .iter()
            .any(|line| line.starts_with("turn 7,"))
    );
    for _ in 0..7 {
        press_with(&mut harness, Modifiers::SHIFT, Key::ArrowRight);
    }
    let shown = lines(&harness);
    let marked: Vec<&String> = shown
        .iter()
        .filter(|line| line.ends_with(", selected turn"))
        .collect();
    assert!(!marked.is_empty(), "{shown:?}");
    assert!(
        marked.iter().all(|line| line.starts_with("turn 7,")),
        "{marked:?}"
    );
}

#[test]
fn tokens_scroll_by_screens_and_by_arrows() {
    let folder = tempfile::tempdir().unwrap();
    let run = write_long(folder.path(), 1, 4000);
    let mut harness = window_of([1400.0, 500.0], &[&run]);
    press(&mut harness, Key::Num2);
    let before = lines(&harness);
    press_with(&mut harness, Modifiers::SHIFT, Key::PageDown);
    assert_ne!(lines(&harness), before);
    press_with(&mut harness, Modifiers::SHIFT, Key::PageUp);
    assert_eq!(lines(&harness), before);
    // Arrows go down through the lines, out of what was in view at first.
    let first = By::new().predicate(|node| node.role() == Role::ListItem);
    harness.query_all(first).next().unwrap().focus();
    harness.run_steps(2);
    for _ in 0..before.len() + 5 {
        press(&mut harness, Key::ArrowDown);
    }
    let here = focused(&harness);
    assert!(
        here.contains("tokens ") && !before.contains(&here),
        "{here}"
    );
    // And from the end of a line into the next one.
    let token = harness.state().world.selection.token.unwrap();
    for _ in 0..40 {
        press(&mut harness, Key::ArrowRight);
    }
    assert_eq!(harness.state().world.selection.token, Some(token + 40));
}

#[test]
fn a_sibling_stands_beside_with_the_difference_of_every_turn() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let mut harness = window(&[&run]);
    press(&mut harness, Key::Num2);
    press(&mut harness, Key::D);
    let lines = lines(&harness);
    let told = lines.iter().find(|line| line.starts_with("turn 1, notes"));
    assert!(
        told.unwrap().contains("difference to the sibling +"),
        "{lines:?}"
    );
}

#[test]
fn a_dialog_keeps_its_keys_and_takes_the_focus() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let mut harness = window(&[&run]);
    press(&mut harness, Key::F1);
    assert_eq!(focused(&harness), "Close");
    press(&mut harness, Key::Num3);
    assert_eq!(harness.state().world.tab, Tab::Watch);
    press(&mut harness, Key::F1);
    press_with(&mut harness, Modifiers::COMMAND, Key::L);
    let here = focused(&harness);
    assert!(!here.is_empty(), "the first lesson has the focus");
    let member = harness.state().world.selection.id.member;
    press(&mut harness, Key::ArrowDown);
    assert_eq!(harness.state().world.selection.id.member, member);
}

#[test]
fn arrows_move_the_cursor_also_while_a_button_has_the_focus() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let mut harness = window(&[&run]);
    let button = By::new().predicate(|node| node.label().as_deref() == Some("Keys"));
    harness.query_all(button).next().unwrap().focus();
    harness.run_steps(2);
    assert_eq!(focused(&harness), "Keys");
    let last = harness.state().world.cursor;
    press(&mut harness, Key::ArrowLeft);
    assert_ne!(harness.state().world.cursor, last);
    assert_eq!(focused(&harness), "Keys", "the focus stays");
}

#[test]
fn a_slider_keeps_its_arrows() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let mut harness = window(&[&run]);
    show(&mut harness, Tab::Curves);
    let slider = By::new().predicate(|node| node.role() == Role::Slider);
    harness.query_all(slider).next().unwrap().focus();
    harness.run_steps(3);
    let last = harness.state().world.cursor;
    press(&mut harness, Key::ArrowRight);
    assert_eq!(harness.state().world.cursor, last);
}

#[test]
fn every_trouble_is_reached_by_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 4);
    let mut harness = window(&[&run]);
    press(&mut harness, Key::X);
    let text = all_text(&harness);
    assert!(
        text.matches("no gradient").count() >= 2,
        "list and message: {text}"
    );
    assert_eq!(harness.state().world.selection.id.step, 3);
}

#[test]
fn powers_of_ten_have_a_key() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 4);
    let mut harness = window(&[&run]);
    show(&mut harness, Tab::Curves);
    let on = |harness: &Harness<'_, Window>| {
        harness.root().children_recursive().any(|node| {
            let node = node.accesskit_node();
            node.label().as_deref() == Some("powers of ten")
                && node.toggled() == Some(eframe::egui::accesskit::Toggled::True)
        })
    };
    assert!(!on(&harness));
    press(&mut harness, Key::P);
    assert!(on(&harness));
}

//! Small windows: nothing lies off the screen or under something else.

use eframe::egui::{Key, Rect, Role, pos2};
use egui_kittest::Harness;
use egui_kittest::kittest::{By, Queryable as _};
use palimpsest::gui::{Tab, Window};

use crate::support::{all_text, click, labels, press, sample, scripted, show, window_of};

/// Where the first node is that begins like this.
fn place(harness: &Harness<'_, Window>, beginning: &str) -> Rect {
    let beginning = beginning.to_owned();
    let found = By::new().predicate(move |node| {
        [node.label(), node.value()]
            .into_iter()
            .flatten()
            .any(|text| text.starts_with(&beginning))
    });
    let node = harness.query_all(found).next();
    node.unwrap_or_else(|| panic!("{}", all_text(harness)))
        .rect()
}

#[test]
fn the_numbers_of_a_token_are_shown_where_the_details_have_no_room() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let mut harness = window_of([900.0, 600.0], &[&run]);
    show(&mut harness, Tab::Tokens);
    assert!(all_text(&harness).contains("Numbers of a token"));
    press(&mut harness, Key::CloseBracket);
    let text = all_text(&harness);
    assert!(text.contains("p for the learner"), "{text}");
    assert!(!text.contains("Details\nToken"), "{text}");
}

#[test]
fn groups_and_details_can_be_opened_at_double_size() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    // 900 x 600 at 200 %.
    let mut harness = window_of([450.0, 300.0], &[&run]);
    assert!(!all_text(&harness).contains("group 0  "));
    press(&mut harness, Key::Q);
    let text = all_text(&harness);
    assert!(
        text.contains("group 0  ") && text.contains("Trouble ("),
        "{text}"
    );
    press(&mut harness, Key::I);
    let text = all_text(&harness);
    assert!(text.contains("outcome advantage"), "{text}");
    assert!(!text.contains("group 0  "), "there is room for one: {text}");
    press(&mut harness, Key::I);
    assert!(!all_text(&harness).contains("outcome advantage"));
    // Written text is in view beside the lanes.
    let shown = Rect::from_min_max(pos2(0.0, 0.0), pos2(450.0, 300.0));
    assert!(shown.intersects(place(&harness, "turn 0")));
}

#[test]
fn what_if_shows_both_columns_in_a_small_window() {
    let folder = tempfile::tempdir().unwrap();
    let run = scripted(folder.path(), |_| {});
    let mut harness = window_of([1000.0, 650.0], &[&run]);
    show(&mut harness, Tab::WhatIf);
    let details = place(&harness, "Details");
    assert!(details.left() < 1000.0);
    let right = labels(&harness, Role::Label)
        .iter()
        .any(|label| label == "Advantages of group 0");
    assert!(right, "{}", all_text(&harness));
    let now = place(&harness, "now");
    // The heading is a button of the bar too: the panel's own stands lower.
    assert!(now.right() < 1000.0 - 160.0, "{now:?}");
    let strip = place(&harness, "Now: weights of rollout");
    assert!(strip.top() < place(&harness, "Advantages of group").top());
    // At double size all of it can be scrolled to.
    let mut harness = window_of([450.0, 300.0], &[&run]);
    show(&mut harness, Tab::WhatIf);
    let before = place(&harness, "Now: weights of rollout").top();
    harness.key_press_modifiers(eframe::egui::Modifiers::SHIFT, Key::PageDown);
    harness.run_steps(4);
    assert!(place(&harness, "Now: weights of rollout").top() < before);
}

#[test]
fn the_keys_fit_a_window_at_double_size() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let mut harness = window_of([450.0, 300.0], &[&run]);
    press(&mut harness, Key::F1);
    let shown = Rect::from_min_max(pos2(0.0, 0.0), pos2(450.0, 300.0));
    assert!(shown.contains_rect(place(&harness, "Close")));
    let key = place(&harness, "Pauses a live run at the end");
    assert!(key.left() >= 0.0 && key.right() <= 450.0, "{key:?}");
    // The list is moved by keys.
    let before = place(&harness, "Pauses a live run at the end").top();
    press(&mut harness, Key::PageDown);
    assert!(place(&harness, "Pauses a live run at the end").top() < before);
    click(&mut harness, "Close");
    assert!(!all_text(&harness).contains("Pauses a live run at the end"));
}

#[test]
fn the_state_of_a_run_is_not_cut_by_the_buttons() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let other = sample(&folder.path().join("other"), 2);
    let harness = window_of([900.0, 600.0], &[&run, &other]);
    let state = place(&harness, "seed 7");
    assert!(state.right() <= 900.0, "{state:?}");
    for button in ["Open a run...", "Commands...", "Keys"] {
        let button = place(&harness, button);
        assert!(!button.intersects(state), "{button:?} {state:?}");
        assert!(button.right() <= 900.0);
    }
}

#[test]
fn what_went_wrong_is_read_to_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let run = sample(folder.path(), 2);
    let harness = window_of([1400.0, 900.0], &[&run]);
    let entry = place(&harness, "step 2, group 1: no gradient");
    // Several lines in the list at the side, and nothing beyond it.
    assert!(entry.height() > 40.0 && entry.right() < 240.0, "{entry:?}");
}

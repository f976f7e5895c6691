//! Records that lack something: what cannot be known is told, and nothing is made up.

use std::fs;
use std::process::Command;

use palimpsest::gui::Tab;

use crate::support::{all_text, sample, scripted, show, window};

#[test]
fn without_its_vocabulary_a_run_gives_no_what_if_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let run = scripted(folder.path(), |_| {});
    fs::remove_file(run.join("vocab.json")).unwrap();
    let mut harness = window(&[&run]);
    let text = all_text(&harness);
    assert!(
        text.contains("vocab.json cannot be read"),
        "Trouble: {text}"
    );
    show(&mut harness, Tab::WhatIf);
    let text = all_text(&harness);
    assert!(!text.contains("token weights change"), "{text}");
    assert!(
        text.matches("vocab.json cannot be read").count() > 1,
        "{text}"
    );
    show(&mut harness, Tab::Tokens);
    let text = all_text(&harness);
    assert!(
        text.matches("vocab.json cannot be read").count() > 1,
        "{text}"
    );
}

#[test]
fn a_record_that_does_not_give_its_own_weights_back_is_not_recomputed() {
    let folder = tempfile::tempdir().unwrap();
    // Its weights are made up, so no setting gives them.
    let run = sample(folder.path(), 2);
    let mut harness = window(&[&run]);
    show(&mut harness, Tab::WhatIf);
    let text = all_text(&harness);
    assert!(!text.contains("token weights change"), "{text}");
    assert!(text.contains("cannot be worked out"), "{text}");
}

#[test]
fn settings_of_another_version_are_told_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let run = scripted(folder.path(), |_| {});
    let file = run.join("experiment.ron");
    let text = fs::read_to_string(&file).unwrap();
    let old = text.replacen("estimator:", "outcome_scale: off, estimator:", 1);
    assert_ne!(old, text);
    fs::write(&file, old).unwrap();
    let mut harness = window(&[&run]);
    show(&mut harness, Tab::WhatIf);
    let text = all_text(&harness);
    assert!(
        text.contains("holds settings that this program") && text.contains("outcome_scale"),
        "{text}"
    );
    assert!(!text.contains("nothing was run"), "{text}");
}

#[test]
fn no_picture_is_taken_of_a_folder_that_is_no_run() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("none.png");
    let done = Command::new(env!("CARGO_BIN_EXE_palimpsest"))
        .arg("watch")
        .arg(folder.path().join("nosuch"))
        .arg("--screenshot")
        .arg(&picture)
        .env_remove("DISPLAY")
        .env_remove("WAYLAND_DISPLAY")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success());
    assert!(said.contains("nosuch"), "{said}");
    assert!(!picture.exists());
}

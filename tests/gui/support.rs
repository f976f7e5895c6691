//! Windows without a screen, and runs to open in them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use eframe::egui::{Key, Modifiers, Role};
use egui_kittest::Harness;
use egui_kittest::kittest::{NodeT as _, Queryable as _};
use palimpsest::gui::{Tab, ThemePreference, Window};

use crate::common::{Player, run, small_experiment};
use crate::sample_run::write_run;

/// How long a folder may take to load on a busy machine.
const LOADING: Duration = Duration::from_secs(120);

/// A window of a size, with runs open and loaded.
pub fn window_of(size: [f32; 2], runs: &[&Path]) -> Harness<'static, Window> {
    let mut harness = Harness::builder()
        .with_size(size)
        .build_eframe(|creation| Window::new(&creation.egui_ctx, ThemePreference::Dark).unwrap());
    for run in runs {
        harness.state_mut().world.open(run);
    }
    harness.state_mut().world.current = 0;
    for run in &mut harness.state_mut().world.runs {
        run.settle(LOADING);
    }
    harness.run_steps(3);
    harness
}

/// A window of the usual size.
pub fn window(runs: &[&Path]) -> Harness<'static, Window> {
    window_of([1400.0, 900.0], runs)
}

/// A made-up run with everything that a record can hold.
pub fn sample(folder: &Path, steps: u32) -> PathBuf {
    write_run(folder, steps).path().to_path_buf()
}

/// A run of the whole app with a scripted engine.
pub fn scripted(
    folder: &Path,
    change: impl FnOnce(&mut palimpsest::experiment::Experiment),
) -> PathBuf {
    let path = folder.join("scripted");
    let mut experiment = small_experiment();
    experiment.rollout.group_size = 4;
    change(&mut experiment);
    run(&path, experiment, Player::Careless, false);
    path
}

/// Presses a key and lets the window settle.
pub fn press(harness: &mut Harness<'_, Window>, key: Key) {
    harness.key_press(key);
    harness.run_steps(3);
}

/// Presses a key with modifiers.
pub fn press_with(harness: &mut Harness<'_, Window>, modifiers: Modifiers, key: Key) {
    harness.key_press_modifiers(modifiers, key);
    harness.run_steps(3);
}

/// Shows a tab.
pub fn show(harness: &mut Harness<'_, Window>, tab: Tab) {
    harness.state_mut().world.tab = tab;
    harness.run_steps(4);
}

/// The labels of all nodes of a role, and values where text has no label.
pub fn labels(harness: &Harness<'_, Window>, role: Role) -> Vec<String> {
    harness
        .root()
        .children_recursive()
        .filter(|node| node.accesskit_node().role() == role)
        .filter_map(|node| {
            let node = node.accesskit_node();
            node.label().or_else(|| node.value())
        })
        .collect()
}

/// Everything that a reader can read.
pub fn all_text(harness: &Harness<'_, Window>) -> String {
    let text = |node: egui_kittest::Node<'_>| {
        let node = node.accesskit_node();
        let text: Vec<String> = [node.label(), node.value()].into_iter().flatten().collect();
        text.join(" ")
    };
    let all: Vec<String> = harness.root().children_recursive().map(text).collect();
    all.join("\n")
}

/// Clicks the first node whose label begins like this.
pub fn click(harness: &mut Harness<'_, Window>, beginning: &str) {
    let found = harness.root().children_recursive().any(|node| {
        node.accesskit_node()
            .label()
            .is_some_and(|label| label.starts_with(beginning))
    });
    assert!(
        found,
        "no node begins with {beginning:?} in\n{}",
        all_text(harness)
    );
    harness
        .query_all(egui_kittest::kittest::By::new().predicate({
            let beginning = beginning.to_owned();
            move |node| {
                node.label()
                    .is_some_and(|label| label.starts_with(&beginning))
            }
        }))
        .next()
        .unwrap()
        .click();
    harness.run_steps(3);
}

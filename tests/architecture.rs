//! Walks `src/` and checks the rules of ARCHITECTURE.md: who may import whom, and where the outside
//! is named.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};

/// Folders by rank: one may import those of a lower rank, and itself. Folders of one rank do not
/// import each other, but for `engine` and `tools`, whose replies one system takes in.
const RANKS: [(&str, u32); 22] = [
    ("trajectory", 0),
    ("random", 1),
    ("schedule", 1),
    ("experiment", 1),
    ("http", 1),
    ("hub", 2),
    ("tokenizer", 2),
    ("retrieval", 2),
    ("task", 3),
    ("tools", 4),
    ("engine", 5),
    ("rollout", 6),
    ("credit", 7),
    ("reward", 8),
    ("learner", 9),
    ("eval", 9),
    ("record", 10),
    ("run", 11),
    ("torch", 12),
    ("doctor", 12),
    ("study", 12),
    ("gui", 12),
];

/// Imports against the ranks that are meant: request types that carry plain data.
const MEANT: [(&str, &str); 4] = [
    // The engine's errors and plain request rows are shared vocabulary.
    ("tokenizer", "engine"),
    ("task", "engine"),
    // The trait of a task takes settings; the split of a setting is the task's word.
    ("experiment", "task"),
    // Random streams are addressed by trajectories.
    ("random", "trajectory"),
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

fn rank(folder: &str) -> Option<u32> {
    RANKS
        .iter()
        .find(|(name, _)| *name == folder)
        .map(|(_, rank)| *rank)
}

#[test]
fn folders_import_only_folders_to_their_left() {
    let mut files = Vec::new();
    sources(Path::new("src"), &mut files);
    assert!(files.len() > 50, "src was not found");
    let mut wrong = Vec::new();
    for path in files {
        let inside = path.strip_prefix("src").unwrap();
        let first = inside
            .components()
            .next()
            .unwrap()
            .as_os_str()
            .to_str()
            .unwrap();
        let folder = first.trim_end_matches(".rs");
        let Some(own) = rank(folder) else { continue };
        let text = std::fs::read_to_string(&path).unwrap();
        // Tests at the foot of a file may use what they need.
        let code = text.split("#[cfg(test)]").next().unwrap();
        for (at, line) in code
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
        {
            for import in line.split("crate::").skip(1) {
                let name: String = import
                    .chars()
                    .take_while(|letter| letter.is_alphanumeric() || *letter == '_')
                    .collect();
                let Some(other) = rank(&name) else { continue };
                if name != folder && other >= own && !MEANT.contains(&(folder, name.as_str())) {
                    wrong.push(format!(
                        "{}:{}: {folder} imports {name}",
                        path.display(),
                        at + 1
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether a line has `word`, and not as the end of a longer name: `watch::` is not `tch::`.
fn names(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
    })
}

#[test]
fn the_outside_is_named_in_one_place() {
    let mut files = Vec::new();
    sources(Path::new("src"), &mut files);
    let mut wrong = Vec::new();
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let inside = path.strip_prefix("src").unwrap().display().to_string();
        let mut only = |words: &[&str], allowed: &str| {
            for (at, line) in text
                .lines()
                .enumerate()
                .filter(|(_, line)| !line.trim_start().starts_with("//"))
            {
                if words.iter().any(|word| names(line, word)) && !inside.starts_with(allowed) {
                    wrong.push(format!(
                        "{inside}:{}: {:?} belongs to {allowed}",
                        at + 1,
                        line.trim()
                    ));
                }
            }
        };
        only(&["tch::", "use tch"], "torch/");
        only(&["egui::", "eframe::", "egui_plot::"], "gui/");
        only(&["tokio::runtime"], "tools/runtime.rs");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

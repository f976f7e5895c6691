//! The file of facts: read, checked, and turned into a table.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use crate::task::{Split, TaskError};

/// The facts that are part of the program.
pub(super) const SHIPPED_FACTS: &str = include_str!("../../../assets/lookup/facts.json");

/// A file of facts as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FactsFile {
    /// Where the facts come from.
    pub(super) source: String,
    /// The licence they are under.
    pub(super) licence: String,
    /// What is known, one entity each.
    pub(super) entities: Vec<Entity>,
}

/// One entity with everything that is known of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entity {
    /// As it stands in questions.
    pub(super) name: String,
    /// What sort of thing it is, for the reader of the file.
    pub(super) kind: String,
    /// Who may ask about it.
    pub(super) split: EntitySplit,
    /// Relation -> value.
    pub(super) facts: BTreeMap<String, String>,
}

/// The splits as they are spelt in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum EntitySplit {
    Train,
    Validation,
    Test,
}

impl From<EntitySplit> for Split {
    fn from(split: EntitySplit) -> Self {
        match split {
            EntitySplit::Train => Self::Train,
            EntitySplit::Validation => Self::Validation,
            EntitySplit::Test => Self::Test,
        }
    }
}

/// Characters that would tear a note, a key or a tag apart.
const RESERVED: [char; 4] = [';', '=', '<', '>'];

impl FactsFile {
    /// Reads and checks the text of a file; `path` stands in error messages.
    pub(super) fn parse(text: &str, path: &Path) -> Result<Self, TaskError> {
        let file: Self = serde_json::from_str(text).map_err(|error| TaskError::BadFacts {
            path: path.to_owned(),
            line: error.line(),
            problem: format!("{error}"),
            remedy: "compare with assets/lookup/README.md, which shows one entity",
        })?;
        let mut seen = BTreeSet::new();
        for entity in &file.entities {
            let bad = |problem: String, remedy| TaskError::BadFacts {
                path: path.to_owned(),
                line: line_of(text, &entity.name),
                problem,
                remedy,
            };
            let name = &entity.name;
            if !seen.insert(name) {
                return Err(bad(
                    format!("the entity {name:?} stands there twice, and a name must be unique"),
                    "join the two",
                ));
            }
            check_words(name)
                .map_err(|rule| bad(format!("\"name\" is {name:?}, which {rule}"), "rewrite it"))?;
            check_words(&entity.kind).map_err(|rule| {
                let kind = &entity.kind;
                bad(
                    format!("\"kind\" of {name:?} is {kind:?}, which {rule}"),
                    "rewrite it",
                )
            })?;
            for (relation, value) in &entity.facts {
                check_words(relation).map_err(|rule| {
                    bad(
                        format!("{name:?} has the relation {relation:?}, which {rule}"),
                        "rename it",
                    )
                })?;
                check_words(value).map_err(|rule| {
                    bad(
                        format!("{relation:?} of {name:?} is {value:?}, which {rule}"),
                        "rewrite the value",
                    )
                })?;
            }
        }
        Ok(file)
    }

    /// The lines a tokenizer is trained on: every name and value once, so that those of all splits
    /// are equally long in tokens, and the words of the templates often enough to be one token.
    pub(super) fn tokenizer_lines(&self) -> Vec<String> {
        let names: BTreeSet<&str> = self
            .entities
            .iter()
            .flat_map(|entity| {
                std::iter::once(entity.name.as_str())
                    .chain(entity.facts.values().map(String::as_str))
            })
            .collect();
        let relations: BTreeSet<&str> = self
            .entities
            .iter()
            .flat_map(|entity| entity.facts.keys().map(String::as_str))
            .collect();
        let mut lines: Vec<String> = names.iter().map(|name| format!(" {name}")).collect();
        for _ in 0..30 {
            lines.extend(
                relations
                    .iter()
                    .map(|r| format!(" The {r} of x is x. {r} of x = x; next done nothing found?")),
            );
        }
        lines
    }
}

/// The rule that a name, relation or value breaks, if any.
fn check_words(words: &str) -> Result<(), String> {
    if words.trim().is_empty() {
        return Err("is empty".to_owned());
    }
    if words != words.trim() || words.contains("  ") || words.contains(['\n', '\r', '\t']) {
        return Err(
            "must be words with single spaces between them and none at the ends".to_owned(),
        );
    }
    match words.chars().find(|c| RESERVED.contains(c)) {
        Some(c) => Err(format!(
            "must not contain {c:?}, which separates facts and tags"
        )),
        None => Ok(()),
    }
}

/// The line (from 1) on which an entity's name is written; the first line if it is not found.
fn line_of(text: &str, name: &str) -> usize {
    let quoted = serde_json::Value::from(name).to_string();
    text.lines()
        .position(|line| line.contains("\"name\"") && line.contains(&quoted))
        .map_or(1, |place| place + 1)
}

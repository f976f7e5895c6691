//! What can be asked: the facts that are short enough, as ids, by split.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::task::{Split, TaskError};
use crate::tokenizer::TextTokenizer;

use super::facts::FactsFile;
use super::phrases::{Ids, Phrases};

/// Longest name of an entity and longest value, tokens.
const LONGEST: usize = 3;
/// An entity with fewer short facts is left out.
const FEWEST_FACTS: usize = 2;
/// Fewest entities a split may have: one to ask about and one to distract.
const FEWEST_ENTITIES: usize = 2;

/// An entity that can be asked about.
#[derive(Debug)]
pub(super) struct UsableEntity {
    pub(super) name: Ids,
    /// (number of the relation, value)
    pub(super) facts: Vec<(usize, Ids)>,
}

impl UsableEntity {
    /// What is known of one relation.
    pub(super) fn value(&self, relation: usize) -> Option<&Ids> {
        self.facts
            .iter()
            .find(|(known, _)| *known == relation)
            .map(|(_, value)| value)
    }
}

/// All usable facts.
#[derive(Debug)]
pub(super) struct Table {
    /// Every relation by number, in alphabetical order.
    pub(super) relations: Vec<Ids>,
    train: Vec<UsableEntity>,
    validation: Vec<UsableEntity>,
    test: Vec<UsableEntity>,
    /// Different values of training entities, by relation: what redrawn values are taken from.
    pub(super) values_of: Vec<Vec<Ids>>,
    /// All of those together.
    pub(super) values: Vec<Ids>,
}

impl Table {
    pub(super) fn new(
        file: &FactsFile,
        tokenizer: &TextTokenizer,
        phrases: &Phrases,
        path: &Path,
    ) -> Result<Self, TaskError> {
        let mut known: BTreeMap<&str, Option<Ids>> = BTreeMap::new();
        let mut short = |name| {
            known
                .entry(name)
                .or_insert_with(|| {
                    let ids = tokenizer.encode(&format!(" {name}"));
                    let fits = ids.len() <= LONGEST && phrases.keeps_its_ids(tokenizer, name, &ids);
                    fits.then_some(ids)
                })
                .clone()
        };
        let relation_names: BTreeSet<&str> = file
            .entities
            .iter()
            .flat_map(|entity| entity.facts.keys().map(String::as_str))
            .collect();
        let number: BTreeMap<&str, usize> = relation_names.iter().copied().zip(0..).collect();
        let mut splits: [Vec<UsableEntity>; 3] = Default::default();
        let mut values_of = vec![BTreeSet::new(); number.len()];
        for entity in &file.entities {
            // A name that begins like a sentence (The Gambia) would be read as one.
            let Some(name) = short(&entity.name).filter(|name| !name.starts_with(&phrases.the))
            else {
                continue;
            };
            let facts: Vec<(usize, Ids)> = entity
                .facts
                .iter()
                .filter_map(|(relation, value)| {
                    Some((*number.get(relation.as_str())?, short(value)?))
                })
                .collect();
            if facts.len() < FEWEST_FACTS {
                continue;
            }
            let split = Split::from(entity.split);
            if split == Split::Train {
                for (relation, value) in &facts {
                    values_of[*relation].insert(value.clone());
                }
            }
            splits[split as usize].push(UsableEntity { name, facts });
        }
        let values: BTreeSet<Ids> = values_of.iter().flatten().cloned().collect();
        let [train, validation, test] = splits;
        let table = Self {
            relations: relation_names
                .iter()
                .map(|relation| tokenizer.encode(&format!(" {relation}")))
                .collect(),
            train,
            validation,
            test,
            values_of: values_of
                .into_iter()
                .map(|values| values.into_iter().collect())
                .collect(),
            values: values.into_iter().collect(),
        };
        for split in [Split::Train, Split::Validation, Split::Test] {
            let usable = table.entities(split).len();
            if usable < FEWEST_ENTITIES {
                return Err(TaskError::TooFewEntities {
                    path: path.to_owned(),
                    split,
                    usable,
                    needed: FEWEST_ENTITIES,
                });
            }
        }
        Ok(table)
    }

    /// The entities of a split, in the order of the file.
    pub(super) fn entities(&self, split: Split) -> &[UsableEntity] {
        match split {
            Split::Train => &self.train,
            Split::Validation => &self.validation,
            Split::Test => &self.test,
        }
    }
}

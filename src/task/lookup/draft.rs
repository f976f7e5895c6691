//! Drawing what a question is about: its facts and the distractors beside them.

use std::collections::BTreeSet;

use rand::RngExt as _;
use rand::seq::IndexedRandom as _;
use rand_chacha::ChaCha8Rng;

use crate::task::Split;
use crate::tokenizer::TextTokenizer;
use crate::trajectory::TokenId;

use super::phrases::{Fact, Ids};
use super::table::Table;

/// Chance that a redrawn value comes from any relation, made-up values included.
const ANY_VALUE: f32 = 0.5;
/// Chance that a distractor shares the relation of the fact beside it, if its entity has it.
const SAME_RELATION: f64 = 0.5;
/// Draws of something new before giving up on it.
const TRIES: usize = 64;

/// Which facts a question is made of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Truth {
    /// As they stand in the file.
    Real,
    /// Values drawn anew, no two alike in a question; with this chance names and values are made up.
    Redrawn(f32),
}

/// One objective and what its search brings.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) fact: Fact,
    /// A fact about an entity the question does not ask about; none if all entities are taken.
    pub(super) distractor: Option<Fact>,
    /// Whether the fact stands before the distractor.
    pub(super) fact_first: bool,
}

/// Where facts are drawn from.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) table: Table,
    /// Tokens that can begin a made-up name: a space, then letters or digits.
    pub(super) word_tokens: Vec<TokenId>,
    /// Tokens that can go on with one: letters or digits.
    pub(super) part_tokens: Vec<TokenId>,
}

/// What one question has used up.
struct Draw<'a> {
    source: &'a Source,
    tokenizer: &'a TextTokenizer,
    split: Split,
    truth: Truth,
    names: BTreeSet<Ids>,
    values: BTreeSet<Ids>,
}

impl Source {
    pub(super) fn new(table: Table, tokenizer: &TextTokenizer) -> Self {
        let ids = || 0..TokenId::try_from(tokenizer.vocab_size()).unwrap_or(TokenId::MAX);
        let plain = |bytes: &[u8]| !bytes.is_empty() && bytes.iter().all(u8::is_ascii_alphanumeric);
        let is_word = |id: &TokenId| match tokenizer.token_bytes(*id) {
            [b' ', rest @ ..] => plain(rest),
            _ => false,
        };
        Self {
            table,
            word_tokens: ids().filter(is_word).collect(),
            part_tokens: ids()
                .filter(|id| plain(tokenizer.token_bytes(*id)))
                .collect(),
        }
    }

    /// Draws `objectives` facts about different entities (fewer if the split has fewer), then a
    /// distractor for each: never about an entity of the question, never the same entity twice.
    pub(super) fn draft(
        &self,
        rng: &mut ChaCha8Rng,
        tokenizer: &TextTokenizer,
        objectives: u32,
        split: Split,
        truth: Truth,
    ) -> Vec<Asked> {
        let mut draw = Draw {
            source: self,
            tokenizer,
            split,
            truth,
            names: BTreeSet::new(),
            values: BTreeSet::new(),
        };
        let facts: Vec<(usize, Fact)> = (0..objectives)
            .map_while(|_| draw.fact(rng, None))
            .collect();
        facts
            .into_iter()
            .map(|(relation, fact)| Asked {
                fact,
                distractor: draw.fact(rng, Some(relation)).map(|(_, fact)| fact),
                fact_first: rng.random_bool(0.5),
            })
            .collect()
    }

    /// A made-up name of 1 to 3 tokens which the tokenizer would cut in the same way.
    fn made_up(&self, rng: &mut ChaCha8Rng, tokenizer: &TextTokenizer) -> Option<Ids> {
        (0..TRIES).find_map(|_| {
            let length = [1, 1, 2, 2, 3].choose(rng).copied().unwrap_or(1);
            let mut name = vec![*self.word_tokens.choose(rng)?];
            for _ in 1..length {
                name.push(*self.part_tokens.choose(rng)?);
            }
            (tokenizer.encode(&tokenizer.decode(&name)) == name).then_some(name)
        })
    }
}

impl Draw<'_> {
    fn made_up_share(&self) -> f32 {
        match self.truth {
            Truth::Real => 0.0,
            Truth::Redrawn(share) => share,
        }
    }

    /// A fact about an entity that is not used yet, preferably with the relation `like`.
    fn fact(&mut self, rng: &mut ChaCha8Rng, like: Option<usize>) -> Option<(usize, Fact)> {
        let table = &self.source.table;
        let like = like.filter(|_| rng.random_bool(SAME_RELATION));
        let made_up = if rng.random::<f32>() < self.made_up_share() {
            let source = self.source;
            (0..TRIES).find_map(|_| {
                source
                    .made_up(rng, self.tokenizer)
                    .filter(|name| !self.names.contains(name))
            })
        } else {
            None
        };
        let (name, relation, real) = if let Some(name) = made_up {
            let any = rng.random_range(0..table.relations.len());
            (name, like.unwrap_or(any), None)
        } else {
            let free: Vec<_> = table
                .entities(self.split)
                .iter()
                .filter(|entity| !self.names.contains(&entity.name))
                .collect();
            let entity = *free.choose(rng)?;
            let any = entity.facts.choose(rng)?.0;
            let relation = like
                .filter(|&relation| entity.value(relation).is_some())
                .unwrap_or(any);
            (entity.name.clone(), relation, entity.value(relation))
        };
        self.names.insert(name.clone());
        let value = match (self.truth, real) {
            (Truth::Real, Some(value)) => value.clone(),
            _ => self.new_value(rng, relation)?,
        };
        let fact = Fact {
            relation: table.relations.get(relation)?.clone(),
            entity: name,
            value,
        };
        Some((relation, fact))
    }

    /// A value that does not stand in the question yet.
    fn new_value(&mut self, rng: &mut ChaCha8Rng, relation: usize) -> Option<Ids> {
        let table = &self.source.table;
        let own = table.values_of.get(relation)?;
        let drawn = (0..TRIES).find_map(|_| {
            let u = rng.random::<f32>();
            let value = if u < self.made_up_share() {
                self.source.made_up(rng, self.tokenizer)
            } else if u < ANY_VALUE || own.is_empty() {
                table.values.choose(rng).cloned()
            } else {
                own.choose(rng).cloned()
            };
            value.filter(|value| !self.values.contains(value))
        });
        let value = drawn.or_else(|| {
            table
                .values
                .iter()
                .find(|value| !self.values.contains(*value))
                .cloned()
        })?;
        self.values.insert(value.clone());
        Some(value)
    }
}

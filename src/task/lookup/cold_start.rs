//! Examples of the cold start: what a policy must have seen before RL can improve its notes.
//!
//! Scripts search for every objective in order and keep only some of the facts in their notes, so
//! that RL finds both careful and careless notes to compare. Targets nobody could know (the value
//! of a fact that is neither in the notes nor in view) are not trained.

use rand::RngExt as _;
use rand::seq::IndexedRandom as _;
use rand_chacha::ChaCha8Rng;

use crate::engine::{SupervisedPart, SupervisedRow};
use crate::experiment::MixSettings;
use crate::random::{Domain, stream};
use crate::task::Split;

use super::LookupTask;
use super::draft::{Asked, Truth};
use super::phrases::Ids;
use super::question::{gold, prompt, result};
use super::rows::RowBuilder;

/// Chance that a fact stands in the notes of a probe.
const PROBE_KEEP: f64 = 0.75;
/// Chance that a probe comes before everything was searched for.
const EARLY_PROBE: f64 = 0.3;

/// Length of the drills: `grown` runs from 0 to 1 over the opening.
#[derive(Clone, Copy)]
struct Opening {
    grown: f32,
}

/// Rows in a step of the opening.
const OPENING_COPIES: u32 = 24;
const OPENING_DRILLS: u32 = 8;

impl LookupTask {
    /// All parts of one step. Every row has its own random numbers, so the number of rows of one
    /// kind does not change the others.
    pub(super) fn parts(&self, seed: u64, step: u32, mix: &MixSettings) -> Vec<SupervisedPart> {
        let part = |number: u32, name: &str, weight: f32, rows: u32, make: RowMaker<'_>| {
            let row = |index| {
                let mut rng = stream(seed, Domain::ColdStart, step, number, index);
                let built = make(&mut rng);
                built.finish(&mut rng, mix.position_gap)
            };
            let rows: Vec<SupervisedRow> = (0..rows).map(row).collect();
            (!rows.is_empty()).then(|| SupervisedPart {
                name: name.to_owned(),
                weight,
                rows,
            })
        };
        let parts = if step < mix.opening_steps {
            let opening = Opening {
                grown: step as f32 / mix.opening_steps as f32,
            };
            vec![
                part(5, "copy", 1.0, OPENING_COPIES, &|rng| {
                    opening.copy(self, rng)
                }),
                part(4, "drill", 1.0, OPENING_DRILLS, &|rng| {
                    opening.drill(self, rng, mix)
                }),
            ]
        } else {
            vec![
                part(1, "full", 1.0, mix.full, &|rng| self.full_row(rng, mix)),
                part(2, "deployed", 1.0, mix.deployed, &|rng| {
                    self.deployed_row(rng, mix)
                }),
                part(3, "probe", 0.3, mix.probe, &|rng| self.probe_row(rng, mix)),
                part(4, "drill", 0.5, mix.drill, &|rng| {
                    self.drill_row(rng, mix, 6, 2)
                }),
                part(5, "copy", 0.3, mix.copy, &|rng| self.copy_row(rng, 14, 4)),
                part(6, "sequence", 0.5, mix.sequence, &|rng| {
                    self.sequence_row(rng, mix)
                }),
            ]
        };
        parts.into_iter().flatten().collect()
    }

    /// Facts for a row: 1 to `most` of them, or exactly as many.
    pub(super) fn draw_facts(
        &self,
        rng: &mut ChaCha8Rng,
        mix: &MixSettings,
        objectives: u32,
    ) -> Vec<Asked> {
        let truth = Truth::Redrawn(mix.pseudo);
        self.source
            .draft(rng, &self.tokenizer, objectives, Split::Train, truth)
    }

    /// ` prefix of Botswana = 267;`, or now and then the distractor's value instead.
    fn note(&self, rng: &mut ChaCha8Rng, asked: &Asked, junk: f32) -> Ids {
        match &asked.distractor {
            Some(distractor) if rng.random::<f32>() < junk => {
                let mut wrong = asked.fact.clone();
                wrong.value.clone_from(&distractor.value);
                self.phrases.note(&wrong)
            }
            _ => self.phrases.note(&asked.fact),
        }
    }

    fn search(&self, asked: &Asked) -> Ids {
        let phrases = &self.phrases;
        let key = phrases.key(&asked.fact);
        [&phrases.search[..], &key, &phrases.search_end].concat()
    }

    fn tool(&self, asked: &Asked) -> Ids {
        let phrases = &self.phrases;
        [
            &phrases.tool[..],
            &result(phrases, asked),
            &phrases.tool_end,
        ]
        .concat()
    }

    /// A whole scripted trajectory in the full context.
    fn full_row(&self, rng: &mut ChaCha8Rng, mix: &MixSettings) -> RowBuilder {
        let objectives = rng.random_range(1..=mix.full_objectives_max.max(1));
        let asked = self.draw_facts(rng, mix, objectives);
        let keep = keep_share(rng, mix);
        let phrases = &self.phrases;
        let mut row = RowBuilder::default();
        row.given(&prompt(phrases, &asked)).may_jump();
        for turn in 0..=asked.len() {
            row.written(&phrases.notes);
            for known in asked.iter().take(turn) {
                if rng.random::<f32>() < keep {
                    row.written(&self.note(rng, known, mix.junk));
                }
            }
            row.written(&phrases.notes_end);
            match asked.get(turn) {
                Some(next) => {
                    row.written(&self.search(next)).given(&self.tool(next));
                    row.may_jump();
                }
                None => {
                    row.written(&phrases.answer)
                        .written(&gold(phrases, &asked))
                        .written(&phrases.answer_end);
                }
            }
        }
        row
    }

    /// One turn in the deployed context: question, last notes, last tool result, forced `<mem>`.
    fn deployed_row(&self, rng: &mut ChaCha8Rng, mix: &MixSettings) -> RowBuilder {
        let objectives = rng.random_range(1..=mix.turn_objectives_max.max(1));
        let asked = self.draw_facts(rng, mix, objectives);
        let keep = keep_share(rng, mix);
        let turn = rng.random_range(0..=asked.len());
        let phrases = &self.phrases;
        let mut row = RowBuilder::default();
        row.given(&prompt(phrases, &asked)).may_jump();
        let mut known = vec![false; asked.len()];
        if let Some(last) = turn.checked_sub(1) {
            // A fact found long ago has had more chances to be dropped.
            for before in 0..last {
                known[before] = true;
                for fact in &mut known[..=before] {
                    *fact &= rng.random::<f32>() < 0.5 + 0.5 * keep;
                }
            }
            row.given(&phrases.notes);
            for (fact, _) in asked.iter().zip(&known).filter(|(_, known)| **known) {
                row.given(&phrases.note(&fact.fact));
            }
            row.given(&phrases.notes_end);
            row.given(&self.tool(&asked[last])).may_jump();
            known[last] = true;
        }
        row.given(&phrases.notes);
        for (place, fact) in asked.iter().enumerate().filter(|(place, _)| known[*place]) {
            let junk = if place + 1 == turn { mix.junk } else { 0.0 };
            if rng.random::<f32>() < keep {
                row.written(&self.note(rng, fact, junk));
            }
        }
        row.written(&phrases.notes_end);
        match asked.get(turn) {
            Some(next) => {
                row.written(&self.search(next));
            }
            None => {
                row.written(&phrases.answer);
                self.answer(&mut row, &asked, &known);
            }
        }
        row
    }

    /// Notes and then the answer, so that P(answer | notes) means something. Loss on the answer.
    fn probe_row(&self, rng: &mut ChaCha8Rng, mix: &MixSettings) -> RowBuilder {
        let objectives = rng.random_range(1..=mix.turn_objectives_max.max(1));
        let asked = self.draw_facts(rng, mix, objectives);
        let searched = if rng.random_bool(EARLY_PROBE) {
            rng.random_range(1..=asked.len().max(1))
        } else {
            asked.len()
        };
        let known: Vec<bool> = (0..asked.len())
            .map(|place| place < searched && rng.random_bool(PROBE_KEEP))
            .collect();
        let phrases = &self.phrases;
        let mut row = RowBuilder::default();
        row.given(&prompt(phrases, &asked)).may_jump();
        row.given(&phrases.notes);
        for (fact, _) in asked.iter().zip(&known).filter(|(_, known)| **known) {
            row.given(&phrases.note(&fact.fact));
        }
        row.given(&phrases.notes_end).given(&phrases.answer);
        self.answer(&mut row, &asked, &known);
        row
    }

    /// The gold answer; values that are not known are not trained.
    fn answer(&self, row: &mut RowBuilder, asked: &[Asked], known: &[bool]) {
        let phrases = &self.phrases;
        for (asked, known) in asked.iter().zip(known) {
            row.written(&phrases.note_key(&asked.fact));
            if *known {
                row.written(&asked.fact.value);
            } else {
                row.given(&asked.fact.value);
            }
            row.written(&phrases.semicolon);
        }
        row.written(&phrases.answer_end);
    }
}

/// Makes one row from its own random numbers.
type RowMaker<'a> = &'a dyn Fn(&mut ChaCha8Rng) -> RowBuilder;

impl Opening {
    /// Few tokens many times over, then more tokens fewer times.
    fn copy(self, task: &LookupTask, rng: &mut ChaCha8Rng) -> RowBuilder {
        let longest = 4 + (10.0 * self.grown) as usize;
        task.copy_row(rng, longest, 8 - (4.0 * self.grown) as usize)
    }

    /// Two facts, then more.
    fn drill(self, task: &LookupTask, rng: &mut ChaCha8Rng, mix: &MixSettings) -> RowBuilder {
        let most = 2 + (4.0 * self.grown) as u32;
        let facts = rng.random_range(2..=most);
        task.drill_row(rng, mix, facts, 3)
    }
}

fn keep_share(rng: &mut ChaCha8Rng, mix: &MixSettings) -> f32 {
    mix.keep.choose(rng).copied().unwrap_or(1.0)
}

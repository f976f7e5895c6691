//! Drills of the cold start: copying, recalling and keeping the order, each by itself.

use rand::RngExt as _;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand_chacha::ChaCha8Rng;

use crate::experiment::MixSettings;

use super::LookupTask;
use super::phrases::Ids;
use super::question::{prompt, result};
use super::rows::RowBuilder;

/// Objectives of a sequence drill.
const SEQUENCE_OBJECTIVES: std::ops::RangeInclusive<u32> = 2..=6;
/// Share of sequence drills whose notes keep the fact.
const SEQUENCE_KEEP: f64 = 0.7;

impl LookupTask {
    /// Facts as a passage, then each asked again `rounds` times in note form, in random order; loss
    /// on the values.
    pub(super) fn drill_row(
        &self,
        rng: &mut ChaCha8Rng,
        mix: &MixSettings,
        facts: u32,
        rounds: u32,
    ) -> RowBuilder {
        let mut asked = self.draw_facts(rng, mix, facts);
        let phrases = &self.phrases;
        let mut row = RowBuilder::default();
        row.given(&phrases.question).given(&phrases.question_end);
        row.may_jump().given(&phrases.tool);
        for asked in &asked {
            row.given(&phrases.sentence(&asked.fact));
        }
        row.given(&phrases.tool_end)
            .may_jump()
            .given(&phrases.notes);
        for _ in 0..rounds {
            asked.shuffle(rng);
            for asked in &asked {
                row.given(&phrases.note_key(&asked.fact))
                    .written(&asked.fact.value)
                    .written(&phrases.semicolon);
            }
        }
        row
    }

    /// A short random segment over and over; loss from its second token on in the repetitions.
    pub(super) fn copy_row(
        &self,
        rng: &mut ChaCha8Rng,
        longest: usize,
        times: usize,
    ) -> RowBuilder {
        let length = rng.random_range(longest / 2..=longest).max(1);
        let mut segment = Ids::with_capacity(length);
        for _ in 0..length {
            let tokens = if rng.random_bool(0.5) {
                &self.source.word_tokens
            } else {
                &self.source.part_tokens
            };
            segment.extend(tokens.choose(rng));
        }
        let mut row = RowBuilder::default();
        row.given(&segment);
        // That the segment begins again cannot be known the first time.
        let (first, rest) = segment.split_at(segment.len().min(1));
        row.given(first).written(rest);
        for _ in 2..times {
            row.written(&segment);
        }
        row
    }

    /// The results of one question in random order; after each, note it (or not) and go on to the
    /// objective after it.
    pub(super) fn sequence_row(&self, rng: &mut ChaCha8Rng, mix: &MixSettings) -> RowBuilder {
        let objectives = rng.random_range(SEQUENCE_OBJECTIVES);
        let asked = self.draw_facts(rng, mix, objectives);
        let keeps = rng.random_bool(SEQUENCE_KEEP);
        let mut order: Vec<usize> = (0..asked.len()).collect();
        order.shuffle(rng);
        let phrases = &self.phrases;
        let mut row = RowBuilder::default();
        row.given(&prompt(phrases, &asked)).may_jump();
        for place in order {
            row.given(&phrases.tool)
                .given(&result(phrases, &asked[place]))
                .given(&phrases.tool_end)
                .given(&phrases.notes);
            if keeps {
                row.written(&phrases.note(&asked[place].fact));
            }
            row.written(&phrases.notes_end);
            match asked.get(place + 1) {
                Some(next) => row
                    .written(&phrases.search)
                    .written(&phrases.key(&next.fact))
                    .written(&phrases.search_end),
                None => row.written(&phrases.done),
            };
            row.may_jump();
        }
        row
    }
}

//! The rows of a trajectory in order, with the blocks of the protocol found in them.

use std::ops::Range;
use std::sync::Arc;

use crate::record::TokenBlock;
use crate::rollout::{ParsedTurn, TurnForm, parse_turn};
use crate::trajectory::{Row, Tag, TokenId, TrajectoryId};

/// What a stretch of tokens is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentKind {
    /// Question, earlier turns, tool results: given, not written.
    Context,
    /// A block of the protocol.
    Block(Tag),
    /// Written outside any block.
    Loose,
}

impl SegmentKind {
    /// As headings name it.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Context => "context",
            Self::Block(Tag::Mem) => "notes",
            Self::Block(Tag::Think) => "thought",
            Self::Block(Tag::Search) => "search",
            Self::Block(Tag::Access) => "access",
            Self::Block(Tag::Answer) => "answer",
            Self::Loose => "outside the tags",
        }
    }
}

/// A stretch of tokens of one kind in one turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The tokens, as places in the document.
    pub tokens: Range<usize>,
    /// The turn, from 0.
    pub turn: u32,
    /// The row of the trajectory.
    pub row: u32,
    /// What it is.
    pub kind: SegmentKind,
}

/// All rows of a trajectory, one after another. Columns have one entry a token.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// Whose.
    pub id: TrajectoryId,
    /// The text of every token of the vocabulary.
    pub vocabulary: Arc<Vec<String>>,
    /// Ids.
    pub ids: Vec<TokenId>,
    /// Response mask.
    pub mask: Vec<bool>,
    /// Log-prob when sampled.
    pub sampled: Vec<f32>,
    /// Log-prob for the learner.
    pub learner: Vec<f32>,
    /// Outcome part of the weight.
    pub outcome: Vec<f32>,
    /// Memory part.
    pub memory: Vec<f32>,
    /// KL part.
    pub kl: Vec<f32>,
    /// Entropy of the policy, nats; empty if a row was recorded without it.
    pub entropy: Vec<f32>,
    /// The weight.
    pub weight: Vec<f32>,
    /// Stretches, in order and without gaps.
    pub segments: Vec<Segment>,
    /// Rows that stand together here.
    pub rows: usize,
}

impl Document {
    /// Lays blocks in order, and finds the stretches in them.
    #[must_use]
    pub fn new(id: TrajectoryId, blocks: &[TokenBlock], vocabulary: &Arc<Vec<String>>) -> Self {
        let mut made = Self::numbers(id, blocks, vocabulary);
        let mut base = 0;
        for block in blocks {
            for mut segment in segments(block, vocabulary) {
                segment.tokens = segment.tokens.start + base..segment.tokens.end + base;
                made.segments.push(segment);
            }
            base += block.ids.len();
        }
        made
    }

    /// Lays blocks in order, for their numbers alone: no stretch is looked for.
    #[must_use]
    pub fn numbers(id: TrajectoryId, blocks: &[TokenBlock], vocabulary: &Arc<Vec<String>>) -> Self {
        let mut made = Self {
            id,
            vocabulary: Arc::clone(vocabulary),
            rows: blocks.len(),
            ..Self::default()
        };
        for block in blocks {
            made.ids.extend_from_slice(&block.ids);
            made.mask.extend_from_slice(&block.mask);
            made.sampled.extend_from_slice(&block.sampled);
            made.learner.extend_from_slice(&block.learner);
            made.outcome.extend_from_slice(&block.outcome);
            made.memory.extend_from_slice(&block.memory);
            made.kl.extend_from_slice(&block.kl);
            made.entropy.extend_from_slice(&block.entropy);
            made.weight.extend_from_slice(&block.weight);
        }
        if made.entropy.len() != made.ids.len() {
            made.entropy.clear();
        }
        made
    }

    /// Tokens in all rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether there is no token.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The text of a token.
    #[must_use]
    pub fn text(&self, token: usize) -> &str {
        let id = self.ids.get(token).copied().unwrap_or(u32::MAX);
        word(&self.vocabulary, id)
    }

    /// The stretch that a token stands in, by its place among the stretches.
    #[must_use]
    pub fn segment_of(&self, token: usize) -> Option<usize> {
        let after = self.segments.partition_point(|of| of.tokens.start <= token);
        after.checked_sub(1).filter(|_| token < self.len())
    }
}

/// The text of an id; a mark for one that the vocabulary does not have.
fn word(vocabulary: &[String], id: TokenId) -> &str {
    vocabulary.get(id as usize).map_or("<?>", String::as_str)
}

/// The turns that the policy wrote in a block: (turn, its ids as a range, forced part included).
fn written(block: &TokenBlock, vocabulary: &[String]) -> Vec<(u32, Range<usize>)> {
    let mut turns: Vec<(u32, Range<usize>)> = Vec::new();
    let mut at = 0;
    while at < block.ids.len() {
        if !block.mask.get(at).copied().unwrap_or(false) {
            at += 1;
            continue;
        }
        let turn = block.turn.get(at).copied().unwrap_or(0);
        let sampled = |place: &usize| {
            block.mask.get(*place) == Some(&true) && block.turn.get(*place) == Some(&turn)
        };
        let end = (at..block.ids.len())
            .find(|place| !sampled(place))
            .unwrap_or(block.ids.len());
        let start = at - forced_before(block, vocabulary, at);
        turns.push((turn, start..end));
        at = end;
    }
    turns
}

/// How many tokens right before a sampled stretch are the forced opening tag of the notes.
fn forced_before(block: &TokenBlock, vocabulary: &[String], at: usize) -> usize {
    let open = Tag::Mem.open();
    let first = block.ids.get(at).map_or("", |id| word(vocabulary, *id));
    if first.trim_start().starts_with(open) {
        return 0;
    }
    let mut text = String::new();
    for (count, id) in block.ids.iter().take(at).rev().enumerate() {
        text.insert_str(0, word(vocabulary, *id));
        if text == open {
            return count + 1;
        }
        if !open.ends_with(text.as_str()) {
            break;
        }
    }
    0
}

/// The blocks of a turn. A record of tokens does not name the form of its turns, but notes come first
/// where there are any.
fn parsed_turn(ids: &[u32], vocabulary: &[String]) -> ParsedTurn {
    let open = "<mem>";
    let first: String = ids
        .iter()
        .take(open.len())
        .map(|&id| word(vocabulary, id))
        .collect();
    let form = match first.starts_with(open) {
        true => TurnForm::Noted,
        false => TurnForm::Bare,
    };
    parse_turn(ids, form, |id| word(vocabulary, id).as_bytes())
}

/// A row of the learner, from its block: the notes' spans are found as the rollout found them.
#[must_use]
pub fn row_of(block: &TokenBlock, vocabulary: &[String]) -> Row {
    let mut notes = Vec::new();
    for (turn, range) in written(block, vocabulary) {
        let ids = block.ids.get(range.clone()).unwrap_or_default();
        let parsed = parsed_turn(ids, vocabulary);
        for span in parsed.spans.iter().filter(|span| span.tag == Tag::Mem) {
            let start = range.start as u32;
            notes.push((turn, start + span.start, start + span.end));
        }
    }
    Row {
        ids: block.ids.clone(),
        mask: block.mask.clone(),
        logprobs: block.sampled.clone(),
        turn: block.turn.clone(),
        notes,
    }
}

/// The stretches of a block.
fn segments(block: &TokenBlock, vocabulary: &[String]) -> Vec<Segment> {
    let mut found: Vec<Segment> = Vec::new();
    let mut push = |tokens: Range<usize>, turn: u32, kind: SegmentKind| {
        if !tokens.is_empty() {
            found.push(Segment {
                tokens,
                turn,
                row: block.row,
                kind,
            });
        }
    };
    let turn_at = |place: usize| block.turn.get(place).copied().unwrap_or(0);
    let mut at = 0;
    for (turn, range) in written(block, vocabulary) {
        push(
            at..range.start,
            turn_at(range.start.saturating_sub(1)),
            SegmentKind::Context,
        );
        let ids = block.ids.get(range.clone()).unwrap_or_default();
        let parsed = parsed_turn(ids, vocabulary);
        let mut inside = range.start;
        for span in &parsed.spans {
            let start = (range.start + span.start as usize).max(inside);
            let end = (range.start + span.end as usize).max(start);
            push(inside..start, turn, SegmentKind::Loose);
            push(start..end, turn, SegmentKind::Block(span.tag));
            inside = end;
        }
        push(inside..range.end, turn, SegmentKind::Loose);
        at = range.end;
    }
    push(at..block.ids.len(), turn_at(at), SegmentKind::Context);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vocabulary of words, and a block over it: `~` marks what was not sampled.
    fn block(words: &[(&str, u32)]) -> (TokenBlock, Arc<Vec<String>>) {
        let mut vocabulary: Vec<String> = Vec::new();
        let mut block = TokenBlock::default();
        for (word, turn) in words {
            let text = word.trim_start_matches('~');
            let known = vocabulary.iter().position(|known| known == text);
            let id = known.unwrap_or_else(|| {
                vocabulary.push(text.to_owned());
                vocabulary.len() - 1
            });
            let on = !word.starts_with('~');
            block.ids.push(id as u32);
            block.turn.push(*turn);
            block.mask.push(on);
            for column in [
                &mut block.sampled,
                &mut block.outcome,
                &mut block.memory,
                &mut block.weight,
                &mut block.learner,
                &mut block.kl,
                &mut block.entropy,
            ] {
                column.push(f32::from(u8::from(on)));
            }
        }
        (block, Arc::new(vocabulary))
    }

    #[test]
    fn a_forced_tag_belongs_to_the_notes_it_opens() {
        let (block, vocabulary) = block(&[
            ("~<q>", 1),
            ("~ who?", 1),
            ("~<mem>", 1),
            (" Ada", 1),
            ("</mem>", 1),
            ("<think>", 1),
            (" x", 1),
            ("</think>", 1),
            ("<answer>", 1),
            ("Ada", 1),
            ("</answer>", 1),
        ]);
        assert_eq!(row_of(&block, &vocabulary).notes, [(1, 2, 5)]);
        let document = Document::new(TrajectoryId::default(), &[block], &vocabulary);
        let kinds: Vec<&str> = document.segments.iter().map(|of| of.kind.text()).collect();
        assert_eq!(kinds, ["context", "notes", "thought", "answer"]);
        assert_eq!(document.segment_of(3), Some(1));
        assert_eq!(document.segment_of(99), None);
    }

    #[test]
    fn a_turn_that_writes_its_own_tag_leaves_the_one_before_alone() {
        let (block, vocabulary) = block(&[
            ("~<q>", 0),
            ("<mem>", 0),
            ("</mem>", 0),
            ("<think>", 0),
            ("</think>", 0),
            ("<search>", 0),
            ("a", 0),
            ("</search>", 0),
            ("~<tool>", 0),
            ("~ b", 0),
            ("<mem>", 1),
            (" b", 1),
            ("</mem>", 1),
            ("oops", 1),
        ]);
        assert_eq!(row_of(&block, &vocabulary).notes, [(0, 1, 3), (1, 10, 13)]);
        let document = Document::new(TrajectoryId::default(), &[block], &vocabulary);
        let last = document.segments.last().unwrap();
        assert_eq!((last.kind, last.turn), (SegmentKind::Loose, 1));
        let covered: usize = document.segments.iter().map(|of| of.tokens.len()).sum();
        assert_eq!(covered, document.len());
    }
}

//! Which contexts a trajectory is scored in; `gains.rs` makes memory rewards of the scores.
//!
//! Each trajectory is scored in one forward pass: its transcript is the trunk, and a branch hangs on
//! it for every context that the settings ask for. A context is what stands before the gold answer:
//! everything up to and including a round's notes (`full_t`), or the question followed by notes
//! alone (`m_t`, `m_{t-1}`) or by empty notes. `m_{t-1}` is the same branch as the `m_t` of the round
//! before.
//!
//! Sub-answers are slices of the joined gold answer, not texts of their own: the policy was taught
//! joined answers, one branch gives all of them, and the answers before a slice are given alike in
//! every context.

use std::ops::Range;

use crate::credit::CreditError;
use crate::credit::memory::support::supported;
use crate::engine::{Branch, ScoreRequest, Weights};
use crate::experiment::{Answers, ContextKind, CreditSettings, First, Scorer, Target, Unclosed};
use crate::rollout::{ForcedIds, notes_content_ids, training_rows};
use crate::trajectory::{Compared, QuestionData, Row, Tag, TokenId, TrajectoryId, Turn};

/// A context before the gold answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Context {
    /// The question and the notes that stand here in the trunk.
    Notes(u32, u32),
    /// Everything up to here in the trunk.
    Full(u32),
    /// The question and empty notes.
    Empty,
}

/// One round to reward: its notes, what they are compared with, and whether its answers were seen.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Round {
    pub(super) turn: u32,
    /// Number of the context that holds the notes alone.
    pub(super) notes: usize,
    /// What it is compared with, and the number of that context.
    pub(super) against: Option<(Compared, usize)>,
    pub(super) notes_tokens: u32,
    /// For every sub-answer.
    pub(super) supported: Vec<bool>,
}

/// The request of a trajectory and what its branches mean.
#[derive(Clone, Debug)]
pub struct MemoryScorePlan {
    /// What the engine is asked.
    pub request: ScoreRequest,
    pub(super) rounds: Vec<Round>,
    /// The texts of the gold answer: branches of each context.
    pub(super) texts: usize,
    /// The sub-answers inside the first text.
    pub(super) slices: Vec<Range<usize>>,
}

/// The plan for a trajectory's notes: a round for every turn with closed notes (and, if the settings
/// say what those are worth, for turns without), the first turn only if the settings pay it. `gold` is the question whose answer is scored, usually `question` itself.
/// None if there is nothing to score.
///
/// # Errors
/// Notes that leave the transcript; a gold answer without tokens, or whose parts do not make it up.
pub fn plan_memory_scores(
    id: TrajectoryId,
    question: &QuestionData,
    gold: &QuestionData,
    turns: &[Turn],
    settings: &CreditSettings,
) -> Result<Option<MemoryScorePlan>, CreditError> {
    let rows = training_rows(ContextKind::Full, question, turns, &ForcedIds(Vec::new()));
    let Some(row) = rows.into_iter().next() else {
        return Ok(None);
    };
    let mut contexts: Vec<Context> = Vec::new();
    let mut rounds = Vec::new();
    let mut previous = Context::Empty;
    for turn in 0..turns.len() as u32 {
        let (notes, end) = match (
            row.notes.iter().find(|(of, ..)| *of == turn),
            settings.unclosed,
        ) {
            (Some(&(_, start, end)), _) => (Context::Notes(start, end), end),
            (None, Unclosed::Empty) => (Context::Empty, end_of(&row, turn)),
            (None, Unclosed::Skip) => continue,
        };
        if turn > 0 || settings.first == First::MinusEmpty {
            let against = match settings.target {
                _ if turn == 0 => Some((Compared::Empty, Context::Empty)),
                Target::MinusFull => Some((Compared::Full, Context::Full(end))),
                Target::MinusPrevious => Some((Compared::Previous, previous)),
                Target::MinusEmpty => Some((Compared::Empty, Context::Empty)),
                Target::Absolute => None,
            };
            let written = turns
                .get(turn as usize)
                .map(notes_content_ids)
                .unwrap_or_default();
            rounds.push(Round {
                turn,
                notes: place(&mut contexts, notes),
                against: against.map(|(kind, of)| (kind, place(&mut contexts, of))),
                notes_tokens: written.len() as u32,
                supported: support_of(written, turn, question, gold, turns),
            });
        }
        previous = notes;
    }
    let Some(first) = rounds.first() else {
        return Ok(None);
    };
    let texts = texts_of(gold, settings.answers);
    let slices = slices_of(gold, first.turn)?;
    let branches = branches(&row, question, turns, &contexts, &texts)?;
    let request = ScoreRequest {
        id,
        trunk: row.ids,
        score_trunk: false,
        branches,
        temperature: 1.0,
        under: match settings.scorer {
            Scorer::Policy => Weights::Policy,
            Scorer::Frozen => Weights::Reference,
            Scorer::Average(_) => Weights::Average,
        },
    };
    Ok(Some(MemoryScorePlan {
        request,
        rounds,
        texts: texts.len(),
        slices,
    }))
}

/// One past the last token that the policy wrote in a turn.
fn end_of(row: &Row, turn: u32) -> u32 {
    let written = row.turn.iter().zip(&row.mask);
    let last = written.rev().position(|(of, on)| *of == turn && *on);
    last.map_or(0, |from_the_end| (row.mask.len() - from_the_end) as u32)
}

/// The number of a context, which is added if it is new.
fn place(contexts: &mut Vec<Context>, context: Context) -> usize {
    contexts
        .iter()
        .position(|known| *known == context)
        .unwrap_or_else(|| {
            contexts.push(context);
            contexts.len() - 1
        })
}

/// For every sub-answer, whether notes that hold it could have it from the question or a tool result
/// of an earlier turn.
fn support_of(
    notes: &[TokenId],
    turn: u32,
    question: &QuestionData,
    gold: &QuestionData,
    turns: &[Turn],
) -> Vec<bool> {
    let mut observations: Vec<&[TokenId]> = vec![&question.prompt_ids];
    let before = turns.iter().take(turn as usize);
    observations.extend(before.filter_map(|turn| Some(&turn.tool.as_ref()?.ids[..])));
    gold.gold_answers
        .iter()
        .map(|aliases| {
            aliases
                .iter()
                .all(|alias| supported(&alias.value_ids, notes, &observations))
        })
        .collect()
}

/// The gold text of several answers: the first alias of each, joined by ";" (MemPO).
#[must_use]
pub fn joined_first_alias(answers: &[Vec<String>]) -> String {
    let first: Vec<&str> = answers
        .iter()
        .filter_map(|aliases| aliases.first().map(String::as_str))
        .collect();
    first.join(";")
}

/// The texts of the gold answer: the joined first aliases, and, if asked for, those with one alias
/// exchanged. (All combinations would grow as a product.)
fn texts_of(gold: &QuestionData, answers: Answers) -> Vec<Vec<TokenId>> {
    let mut texts = vec![gold.gold_ids.clone()];
    if answers == Answers::JoinedMaxAlias {
        for (place, aliases) in gold.gold_answers.iter().enumerate() {
            for alias in aliases.iter().skip(1) {
                let parts = gold.gold_answers.iter().enumerate().map(|(at, aliases)| {
                    let alias = if at == place {
                        Some(alias)
                    } else {
                        aliases.first()
                    };
                    alias.map(|alias| &alias.ids[..]).unwrap_or_default()
                });
                texts.push(parts.collect::<Vec<_>>().concat());
            }
        }
    }
    texts
}

/// Where the sub-answers stand in the joined text: one piece if the task names no parts.
fn slices_of(gold: &QuestionData, turn: u32) -> Result<Vec<Range<usize>>, CreditError> {
    let whole = gold.gold_ids.len();
    let mut slices = Vec::new();
    let mut at = 0;
    for aliases in &gold.gold_answers {
        let length = aliases.first().map_or(0, |alias| alias.ids.len());
        slices.push(at..at + length);
        at += length;
    }
    if slices.is_empty() {
        slices.push(0..whole);
        at = whole;
    }
    if let Some(answer) = slices.iter().position(Range::is_empty) {
        let problem = "has no tokens, so P(gold | context) does not exist";
        return Err(CreditError::BadAnswer {
            turn,
            answer,
            problem,
        });
    }
    if at != whole {
        return Err(CreditError::BadAnswer {
            turn,
            answer: slices.len() - 1,
            problem: "does not end where the joined gold answer ends",
        });
    }
    Ok(slices)
}

/// One branch for every context and text, the texts of a context one after the other.
fn branches(
    row: &Row,
    question: &QuestionData,
    turns: &[Turn],
    contexts: &[Context],
    texts: &[Vec<TokenId>],
) -> Result<Vec<Branch>, CreditError> {
    let prompt = question.prompt_ids.len() as u32;
    let prefix = &question.answer_prefix_ids;
    let mut branches = Vec::new();
    for &context in contexts {
        let (at, before) = match context {
            Context::Notes(start, end) => {
                let notes = row.ids.get(start as usize..end as usize);
                let notes = notes.ok_or_else(|| CreditError::BadSpan {
                    turn: row.turn.get(start as usize).copied().unwrap_or_default(),
                    start,
                    end,
                    length: row.ids.len(),
                    problem: "leaves the row",
                })?;
                (prompt, notes.to_vec())
            }
            Context::Full(end) => (end, Vec::new()),
            Context::Empty => (prompt, empty_notes(turns)),
        };
        for text in texts {
            let scored_from = (before.len() + prefix.len()) as u32;
            let ids = [&before[..], prefix, text].concat();
            branches.push(Branch {
                at,
                ids,
                scored_from,
            });
        }
    }
    Ok(branches)
}

/// The tags of the trajectory's first closed notes with nothing between them.
fn empty_notes(turns: &[Turn]) -> Vec<TokenId> {
    let first = turns.iter().find_map(|turn| {
        let span = turn.spans.iter().find(|span| span.tag == Tag::Mem)?;
        let part = |from: u32, to: u32| turn.ids.get(from as usize..to as usize);
        let open = part(span.start, span.inner_start)?;
        let close = part(span.inner_end, span.end)?;
        Some([open, close].concat())
    });
    first.unwrap_or_default()
}

//! The weights behind the pieces of the museum: as they should be, and as the published code made them.

use super::bench::Bench;
use super::moved::At;
use super::museum::Piece;
use crate::credit::group::{TokenRow, reinforce_plus_plus, verl};
use crate::experiment::{Baseline, CreditSettings};
use crate::gui::GuiError;
use crate::gui::tokens::Document;
use crate::gui::whatif::Member;
use crate::gui::words::signed;

/// The rollout as it should be.
///
/// # Errors
/// The record lacks what the piece is about.
pub fn right(bench: &Bench, at: At) -> Result<Document, GuiError> {
    match at.piece {
        Piece::LastTurnMask | Piece::TrainedTools => bench.as_recorded(at.place),
        Piece::LostReward => whitened(bench, at, false),
        Piece::TurnIndex => under(bench, at, Baseline::Absorbing),
    }
}

/// The rollout as the published code had it.
///
/// # Errors
/// As [`right`].
pub fn wrong(bench: &Bench, at: At) -> Result<Document, GuiError> {
    match at.piece {
        Piece::LastTurnMask => Ok(last_turn_only(bench.as_recorded(at.place)?)),
        Piece::TrainedTools => Ok(trained_tools(bench.as_recorded(at.place)?)),
        Piece::LostReward => whitened(bench, at, true),
        Piece::TurnIndex => under(bench, at, Baseline::PerRound),
    }
}

fn with_baseline(bench: &Bench, baseline: Baseline) -> CreditSettings {
    CreditSettings {
        memory: true,
        baseline,
        ..bench.recorded
    }
}

fn under(bench: &Bench, at: At, baseline: Baseline) -> Result<Document, GuiError> {
    let made = bench.under(at.place.group, &with_baseline(bench, baseline))?;
    bench.document(at.place, &made)
}

/// The notes of a turn, under the two baselines of verl #7244.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OfTurn {
    /// The turn.
    pub turn: u32,
    /// Rollouts whose notes of this turn are scored.
    pub reached: usize,
    /// How many of those have another memory part, as far as three decimals show.
    pub changed: u32,
}

/// The turns of the group.
///
/// # Errors
/// As [`right`].
pub fn by_turn(bench: &Bench, at: At) -> Result<Vec<OfTurn>, GuiError> {
    let made = |baseline| bench.under(at.place.group, &with_baseline(bench, baseline));
    let (right, wrong) = (made(Baseline::Absorbing)?, made(Baseline::PerRound)?);
    let mut turns: Vec<OfTurn> = Vec::new();
    for (right, wrong) in right.iter().zip(&wrong) {
        let parts = right.advantages.memory.iter().zip(&wrong.advantages.memory);
        for ((turn, was), (_, is)) in parts {
            let changed = u32::from(signed(*was, 3) != signed(*is, 3));
            match turns.iter_mut().find(|of| of.turn == *turn) {
                Some(of) => {
                    of.reached += 1;
                    of.changed += changed;
                }
                None => turns.push(OfTurn {
                    turn: *turn,
                    reached: 1,
                    changed,
                }),
            }
        }
    }
    turns.sort_by_key(|of| of.turn);
    if turns.is_empty() {
        return Err(GuiError::NotRecorded(
            "no notes of this group were scored".into(),
        ));
    }
    Ok(turns)
}

fn last_turn_only(mut of: Document) -> Document {
    let last = of.segments.iter().map(|segment| segment.turn).max();
    for segment in of.segments.clone() {
        if Some(segment.turn) == last {
            continue;
        }
        for token in segment.tokens {
            for column in [&mut of.weight, &mut of.outcome, &mut of.memory, &mut of.kl] {
                if let Some(value) = column.get_mut(token) {
                    *value = 0.0;
                }
            }
        }
    }
    of
}

/// Everything from the first token that was written in a row is trained on, with the weight of the answer.
fn trained_tools(mut of: Document) -> Document {
    let first = of.mask.iter().position(|on| *on).unwrap_or(0);
    let outcome = of.outcome.get(first).copied().unwrap_or(0.0);
    let mut begun = None;
    for segment in of.segments.clone() {
        for token in segment.tokens {
            let Some(on) = of.mask.get_mut(token) else {
                continue;
            };
            if *on {
                begun = Some(segment.row);
            } else if begun == Some(segment.row) {
                *on = true;
                for column in [&mut of.outcome, &mut of.weight] {
                    if let Some(value) = column.get_mut(token) {
                        *value = outcome;
                    }
                }
            }
        }
    }
    of
}

/// Rewards of every rollout of the group with its mask: the outcome on the last sampled token.
fn rows(bench: &Bench, at: At) -> Result<Vec<(Vec<f64>, &[bool])>, GuiError> {
    let of = |member: &'_ Member| -> Option<Vec<f64>> {
        let [row] = &member.rows[..] else {
            return None;
        };
        let mut rewards = vec![0.0; row.mask.len()];
        let last = row.mask.iter().rposition(|on| *on)?;
        *rewards.get_mut(last)? = member.rewards.outcome;
        Some(rewards)
    };
    let rows = bench.members(at.place.group).iter().map(|member| {
        let mask = member.rows.first().map(|row| &row.mask[..]);
        of(member).zip(mask).ok_or_else(|| {
            GuiError::NotRecorded(format!(
                "rollout {} is trained on in {} rows, and no tool stands inside one; this piece needs a run with the full history as context",
                member.id.member,
                member.rows.len()
            ))
        })
    });
    rows.collect()
}

fn token_rows<'a>(rows: &'a [(Vec<f64>, &'a [bool])]) -> Vec<TokenRow<'a>> {
    let of = |(rewards, mask): &'a (Vec<f64>, &'a [bool])| TokenRow { rewards, mask };
    rows.iter().map(of).collect()
}

/// REINFORCE++ over the rows of the group, as it is or as verl had it before its PR #7300.
fn whitened(bench: &Bench, at: At, published: bool) -> Result<Document, GuiError> {
    let rows = rows(bench, at)?;
    let rows = token_rows(&rows);
    let advantages = if published {
        verl::reinforce_plus_plus(&rows, 1.0).1
    } else {
        reinforce_plus_plus(&rows, 1.0)?.advantages
    };
    let member = bench.member(at.place)?;
    let mut block = member.blocks.first().cloned().unwrap_or_default();
    if let Some(weights) = advantages.get(at.place.member) {
        block.weight = weights.iter().map(|weight| *weight as f32).collect();
    }
    block.outcome.clone_from(&block.weight);
    block.memory.fill(0.0);
    block.kl.fill(0.0);
    Ok(Document::new(member.id, &[block], &bench.inputs.vocabulary))
}

/// Tokens of the rollout that have its reward in their return, as published.
///
/// # Errors
/// As [`right`].
pub fn heard(bench: &Bench, at: At) -> Result<u32, GuiError> {
    let rows = rows(bench, at)?;
    let rows = token_rows(&rows);
    let (returns, _) = verl::reinforce_plus_plus(&rows, 1.0);
    let of = returns.get(at.place.member).zip(rows.get(at.place.member));
    let count = of.map_or(0, |(returns, row)| {
        let tokens = returns.iter().zip(row.mask);
        tokens.filter(|(value, on)| **on && **value != 0.0).count()
    });
    Ok(count as u32)
}

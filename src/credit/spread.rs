//! From advantages to the weight of every token, kept apart by source.

use std::collections::BTreeMap;

use super::CreditError;
use crate::trajectory::{Advantages, MemoryTokens, Part, Row};

/// The parts of every token's weight; each has the length of the row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenCredit {
    /// A_T on every sampled token, 0 elsewhere.
    pub outcome: Vec<f32>,
    /// A_M,t on the sampled tokens of the notes of turn t, tags included (or of the whole turn, see
    /// [`MemoryTokens`]), 0 elsewhere.
    pub memory: Vec<f32>,
    /// What the KL in the reward changed, on sampled tokens; empty if it costs nothing.
    pub kl: Vec<f32>,
    /// What the learner multiplies: outcome + KL + memory.
    pub weight: Vec<f32>,
}

/// Lays advantages out over a row: `A_k = A_T + A_KL + A_M,t` for tokens inside `mem_t`,
/// `A_T + A_KL` for every other sampled token, exactly 0 for the prompt's and the tools' (MemPO,
/// arXiv 2603.00680).
///
/// # Errors
/// A mask of another length than the row; a span of notes that leaves the row or overlaps the one
/// before it; a sampled token without a number where the estimator gives one a token.
pub fn token_credit(row: &Row, advantages: &Advantages) -> Result<TokenCredit, CreditError> {
    let mut credit = TokenCredit::default();
    token_credit_into(row, advantages, &mut credit)?;
    Ok(credit)
}

/// [`token_credit`] into lists that are used again, so that nothing is allocated.
///
/// # Errors
/// As [`token_credit`]; what the lists hold then means nothing.
pub fn token_credit_into(
    row: &Row,
    advantages: &Advantages,
    credit: &mut TokenCredit,
) -> Result<(), CreditError> {
    let length = row.ids.len();
    if row.mask.len() != length {
        return Err(CreditError::MaskLength {
            found: row.mask.len(),
            expected: length,
        });
    }
    let TokenCredit {
        outcome,
        memory,
        kl,
        weight,
    } = credit;
    // One pass each, over slices of one length: the compiler turns them into wide instructions.
    lay_out(row, &advantages.outcome, outcome)?;
    memory.clear();
    memory.resize(length, 0.0);
    weight.clear();
    if advantages.kl.is_nothing() {
        kl.clear();
        weight.extend_from_slice(outcome);
    } else {
        lay_out(row, &advantages.kl, kl)?;
        weight.extend(outcome.iter().zip(&*kl).map(|(outcome, kl)| outcome + kl));
    }
    let mut free_from = 0;
    for &(turn, start, end) in &row.notes {
        let bad = |problem| CreditError::BadSpan {
            turn,
            start,
            end,
            length,
            problem,
        };
        let span = start as usize..end as usize;
        let (Some(mask), Some(memory), Some(weight)) = (
            row.mask.get(span.clone()),
            memory.get_mut(span.clone()),
            weight.get_mut(span),
        ) else {
            return Err(bad("leaves the row"));
        };
        if start < free_from {
            return Err(bad("overlaps the notes before it"));
        }
        free_from = end;
        let found = advantages.memory.iter().find(|(of, _)| *of == turn);
        let Some(&(_, value)) = found.filter(|_| advantages.over == MemoryTokens::Notes) else {
            continue;
        };
        for ((&on, memory), weight) in mask.iter().zip(memory).zip(weight) {
            if on {
                *memory = value;
                *weight += value;
            }
        }
    }
    over_turns(row, advantages, memory, weight)
}

/// The memory part on whole turns: of all, or of those that closed no notes.
fn over_turns(
    row: &Row,
    advantages: &Advantages,
    memory: &mut [f32],
    weight: &mut [f32],
) -> Result<(), CreditError> {
    let whole = |turn: u32| {
        advantages.over == MemoryTokens::Turn || row.notes.iter().all(|(of, ..)| *of != turn)
    };
    let parts = advantages.memory.iter().copied();
    let parts: Vec<(u32, f32)> = parts.filter(|(turn, _)| whole(*turn)).collect();
    if parts.is_empty() {
        return Ok(());
    }
    if row.turn.len() != row.mask.len() {
        return Err(CreditError::MaskLength {
            found: row.mask.len(),
            expected: row.turn.len(),
        });
    }
    let places = row
        .mask
        .iter()
        .zip(&row.turn)
        .zip(memory.iter_mut().zip(weight));
    for ((_, turn), (memory, weight)) in places.filter(|((on, _), _)| **on) {
        if let Some((_, value)) = parts.iter().find(|(of, _)| of == turn) {
            *memory = *value;
            *weight += *value;
        }
    }
    Ok(())
}

/// A part on every sampled token of a row, 0 elsewhere.
fn lay_out(row: &Row, part: &Part, column: &mut Vec<f32>) -> Result<(), CreditError> {
    column.clear();
    match part {
        Part::Same(value) => {
            let on_sampled = |&on: &bool| if on { *value } else { 0.0 };
            column.extend(row.mask.iter().map(on_sampled));
        }
        Part::Each(_) => {
            if row.turn.len() != row.mask.len() {
                return Err(CreditError::MaskLength {
                    found: row.mask.len(),
                    expected: row.turn.len(),
                });
            }
            // Sampled tokens met so far, by turn.
            let mut met: BTreeMap<u32, usize> = BTreeMap::new();
            for (&on, &turn) in row.mask.iter().zip(&row.turn) {
                if !on {
                    column.push(0.0);
                    continue;
                }
                let token = met.entry(turn).or_default();
                let value = part.at(turn, *token);
                column.push(value.ok_or(CreditError::NoAdvantage {
                    turn,
                    token: *token,
                })?);
                *token += 1;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row {
            ids: (0..8).collect(),
            mask: vec![false, true, true, true, false, true, true, true],
            logprobs: vec![0.0; 8],
            turn: vec![0, 0, 0, 0, 0, 1, 1, 1],
            notes: vec![(0, 1, 3), (1, 5, 7)],
        }
    }

    #[test]
    fn memory_falls_on_notes_alone_and_nothing_on_masked_tokens() {
        let credit = token_credit(
            &row(),
            &Advantages {
                outcome: 1.0.into(),
                memory: vec![(1, -0.5)],
                ..Advantages::default()
            },
        )
        .unwrap();
        assert_eq!(credit.outcome, [0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0]);
        assert_eq!(credit.memory, [0.0, 0.0, 0.0, 0.0, 0.0, -0.5, -0.5, 0.0]);
        assert_eq!(credit.weight, [0.0, 1.0, 1.0, 1.0, 0.0, 0.5, 0.5, 1.0]);
    }

    #[test]
    fn numbers_of_tokens_follow_turns_and_sampled_tokens_and_parts_add_up() {
        let advantages = Advantages {
            outcome: Part::Each(vec![vec![1.0, 2.0, 3.0], vec![4.0, 5.0, 6.0]]),
            kl: Part::Same(-0.25),
            memory: vec![(1, 10.0)],
            ..Advantages::default()
        };
        let credit = token_credit(&row(), &advantages).unwrap();
        assert_eq!(credit.outcome, [0.0, 1.0, 2.0, 3.0, 0.0, 4.0, 5.0, 6.0]);
        let k = -0.25;
        assert_eq!(credit.kl, [0.0, k, k, k, 0.0, k, k, k]);
        assert_eq!(
            credit.weight,
            [0.0, 0.75, 1.75, 2.75, 0.0, 13.75, 14.75, 5.75]
        );
        let short = Advantages {
            outcome: Part::Each(vec![vec![1.0, 2.0, 3.0], vec![4.0]]),
            ..Advantages::default()
        };
        assert_eq!(
            token_credit(&row(), &short),
            Err(CreditError::NoAdvantage { turn: 1, token: 1 })
        );
        // Lists that are used again hold nothing of before.
        let mut again = credit;
        token_credit_into(&row(), &Advantages::default(), &mut again).unwrap();
        assert_eq!((again.kl.len(), again.weight), (0, vec![0.0; 8]));
    }

    #[test]
    fn memory_falls_on_whole_turns_if_asked_to_and_where_no_notes_were_closed() {
        let mut advantages = Advantages {
            outcome: 1.0.into(),
            memory: vec![(0, 2.0), (1, -0.5)],
            over: MemoryTokens::Turn,
            ..Advantages::default()
        };
        let credit = token_credit(&row(), &advantages).unwrap();
        assert_eq!(credit.memory, [0.0, 2.0, 2.0, 2.0, 0.0, -0.5, -0.5, -0.5]);
        assert_eq!(credit.weight, [0.0, 3.0, 3.0, 3.0, 0.0, 0.5, 0.5, 0.5]);
        advantages.over = MemoryTokens::Notes;
        let mut unclosed = row();
        unclosed.notes.pop();
        let credit = token_credit(&unclosed, &advantages).unwrap();
        assert_eq!(credit.memory, [0.0, 2.0, 2.0, 0.0, 0.0, -0.5, -0.5, -0.5]);
    }

    #[test]
    fn spans_that_overlap_or_leave_the_row_are_refused() {
        let mut overlapping = row();
        overlapping.notes = vec![(0, 1, 4), (1, 3, 6)];
        assert!(matches!(
            token_credit(&overlapping, &Advantages::default()),
            Err(CreditError::BadSpan { turn: 1, .. })
        ));
        let mut short = row();
        short.mask.pop();
        assert_eq!(
            token_credit(&short, &Advantages::default()),
            Err(CreditError::MaskLength {
                found: 7,
                expected: 8
            })
        );
        let mut outside = row();
        outside.notes = vec![(0, 6, 9)];
        assert!(matches!(
            token_credit(&outside, &Advantages::default()),
            Err(CreditError::BadSpan { turn: 0, .. })
        ));
    }
}

//! The KL to the reference, estimated from every sampled token (`learner.kl_in_reward`).
//!
//! The rows that will be trained are scored under the reference, at the temperature at which they
//! were sampled; a token's estimate is made of that log-prob and the one it was sampled with.

use crate::credit::CreditError;
use crate::credit::kl::kl_estimate;
use crate::engine::{ScoreRequest, Scored, Weights};
use crate::experiment::KlKind;
use crate::trajectory::{Row, TrajectoryId};

/// What the engine is asked for one trajectory: the log-probs of each of its rows.
#[must_use]
pub fn reference_requests(id: TrajectoryId, rows: &[Row], temperature: f32) -> Vec<ScoreRequest> {
    let request = |row: &Row| ScoreRequest {
        id,
        trunk: row.ids.clone(),
        score_trunk: true,
        branches: Vec::new(),
        temperature,
        under: Weights::Reference,
    };
    rows.iter().map(request).collect()
}

/// The KL of every sampled token, by turn, from the scores of [`reference_requests`].
///
/// # Errors
/// Scores that are not one a row and token.
pub fn kl_by_turn(
    kind: KlKind,
    rows: &[Row],
    scored: &[&Scored],
    turns: usize,
) -> Result<Vec<Vec<f32>>, CreditError> {
    let mut by_turn = vec![Vec::new(); turns];
    for (number, row) in rows.iter().enumerate() {
        let reference = scored.get(number).map_or(&[][..], |scored| &scored.trunk);
        if reference.len() != row.ids.len() {
            return Err(CreditError::LengthsDiffer {
                member: number,
                what: "log-probs under the reference",
                found: reference.len(),
                expected: row.ids.len(),
            });
        }
        let tokens = row.logprobs.iter().zip(reference);
        let places = row.mask.iter().zip(&row.turn);
        for ((&sampled, &reference), (_, &turn)) in tokens.zip(places).filter(|(_, (on, _))| **on) {
            let kl = kl_estimate(kind, f64::from(sampled), f64::from(reference));
            if let Some(list) = by_turn.get_mut(turn as usize) {
                list.push(kl as f32);
            }
        }
    }
    Ok(by_turn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampled_tokens_alone_are_estimated_each_in_its_turn() {
        let row = |turn: &[u32], mask: &[bool], logprobs: &[f32]| Row {
            ids: (0..turn.len() as u32).collect(),
            mask: mask.to_vec(),
            logprobs: logprobs.to_vec(),
            turn: turn.to_vec(),
            ..Row::default()
        };
        let rows = [
            row(&[0, 0, 0], &[false, true, true], &[0.0, -1.0, -2.0]),
            row(&[1, 1], &[false, true], &[0.0, -0.5]),
        ];
        let id = TrajectoryId::default();
        let requests = reference_requests(id, &rows, 0.7);
        assert_eq!(requests.len(), 2);
        assert!(
            requests
                .iter()
                .all(|r| r.under == Weights::Reference && r.score_trunk && r.temperature == 0.7)
        );
        let scored = |trunk: &[f32]| Scored {
            id,
            trunk: trunk.to_vec(),
            branches: Vec::new(),
        };
        let (a, b) = (scored(&[0.0, -1.5, -1.0]), scored(&[0.0, -0.5]));
        let kl = |kind| kl_by_turn(kind, &rows, &[&a, &b], 3).unwrap();
        assert_eq!(kl(KlKind::K1), [vec![0.5, -1.0], vec![0.0], vec![]]);
        assert_eq!(kl(KlKind::Abs), [vec![0.5, 1.0], vec![0.0], vec![]]);
        assert_eq!(kl(KlKind::K2), [vec![0.125, 0.5], vec![0.0], vec![]]);
        assert!(kl_by_turn(KlKind::K1, &rows, &[&a], 3).is_err());
    }
}

//! Memory credit: what a note is worth, and how that is compared with other notes (MemPO,
//! arXiv 2603.00680).

use super::CreditError;
use super::group::{EPSILON, mean_std};
use crate::experiment::{Baseline, Threshold};

/// P(gold | context): the geometric mean of the probabilities of the gold answer's tokens,
/// `exp(mean of log p)`, over the tokens that pass the threshold; 0 if none passes.
///
/// MemPO's code counts only tokens whose own probability is above 0.5 (strictly).
///
/// # Errors
/// An answer without tokens.
pub fn probability(logprobs: &[f32], threshold: Threshold) -> Result<f64, CreditError> {
    if logprobs.is_empty() {
        return Err(CreditError::EmptyAnswer);
    }
    let floor = match threshold {
        Threshold::Off => f64::NEG_INFINITY,
        Threshold::Own(p) => f64::from(p).ln(),
    };
    let counted = logprobs
        .iter()
        .map(|&logprob| f64::from(logprob))
        .filter(|&logprob| logprob > floor || floor == f64::NEG_INFINITY);
    let (sum, count) = counted.fold((0.0, 0u32), |(sum, count), logprob| {
        (sum + logprob, count + 1)
    });
    Ok(if count == 0 {
        0.0
    } else {
        (sum / f64::from(count)).exp()
    })
}

/// The memory reward of one round of one rollout.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundReward {
    /// The turn, from 0.
    pub turn: u32,
    /// r_t.
    pub reward: f64,
}

/// A_M,t for every round of every rollout of one question, in the shape of `rewards`.
///
/// `Pooled` (MemPO): mean and unbiased deviation over all rounds of all rollouts. `PerRound`: over
/// the rollouts that reached the same round. Divided by `deviation + 1e-6` if `std`. A pool of one
/// keeps its raw reward (mean 0, deviation 1).
///
/// # Errors
/// A reward that is not finite.
pub fn advantages(
    rewards: &[Vec<RoundReward>],
    baseline: Baseline,
    std: bool,
) -> Result<Vec<Vec<f64>>, CreditError> {
    for (member, rounds) in rewards.iter().enumerate() {
        if let Some(round) = rounds.iter().find(|round| !round.reward.is_finite()) {
            return Err(CreditError::MemoryNotFinite {
                member,
                turn: round.turn,
                value: round.reward,
            });
        }
    }
    let statistics = |keep: &dyn Fn(&RoundReward) -> bool| {
        let pool: Vec<f64> = rewards
            .iter()
            .flatten()
            .filter(|round| keep(round))
            .map(|round| round.reward)
            .collect();
        mean_std(&pool)
    };
    let normal = |reward: f64, (mean, deviation): (f64, f64)| {
        (reward - mean) / if std { deviation + EPSILON } else { 1.0 }
    };
    Ok(match baseline {
        Baseline::Pooled => {
            let pooled = statistics(&|_| true);
            rewards
                .iter()
                .map(|rounds| {
                    rounds
                        .iter()
                        .map(|round| normal(round.reward, pooled))
                        .collect()
                })
                .collect()
        }
        Baseline::PerRound => rewards
            .iter()
            .map(|rounds| {
                rounds
                    .iter()
                    .map(|round| {
                        normal(round.reward, statistics(&|other| other.turn == round.turn))
                    })
                    .collect()
            })
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(rewards: &[f64]) -> Vec<RoundReward> {
        rewards
            .iter()
            .enumerate()
            .map(|(at, &reward)| RoundReward {
                turn: at as u32 + 1,
                reward,
            })
            .collect()
    }

    #[test]
    fn the_threshold_drops_exactly_the_unknown_tokens() {
        let logprobs = [0.9f32.ln(), 0.1f32.ln()];
        assert!((probability(&logprobs, Threshold::Off).unwrap() - 0.3).abs() < 1e-6);
        assert!((probability(&logprobs, Threshold::Own(0.5)).unwrap() - 0.9).abs() < 1e-6);
        assert_eq!(
            probability(&[0.1f32.ln()], Threshold::Own(0.5)).unwrap(),
            0.0
        );
        assert_eq!(
            probability(&[], Threshold::Off),
            Err(CreditError::EmptyAnswer)
        );
    }

    #[test]
    fn a_better_memory_can_score_lower_under_its_own_threshold() {
        // The warning of the specification: memory (-0.1, -0.6) beats full (-0.1, -2.0), yet loses.
        let memory = probability(&[-0.1, -0.6], Threshold::Own(0.5)).unwrap();
        let full = probability(&[-0.1, -2.0], Threshold::Own(0.5)).unwrap();
        assert!(memory < full, "{memory} {full}");
    }

    #[test]
    fn pooling_spans_rounds_and_per_round_does_not() {
        let group = [rounds(&[0.0, 1.0]), rounds(&[0.0, 3.0])];
        let pooled = advantages(&group, Baseline::Pooled, false).unwrap();
        assert_eq!(pooled, [[-1.0, 0.0], [-1.0, 2.0]]);
        let per_round = advantages(&group, Baseline::PerRound, false).unwrap();
        assert_eq!(per_round, [[0.0, -1.0], [0.0, 1.0]]);
    }

    #[test]
    fn a_bad_reward_names_member_and_turn() {
        let group = [rounds(&[0.0]), rounds(&[0.0, f64::NAN])];
        let error = advantages(&group, Baseline::Pooled, true).unwrap_err();
        assert!(
            matches!(
                error,
                CreditError::MemoryNotFinite {
                    member: 1,
                    turn: 2,
                    ..
                }
            ),
            "{error}"
        );
    }
}

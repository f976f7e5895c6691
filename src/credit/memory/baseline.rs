//! What memory rewards are compared with, and what the difference is divided by.
//!
//! The baselines themselves are [`crate::credit::baseline::pools`]; here they are chosen by the
//! settings, and scaled.
//!
//! The deviation (W2) is that of the pool that the mean was taken over (`per_round`, `absorbing`: of
//! the round; else of all rounds of the question), unbiased, 1 for a single value: `std` divides by
//! `deviation + 1e-6`, `std_floor(s)` by `max(deviation, s)`, `none` by nothing.

use super::returns::check;
use super::{MemoryCreditState, RoundReward};
use crate::credit::CreditError;
use crate::credit::baseline::{BaselineKind, Pool, pools};
use crate::credit::group::EPSILON;
use crate::experiment::{Baseline, Scale};

/// What a centred value is divided by.
#[must_use]
pub fn divisor(deviation: f64, scale: Scale) -> f64 {
    match scale {
        Scale::Std => deviation + EPSILON,
        Scale::StdFloor(least) => deviation.max(f64::from(least)),
        Scale::Off => 1.0,
    }
}

/// `(G_i,t - baseline) / scale` for every round of every rollout, in the shape of `rewards`.
///
/// # Errors
/// A reward that is not finite, or turns that do not rise.
pub fn centred(
    rewards: &[Vec<RoundReward>],
    baseline: Baseline,
    scale: Scale,
    state: &MemoryCreditState,
) -> Result<Vec<Vec<f64>>, CreditError> {
    check(rewards)?;
    let rounds: Vec<Vec<(usize, f64)>> = rewards
        .iter()
        .map(|rounds| {
            let of = |round: &RoundReward| (round.turn as usize, round.reward);
            rounds.iter().map(of).collect()
        })
        .collect();
    let turns = rewards.iter().flatten().map(|round| round.turn + 1).max();
    let averages: Vec<Option<f64>> = (0..turns.unwrap_or(0))
        .map(|turn| Some(state.position(turn)))
        .collect();
    let kind = match baseline {
        Baseline::Pooled => BaselineKind::Pooled,
        Baseline::PerRound => BaselineKind::PerRound,
        Baseline::LeaveOneOut => BaselineKind::LeaveOneOut,
        Baseline::Absorbing => BaselineKind::Absorbing,
        Baseline::PositionAverage(_) => BaselineKind::PositionAverage(&averages),
    };
    let centre = |(pool, round): (&Pool, &RoundReward)| {
        (round.reward - pool.mean) / divisor(pool.deviation, scale)
    };
    Ok(pools(&rounds, kind)
        .iter()
        .zip(rewards)
        .map(|(pools, rounds)| pools.iter().zip(rounds).map(centre).collect())
        .collect())
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

    /// Three rollouts; one stops after its first round.
    fn group() -> [Vec<RoundReward>; 3] {
        [rounds(&[0.0, 1.0]), rounds(&[0.0, 3.0]), rounds(&[2.0])]
    }

    #[test]
    fn each_baseline_by_hand() {
        let state = MemoryCreditState {
            positions: vec![None, Some(0.5), Some(1.0)],
            multiplier: 0.0,
        };
        let third = 4.0 / 3.0;
        for (baseline, expected) in [
            (
                Baseline::Pooled,
                [vec![-1.2, -0.2], vec![-1.2, 1.8], vec![0.8]],
            ),
            (
                Baseline::PerRound,
                [vec![-2.0 / 3.0, -1.0], vec![-2.0 / 3.0, 1.0], vec![third]],
            ),
            (
                Baseline::LeaveOneOut,
                [vec![-5.0 / 3.0, -2.0 / 3.0], vec![-1.0, 2.0], vec![1.0]],
            ),
            (
                Baseline::Absorbing,
                [
                    vec![-2.0 / 3.0, 1.0 - third],
                    vec![-2.0 / 3.0, 3.0 - third],
                    vec![third],
                ],
            ),
            (
                Baseline::PositionAverage(0.9),
                [vec![-0.5, 0.0], vec![-0.5, 2.0], vec![1.5]],
            ),
        ] {
            let ours = centred(&group(), baseline, Scale::Off, &state).unwrap();
            for (ours, expected) in ours.iter().flatten().zip(expected.iter().flatten()) {
                assert!(
                    (ours - expected).abs() < 1e-12,
                    "{baseline:?}: {ours} {expected}"
                );
            }
        }
    }

    #[test]
    fn a_floor_bounds_what_a_small_spread_is_blown_up_to() {
        let group = [rounds(&[0.10]), rounds(&[0.12])];
        let scaled = |scale| {
            centred(
                &group,
                Baseline::Pooled,
                scale,
                &MemoryCreditState::default(),
            )
            .unwrap()[1][0]
        };
        assert!((scaled(Scale::Std) - 0.01 / (0.02 / 2.0f64.sqrt() + 1e-6)).abs() < 1e-9);
        assert!((scaled(Scale::StdFloor(0.1)) - 0.1).abs() < 1e-6);
        assert!((scaled(Scale::Off) - 0.01).abs() < 1e-12);
        // A floor under the deviation changes nothing but the epsilon.
        assert!((scaled(Scale::StdFloor(1e-3)) - 0.5f64.sqrt()).abs() < 1e-4);
    }

    #[test]
    fn pooling_spans_rounds_and_per_round_does_not() {
        let group = [rounds(&[0.0, 1.0]), rounds(&[0.0, 3.0])];
        let state = MemoryCreditState::default();
        let of = |baseline| centred(&group, baseline, Scale::Off, &state).unwrap();
        let pooled = of(Baseline::Pooled);
        assert_eq!(pooled, [[-1.0, 0.0], [-1.0, 2.0]]);
        let per_round = of(Baseline::PerRound);
        assert_eq!(per_round, [[0.0, -1.0], [0.0, 1.0]]);
    }

    #[test]
    fn a_bad_reward_names_member_and_turn() {
        let group = [rounds(&[0.0]), rounds(&[0.0, f64::NAN])];
        let error = centred(
            &group,
            Baseline::Pooled,
            Scale::Std,
            &MemoryCreditState::default(),
        )
        .unwrap_err();
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

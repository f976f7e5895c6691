//! What memory rewards are compared with, and what the difference is divided by.
//!
//! With G_i,t the return of round t of rollout i, of the N rollouts of one question:
//! - `pooled` (MemPO): the mean over all rounds of all rollouts. Late rounds know more and score
//!   higher whatever the skill (W3).
//! - `per_round`: the mean over the rollouts that reached round t. Biased too, because the policy
//!   chooses when to stop (verl #7244).
//! - `leave_one_out`: the mean over all rounds of the other rollouts: nothing that rollout i did
//!   enters its own baseline. 0 if the others have none.
//! - `absorbing`: `1/N sum_i G_i,t`, where a rollout that has ended counts as 0 (our derivation).
//! - `position_average` (MGPO): an average kept over the steps before.
//!
//! The deviation (W2) is that of the pool that the mean was taken over (`per_round`, `absorbing`: of
//! the round; else of all rounds of the question), unbiased, 1 for a single value: `std` divides by
//! `deviation + 1e-6`, `std_floor(s)` by `max(deviation, s)`, `none` by nothing.

use super::returns::check;
use super::{MemoryCreditState, RoundReward};
use crate::credit::CreditError;
use crate::credit::group::{EPSILON, mean_std};
use crate::experiment::{Baseline, Scale};

/// A_M,t of every round for the baselines without memory, in the shape of `rewards`: divided by the
/// standard deviation if `std`.
///
/// # Errors
/// A reward that is not finite, or turns that do not rise.
pub fn advantages(
    rewards: &[Vec<RoundReward>],
    baseline: Baseline,
    std: bool,
) -> Result<Vec<Vec<f64>>, CreditError> {
    let scale = if std { Scale::Std } else { Scale::Off };
    centred(rewards, baseline, scale, &MemoryCreditState::default())
}

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
    let pool: Vec<f64> = rewards.iter().flatten().map(|round| round.reward).collect();
    let (mean, deviation) = mean_std(&pool);
    let turns = rewards
        .iter()
        .flatten()
        .map(|round| round.turn + 1)
        .max()
        .unwrap_or(0);
    // Mean and deviation of every round: of those that reached it, or with the others as 0.
    let by_turn: Vec<(f64, f64)> = match baseline {
        Baseline::PerRound => (0..turns)
            .map(|turn| mean_std(&at(rewards, turn)))
            .collect(),
        Baseline::Absorbing => (0..turns)
            .map(|turn| {
                let mut values = at(rewards, turn);
                values.resize(rewards.len(), 0.0);
                let (mean, deviation) = mean_std(&values);
                // `mean_std` leaves a single value as it is; here one rollout is its own mean.
                let alone = values.len() == 1;
                (if alone { values[0] } else { mean }, deviation)
            })
            .collect(),
        Baseline::Pooled | Baseline::LeaveOneOut | Baseline::PositionAverage(_) => Vec::new(),
    };
    let of_turn = |turn: u32| by_turn.get(turn as usize).copied().unwrap_or((0.0, 1.0));
    Ok(rewards
        .iter()
        .enumerate()
        .map(|(member, rounds)| {
            let others = match baseline {
                Baseline::LeaveOneOut => mean_of_others(rewards, member),
                _ => 0.0,
            };
            rounds
                .iter()
                .map(|round| {
                    let (mean, deviation) = match baseline {
                        Baseline::Pooled => (mean, deviation),
                        Baseline::PerRound | Baseline::Absorbing => of_turn(round.turn),
                        Baseline::LeaveOneOut => (others, deviation),
                        Baseline::PositionAverage(_) => (state.position(round.turn), deviation),
                    };
                    (round.reward - mean) / divisor(deviation, scale)
                })
                .collect()
        })
        .collect())
}

/// The rewards of one turn, in the order of the rollouts.
fn at(rewards: &[Vec<RoundReward>], turn: u32) -> Vec<f64> {
    let rounds = rewards.iter().flatten();
    rounds
        .filter(|round| round.turn == turn)
        .map(|round| round.reward)
        .collect()
}

/// The mean over all rounds of all rollouts but one; 0 if there are none.
fn mean_of_others(rewards: &[Vec<RoundReward>], member: usize) -> f64 {
    let others = rewards
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != member)
        .flat_map(|(_, rounds)| rounds);
    let (sum, count) = others.fold((0.0, 0u32), |(sum, count), round| {
        (sum + round.reward, count + 1)
    });
    if count == 0 {
        0.0
    } else {
        sum / f64::from(count)
    }
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

//! Returns over rounds (W4): `G_t = sum over k >= t of gamma^(k - t) r_k`. At gamma 0 a round is paid
//! its own gain; at 1 the gains over the notes before telescope to `V(m_T) - V(m_{t-1})` (HiMPO,
//! MGPO, IGPO).

use super::RoundReward;
use crate::credit::CreditError;

/// The returns of every rollout, in the shape of its rewards. Turns without a reward count in the
/// exponent.
///
/// # Errors
/// A reward that is not finite, or turns that do not rise.
pub fn returns(
    rewards: &[Vec<RoundReward>],
    discount: f64,
) -> Result<Vec<Vec<RoundReward>>, CreditError> {
    check(rewards)?;
    if discount == 0.0 {
        return Ok(rewards.to_vec());
    }
    Ok(rewards
        .iter()
        .map(|rounds| {
            let mut returns = rounds.clone();
            let mut later: Option<RoundReward> = None;
            for round in returns.iter_mut().rev() {
                if let Some(later) = later {
                    let apart = i32::try_from(later.turn - round.turn).unwrap_or(i32::MAX);
                    round.reward += discount.powi(apart) * later.reward;
                }
                later = Some(*round);
            }
            returns
        })
        .collect())
}

/// Refuses rewards that are not finite and turns that do not rise, by member and turn.
pub(super) fn check(rewards: &[Vec<RoundReward>]) -> Result<(), CreditError> {
    for (member, rounds) in rewards.iter().enumerate() {
        if let Some(round) = rounds.iter().find(|round| !round.reward.is_finite()) {
            return Err(CreditError::MemoryNotFinite {
                member,
                turn: round.turn,
                value: round.reward,
            });
        }
        if let Some([_, round]) = rounds
            .array_windows()
            .find(|[before, after]| after.turn <= before.turn)
        {
            return Err(CreditError::TurnsNotRising {
                member,
                turn: round.turn,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(rewards: &[(u32, f64)]) -> Vec<RoundReward> {
        rewards
            .iter()
            .map(|&(turn, reward)| RoundReward { turn, reward })
            .collect()
    }

    fn values(rewards: &[(u32, f64)], discount: f64) -> Vec<f64> {
        let returns = returns(&[rounds(rewards)], discount).unwrap();
        returns[0].iter().map(|round| round.reward).collect()
    }

    #[test]
    fn later_gains_are_discounted_by_their_distance() {
        let gains = [(1, 1.0), (2, 2.0), (4, 4.0)];
        assert_eq!(values(&gains, 0.0), [1.0, 2.0, 4.0]);
        assert_eq!(values(&gains, 0.5), [2.5, 3.0, 4.0]);
        assert_eq!(values(&gains, 1.0), [7.0, 6.0, 4.0]);
    }

    #[test]
    fn bad_rewards_and_turns_are_named() {
        let bad = returns(
            &[rounds(&[(1, 0.0)]), rounds(&[(1, 0.0), (2, f64::NAN)])],
            1.0,
        );
        assert!(matches!(
            bad,
            Err(CreditError::MemoryNotFinite {
                member: 1,
                turn: 2,
                ..
            })
        ));
        let twice = returns(&[rounds(&[(1, 0.0), (1, 0.0)])], 0.0);
        assert_eq!(
            twice,
            Err(CreditError::TurnsNotRising { member: 0, turn: 1 })
        );
    }
}

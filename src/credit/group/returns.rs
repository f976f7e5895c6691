//! Estimators over the tokens of rollouts: REINFORCE++, ReMax, and GAE with a critic.
//!
//! One rule holds for all three: an observation token is no step. It discounts nothing, resets
//! nothing, has no value of its own and no advantage, so that inserting or removing observations
//! never changes the advantage of a sampled token. verl used to reset the return at every masked
//! token (verl#7278), so that only the last turn of a rollout learned of its outcome.

use super::statistics::whiten;
use crate::credit::CreditError;

/// One rollout, token by token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TokenRow<'a> {
    /// Reward of every token; 0 wherever the mask is false.
    pub rewards: &'a [f64],
    /// True where the policy sampled the token.
    pub mask: &'a [bool],
}

/// Advantages and returns, in the shape of the rows. Exactly 0 wherever the mask is false.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimates {
    /// What a policy loss multiplies.
    pub advantages: Vec<Vec<f64>>,
    /// What a critic regresses to.
    pub returns: Vec<Vec<f64>>,
}

/// Refuses a row whose parts differ in length, that has no sampled token, or whose rewards are not
/// finite or stand on tokens that the policy did not sample.
fn check(member: usize, row: &TokenRow<'_>) -> Result<(), CreditError> {
    if row.rewards.len() != row.mask.len() {
        return Err(CreditError::LengthsDiffer {
            member,
            what: "rewards",
            found: row.rewards.len(),
            expected: row.mask.len(),
        });
    }
    for (token, (&value, &on)) in row.rewards.iter().zip(row.mask).enumerate() {
        if !value.is_finite() {
            return Err(CreditError::TokenNotFinite {
                member,
                token,
                what: "reward",
                value,
            });
        }
        if !on && value != 0.0 {
            return Err(CreditError::RewardOffPolicy {
                member,
                token,
                value,
            });
        }
    }
    if row.mask.iter().any(|&on| on) {
        Ok(())
    } else {
        Err(CreditError::NothingSampled { member })
    }
}

fn check_all(rows: &[TokenRow<'_>]) -> Result<(), CreditError> {
    if rows.is_empty() {
        return Err(CreditError::EmptyGroup);
    }
    rows.iter()
        .enumerate()
        .try_for_each(|(member, row)| check(member, row))
}

/// `G_t = r_t + gamma G_next` over the sampled tokens alone, 0 elsewhere.
fn discounted(row: &TokenRow<'_>, gamma: f64) -> Vec<f64> {
    let mut returns = vec![0.0; row.mask.len()];
    let mut next = 0.0;
    for ((slot, &reward), &on) in returns.iter_mut().zip(row.rewards).zip(row.mask).rev() {
        if on {
            next = reward + gamma * next;
            *slot = next;
        }
    }
    returns
}

/// Whitens over all sampled tokens of all rows; exactly 0 elsewhere.
fn whiten_rows(values: &[Vec<f64>], rows: &[TokenRow<'_>]) -> Result<Vec<Vec<f64>>, CreditError> {
    let mask: Vec<bool> = rows.iter().flat_map(|row| row.mask).copied().collect();
    let mut flat = whiten(&values.concat(), &mask, true)?.into_iter();
    Ok(rows
        .iter()
        .map(|row| {
            row.mask
                .iter()
                .zip(&mut flat)
                .map(|(&on, value)| if on { value } else { 0.0 })
                .collect()
        })
        .collect())
}

/// REINFORCE++: returns `G_t = r_t + gamma G_next` over sampled tokens, whitened over all sampled
/// tokens of the step.
///
/// Source: arXiv 2501.03262, verl `compute_reinforce_plus_plus_outcome_advantage` after its PR
/// #7300; [`super::verl::reinforce_plus_plus`] is the behaviour before. Weakness: no baseline of
/// the question, so an easy question's tokens all look good.
///
/// # Errors
/// No rows; a row that is empty, ragged or not finite; a reward on a token that was not sampled;
/// fewer than two sampled tokens in all.
pub fn reinforce_plus_plus(rows: &[TokenRow<'_>], gamma: f64) -> Result<Estimates, CreditError> {
    check_all(rows)?;
    let returns: Vec<Vec<f64>> = rows.iter().map(|row| discounted(row, gamma)).collect();
    Ok(Estimates {
        advantages: whiten_rows(&returns, rows)?,
        returns,
    })
}

/// ReMax: `A_t = G_t - b_i` with undiscounted returns and `b_i` the reward of a greedy rollout of
/// the same question, one a row.
///
/// verl leaves the bare return on masked tokens; ours are exactly 0.
///
/// Source: arXiv 2310.10505, verl `compute_remax_outcome_advantage`. Weakness: one more rollout a
/// question, and one greedy rollout is a noisy baseline.
///
/// # Errors
/// What [`reinforce_plus_plus`] refuses but for the number of tokens; baselines that are not finite
/// or not one a row.
pub fn remax(rows: &[TokenRow<'_>], baselines: &[f64]) -> Result<Estimates, CreditError> {
    check_all(rows)?;
    if baselines.len() != rows.len() {
        return Err(CreditError::LengthsDiffer {
            member: rows.len().min(baselines.len()),
            what: "baselines",
            found: baselines.len(),
            expected: rows.len(),
        });
    }
    if let Some((member, &value)) = baselines.iter().enumerate().find(|(_, b)| !b.is_finite()) {
        return Err(CreditError::OutcomeNotFinite { member, value });
    }
    let returns: Vec<Vec<f64>> = rows.iter().map(|row| discounted(row, 1.0)).collect();
    let advantages = returns
        .iter()
        .zip(rows)
        .zip(baselines)
        .map(|((returns, row), baseline)| {
            let less = |(value, &on): (&f64, &bool)| if on { value - baseline } else { 0.0 };
            returns.iter().zip(row.mask).map(less).collect()
        })
        .collect();
    Ok(Estimates {
        advantages,
        returns,
    })
}

/// GAE: over sampled tokens, backwards, `delta = r_t + gamma V_next - V_t`,
/// `L_t = delta + gamma lambda L_next`; returns `L + V`; advantages `L` whitened over all sampled
/// tokens of the step.
///
/// `values` are the critic's, in the shape of the rows; those of observation tokens are not read.
/// verl leaves what the scan carried on masked tokens, whitened; ours are exactly 0.
///
/// Source: arXiv 1506.02438, verl `compute_gae_advantage_return`. Weakness: needs a critic, which
/// for outcome rewards over long rollouts learns slowly.
///
/// # Errors
/// What [`reinforce_plus_plus`] refuses; values that are ragged, or not finite on a sampled token.
pub fn gae(
    rows: &[TokenRow<'_>],
    values: &[&[f64]],
    gamma: f64,
    lambda: f64,
) -> Result<Estimates, CreditError> {
    check_all(rows)?;
    if values.len() != rows.len() {
        return Err(CreditError::LengthsDiffer {
            member: rows.len().min(values.len()),
            what: "values",
            found: values.len(),
            expected: rows.len(),
        });
    }
    let (mut raw, mut returns) = (Vec::new(), Vec::new());
    for (member, (row, values)) in rows.iter().zip(values).enumerate() {
        if values.len() != row.mask.len() {
            return Err(CreditError::LengthsDiffer {
                member,
                what: "values",
                found: values.len(),
                expected: row.mask.len(),
            });
        }
        let (mut advantage, mut regress) = (vec![0.0; values.len()], vec![0.0; values.len()]);
        let (mut next_value, mut next) = (0.0, 0.0);
        for token in (0..values.len()).rev().filter(|&token| row.mask[token]) {
            let value = values[token];
            if !value.is_finite() {
                return Err(CreditError::TokenNotFinite {
                    member,
                    token,
                    what: "value",
                    value,
                });
            }
            let delta = row.rewards[token] + gamma * next_value - value;
            next = delta + gamma * lambda * next;
            next_value = value;
            advantage[token] = next;
            regress[token] = next + value;
        }
        raw.push(advantage);
        returns.push(regress);
    }
    Ok(Estimates {
        advantages: whiten_rows(&raw, rows)?,
        returns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASK: [bool; 5] = [true, true, false, true, false];

    fn row(rewards: &[f64]) -> TokenRow<'_> {
        TokenRow {
            rewards,
            mask: &MASK,
        }
    }

    #[test]
    fn the_outcome_reaches_every_turn_past_the_observations() {
        let estimates = reinforce_plus_plus(&[row(&[0.0, 0.0, 0.0, 8.0, 0.0])], 0.5).unwrap();
        assert_eq!(estimates.returns, [[2.0, 4.0, 0.0, 8.0, 0.0]]);
        assert_eq!(estimates.advantages[0][2], 0.0);
        let (old, _) =
            super::super::verl::reinforce_plus_plus(&[row(&[0.0, 0.0, 0.0, 8.0, 0.0])], 0.5);
        assert_eq!(old, [[0.0, 0.0, 4.0, 8.0, 0.0]]);
    }

    #[test]
    fn remax_takes_the_greedy_reward_off_sampled_tokens_alone() {
        let estimates = remax(&[row(&[0.0, 0.0, 0.0, 1.0, 0.0])], &[0.25]).unwrap();
        assert_eq!(estimates.advantages, [[0.75, 0.75, 0.0, 0.75, 0.0]]);
    }

    #[test]
    fn gae_steps_from_sampled_token_to_sampled_token() {
        let values: &[f64] = &[1.0, 2.0, f64::NAN, 3.0, 9.0];
        let estimates = gae(&[row(&[0.0, 0.0, 0.0, 4.0, 0.0])], &[values], 1.0, 0.5).unwrap();
        // L: 1, then 1 + 1/2, then 1 + 3/4.
        assert_eq!(estimates.returns, [[2.75, 3.5, 0.0, 4.0, 0.0]]);
    }

    #[test]
    fn bad_rows_are_named() {
        let bad = |rewards: &[f64]| {
            let good = [0.0; 5];
            let rows = [row(&good), row(rewards)];
            reinforce_plus_plus(&rows, 1.0).unwrap_err().to_string()
        };
        assert_eq!(
            bad(&[0.0, f64::NAN, 0.0, 0.0, 0.0]),
            "member 1, token 1: the reward is NaN, but it must be finite"
        );
        assert!(bad(&[0.0, 0.0, 0.5, 0.0, 0.0]).starts_with("member 1, token 2: a reward of 0.5"));
        assert!(bad(&[0.0]).starts_with("member 1: 1 rewards for 5 entries"));
        let nothing = TokenRow {
            rewards: &[0.0],
            mask: &[false],
        };
        assert_eq!(
            remax(&[nothing], &[0.0]),
            Err(CreditError::NothingSampled { member: 0 })
        );
        assert!(remax(&[], &[]).is_err());
        let values: &[f64] = &[0.0, f64::INFINITY, 0.0, 0.0, 0.0];
        assert!(matches!(
            gae(&[row(&[0.0; 5])], &[values], 1.0, 1.0),
            Err(CreditError::TokenNotFinite { token: 1, .. })
        ));
    }
}

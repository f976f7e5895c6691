//! Group-relative outcome advantages.

use super::CreditError;

/// Added to every standard deviation, as verl does (it never passes another value).
pub const EPSILON: f64 = 1e-6;

/// Mean and unbiased standard deviation. A single value has mean 0 and deviation 1, so that its
/// advantage is the value itself: verl's `compute_grpo_outcome_advantage` (volcengine/verl
/// `verl/trainer/ppo/core_algos.py`), which MemPO forks.
#[must_use]
pub fn mean_std(values: &[f64]) -> (f64, f64) {
    if values.len() < 2 {
        return (0.0, 1.0);
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values
        .iter()
        .map(|value| (value - mean).powi(2))
        .sum::<f64>()
        / (count - 1.0);
    (mean, variance.sqrt())
}

/// GRPO: `A_i = (s_i - mean) / (std + 1e-6)` over the rollouts of one question; without `std`
/// (Dr.GRPO) the centred score. A group of one keeps its raw score; equal scores give zeros.
///
/// Source: DeepSeekMath (arXiv 2402.03300), verl `compute_grpo_outcome_advantage`.
///
/// # Errors
/// An empty group, or a score that is not finite.
pub fn grpo(scores: &[f64], std: bool) -> Result<Vec<f64>, CreditError> {
    if scores.is_empty() {
        return Err(CreditError::EmptyGroup);
    }
    if let Some((member, &value)) = scores
        .iter()
        .enumerate()
        .find(|(_, score)| !score.is_finite())
    {
        return Err(CreditError::OutcomeNotFinite { member, value });
    }
    let (mean, deviation) = mean_std(scores);
    let scale = match (std, scores.len()) {
        (false, _) => 1.0,
        // verl's deviation of a group of one is a 32-bit 1, and so is the sum.
        (true, 1) => f64::from(1.0f32 + EPSILON as f32),
        (true, _) => deviation + EPSILON,
    };
    Ok(scores.iter().map(|score| (score - mean) / scale).collect())
}

/// Pass@k GRPO: only the best rollout of the group is paid, with its lead over the second
/// (verl `grpo_passk`). The first of several best ones counts.
///
/// # Errors
/// A group of fewer than two, or a score that is not finite.
pub fn grpo_passk(scores: &[f64], std: bool) -> Result<Vec<f64>, CreditError> {
    if scores.len() < 2 {
        return Err(CreditError::EmptyGroup);
    }
    if let Some((member, &value)) = scores
        .iter()
        .enumerate()
        .find(|(_, score)| !score.is_finite())
    {
        return Err(CreditError::OutcomeNotFinite { member, value });
    }
    let best = (0..scores.len()).fold(
        0,
        |best, at| if scores[at] > scores[best] { at } else { best },
    );
    let second = scores
        .iter()
        .enumerate()
        .filter(|(at, _)| *at != best)
        .map(|(_, score)| *score)
        .fold(f64::MIN, f64::max);
    let (_, deviation) = mean_std(scores);
    let scale = if std { deviation + EPSILON } else { 1.0 };
    let mut advantages = vec![0.0; scores.len()];
    advantages[best] = (scores[best] - second) / scale;
    Ok(advantages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_four_is_centred_and_scaled() {
        let advantages = grpo(&[1.0, 0.0, 0.0, 1.0], true).unwrap();
        assert!((advantages[0] - 0.866_023_9).abs() < 1e-6, "{advantages:?}");
        assert!((advantages.iter().sum::<f64>()).abs() < 1e-9);
    }

    #[test]
    fn equal_scores_give_no_signal() {
        assert_eq!(grpo(&[1.0, 1.0, 1.0], true).unwrap(), [0.0, 0.0, 0.0]);
    }

    #[test]
    fn a_score_that_is_not_finite_is_named() {
        assert_eq!(
            grpo(&[0.0, f64::INFINITY], true),
            Err(CreditError::OutcomeNotFinite {
                member: 1,
                value: f64::INFINITY
            })
        );
        assert_eq!(grpo(&[], true), Err(CreditError::EmptyGroup));
    }
}

//! Estimators that need one score a rollout. Each gives one advantage a rollout, which falls on
//! every token the policy sampled there, so observation tokens change nothing. Shapes: `scores` has
//! one entry for each of the `n` rollouts of one question, and so has the result.

use super::statistics::{EPSILON, MASKED_EPSILON, mean_std};
use crate::credit::CreditError;

/// Refuses an empty group and a score that is not finite.
pub(super) fn check_scores(scores: &[f64]) -> Result<(), CreditError> {
    if scores.is_empty() {
        return Err(CreditError::EmptyGroup);
    }
    match scores.iter().enumerate().find(|(_, s)| !s.is_finite()) {
        Some((member, &value)) => Err(CreditError::OutcomeNotFinite { member, value }),
        None => Ok(()),
    }
}

/// Refuses lengths that are not one a rollout, and a rollout in which nothing was sampled.
pub(super) fn check_lengths(scores: &[f64], lengths: &[u32]) -> Result<(), CreditError> {
    if scores.len() != lengths.len() {
        return Err(CreditError::LengthsDiffer {
            member: scores.len().min(lengths.len()),
            what: "lengths",
            found: lengths.len(),
            expected: scores.len(),
        });
    }
    match lengths.iter().position(|&length| length == 0) {
        Some(member) => Err(CreditError::NothingSampled { member }),
        None => Ok(()),
    }
}

/// GRPO: `A_i = (s_i - mean) / (std + 1e-6)` over the rollouts of one question, with the unbiased
/// deviation; without `std` the centred score, which is Dr.GRPO.
///
/// A group of one keeps its raw score, and equal scores give exact zeros. verl's twin
/// `grpo_vectorized` counts in 32 bits and floors the deviation at 1e-3, so that nearly equal
/// scores give less; we follow the first, which is what the paper says and what MemPO forks.
///
/// Source: DeepSeekMath (arXiv 2402.03300), verl `compute_grpo_outcome_advantage`. Weakness: a
/// deviation depends on the own score, and it pays easy and hard questions more than the others.
///
/// # Errors
/// An empty group, or a score that is not finite.
pub fn grpo(scores: &[f64], std: bool) -> Result<Vec<f64>, CreditError> {
    check_scores(scores)?;
    let (mean, deviation) = mean_std(scores);
    let scale = match (std, scores.len()) {
        (false, _) => 1.0,
        // verl's deviation of a group of one is a 32-bit 1, and so is the sum.
        (true, 1) => f64::from(1.0f32 + EPSILON as f32),
        (true, _) => deviation + EPSILON,
    };
    Ok(scores.iter().map(|score| (score - mean) / scale).collect())
}

/// Dr.GRPO: `A_i = s_i - mean`. Source: arXiv 2503.20783, verl's `norm_adv_by_std_in_grpo: false`.
///
/// # Errors
/// An empty group, or a score that is not finite.
pub fn dr_grpo(scores: &[f64]) -> Result<Vec<f64>, CreditError> {
    grpo(scores, false)
}

/// Pass@k GRPO: only the best rollout of the group is paid, with its lead over the second:
/// `A_best = (max - second) / (std + 1e-6)`, all others 0; without `std` the lead itself. The first
/// of several best ones counts, and its lead is 0.
///
/// Source: verl `compute_grpo_passk_outcome_advantage` (arXiv 2503.19595). Weakness: one rollout of
/// a group learns, and nothing is ever discouraged.
///
/// # Errors
/// A group of fewer than two (verl raises too), or a score that is not finite.
pub fn grpo_passk(scores: &[f64], std: bool) -> Result<Vec<f64>, CreditError> {
    check_scores(scores)?;
    let (Some(best), true) = (
        (0..scores.len()).reduce(|best, at| if scores[at] > scores[best] { at } else { best }),
        scores.len() > 1,
    ) else {
        return Err(CreditError::TooFewMembers {
            found: scores.len(),
            needed: 2,
        });
    };
    let second = scores
        .iter()
        .enumerate()
        .filter(|(at, _)| *at != best)
        .map(|(_, score)| *score)
        .fold(f64::NEG_INFINITY, f64::max);
    let (_, deviation) = mean_std(scores);
    let scale = if std { deviation + EPSILON } else { 1.0 };
    Ok(scores
        .iter()
        .enumerate()
        .map(|(at, score)| {
            if at == best {
                (score - second) / scale
            } else {
                0.0
            }
        })
        .collect())
}

/// RLOO: `A_i = s_i - mean of the others = n/(n-1) (s_i - mean)`.
///
/// A group of one has no others: its score stays, plain REINFORCE, which is unbiased. verl's `rloo`
/// does the same; its twin `rloo_vectorized` gives 0 there, which drops the question in silence, so
/// we follow the first.
///
/// Source: arXiv 2402.14740, verl `compute_rloo_outcome_advantage`. Weakness: no scale, so rewards
/// of another size need another learning rate.
///
/// # Errors
/// An empty group, or a score that is not finite.
pub fn rloo(scores: &[f64]) -> Result<Vec<f64>, CreditError> {
    check_scores(scores)?;
    let (mean, _) = mean_std(scores);
    let count = scores.len() as f64;
    let factor = if scores.len() > 1 {
        count / (count - 1.0)
    } else {
        1.0
    };
    Ok(scores.iter().map(|score| (score - mean) * factor).collect())
}

/// OPO: `A_i = s_i - b` with `b = sum(len_j s_j) / sum(len_j)`, where `len_j` counts sampled tokens.
/// A group of one has baseline 0.
///
/// Source: arXiv 2505.23585, verl `compute_opo_outcome_advantage`. Weakness: optimal only if the
/// squared gradient grows with length; the own score is part of the baseline.
///
/// # Errors
/// An empty group, a score that is not finite, lengths that are not one a rollout, a length of 0.
pub fn opo(scores: &[f64], lengths: &[u32]) -> Result<Vec<f64>, CreditError> {
    check_scores(scores)?;
    check_lengths(scores, lengths)?;
    let weighed: f64 = scores
        .iter()
        .zip(lengths)
        .map(|(score, &length)| score * f64::from(length))
        .sum();
    let total: f64 = lengths.iter().map(|&length| f64::from(length)).sum();
    let baseline = match scores {
        [_] => 0.0,
        [first, ..] if scores.iter().all(|score| score == first) => *first,
        _ => weighed / total,
    };
    Ok(scores.iter().map(|score| score - baseline).collect())
}

/// GPG's factor `alpha = B / max(number of scores that are not 0, 1)` over all `B` scores of a
/// step.
///
/// This is verl's count. The paper (arXiv 2504.02546) counts the rollouts of groups with spread
/// instead; with rewards of 0 and 1 the two differ, and ours compares with verl.
#[must_use]
pub fn gpg_scale(scores: impl IntoIterator<Item = f64>) -> f64 {
    let (all, paid) = scores.into_iter().fold((0u32, 0u32), |(all, paid), score| {
        (all + 1, paid + u32::from(score != 0.0))
    });
    f64::from(all) / f64::from(paid.max(1))
}

/// GPG: `A_i = alpha (s_i - mean) / norm`, with `alpha` of the whole step ([`gpg_scale`]) and a
/// constant `norm`, 1 in verl. A group of one has mean 0.
///
/// Source: arXiv 2504.02546, verl `compute_gpg_outcome_advantage`. Weakness: `alpha` depends on the
/// scores of other questions, and a reward that is never exactly 0 turns it off.
///
/// # Errors
/// An empty group, or a score that is not finite.
pub fn gpg(scores: &[f64], alpha: f64, norm: f64) -> Result<Vec<f64>, CreditError> {
    check_scores(scores)?;
    let (mean, _) = mean_std(scores);
    Ok(scores
        .iter()
        .map(|score| alpha * (score - mean) / norm)
        .collect())
}

/// REINFORCE++ with a group baseline: `a_i = s_i - mean` (a group of one keeps its score), then
/// whitened over all sampled tokens of the step, on each of which `a_i` stands:
/// `A_i = (a_i - m) / sqrt(v + 1e-8)`, `m` and `v` weighing rollout `i` with its length.
///
/// `groups` are all groups of the step, as (scores, lengths).
///
/// Source: arXiv 2501.03262, verl `compute_reinforce_plus_plus_baseline_outcome_advantage`.
/// Weakness: long rollouts rule mean and scale; the scale depends on the other questions.
///
/// # Errors
/// What [`grpo`] and [`opo`] refuse, with the number of the group; fewer than two sampled tokens.
pub fn reinforce_plus_plus_baseline(
    groups: &[(&[f64], &[u32])],
) -> Result<Vec<Vec<f64>>, CreditError> {
    if groups.is_empty() {
        return Err(CreditError::EmptyGroup);
    }
    let mut centred = Vec::with_capacity(groups.len());
    for (number, (scores, lengths)) in groups.iter().enumerate() {
        let of_group = check_lengths(scores, lengths).and_then(|()| dr_grpo(scores));
        centred.push(of_group.map_err(|error| error.in_group(number))?);
    }
    let tokens = || {
        centred
            .iter()
            .flatten()
            .zip(groups.iter().flat_map(|(_, lengths)| lengths.iter()))
            .map(|(value, &length)| (*value, f64::from(length)))
    };
    let count: f64 = tokens().map(|(_, length)| length).sum();
    if count < 2.0 {
        return Err(CreditError::TooFewTokens {
            count: count as usize,
        });
    }
    let mean = tokens().map(|(value, n)| n * value).sum::<f64>() / (count + MASKED_EPSILON);
    let squares: f64 = tokens().map(|(value, n)| n * (value - mean).powi(2)).sum();
    let variance = squares / (count + MASKED_EPSILON) * (count / (count - 1.0));
    let scale = 1.0 / (variance + MASKED_EPSILON).sqrt();
    for value in centred.iter_mut().flatten() {
        *value = (*value - mean) * scale;
    }
    Ok(centred)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(ours: &[f64], table: &[f64]) {
        assert_eq!(ours.len(), table.len());
        for (ours, table) in ours.iter().zip(table) {
            assert!((ours - table).abs() < 1e-6, "{ours} {table}");
        }
    }

    #[test]
    fn every_estimator_meets_its_table() {
        let scores = [1.0, 0.0, 0.0, 1.0];
        let z = 0.866_023_9;
        near(&grpo(&scores, true).unwrap(), &[z, -z, -z, z]);
        near(&dr_grpo(&scores).unwrap(), &[0.5, -0.5, -0.5, 0.5]);
        near(
            &rloo(&scores).unwrap(),
            &[2.0 / 3.0, -2.0 / 3.0, -2.0 / 3.0, 2.0 / 3.0],
        );
        near(
            &opo(&scores, &[3, 1, 1, 3]).unwrap(),
            &[0.25, -0.75, -0.75, 0.25],
        );
        let alpha = gpg_scale(scores);
        near(&gpg(&scores, alpha, 1.0).unwrap(), &[1.0, -1.0, -1.0, 1.0]);
        near(
            &grpo_passk(&[0.25, 2.0, 1.0], false).unwrap(),
            &[0.0, 1.0, 0.0],
        );
        let whitened =
            reinforce_plus_plus_baseline(&[(&[1.0, 0.0], &[1, 1]), (&[0.0, 0.0], &[1, 1])]);
        let w = 1.224_744_8;
        near(&whitened.unwrap().concat(), &[w, -w, 0.0, 0.0]);
    }

    #[test]
    fn equal_scores_give_no_signal() {
        let scores = [0.1, 0.1, 0.1];
        for ours in [
            grpo(&scores, true).unwrap(),
            rloo(&scores).unwrap(),
            opo(&scores, &[1, 2, 3]).unwrap(),
            gpg(&scores, 1.0, 1.0).unwrap(),
            grpo_passk(&scores, true).unwrap(),
        ] {
            assert_eq!(ours, [0.0; 3]);
        }
    }

    #[test]
    fn a_group_of_one_keeps_its_score() {
        assert_eq!(rloo(&[0.7]).unwrap(), [0.7]);
        assert_eq!(opo(&[0.7], &[9]).unwrap(), [0.7]);
        assert_eq!(dr_grpo(&[0.7]).unwrap(), [0.7]);
        assert_eq!(
            grpo_passk(&[0.7], true),
            Err(CreditError::TooFewMembers {
                found: 1,
                needed: 2
            })
        );
    }

    #[test]
    fn bad_input_is_named() {
        assert_eq!(
            grpo(&[0.0, f64::INFINITY], true),
            Err(CreditError::OutcomeNotFinite {
                member: 1,
                value: f64::INFINITY
            })
        );
        assert_eq!(grpo(&[], true), Err(CreditError::EmptyGroup));
        assert_eq!(
            opo(&[1.0, 0.0], &[4, 0]),
            Err(CreditError::NothingSampled { member: 1 })
        );
        let error = reinforce_plus_plus_baseline(&[(&[1.0], &[2]), (&[1.0, 0.5], &[2])]);
        assert_eq!(
            error.unwrap_err().to_string(),
            "group 1: member 1: 1 lengths for 2 entries; there must be one for each"
        );
    }
}

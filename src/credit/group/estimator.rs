//! The choice among the estimators that need only scores and lengths.

use serde::{Deserialize, Serialize};

use super::outcome::{
    check_lengths, check_scores, dr_grpo, gpg, gpg_scale, grpo, grpo_passk, opo,
    reinforce_plus_plus_baseline, rloo,
};
use crate::credit::CreditError;

/// How the outcome part of an advantage is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Estimator {
    /// [`grpo`] with the deviation.
    #[default]
    Grpo,
    /// [`dr_grpo`]: centred, not scaled.
    DrGrpo,
    /// [`rloo`]: against the mean of the others.
    Rloo,
    /// [`opo`]: against the mean weighed by length.
    Opo,
    /// [`gpg`]: centred, scaled by the share of paid rollouts.
    Gpg,
    /// [`reinforce_plus_plus_baseline`]: centred, then whitened over the step.
    ReinforcePlusPlusBaseline,
    /// [`grpo_passk`] with the deviation: only the best is paid.
    Passk,
}

impl Estimator {
    /// Every estimator.
    pub const ALL: [Self; 7] = [
        Self::Grpo,
        Self::DrGrpo,
        Self::Rloo,
        Self::Opo,
        Self::Gpg,
        Self::ReinforcePlusPlusBaseline,
        Self::Passk,
    ];
}

/// The rollouts of one question: a score and the number of sampled tokens of each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupScores<'a> {
    /// R_T, one a rollout.
    pub scores: &'a [f64],
    /// Sampled tokens, one a rollout.
    pub lengths: &'a [u32],
}

/// The outcome advantage of every rollout of a step, in the shape of `groups`.
///
/// `groups` are all groups of the step: `gpg` and `reinforce_plus_plus_baseline` scale over all of
/// them; the others look at one group at a time.
///
/// # Errors
/// No groups, an empty group, a score that is not finite, lengths that are not one a rollout, a
/// rollout without sampled tokens; a group too small for the estimator. Names group and member.
pub fn outcome_advantages(
    estimator: Estimator,
    groups: &[GroupScores<'_>],
) -> Result<Vec<Vec<f64>>, CreditError> {
    if groups.is_empty() {
        return Err(CreditError::EmptyGroup);
    }
    let each = |of: &dyn Fn(&[f64], &[u32]) -> Result<Vec<f64>, CreditError>| {
        groups
            .iter()
            .enumerate()
            .map(|(number, group)| {
                check_scores(group.scores)
                    .and_then(|()| check_lengths(group.scores, group.lengths))
                    .and_then(|()| of(group.scores, group.lengths))
                    .map_err(|error| error.in_group(number))
            })
            .collect::<Result<Vec<_>, _>>()
    };
    match estimator {
        Estimator::Grpo => each(&|scores, _| grpo(scores, true)),
        Estimator::DrGrpo => each(&|scores, _| dr_grpo(scores)),
        Estimator::Rloo => each(&|scores, _| rloo(scores)),
        Estimator::Opo => each(&opo),
        Estimator::Gpg => {
            let all = groups.iter().flat_map(|group| group.scores.iter().copied());
            let alpha = gpg_scale(all);
            each(&|scores, _| gpg(scores, alpha, 1.0))
        }
        Estimator::ReinforcePlusPlusBaseline => {
            let pairs: Vec<_> = groups.iter().map(|of| (of.scores, of.lengths)).collect();
            reinforce_plus_plus_baseline(&pairs)
        }
        Estimator::Passk => each(&|scores, _| grpo_passk(scores, true)),
    }
}

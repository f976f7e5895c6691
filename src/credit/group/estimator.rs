//! The choice among the estimators that need only scores and lengths.

use super::outcome::{
    check_lengths, check_scores, dr_grpo, gpg, gpg_scale, grpo, grpo_passk, opo,
    reinforce_plus_plus_baseline, rloo,
};
use crate::credit::CreditError;
use crate::experiment::Estimator;

/// The estimators that need one score a rollout: all but `reinforce_plus_plus`.
pub const OVER_SCORES: [Estimator; 7] = [
    Estimator::Grpo,
    Estimator::DrGrpo,
    Estimator::Rloo,
    Estimator::Opo,
    Estimator::Gpg,
    Estimator::ReinforcePlusPlusBaseline,
    Estimator::Passk,
];

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
/// rollout without sampled tokens; a group too small for the estimator, named with its member; an
/// estimator over tokens.
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
        Estimator::ReinforcePlusPlus(_) => Err(CreditError::OverTokens),
        Estimator::Passk => each(&|scores, _| grpo_passk(scores, true)),
    }
}

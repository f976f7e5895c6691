//! V(c): what a context says about an answer.
//!
//! `lp_l = log pi(a_l | q, c, a_<l)` for the tokens `a_1..a_L` of the answer. Over the tokens that
//! count: in probability space `V = exp(mean lp)`, the geometric mean (MemPO, arXiv 2603.00680); in
//! log space `V = mean lp`. If none counts, V is 0 in probability space and the log of the threshold
//! in log space.
//!
//! Which tokens count (W1): `none`: all. `own(p)`, MemPO's 0.5: those with probability above p in
//! this context, so that the two sides of a difference may be taken over different tokens and a
//! better memory can score lower. `union(p)`: those above p in either of the two contexts compared,
//! the same tokens on both sides.

use crate::credit::CreditError;
use crate::experiment::{Space, Threshold};

/// Log of the threshold; none if all tokens count.
#[must_use]
pub fn floor(threshold: Threshold) -> Option<f64> {
    match threshold {
        Threshold::Off => None,
        Threshold::Own(p) | Threshold::Union(p) => Some(f64::from(p).ln()),
    }
}

/// Whether each token passes a floor (strictly, as MemPO does). No floor: all do.
#[must_use]
pub fn passing(logprobs: &[f64], floor: Option<f64>) -> Vec<bool> {
    logprobs
        .iter()
        .map(|&logprob| floor.is_none_or(|floor| logprob > floor))
        .collect()
}

/// V over the tokens that are counted.
///
/// # Errors
/// An answer without tokens.
pub fn value_over(
    logprobs: &[f64],
    counted: &[bool],
    space: Space,
    floor: Option<f64>,
) -> Result<f64, CreditError> {
    if logprobs.is_empty() {
        return Err(CreditError::EmptyAnswer);
    }
    let (sum, count) = logprobs
        .iter()
        .zip(counted)
        .filter(|(_, counted)| **counted)
        .fold((0.0, 0u32), |(sum, count), (logprob, _)| {
            (sum + logprob, count + 1)
        });
    let mean = sum / f64::from(count);
    Ok(match (space, count) {
        (Space::Prob, 0) => 0.0,
        (Space::Prob, _) => mean.exp(),
        (Space::Log(_), 0) => floor.unwrap_or(f64::NEG_INFINITY),
        (Space::Log(_), _) => mean,
    })
}

/// V of an answer in one context by itself, where `union` is the same as `own`.
///
/// # Errors
/// An answer without tokens.
pub fn value(logprobs: &[f64], space: Space, threshold: Threshold) -> Result<f64, CreditError> {
    let floor = floor(threshold);
    value_over(logprobs, &passing(logprobs, floor), space, floor)
}

/// V of an answer in two contexts that are compared, under the rule of `threshold`.
///
/// # Errors
/// An answer without tokens, or with another number of tokens in the second context.
pub fn values(
    of: &[f64],
    against: &[f64],
    space: Space,
    threshold: Threshold,
) -> Result<(f64, f64), CreditError> {
    if of.len() != against.len() {
        return Err(CreditError::AnswerLengths {
            of: of.len(),
            against: against.len(),
        });
    }
    let floor = floor(threshold);
    let (mut in_of, mut in_against) = (passing(of, floor), passing(against, floor));
    if matches!(threshold, Threshold::Union(_)) {
        for (of, against) in in_of.iter_mut().zip(&mut in_against) {
            *of |= *against;
            *against = *of;
        }
    }
    Ok((
        value_over(of, &in_of, space, floor)?,
        value_over(against, &in_against, space, floor)?,
    ))
}

/// P(gold | context): V in probability space.
///
/// # Errors
/// An answer without tokens.
pub fn probability(logprobs: &[f32], threshold: Threshold) -> Result<f64, CreditError> {
    value(&wide(logprobs), Space::Prob, threshold)
}

/// Log-probs as the engine gives them, widened.
#[must_use]
pub fn wide(logprobs: &[f32]) -> Vec<f64> {
    logprobs.iter().map(|&value| f64::from(value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(ours: f64, theirs: f64) {
        assert!((ours - theirs).abs() < 1e-9, "{ours} against {theirs}");
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
    fn a_better_memory_can_score_lower_under_its_own_threshold_but_not_under_the_union() {
        // The warning of the specification: memory (-0.1, -0.6) beats full (-0.1, -2.0), yet loses.
        let (memory, full) = ([-0.1, -0.6], [-0.1, -2.0]);
        let own = values(&memory, &full, Space::Prob, Threshold::Own(0.5)).unwrap();
        near(own.0, (-0.35f64).exp());
        near(own.1, (-0.1f64).exp());
        assert!(own.0 < own.1);
        let union = values(&memory, &full, Space::Prob, Threshold::Union(0.5)).unwrap();
        near(union.0, (-0.35f64).exp());
        near(union.1, (-1.05f64).exp());
        let log = values(&memory, &full, Space::Log(5.0), Threshold::Union(0.5)).unwrap();
        near(log.0 - log.1, 0.7);
    }

    #[test]
    fn an_answer_of_which_nothing_passes_is_worth_0_or_the_threshold() {
        let low = [-1.0, -2.0];
        assert_eq!(value(&low, Space::Prob, Threshold::Own(0.5)), Ok(0.0));
        near(
            value(&low, Space::Log(5.0), Threshold::Own(0.5)).unwrap(),
            0.5f64.ln(),
        );
    }

    #[test]
    fn contexts_with_different_answers_are_not_compared() {
        assert_eq!(
            values(&[-1.0], &[-1.0, -1.0], Space::Prob, Threshold::Off),
            Err(CreditError::AnswerLengths { of: 1, against: 2 })
        );
    }
}

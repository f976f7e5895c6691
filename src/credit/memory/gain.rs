//! The memory reward of one round: what its notes say about the answer that another context does not.
//!
//! `r_t = V(m_t) - V(x)`, where x is the whole history (`minus_full`, MemPO), the notes of the round
//! before (`minus_previous`: not what was inherited, W4; HiMPO, MGPO, IGPO), empty notes
//! (`minus_empty`: not what a guess brings, W6; InfoMem), or nothing (`absolute`, `r_t = V(m_t)`). In
//! log space r_t is clipped to -c..c (W1).
//!
//! Several answers: of the joined text (MemPO, the first alias of each); the best of the texts with
//! one alias exchanged (W10; each side takes its own best); or `r_t = 1/K sum_k r_t,k` over the K
//! slices of the joined text, so that one unknown sub-answer cannot sink the others (W9, MGPO).

use super::value::{value, values};
use crate::credit::CreditError;
use crate::experiment::{Space, Threshold};

/// A difference, clipped in log space.
#[must_use]
pub fn difference(of: f64, against: f64, space: Space) -> f64 {
    let difference = of - against;
    match space {
        Space::Prob => difference,
        Space::Log(clip) => difference.clamp(-f64::from(clip), f64::from(clip)),
    }
}

/// V on both sides of a comparison, and the difference. Without a second context it stands at 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gain {
    /// V(m_t).
    pub of: f64,
    /// V of what it is compared with.
    pub against: f64,
    /// r_t.
    pub gain: f64,
}

/// The gain of one answer.
///
/// # Errors
/// An answer without tokens, or of different lengths in the two contexts.
pub fn gain(
    of: &[f64],
    against: Option<&[f64]>,
    space: Space,
    threshold: Threshold,
) -> Result<Gain, CreditError> {
    let (of, against) = match against {
        Some(against) => values(of, against, space, threshold)?,
        None => (value(of, space, threshold)?, 0.0),
    };
    Ok(Gain {
        of,
        against,
        gain: difference(of, against, space),
    })
}

/// The gain over several texts of the same answers: each side takes the text it knows best.
///
/// # Errors
/// No text, or a text without tokens.
pub fn best_text(
    of: &[Vec<f64>],
    against: Option<&[Vec<f64>]>,
    space: Space,
    threshold: Threshold,
) -> Result<Gain, CreditError> {
    let best = |texts: &[Vec<f64>]| -> Result<f64, CreditError> {
        texts
            .iter()
            .map(|text| value(text, space, threshold))
            .try_fold(None, |best: Option<f64>, next| {
                let next = next?;
                Ok(Some(best.map_or(next, |best| best.max(next))))
            })?
            .ok_or(CreditError::EmptyAnswer)
    };
    let (of, against) = (best(of)?, against.map_or(Ok(0.0), best)?);
    Ok(Gain {
        of,
        against,
        gain: difference(of, against, space),
    })
}

/// The mean of the gains of several sub-answers.
///
/// # Errors
/// No sub-answer.
pub fn mean(gains: &[Gain]) -> Result<Gain, CreditError> {
    if gains.is_empty() {
        return Err(CreditError::EmptyAnswer);
    }
    let count = gains.len() as f64;
    let over = |of: fn(&Gain) -> f64| gains.iter().map(of).sum::<f64>() / count;
    Ok(Gain {
        of: over(|gain| gain.of),
        against: over(|gain| gain.against),
        gain: over(|gain| gain.gain),
    })
}

/// Withholds what is above 0.
#[must_use]
pub fn withheld(gain: Gain) -> Gain {
    Gain {
        gain: gain.gain.min(0.0),
        ..gain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logs(probabilities: &[f64]) -> Vec<f64> {
        probabilities.iter().map(|p| p.ln()).collect()
    }

    fn near(ours: f64, theirs: f64) {
        assert!((ours - theirs).abs() < 1e-9, "{ours} against {theirs}");
    }

    #[test]
    fn log_differences_are_clipped_and_probabilities_are_not() {
        let (of, against) = (logs(&[0.5]), logs(&[0.001]));
        let log = gain(&of, Some(&against), Space::Log(2.0), Threshold::Off).unwrap();
        near(log.gain, 2.0);
        near(log.of, 0.5f64.ln());
        let back = gain(&against, Some(&of), Space::Log(2.0), Threshold::Off).unwrap();
        near(back.gain, -2.0);
        let prob = gain(&of, Some(&against), Space::Prob, Threshold::Off).unwrap();
        near(prob.gain, 0.499);
    }

    #[test]
    fn without_a_second_context_the_gain_is_the_value() {
        let alone = gain(&logs(&[0.4, 0.9]), None, Space::Prob, Threshold::Off).unwrap();
        near(alone.gain, 0.6);
        near(alone.against, 0.0);
    }

    #[test]
    fn one_unknown_answer_sinks_the_joined_mean_and_not_the_mean_over_answers() {
        // Two answers of one token: the notes know the first, the history before them none.
        let (of, against) = (logs(&[0.9, 1e-4]), logs(&[1e-4, 1e-4]));
        let joined = gain(&of, Some(&against), Space::Prob, Threshold::Off).unwrap();
        near(joined.gain, (0.9f64 * 1e-4).sqrt() - 1e-4);
        let each: Vec<Gain> = (0..2)
            .map(|k| {
                gain(
                    &of[k..=k],
                    Some(&against[k..=k]),
                    Space::Prob,
                    Threshold::Off,
                )
                .unwrap()
            })
            .collect();
        near(mean(&each).unwrap().gain, (0.9 - 1e-4) / 2.0);
    }

    #[test]
    fn each_side_takes_the_alias_it_knows_best() {
        let of = [logs(&[0.2]), logs(&[0.7])];
        let against = [logs(&[0.3]), logs(&[0.1])];
        let best = best_text(&of, Some(&against), Space::Prob, Threshold::Off).unwrap();
        near(best.of, 0.7);
        near(best.against, 0.3);
        near(best.gain, 0.4);
        assert_eq!(
            best_text(&[], None, Space::Prob, Threshold::Off),
            Err(CreditError::EmptyAnswer)
        );
    }

    #[test]
    fn a_withheld_gain_keeps_its_losses() {
        let of = |gain| Gain {
            gain,
            ..Gain::default()
        };
        near(withheld(of(0.3)).gain, 0.0);
        near(withheld(of(-0.3)).gain, -0.3);
    }
}

//! The memory reward of a round from the log-probs of its answer: the function of the run and of
//! whoever works a record out again.

use super::gain::{Gain, best_text, gain, mean, withheld};
use super::value::wide;
use crate::credit::CreditError;
use crate::experiment::{Answers, CreditSettings, Space, Support};
use crate::trajectory::{Compared, MemoryReward, RoundScores};

/// The memory reward of a round.
///
/// # Errors
/// An answer without tokens, or scores that do not fit its parts.
pub fn reward_of(
    round: &RoundScores,
    settings: &CreditSettings,
) -> Result<MemoryReward, CreditError> {
    let texts =
        |texts: &[Vec<f32>]| -> Vec<Vec<f64>> { texts.iter().map(|text| wide(text)).collect() };
    let of = texts(&round.notes);
    let against = round.compared.map(|_| texts(&round.against));
    let (space, threshold) = (settings.space, settings.threshold);
    let gains = match settings.answers {
        Answers::JoinedMaxAlias => {
            vec![best_text(&of, against.as_deref(), space, threshold)?]
        }
        Answers::JoinedFirstAlias | Answers::PerAnswer => {
            let lengths = match settings.answers {
                Answers::PerAnswer => round.answers.clone(),
                _ => vec![of.first().map_or(0, |text| text.len() as u32)],
            };
            let mut gains = Vec::with_capacity(lengths.len());
            let mut from = 0;
            for (answer, length) in lengths.into_iter().enumerate() {
                let slice = from..from + length as usize;
                from = slice.end;
                let bad = || CreditError::BadAnswer {
                    turn: round.turn,
                    answer,
                    problem: "has no tokens, or not those that were scored",
                };
                let part = |texts: &[Vec<f64>]| -> Result<Vec<f64>, CreditError> {
                    let text = texts.first().and_then(|text| text.get(slice.clone()));
                    text.map(<[f64]>::to_vec)
                        .filter(|text| !text.is_empty())
                        .ok_or_else(bad)
                };
                let of = part(&of)?;
                let against = against.as_deref().map(part).transpose()?;
                gains.push(gain(&of, against.as_deref(), space, threshold)?);
            }
            gains
        }
    };
    let gains = seen(round, gains, settings);
    Ok(written_down(round, mean(&gains)?, &gains, space))
}

/// Withholds gains on answers that were written and never shown.
fn seen(round: &RoundScores, gains: Vec<Gain>, settings: &CreditSettings) -> Vec<Gain> {
    if settings.support == Support::Off {
        return gains;
    }
    let one_each = gains.len() == round.supported.len();
    let all = round.supported.iter().all(|&seen| seen);
    let seen = |at: usize| {
        if one_each {
            round.supported.get(at).copied().unwrap_or(true)
        } else {
            all
        }
    };
    gains
        .into_iter()
        .enumerate()
        .map(|(at, gain)| if seen(at) { gain } else { withheld(gain) })
        .collect()
}

/// Writes a gain down as the record keeps it: probabilities, whatever the space.
fn written_down(round: &RoundScores, mean: Gain, gains: &[Gain], space: Space) -> MemoryReward {
    let probability = |value: f64| match space {
        Space::Prob => value as f32,
        Space::Log(_) => value.exp() as f32,
    };
    let p_memory = probability(mean.of);
    let against = probability(mean.against);
    let beside = |kind: Compared| (round.compared == Some(kind)).then_some(against);
    // In probability space a single answer's reward is the difference of the two numbers that the
    // record shows.
    let reward = match (space, gains, round.compared) {
        (Space::Prob, [only], Some(_)) if only.gain == only.of - only.against => p_memory - against,
        _ => mean.gain as f32,
    };
    MemoryReward {
        turn: round.turn,
        p_memory,
        p_full: beside(Compared::Full),
        p_previous: beside(Compared::Previous),
        p_empty: beside(Compared::Empty),
        notes_tokens: round.notes_tokens,
        reward,
    }
}

//! The memory rewards of a trajectory, from the scores that its plan asked for.

use super::plan::{Against, MemoryScorePlan, Round};
use crate::credit::CreditError;
use crate::credit::memory::gain::{Gain, best_text, gain, mean, withheld};
use crate::credit::memory::value::wide;
use crate::engine::Scored;
use crate::experiment::{Answers, CreditSettings, Space, Support};
use crate::trajectory::MemoryReward;

impl MemoryScorePlan {
    /// The turns that get a memory reward.
    pub fn turns(&self) -> impl Iterator<Item = u32> + '_ {
        self.rounds.iter().map(|round| round.turn)
    }

    /// The memory rewards, from the engine's scores.
    ///
    /// # Errors
    /// Scores that do not fit the request, or a gold answer without tokens.
    pub fn rewards(
        &self,
        scored: &Scored,
        settings: &CreditSettings,
    ) -> Result<Vec<MemoryReward>, CreditError> {
        let rounds = self.rounds.iter();
        rounds
            .map(|round| self.reward(round, scored, settings))
            .collect()
    }

    fn reward(
        &self,
        round: &Round,
        scored: &Scored,
        settings: &CreditSettings,
    ) -> Result<MemoryReward, CreditError> {
        let texts = |context: usize| -> Result<Vec<Vec<f64>>, CreditError> {
            let from = context * self.texts;
            let branches = scored.branches.get(from..from + self.texts);
            let branches = branches.ok_or(CreditError::MissingScores {
                turn: round.turn,
                got: scored.branches.len(),
                expected: self.request.branches.len(),
            })?;
            Ok(branches.iter().map(|branch| wide(branch)).collect())
        };
        let of = texts(round.notes)?;
        let against = round.against.map(|(_, at)| texts(at)).transpose()?;
        let (space, threshold) = (settings.space, settings.threshold);
        let gains = match settings.answers {
            Answers::JoinedMaxAlias => {
                vec![best_text(&of, against.as_deref(), space, threshold)?]
            }
            Answers::JoinedFirstAlias | Answers::PerAnswer => {
                let slices = match settings.answers {
                    Answers::PerAnswer => self.slices.clone(),
                    _ => std::iter::once(0..of.first().map_or(0, Vec::len)).collect(),
                };
                let mut gains = Vec::with_capacity(slices.len());
                for (answer, slice) in slices.into_iter().enumerate() {
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
        let gains = self.seen(round, gains, settings);
        Ok(reward_of(round, mean(&gains)?, &gains, space))
    }

    /// Withholds gains on answers that were written and never shown.
    fn seen(&self, round: &Round, gains: Vec<Gain>, settings: &CreditSettings) -> Vec<Gain> {
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
}

/// Writes a gain down as the record keeps it: probabilities, whatever the space.
fn reward_of(round: &Round, mean: Gain, gains: &[Gain], space: Space) -> MemoryReward {
    let probability = |value: f64| match space {
        Space::Prob => value as f32,
        Space::Log(_) => value.exp() as f32,
    };
    let p_memory = probability(mean.of);
    let against = probability(mean.against);
    let beside = |kind: Against| {
        let (of, _) = round.against?;
        (of == kind).then_some(against)
    };
    // In probability space a single answer's reward is the difference of the two numbers that the
    // record shows.
    let reward = match (space, gains, round.against) {
        (Space::Prob, [only], Some(_)) if only.gain == only.of - only.against => p_memory - against,
        _ => mean.gain as f32,
    };
    MemoryReward {
        turn: round.turn,
        p_memory,
        p_full: beside(Against::Full),
        p_previous: beside(Against::Previous),
        p_empty: beside(Against::Empty),
        notes_tokens: round.notes_tokens,
        reward,
    }
}

//! Memory credit: what a note is worth, and how that is compared with other notes.
//!
//! One file a question of the grammar, each of pure functions over slices: [`value`] (V of an answer
//! in a context), [`gain`] and [`reward`] (the memory reward of a round), [`support`], [`length`], [`returns`],
//! [`baseline`] (centre and scale), [`gate`], [`placebo`], and [`state`] (what is kept over steps).
//! [`round_advantages`] puts them together. The weaknesses W1 to W16 that the docs name, and the
//! formulas on one page, stand in `docs/credit_grammar.md`.

pub mod baseline;
pub mod gain;
pub mod gate;
pub mod length;
pub mod placebo;
pub mod returns;
pub mod reward;
pub mod state;
pub mod support;
pub mod value;

use super::CreditError;
use crate::experiment::CreditSettings;

pub use state::MemoryCreditState;
pub use value::probability;

/// The memory reward of one round of one rollout.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoundReward {
    /// The turn, from 0.
    pub turn: u32,
    /// r_t, or a return made of it.
    pub reward: f64,
}

/// A group before its memory credit.
#[derive(Clone, Copy, Debug)]
pub struct GroupRounds<'a> {
    /// R_T of every rollout.
    pub outcomes: &'a [f64],
    /// A_T of every rollout.
    pub outcome_advantages: &'a [f64],
    /// The priced memory rewards of every rollout, in turn order.
    pub rounds: &'a [Vec<RoundReward>],
}

/// A_M,t for every round of every rollout of one question, in the shape of the rounds, and the
/// returns that the averages kept over steps are made of.
///
/// `A_M,t = weight * gate * (G_t - baseline) / scale`.
///
/// # Errors
/// A reward that is not finite, named by member and turn; turns that do not rise; lists of different
/// lengths.
pub fn round_advantages(
    group: GroupRounds<'_>,
    settings: &CreditSettings,
    step: u32,
    state: &MemoryCreditState,
) -> Result<(Vec<Vec<f64>>, Vec<Vec<RoundReward>>), CreditError> {
    let members = group.rounds.len();
    if group.outcomes.len() != members || group.outcome_advantages.len() != members {
        return Err(CreditError::Lengths {
            outcomes: group.outcomes.len(),
            advantages: group.outcome_advantages.len(),
            memory: members,
        });
    }
    let returns = returns::returns(group.rounds, f64::from(settings.discount))?;
    let mut values = baseline::centred(&returns, settings.baseline, settings.scale, state)?;
    let opens = gate::opens(settings.gate, group.outcomes, group.outcome_advantages);
    let weight = f64::from(settings.weight_at(step));
    for (values, open) in values.iter_mut().zip(opens) {
        for value in values {
            *value = if open { *value * weight } else { 0.0 };
        }
    }
    Ok((values, returns))
}

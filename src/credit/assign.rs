//! From the rewards of a step to the advantages of its trajectories, by source, as pure functions.
//!
//! `R_T` is the outcome reward, `kl_t` the KL to the reference estimated from sampled token t, `beta`
//! its weight. With the KL in the reward (`learner.kl_in_reward`) the reward of a token is
//! `r_t = R_T [t is the last sampled token] - beta kl_t`, as verl's `apply_kl_penalty` has it; an
//! estimator over scores gets their sum, `R_T - beta sum_t kl_t`. The estimator runs twice: without
//! the penalty, which is the outcome part, and with it; the KL part is the difference.

use super::CreditError;
use super::group::{self, GroupScores, TokenRow};
use super::memory::length::priced;
use super::memory::{GroupRounds, MemoryCreditState, RoundReward, round_advantages};
use crate::experiment::{CreditSettings, CreditTokens, Estimator};
use crate::trajectory::{Advantages, MemoryReward, MemoryTokens, Part};

/// What one rollout earned and cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rewards {
    /// R_T.
    pub outcome: f64,
    /// r_t of every scored round.
    pub memory: Vec<MemoryReward>,
    /// Number of sampled tokens of every turn.
    pub sampled: Vec<u32>,
    /// KL to the reference of every sampled token, by turn; empty if it costs nothing.
    pub kl: Vec<Vec<f32>>,
}

impl Rewards {
    /// Sampled tokens of all turns.
    fn length(&self) -> u32 {
        self.sampled.iter().sum()
    }

    /// Sum of the KL over all sampled tokens.
    fn kl_sum(&self) -> f64 {
        self.kl.iter().flatten().map(|&kl| f64::from(kl)).sum()
    }

    /// Refuses a KL that is not one finite number a sampled token.
    fn check(&self, member: usize) -> Result<(), CreditError> {
        if self.kl.is_empty() {
            return Ok(());
        }
        for turn in 0..self.kl.len().max(self.sampled.len()) {
            let found = self.kl.get(turn).map_or(0, Vec::len);
            let sampled = self.sampled.get(turn).map_or(0, |&count| count as usize);
            if found != sampled {
                return Err(CreditError::TokensOfTurn {
                    what: "the KL",
                    turn,
                    found,
                    sampled,
                });
            }
        }
        let bad = |(_, kl): &(usize, &f32)| !kl.is_finite();
        match self.kl.iter().flatten().enumerate().find(bad) {
            Some((token, &value)) => Err(CreditError::TokenNotFinite {
                member,
                token,
                what: "KL to the reference",
                value: f64::from(value),
            }),
            None => Ok(()),
        }
    }
}

/// What credit needs besides rewards.
#[derive(Clone, Copy, Debug)]
pub struct CreditContext<'a> {
    /// The grammar.
    pub settings: &'a CreditSettings,
    /// RL step, from 0.
    pub step: u32,
    /// beta: reward that a KL of one costs; 0: nothing.
    pub kl_weight: f64,
    /// What memory credit kept of earlier steps.
    pub state: &'a MemoryCreditState,
}

/// Credit of a step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Credited {
    /// Advantages of every rollout, in the shape of the groups.
    pub groups: Vec<Vec<Advantages>>,
    /// The returns of all rounds, which averages over steps are made of.
    pub returns: Vec<RoundReward>,
}

/// Advantages of all rollouts of a step. `groups` are all questions of the step: some estimators
/// compare across them.
///
/// # Errors
/// Rewards or KLs that are not finite, an empty group, a rollout without sampled tokens, a KL that is
/// not one number a sampled token. Names the group by its number in `groups`, member and turn.
pub fn credit_step(
    groups: &[Vec<Rewards>],
    context: CreditContext<'_>,
) -> Result<Credited, CreditError> {
    for (number, group) in groups.iter().enumerate() {
        for (member, rollout) in group.iter().enumerate() {
            rollout
                .check(member)
                .map_err(|error| error.in_group(number))?;
        }
    }
    let estimator = context.settings.estimator;
    let outcome = estimated(groups, estimator, 0.0)?;
    let pays = context.kl_weight != 0.0 && groups.iter().flatten().any(|of| !of.kl.is_empty());
    let penalised = if pays {
        Some(estimated(groups, estimator, context.kl_weight)?)
    } else {
        None
    };
    let mut credited = Credited::default();
    for (number, (group, outcome)) in groups.iter().zip(&outcome).enumerate() {
        let (memory, returns) =
            memory_parts(group, outcome, context).map_err(|error| error.in_group(number))?;
        credited.returns.extend(returns);
        let advantages = |member: usize| -> Option<Advantages> {
            let (rollout, outcome) = (group.get(member)?, outcome.get(member)?);
            let kl = match &penalised {
                Some(groups) => groups.get(number)?.get(member)?.less(outcome),
                None => Estimate::Same(0.0),
            };
            Some(Advantages {
                outcome: outcome.part(&rollout.sampled),
                kl: kl.part(&rollout.sampled),
                memory: memory.get(member).cloned().unwrap_or_default(),
                over: match context.settings.tokens {
                    CreditTokens::Notes => MemoryTokens::Notes,
                    CreditTokens::Turn => MemoryTokens::Turn,
                },
            })
        };
        credited
            .groups
            .push((0..group.len()).filter_map(advantages).collect());
    }
    Ok(credited)
}

/// What an estimator says of one rollout.
enum Estimate {
    /// The same for every sampled token.
    Same(f64),
    /// One number a sampled token, turn after turn.
    Each(Vec<f64>),
}

impl Estimate {
    fn mean(&self) -> f64 {
        match self {
            Self::Same(value) => *value,
            Self::Each(values) => values.iter().sum::<f64>() / values.len().max(1) as f64,
        }
    }

    /// The difference to an estimate of the same rollout by the same estimator.
    fn less(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Each(a), Self::Each(b)) => {
                Self::Each(a.iter().zip(b).map(|(a, b)| a - b).collect())
            }
            _ => Self::Same(self.mean() - other.mean()),
        }
    }

    /// By turn; `sampled` counts the tokens of each.
    fn part(&self, sampled: &[u32]) -> Part {
        match self {
            Self::Same(value) => Part::Same(*value as f32),
            Self::Each(values) => {
                let mut values = values.iter().map(|&value| value as f32);
                let turn = |&count: &u32| values.by_ref().take(count as usize).collect();
                Part::Each(sampled.iter().map(turn).collect())
            }
        }
    }
}

/// The estimator's word on every rollout, with the KL in the reward at this weight.
fn estimated(
    groups: &[Vec<Rewards>],
    estimator: Estimator,
    kl_weight: f64,
) -> Result<Vec<Vec<Estimate>>, CreditError> {
    if let Estimator::ReinforcePlusPlus(gamma) = estimator {
        return over_tokens(groups, f64::from(gamma), kl_weight);
    }
    let reward = |of: &Rewards| match kl_weight {
        0.0 => of.outcome,
        weight => of.outcome - weight * of.kl_sum(),
    };
    let scores: Vec<Vec<f64>> = groups
        .iter()
        .map(|group| group.iter().map(reward).collect())
        .collect();
    let lengths: Vec<Vec<u32>> = groups
        .iter()
        .map(|group| group.iter().map(Rewards::length).collect())
        .collect();
    let pairs: Vec<GroupScores<'_>> = scores
        .iter()
        .zip(&lengths)
        .map(|(scores, lengths)| GroupScores { scores, lengths })
        .collect();
    let made = group::outcome_advantages(estimator, &pairs)?;
    let same = |values: Vec<f64>| values.into_iter().map(Estimate::Same).collect();
    Ok(made.into_iter().map(same).collect())
}

/// REINFORCE++ over the sampled tokens of the step. Observations are no steps, so they are left out.
fn over_tokens(
    groups: &[Vec<Rewards>],
    gamma: f64,
    kl_weight: f64,
) -> Result<Vec<Vec<Estimate>>, CreditError> {
    if groups.iter().any(Vec::is_empty) || groups.is_empty() {
        return Err(CreditError::EmptyGroup);
    }
    for (number, group) in groups.iter().enumerate() {
        let bad = |(_, of): &(usize, &Rewards)| !of.outcome.is_finite() || of.length() == 0;
        if let Some((member, of)) = group.iter().enumerate().find(bad) {
            let error = match of.length() {
                0 => CreditError::NothingSampled { member },
                _ => CreditError::OutcomeNotFinite {
                    member,
                    value: of.outcome,
                },
            };
            return Err(error.in_group(number));
        }
    }
    let rewards: Vec<Vec<f64>> = groups
        .iter()
        .flatten()
        .map(|of| {
            let mut rewards: Vec<f64> = match (kl_weight, of.kl.is_empty()) {
                (0.0, _) | (_, true) => vec![0.0; of.length() as usize],
                (weight, false) => {
                    let costs = of.kl.iter().flatten();
                    costs.map(|&kl| -weight * f64::from(kl)).collect()
                }
            };
            if let Some(last) = rewards.last_mut() {
                *last += of.outcome;
            }
            rewards
        })
        .collect();
    let masks: Vec<Vec<bool>> = rewards.iter().map(|row| vec![true; row.len()]).collect();
    let rows: Vec<TokenRow<'_>> = rewards
        .iter()
        .zip(&masks)
        .map(|(rewards, mask)| TokenRow { rewards, mask })
        .collect();
    let mut made = group::reinforce_plus_plus(&rows, gamma)?
        .advantages
        .into_iter()
        .map(Estimate::Each);
    Ok(groups
        .iter()
        .map(|group| made.by_ref().take(group.len()).collect())
        .collect())
}

/// A_M,t by turn of every rollout of one question, and the returns of its rounds.
type MemoryParts = (Vec<Vec<(u32, f32)>>, Vec<RoundReward>);

/// The memory parts of one question. Gates look at the outcome part alone: what leaving the
/// reference cost says nothing of the answer.
fn memory_parts(
    group: &[Rewards],
    outcome: &[Estimate],
    context: CreditContext<'_>,
) -> Result<MemoryParts, CreditError> {
    let CreditContext {
        settings,
        step,
        state,
        ..
    } = context;
    if !settings.memory {
        return Ok((Vec::new(), Vec::new()));
    }
    let price = |of: &MemoryReward| RoundReward {
        turn: of.turn,
        reward: priced(
            f64::from(of.reward),
            of.notes_tokens,
            settings.length,
            state.multiplier,
        ),
    };
    let rounds: Vec<Vec<RoundReward>> = group
        .iter()
        .map(|rollout| rollout.memory.iter().map(price).collect())
        .collect();
    let outcomes: Vec<f64> = group.iter().map(|rollout| rollout.outcome).collect();
    let outcome_advantages: Vec<f64> = outcome.iter().map(Estimate::mean).collect();
    let (values, returns) = round_advantages(
        GroupRounds {
            outcomes: &outcomes,
            outcome_advantages: &outcome_advantages,
            rounds: &rounds,
        },
        settings,
        step,
        state,
    )?;
    let by_turn = |(rounds, values): (&Vec<RoundReward>, &Vec<f64>)| {
        let pairs = rounds.iter().zip(values);
        pairs
            .map(|(round, &value)| (round.turn, value as f32))
            .collect()
    };
    let parts = rounds.iter().zip(&values).map(by_turn).collect();
    Ok((parts, returns.concat()))
}

#[cfg(test)]
mod tests;

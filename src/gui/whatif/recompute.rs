//! Credit worked out again. All arithmetic is `credit`'s.

use std::sync::Arc;

use super::inputs::{Member, StepInputs, inputs};
use crate::credit::assign::{CreditContext, Rewards, credit_step};
use crate::credit::memory::MemoryCreditState;
use crate::credit::memory::reward::reward_of;
use crate::credit::spread::{TokenCredit, token_credit};
use crate::experiment::{Baseline, CreditSettings, First, Length, Target};
use crate::gui::GuiError;
use crate::gui::run::Run;
use crate::gui::tokens::Document;
use crate::gui::words::place;
use crate::record::TokenBlock;
use crate::trajectory::{Advantages, Compared, MemoryReward, Part, RoundScores};

/// Which settings the record was made with, and what the run had kept from earlier steps.
#[derive(Clone, Debug)]
pub struct Scope<'a> {
    /// The settings of the run.
    pub recorded: &'a CreditSettings,
    /// What memory credit kept of earlier steps, under the new settings.
    pub state: &'a MemoryCreditState,
}

/// One rollout under the new settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemberResult {
    /// Memory rewards by round.
    pub memory: Vec<MemoryReward>,
    /// Its advantages.
    pub advantages: Advantages,
    /// The weights of every row.
    pub credit: Vec<TokenCredit>,
}

/// A step under other settings, in the shape of its inputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recomputed {
    /// The rollouts of every group.
    pub groups: Vec<Vec<MemberResult>>,
}

/// Works the credit of a step out.
///
/// # Errors
/// [`GuiError::NotRecorded`] if the record lacks what the settings need, [`GuiError::Credit`] if the
/// credit functions refuse.
pub fn recompute(
    inputs: &StepInputs,
    settings: &CreditSettings,
    scope: &Scope<'_>,
) -> Result<Recomputed, GuiError> {
    let mut groups: Vec<Vec<Rewards>> = Vec::with_capacity(inputs.groups.len());
    for group in &inputs.groups {
        let mut of = Vec::with_capacity(group.len());
        for member in group {
            of.push(Rewards {
                memory: memory_rewards(member, settings, scope.recorded)?,
                ..member.rewards.clone()
            });
        }
        groups.push(of);
    }
    let context = CreditContext {
        settings,
        step: inputs.step,
        kl_weight: 0.0,
        state: scope.state,
    };
    let credited = credit_step(&groups, context)?;
    let mut made = Recomputed::default();
    for ((group, rewards), advantages) in inputs.groups.iter().zip(groups).zip(credited.groups) {
        let mut results = Vec::with_capacity(group.len());
        for ((member, rewards), mut advantages) in group.iter().zip(rewards).zip(advantages) {
            // The KLs themselves are not recorded; what they changed is, and stays.
            advantages.kl.clone_from(&member.kl);
            let credit: Result<Vec<TokenCredit>, _> = member
                .rows
                .iter()
                .map(|row| token_credit(row, &advantages))
                .collect();
            results.push(MemberResult {
                memory: rewards.memory,
                advantages,
                credit: credit?,
            });
        }
        made.groups.push(results);
    }
    Ok(made)
}

/// The rounds of a member under the settings.
fn memory_rewards(
    member: &Member,
    settings: &CreditSettings,
    recorded: &CreditSettings,
) -> Result<Vec<MemoryReward>, GuiError> {
    if !settings.memory {
        return Ok(Vec::new());
    }
    let missing = |what: &str| {
        Err(GuiError::NotRecorded(format!(
            "{}: {what}",
            place(member.id)
        )))
    };
    let same_placebo = settings.placebo == recorded.placebo;
    if settings.unclosed != recorded.unclosed || !same_placebo || settings.scorer != recorded.scorer
    {
        return missing(
            "unclosed, placebo and scorer choose what the engine was asked; start a run for them",
        );
    }
    if !member.scores.is_empty() {
        let rounds = rounds_under(member, settings)?;
        let rewards: Result<Vec<_>, _> = rounds
            .iter()
            .map(|round| reward_of(round, settings))
            .collect();
        return Ok(rewards?);
    }
    let made_alike = recorded.memory
        && settings.target == recorded.target
        && settings.space == recorded.space
        && settings.threshold == recorded.threshold
        && settings.answers == recorded.answers
        && settings.support == recorded.support
        && settings.first == recorded.first
        && settings.length == Length::Off;
    if !made_alike && !member.memory.is_empty() {
        return missing(
            "the record holds no answer log-probs, so memory rewards cannot be made anew",
        );
    }
    if !recorded.memory {
        return missing("the run scored no notes (credit.memory was off)");
    }
    Ok(member
        .memory
        .iter()
        .map(|round| MemoryReward {
            turn: round.turn,
            p_memory: round.p_memory,
            p_full: round.p_full,
            p_previous: round.p_previous,
            p_empty: round.p_empty,
            notes_tokens: 0,
            reward: round.reward,
        })
        .collect())
}

/// The scores that the settings would have asked for, out of those that were asked for. A context that
/// nobody scored is an error, never a guess.
fn rounds_under(member: &Member, settings: &CreditSettings) -> Result<Vec<RoundScores>, GuiError> {
    let empty = || {
        let round = member
            .scores
            .iter()
            .find(|of| of.compared == Some(Compared::Empty))?;
        Some(round.against.clone())
    };
    let mut rounds = Vec::new();
    for (at, scored) in member.scores.iter().enumerate() {
        if scored.turn == 0 && settings.first == First::Skip {
            continue;
        }
        let wanted = match settings.target {
            _ if scored.turn == 0 => Some(Compared::Empty),
            Target::MinusFull => Some(Compared::Full),
            Target::MinusPrevious => Some(Compared::Previous),
            Target::MinusEmpty => Some(Compared::Empty),
            Target::Absolute => None,
        };
        let against = match wanted {
            None => Some(Vec::new()),
            Some(kind) if scored.compared == Some(kind) => Some(scored.against.clone()),
            Some(Compared::Full) => None,
            Some(Compared::Empty) => empty(),
            // The notes before are the round before, if that was scored too.
            Some(Compared::Previous) => at
                .checked_sub(1)
                .and_then(|before| member.scores.get(before))
                .map(|of| of.notes.clone()),
        };
        let Some(against) = against else {
            return Err(GuiError::NotRecorded(format!(
                "{}, turn {}: the answer was not scored in the context that this target compares with (credit.first: minus_empty scores more of them)",
                place(member.id),
                scored.turn
            )));
        };
        rounds.push(RoundScores {
            compared: wanted,
            against,
            ..scored.clone()
        });
    }
    Ok(rounds)
}

/// What memory credit would have kept before a step, under these settings. Nothing, unless they ask
/// for it; then every earlier step is worked out.
///
/// # Errors
/// As [`recompute`], for an earlier step.
pub fn state_before(
    run: &mut Run,
    step: u32,
    settings: &CreditSettings,
    recorded: &CreditSettings,
) -> Result<MemoryCreditState, GuiError> {
    let mut state = MemoryCreditState::default();
    let keeps = matches!(settings.baseline, Baseline::PositionAverage(_))
        || matches!(settings.length, Length::Budget(_));
    if !keeps || !settings.memory {
        return Ok(state);
    }
    for earlier in 0..step {
        let inputs = inputs(run, earlier)?;
        let mut groups = Vec::new();
        for group in &inputs.groups {
            let mut of = Vec::new();
            for member in group {
                let memory = memory_rewards(member, settings, recorded)?;
                of.push(Rewards {
                    memory,
                    ..member.rewards.clone()
                });
            }
            groups.push(of);
        }
        let context = CreditContext {
            settings,
            step: earlier,
            kl_weight: 0.0,
            state: &state,
        };
        let credited = credit_step(&groups, context)?;
        let lengths: Vec<u32> = groups
            .iter()
            .flatten()
            .flat_map(|of| &of.memory)
            .map(|round| round.notes_tokens)
            .collect();
        state.learn(settings, &credited.returns, &lengths);
    }
    Ok(state)
}

/// The tokens of a rollout with the new weights in place of the recorded ones.
#[must_use]
pub fn document_of(
    member: &Member,
    result: &MemberResult,
    vocabulary: &Arc<Vec<String>>,
) -> Document {
    let blocks: Vec<TokenBlock> = member
        .blocks
        .iter()
        .zip(&result.credit)
        .map(|(block, credit)| TokenBlock {
            outcome: credit.outcome.clone(),
            memory: credit.memory.clone(),
            kl: match &result.advantages.kl {
                Part::Same(_) => vec![0.0; block.ids.len()],
                Part::Each(_) => credit.kl.clone(),
            },
            weight: credit.weight.clone(),
            ..block.clone()
        })
        .collect();
    Document::new(member.id, &blocks, vocabulary)
}

//! Why a group gives no gradient.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why the outcomes of a group say nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeSilence {
    /// No token of the group was sampled: everything is masked.
    AllMasked,
    /// Every rollout broke the format or never answered.
    AllMalformed,
    /// Every rollout is right.
    AllRight,
    /// Every rollout is wrong, in a valid format.
    AllWrong,
    /// The outcomes differ, and yet every advantage is 0.
    Cancelled,
}

/// Why the notes of a group say nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemorySilence {
    /// Memory credit is switched off.
    Off,
    /// No round wrote notes that could be scored.
    NotScored,
    /// No answer token passed the threshold, in any context.
    BelowThreshold,
    /// All memory rewards are equal.
    AllEqual,
    /// The rewards differ, and yet every memory advantage is 0 (a gate, or weight 0).
    Cancelled,
}

/// A group without gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadGroup {
    /// Number of the group inside its step.
    pub group: u32,
    /// Why its outcomes are silent.
    pub outcome: OutcomeSilence,
    /// Why its notes are silent.
    pub memory: MemorySilence,
}

/// One rollout, as far as its signal goes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sign {
    /// R_T.
    pub reward: f32,
    /// Exact match.
    pub right: bool,
    /// Format kept and answered.
    pub valid: bool,
    /// Trained tokens.
    pub sampled: usize,
    /// Trained tokens whose weight is not 0.
    pub weighted: usize,
    /// (P with the notes alone, P with the full history, reward) of every scored round.
    pub memory: Vec<(f32, f32, f32)>,
}

/// Why a group gives no gradient; none if some sampled token has a weight.
#[must_use]
pub fn silence(group: u32, rollouts: &[Sign], memory_on: bool) -> Option<DeadGroup> {
    if rollouts.iter().any(|sign| sign.weighted > 0) {
        return None;
    }
    let all = |holds: fn(&Sign) -> bool| rollouts.iter().all(holds);
    let outcome = if all(|sign| sign.sampled == 0) {
        OutcomeSilence::AllMasked
    } else if rollouts
        .windows(2)
        .any(|pair| matches!(pair, [a, b] if a.reward != b.reward))
    {
        OutcomeSilence::Cancelled
    } else if all(|sign| !sign.valid) {
        OutcomeSilence::AllMalformed
    } else if all(|sign| sign.right) {
        OutcomeSilence::AllRight
    } else {
        OutcomeSilence::AllWrong
    };
    let rounds: Vec<(f32, f32, f32)> = rollouts
        .iter()
        .flat_map(|sign| sign.memory.iter().copied())
        .collect();
    let memory = if !memory_on {
        MemorySilence::Off
    } else if rounds.is_empty() {
        MemorySilence::NotScored
    } else if rounds
        .iter()
        .all(|(memory, full, _)| *memory == 0.0 && *full == 0.0)
    {
        MemorySilence::BelowThreshold
    } else if rounds
        .windows(2)
        .all(|pair| matches!(pair, [a, b] if a.2 == b.2))
    {
        MemorySilence::AllEqual
    } else {
        MemorySilence::Cancelled
    };
    Some(DeadGroup {
        group,
        outcome,
        memory,
    })
}

impl fmt::Display for OutcomeSilence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AllMasked => "every token is masked",
            Self::AllMalformed => "no rollout kept the format",
            Self::AllRight => "every rollout is right",
            Self::AllWrong => "every rollout is wrong",
            Self::Cancelled => "outcomes differ, but their advantages are 0",
        })
    }
}

impl fmt::Display for MemorySilence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "memory credit is off",
            Self::NotScored => "no notes were scored",
            Self::BelowThreshold => "no answer token passed the threshold",
            Self::AllEqual => "all memory rewards are equal",
            Self::Cancelled => "memory rewards differ, but their advantages are 0",
        })
    }
}

/// One line about a step: how many groups are silent, and why.
#[must_use]
pub fn in_words(groups: u32, dead: &[DeadGroup]) -> String {
    let mut reasons: Vec<((OutcomeSilence, MemorySilence), Vec<String>)> = Vec::new();
    for group in dead {
        let reason = (group.outcome, group.memory);
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, numbers)) => numbers.push(group.group.to_string()),
            None => reasons.push((reason, vec![group.group.to_string()])),
        }
    }
    let parts: Vec<String> = reasons
        .iter()
        .map(|((outcome, memory), numbers)| {
            format!("{outcome} and {memory} (groups {})", numbers.join(", "))
        })
        .collect();
    let all = if dead.len() == groups as usize {
        "; the step teaches nothing"
    } else {
        ""
    };
    format!(
        "{} of {groups} groups give no gradient: {}{all}",
        dead.len(),
        parts.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rollout(reward: f32, valid: bool) -> Sign {
        Sign {
            reward,
            right: reward > 0.5,
            valid,
            sampled: 5,
            ..Sign::default()
        }
    }

    #[test]
    fn every_reason_is_told_apart() {
        let outcome = |signs: &[Sign]| silence(3, signs, false).unwrap().outcome;
        let pair = |a, b| [rollout(a, true), rollout(b, true)];
        assert_eq!(outcome(&pair(1.0, 1.0)), OutcomeSilence::AllRight);
        assert_eq!(outcome(&pair(0.0, 0.0)), OutcomeSilence::AllWrong);
        assert_eq!(outcome(&pair(0.0, 1.0)), OutcomeSilence::Cancelled);
        assert_eq!(
            outcome(&[rollout(0.0, false)]),
            OutcomeSilence::AllMalformed
        );
        assert_eq!(outcome(&[Sign::default()]), OutcomeSilence::AllMasked);

        let memory = |rounds: &[(f32, f32, f32)]| {
            let mut sign = rollout(0.0, true);
            sign.memory = rounds.to_vec();
            silence(0, &[sign], true).unwrap().memory
        };
        assert_eq!(memory(&[]), MemorySilence::NotScored);
        assert_eq!(memory(&[(0.0, 0.0, 0.0)]), MemorySilence::BelowThreshold);
        assert_eq!(
            memory(&[(0.2, 0.1, 0.1), (0.3, 0.2, 0.1)]),
            MemorySilence::AllEqual
        );
        assert_eq!(
            memory(&[(0.2, 0.1, 0.1), (0.3, 0.1, 0.2)]),
            MemorySilence::Cancelled
        );
    }

    #[test]
    fn a_group_with_a_weight_is_not_silent() {
        let mut sign = rollout(0.0, true);
        sign.weighted = 1;
        assert_eq!(silence(0, &[sign, rollout(0.0, true)], true), None);
    }

    #[test]
    fn a_step_is_told_in_one_line() {
        let dead = |group| DeadGroup {
            group,
            outcome: OutcomeSilence::AllRight,
            memory: MemorySilence::Off,
        };
        assert_eq!(
            in_words(2, &[dead(0), dead(1)]),
            "2 of 2 groups give no gradient: every rollout is right and memory credit is off \
             (groups 0, 1); the step teaches nothing"
        );
    }
}

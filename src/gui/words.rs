//! Small texts that several panels write the same way.

use crate::credit::signal::{MemorySilence, OutcomeSilence};
use crate::record::TrajectoryView;
use crate::trajectory::{Purpose, StopReason, TrajectoryId};

/// A signed number with so many decimals: `+0.25`, `-0.25`, `0.00`. A minus is the ASCII one, so that
/// copied tables can be read back.
#[must_use]
pub fn signed(value: f32, decimals: usize) -> String {
    let text = format!("{value:+.decimals$}");
    if text.trim_start_matches(['+', '-', '0', '.']).is_empty() && value.is_finite() {
        text.trim_start_matches(['+', '-']).to_owned()
    } else {
        text
    }
}

/// A rollout inside its step: `step 7, group 2, rollout 3`. Steps count from 1, as in the curves.
#[must_use]
pub fn place(id: TrajectoryId) -> String {
    match id.purpose {
        Purpose::Train => format!(
            "step {}, group {}, rollout {}",
            id.step + 1,
            id.group,
            id.member
        ),
        // Its rollouts are the samples of one question.
        Purpose::Evaluate => format!(
            "evaluation after step {}, group {}, rollout {}",
            id.step, id.group, id.member
        ),
    }
}

/// Name of a step: `step 7`, `evaluation after 6`.
#[must_use]
pub fn step_name(purpose: Purpose, step: u32) -> String {
    match purpose {
        Purpose::Train => format!("step {}", step + 1),
        Purpose::Evaluate => format!("evaluation after {step}"),
    }
}

/// How a trajectory ended, for readers.
#[must_use]
pub fn reason(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Answered => "answered",
        StopReason::TurnLimit => "out of turns",
        StopReason::TokenLimit => "out of tokens",
        StopReason::ContextFull => "context full",
        StopReason::ResultTooLong => "tool result too long",
        StopReason::Malformed => "malformed",
        StopReason::ToolFailed => "tool failed",
        StopReason::TimedOut => "timed out",
        StopReason::Aborted => "aborted",
    }
}

/// How a trajectory ended and what that was worth, in one phrase.
#[must_use]
pub fn verdict(trajectory: &TrajectoryView) -> String {
    let Some(why) = trajectory.reason else {
        return "running".into();
    };
    match trajectory.outcome {
        Some(outcome) if why == StopReason::Answered => {
            let right = if outcome.em >= 1.0 { "right" } else { "wrong" };
            format!("{right} {:.2}", outcome.reward)
        }
        Some(outcome) => format!("{} {:.2}", reason(why), outcome.reward),
        None => reason(why).into(),
    }
}

/// Why the outcomes of a group are silent.
#[must_use]
pub fn outcome_silence(why: OutcomeSilence) -> &'static str {
    match why {
        OutcomeSilence::AllMasked => "no token was sampled",
        OutcomeSilence::AllMalformed => "every rollout is malformed",
        OutcomeSilence::AllRight => "every rollout is right",
        OutcomeSilence::AllWrong => "every rollout is wrong",
        OutcomeSilence::Cancelled => "every outcome advantage is 0",
    }
}

/// Why the notes of a group are silent.
#[must_use]
pub fn memory_silence(why: MemorySilence) -> &'static str {
    match why {
        MemorySilence::Off => "memory credit is off",
        MemorySilence::NotScored => "no notes were scored",
        MemorySilence::BelowThreshold => "no answer token passed the threshold",
        MemorySilence::AllEqual => "all memory rewards are equal",
        MemorySilence::Cancelled => "every memory advantage is 0",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_carry_their_sign_and_nothing_has_none() {
        assert_eq!(signed(0.254, 2), "+0.25");
        assert_eq!(signed(-0.254, 2), "-0.25");
        assert_eq!(signed(-0.001, 2), "0.00");
        assert_eq!(signed(0.0, 1), "0.0");
        assert_eq!(signed(f32::INFINITY, 1), "+inf");
    }
}

//! The events of a run: one JSON object a line, numbered, append-only.
//!
//! No event holds a wall-clock time, a process id or a path outside the run folder.

use serde::{Deserialize, Serialize};

use super::TokenRef;
use crate::credit::signal::DeadGroup;
use crate::engine::MiniBatchReport;
pub use crate::eval::Evaluation;
use crate::trajectory::{
    Action, FormatRule, Outcome, Purpose, RoundScores, StopReason, ToolFailure, TrajectoryId,
};

/// The schema that this program writes, and the newest that it reads.
pub const SCHEMA: u32 = 1;

/// A line of `events.jsonl`: `{"seq":7,"kind":"step_began","step":3}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// Number of the event, from 0, without gaps.
    pub seq: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// The first event of every run.
    RunStarted {
        /// Schema of the record.
        schema: u32,
        /// Name in the experiment.
        name: String,
        /// Seed of the run.
        seed: u64,
        /// Version of the program.
        version: String,
        /// Fingerprint of `experiment.ron`: eight hexadecimal digits.
        experiment: String,
    },
    /// The run went on from a checkpoint. Events after `from_seq` and before this one are void:
    /// what they tell was done again.
    RunResumed {
        /// The last event that stands: that of the checkpoint.
        from_seq: u64,
        /// RL steps that the checkpoint had done.
        step: u32,
        /// Cold start steps that the checkpoint had done.
        cold_start_step: u32,
    },
    /// One supervised step.
    ColdStartStep {
        /// Number of the step, from 1 over all stages.
        step: u32,
        /// (part, mean cross-entropy, share of targets that are the arg-max).
        parts: Vec<(String, f64, f64)>,
        /// Cross-entropy of the training-only aid, 0 if off.
        aid_loss: f64,
        /// Learning rate of the matrices.
        lr: f64,
    },
    /// An RL step began.
    StepBegan {
        /// Number of the step, from 1.
        step: u32,
    },
    /// A question was drawn for a group.
    QuestionDrawn {
        /// As in the ids of its trajectories: RL steps from 0, or the steps done before an evaluation.
        step: u32,
        /// Training or evaluation.
        purpose: Purpose,
        /// Number of the question inside the step.
        group: u32,
        /// The prompt as text.
        text: String,
        /// How many things it asks for.
        objectives: u32,
        /// The right answer as it would be written.
        gold: String,
    },
    /// The policy wrote a turn.
    TurnGenerated(TurnEvent),
    /// A tool answered.
    ToolReturned {
        /// Whose call.
        id: TrajectoryId,
        /// The turn that asked, from 0.
        turn: u32,
        /// As shown to the policy, tool tags included.
        text: String,
        /// Length of `text`, tokens.
        tokens: u32,
        /// How the tool failed; absent if it did not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<ToolFailure>,
    },
    /// A trajectory is over.
    TrajectoryTerminated {
        /// Which.
        id: TrajectoryId,
        /// Why.
        reason: StopReason,
        /// What it was worth.
        outcome: Outcome,
    },
    /// Credit was spread over the tokens of a trajectory. Written after the update, so that the
    /// token blocks hold the learner's log-probs too.
    CreditAssigned {
        /// Which.
        id: TrajectoryId,
        /// A_T: the same for every sampled token, or its mean where an estimator gives one a token.
        outcome: f32,
        /// What the KL in the reward changed in it, the same way.
        #[serde(default, skip_serializing_if = "is_zero")]
        kl: f32,
        /// One entry a round that wrote notes.
        memory: Vec<MemoryCredit>,
        /// What those rewards were made of, so that they can be worked out under other settings.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        scores: Vec<RoundScores>,
        /// Its training rows in `tokens.bin`; none if its tokens are not kept.
        tokens: Vec<TokenRef>,
    },
    /// The policy was updated.
    Learned {
        /// RL step.
        step: u32,
        /// One entry a mini-batch.
        mini_batches: Vec<MiniBatchReport>,
    },
    /// Groups of an update gave no gradient.
    SignalMissing {
        /// RL step.
        step: u32,
        /// Groups of the step.
        groups: u32,
        /// Those without a gradient, and why.
        dead: Vec<DeadGroup>,
    },
    /// The policy was measured.
    Evaluated(Box<Evaluation>),
    /// Something went wrong that the user should know of; the run goes on.
    TroubleFound {
        /// Where, if it is about one trajectory.
        id: Option<TrajectoryId>,
        /// What, in a sentence.
        what: String,
    },
    /// A checkpoint is complete. A resume from it keeps the events up to this one: the checkpoint
    /// holds the number of this event as the `from_seq` of that resume.
    CheckpointSaved {
        /// RL steps done.
        step: u32,
        /// Cold start steps done.
        cold_start_step: u32,
        /// Its name under `checkpoints/`.
        folder: String,
    },
    /// The run is over for this process.
    RunEnded {
        /// How.
        status: RunStatus,
    },
}

/// Whether a part has nothing to tell.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(part: &f32) -> bool {
    *part == 0.0
}

impl Event {
    /// Every kind, as it stands in the file.
    pub const KINDS: [&'static str; 15] = [
        "run_started",
        "run_resumed",
        "cold_start_step",
        "step_began",
        "question_drawn",
        "turn_generated",
        "tool_returned",
        "trajectory_terminated",
        "credit_assigned",
        "learned",
        "signal_missing",
        "evaluated",
        "trouble_found",
        "checkpoint_saved",
        "run_ended",
    ];
}

/// A turn that the policy wrote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnEvent {
    /// Whose.
    pub id: TrajectoryId,
    /// Which turn, from 0.
    pub turn: u32,
    /// The text, forced part included.
    pub text: String,
    /// Length of the turn, tokens, forced ones included.
    pub tokens: u32,
    /// Tokens the policy saw before the turn.
    pub context_tokens: u32,
    /// What stands between the memory tags, if they are there.
    pub notes: Option<String>,
    /// What it asked for; none if malformed.
    pub action: Option<Action>,
    /// The first rule it broke.
    pub broken: Option<FormatRule>,
}

/// The memory reward of one round, and the advantage it gave the notes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryCredit {
    /// The turn that wrote the notes, from 0.
    pub turn: u32,
    /// P(gold | question, notes).
    pub p_memory: f32,
    /// P(gold | everything up to and including these notes), if the credit asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_full: Option<f32>,
    /// P(gold | question, notes of the round before), if the credit asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_previous: Option<f32>,
    /// P(gold | question, empty notes), if the credit asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p_empty: Option<f32>,
    /// What credit is assigned from.
    pub reward: f32,
    /// A_M,t: added to the tokens of these notes.
    pub advantage: f32,
}

/// How a run stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// No end has been written: it is running, or it was cut off.
    #[default]
    Running,
    /// Every step was done.
    Finished,
    /// The user stopped it; it can be resumed.
    Stopped,
    /// An error stopped it.
    Failed,
}

impl RunStatus {
    /// As it stands in files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_begins_with_its_number_and_kind() {
        let recorded = Recorded {
            seq: 7,
            event: Event::StepBegan { step: 3 },
        };
        let line = serde_json::to_string(&recorded).unwrap();
        assert_eq!(line, r#"{"seq":7,"kind":"step_began","step":3}"#);
        assert_eq!(serde_json::from_str::<Recorded>(&line).unwrap(), recorded);
    }

    #[test]
    fn every_kind_is_listed() {
        // A kind that serde does not know is refused with the names of those it knows.
        let refused = serde_json::from_str::<Event>(r#"{"kind":"none"}"#).unwrap_err();
        let known = refused.to_string().matches('`').count() / 2 - 1;
        assert_eq!(known, Event::KINDS.len());
        for kind in Event::KINDS {
            assert!(refused.to_string().contains(kind), "{kind}");
        }
    }

    #[test]
    fn the_status_is_written_as_in_the_events() {
        for status in [
            RunStatus::Running,
            RunStatus::Finished,
            RunStatus::Stopped,
            RunStatus::Failed,
        ] {
            let text = serde_json::to_string(&status).unwrap();
            assert_eq!(text.trim_matches('"'), status.as_str());
        }
    }
}

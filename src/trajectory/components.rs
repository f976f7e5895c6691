//! Components of a trajectory entity, and of the group entity it belongs to.

use bevy_ecs::prelude::*;
use serde::{Deserialize, Serialize};

use super::{FormatRule, Span, StopReason, TokenId};

/// Why a trajectory exists.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// It is rolled out to be trained on.
    #[default]
    Train,
    /// It is rolled out to be measured.
    Evaluate,
}

/// Names a trajectory for ever: sort key, and key of its random stream.
#[derive(
    Component,
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
)]
pub struct TrajectoryId {
    /// RL step that rolled it out; evaluations carry the step after which they ran.
    pub step: u32,
    /// Training or evaluation.
    pub purpose: Purpose,
    /// Number of the question inside the step.
    pub group: u32,
    /// Number of the rollout inside the group.
    pub member: u32,
}

impl TrajectoryId {
    /// The step as used in random streams: training and evaluation never share numbers.
    #[must_use]
    pub fn stream_step(self) -> u32 {
        self.step * 2 + u32::from(self.purpose == Purpose::Evaluate)
    }
}

impl std::fmt::Display for TrajectoryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lane = if self.purpose == Purpose::Evaluate {
            "e"
        } else {
            ""
        };
        write!(f, "{}{}/{}/{}", lane, self.step, self.group, self.member)
    }
}

/// Points from a trajectory to the entity of its group (the rollouts of one question).
#[derive(Component, Clone, Copy, Debug)]
#[relationship(relationship_target = Members)]
pub struct MemberOf(pub Entity);

/// The rollouts of one question; kept by bevy from [`MemberOf`].
#[derive(Component, Debug, Default)]
#[relationship_target(relationship = MemberOf)]
pub struct Members(Vec<Entity>);

/// Marks the entity of a group.
#[derive(Component, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// RL step of the group.
    pub step: u32,
    /// Training or evaluation.
    pub purpose: Purpose,
    /// Number of the question inside the step.
    pub group: u32,
}

/// What the policy asked for at the end of a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// `<search>query</search>`
    Search(String),
    /// `<access>page</access>`
    Access(String),
    /// `<answer>text</answer>`
    Answer(String),
}

/// Where a trajectory stands. The names are the field's (verl's tool agent loop).
#[derive(Component, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnState {
    /// The next turn has not been asked for yet.
    Pending,
    /// The engine is writing the turn.
    Generating,
    /// A tool is at work.
    ProcessingTools,
    /// It is over.
    Terminated(StopReason),
}

/// Marker on trajectories that are over, so that hot queries skip them.
#[derive(Component, Clone, Copy, Debug)]
pub struct Terminated;

/// What a tool answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The text as shown to the policy, tool tags included.
    pub text: String,
    /// Ids of `text`; never trained on.
    pub ids: Vec<TokenId>,
    /// Ids of the short form, for contexts that show only the last result; none: as long as `ids`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_ids: Option<Vec<TokenId>>,
    /// What the tool itself said, without tags and cut to the limits; replays need it.
    #[serde(default)]
    pub said: String,
    /// Whether it failed; then `said` is what went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<ToolFailure>,
}

/// How a tool call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolFailure {
    /// It did not answer in time.
    TimedOut,
    /// It failed, or no tool serves the call.
    Failed,
}

/// One turn: what it saw, what it wrote, what came back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Number of leading `ids` that the context forced (a `<mem>` in the deployed context): not
    /// sampled, not trained on.
    pub forced: u32,
    /// Forced ids, then sampled ids. Exactly what the engine sampled; never re-tokenised.
    pub ids: Vec<TokenId>,
    /// Log-prob of each id when it was sampled, 0 for forced ones; NaN where the engine does not tell.
    /// Length of `ids`.
    #[serde(with = "super::unknown")]
    pub logprobs: Vec<f32>,
    /// The tags found, as ranges into `ids`.
    pub spans: Vec<Span>,
    /// What it asked for; none if malformed.
    pub action: Option<Action>,
    /// The first rule it broke.
    pub broken: Option<FormatRule>,
    /// The result of its tool call.
    pub tool: Option<ToolResult>,
    /// Tokens the policy saw before this turn's ids (context length).
    pub context_tokens: u32,
    /// Whether a limit of tokens cut it off.
    #[serde(default)]
    pub cut: bool,
}

/// All turns so far.
#[derive(Component, Clone, Debug, Default)]
pub struct Turns(pub Vec<Turn>);

/// What the trajectory may still spend.
#[derive(Component, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Turns it may still begin.
    pub turns: u32,
    /// Tokens it may still sample.
    pub tokens: u32,
}

/// What the trajectory was worth.
#[derive(Component, Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// R_T: 1 if the answer matches and the format is valid, else 0, plus the format reward.
    pub reward: f32,
    /// Exact match over all objectives (0 or 1).
    pub em: f32,
    /// Mean over objectives of the F1 of each answer, or the task's own F1 (0 to 1).
    pub f1: f32,
    /// 1 if every objective's right words stand in its answer, else 0 (the task's own definition).
    #[serde(default)]
    pub cem: f32,
    /// Share of objectives that are answered exactly (0 to 1).
    #[serde(default)]
    pub objectives_em: f32,
    /// Every turn kept every format rule, and it answered.
    pub valid: bool,
    /// Share of facts seen so far that stood in the notes, averaged over turns from the second.
    pub notes_recall: f32,
    /// Mean length of the notes in tokens, over turns from the second.
    pub notes_tokens: f32,
    /// Longest context with its turn, tokens.
    pub peak_tokens: u32,
    /// All tokens processed: every context with its turn, counted once per turn.
    pub total_tokens: u32,
}

/// P(gold | context) of one round, in the contexts that the credit settings compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryReward {
    /// The turn that wrote the notes, from 0; the first round has none.
    pub turn: u32,
    /// P(gold | question, notes).
    pub p_memory: f32,
    /// P(gold | everything up to and including this round's notes).
    pub p_full: Option<f32>,
    /// P(gold | question, notes of the round before).
    pub p_previous: Option<f32>,
    /// P(gold | question, empty notes).
    pub p_empty: Option<f32>,
    /// Tokens between the memory tags.
    pub notes_tokens: u32,
    /// r_t, what credit is assigned from.
    pub reward: f32,
}

/// What the notes of a round are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compared {
    /// Everything up to and including them.
    Full,
    /// The question and the notes of the round before.
    Previous,
    /// The question and empty notes.
    Empty,
}

/// What the memory reward of a round is made of: the log-probs of the gold answer's tokens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundScores {
    /// The turn that wrote the notes, from 0.
    pub turn: u32,
    /// Tokens between the memory tags.
    pub notes_tokens: u32,
    /// Given the question and the notes: one list for every text of the gold answer.
    pub notes: Vec<Vec<f32>>,
    /// What that is compared with, if with anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<Compared>,
    /// The same texts in the second context.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub against: Vec<Vec<f32>>,
    /// Tokens of every sub-answer inside the first text.
    pub answers: Vec<u32>,
    /// For every sub-answer, whether the notes do not hold it or an observation had shown it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub supported: Vec<bool>,
}

/// The scores of a trajectory's rounds, in turn order.
#[derive(Component, Clone, Debug, Default)]
pub struct AnswerScores(pub Vec<RoundScores>);

/// The memory rewards of a trajectory, in turn order.
#[derive(Component, Clone, Debug, Default)]
pub struct MemoryRewards(pub Vec<MemoryReward>);

/// The KL to the reference, estimated from every sampled token: by turn, in the order of sampling.
#[derive(Component, Clone, Debug, Default, PartialEq)]
pub struct KlToReference(pub Vec<Vec<f32>>);

/// A part of the advantage of a trajectory's sampled tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Part {
    /// The same for every sampled token.
    Same(f32),
    /// One number a sampled token, by turn: estimators over tokens.
    Each(Vec<Vec<f32>>),
}

impl Default for Part {
    fn default() -> Self {
        Self::Same(0.0)
    }
}

impl From<f32> for Part {
    fn from(value: f32) -> Self {
        Self::Same(value)
    }
}

impl Part {
    /// The number of a sampled token; none if there is no such token.
    #[must_use]
    pub fn at(&self, turn: u32, token: usize) -> Option<f32> {
        match self {
            Self::Same(value) => Some(*value),
            Self::Each(turns) => turns.get(turn as usize)?.get(token).copied(),
        }
    }

    /// The mean over the sampled tokens.
    #[must_use]
    pub fn mean(&self) -> f32 {
        match self {
            Self::Same(value) => *value,
            Self::Each(turns) => {
                let count: usize = turns.iter().map(Vec::len).sum();
                let sum: f64 = turns.iter().flatten().map(|&value| f64::from(value)).sum();
                (sum / count.max(1) as f64) as f32
            }
        }
    }

    /// Whether it is exactly 0 everywhere.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::Same(0.0)
    }
}

/// Advantages by source; per-token weights are laid out from these.
#[derive(Component, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Advantages {
    /// A_T, made of the outcomes alone.
    pub outcome: Part,
    /// What the KL in the reward changed in it; nothing if it costs nothing.
    #[serde(default)]
    pub kl: Part,
    /// A_M,t of turn t: (turn, advantage).
    pub memory: Vec<(u32, f32)>,
    /// The tokens that the memory part falls on.
    #[serde(default)]
    pub over: MemoryTokens,
}

/// The tokens of a turn that its memory advantage falls on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryTokens {
    /// Its closed notes, tags included; all of the turn's tokens where it closed none.
    #[default]
    Notes,
    /// All that the policy wrote in the turn.
    Turn,
}

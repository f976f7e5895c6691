//! How trajectories end, and which rules turns break, with their names in files and tables.

use serde::{Deserialize, Serialize};

/// How a trajectory ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It gave an answer.
    Answered,
    /// It used all its turns without an answer.
    TurnLimit,
    /// A turn reached its token limit, or the trajectory its own.
    TokenLimit,
    /// A turn filled the context.
    ContextFull,
    /// The result of a tool left no room in the context for another token.
    ResultTooLong,
    /// A turn broke the protocol; the rule stands in the turn.
    Malformed,
    /// A tool failed for good.
    ToolFailed,
    /// A tool or the engine did not answer in time.
    TimedOut,
    /// The run was stopped.
    Aborted,
}

impl StopReason {
    /// How many there are.
    pub const COUNT: usize = 9;
    /// All of them, in the order of tables.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Answered,
        Self::TurnLimit,
        Self::TokenLimit,
        Self::ContextFull,
        Self::ResultTooLong,
        Self::Malformed,
        Self::ToolFailed,
        Self::TimedOut,
        Self::Aborted,
    ];

    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::TurnLimit => "turn_limit",
            Self::TokenLimit => "token_limit",
            Self::ContextFull => "context_full",
            Self::ResultTooLong => "result_too_long",
            Self::Malformed => "malformed",
            Self::ToolFailed => "tool_failed",
            Self::TimedOut => "timed_out",
            Self::Aborted => "aborted",
        }
    }
}

/// A rule of the protocol that a turn broke. See `docs/protocol.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FormatRule {
    /// A turn begins with `<mem>`.
    MemoryFirst,
    /// `<mem>` is closed.
    MemoryClosed,
    /// `<think>` follows `</mem>`.
    ThinkSecond,
    /// `<think>` is closed.
    ThinkClosed,
    /// Exactly one of search, access and answer follows `</think>`.
    OneAction,
    /// The action is closed, and nothing follows it.
    ActionClosed,
    /// Only white space stands between the blocks.
    NothingBetween,
    /// No protocol tag stands inside a block.
    NoNestedTags,
}

impl FormatRule {
    /// How many there are.
    pub const COUNT: usize = 8;
    /// All of them, in the order of tables.
    pub const ALL: [Self; Self::COUNT] = [
        Self::MemoryFirst,
        Self::MemoryClosed,
        Self::ThinkSecond,
        Self::ThinkClosed,
        Self::OneAction,
        Self::ActionClosed,
        Self::NothingBetween,
        Self::NoNestedTags,
    ];

    /// Its word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::MemoryFirst => "memory_first",
            Self::MemoryClosed => "memory_closed",
            Self::ThinkSecond => "think_second",
            Self::ThinkClosed => "think_closed",
            Self::OneAction => "one_action",
            Self::ActionClosed => "action_closed",
            Self::NothingBetween => "nothing_between",
            Self::NoNestedTags => "no_nested_tags",
        }
    }
}

//! What can be wrong with the numbers that credit is made of.

/// Why credit cannot be assigned. Names the member of the group and the turn.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CreditError {
    /// A group without rollouts.
    #[error("a group has no rollouts; every question needs at least one")]
    EmptyGroup,
    /// A reward that is NaN or infinite.
    #[error("member {member}: the outcome reward is {value}, but rewards must be finite")]
    OutcomeNotFinite {
        /// Number of the rollout inside its group.
        member: usize,
        /// The value.
        value: f64,
    },
    /// A memory reward that is NaN or infinite.
    #[error(
        "member {member}, turn {turn}: the memory reward is {value}, but rewards must be finite"
    )]
    MemoryNotFinite {
        /// Number of the rollout inside its group.
        member: usize,
        /// The turn, from 0.
        turn: u32,
        /// The value.
        value: f64,
    },
    /// An answer without tokens has no probability.
    #[error("the gold answer has no tokens, so P(gold | context) does not exist")]
    EmptyAnswer,
    /// A span of notes that leaves its row or overlaps another.
    #[error("turn {turn}: the notes span {start}..{end} {problem} (the row has {length} tokens)")]
    BadSpan {
        /// The turn, from 0.
        turn: u32,
        /// First token.
        start: u32,
        /// One past the last token.
        end: u32,
        /// Tokens in the row.
        length: usize,
        /// What is wrong.
        problem: &'static str,
    },
}

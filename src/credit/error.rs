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
    /// A group too small for the estimator.
    #[error("a group has {found} rollouts, but this estimator compares at least {needed}")]
    TooFewMembers {
        /// Rollouts of the group.
        found: usize,
        /// Rollouts that the estimator needs.
        needed: usize,
    },
    /// Two lists about the same rollouts or tokens that differ in length.
    #[error("member {member}: {found} {what} for {expected} entries; there must be one for each")]
    LengthsDiffer {
        /// Number of the rollout inside its group, or the first without a partner.
        member: usize,
        /// What the list holds.
        what: &'static str,
        /// Its length.
        found: usize,
        /// The length it must have.
        expected: usize,
    },
    /// A rollout in which the policy sampled nothing: no token can carry its credit.
    #[error("member {member}: the mask holds no sampled token, so nothing can carry its credit")]
    NothingSampled {
        /// Number of the rollout inside its group.
        member: usize,
    },
    /// A reward or critic's value that is NaN or infinite.
    #[error("member {member}, token {token}: the {what} is {value}, but it must be finite")]
    TokenNotFinite {
        /// Number of the rollout.
        member: usize,
        /// The token, from 0.
        token: usize,
        /// Reward or value.
        what: &'static str,
        /// The number.
        value: f64,
    },
    /// A reward on a token that the policy did not sample, which no gradient reaches.
    #[error(
        "member {member}, token {token}: a reward of {value} stands on a token that was not sampled; \
         move it to the last sampled token before it"
    )]
    RewardOffPolicy {
        /// Number of the rollout.
        member: usize,
        /// The token, from 0.
        token: usize,
        /// The reward.
        value: f64,
    },
    /// Too few sampled tokens for a variance.
    #[error("{count} sampled tokens have no variance; whitening needs at least two")]
    TooFewTokens {
        /// Sampled tokens in all.
        count: usize,
    },
    /// An estimator over tokens where one score a rollout is all there is.
    #[error(
        "reinforce_plus_plus estimates tokens, and one score a rollout is given; lay its reward on the last sampled token"
    )]
    OverTokens,
    /// Numbers by turn and token that are not one for each sampled token.
    #[error(
        "{what} of turn {turn}: {found} numbers for {sampled} sampled tokens; there must be one for each"
    )]
    TokensOfTurn {
        /// What the numbers are.
        what: &'static str,
        /// The turn, from 0.
        turn: usize,
        /// Numbers given.
        found: usize,
        /// Tokens sampled.
        sampled: usize,
    },
    /// A row with a sampled token that has no advantage of its own.
    #[error("turn {turn}: sampled token {token} has no advantage")]
    NoAdvantage {
        /// The turn, from 0.
        turn: u32,
        /// The token, from 0 over the sampled ones of the turn.
        token: usize,
    },
    /// What was wrong inside one of several groups.
    #[error("group {group}: {source}")]
    InGroup {
        /// Number of the group inside the step.
        group: usize,
        /// What was wrong there.
        source: Box<Self>,
    },
    /// Turns of a rollout that do not rise: two rewards for one round, or rounds out of order.
    #[error("member {member}, turn {turn}: memory rewards must stand in turn order, one a turn")]
    TurnsNotRising {
        /// Number of the rollout inside its group.
        member: usize,
        /// The turn that comes too late, from 0.
        turn: u32,
    },
    /// Lists of a group that do not belong together.
    #[error(
        "{outcomes} outcomes, {advantages} outcome advantages and rounds of {memory} rollouts: a group needs one of each for every rollout"
    )]
    Lengths {
        /// Outcome rewards.
        outcomes: usize,
        /// Outcome advantages.
        advantages: usize,
        /// Rollouts with a list of rounds.
        memory: usize,
    },
    /// An answer that was scored with different numbers of tokens.
    #[error(
        "an answer has {of} tokens in one context and {against} in the one it is compared with; both must be the same text"
    )]
    AnswerLengths {
        /// After the notes.
        of: usize,
        /// In the other context.
        against: usize,
    },
    /// A gold answer without tokens, or sub-answers that do not make it up.
    #[error("turn {turn}: gold answer {answer} {problem}")]
    BadAnswer {
        /// The turn whose notes are scored, from 0.
        turn: u32,
        /// Number of the sub-answer, from 0.
        answer: usize,
        /// What is wrong.
        problem: &'static str,
    },
    /// The engine's scores do not fit what was asked.
    #[error("turn {turn}: the engine gave {got} branches of {expected} that were asked for")]
    MissingScores {
        /// The turn whose notes are scored, from 0.
        turn: u32,
        /// Branches in the reply.
        got: usize,
        /// Branches in the request.
        expected: usize,
    },
    /// An answer without tokens has no probability.
    #[error("the gold answer has no tokens, so P(gold | context) does not exist")]
    EmptyAnswer,
    /// A mask that does not fit its row.
    #[error(
        "the response mask has {found} entries for {expected} tokens; there must be one for each"
    )]
    MaskLength {
        /// Entries of the mask.
        found: usize,
        /// Tokens in the row.
        expected: usize,
    },
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

impl CreditError {
    /// Says in which group of the step it happened.
    #[must_use]
    pub fn in_group(self, group: usize) -> Self {
        Self::InGroup {
            group,
            source: Box::new(self),
        }
    }
}

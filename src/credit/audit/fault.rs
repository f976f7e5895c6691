//! What an audit can find, and where.

use std::fmt;

use crate::trajectory::TrajectoryId;

/// What is wrong with a token, a row or an update.
#[derive(Clone, Debug, PartialEq)]
pub enum Breach {
    /// A column of the row has another length than its ids.
    Lengths {
        /// Which column.
        column: &'static str,
        /// Its length.
        found: usize,
        /// The number of ids.
        ids: usize,
    },
    /// A row of a trajectory that nobody declared credit for.
    Undeclared,
    /// A masked token has a weight or a log-prob.
    MaskedNotZero {
        /// Which column.
        column: &'static str,
        /// The value.
        value: f32,
    },
    /// A trained token was not sampled by the policy: its id or log-prob is another one, or the turn
    /// has no such token.
    NotSampled {
        /// What differs.
        what: String,
    },
    /// A token's weight is not the credit of its own turn.
    WrongCredit {
        /// The weight placed.
        found: f32,
        /// The credit declared.
        declared: f32,
    },
    /// A turn's sampled tokens are trained more or less than once.
    Coverage {
        /// Times that tokens of the turn stand in rows.
        trained: usize,
        /// Tokens sampled.
        sampled: usize,
    },
    /// Rows were lost or added between writing and learning.
    Rows {
        /// Rows written.
        written: usize,
        /// Rows that are dealt as they must be, or that the learner reports.
        consumed: usize,
    },
    /// A mini-batch names a row that does not exist.
    NoSuchRow {
        /// Mini-batch.
        mini_batch: usize,
        /// The row.
        row: usize,
    },
    /// The learner trained another number of tokens than were written.
    Tokens {
        /// Mini-batch.
        mini_batch: usize,
        /// Trained tokens written.
        written: u64,
        /// Trained tokens that the learner reports.
        consumed: u64,
    },
    /// Before its first update the learner disagrees with the sampler.
    Ratio {
        /// |ratio - 1|.
        gap: f64,
        /// The largest that is accepted.
        limit: f64,
    },
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lengths { column, found, ids } => write!(
                f,
                "the column {column} has {found} entries, but the row has {ids} tokens"
            ),
            Self::Undeclared => f.write_str("the row belongs to no trajectory with credit"),
            Self::MaskedNotZero { column, value } => write!(
                f,
                "a token that was not sampled has {column} {value}, but it must be exactly 0"
            ),
            Self::NotSampled { what } => write!(f, "a trained token was not sampled: {what}"),
            Self::WrongCredit { found, declared } => write!(
                f,
                "the token's weight is {found}, but the credit declared for its turn is {declared}"
            ),
            Self::Coverage { trained, sampled } => write!(
                f,
                "{trained} of its tokens are trained, but {sampled} were sampled; each must be trained once"
            ),
            Self::Rows { written, consumed } => {
                write!(f, "{written} rows were written and {consumed} consumed")
            }
            Self::NoSuchRow { mini_batch, row } => {
                write!(
                    f,
                    "mini-batch {mini_batch} names row {row}, which was not written"
                )
            }
            Self::Tokens {
                mini_batch,
                written,
                consumed,
            } => write!(
                f,
                "mini-batch {mini_batch} has {written} trained tokens, but the learner consumed {consumed}"
            ),
            Self::Ratio { gap, limit } => write!(
                f,
                "before its first update the learner disagrees with the sampler: |ratio - 1| is {gap:.4}, but both use the same weights, so it must stay under {limit} (record.audit_ratio)"
            ),
        }
    }
}

/// A breach and its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Which trajectory; none if it is about the whole update.
    pub id: Option<TrajectoryId>,
    /// Which turn, from 0.
    pub turn: Option<u32>,
    /// Which token of its row, from 0.
    pub token: Option<usize>,
    /// What is wrong.
    pub breach: Breach,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(f, "trajectory {id}")?,
            None => f.write_str("the update")?,
        }
        if let Some(turn) = self.turn {
            write!(f, ", turn {turn}")?;
        }
        if let Some(token) = self.token {
            write!(f, ", token {token} of its row")?;
        }
        write!(f, ": {}", self.breach)
    }
}

impl Fault {
    pub(super) fn at(
        id: TrajectoryId,
        turn: Option<u32>,
        token: Option<usize>,
        breach: Breach,
    ) -> Self {
        Self {
            id: Some(id),
            turn,
            token,
            breach,
        }
    }

    pub(super) fn whole(breach: Breach) -> Self {
        Self {
            id: None,
            turn: None,
            token: None,
            breach,
        }
    }
}

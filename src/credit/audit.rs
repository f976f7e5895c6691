//! The audit: whether what the learner consumed is what was sampled and what credit declared.
//!
//! It reads trajectories from both ends, the turns as they were sampled and the rows as the learner
//! got them, and works out every token's weight a second way: from the span inside the turn, not
//! from the row's notes. A mistake on the way from advantages to tokens (advantages of another
//! turn, a retokenised turn, a token in two rows, credit on a tool's text) shows as a difference.

use std::collections::BTreeMap;
use std::fmt;

use crate::trajectory::{Advantages, Row, Tag, TrajectoryId, Turn};

/// Largest |ratio - 1| on the first mini-batch: sampled and learner's log-probs come from the same
/// weights. A server is held to it before it may sample at all.
pub use crate::engine::remote::RATIO_GAP;

/// Weights are sums of two f32; laid out twice, they may differ by rounding.
const WEIGHT_GAP: f32 = 1e-5;

/// What was sampled, and the credit that was declared for it.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'a> {
    /// The turns as the engine sampled them.
    pub turns: &'a [Turn],
    /// Advantages of the trajectory.
    pub advantages: &'a Advantages,
}

/// A row as the learner got it.
#[derive(Clone, Copy, Debug)]
pub struct Consumed<'a> {
    /// Whose.
    pub id: TrajectoryId,
    /// The tokens.
    pub row: &'a Row,
    /// What the learner multiplied.
    pub weight: &'a [f32],
    /// Log-probs of the learner, 0 where not trained.
    pub learner: &'a [f32],
}

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
        /// Rows that the learner reports.
        consumed: usize,
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
            Self::Tokens {
                mini_batch,
                written,
                consumed,
            } => write!(
                f,
                "mini-batch {mini_batch} has {written} trained tokens, but the learner consumed {consumed}"
            ),
            Self::Ratio { gap } => write!(
                f,
                "before its first update the learner disagrees with the sampler: |ratio - 1| is {gap:.4}, but both use the same weights, so it must stay under {RATIO_GAP}"
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
    fn at(id: TrajectoryId, turn: Option<u32>, token: Option<usize>, breach: Breach) -> Self {
        Self {
            id: Some(id),
            turn,
            token,
            breach,
        }
    }

    fn whole(breach: Breach) -> Self {
        Self {
            id: None,
            turn: None,
            token: None,
            breach,
        }
    }
}

/// What credit declares for a sampled token: `A_T + A_M,t` inside the notes of its turn, else `A_T`.
fn declared_weight(advantages: &Advantages, turn: &Turn, number: u32, at: usize) -> f32 {
    let in_notes = turn
        .spans
        .iter()
        .any(|span| span.tag == Tag::Mem && (span.start as usize..span.end as usize).contains(&at));
    let memory = advantages.memory.iter().find(|(of, _)| *of == number);
    advantages.outcome
        + memory
            .filter(|_| in_notes)
            .map_or(0.0, |(_, advantage)| *advantage)
}

/// Checks rows against what was sampled and declared: lengths, masked tokens exactly zero, every
/// trained token sampled, every sampled token trained once and with its own turn's credit. Returns
/// at most one fault a row, the first, and one a turn whose tokens are not covered.
#[must_use]
pub fn rows(
    declared: &BTreeMap<TrajectoryId, Declared<'_>>,
    consumed: &[Consumed<'_>],
) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut trained: BTreeMap<(TrajectoryId, u32), usize> = BTreeMap::new();
    for row in consumed {
        match declared.get(&row.id) {
            Some(of) => {
                if let Err(fault) = check_row(*of, row, &mut trained) {
                    faults.push(fault);
                }
            }
            None => faults.push(Fault::at(row.id, None, None, Breach::Undeclared)),
        }
    }
    // A row with a fault stopped being counted there: its coverage would only repeat it.
    let known: Vec<TrajectoryId> = faults.iter().filter_map(|fault| fault.id).collect();
    for (&id, of) in declared.iter().filter(|(id, _)| !known.contains(id)) {
        for (number, turn) in (0..).zip(of.turns) {
            let sampled = turn.ids.len().saturating_sub(turn.forced as usize);
            let trained = trained.get(&(id, number)).copied().unwrap_or(0);
            if trained != sampled {
                let breach = Breach::Coverage { trained, sampled };
                faults.push(Fault::at(id, Some(number), None, breach));
            }
        }
    }
    faults
}

fn check_row(
    of: Declared<'_>,
    consumed: &Consumed<'_>,
    trained: &mut BTreeMap<(TrajectoryId, u32), usize>,
) -> Result<(), Fault> {
    let Consumed {
        id,
        row,
        weight,
        learner,
    } = *consumed;
    let ids = row.ids.len();
    for (column, found) in [
        ("mask", row.mask.len()),
        ("turn", row.turn.len()),
        ("sampled log-prob", row.logprobs.len()),
        ("weight", weight.len()),
        ("learner's log-prob", learner.len()),
    ] {
        if found != ids {
            let breach = Breach::Lengths { column, found, ids };
            return Err(Fault::at(id, None, None, breach));
        }
    }
    // Place of the next sampled token inside its turn.
    let mut next: BTreeMap<u32, usize> = BTreeMap::new();
    let columns = row.ids.iter().zip(&row.mask).zip(&row.turn);
    let numbers = row.logprobs.iter().zip(weight).zip(learner);
    for (token, (((&sampled_id, &mask), &number), ((&sampled, &weight), &learner))) in
        columns.zip(numbers).enumerate()
    {
        let fault = |breach| Err(Fault::at(id, Some(number), Some(token), breach));
        if !mask {
            for (column, value) in [
                ("weight", weight),
                ("sampled log-prob", sampled),
                ("learner's log-prob", learner),
            ] {
                if value != 0.0 {
                    return fault(Breach::MaskedNotZero { column, value });
                }
            }
            continue;
        }
        let turn = of.turns.get(number as usize);
        let at = next
            .entry(number)
            .or_insert_with(|| turn.map_or(0, |turn| turn.forced as usize));
        let wrote =
            turn.and_then(|turn| Some((turn, *turn.ids.get(*at)?, *turn.logprobs.get(*at)?)));
        let Some((turn, wrote_id, wrote_logprob)) = wrote else {
            let what = format!("turn {number} has no token {at}");
            return fault(Breach::NotSampled { what });
        };
        if wrote_id != sampled_id {
            let what = format!("id {sampled_id} stands where {wrote_id} was sampled");
            return fault(Breach::NotSampled { what });
        }
        if wrote_logprob != sampled || !sampled.is_finite() {
            let what = format!("its log-prob is {sampled}, that of sampling {wrote_logprob}");
            return fault(Breach::NotSampled { what });
        }
        let declared = declared_weight(of.advantages, turn, number, *at);
        let gap = (weight - declared).abs();
        if gap.is_nan() || gap > WEIGHT_GAP * declared.abs().max(1.0) {
            let found = weight;
            return fault(Breach::WrongCredit { found, declared });
        }
        *at += 1;
        *trained.entry((id, number)).or_default() += 1;
    }
    Ok(())
}

/// Checks that the learner consumed what was written. `mini_batches` are the row numbers that it was
/// given; `report_rows` is the number of rows in its report, `report_tokens` the trained tokens of
/// each mini-batch in it.
#[must_use]
pub fn consumption(
    written: &[u64],
    mini_batches: &[Vec<usize>],
    report_rows: usize,
    report_tokens: &[u64],
) -> Vec<Fault> {
    let mut faults = Vec::new();
    let count = |consumed| Breach::Rows {
        written: written.len(),
        consumed,
    };
    if report_rows != written.len() {
        faults.push(Fault::whole(count(report_rows)));
    }
    // Every row equally often: once an epoch.
    let mut uses = vec![0usize; written.len()];
    for &row in mini_batches.iter().flatten() {
        if let Some(uses) = uses.get_mut(row) {
            *uses += 1;
        }
    }
    let most = uses.iter().copied().max().unwrap_or(0);
    let whole = uses
        .iter()
        .filter(|&&uses| uses == most && most > 0)
        .count();
    if whole != written.len() {
        faults.push(Fault::whole(count(whole)));
    }
    for mini_batch in 0..mini_batches.len().max(report_tokens.len()) {
        let rows = mini_batches.get(mini_batch).map_or(&[][..], Vec::as_slice);
        let written = rows.iter().filter_map(|&row| written.get(row)).sum();
        let consumed = report_tokens.get(mini_batch).copied().unwrap_or(0);
        if written != consumed {
            faults.push(Fault::whole(Breach::Tokens {
                mini_batch,
                written,
                consumed,
            }));
        }
    }
    faults
}

/// Checks that the ratio is 1 on the rows of the first mini-batch. Names the token that is furthest
/// off. `reported` is the learner's own figure: it counts where log-probs were overwritten by a later
/// epoch (`rows` is empty then).
#[must_use]
pub fn first_ratio(rows: &[Consumed<'_>], reported: Option<f64>) -> Option<Fault> {
    let mut worst: Option<Fault> = None;
    let mut largest = RATIO_GAP;
    for row in rows {
        let numbers = row.row.logprobs.iter().zip(row.learner);
        let places = row.row.mask.iter().zip(&row.row.turn);
        for (token, ((sampled, learner), (_, &turn))) in numbers
            .zip(places)
            .enumerate()
            .filter(|(_, (_, (mask, _)))| **mask)
        {
            let gap = (f64::from(learner - sampled).exp() - 1.0).abs();
            if gap.is_nan() || gap > largest {
                largest = if gap.is_nan() { f64::INFINITY } else { gap };
                worst = Some(Fault::at(
                    row.id,
                    Some(turn),
                    Some(token),
                    Breach::Ratio { gap },
                ));
            }
        }
    }
    worst.or_else(|| {
        reported
            .filter(|gap| gap.is_nan() || *gap > RATIO_GAP)
            .map(|gap| Fault::whole(Breach::Ratio { gap }))
    })
}

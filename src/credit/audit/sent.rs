//! Before an update: rows, masks, weights, coverage and mini-batches.

use std::collections::BTreeMap;

use super::{Breach, Fault};
use crate::trajectory::{Advantages, MemoryTokens, Tag, TokenId, TrajectoryId, Turn};

/// Weights are sums of a few f32; laid out twice, they may differ by rounding.
const WEIGHT_GAP: f32 = 1e-5;

/// What was sampled, and the credit that was declared for it.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'a> {
    /// The turns as the engine sampled them.
    pub turns: &'a [Turn],
    /// Advantages of the trajectory.
    pub advantages: &'a Advantages,
}

/// A row as it is sent to the learner. All lists have one entry a token.
#[derive(Clone, Copy, Debug)]
pub struct Sent<'a> {
    /// Whose.
    pub id: TrajectoryId,
    /// The turn that each token is said to belong to.
    pub turn: &'a [u32],
    /// The ids.
    pub ids: &'a [TokenId],
    /// True where trained.
    pub mask: &'a [bool],
    /// Sampled log-probs.
    pub sampled: &'a [f32],
    /// What the learner multiplies.
    pub weight: &'a [f32],
}

/// What credit declares for sampled token `token` of a turn: `A_T + A_KL`, and `+ A_M,t` inside the
/// notes of its turn (anywhere in it, if credit is over turns or the turn closed no notes); none if
/// the advantages lack it.
fn declared_weight(advantages: &Advantages, turn: &Turn, number: u32, token: usize) -> Option<f32> {
    let at = turn.forced as usize + token;
    let mut notes = turn.spans.iter().filter(|span| span.tag == Tag::Mem);
    let falls_here = match (advantages.over, notes.clone().next()) {
        (MemoryTokens::Turn, _) | (MemoryTokens::Notes, None) => true,
        (MemoryTokens::Notes, Some(_)) => {
            notes.any(|span| (span.start as usize..span.end as usize).contains(&at))
        }
    };
    let memory = advantages.memory.iter().find(|(of, _)| *of == number);
    let memory = memory.filter(|_| falls_here).map_or(0.0, |(_, part)| *part);
    Some(advantages.outcome.at(number, token)? + advantages.kl.at(number, token)? + memory)
}

/// Checks rows against what was sampled and declared: lengths, masked tokens exactly zero, every
/// trained token sampled, every sampled token trained once and with its own turn's credit. Returns
/// at most one fault a row, the first, and one a turn whose tokens are not covered.
#[must_use]
pub fn rows(declared: &BTreeMap<TrajectoryId, Declared<'_>>, sent: &[Sent<'_>]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut trained: BTreeMap<(TrajectoryId, u32), usize> = BTreeMap::new();
    for row in sent {
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
    sent: &Sent<'_>,
    trained: &mut BTreeMap<(TrajectoryId, u32), usize>,
) -> Result<(), Fault> {
    let Sent {
        id,
        turn,
        ids,
        mask,
        sampled,
        weight,
    } = *sent;
    for (column, found) in [
        ("mask", mask.len()),
        ("turn", turn.len()),
        ("sampled log-prob", sampled.len()),
        ("weight", weight.len()),
    ] {
        if found != ids.len() {
            let ids = ids.len();
            let breach = Breach::Lengths { column, found, ids };
            return Err(Fault::at(id, None, None, breach));
        }
    }
    // Sampled tokens met so far, by turn.
    let mut met: BTreeMap<u32, usize> = BTreeMap::new();
    let columns = ids.iter().zip(mask).zip(turn);
    let numbers = sampled.iter().zip(weight);
    for (token, (((&sent_id, &mask), &number), (&sampled, &weight))) in
        columns.zip(numbers).enumerate()
    {
        let fault = |breach| Err(Fault::at(id, Some(number), Some(token), breach));
        if !mask {
            for (column, value) in [("weight", weight), ("sampled log-prob", sampled)] {
                if value != 0.0 {
                    return fault(Breach::MaskedNotZero { column, value });
                }
            }
            continue;
        }
        let met = met.entry(number).or_default();
        let turn = of.turns.get(number as usize);
        let wrote = turn.and_then(|turn| {
            let at = turn.forced as usize + *met;
            Some((turn, *turn.ids.get(at)?, *turn.logprobs.get(at)?))
        });
        let Some((turn, wrote_id, wrote_logprob)) = wrote else {
            let what = format!("turn {number} has no sampled token {met}");
            return fault(Breach::NotSampled { what });
        };
        if wrote_id != sent_id {
            let what = format!("id {sent_id} stands where {wrote_id} was sampled");
            return fault(Breach::NotSampled { what });
        }
        if wrote_logprob != sampled || !sampled.is_finite() {
            let what = format!("its log-prob is {sampled}, that of sampling {wrote_logprob}");
            return fault(Breach::NotSampled { what });
        }
        let declared = declared_weight(of.advantages, turn, number, *met).unwrap_or(f32::NAN);
        let gap = (weight - declared).abs();
        if gap.is_nan() || gap > WEIGHT_GAP * declared.abs().max(1.0) {
            let found = weight;
            return fault(Breach::WrongCredit { found, declared });
        }
        *met += 1;
        *trained.entry((id, number)).or_default() += 1;
    }
    Ok(())
}

/// Checks that every one of `rows` rows stands in the mini-batches once an epoch, and nothing else.
#[must_use]
pub fn dealt(rows: usize, mini_batches: &[Vec<usize>], epochs: u32) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut uses = vec![0u32; rows];
    for (mini_batch, of) in mini_batches.iter().enumerate() {
        for &row in of {
            match uses.get_mut(row) {
                Some(uses) => *uses += 1,
                None => faults.push(Fault::whole(Breach::NoSuchRow { mini_batch, row })),
            }
        }
    }
    let consumed = uses.iter().filter(|&&uses| uses == epochs).count();
    if consumed != rows {
        let written = rows;
        faults.push(Fault::whole(Breach::Rows { written, consumed }));
    }
    faults
}

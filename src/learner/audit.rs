//! Two looks at every update: at what is to be sent, and at what was learned from. See
//! [`crate::credit::audit`] for what is checked, and `record.audit` for what a fault does.

use std::collections::BTreeMap;

use bevy_ecs::prelude::*;

use super::update::Updated;
use crate::credit::audit::{self, Declared, Fault, Learned, Sent};
use crate::engine::LearnBatch;
use crate::experiment::{Audit, Experiment, Importance, Precision};
use crate::rollout::{Roster, RunSettings};
use crate::trajectory::{Advantages, TrajectoryId, TroubleFound, Turns};

/// Faults that are told one by one; the rest is a number.
const MOST_TOLD: usize = 3;

/// Audits the update that is about to be sent. If a fault stops the run, nothing is sent.
pub fn audit_update(
    mut updated: ResMut<Updated>,
    settings: Res<RunSettings>,
    roster: Res<Roster>,
    trajectories: Query<(&Turns, &Advantages)>,
    mut trouble: MessageWriter<TroubleFound>,
) -> Result {
    let mode = settings.0.record.audit;
    let Some(batch) = updated.batch.as_ref().filter(|_| mode != Audit::Off) else {
        return Ok(());
    };
    let declared: BTreeMap<TrajectoryId, Declared<'_>> = roster
        .entities
        .iter()
        .filter_map(|(&id, &entity)| {
            let (turns, advantages) = trajectories.get(entity).ok()?;
            let turns = &turns.0;
            Some((id, Declared { turns, advantages }))
        })
        .collect();
    let faults = before(batch, &updated, &declared, &settings.0);
    let step = updated.step;
    let verdict = judge(mode, step, &faults, "the update was not sent", &mut trouble);
    if verdict.is_err() {
        updated.batch = None;
    }
    verdict
}

/// Audits what the report says, once it is in.
pub fn audit_report(
    updated: Res<Updated>,
    settings: Res<RunSettings>,
    mut trouble: MessageWriter<TroubleFound>,
) -> Result {
    let mode = settings.0.record.audit;
    if mode == Audit::Off || updated.report.is_none() {
        return Ok(());
    }
    let faults = after(&updated, &settings.0);
    judge(
        mode,
        updated.step,
        &faults,
        "nothing of this update is saved",
        &mut trouble,
    )
}

/// Everything that can be known before an update.
fn before(
    batch: &LearnBatch,
    updated: &Updated,
    declared: &BTreeMap<TrajectoryId, Declared<'_>>,
    experiment: &Experiment,
) -> Vec<Fault> {
    let sent: Vec<Sent<'_>> = batch
        .rows
        .iter()
        .zip(&updated.rows)
        .map(|(row, packed)| Sent {
            id: packed.id,
            turn: &packed.row.turn,
            ids: &row.ids,
            mask: &row.mask,
            sampled: &row.old_logprobs,
            weight: &row.advantages,
        })
        .collect();
    let epochs = experiment.learner.epochs;
    let mut faults = audit::dealt(batch.rows.len(), &batch.mini_batches, epochs);
    faults.extend(audit::rows(declared, &sent));
    faults
}

/// What only the report tells.
fn after(updated: &Updated, experiment: &Experiment) -> Vec<Fault> {
    let Some(report) = &updated.report else {
        return Vec::new();
    };
    let trained = |mask: &[bool]| mask.iter().filter(|on| **on).count() as u64;
    let rows = updated.rows.iter();
    let written: Vec<u64> = rows.map(|packed| trained(&packed.row.mask)).collect();
    let tokens: Vec<u64> = report.mini_batches.iter().map(|mini| mini.tokens).collect();
    let batches = &updated.mini_batches;
    let mut faults = audit::consumption(&written, batches, report.logprobs.len(), &tokens);
    let learned: Vec<Learned<'_>> = updated
        .rows
        .iter()
        .zip(&report.logprobs)
        .map(|(packed, learner)| Learned {
            id: packed.id,
            row: &packed.row,
            learner,
        })
        .collect();
    faults.extend(audit::masked(&learned));
    // A later epoch overwrites the log-probs of the first; and importance weights are there because
    // the one that sampled differs from the learner, whose own log-probs are then the old ones.
    // Passes in bf16 differ from the f32 of generation too.
    let learner = &experiment.learner;
    let exact = learner.importance == Importance::Off && learner.precision == Precision::F32;
    let first: Vec<Learned<'_>> = batches
        .first()
        .filter(|_| experiment.learner.epochs == 1 && exact)
        .into_iter()
        .flatten()
        .filter_map(|&row| learned.get(row).copied())
        .collect();
    let first_mini = report.mini_batches.first();
    if learner.precision != Precision::F32 || first_mini.is_some_and(|mini| mini.skipped) {
        return faults;
    }
    let reported = first_mini.map(|mini| mini.ratio_gap);
    let limit = f64::from(experiment.record.audit_ratio);
    faults.extend(audit::first_ratio(&first, reported, limit));
    faults
}

/// Stops the run at a fault, or writes it down as trouble.
fn judge(
    mode: Audit,
    step: u32,
    faults: &[Fault],
    consequence: &str,
    trouble: &mut MessageWriter<TroubleFound>,
) -> Result {
    let Some(text) = told(step + 1, faults) else {
        return Ok(());
    };
    if mode == Audit::Stop {
        return Err(BevyError::from(format!(
            "{text}; {consequence}. Set record.audit to warn to go on all the same"
        )));
    }
    trouble.write(TroubleFound {
        id: faults.first().and_then(|fault| fault.id),
        what: text,
    });
    Ok(())
}

/// The faults of a step in one text; none if there are none.
fn told(step: u32, faults: &[Fault]) -> Option<String> {
    let more = match faults.len().saturating_sub(MOST_TOLD) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let first: Vec<String> = faults
        .iter()
        .take(MOST_TOLD)
        .map(ToString::to_string)
        .collect();
    (!first.is_empty()).then(|| {
        format!(
            "step {step}: the credit audit failed: {}{more}",
            first.join("; ")
        )
    })
}

//! One RL update: a policy loss, aggregated over each mini-batch, and AdamW.

use crate::engine::{EngineError, LearnBatch, LearnKnobs, LearnReport, MiniBatchReport};

use super::batch::{check_ids, check_length, check_temperature};
use super::decoder::Decoder;
use super::gradients::{Gradients, forget};
use super::micro::prepare;
use super::mini_batch::{Setting, backward, form};
use super::optimizer::{AdamKnobs, AdamW};
use super::precision::cast;

/// See [`crate::engine::Engine::learn`]. `reference` is needed if the KL has a weight.
pub(super) fn learn(
    decoder: &Decoder,
    optimizer: &mut AdamW,
    gradients: &mut Gradients,
    reference: Option<&Decoder>,
    batch: &LearnBatch,
) -> Result<LearnReport, EngineError> {
    check(decoder, reference, batch)?;
    let knobs = &batch.knobs;
    let (prepared, mismatch) = prepare(decoder, batch);
    let reference = reference.filter(|_| knobs.kl_weight != 0.0);
    let cast_reference = reference.and_then(|of| tch::no_grad(|| cast(of, knobs.precision)));
    let setting = Setting {
        batch,
        reference: cast_reference.as_ref().or(reference),
        prepared: &prepared,
        form: form(knobs),
    };
    let parameters = decoder.parameters();
    let mut report = LearnReport {
        mismatch,
        ..blank(batch)
    };
    for (number, members) in batch.mini_batches.iter().enumerate() {
        forget(&parameters);
        let mut mini = backward(decoder, &setting, number, members, &mut report);
        mini.grad_norm = gradients.pass(&parameters, f64::from(knobs.grad_clip));
        if let Some(what) = not_finite(number, &mini) {
            mini.skipped = true;
            for number in mini.numbers_mut().into_iter().filter(|x| !x.is_finite()) {
                *number = 0.0;
            }
            report.skipped.push(what);
        } else if mini.tokens > 0 {
            optimizer.step(&parameters.iter().collect::<Vec<_>>(), adam(knobs));
        }
        report.mini_batches.push(mini);
    }
    forget(&parameters);
    Ok(report)
}

/// A report whose rows are yet to be filled in.
fn blank(batch: &LearnBatch) -> LearnReport {
    let zeros = || batch.rows.iter().map(|r| vec![0.0; r.ids.len()]).collect();
    LearnReport {
        logprobs: zeros(),
        entropies: zeros(),
        ..LearnReport::default()
    }
}

/// What of a mini-batch is not finite, so that no step may be made with it.
fn not_finite(number: usize, mini: &MiniBatchReport) -> Option<String> {
    let finite = [mini.pg_loss, mini.kl_loss, mini.grad_norm]
        .iter()
        .all(|x| x.is_finite());
    (!finite).then(|| {
        format!(
            "mini-batch {number} was skipped, weights and optimizer are as before it: policy loss {}, \
             KL {}, gradient norm {}, largest ratio gap {}. Lower the learning rate, or look for \
             log-probs and advantages that are not finite",
            mini.pg_loss, mini.kl_loss, mini.grad_norm, mini.ratio_gap
        )
    })
}

fn adam(knobs: &LearnKnobs) -> AdamKnobs {
    AdamKnobs {
        lr: f64::from(knobs.lr),
        betas: (f64::from(knobs.betas.0), f64::from(knobs.betas.1)),
        eps: f64::from(knobs.eps),
        weight_decay: f64::from(knobs.weight_decay),
    }
}

fn check(
    decoder: &Decoder,
    reference: Option<&Decoder>,
    batch: &LearnBatch,
) -> Result<(), EngineError> {
    for (number, row) in batch.rows.iter().enumerate() {
        let what = format!("learning row {number}");
        let ids = row.ids.len();
        check_ids(&decoder.shape, &what, &row.ids)?;
        check_length(&what, "mask", row.mask.len(), ids)?;
        check_length(&what, "old_logprobs", row.old_logprobs.len(), ids)?;
        check_length(&what, "advantages", row.advantages.len(), ids)?;
        if row.mask.first() == Some(&true) {
            return Err(EngineError::BadRequest(format!(
                "{what} trains its first id, which nothing predicts"
            )));
        }
    }
    let members = batch.mini_batches.iter().flatten();
    if let Some(row) = members.copied().find(|&row| row >= batch.rows.len()) {
        return Err(EngineError::BadRequest(format!(
            "a mini-batch names row {row}, but there are {} rows",
            batch.rows.len()
        )));
    }
    check_temperature("learning", batch.knobs.temperature)?;
    if batch.knobs.kl_weight != 0.0 && reference.is_none() {
        return Err(EngineError::BadRequest(format!(
            "kl_weight is {}, but no reference policy was frozen",
            batch.knobs.kl_weight
        )));
    }
    Ok(())
}

#[cfg(test)]
#[path = "learn_tests.rs"]
mod tests;

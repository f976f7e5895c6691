//! The loss of a mini-batch and its gradients, micro-batch by micro-batch.

use tch::{Kind, Tensor};

use crate::engine::{LearnBatch, LearnKnobs, LearnReport, MiniBatchReport};

use super::decoder::Decoder;
use super::loss::{Aggregation, Clip, Denominators, PolicyForm, kl};
use super::micro::{
    Micro, Prepared, fill_in, logprobs_now, micro_batches, only_trained, trained, with_trained,
};
use super::precision::cast;
use super::score::host;

/// The policy loss that the knobs ask for.
pub(super) fn form(knobs: &LearnKnobs) -> PolicyForm {
    let clip = Clip {
        low: f64::from(knobs.clip_low),
        high: f64::from(knobs.clip_high),
        dual: f64::from(knobs.clip_dual),
    };
    PolicyForm::of(knobs.policy_loss, clip)
}

/// What a mini-batch is computed with.
pub(super) struct Setting<'a> {
    pub batch: &'a LearnBatch,
    pub reference: Option<&'a Decoder>,
    pub prepared: &'a Prepared,
    pub form: PolicyForm,
}

/// Leaves the gradients of mini-batch `number`, made of the rows `members`; fills in the log-probs and
/// entropies of its rows. Denominators and chosen tokens are those of the whole mini-batch, whatever the chunks.
pub(super) fn backward(
    decoder: &Decoder,
    setting: &Setting<'_>,
    number: usize,
    members: &[usize],
    report: &mut LearnReport,
) -> MiniBatchReport {
    let (batch, form, device) = (setting.batch, setting.form, decoder.device);
    let knobs = &batch.knobs;
    let members = with_trained(batch, members);
    let counts: Vec<usize> = members.iter().map(|&row| trained(batch, row)).collect();
    let tokens: usize = counts.iter().sum();
    let denominators = Denominators::of(&counts);
    let mode = form.aggregation(knobs.aggregation);
    let chosen = choose(decoder, setting, number, &members);
    // Loss, clipped, clipped_lower, kl, entropy, KL to the reference.
    let mut sums = Tensor::zeros([6], (Kind::Double, device));
    let mut ratio_gap = Tensor::zeros([1], (Kind::Float, device)).squeeze();
    for numbers in micro_batches(decoder, batch, &members) {
        let micro = Micro::new(batch, numbers, device);
        let on_device = |list: &[f32]| Tensor::from_slice(list).to_device(device);
        let of_tokens = |rows: &[Vec<f32>]| on_device(&micro.of_tokens(batch, rows));

        // Gradients flow through the cast into the f32 weights, and add up there.
        let cast = cast(decoder, knobs.precision);
        let decoder = cast.as_ref().unwrap_or(decoder);
        let said = micro.policy(decoder, knobs);
        let (new, entropy) = (said.new.shallow_clone(), said.entropy.shallow_clone());
        let old = match &setting.prepared.old {
            Some(rows) => of_tokens(rows),
            None => on_device(&micro.trained.old),
        };
        let advantages = on_device(&micro.trained.advantages);
        let chosen = chosen.as_ref().map(|rows| of_tokens(rows));
        let mut terms = micro.terms(&form, &new, &old, &advantages, chosen.as_ref());
        if let Some(weights) = &setting.prepared.weights {
            terms.loss *= of_tokens(weights);
        }
        // A token mean is one sum divided once; otherwise every token has its own share.
        let shares = match mode {
            Aggregation::TokenMean => None,
            _ => Some(on_device(&micro.shares(batch, mode, &denominators))),
        };
        let divisor = if shares.is_some() { 1.0 } else { tokens as f64 };
        let total = |values: &Tensor| match &shares {
            Some(shares) => (values * shares).sum(Kind::Float),
            None => values.sum(Kind::Float),
        };
        let mut loss = total(&terms.loss);
        let kl = match setting.reference {
            Some(reference) => kl(knobs.kl_kind, &new, &micro.logprobs(reference, knobs)),
            None => new.zeros_like(),
        };
        if setting.reference.is_some() {
            loss += total(&kl) * f64::from(knobs.kl_weight);
        }
        if knobs.entropy_weight != 0.0 {
            loss -= total(&entropy) * f64::from(knobs.entropy_weight);
        }
        micro.backward(decoder, said, &(loss / divisor));

        // Sums are divided by the number of tokens below, shares already are whole.
        let scaled = |values: &Tensor| match &shares {
            Some(shares) => values * shares * tokens as f64,
            None => values.shallow_clone(),
        };
        let columns = [
            &scaled(&terms.loss),
            &terms.clipped,
            &terms.clipped_lower,
            &terms.kl,
            &entropy,
            &scaled(&kl),
        ];
        sums += Tensor::stack(&columns, 0)
            .detach()
            .sum_dim_intlist(-1, false, Kind::Double);
        ratio_gap = ratio_gap.maximum(&(terms.ratio - 1.0).abs().max());
        fill_in(&mut report.logprobs, batch, &micro.numbers, &host(&new));
        fill_in(
            &mut report.entropies,
            batch,
            &micro.numbers,
            &host(&entropy),
        );
    }
    let mean = |column: i64| sums.double_value(&[column]) / tokens.max(1) as f64;
    MiniBatchReport {
        tokens: tokens as u64,
        pg_loss: mean(0),
        pg_clipfrac: mean(1),
        pg_clipfrac_lower: mean(2),
        ppo_kl: mean(3),
        entropy: mean(4),
        kl_loss: mean(5),
        grad_norm: 0.0,
        ratio_gap: ratio_gap.double_value(&[]),
        skipped: false,
    }
}

/// For losses that need it, 1 at the chosen tokens of every row.
fn choose(
    decoder: &Decoder,
    setting: &Setting<'_>,
    number: usize,
    members: &[usize],
) -> Option<Vec<Vec<f32>>> {
    if !setting.form.needs_choice() {
        return None;
    }
    let batch = setting.batch;
    let now = logprobs_now(decoder, batch, members);
    let of = |list: &dyn Fn(usize) -> Vec<f32>| -> Vec<f64> {
        members
            .iter()
            .flat_map(|&row| only_trained(&batch.rows[row].mask, &list(row)))
            .map(f64::from)
            .collect()
    };
    let old = |row: usize| match &setting.prepared.old {
        Some(rows) => rows[row].clone(),
        None => batch.rows[row].old_logprobs.clone(),
    };
    let (seed, step) = batch.knobs.address;
    let chosen = setting.form.choose(
        &of(&|row| now[row].clone()),
        &of(&old),
        &of(&|row| batch.rows[row].advantages.clone()),
        (seed, step, number as u32),
    );
    let mut chosen = chosen.into_iter();
    let mut rows: Vec<Vec<f32>> = now.iter().map(|row| vec![0.0; row.len()]).collect();
    for &row in members {
        for (at, _) in batch.rows[row].mask.iter().enumerate().filter(|(_, m)| **m) {
            rows[row][at] = f32::from(u8::from(chosen.next().unwrap_or(false)));
        }
    }
    Some(rows)
}

//! One RL update: a policy loss, aggregated over each mini-batch, and AdamW.

use tch::{Kind, Tensor};

use crate::engine::{EngineError, LearnBatch, LearnKnobs, LearnReport, MiniBatchReport};

use super::batch::{check_ids, check_length, check_temperature};
use super::decoder::Decoder;
use super::loss::{Aggregation, Clip, Denominators, PolicyForm, entropy, kl};
use super::micro::{
    Micro, Prepared, fill_in, logprobs_now, micro_batches, only_trained, prepare, trained,
    with_trained,
};
use super::optimizer::{AdamKnobs, AdamW, clip_gradients, gradient_norm, zero_gradients};
use super::score::host;

/// See [`crate::engine::Engine::learn`]. `reference` is needed if the KL has a weight.
pub(super) fn learn(
    decoder: &Decoder,
    optimizer: &mut AdamW,
    reference: Option<&Decoder>,
    batch: &LearnBatch,
) -> Result<LearnReport, EngineError> {
    check(decoder, reference, batch)?;
    let knobs = &batch.knobs;
    let (prepared, mismatch) = prepare(decoder, batch);
    let setting = Setting {
        batch,
        reference: reference.filter(|_| knobs.kl_weight != 0.0),
        prepared: &prepared,
        form: form(knobs),
    };
    let parameters = decoder.parameters();
    let mut report = LearnReport {
        mini_batches: Vec::new(),
        logprobs: batch.rows.iter().map(|r| vec![0.0; r.ids.len()]).collect(),
        mismatch,
    };
    for (number, members) in batch.mini_batches.iter().enumerate() {
        zero_gradients(&parameters);
        let mut mini = backward(decoder, &setting, number, members, &mut report.logprobs);
        mini.grad_norm = gradient_norm(&parameters);
        let finite = [mini.pg_loss, mini.kl_loss, mini.grad_norm]
            .iter()
            .all(|x| x.is_finite());
        if !finite {
            return Err(EngineError::NotFinite(format!(
                "mini-batch {number}: policy loss {}, KL {}, gradient norm {}, largest ratio gap \
                 {}; the weights are as before this mini-batch. Lower the learning rate, or look \
                 for log-probs and advantages that are not finite",
                mini.pg_loss, mini.kl_loss, mini.grad_norm, mini.ratio_gap
            )));
        }
        if mini.tokens > 0 {
            clip_gradients(&parameters, mini.grad_norm, f64::from(knobs.grad_clip));
            optimizer.step(&parameters.iter().collect::<Vec<_>>(), adam(knobs));
        }
        report.mini_batches.push(mini);
    }
    Ok(report)
}

fn form(knobs: &LearnKnobs) -> PolicyForm {
    let clip = Clip {
        low: f64::from(knobs.clip_low),
        high: f64::from(knobs.clip_high),
        dual: f64::from(knobs.clip_dual),
    };
    PolicyForm::of(knobs.policy_loss, clip)
}

fn adam(knobs: &LearnKnobs) -> AdamKnobs {
    AdamKnobs {
        lr: f64::from(knobs.lr),
        betas: (f64::from(knobs.betas.0), f64::from(knobs.betas.1)),
        eps: f64::from(knobs.eps),
        weight_decay: f64::from(knobs.weight_decay),
    }
}

/// What a mini-batch is computed with.
struct Setting<'a> {
    batch: &'a LearnBatch,
    reference: Option<&'a Decoder>,
    prepared: &'a Prepared,
    form: PolicyForm,
}

/// Leaves the gradients of mini-batch `number`, made of the rows `members`; fills in the log-probs of
/// its rows. Denominators and chosen tokens are those of the whole mini-batch, whatever the chunks.
fn backward(
    decoder: &Decoder,
    setting: &Setting<'_>,
    number: usize,
    members: &[usize],
    logprobs: &mut [Vec<f32>],
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
    for numbers in micro_batches(batch, &members, device) {
        let micro = Micro::new(batch, numbers, device);
        let on_device = |list: &[f32]| Tensor::from_slice(list).to_device(device);
        let of_tokens = |rows: &[Vec<f32>]| on_device(&micro.of_tokens(batch, rows));

        let (log_softmax, new) = micro.policy(decoder, knobs.temperature);
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
            Some(reference) => {
                let reference = tch::no_grad(|| micro.policy(reference, knobs.temperature).1);
                kl(knobs.kl_kind, &new, &reference)
            }
            None => new.zeros_like(),
        };
        if setting.reference.is_some() {
            loss += total(&kl) * f64::from(knobs.kl_weight);
        }
        let entropy = if knobs.entropy_weight == 0.0 {
            tch::no_grad(|| entropy(&log_softmax))
        } else {
            let entropy = entropy(&log_softmax);
            loss -= total(&entropy) * f64::from(knobs.entropy_weight);
            entropy
        };
        (loss / divisor).backward();

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
        fill_in(logprobs, batch, &micro.numbers, &host(&new));
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
mod tests {
    use super::*;
    use crate::engine::LearnRow;
    use crate::experiment::{DecoderSettings, KlKind, PolicyLoss};
    use crate::torch::config::new_shape;
    use tch::Device;

    fn decoder() -> Decoder {
        let settings = DecoderSettings {
            hidden_size: 16,
            num_hidden_layers: 2,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            intermediate_size: 24,
            rope_theta: 1000.0,
            max_position_embeddings: 64,
            initializer_range: 0.3,
            vocab_size: 20,
        };
        Decoder::new(new_shape(&settings), 1, Device::Cpu)
    }

    /// Off-policy rows, so that some ratios are clipped, with KL to another decoder.
    fn batch() -> LearnBatch {
        let row = |n: u32| {
            let length = 6 + 3 * n;
            LearnRow {
                ids: (0..length).map(|i| (i * i * 7 + n * 5 + 1) % 20).collect(),
                mask: (0..length).map(|i| i > 1).collect(),
                old_logprobs: (0..length).map(|i| -2.5 - (i % 3) as f32).collect(),
                advantages: (0..length).map(|i| (i % 4) as f32 - 1.3).collect(),
            }
        };
        LearnBatch {
            rows: (0..4).map(row).collect(),
            mini_batches: vec![vec![0, 1, 2, 3]],
            knobs: LearnKnobs {
                clip_low: 0.2,
                clip_high: 0.28,
                clip_dual: 3.0,
                kl_weight: 0.1,
                lr: 0.0,
                betas: (0.9, 0.95),
                eps: 1e-8,
                weight_decay: 0.0,
                grad_clip: f32::INFINITY,
                temperature: 0.8,
                ..LearnKnobs::default()
            },
        }
    }

    fn gradients(decoder: &Decoder, batch: &LearnBatch) -> (MiniBatchReport, Vec<Tensor>) {
        let reference = Decoder::new(decoder.shape.clone(), 2, Device::Cpu);
        let (prepared, _) = prepare(decoder, batch);
        let setting = Setting {
            batch,
            reference: Some(&reference),
            prepared: &prepared,
            form: form(&batch.knobs),
        };
        let parameters = decoder.parameters();
        zero_gradients(&parameters);
        let mut logprobs: Vec<Vec<f32>> =
            batch.rows.iter().map(|r| vec![0.0; r.ids.len()]).collect();
        let members: Vec<usize> = (0..batch.rows.len()).collect();
        let report = backward(decoder, &setting, 0, &members, &mut logprobs);
        let gradients = parameters.iter().map(|p| p.tensor.grad().copy());
        (report, gradients.collect())
    }

    #[test]
    fn gradients_of_every_kind_of_weight_agree_with_finite_differences() {
        let (decoder, batch) = (decoder(), batch());
        let (report, expected) = gradients(&decoder, &batch);
        assert!(
            report.pg_clipfrac > 0.0 && report.kl_loss > 0.0,
            "{report:?}"
        );
        let parameters = decoder.parameters();
        for (parameter, gradient) in parameters.iter().zip(expected) {
            // The entry that matters most: f32 differences are too coarse for the small ones.
            let flat = gradient.abs().view(-1);
            let entry = flat.argmax(None, false).int64_value(&[]);
            let expected = gradient.view(-1).double_value(&[entry]);
            let at = |shift: f64| {
                let mut weight = parameter.tensor.detach().view(-1).get(entry);
                let before = weight.double_value(&[]);
                let _ = weight.fill_(before + shift);
                let report = gradients(&decoder, &batch).0;
                let _ = weight.fill_(before);
                report.pg_loss + 0.1 * report.kl_loss
            };
            let step = 1e-3;
            let slope = (at(step) - at(-step)) / (2.0 * step);
            let gap = (slope - expected).abs();
            assert!(
                gap < 0.02 * expected.abs() + 2e-3,
                "{}: {slope} against {expected}",
                parameter.name
            );
        }
    }

    #[test]
    fn micro_batches_of_1_2_and_8_rows_give_the_same_gradient_and_the_same_metrics() {
        use crate::experiment::{
            ClipCovSettings, Importance, ImportanceLevel, ImportanceSettings, KlCovSettings,
        };
        let decoder = decoder();
        let mut batch = batch();
        for n in 0..4 {
            let mut row = batch.rows[n].clone();
            row.advantages.reverse();
            // One row teaches nothing.
            row.mask.iter_mut().for_each(|m| *m = *m && n != 2);
            batch.rows.push(row);
        }
        batch.knobs.entropy_weight = 0.02;
        let spread = ClipCovSettings {
            share: 0.2,
            lower: 0.01,
            upper: 50.0,
        };
        let held = KlCovSettings {
            share: 0.2,
            weight: 0.5,
        };
        let losses = [
            PolicyLoss::Ppo,
            PolicyLoss::Gspo,
            PolicyLoss::Cispo,
            PolicyLoss::Gmpo,
            PolicyLoss::Gpg,
            PolicyLoss::ClipCov(spread),
            PolicyLoss::KlCov(held),
        ];
        let modes = [
            Aggregation::TokenMean,
            Aggregation::SeqMeanTokenSum,
            Aggregation::SeqMeanTokenMean,
            Aggregation::SeqMeanTokenSumNorm(40.0),
        ];
        let weights = Importance::Truncate(ImportanceSettings {
            level: ImportanceLevel::Geometric,
            veto: 0.0,
            ..ImportanceSettings::default()
        });
        let mut cases = Vec::new();
        cases.extend(losses.map(|loss| (loss, Aggregation::TokenMean, Importance::Off)));
        cases.extend(modes.map(|mode| (PolicyLoss::Ppo, mode, weights)));
        for (number, (loss, mode, importance)) in cases.into_iter().enumerate() {
            batch.knobs.policy_loss = loss;
            batch.knobs.aggregation = mode;
            batch.knobs.importance = importance;
            batch.knobs.kl_kind = [KlKind::K3, KlKind::K3Straight][number % 2];
            batch.knobs.micro_batch = 8;
            let (report, whole) = gradients(&decoder, &batch);
            for rows in [1, 2] {
                batch.knobs.micro_batch = rows;
                let (parts, split) = gradients(&decoder, &batch);
                for (name, a, b) in [
                    ("pg_loss", report.pg_loss, parts.pg_loss),
                    ("clipfrac", report.pg_clipfrac, parts.pg_clipfrac),
                    ("ppo_kl", report.ppo_kl, parts.ppo_kl),
                    ("entropy", report.entropy, parts.entropy),
                    ("kl_loss", report.kl_loss, parts.kl_loss),
                ] {
                    let near = (a - b).abs() <= 1e-5 * a.abs().max(1.0);
                    assert!(near, "{loss:?} {mode:?} {rows} rows, {name}: {a} and {b}");
                }
                for (a, b) in whole.iter().zip(&split) {
                    let gap = (a - b).abs().max().double_value(&[]);
                    let size = a.abs().max().double_value(&[]);
                    assert!(
                        gap <= 1e-4 * size + 1e-6,
                        "{loss:?} {mode:?} {rows} rows: gradients differ by {gap} of {size}"
                    );
                }
            }
        }
    }
}

//! One RL update: PPO-clip as a token mean over each mini-batch, AdamW.

use tch::{Kind, Tensor};

use crate::engine::{EngineError, LearnBatch, LearnKnobs, LearnReport, LearnRow, MiniBatchReport};

use super::batch::{check_ids, check_length, check_temperature, chunks, heat, padded, picked};
use super::decoder::{Decoder, attention};
use super::loss::{Clip, entropy, k3, ppo_clip};
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
    let reference = reference.filter(|_| knobs.kl_weight != 0.0);
    let parameters = decoder.parameters();
    let mut report = LearnReport {
        mini_batches: Vec::new(),
        logprobs: batch.rows.iter().map(|r| vec![0.0; r.ids.len()]).collect(),
    };
    for (number, members) in batch.mini_batches.iter().enumerate() {
        zero_gradients(&parameters);
        let mut mini = backward(decoder, reference, batch, members, &mut report.logprobs);
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

fn adam(knobs: &LearnKnobs) -> AdamKnobs {
    AdamKnobs {
        lr: f64::from(knobs.lr),
        betas: (f64::from(knobs.betas.0), f64::from(knobs.betas.1)),
        eps: f64::from(knobs.eps),
        weight_decay: f64::from(knobs.weight_decay),
    }
}

/// Places in [batch, time] of the trained ids of some rows, and what is known of those ids.
#[derive(Default)]
struct Trained {
    /// Of the hidden state that predicts.
    index: Vec<i64>,
    targets: Vec<i64>,
    old: Vec<f32>,
    advantages: Vec<f32>,
}

impl Trained {
    fn of(rows: &[&LearnRow], width: i64) -> Self {
        let mut all = Self::default();
        for (line, row) in (0i64..).zip(rows) {
            for (at, _) in row.mask.iter().enumerate().filter(|(_, m)| **m) {
                all.index.push(line * width + at as i64 - 1);
                all.targets.push(i64::from(row.ids[at]));
                all.old.push(row.old_logprobs[at]);
                all.advantages.push(row.advantages[at]);
            }
        }
        all
    }
}

/// Leaves the gradients of one mini-batch; fills in the log-probs of its rows. The denominator is
/// that of the whole mini-batch, whatever the chunks.
fn backward(
    decoder: &Decoder,
    reference: Option<&Decoder>,
    batch: &LearnBatch,
    members: &[usize],
    logprobs: &mut [Vec<f32>],
) -> MiniBatchReport {
    let (knobs, device) = (&batch.knobs, decoder.device);
    // Rows without a trained id teach nothing.
    let trained = |row: usize| batch.rows[row].mask.iter().filter(|m| **m).count();
    let members: Vec<usize> = members
        .iter()
        .copied()
        .filter(|&m| trained(m) > 0)
        .collect();
    let tokens: usize = members.iter().map(|&row| trained(row)).sum();
    let clip = Clip {
        low: f64::from(knobs.clip_low),
        high: f64::from(knobs.clip_high),
        dual: f64::from(knobs.clip_dual),
    };
    // Loss, clipped, clipped_lower, kl, entropy, k3.
    let mut sums = Tensor::zeros([6], (Kind::Double, device));
    let mut ratio_gap = Tensor::zeros([1], (Kind::Float, device)).squeeze();
    let lengths: Vec<usize> = members
        .iter()
        .map(|&m| batch.rows[m].ids.len() - 1)
        .collect();
    for chunk in chunks(&lengths, decoder.device) {
        let numbers: Vec<usize> = chunk.iter().map(|&i| members[i]).collect();
        let rows: Vec<&LearnRow> = numbers.iter().map(|&number| &batch.rows[number]).collect();
        let inputs: Vec<&[u32]> = rows.iter().map(|r| &r.ids[..r.ids.len() - 1]).collect();
        let ids = padded(&inputs, device);
        let all = Trained::of(&rows, ids.size()[1]);
        let on_device = |list: &[f32]| Tensor::from_slice(list).to_device(device);
        let targets = Tensor::from_slice(&all.targets)
            .unsqueeze(1)
            .to_device(device);
        let policy = |decoder: &Decoder| {
            let log_softmax = policy(decoder, &ids, &all.index, knobs.temperature);
            let new = log_softmax.gather(1, &targets, false).squeeze_dim(1);
            (log_softmax, new)
        };

        let (log_softmax, new) = policy(decoder);
        let terms = ppo_clip(
            &new,
            &on_device(&all.old),
            &on_device(&all.advantages),
            clip,
        );
        let mut loss = terms.loss.sum(Kind::Float);
        let k3 = match reference {
            Some(reference) => k3(&new, &tch::no_grad(|| policy(reference).1)),
            None => new.zeros_like(),
        };
        if reference.is_some() {
            loss += k3.sum(Kind::Float) * f64::from(knobs.kl_weight);
        }
        (loss / tokens as f64).backward();

        let entropy = tch::no_grad(|| entropy(&log_softmax));
        let columns = [
            &terms.loss,
            &terms.clipped,
            &terms.clipped_lower,
            &terms.kl,
            &entropy,
            &k3,
        ];
        sums += Tensor::stack(&columns, 0)
            .detach()
            .sum_dim_intlist(-1, false, Kind::Double);
        ratio_gap = ratio_gap.maximum(&(terms.ratio - 1.0).abs().max());
        fill_in(logprobs, batch, &numbers, &host(&new));
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

/// Log-softmax at the places `index` of [batch, time]: [places, vocab].
fn policy(decoder: &Decoder, ids: &Tensor, index: &[i64], temperature: f32) -> Tensor {
    let hidden = decoder.forward(ids, None, |_, q, k, v| attention(q, k, v, None));
    let logits = decoder.logits(&picked(&hidden.last, index));
    match heat(temperature) {
        1.0 => logits.log_softmax(-1, None::<Kind>),
        heat => (logits / f64::from(heat)).log_softmax(-1, None::<Kind>),
    }
}

/// Lays a chunk's log-probs out along its rows.
fn fill_in(logprobs: &mut [Vec<f32>], batch: &LearnBatch, numbers: &[usize], new: &[f32]) {
    let mut new = new.iter();
    for &number in numbers {
        let slots = logprobs[number].iter_mut().zip(&batch.rows[number].mask);
        for ((slot, _), value) in slots.filter(|(_, m)| **m).zip(new.by_ref()) {
            *slot = *value;
        }
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
mod tests {
    use super::*;
    use crate::experiment::DecoderSettings;
    use crate::torch::weights::Shape;
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
        let shape = Shape {
            settings,
            norm_eps: 1e-6,
            end_of_text: Vec::new(),
        };
        Decoder::new(shape, 1, Device::Cpu)
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
            },
        }
    }

    #[test]
    fn gradients_of_every_kind_of_weight_agree_with_finite_differences() {
        let (decoder, batch) = (decoder(), batch());
        let reference = Decoder::new(decoder.shape.clone(), 2, Device::Cpu);
        let mut logprobs: Vec<Vec<f32>> =
            batch.rows.iter().map(|r| vec![0.0; r.ids.len()]).collect();
        let mut run = || {
            backward(
                &decoder,
                Some(&reference),
                &batch,
                &[0, 1, 2, 3],
                &mut logprobs,
            )
        };
        let report = run();
        assert!(
            report.pg_clipfrac > 0.0 && report.kl_loss > 0.0,
            "{report:?}"
        );
        let parameters = decoder.parameters();
        let gradients: Vec<Tensor> = parameters.iter().map(|p| p.tensor.grad().copy()).collect();
        for (parameter, gradient) in parameters.iter().zip(gradients) {
            // The entry that matters most: f32 differences are too coarse for the small ones.
            let flat = gradient.abs().view(-1);
            let entry = flat.argmax(None, false).int64_value(&[]);
            let expected = gradient.view(-1).double_value(&[entry]);
            let mut at = |shift: f64| {
                let mut weight = parameter.tensor.detach().view(-1).get(entry);
                let before = weight.double_value(&[]);
                let _ = weight.fill_(before + shift);
                let report = run();
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
}

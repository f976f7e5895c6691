//! Gradients against finite differences, and the same gradients whatever is computed at once, twice or in
//! other numbers.

use tch::{Device, Tensor};

use super::super::attention::attention;
use super::super::batch::padded;
use super::super::config::new_shape;
use super::super::lora;
use super::super::loss::Aggregation;
use super::super::micro::{logprobs_now, micro_batches, with_trained};
use super::*;
use crate::engine::LearnRow;
use crate::experiment::{
    DecoderSettings, KlKind, LoraSettings, LoraTarget, PolicyLoss, Precision, Recompute,
};

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
    forget(&parameters);
    let members: Vec<usize> = (0..batch.rows.len()).collect();
    let report = backward(decoder, &setting, 0, &members, &mut blank(batch));
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

/// Gradients of the same parameters agree to `share` of the largest, and so do the metrics.
fn assert_same(
    what: &str,
    (report, whole): &(MiniBatchReport, Vec<Tensor>),
    (other, parts): &(MiniBatchReport, Vec<Tensor>),
    share: f64,
) {
    for (name, a, b) in [
        ("pg_loss", report.pg_loss, other.pg_loss),
        ("clipfrac", report.pg_clipfrac, other.pg_clipfrac),
        ("ppo_kl", report.ppo_kl, other.ppo_kl),
        ("entropy", report.entropy, other.entropy),
        ("kl_loss", report.kl_loss, other.kl_loss),
    ] {
        let near = (a - b).abs() <= share * a.abs().max(1.0);
        assert!(near, "{what}, {name}: {a} and {b}");
    }
    assert_eq!(whole.len(), parts.len(), "{what}");
    for (a, b) in whole.iter().zip(parts) {
        let gap = (a - b).abs().max().double_value(&[]);
        let size = a.abs().max().double_value(&[]);
        assert!(
            gap <= share * size + 1e-6,
            "{what}: gradients differ by {gap} of {size}"
        );
    }
}

/// Eight rows of one length, one of which teaches nothing, so that a token budget is a number of rows.
fn eight_rows() -> LearnBatch {
    let mut batch = batch();
    for n in 0..4 {
        let mut row = batch.rows[n].clone();
        row.advantages.reverse();
        batch.rows.push(row);
    }
    for (n, row) in batch.rows.iter_mut().enumerate() {
        let length = 13;
        row.ids = (0..length)
            .map(|i| (i * i * 7 + n as u32 * 5 + 1) % 20)
            .collect();
        row.mask = (0..length)
            .map(|i| i > 1 && i % (2 + n as u32) != 0 && n != 6)
            .collect();
        row.old_logprobs = (0..length).map(|i| -2.5 - (i % 3) as f32).collect();
        row.advantages.resize(length as usize, -0.4);
    }
    batch.knobs.entropy_weight = 0.02;
    batch
}

#[test]
fn micro_batches_of_1_2_and_8_rows_give_the_same_gradient_and_the_same_metrics() {
    use crate::experiment::{
        ClipCovSettings, Importance, ImportanceLevel, ImportanceSettings, KlCovSettings,
    };
    let decoder = decoder();
    let mut batch = eight_rows();
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
        let mut of_rows = |rows: u32, recompute| {
            batch.knobs.micro_tokens = 12 * rows;
            batch.knobs.recompute = recompute;
            let members: Vec<usize> = with_trained(&batch, &(0..8).collect::<Vec<_>>());
            let count = micro_batches(&decoder, &batch, &members).len();
            assert_eq!(count, 7usize.div_ceil(rows as usize));
            gradients(&decoder, &batch)
        };
        let whole = of_rows(8, Recompute::Never);
        for rows in [1, 2] {
            let what = format!("{loss:?} {mode:?} {rows} rows");
            assert_same(&what, &whole, &of_rows(rows, Recompute::Never), 1e-5);
        }
        // Layers that are computed twice change nothing.
        assert_same("recomputed", &whole, &of_rows(8, Recompute::Always), 1e-5);
        assert_same(
            "recomputed by 2",
            &whole,
            &of_rows(2, Recompute::Always),
            1e-5,
        );
    }
}

#[test]
fn ids_after_the_last_trained_one_are_not_computed_and_change_nothing() {
    let (decoder, mut batch) = (decoder(), batch());
    let whole = gradients(&decoder, &batch);
    let members: Vec<usize> = (0..batch.rows.len()).collect();
    let computed: usize = batch.rows.iter().map(|row| row.ids.len() - 1).sum();
    for row in &mut batch.rows {
        row.ids.extend([3; 9]);
        row.mask.extend([false; 9]);
        row.old_logprobs.extend([0.0; 9]);
        row.advantages.extend([0.0; 9]);
    }
    batch.knobs.micro_tokens = computed as u32;
    let one = micro_batches(&decoder, &batch, &members);
    assert_eq!(one.len(), 1, "the tails count as tokens");
    assert_same("tails", &whole, &gradients(&decoder, &batch), 1e-6);
}

/// What the policy says after every id but the last of every row [rows, ids, vocabulary], in one padded
/// pass.
fn padded_log_softmax(decoder: &Decoder, batch: &LearnBatch) -> Tensor {
    let inputs: Vec<&[u32]> = batch
        .rows
        .iter()
        .map(|row| &row.ids[..row.ids.len() - 1])
        .collect();
    let _guard = tch::no_grad_guard();
    let ids = padded(&inputs, Device::Cpu);
    let every = Tensor::arange(ids.numel() as i64, (tch::Kind::Int64, Device::Cpu));
    let hidden = decoder.forward(&ids, None, &every, |_, q, k, v| attention(q, k, v, None));
    let logits = decoder.logits(&hidden.last);
    let logits = logits.view([ids.size()[0], ids.size()[1], -1]);
    (logits / f64::from(batch.knobs.temperature)).log_softmax(-1, tch::Kind::Float)
}

#[test]
fn packed_rows_say_what_padded_rows_say_and_what_each_says_alone() {
    let (decoder, batch) = (decoder(), batch());
    let members: Vec<usize> = (0..batch.rows.len()).collect();
    let packed = logprobs_now(&decoder, &batch, &members);
    let mut alone = batch.clone();
    alone.knobs.micro_tokens = 1;
    let count = micro_batches(&decoder, &alone, &members).len();
    assert_eq!(count, members.len());
    let alone = logprobs_now(&decoder, &alone, &members);
    let padded = padded_log_softmax(&decoder, &batch);
    for (number, row) in batch.rows.iter().enumerate() {
        for at in (0..row.ids.len()).filter(|&at| row.mask[at]) {
            let place = [number as i64, at as i64 - 1, i64::from(row.ids[at])];
            let expected = padded.double_value(&place) as f32;
            assert!(
                (packed[number][at] - expected).abs() < 1e-5,
                "row {number} id {at}"
            );
            assert!(
                (alone[number][at] - expected).abs() < 1e-5,
                "row {number} id {at}"
            );
        }
    }
}

#[test]
fn the_entropy_of_every_token_is_told_under_the_weights_of_its_mini_batch() {
    let (decoder, batch) = (decoder(), batch());
    let log_softmax = padded_log_softmax(&decoder, &batch).to_kind(tch::Kind::Double);
    let expected = -(log_softmax.exp() * log_softmax).sum_dim_intlist(-1, false, tch::Kind::Double);
    for (precise, micro_tokens) in [(true, 0), (false, 1)] {
        let mut batch = batch.clone();
        batch.knobs.micro_tokens = micro_tokens;
        // With and without a bonus, the entropy is worked out in two ways.
        batch.knobs.entropy_weight = if precise { 0.01 } else { 0.0 };
        let mut optimizer = AdamW::default();
        let report = update(&decoder, &mut optimizer, &batch);
        let mut sum = 0.0;
        for (number, row) in batch.rows.iter().enumerate() {
            for at in 0..row.ids.len() {
                let told = f64::from(report.entropies[number][at]);
                if !row.mask[at] {
                    assert_eq!(told, 0.0, "row {number} id {at}");
                    continue;
                }
                let expected = expected.double_value(&[number as i64, at as i64 - 1]);
                assert!((told - expected).abs() < 1e-5, "row {number} id {at}");
                sum += told;
            }
        }
        let mini = report.mini_batches[0];
        assert!((sum / mini.tokens as f64 - mini.entropy).abs() < 1e-6);
    }
}

fn update(decoder: &Decoder, optimizer: &mut AdamW, batch: &LearnBatch) -> LearnReport {
    let reference = Decoder::new(decoder.shape.clone(), 2, Device::Cpu);
    let mut gradients = Gradients::default();
    learn(decoder, optimizer, &mut gradients, Some(&reference), batch).unwrap()
}

#[test]
fn a_step_in_bf16_is_near_one_in_f32_and_no_update_is_too_small_for_it() {
    let of = |precision, lr| {
        let (decoder, mut batch) = (decoder(), eight_rows());
        let before = decoder.copy();
        batch.mini_batches = vec![(0..8).collect()];
        (batch.knobs.precision, batch.knobs.lr) = (precision, lr);
        let mut optimizer = AdamW::default();
        let report = update(&decoder, &mut optimizer, &batch);
        for parameter in decoder.parameters() {
            assert_eq!(parameter.tensor.kind(), tch::Kind::Float);
        }
        for (first, second) in optimizer.moments.values() {
            assert_eq!(
                (first.kind(), second.kind()),
                (tch::Kind::Float, tch::Kind::Float)
            );
        }
        let moved: Vec<Tensor> = decoder
            .parameters()
            .iter()
            .zip(before.parameters())
            .map(|(now, then)| (now.tensor.detach() - then.tensor.detach()).view(-1))
            .collect();
        (report.mini_batches[0], Tensor::cat(&moved, 0))
    };
    let (exact, near) = (of(Precision::F32, 1e-3), of(Precision::Bf16, 1e-3));
    assert!((exact.0.pg_loss - near.0.pg_loss).abs() < 0.02 * exact.0.pg_loss.abs().max(1.0));
    assert!((exact.0.grad_norm - near.0.grad_norm).abs() < 0.05 * exact.0.grad_norm);
    assert_ne!(
        exact.0.pg_loss, near.0.pg_loss,
        "it must have been computed in bf16"
    );
    let along = (&exact.1 * &near.1)
        .sum(tch::Kind::Double)
        .double_value(&[])
        / (exact.1.norm() * near.1.norm()).double_value(&[]);
    assert!(along > 0.95, "{along}");
    // 1e-6 beside weights of about 0.3, where bf16 numbers lie 1e-3 apart.
    let tiny = of(Precision::Bf16, 1e-6).1.abs();
    let mean = tiny.mean(tch::Kind::Double).double_value(&[]);
    assert!((5e-7..2e-6).contains(&mean), "{mean}");
}

#[test]
fn gradients_of_adapters_agree_with_finite_differences_and_nothing_else_has_one() {
    let batch = batch();
    for recompute in [Recompute::Never, Recompute::Always] {
        let (mut decoder, mut batch) = (decoder(), batch.clone());
        batch.knobs.recompute = recompute;
        let settings = LoraSettings {
            rank: 3,
            alpha: 6.0,
            targets: vec![
                LoraTarget::Q,
                LoraTarget::V,
                LoraTarget::Up,
                LoraTarget::Down,
            ],
        };
        lora::begin(&mut decoder, &settings, 9);
        let parameters = decoder.parameters();
        assert_eq!(
            parameters.len(),
            2 * 2 * 3,
            "two of qkv, gate_up and down in two layers"
        );
        for (number, parameter) in parameters.iter().enumerate() {
            let mut tensor = parameter.tensor.detach();
            let x = tensor.arange_like(number);
            let _ = tensor.g_add_(&x);
        }
        let (_, expected) = gradients(&decoder, &batch);
        assert!(!decoder.embedding.grad().defined());
        for (parameter, gradient) in parameters.iter().zip(expected) {
            let entry = gradient.abs().view(-1).argmax(None, false).int64_value(&[]);
            let expected = gradient.view(-1).double_value(&[entry]);
            let at = |shift: f64| {
                let mut weight = parameter.tensor.detach().view(-1).get(entry);
                let before = weight.double_value(&[]);
                let _ = weight.fill_(before + shift);
                let report = gradients(&decoder, &batch).0;
                let _ = weight.fill_(before);
                report.pg_loss + 0.1 * report.kl_loss
            };
            let slope = (at(1e-3) - at(-1e-3)) / 2e-3;
            assert!(
                (slope - expected).abs() < 0.02 * expected.abs() + 2e-3,
                "{}: {slope} against {expected}",
                parameter.name
            );
        }
    }
}

/// Small numbers that differ, to move tensors away from 0.
trait ArangeLike {
    fn arange_like(&self, seed: usize) -> Tensor;
}

impl ArangeLike for Tensor {
    fn arange_like(&self, seed: usize) -> Tensor {
        let count = self.numel() as i64;
        let x = Tensor::arange(count, (tch::Kind::Float, Device::Cpu)) * 1.7 + seed as f64;
        (x.sin() * 0.2).view(self.size().as_slice())
    }
}

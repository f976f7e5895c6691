//! RL updates: they raise what they should, repeat, resume, and stop at numbers that are not finite.
#![cfg(feature = "torch")]
#![allow(clippy::unwrap_used)]

#[path = "common/torch.rs"]
mod common;

use common::{engine, ids, supervised};
use palimpsest::engine::{
    Engine, LearnBatch, LearnKnobs, LearnReport, LearnRow, ScoreRequest, Weights,
};
use palimpsest::experiment::{
    Aggregation, ClipCovSettings, Importance, ImportanceSettings, KlCovSettings, PolicyLoss,
};
use palimpsest::torch::TorchEngine;
use palimpsest::trajectory::TrajectoryId;

fn score(engine: &mut TorchEngine, ids: &[u32]) -> Vec<f32> {
    score_under(engine, ids, Weights::Policy)
}

fn score_under(engine: &mut TorchEngine, ids: &[u32], under: Weights) -> Vec<f32> {
    let request = ScoreRequest {
        id: TrajectoryId::default(),
        trunk: ids.to_vec(),
        score_trunk: true,
        branches: vec![],
        temperature: 1.0,
        under,
    };
    engine.score(&[request]).unwrap()[0].trunk.clone()
}

/// Rows of different lengths, on-policy for `engine`; even ones were good, odd ones bad.
fn batch(engine: &mut TorchEngine) -> LearnBatch {
    let rows: Vec<LearnRow> = (0..7u32)
        .map(|n| {
            let ids = ids(n, 8 + 5 * n as usize);
            let mask: Vec<bool> = (0..ids.len()).map(|i| i > 3 && i % 4 != 0).collect();
            let sign = if n % 2 == 0 { 1.0 } else { -1.0 };
            LearnRow {
                old_logprobs: score(engine, &ids),
                advantages: mask.iter().map(|&m| if m { sign } else { 0.0 }).collect(),
                ids,
                mask,
            }
        })
        .collect();
    LearnBatch {
        rows,
        mini_batches: vec![vec![0, 3, 5, 6], vec![1, 2, 4]],
        knobs: LearnKnobs {
            clip_low: 0.2,
            clip_high: 0.28,
            clip_dual: f32::INFINITY,
            kl_weight: 0.0,
            lr: 1e-3,
            betas: (0.9, 0.95),
            eps: 1e-8,
            weight_decay: 0.01,
            grad_clip: 1.0,
            ..LearnKnobs::default()
        },
    }
}

/// Sum of advantage * log-prob over all trained ids.
fn objective(engine: &mut TorchEngine, batch: &LearnBatch) -> f32 {
    let mut sum = 0.0;
    for row in &batch.rows {
        let scored = score(engine, &row.ids);
        sum += scored
            .iter()
            .zip(&row.advantages)
            .map(|(lp, a)| lp * a)
            .sum::<f32>();
    }
    sum
}

#[test]
fn an_update_raises_good_tokens_and_lowers_bad_ones() {
    let mut engine = engine(5);
    let batch = batch(&mut engine);
    let before = objective(&mut engine, &batch);
    let report = engine.learn(&batch).unwrap();
    assert!(objective(&mut engine, &batch) > before + 0.5);

    let [first, second] = &report.mini_batches[..] else {
        panic!("two mini-batches were asked for");
    };
    let trained = |row: &LearnRow| row.mask.iter().filter(|m| **m).count() as u64;
    assert_eq!(
        first.tokens,
        [0, 3, 5, 6]
            .map(|n| trained(&batch.rows[n]))
            .iter()
            .sum::<u64>()
    );
    assert!(
        first.ratio_gap < 1e-4 && first.pg_clipfrac == 0.0,
        "on-policy: {first:?}"
    );
    assert!(
        first.ppo_kl.abs() < 1e-5 && first.grad_norm > 0.0,
        "{first:?}"
    );
    assert!(
        first.entropy > 0.5 && first.entropy < (common::IDS as f64).ln(),
        "{first:?}"
    );
    assert!(
        second.ratio_gap > 1e-3,
        "the first mini-batch has moved the weights: {second:?}"
    );

    for (row, logprobs) in batch.rows.iter().zip(&report.logprobs) {
        assert_eq!(row.ids.len(), logprobs.len());
        for (lp, mask) in logprobs.iter().zip(&row.mask) {
            assert_eq!(*lp != 0.0, *mask);
        }
    }
    let (row, logprobs) = (&batch.rows[5], &report.logprobs[5]);
    for i in (0..row.ids.len()).filter(|&i| row.mask[i]) {
        assert!((row.old_logprobs[i] - logprobs[i]).abs() < 1e-4);
    }
}

#[test]
fn the_loss_is_the_token_mean_of_the_whole_mini_batch() {
    let mut engine = engine(5);
    let mut batch = batch(&mut engine);
    batch.mini_batches = vec![(0..7).collect()];
    let (mut sum, mut tokens) = (0.0, 0.0);
    for row in &batch.rows {
        sum += row.advantages.iter().sum::<f32>();
        tokens += row.mask.iter().filter(|m| **m).count() as f32;
    }
    let report = engine.learn(&batch).unwrap();
    assert!((report.mini_batches[0].pg_loss + f64::from(sum / tokens)).abs() < 1e-5);
}

#[test]
fn the_same_update_gives_the_same_bits() {
    let run = || {
        let mut engine = engine(5);
        let batch = batch(&mut engine);
        [engine.learn(&batch).unwrap(), engine.learn(&batch).unwrap()]
    };
    assert_eq!(run(), run());
}

#[test]
fn a_saved_and_loaded_engine_goes_on_learning_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let mut whole = engine(5);
    whole.supervise(&supervised(0, 0.01, 0.5)).unwrap();
    whole.begin_rl();
    whole.freeze_reference();
    let mut batch = batch(&mut whole);
    batch.knobs.kl_weight = 0.05;
    whole.learn(&batch).unwrap();
    whole.save(folder.path(), true).unwrap();
    let expected: [LearnReport; 2] = [whole.learn(&batch).unwrap(), whole.learn(&batch).unwrap()];
    assert!(expected[0].mini_batches[0].kl_loss > 0.0);

    let mut resumed = engine(6);
    resumed.load(folder.path(), true).unwrap();
    let actual = [
        resumed.learn(&batch).unwrap(),
        resumed.learn(&batch).unwrap(),
    ];
    assert_eq!(actual, expected);
}

#[test]
fn the_average_is_the_policy_at_decay_0_never_moves_at_1_and_lies_between_otherwise() {
    let text = ids(77, 40);
    let after = |decay: f32| {
        let mut engine = engine(5);
        let mut batch = batch(&mut engine);
        engine.begin_average();
        engine.freeze_reference();
        batch.knobs.average_decay = Some(decay);
        engine.learn(&batch).unwrap();
        [Weights::Policy, Weights::Reference, Weights::Average]
            .map(|under| score_under(&mut engine, &text, under))
    };
    let [policy, start, average] = after(0.0);
    assert_eq!(average, policy);
    assert_ne!(policy, start);
    let [_, start, average] = after(1.0);
    assert_eq!(average, start);
    let [policy, start, average] = after(0.5);
    let gap = |a: &[f32], b: &[f32]| -> f32 { a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum() };
    let (whole, half) = (gap(&policy, &start), gap(&average, &start));
    assert!(
        half > 0.3 * whole && half < 0.7 * whole,
        "{half} of {whole}"
    );
    assert!(gap(&average, &policy) > 0.3 * whole);
}

#[test]
fn an_average_goes_on_bit_for_bit_after_a_load_and_is_asked_for_in_vain_without_one() {
    let text = ids(78, 30);
    let folder = tempfile::tempdir().unwrap();
    let mut whole = engine(5);
    let mut batch = batch(&mut whole);
    batch.knobs.average_decay = Some(0.7);
    let refused = whole.learn(&batch).unwrap_err().to_string();
    assert!(
        refused.contains("no average of the policy was begun"),
        "{refused}"
    );
    whole.begin_average();
    whole.learn(&batch).unwrap();
    whole.save(folder.path(), true).unwrap();
    let mut resumed = engine(6);
    resumed.load(folder.path(), true).unwrap();
    for engine in [&mut whole, &mut resumed] {
        engine.learn(&batch).unwrap();
    }
    let of = |engine: &mut TorchEngine| score_under(engine, &text, Weights::Average);
    assert_eq!(of(&mut whole), of(&mut resumed));
    assert_ne!(of(&mut whole), score(&mut whole, &text));
    batch.knobs.average_decay = Some(1.5);
    assert!(
        whole
            .learn(&batch)
            .unwrap_err()
            .to_string()
            .contains("from 0")
    );
}

#[test]
fn a_mini_batch_that_is_not_finite_is_skipped_and_the_next_one_is_learned_from() {
    let mut engine = engine(5);
    let good = batch(&mut engine);
    let mut second = good.clone();
    second.mini_batches.remove(0);
    let expected = common::engine(5).learn(&second).unwrap();
    for spoil in [
        (|b| b.rows[0].advantages[5] = f32::NAN) as fn(&mut LearnBatch),
        |b| b.rows[3].old_logprobs[5] = f32::NAN,
        |b| b.rows[5].advantages[6] = f32::INFINITY,
    ] {
        let mut bad = good.clone();
        spoil(&mut bad);
        let mut engine = common::engine(5);
        let report = engine.learn(&bad).unwrap();
        let [first, other] = &report.mini_batches[..] else {
            panic!("two mini-batches were asked for");
        };
        assert!(first.skipped && first.tokens > 0 && !other.skipped);
        assert!(
            report.skipped[0].contains("mini-batch 0 was skipped"),
            "{report:?}"
        );
        // Numbers, so that the record can be read again.
        assert!(first.pg_loss.is_finite() && first.grad_norm.is_finite());
        // Weights, moments and the number of steps are those of an engine that never saw it.
        assert_eq!(*other, expected.mini_batches[0]);
        let mut unspoilt = common::engine(5);
        unspoilt.learn(&second).unwrap();
        assert_eq!(engine.learn(&good).unwrap(), unspoilt.learn(&good).unwrap());
    }
}

#[test]
fn broken_updates_name_the_row_and_the_rule() {
    let mut engine = engine(5);
    let good = batch(&mut engine);
    let mut refusal = |spoil: fn(&mut LearnBatch)| {
        let mut bad = good.clone();
        spoil(&mut bad);
        engine.learn(&bad).unwrap_err().to_string()
    };
    assert!(refusal(|b| b.rows[2].mask[0] = true).contains("row 2 trains its first id"));
    assert!(refusal(|b| b.rows[2].advantages.clear()).contains("advantages has 0 entries"));
    assert!(refusal(|b| b.mini_batches[1].push(7)).contains("names row 7"));
    assert!(refusal(|b| b.knobs.kl_weight = 0.1).contains("no reference policy was frozen"));
}

#[test]
fn every_policy_loss_and_every_aggregation_raises_good_tokens_and_lowers_bad_ones() {
    let losses = [
        PolicyLoss::Ppo,
        PolicyLoss::Gspo,
        PolicyLoss::Cispo,
        PolicyLoss::Gmpo,
        PolicyLoss::Gpg,
        PolicyLoss::ClipCov(ClipCovSettings::default()),
        PolicyLoss::KlCov(KlCovSettings::default()),
    ];
    let modes = [
        Aggregation::TokenMean,
        Aggregation::SeqMeanTokenSum,
        Aggregation::SeqMeanTokenMean,
        Aggregation::SeqMeanTokenSumNorm(64.0),
    ];
    let mut cases: Vec<_> = losses.map(|loss| (loss, Aggregation::TokenMean)).into();
    cases.extend(modes.map(|mode| (PolicyLoss::Ppo, mode)));
    for (loss, mode) in cases {
        let mut engine = engine(5);
        let mut batch = batch(&mut engine);
        (batch.knobs.policy_loss, batch.knobs.aggregation) = (loss, mode);
        let before = objective(&mut engine, &batch);
        let report = engine.learn(&batch).unwrap();
        let after = objective(&mut engine, &batch);
        assert!(after > before, "{loss:?} {mode:?}: {before} became {after}");
        assert!(report.mini_batches[0].ratio_gap < 1e-3, "{report:?}");
    }
}

#[test]
fn an_engine_that_agrees_with_the_learner_has_weights_of_1_and_one_that_lies_is_vetoed() {
    let mut engine = engine(5);
    let mut batch = batch(&mut engine);
    batch.knobs.importance = Importance::Truncate(ImportanceSettings::default());
    let mut fresh = common::engine(5);
    let mismatch = fresh.learn(&batch).unwrap().mismatch.unwrap();
    assert!((mismatch.weight_mean - 1.0).abs() < 1e-4, "{mismatch:?}");
    assert!(mismatch.kl.abs() < 1e-4, "{mismatch:?}");
    assert_eq!(mismatch.veto_share, 0.0);

    // The sampler claims that it was sure of a token that the learner finds unlikely.
    let trained = batch.rows[2].mask.iter().position(|m| *m).unwrap();
    batch.rows[2].old_logprobs[trained] += 12.0;
    let report = engine.learn(&batch).unwrap();
    let mismatch = report.mismatch.unwrap();
    assert!(
        (mismatch.veto_share - 1.0 / 7.0).abs() < 1e-9,
        "{mismatch:?}"
    );
    // The ratio is taken to the learner's own log-probs, so the lie does not clip anything.
    assert!(report.mini_batches[0].ratio_gap < 1e-3, "{report:?}");
}

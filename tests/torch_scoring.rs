//! Scoring: the same numbers as transformers, and branches as if each stood alone.
#![cfg(feature = "torch")]
#![allow(clippy::unwrap_used)]

#[path = "common/torch.rs"]
mod common;

use std::path::Path;
use std::sync::Arc;

use common::{Ascii, engine, ids, settings};
use palimpsest::engine::{Branch, Engine, ScoreRequest, Scored, Weights};
use palimpsest::torch::TorchEngine;
use palimpsest::trajectory::TrajectoryId;

fn request(trunk: Vec<u32>, branches: Vec<Branch>) -> ScoreRequest {
    ScoreRequest {
        id: TrajectoryId::default(),
        trunk,
        score_trunk: true,
        branches,
        temperature: 1.0,
        under: Default::default(),
    }
}

fn assert_close(a: &[f32], b: &[f32], tolerance: f32) {
    assert_eq!(a.len(), b.len());
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert!((a - b).abs() <= tolerance, "entry {i}: {a} against {b}");
    }
}

#[test]
fn log_probs_are_those_of_transformers_qwen2_in_a_folder_it_saved() {
    let folder = Path::new("tests/fixtures/qwen2");
    let text = std::fs::read(folder.join("expected.json")).unwrap();
    let expected: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let list = |key: &str| -> Vec<f64> {
        let values = expected[key].as_array().unwrap().iter();
        values.map(|x| x.as_f64().unwrap()).collect()
    };
    let trunk: Vec<u32> = list("ids").iter().map(|&x| x as u32).collect();
    let wanted: Vec<f32> = list("logprobs").iter().map(|&x| x as f32).collect();
    let mut engine = TorchEngine::from_folder(folder, Arc::new(Ascii), &settings()).unwrap();
    // All log-probs after the last id: one branch for every id of the vocabulary.
    let next = |id| Branch {
        at: trunk.len() as u32,
        ids: vec![id],
        scored_from: 0,
    };
    let branches = (0..common::IDS).map(next).collect();
    let scored = engine.score(&[request(trunk.clone(), branches)]).unwrap();
    assert_close(&scored[0].trunk, &wanted, 2e-5);
    let last: Vec<f32> = scored[0].branches.iter().map(|b| b[0]).collect();
    let wanted: Vec<f32> = list("last_logprobs").iter().map(|&x| x as f32).collect();
    assert_close(&last, &wanted, 2e-5);

    // What we save is the same model.
    let saved = tempfile::tempdir().unwrap();
    engine.save(saved.path(), false).unwrap();
    let mut again = TorchEngine::from_folder(saved.path(), Arc::new(Ascii), &settings()).unwrap();
    let trunk_only = [request(trunk, Vec::new())];
    assert_eq!(
        again.score(&trunk_only).unwrap(),
        engine.score(&trunk_only).unwrap()
    );
}

/// Requests of different lengths, with and without branches.
fn requests() -> Vec<ScoreRequest> {
    (0..9u32)
        .map(|n| {
            let trunk = ids(n, 20 + 11 * n as usize);
            let branches = (0..n % 4).map(|b| Branch {
                at: if b == 0 {
                    trunk.len() as u32
                } else {
                    5 + 3 * b
                },
                ids: ids(100 + 10 * n + b, 4 + b as usize),
                scored_from: b % 3,
            });
            request(trunk.clone(), branches.collect())
        })
        .collect()
}

/// Each branch as a trunk of its own.
fn naive(engine: &mut TorchEngine, r: &ScoreRequest) -> Scored {
    let trunk = engine.score(&[request(r.trunk.clone(), vec![])]).unwrap();
    let branches = r.branches.iter().map(|branch| {
        let mut whole = r.trunk[..branch.at as usize].to_vec();
        whole.extend(&branch.ids);
        let scored = engine.score(&[request(whole, vec![])]).unwrap();
        scored[0].trunk[(branch.at + branch.scored_from) as usize..].to_vec()
    });
    Scored {
        id: r.id,
        branches: branches.collect(),
        trunk: trunk[0].trunk.clone(),
    }
}

#[test]
fn branches_score_as_if_each_stood_alone_after_its_part_of_the_trunk() {
    let mut engine = engine(1);
    let requests = requests();
    let together = engine.score(&requests).unwrap();
    for (request, scored) in requests.iter().zip(&together) {
        let expected = naive(&mut engine, request);
        assert_close(&scored.trunk, &expected.trunk, 1e-5);
        assert_eq!(scored.branches.len(), expected.branches.len());
        for (a, b) in scored.branches.iter().zip(&expected.branches) {
            assert_close(a, b, 1e-5);
        }
    }
}

#[test]
fn equal_requests_get_equal_bits_and_their_own_names() {
    let mut engine = engine(1);
    let mut pair = vec![requests()[7].clone(), requests()[7].clone()];
    pair[1].id.member = 5;
    let scored = engine.score(&pair).unwrap();
    assert_eq!(scored[0].branches, scored[1].branches);
    assert_eq!(scored[1].id.member, 5);
    assert_eq!(engine.score(&[]).unwrap(), vec![]);
}

#[test]
fn temperature_divides_the_logits() {
    let mut engine = engine(1);
    let mut hot = request(ids(1, 12), vec![]);
    hot.temperature = 1e6;
    let scored = engine.score(&[hot]).unwrap();
    let uniform = -(common::IDS as f32).ln();
    assert_close(&scored[0].trunk[1..], &[uniform; 11], 1e-3);
}

#[test]
fn requests_out_of_range_name_the_trajectory_the_value_and_the_rule() {
    let mut engine = engine(1);
    let mut refusal = |spoil: fn(&mut ScoreRequest)| {
        let mut r = requests()[3].clone();
        spoil(&mut r);
        engine.score(&[r]).unwrap_err().to_string()
    };
    let long = refusal(|r| r.trunk = vec![1; 257]);
    assert!(
        long.contains("0/0/0") && long.contains("257 ids") && long.contains("256"),
        "{long}"
    );
    assert!(refusal(|r| r.trunk[3] = 96).contains("id 96"));
    assert!(refusal(|r| r.branches[0].at = 0).contains("hangs at 0"));
    assert!(refusal(|r| r.branches[0].at = 900).contains("hangs at 900"));
    assert!(refusal(|r| r.branches[1].scored_from = 9).contains("scored from 9"));
    assert!(refusal(|r| r.branches[0].ids = vec![1; 230]).contains("ends at position"));
    assert!(refusal(|r| r.temperature = f32::NAN).contains("temperature is NaN"));
}

#[test]
fn a_frozen_reference_scores_as_the_policy_did_when_it_was_frozen() {
    let mut engine = engine(1);
    let asked = |under| ScoreRequest {
        under,
        ..request(ids(1, 20), vec![])
    };
    let refused = engine.score(&[asked(Weights::Reference)]).unwrap_err();
    assert!(refused.to_string().contains("none was frozen"), "{refused}");
    engine.freeze_reference();
    let before = engine.score(&[asked(Weights::Policy)]).unwrap();
    engine.supervise(&common::supervised(1, 0.01, 0.0)).unwrap();
    // Mixed requests come back in their order, each under its own weights.
    let both = [Weights::Policy, Weights::Reference, Weights::Policy].map(asked);
    let after = engine.score(&both).unwrap();
    assert_eq!(after[1], before[0]);
    assert_eq!(after[0], after[2]);
    assert_ne!(after[0], before[0]);
}

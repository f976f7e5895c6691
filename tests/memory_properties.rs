//! What must hold for every choice of the credit grammar.
#![allow(clippy::unwrap_used)]

use palimpsest::credit::CreditError;
use palimpsest::credit::assign::{CreditContext, Rewards, credit_step};
use palimpsest::credit::group::OVER_SCORES;
use palimpsest::credit::memory::gain::gain;
use palimpsest::credit::memory::placebo::shuffled;
use palimpsest::credit::memory::returns::returns;
use palimpsest::credit::memory::{MemoryCreditState, RoundReward};
use palimpsest::credit::spread::token_credit;
use palimpsest::experiment::{
    Baseline, CreditSettings, Estimator, Gate, Length, PriceSettings, Scale, Space, Threshold,
};
use palimpsest::trajectory::{Advantages, MemoryReward, Part, Row};
use proptest::prelude::*;

fn any_settings() -> impl Strategy<Value = CreditSettings> {
    let baseline = prop_oneof![
        Just(Baseline::Pooled),
        Just(Baseline::PerRound),
        Just(Baseline::LeaveOneOut),
        Just(Baseline::Absorbing),
        Just(Baseline::PositionAverage(0.9)),
    ];
    let scale = prop_oneof![
        Just(Scale::Std),
        Just(Scale::StdFloor(0.2)),
        Just(Scale::Off)
    ];
    let gate = prop_oneof![
        Just(Gate::Off),
        Just(Gate::Sign),
        Just(Gate::Success),
        Just(Gate::GroupSpread),
    ];
    let length = prop_oneof![
        Just(Length::Off),
        Just(Length::Price(PriceSettings::default())),
        Just(Length::Budget(20.0)),
    ];
    let discount = prop_oneof![Just(0.0f32), Just(0.5), Just(1.0)];
    let estimator = prop_oneof![
        prop::sample::select(OVER_SCORES.to_vec()),
        Just(Estimator::ReinforcePlusPlus(1.0)),
        Just(Estimator::ReinforcePlusPlus(0.9)),
    ];
    (estimator, baseline, scale, gate, length, discount).prop_map(
        |(estimator, baseline, scale, gate, length, discount)| CreditSettings {
            estimator,
            baseline,
            scale,
            gate,
            length,
            discount,
            ..CreditSettings::mempo_prob()
        },
    )
}

/// Rollouts with different numbers of rounds.
fn any_group() -> impl Strategy<Value = Vec<Rewards>> {
    let rollout = (
        any::<bool>(),
        prop::collection::vec((-1.0f32..1.0, 0u32..80), 0..5),
        prop::collection::vec(-2.0f32..2.0, 36),
    );
    prop::collection::vec(rollout, 2..7).prop_map(|rollouts| {
        rollouts
            .into_iter()
            .map(|(right, rounds, kl)| Rewards {
                outcome: f64::from(u8::from(right)),
                memory: (1u32..)
                    .zip(rounds)
                    .map(|(turn, (reward, notes_tokens))| MemoryReward {
                        turn,
                        reward,
                        notes_tokens,
                        ..MemoryReward::default()
                    })
                    .collect(),
                // As `row` lays six turns out.
                sampled: vec![6; 6],
                kl: kl.chunks(6).map(<[f32]>::to_vec).collect(),
            })
            .collect()
    })
}

fn state() -> MemoryCreditState {
    MemoryCreditState {
        positions: vec![None, Some(0.1), Some(0.4)],
        multiplier: 0.1,
    }
}

fn credited(group: &[Rewards], settings: &CreditSettings) -> Result<Vec<Advantages>, CreditError> {
    let context = CreditContext {
        settings,
        step: 0,
        kl_weight: 0.05,
        state: &state(),
    };
    let mut credited = credit_step(&[group.to_vec()], context)?;
    Ok(credited.groups.remove(0))
}

fn credit(group: &[Rewards], settings: &CreditSettings) -> Vec<Advantages> {
    credited(group, settings).unwrap()
}

/// A row of one prompt, then for each turn notes, an action and a tool result of this length.
fn row(turns: u32, tool: u32) -> Row {
    let mut row = Row::default();
    let push = |row: &mut Row, count: u32, on: bool, turn: u32| {
        for _ in 0..count {
            row.ids.push(row.ids.len() as u32);
            row.mask.push(on);
            row.logprobs.push(0.0);
            row.turn.push(turn);
        }
    };
    push(&mut row, 3, false, 0);
    for turn in 0..turns {
        let start = row.ids.len() as u32;
        push(&mut row, 4, true, turn);
        row.notes.push((turn, start, start + 4));
        push(&mut row, 2, true, turn);
        push(&mut row, tool, false, turn);
    }
    row
}

fn sampled_weights(row: &Row, advantages: &Advantages) -> Vec<f32> {
    let credit = token_credit(row, advantages).unwrap();
    row.mask
        .iter()
        .zip(&credit.weight)
        .filter(|(on, _)| **on)
        .map(|(_, weight)| *weight)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn observations_change_no_sampled_token_and_masked_tokens_are_exactly_zero(
        group in any_group(), settings in any_settings(), short in 0u32..4, long in 4u32..30,
    ) {
        for advantages in credit(&group, &settings) {
            let turns = 6;
            prop_assert_eq!(
                sampled_weights(&row(turns, short), &advantages),
                sampled_weights(&row(turns, long), &advantages)
            );
            let row = row(turns, long);
            let credit = token_credit(&row, &advantages).unwrap();
            for (at, on) in row.mask.iter().enumerate() {
                let parts = [credit.outcome[at], credit.memory[at], credit.weight[at]];
                let kl = credit.kl.get(at).copied().unwrap_or(0.0);
                prop_assert!(*on || (parts == [0.0; 3] && kl == 0.0));
                prop_assert!(parts[2] == parts[0] + kl + parts[1]);
            }
        }
    }

    #[test]
    fn permuting_the_rollouts_permutes_the_advantages(
        group in any_group(), settings in any_settings(), turn in 0usize..7,
    ) {
        let straight = credit(&group, &settings);
        let by = turn % group.len();
        let mut turned = group.clone();
        turned.rotate_left(by);
        let mut expected = straight;
        expected.rotate_left(by);
        for (ours, expected) in credit(&turned, &settings).iter().zip(&expected) {
            for (ours, expected) in [(&ours.outcome, &expected.outcome), (&ours.kl, &expected.kl)] {
                for (turn, token) in [(0, 0), (2, 5), (5, 3)] {
                    let of = |part: &Part| part.at(turn, token).unwrap();
                    prop_assert!((of(ours) - of(expected)).abs() < 1e-4 * of(expected).abs().max(1.0));
                }
            }
            prop_assert_eq!(ours.memory.len(), expected.memory.len());
            for ((turn, ours), (of, expected)) in ours.memory.iter().zip(&expected.memory) {
                prop_assert_eq!(turn, of);
                // Sums in another order; a spread near 0 blows their last bits up.
                let near = (ours - expected).abs() <= 1e-3 * (1.0 + expected.abs());
                prop_assert!(near, "{} against {}", ours, expected);
            }
        }
    }

    #[test]
    fn at_discount_1_gains_over_the_notes_before_telescope(
        logprobs in prop::collection::vec(prop::collection::vec(-4.0f64..0.0, 3), 2..7),
        own in any::<bool>(), log in any::<bool>(),
    ) {
        let threshold = if own { Threshold::Own(0.3) } else { Threshold::Off };
        let space = if log { Space::Log(f32::INFINITY) } else { Space::Prob };
        let value = |of: usize| gain(&logprobs[of], None, space, threshold).unwrap().of;
        let rounds: Vec<RoundReward> = (1..logprobs.len())
            .map(|at| RoundReward {
                turn: at as u32,
                reward: gain(&logprobs[at], Some(&logprobs[at - 1]), space, threshold).unwrap().gain,
            })
            .collect();
        let last = value(logprobs.len() - 1);
        for (at, round) in returns(&[rounds], 1.0).unwrap()[0].iter().enumerate() {
            prop_assert!((round.reward - (last - value(at))).abs() < 1e-9);
        }
    }

    #[test]
    fn what_is_not_finite_is_refused_by_member_and_turn(
        group in any_group(), settings in any_settings(), bad in prop_oneof![
            Just(f32::NAN), Just(f32::INFINITY), Just(f32::NEG_INFINITY)
        ],
    ) {
        let mut group = group;
        let Some(member) = group.iter().position(|rollout| !rollout.memory.is_empty()) else {
            return Ok(());
        };
        group[member].memory[0].reward = bad;
        let error = credited(&group, &settings).unwrap_err().to_string();
        let names = format!("member {member}, turn 1");
        prop_assert!(error.contains(&names), "{}", error);
    }
}

/// Notes tell their own question's answer, and nothing of any other: a world of probabilities in which
/// a note that knows lifts P(own answer) from .1 to .8, and P(any answer) wobbles by chance.
#[test]
fn under_shuffled_gold_the_expected_gain_is_zero() {
    let questions = 8;
    // A small generator of its own: the numbers need no quality.
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut chance = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 40) as f64 / f64::from(1u32 << 24)
    };
    let (mut own, mut placebo) = (Vec::new(), Vec::new());
    for step in 0..400 {
        let golds = shuffled(questions, 1, step);
        for (question, &gold) in golds.iter().enumerate() {
            let mut p = |knows: bool| {
                let wobble = 0.1 * (chance() - 0.5);
                vec![(if knows { 0.8f64 } else { 0.1 } + wobble).ln()]
            };
            let mut gain_on = |gold: usize| {
                let (after, before) = (p(gold == question), p(false));
                gain(&after, Some(&before), Space::Prob, Threshold::Off)
                    .unwrap()
                    .gain
            };
            own.push(gain_on(question));
            placebo.push(gain_on(gold));
        }
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let error = |values: &[f64]| {
        let mean = mean(values);
        let sum: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        sum.sqrt() / values.len() as f64
    };
    assert!(mean(&own) > 0.65);
    let (mean, error) = (mean(&placebo), error(&placebo));
    assert!(mean.abs() < 3.0 * error, "{mean} of standard error {error}");
}

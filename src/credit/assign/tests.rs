//! Parts of advantages by hand.

use super::*;

const SETTINGS: fn(Estimator) -> CreditSettings = |estimator| CreditSettings {
    estimator,
    ..CreditSettings::grpo()
};

/// Two turns, of two tokens and one.
fn rollout(outcome: f64, kl: &[f32]) -> Rewards {
    Rewards {
        outcome,
        sampled: vec![2, 1],
        kl: match kl {
            [a, b, c] => vec![vec![*a, *b], vec![*c]],
            _ => Vec::new(),
        },
        ..Rewards::default()
    }
}

fn credited(groups: &[Vec<Rewards>], estimator: Estimator, kl_weight: f64) -> Credited {
    let context = CreditContext {
        settings: &SETTINGS(estimator),
        step: 0,
        kl_weight,
        state: &MemoryCreditState::default(),
    };
    credit_step(groups, context).unwrap()
}

fn near(ours: f32, theirs: f64) {
    assert!(
        (f64::from(ours) - theirs).abs() < 1e-6,
        "{ours} against {theirs}"
    );
}

#[test]
fn outcome_and_kl_parts_add_up_to_the_advantage_of_the_penalised_reward() {
    let group = vec![
        rollout(1.0, &[0.5, 0.25, 0.25]),
        rollout(0.0, &[0.0, 0.0, 0.0]),
        rollout(0.0, &[2.0, -1.0, 1.0]),
    ];
    // R - 0.1 * sum of kl: 0.9, 0, -0.2.
    for (estimator, whole) in [
        (Estimator::DrGrpo, [2.0 / 3.0, -7.0 / 30.0, -13.0 / 30.0]),
        (Estimator::Rloo, [1.0, -0.35, -0.65]),
    ] {
        let alone = credited(std::slice::from_ref(&group), estimator, 0.0);
        let paid = credited(std::slice::from_ref(&group), estimator, 0.1);
        for (member, whole) in whole.into_iter().enumerate() {
            let (alone, paid) = (&alone.groups[0][member], &paid.groups[0][member]);
            assert!(alone.kl.is_nothing());
            assert_eq!(alone.outcome, paid.outcome, "{estimator:?}");
            near(paid.outcome.mean() + paid.kl.mean(), whole);
        }
    }
}

#[test]
fn an_estimator_over_tokens_charges_each_token_for_itself_and_what_follows() {
    let groups = [
        vec![rollout(1.0, &[1.0, 0.0, 2.0])],
        vec![rollout(0.0, &[0.0; 3])],
    ];
    let made = credited(&groups, Estimator::ReinforcePlusPlus(0.5), 0.1);
    // Returns without the penalty 0.25, 0.5, 1 and 0; with it 0.1, 0.4, 0.8 and 0.
    let whitened = |values: [f64; 6]| {
        let mean = values.iter().sum::<f64>() / 6.0;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 5.0;
        values.map(|value| (value - mean) / variance.sqrt())
    };
    let plain = whitened([0.25, 0.5, 1.0, 0.0, 0.0, 0.0]);
    let paid = whitened([0.1, 0.4, 0.8, 0.0, 0.0, 0.0]);
    for (at, (turn, token)) in [(0, 0), (0, 1), (1, 0)].into_iter().enumerate() {
        for group in 0..2 {
            let of = &made.groups[group][0];
            near(of.outcome.at(turn, token).unwrap(), plain[3 * group + at]);
            let whole = of.outcome.at(turn, token).unwrap() + of.kl.at(turn, token).unwrap();
            near(whole, paid[3 * group + at]);
        }
    }
    assert_eq!(made.groups[0][0].outcome.at(1, 1), None);
}

#[test]
fn estimators_of_the_whole_step_see_every_group() {
    let groups = [
        vec![rollout(1.0, &[]), rollout(0.0, &[])],
        vec![rollout(0.0, &[]), rollout(0.0, &[])],
    ];
    // One of four is paid.
    let gpg = credited(&groups, Estimator::Gpg, 0.0);
    near(gpg.groups[0][0].outcome.mean(), 2.0);
    let whitened = credited(&groups, Estimator::ReinforcePlusPlusBaseline, 0.0);
    // 12 tokens, variance 6 * 0.25 / 11.
    near(
        whitened.groups[0][0].outcome.mean(),
        0.5 / (1.5f64 / 11.0).sqrt(),
    );
}

#[test]
fn a_kl_that_does_not_fit_or_is_not_finite_is_named() {
    let refused = |of: Rewards| {
        let context = CreditContext {
            settings: &SETTINGS(Estimator::Grpo),
            step: 0,
            kl_weight: 0.1,
            state: &MemoryCreditState::default(),
        };
        credit_step(&[vec![rollout(0.0, &[]), of]], context)
            .unwrap_err()
            .to_string()
    };
    let mut short = rollout(0.0, &[0.0; 3]);
    short.kl[1].clear();
    assert_eq!(
        refused(short),
        "group 0: the KL of turn 1: 0 numbers for 1 sampled tokens; there must be one for each"
    );
    let bad = refused(rollout(0.0, &[0.0, f32::NAN, 0.0]));
    assert!(
        bad.starts_with("group 0: member 1, token 1: the KL to the reference is NaN"),
        "{bad}"
    );
    let none = Rewards::default();
    assert!(refused(none).contains("no sampled token"));
}

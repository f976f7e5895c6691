//! Laws that hold for every estimator, whatever the numbers.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use palimpsest::credit::baseline::{BaselineKind, centre};
use palimpsest::credit::group::{
    self, Estimates, GroupScores, OVER_SCORES, TokenRow, outcome_advantages,
};
use palimpsest::credit::spread::token_credit;
use palimpsest::experiment::Estimator;
use palimpsest::trajectory::{Advantages, Row};
use proptest::prelude::*;

/// One rollout: for every token its reward and whether it was sampled. Rewards of observations are 0.
type Tokens = Vec<(f64, bool)>;

fn score() -> impl Strategy<Value = f64> {
    prop_oneof![Just(0.0), Just(1.0), -3.0..3.0f64]
}

fn tokens() -> impl Strategy<Value = Tokens> {
    proptest::collection::vec((score(), any::<bool>()), 2..12).prop_map(|mut tokens| {
        tokens[0].1 = true;
        tokens[1].1 = true;
        for (reward, on) in &mut tokens {
            *reward = if *on { *reward } else { 0.0 };
        }
        tokens
    })
}

fn rollouts() -> impl Strategy<Value = Vec<Tokens>> {
    proptest::collection::vec(tokens(), 1..7)
}

/// Which estimator over tokens; all of them need a critic or greedy rewards at most.
const OVER_TOKENS: [&str; 3] = ["reinforce_plus_plus", "remax", "gae"];

/// Runs an estimator over tokens. The critic's value and the greedy reward derive from the sampled
/// tokens alone, so that they stay the same when observations are inserted.
fn over_tokens(which: &str, rollouts: &[Tokens]) -> Estimates {
    let rewards: Vec<Vec<f64>> = map(rollouts, |(reward, _)| reward);
    let mask: Vec<Vec<bool>> = map(rollouts, |(_, on)| on);
    let rows: Vec<TokenRow<'_>> = rewards
        .iter()
        .zip(&mask)
        .map(|(rewards, mask)| TokenRow { rewards, mask })
        .collect();
    match which {
        "reinforce_plus_plus" => group::reinforce_plus_plus(&rows, 0.9),
        "remax" => {
            let greedy: Vec<f64> = rollouts
                .iter()
                .map(|tokens| tokens.iter().find(|(_, on)| *on).unwrap().0 * 0.5)
                .collect();
            group::remax(&rows, &greedy)
        }
        _ => {
            // Garbage where nothing was sampled: it must not be read.
            let values: Vec<Vec<f64>> =
                map(
                    rollouts,
                    |(reward, on)| if on { reward * 0.3 + 0.1 } else { f64::NAN },
                );
            let values: Vec<&[f64]> = values.iter().map(Vec::as_slice).collect();
            group::gae(&rows, &values, 0.9, 0.8)
        }
    }
    .unwrap()
}

fn map<T>(rollouts: &[Tokens], of: impl Fn((f64, bool)) -> T) -> Vec<Vec<T>> {
    rollouts
        .iter()
        .map(|tokens| tokens.iter().map(|&token| of(token)).collect())
        .collect()
}

/// Advantages of an estimator over scores, laid over the tokens.
fn over_scores(estimator: Estimator, rollouts: &[Tokens]) -> Option<Vec<Vec<f64>>> {
    let scores: Vec<f64> = rollouts
        .iter()
        .map(|tokens| tokens.iter().map(|(reward, _)| reward).sum())
        .collect();
    let lengths: Vec<u32> = rollouts
        .iter()
        .map(|tokens| tokens.iter().filter(|(_, on)| *on).count() as u32)
        .collect();
    let group = GroupScores {
        scores: &scores,
        lengths: &lengths,
    };
    // Pass@k refuses a group of one.
    let advantages = outcome_advantages(estimator, &[group]).ok()?.remove(0);
    let lay = |(tokens, &value): (&Tokens, &f64)| -> Vec<f64> {
        let row = Row {
            ids: vec![0; tokens.len()],
            mask: tokens.iter().map(|(_, on)| *on).collect(),
            ..Row::default()
        };
        let advantages = Advantages {
            outcome: (value as f32).into(),
            ..Advantages::default()
        };
        let credit = token_credit(&row, &advantages).unwrap();
        credit.weight.into_iter().map(f64::from).collect()
    };
    Some(rollouts.iter().zip(&advantages).map(lay).collect())
}

/// Every estimator's advantages, by name.
fn all(rollouts: &[Tokens]) -> Vec<(String, Vec<Vec<f64>>)> {
    let tokens = OVER_TOKENS
        .iter()
        .map(|which| (which.to_string(), over_tokens(which, rollouts).advantages));
    let scores = OVER_SCORES.iter().filter_map(|&estimator| {
        Some((format!("{estimator:?}"), over_scores(estimator, rollouts)?))
    });
    tokens.chain(scores).collect()
}

fn sampled(tokens: &Tokens, values: &[f64]) -> Vec<f64> {
    tokens
        .iter()
        .zip(values)
        .filter(|((_, on), _)| *on)
        .map(|(_, value)| *value)
        .collect()
}

fn near(ours: &[f64], theirs: &[f64]) -> bool {
    ours.len() == theirs.len()
        && ours
            .iter()
            .zip(theirs)
            .all(|(a, b)| (a - b).abs() <= 1e-7 * (1.0 + a.abs().max(b.abs())))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn inserting_observations_changes_no_advantage_of_a_sampled_token(
        rollouts in rollouts(),
        places in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..9),
    ) {
        let mut longer = rollouts.clone();
        for (member, at) in places {
            let member = member.index(longer.len());
            let at = at.index(longer[member].len() + 1);
            longer[member].insert(at, (0.0, false));
        }
        for ((name, before), (_, after)) in all(&rollouts).iter().zip(all(&longer)) {
            for (member, (before, after)) in before.iter().zip(&after).enumerate() {
                let (before, after) = (sampled(&rollouts[member], before), sampled(&longer[member], after));
                prop_assert!(near(&before, &after), "{name}, member {member}: {before:?} {after:?}");
            }
        }
    }

    #[test]
    fn masked_tokens_carry_exactly_zero(rollouts in rollouts()) {
        for (name, advantages) in all(&rollouts) {
            for (tokens, row) in rollouts.iter().zip(advantages) {
                for ((_, on), value) in tokens.iter().zip(row) {
                    prop_assert!(*on || value == 0.0, "{name}: {value}");
                }
            }
        }
    }

    #[test]
    fn permuting_the_rollouts_permutes_the_result(rollouts in rollouts(), turn in 0..7usize) {
        let mut turned = rollouts.clone();
        let turn = turn % rollouts.len();
        turned.rotate_left(turn);
        for ((name, before), (_, after)) in all(&rollouts).into_iter().zip(all(&turned)) {
            let mut before = before;
            before.rotate_left(turn);
            // The first of several best rollouts is paid, but its lead is 0.
            for (before, after) in before.iter().zip(&after) {
                prop_assert!(near(before, after), "{name}: {before:?} {after:?}");
            }
        }
    }

    #[test]
    fn a_bonus_for_everyone_changes_nothing(
        scores in proptest::collection::vec(score(), 2..9), bonus in -5.0..5.0f64,
    ) {
        let lengths = vec![3; scores.len()];
        let shifted: Vec<f64> = scores.iter().map(|score| score + bonus).collect();
        for estimator in OVER_SCORES {
            // GPG's factor counts scores that are not zero.
            if estimator == Estimator::Gpg { continue; }
            let of = |scores| outcome_advantages(estimator, &[GroupScores { scores, lengths: &lengths }]).unwrap();
            // Rounding decides what nearly equal scores are worth once a deviation divides them.
            let (_, deviation) = group::mean_std(&scores);
            prop_assume!(deviation == 0.0 || deviation > 1e-3);
            if deviation == 0.0 { continue; }
            let (before, after) = (of(&scores), of(&shifted));
            prop_assert!(near(&before[0], &after[0]), "{estimator:?}: {before:?} {after:?}");
        }
        let centred = group::gpg(&scores, 1.5, 1.0).unwrap();
        prop_assert!(near(&centred, &group::gpg(&shifted, 1.5, 1.0).unwrap()));
    }

    #[test]
    fn scaling_the_scores_scales_what_is_not_normalised(
        scores in proptest::collection::vec(score(), 2..9), factor in 0.1..10.0f64,
    ) {
        let lengths: Vec<u32> = (1..=scores.len() as u32).collect();
        let scaled: Vec<f64> = scores.iter().map(|score| score * factor).collect();
        let (_, deviation) = group::mean_std(&scores);
        for estimator in OVER_SCORES {
            let of = |scores| {
                outcome_advantages(estimator, &[GroupScores { scores, lengths: &lengths }]).unwrap().remove(0)
            };
            let (before, after) = (of(&scores), of(&scaled));
            match estimator {
                Estimator::DrGrpo | Estimator::Rloo | Estimator::Opo | Estimator::Gpg => {
                    let before: Vec<f64> = before.iter().map(|value| value * factor).collect();
                    prop_assert!(near(&before, &after), "{estimator:?}: {before:?} {after:?}");
                }
                // Up to the epsilons under the deviation.
                _ => {
                    if deviation > 0.1 {
                        for (before, after) in before.iter().zip(&after) {
                            prop_assert!((before - after).abs() < 1e-3 * (1.0 + before.abs()), "{estimator:?}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn baselines_follow_permutations_and_scales(
        rounds in proptest::collection::vec(proptest::collection::vec(-1.0..1.0f64, 0..6), 1..6),
        turn in 0..6usize, factor in 0.1..10.0f64,
    ) {
        let averages = [Some(0.25), None, Some(-0.5)];
        let scaled_averages = averages.map(|of: Option<f64>| of.map(|value| value * factor));
        let kinds = |averages| [
            BaselineKind::Pooled, BaselineKind::PerRound, BaselineKind::LeaveOneOut,
            BaselineKind::Absorbing, BaselineKind::PositionAverage(averages),
        ];
        let turn = turn % rounds.len();
        for (kind, scaled_kind) in kinds(&averages).into_iter().zip(kinds(&scaled_averages)) {
            let mut before = centre(&rounds, kind);
            let mut turned = rounds.clone();
            turned.rotate_left(turn);
            let after = centre(&turned, kind);
            let scaled: Vec<Vec<f64>> =
                rounds.iter().map(|of| of.iter().map(|value| value * factor).collect()).collect();
            for (before, after) in before.iter().zip(centre(&scaled, scaled_kind)) {
                let before: Vec<f64> = before.iter().map(|value| value * factor).collect();
                prop_assert!(near(&before, &after), "{kind:?}");
            }
            before.rotate_left(turn);
            for (before, after) in before.iter().zip(&after) {
                prop_assert!(near(before, after), "{kind:?}");
            }
        }
    }

    #[test]
    fn observations_between_notes_move_their_credit_along(rollouts in rollouts(), value in -2.0..2.0f32) {
        for tokens in rollouts {
            let sampled: Vec<usize> = (0..tokens.len()).filter(|&at| tokens[at].1).collect();
            let (start, end) = (sampled[0] as u32, *sampled.last().unwrap() as u32 + 1);
            let row = Row {
                ids: vec![0; tokens.len()],
                mask: tokens.iter().map(|(_, on)| *on).collect(),
                notes: vec![(1, start, end)],
                ..Row::default()
            };
            let credit = token_credit(&row, &Advantages { outcome: 0.5.into(), memory: vec![(1, value)], ..Advantages::default() }).unwrap();
            for (at, (_, on)) in tokens.iter().enumerate() {
                let part = if *on { value } else { 0.0 };
                prop_assert_eq!(credit.memory[at], part);
                prop_assert_eq!(credit.weight[at], credit.outcome[at] + part);
            }
        }
    }
}

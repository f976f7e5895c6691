//! The published mistakes of credit, planted one by one: the audit, or a property, sees each.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::needless_update)]

use std::collections::BTreeMap;

use palimpsest::credit::audit::{
    Breach, Declared, Learned, Sent, consumption, dealt, first_ratio, masked, rows,
};
use palimpsest::credit::spread::token_credit;
use palimpsest::trajectory::{Advantages, Row, Span, Tag, ToolResult, TrajectoryId, Turn};

mod common;
#[path = "credit_audit/whole_runs.rs"]
mod whole_runs;

const ID: TrajectoryId = TrajectoryId {
    step: 4,
    purpose: palimpsest::trajectory::Purpose::Train,
    group: 2,
    member: 1,
};

/// `<mem> note </mem> call`, then a tool result of two tokens.
fn turn(number: u32) -> Turn {
    Turn {
        ids: vec![1, 10 + number, 2, 20 + number],
        logprobs: vec![-0.1, -0.2, -0.3, -0.4],
        spans: vec![Span {
            tag: Tag::Mem,
            start: 0,
            end: 3,
            inner_start: 1,
            inner_end: 2,
        }],
        tool: Some(ToolResult {
            text: String::new(),
            ids: vec![90, 91],
            ..ToolResult::default()
        }),
        ..Turn::default()
    }
}

struct Update {
    turns: Vec<Turn>,
    advantages: Advantages,
    rows: Vec<(Row, Vec<f32>, Vec<f32>)>,
}

impl Update {
    /// Three turns in one row, or in one row each.
    fn new(split: bool) -> Self {
        let turns: Vec<Turn> = (0..3).map(turn).collect();
        let advantages = Advantages {
            outcome: 0.7.into(),
            memory: vec![(1, -0.4), (2, 1.3)],
            ..Advantages::default()
        };
        let mut whole: Vec<Row> = Vec::new();
        for (number, turn) in (0..).zip(&turns) {
            if split || whole.is_empty() {
                let mut row = Row::default();
                push(&mut row, &[5, 6], None, number);
                whole.push(row);
            }
            let row = whole.last_mut().unwrap();
            let start = row.ids.len() as u32;
            push(row, &turn.ids, Some(&turn.logprobs), number);
            row.notes.push((number, start, start + 3));
            push(row, &turn.tool.as_ref().unwrap().ids, None, number);
        }
        let rows = whole
            .into_iter()
            .map(|row| {
                let weight = token_credit(&row, &advantages).unwrap().weight;
                let learner = row.logprobs.clone();
                (row, weight, learner)
            })
            .collect();
        Self {
            turns,
            advantages,
            rows,
        }
    }

    fn sent(&self) -> Vec<Sent<'_>> {
        self.rows
            .iter()
            .map(|(row, weight, _)| Sent {
                id: ID,
                turn: &row.turn,
                ids: &row.ids,
                mask: &row.mask,
                sampled: &row.logprobs,
                weight,
            })
            .collect()
    }

    fn learned(&self) -> Vec<Learned<'_>> {
        self.rows
            .iter()
            .map(|(row, _, learner)| Learned {
                id: ID,
                row,
                learner,
            })
            .collect()
    }

    fn faults(&self) -> Vec<palimpsest::credit::audit::Fault> {
        let declared = Declared {
            turns: &self.turns,
            advantages: &self.advantages,
        };
        rows(&BTreeMap::from([(ID, declared)]), &self.sent())
    }
}

fn push(row: &mut Row, ids: &[u32], sampled: Option<&[f32]>, turn: u32) {
    row.ids.extend_from_slice(ids);
    row.mask.extend(ids.iter().map(|_| sampled.is_some()));
    row.turn.extend(ids.iter().map(|_| turn));
    match sampled {
        Some(logprobs) => row.logprobs.extend_from_slice(logprobs),
        None => row.logprobs.extend(ids.iter().map(|_| 0.0)),
    }
}

#[test]
fn a_sound_update_passes() {
    for split in [false, true] {
        assert_eq!(Update::new(split).faults(), []);
    }
}

/// SkyRL #1492: the last step's advantages, with the last step's mask, were copied to every earlier
/// step of the trajectory.
#[test]
fn the_last_steps_advantages_copied_to_earlier_steps_are_seen() {
    let mut update = Update::new(true);
    let last = update.rows[2].1.clone();
    for (_, weight, _) in &mut update.rows {
        weight.clone_from(&last);
    }
    let faults = update.faults();
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert_eq!(
        (faults[0].id, faults[0].turn, faults[0].token),
        (Some(ID), Some(0), Some(2))
    );
    assert!(matches!(faults[0].breach, Breach::WrongCredit { .. }));
    let said = faults[0].to_string();
    assert!(
        said.starts_with("trajectory 4/2/1, turn 0, token 2 of its row:"),
        "{said}"
    );
}

/// RAGEN #71, first part: the mask was inverted, so that the environment's tokens were trained and
/// the policy's were not.
#[test]
fn an_inverted_mask_is_seen() {
    let mut update = Update::new(false);
    let row = &mut update.rows[0];
    for mask in &mut row.0.mask {
        *mask = !*mask;
    }
    let faults = update.faults();
    assert!(
        matches!(faults[0].breach, Breach::NotSampled { .. }),
        "{faults:?}"
    );
    // Weights that follow the inverted mask do not hide it.
    let mut update = Update::new(false);
    let (row, weight, _) = &mut update.rows[0];
    for (mask, weight) in row.mask.iter_mut().zip(weight) {
        *mask = !*mask;
        *weight = if *mask { 0.7 } else { 0.0 };
    }
    assert!(!update.faults().is_empty());
}

/// RAGEN #71, second part: the mark of a turn's start stood twice, so that turns were counted wrongly
/// and everything after it belonged to the next one.
#[test]
fn a_turn_start_that_is_counted_twice_is_seen() {
    let mut update = Update::new(false);
    let row = &mut update.rows[0].0;
    for turn in row.turn.iter_mut().filter(|turn| **turn > 0) {
        *turn += 1;
    }
    let faults = update.faults();
    // The first token of turn 1 is judged by the notes of turn 2.
    assert_eq!((faults[0].turn, faults[0].token), (Some(2), Some(8)));
    assert!(matches!(faults[0].breach, Breach::WrongCredit { .. }));
}

/// Credit of a turn lands on tokens of another.
#[test]
fn credit_of_another_turn_is_seen() {
    let mut update = Update::new(false);
    let row = &mut update.rows[0];
    // The notes of turn 1 get what the notes of turn 2 earned.
    for at in 8..11 {
        assert_eq!(row.0.turn[at], 1);
        row.1[at] = 0.7 + 1.3;
    }
    let faults = update.faults();
    assert_eq!((faults[0].turn, faults[0].token), (Some(1), Some(8)));
}

/// The same from the other end: the boundary is one token late, so a tool's token is trained.
#[test]
fn a_turn_boundary_that_is_off_by_one_is_seen() {
    let mut update = Update::new(false);
    update.rows[0].0.mask[6] = true;
    let faults = update.faults();
    assert!(
        matches!(faults[0].breach, Breach::NotSampled { .. }),
        "{faults:?}"
    );
    assert_eq!((faults[0].turn, faults[0].token), (Some(0), Some(6)));
}

/// verl #7278: the outcome reward never reached tokens before a tool's span.
#[test]
fn a_reward_lost_before_a_tools_tokens_is_seen() {
    let mut update = Update::new(false);
    let last_turn = 2;
    let row = &mut update.rows[0];
    for (weight, turn) in row.1.iter_mut().zip(&row.0.turn) {
        if *turn < last_turn {
            *weight = 0.0;
        }
    }
    let faults = update.faults();
    assert_eq!(
        faults[0].breach,
        Breach::WrongCredit {
            found: 0.0,
            declared: 0.7
        }
    );
}

/// The property behind it: more observation tokens change the weight of no sampled token.
#[test]
fn inserting_observations_changes_no_sampled_tokens_weight() {
    let update = Update::new(false);
    let (row, weight, _) = &update.rows[0];
    for place in 0..=row.ids.len() {
        let mut longer = row.clone();
        longer.ids.insert(place, 99);
        longer.mask.insert(place, false);
        longer.logprobs.insert(place, 0.0);
        longer.turn.insert(place, 0);
        for (_, start, end) in &mut longer.notes {
            let at = place as u32;
            *end += u32::from(at < *end);
            *start += u32::from(at <= *start);
        }
        let with = token_credit(&longer, &update.advantages).unwrap().weight;
        let sampled = |row: &Row, weight: &[f32]| -> Vec<f32> {
            let on = weight.iter().zip(&row.mask).filter(|(_, m)| **m);
            on.map(|(w, _)| *w).collect()
        };
        assert_eq!(sampled(row, weight), sampled(&longer, &with), "at {place}");
        assert_eq!(with[place], 0.0);
    }
}

/// verl #7244: a baseline per turn index is biased when the policy decides when to stop. Rollouts
/// that go on are those that know more, so the last rounds are compared among the good alone.
#[test]
fn a_baseline_per_turn_index_misjudges_those_who_go_on_and_pooling_does_not() {
    use palimpsest::credit::memory::baseline::centred;
    use palimpsest::credit::memory::{MemoryCreditState, RoundReward};
    use palimpsest::experiment::{Baseline, Scale};
    let rounds = |rewards: &[f64]| -> Vec<RoundReward> {
        let of = |(at, &reward)| RoundReward {
            turn: at as u32 + 1,
            reward,
        };
        rewards.iter().enumerate().map(of).collect()
    };
    // Two stop after a bad round; two go on and write notes worth 0.9 and 0.8.
    let group = [
        rounds(&[0.1]),
        rounds(&[0.1]),
        rounds(&[0.1, 0.9]),
        rounds(&[0.1, 0.8]),
    ];
    let state = MemoryCreditState::default();
    let of = |baseline| centred(&group, baseline, Scale::Off, &state).unwrap();
    let (per_round, pooled) = (of(Baseline::PerRound), of(Baseline::Pooled));
    // The second-best notes of all are punished by their index alone.
    assert!(per_round[3][1] < 0.0, "{per_round:?}");
    assert!(pooled[3][1] > 0.0, "{pooled:?}");
}

/// Masked tokens (tools, prompt) carry exactly zero, however small the leak.
#[test]
fn weight_on_a_tools_token_is_seen() {
    let mut update = Update::new(false);
    update.rows[0].1[6] = 1e-12;
    let faults = update.faults();
    assert!(
        matches!(
            faults[0].breach,
            Breach::MaskedNotZero {
                column: "weight",
                ..
            }
        ),
        "{faults:?}"
    );
}

/// Retokenised turns (MEM1, TRL #5144): the ids that are trained are not those that were sampled.
#[test]
fn a_retokenised_turn_is_seen() {
    let mut update = Update::new(false);
    update.rows[0].0.ids[3] = 77;
    assert!(
        update.faults()[0]
            .to_string()
            .contains("id 77 stands where 10 was sampled")
    );
}

#[test]
fn a_turn_that_is_left_out_or_trained_twice_is_seen() {
    let mut update = Update::new(true);
    let row = update.rows.pop().unwrap();
    let faults = update.faults();
    assert_eq!(faults.len(), 1);
    assert_eq!(
        (faults[0].turn, &faults[0].breach),
        (
            Some(2),
            &Breach::Coverage {
                trained: 0,
                sampled: 4
            }
        )
    );
    update
        .rows
        .push((row.0.clone(), row.1.clone(), row.2.clone()));
    update.rows.push(row);
    assert!(matches!(
        update.faults()[0].breach,
        Breach::Coverage {
            trained: 8,
            sampled: 4
        }
    ));
}

/// verl #5625: with a token mean over micro-batches the denominators do not add up to the tokens of
/// the mini-batch; the learner's own count gives it away.
#[test]
fn denominators_of_micro_batches_are_seen() {
    let written = [10, 30, 20];
    let batches = [vec![0, 1], vec![2]];
    assert_eq!(consumption(&written, &batches, 3, &[40, 20]), []);
    // The mean of two micro-batches of 10 and 30 counts 20 tokens as one.
    let faults = consumption(&written, &batches, 3, &[20, 20]);
    assert_eq!(
        faults[0].breach,
        Breach::Tokens {
            mini_batch: 0,
            written: 40,
            consumed: 20
        }
    );
}

#[test]
fn rows_that_are_dealt_to_no_mini_batch_or_twice_are_seen() {
    let rows = |written, consumed| Breach::Rows { written, consumed };
    let breaches = |batches: &[Vec<usize>], epochs| -> Vec<Breach> {
        let faults = dealt(3, batches, epochs).into_iter();
        faults.map(|fault| fault.breach).collect()
    };
    assert_eq!(breaches(&[vec![0, 2], vec![1]], 1), []);
    assert_eq!(breaches(&[vec![0], vec![2]], 1), [rows(3, 2)]);
    assert_eq!(breaches(&[vec![0, 1], vec![1, 2]], 1), [rows(3, 2)]);
    // Two epochs over everything are no loss; one epoch too few is.
    assert_eq!(breaches(&[vec![0, 1, 2], vec![2, 1, 0]], 2), []);
    assert_eq!(breaches(&[vec![0, 1, 2]], 2), [rows(3, 0)]);
    let (mini_batch, row) = (1, 3);
    assert_eq!(
        breaches(&[vec![0, 1, 2], vec![3]], 1),
        [Breach::NoSuchRow { mini_batch, row }]
    );
}

#[test]
fn rows_that_are_lost_in_the_learner_are_seen() {
    let lost = consumption(&[10, 30], &[vec![0, 1]], 1, &[40]);
    let (written, consumed) = (2, 1);
    assert_eq!(lost[0].breach, Breach::Rows { written, consumed });
    // Two epochs over everything are no loss.
    assert_eq!(
        consumption(
            &[10, 30],
            &[vec![0], vec![1], vec![1], vec![0]],
            2,
            &[10, 30, 30, 10]
        ),
        []
    );
}

/// Credit of every source is audited: each token's own number of an estimator over tokens, and what
/// the KL in the reward changed.
#[test]
fn a_lost_kl_part_and_numbers_of_another_token_are_seen() {
    use palimpsest::trajectory::Part;
    let mut update = Update::new(true);
    let number = |turn: u32, token: u32| (turn * 10 + token) as f32;
    let of_turn = |turn| (0..4).map(|token| number(turn, token)).collect();
    update.advantages.outcome = Part::Each((0..3).map(of_turn).collect());
    update.advantages.kl = (-0.05).into();
    let lay = |update: &mut Update, advantages: &Advantages| {
        for (row, weight, _) in &mut update.rows {
            *weight = token_credit(row, advantages).unwrap().weight;
        }
    };
    let whole = update.advantages.clone();
    lay(&mut update, &whole);
    assert_eq!(update.faults(), []);
    let without = Advantages {
        kl: Part::default(),
        ..whole.clone()
    };
    lay(&mut update, &without);
    let faults = update.faults();
    assert_eq!(faults.len(), 3, "{faults:?}");
    assert!(matches!(faults[0].breach, Breach::WrongCredit { .. }));
    lay(&mut update, &whole);
    update.rows[1].1.swap(4, 5);
    let faults = update.faults();
    assert_eq!((faults[0].turn, faults[0].token), (Some(1), Some(4)));
}

#[test]
fn a_log_prob_of_the_learner_on_a_tools_token_is_seen() {
    let mut update = Update::new(false);
    assert_eq!(masked(&update.learned()), []);
    update.rows[0].2[6] = -0.5;
    let faults = masked(&update.learned());
    assert_eq!((faults[0].turn, faults[0].token), (Some(0), Some(6)));
    update.rows[0].2.pop();
    assert!(matches!(
        masked(&update.learned())[0].breach,
        Breach::Lengths { .. }
    ));
}

#[test]
fn the_token_whose_ratio_is_furthest_off_is_named() {
    const LIMIT: f64 = 0.01;
    let mut update = Update::new(false);
    assert_eq!(first_ratio(&update.learned(), Some(0.0), LIMIT), None);
    update.rows[0].2[4] += 0.02;
    update.rows[0].2[9] += 0.5;
    let fault = first_ratio(&update.learned(), None, LIMIT).unwrap();
    assert_eq!((fault.turn, fault.token), (Some(1), Some(9)));
    assert!(matches!(fault.breach, Breach::Ratio { gap, .. } if gap > 0.6));
    assert!(first_ratio(&[], Some(0.3), LIMIT).is_some());
    assert!(first_ratio(&[], Some(f64::NAN), LIMIT).is_some());
    // Any gap passes where any is accepted, but for one that is no number.
    let any = f64::INFINITY;
    assert_eq!(first_ratio(&update.learned(), Some(0.3), any), None);
    assert!(first_ratio(&[], Some(f64::NAN), any).is_some());
}

//! The published mistakes of credit, planted one by one: the audit, or a property, sees each.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::needless_update)]

use std::collections::BTreeMap;

use palimpsest::credit::audit::{Breach, Consumed, Declared, consumption, first_ratio, rows};
use palimpsest::credit::spread::token_credit;
use palimpsest::trajectory::{Advantages, Row, Span, Tag, ToolResult, TrajectoryId, Turn};

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
            outcome: 0.7,
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

    fn consumed(&self) -> Vec<Consumed<'_>> {
        self.rows
            .iter()
            .map(|(row, weight, learner)| Consumed {
                id: ID,
                row,
                weight,
                learner,
            })
            .collect()
    }

    fn faults(&self) -> Vec<palimpsest::credit::audit::Fault> {
        let declared = Declared {
            turns: &self.turns,
            advantages: &self.advantages,
        };
        rows(&BTreeMap::from([(ID, declared)]), &self.consumed())
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
    use palimpsest::credit::memory::{RoundReward, advantages};
    use palimpsest::experiment::Baseline;
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
    let per_round = advantages(&group, Baseline::PerRound, false).unwrap();
    let pooled = advantages(&group, Baseline::Pooled, false).unwrap();
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
fn rows_that_are_lost_before_the_learner_are_seen() {
    let lost = consumption(&[10, 30, 20], &[vec![0], vec![2]], 3, &[10, 20]);
    assert_eq!(
        lost[0].breach,
        Breach::Rows {
            written: 3,
            consumed: 2
        }
    );
    assert!(!consumption(&[10, 30], &[vec![0, 1]], 1, &[40]).is_empty());
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

#[test]
fn the_token_whose_ratio_is_furthest_off_is_named() {
    let mut update = Update::new(false);
    assert_eq!(first_ratio(&update.consumed(), Some(0.0)), None);
    update.rows[0].2[4] += 0.02;
    update.rows[0].2[9] += 0.5;
    let fault = first_ratio(&update.consumed(), None).unwrap();
    assert_eq!((fault.turn, fault.token), (Some(1), Some(9)));
    assert!(matches!(fault.breach, Breach::Ratio { gap } if gap > 0.6));
    assert!(first_ratio(&[], Some(0.3)).is_some());
    assert!(first_ratio(&[], Some(f64::NAN)).is_some());
}

mod common;

mod whole_runs {
    use std::path::Path;
    use std::sync::Arc;

    use bevy_app::{App, Update};
    use bevy_ecs::prelude::*;
    use palimpsest::credit::signal::OutcomeSilence;
    use palimpsest::engine::EngineLink;
    use palimpsest::engine::scripted::ScriptedEngine;
    use palimpsest::experiment::{Audit, Experiment};
    use palimpsest::learner::Updated;
    use palimpsest::record::{Event, RunStatus, read_events};
    use palimpsest::run::{Origin, Started, build_app, plugins, run_to_end};
    use palimpsest::schedule::PalimpsestSystems;
    use palimpsest::task::Task;
    use palimpsest::tools::Interrupts;

    use crate::common::{Player, play, small_experiment};

    /// Moves the weights of every row by one token once they have been learned from.
    fn shift_weights(mut updated: ResMut<Updated>) {
        if updated.report.is_some() {
            for row in &mut updated.rows {
                row.credit.weight.rotate_right(1);
            }
        }
    }

    fn mistake(app: &mut App) {
        app.add_systems(Update, shift_weights.in_set(PalimpsestSystems::Evaluate));
    }

    fn run(
        folder: &Path,
        experiment: Experiment,
        player: Player,
        more: Option<fn(&mut App)>,
    ) -> (Result<RunStatus, String>, Vec<Event>) {
        let task: Arc<dyn Task> = Arc::from(
            palimpsest::task::load(
                &experiment.task,
                None,
                &palimpsest::retrieval::no_dense,
                &mut |_, _, _| {},
            )
            .unwrap(),
        );
        let text = experiment.to_ron();
        let origin = Origin::At(folder.to_path_buf());
        let started = Started::new(&origin, experiment, &text, Arc::clone(&task), &[]).unwrap();
        let link = EngineLink::start(move || {
            Ok(ScriptedEngine::new(Arc::new(move |request| {
                play(task.as_ref(), player, request)
            })))
        })
        .unwrap();
        let mut wired = plugins();
        wired.extend(more);
        let mut app = build_app(started.launch, link, Interrupts::default(), wired).unwrap();
        let ended = run_to_end(&mut app).map_err(|error| error.to_string());
        drop(app);
        let (events, _) = read_events(folder).unwrap();
        (ended, events.into_iter().map(|event| event.event).collect())
    }

    fn troubles(events: &[Event]) -> Vec<String> {
        let of = |event: &Event| match event {
            Event::TroubleFound { what, .. } => Some(what.clone()),
            _ => None,
        };
        events.iter().filter_map(of).collect()
    }

    #[test]
    fn a_mistake_stops_the_run_warns_or_passes_as_the_setting_says() {
        let folder = tempfile::tempdir().unwrap();
        let with = |audit: Audit, name: &str| {
            let mut experiment = small_experiment();
            experiment.record.audit = audit;
            let folder = folder.path().join(name);
            run(&folder, experiment, Player::Careless, Some(mistake))
        };
        let (ended, events) = with(Audit::Stop, "stop");
        let why = ended.unwrap_err();
        for part in [
            "step 1: the credit audit failed",
            "trajectory 0/",
            "turn ",
            "token ",
        ] {
            assert!(why.contains(part), "{part:?} is missing in {why}");
        }
        assert!(troubles(&events)[0].contains("the credit audit failed"));
        let failed = RunStatus::Failed;
        assert_eq!(events.last(), Some(&Event::RunEnded { status: failed }));

        let (ended, events) = with(Audit::Warn, "warn");
        assert_eq!(ended, Ok(RunStatus::Finished));
        assert_eq!(troubles(&events).len(), 2, "one a step");

        let (ended, events) = with(Audit::Off, "off");
        assert_eq!(
            (ended, troubles(&events).len()),
            (Ok(RunStatus::Finished), 0)
        );
    }

    #[test]
    fn a_step_without_gradient_says_which_groups_and_why() {
        let folder = tempfile::tempdir().unwrap();
        let mut experiment = small_experiment();
        experiment.credit = palimpsest::experiment::CreditSettings::grpo();
        let (ended, events) = run(
            &folder.path().join("run"),
            experiment,
            Player::Perfect,
            None,
        );
        assert_eq!(ended, Ok(RunStatus::Finished));
        let silent: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::SignalMissing { step, groups, dead } => Some((*step, *groups, dead)),
                _ => None,
            })
            .collect();
        assert_eq!(silent.len(), 2);
        for (number, (step, groups, dead)) in (1..).zip(silent) {
            assert_eq!((step, groups, dead.len()), (number, 2, 2));
            assert!(
                dead.iter()
                    .all(|group| group.outcome == OutcomeSilence::AllRight)
            );
        }
        assert_eq!(troubles(&events), Vec::<String>::new());
    }
}

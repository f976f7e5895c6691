//! Which contexts a trajectory is scored in, and what becomes of the scores.
#![allow(clippy::unwrap_used)]

use palimpsest::credit::CreditError;
use palimpsest::engine::{Scored, Weights};
use palimpsest::experiment::{
    Answers, CreditSettings, First, Scorer, Space, Support, Target, Threshold, Unclosed,
};
use palimpsest::reward::{MemoryScorePlan, plan_memory_scores};
use palimpsest::trajectory::{
    GoldAlias, MemoryReward, QuestionData, Span, Tag, ToolResult, TrajectoryId, Turn,
};

const OPEN: u32 = 90;
const CLOSE: u32 = 91;
const ANSWER: u32 = 92;

/// Two sub-answers: key 10 with value 11, key 20 with value 21; the second also as 22.
fn question() -> QuestionData {
    let alias = |key: u32, value: u32| GoldAlias {
        ids: vec![key, value],
        value_ids: vec![value],
    };
    QuestionData {
        prompt_ids: vec![1, 2],
        gold_ids: vec![10, 11, 20, 21],
        gold_answers: vec![vec![alias(10, 11)], vec![alias(20, 21), alias(20, 22)]],
        answer_prefix_ids: vec![ANSWER],
        ..QuestionData::default()
    }
}

/// `<mem>` notes `</mem>` call, then a tool result.
fn turn(notes: &[u32], tool: &[u32]) -> Turn {
    let ids = [&[OPEN], notes, &[CLOSE, 7]].concat();
    let close = notes.len() as u32 + 1;
    Turn {
        logprobs: vec![-1.0; ids.len()],
        ids,
        spans: vec![Span {
            tag: Tag::Mem,
            start: 0,
            end: close + 1,
            inner_start: 1,
            inner_end: close,
        }],
        tool: Some(ToolResult {
            text: String::new(),
            ids: tool.to_vec(),
            ..ToolResult::default()
        }),
        ..Turn::default()
    }
}

/// Three turns: empty notes, then the first value as it was shown, then a guess at the second.
fn turns() -> Vec<Turn> {
    vec![
        turn(&[], &[5, 11]),
        turn(&[10, 11], &[5, 6]),
        turn(&[10, 11, 20, 21], &[]),
    ]
}

fn plan(settings: &CreditSettings) -> MemoryScorePlan {
    let question = question();
    let plan = plan_memory_scores(
        TrajectoryId::default(),
        &question,
        &question,
        &turns(),
        settings,
    );
    plan.unwrap().unwrap()
}

/// (place, ids before the gold answer) of every branch.
fn contexts(plan: &MemoryScorePlan) -> Vec<(u32, Vec<u32>)> {
    let branches = plan.request.branches.iter();
    branches
        .map(|branch| {
            let before = branch.ids[..branch.scored_from as usize].to_vec();
            assert_eq!(before.last(), Some(&ANSWER));
            (branch.at, before)
        })
        .collect()
}

fn scored(plan: &MemoryScorePlan, probabilities: &[&[f32]]) -> Scored {
    assert_eq!(plan.request.branches.len(), probabilities.len());
    Scored {
        id: TrajectoryId::default(),
        trunk: Vec::new(),
        branches: probabilities
            .iter()
            .map(|branch| branch.iter().map(|p| p.ln()).collect())
            .collect(),
    }
}

fn near(ours: f32, theirs: f64) {
    assert!(
        (f64::from(ours) - theirs).abs() < 1e-5,
        "{ours} against {theirs}"
    );
}

#[test]
fn each_target_asks_for_its_own_contexts_and_for_none_twice() {
    let full = plan(&CreditSettings::mempo());
    let first = vec![OPEN, 10, 11, CLOSE, ANSWER];
    let second = vec![OPEN, 10, 11, 20, 21, CLOSE, ANSWER];
    let empty = vec![OPEN, CLOSE, ANSWER];
    assert_eq!(full.turns().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(
        contexts(&full),
        [
            (2, first.clone()),
            (11, vec![ANSWER]),
            (2, second.clone()),
            (20, vec![ANSWER])
        ]
    );
    let of = |target, first| {
        contexts(&plan(&CreditSettings {
            target,
            first,
            ..CreditSettings::mempo_prob()
        }))
    };
    // The notes of turn 0 are empty, and stand in their own place.
    assert_eq!(
        of(Target::MinusPrevious, First::Skip),
        [(2, first.clone()), (2, empty.clone()), (2, second.clone())]
    );
    assert_eq!(
        of(Target::MinusEmpty, First::Skip),
        [(2, first.clone()), (2, empty.clone()), (2, second.clone())]
    );
    assert_eq!(
        of(Target::Absolute, First::Skip),
        [(2, first.clone()), (2, second)]
    );
    let paid = of(Target::MinusFull, First::MinusEmpty);
    assert_eq!(paid[..2], [(2, empty.clone()), (2, empty)]);
    assert_eq!(paid.len(), 6);
}

#[test]
fn sub_answers_have_their_own_means_and_joined_ones_do_not() {
    let settings = CreditSettings {
        target: Target::Absolute,
        ..CreditSettings::per_answer()
    };
    let plan_each = plan(&settings);
    let scores: [&[f32]; 2] = [&[0.9, 0.4, 0.01, 0.01], &[0.9, 0.4, 0.5, 0.5]];
    let each = plan_each
        .rewards(&scored(&plan_each, &scores), &settings)
        .unwrap();
    near(each[0].reward, (0.6 + 0.01) / 2.0);
    near(each[1].reward, (0.6 + 0.5) / 2.0);
    let joined = CreditSettings {
        answers: Answers::JoinedFirstAlias,
        ..settings
    };
    let together = plan_each
        .rewards(&scored(&plan_each, &scores), &joined)
        .unwrap();
    near(together[0].reward, (0.36f64 * 1e-4).powf(0.25));
    assert_eq!(together[0].p_full, None);
    assert_eq!(together[1].notes_tokens, 4);
}

#[test]
fn the_best_alias_counts_on_each_side() {
    let settings = CreditSettings {
        answers: Answers::JoinedMaxAlias,
        target: Target::MinusEmpty,
        ..CreditSettings::mempo_prob()
    };
    let plan = plan(&settings);
    let golds: Vec<&[u32]> = plan.request.branches[..2]
        .iter()
        .map(|branch| &branch.ids[branch.scored_from as usize..])
        .collect();
    assert_eq!(golds, [&[10, 11, 20, 21][..], &[10, 11, 20, 22]]);
    let flat = |p: f32| vec![p; 4];
    let (low, high, guess) = (flat(0.2), flat(0.7), flat(0.3));
    // Notes of turn 1 know the second text, empty notes the first.
    let scores: [&[f32]; 6] = [&low, &high, &guess, &low, &high, &low];
    let rewards = plan.rewards(&scored(&plan, &scores), &settings).unwrap();
    near(rewards[0].reward, 0.4);
    near(rewards[0].p_memory, 0.7);
    near(rewards[0].p_empty.unwrap(), 0.3);
}

#[test]
fn a_guess_that_no_result_has_shown_earns_nothing_and_what_was_shown_does() {
    let settings = CreditSettings {
        support: Support::On,
        target: Target::MinusEmpty,
        ..CreditSettings::per_answer()
    };
    let plan = plan(&settings);
    let (half, low) = ([0.5f32; 4], [0.1f32; 4]);
    let scores: [&[f32]; 3] = [&half, &low, &half];
    let rewards = plan.rewards(&scored(&plan, &scores), &settings).unwrap();
    near(rewards[0].reward, 0.4);
    // 21 was never shown: only the first answer's gain is paid.
    near(rewards[1].reward, 0.2);
    let joined = CreditSettings {
        answers: Answers::JoinedFirstAlias,
        ..settings
    };
    let rewards = plan.rewards(&scored(&plan, &scores), &joined).unwrap();
    near(rewards[1].reward, 0.0);
    let losses: [&[f32]; 3] = [&low, &half, &low];
    let rewards = plan.rewards(&scored(&plan, &losses), &joined).unwrap();
    near(rewards[1].reward, -0.4);
}

#[test]
fn log_rewards_are_clipped_and_the_record_keeps_probabilities() {
    let settings = CreditSettings {
        space: Space::Log(1.0),
        threshold: Threshold::Off,
        ..CreditSettings::mempo()
    };
    let plan = plan(&settings);
    let (half, low) = ([0.5f32; 4], [0.01f32; 4]);
    let scores: [&[f32]; 4] = [&half, &low, &low, &half];
    let rewards: Vec<MemoryReward> = plan.rewards(&scored(&plan, &scores), &settings).unwrap();
    near(rewards[0].reward, 1.0);
    near(rewards[1].reward, -1.0);
    near(rewards[0].p_memory, 0.5);
    near(rewards[0].p_full.unwrap(), 0.01);
}

#[test]
fn the_scorer_is_named_in_the_request() {
    assert_eq!(
        plan(&CreditSettings::mempo()).request.under,
        Weights::Policy
    );
    let frozen = CreditSettings {
        scorer: Scorer::Frozen,
        ..CreditSettings::mempo()
    };
    assert_eq!(plan(&frozen).request.under, Weights::Reference);
    let average = CreditSettings {
        scorer: Scorer::Average(0.9),
        ..CreditSettings::mempo()
    };
    assert_eq!(plan(&average).request.under, Weights::Average);
}

#[test]
fn answers_without_tokens_and_missing_scores_are_refused_by_turn() {
    let id = TrajectoryId::default();
    let settings = CreditSettings::mempo();
    let mut spoiled = question();
    spoiled.gold_answers[1][0].ids.clear();
    let error = plan_memory_scores(id, &question(), &spoiled, &turns(), &settings).unwrap_err();
    assert!(
        matches!(
            error,
            CreditError::BadAnswer {
                turn: 1,
                answer: 1,
                ..
            }
        ),
        "{error}"
    );
    let none = QuestionData {
        prompt_ids: vec![1, 2],
        ..QuestionData::default()
    };
    let error = plan_memory_scores(id, &none, &none, &turns(), &settings).unwrap_err();
    assert!(
        matches!(error, CreditError::BadAnswer { answer: 0, .. }),
        "{error}"
    );
    let mut short = question();
    short.gold_ids.push(9);
    assert!(plan_memory_scores(id, &short, &short, &turns(), &settings).is_err());
    let plan = plan(&settings);
    let missing = Scored {
        id,
        trunk: Vec::new(),
        branches: vec![vec![-1.0; 4]],
    };
    assert_eq!(
        plan.rewards(&missing, &settings),
        Err(CreditError::MissingScores {
            turn: 1,
            got: 1,
            expected: 4
        })
    );
}

#[test]
fn a_turn_that_closed_no_notes_is_worth_what_empty_notes_are_if_asked_for() {
    let mut turns = turns();
    turns[2].spans.clear();
    let question = question();
    let of = |settings: &CreditSettings| {
        plan_memory_scores(
            TrajectoryId::default(),
            &question,
            &question,
            &turns,
            settings,
        )
        .unwrap()
        .unwrap()
    };
    assert_eq!(
        of(&CreditSettings::himpo()).turns().collect::<Vec<_>>(),
        [0, 1]
    );
    let settings = CreditSettings {
        unclosed: Unclosed::Empty,
        ..CreditSettings::himpo()
    };
    let plan = of(&settings);
    assert_eq!(plan.turns().collect::<Vec<_>>(), [0, 1, 2]);
    // Branches: the empty notes of turn 0, which those of turn 2 are too, the empty context, and turn 1.
    let at = |wanted: &[u32]| {
        let wanted = wanted.to_vec();
        contexts(&plan)
            .iter()
            .position(|(_, before)| *before == wanted)
            .unwrap()
    };
    let (known, empty) = (
        at(&[OPEN, 10, 11, CLOSE, ANSWER]),
        at(&[OPEN, CLOSE, ANSWER]),
    );
    let probabilities: Vec<&[f32]> = (0..plan.request.branches.len())
        .map(|branch| match branch {
            _ if branch == known => &[0.8, 0.8, 0.8, 0.8][..],
            _ if branch == empty => &[0.3, 0.3, 0.3, 0.3],
            _ => &[0.3, 0.3, 0.3, 0.3],
        })
        .collect();
    let rewards = plan
        .rewards(&scored(&plan, &probabilities), &settings)
        .unwrap();
    near(rewards[1].reward, 0.5);
    near(rewards[2].reward, -0.5);
    assert_eq!(rewards[2].notes_tokens, 0);
}

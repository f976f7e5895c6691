//! Generation: log-probs that scoring confirms, caches and batches that change nothing.
#![cfg(feature = "torch")]
#![allow(clippy::unwrap_used)]

#[path = "common/torch.rs"]
mod common;

use std::sync::Arc;

use common::{Ascii, engine, ids, settings, shape, supervised};
use palimpsest::engine::{
    Engine, EngineError, Finish, GenerateRequest, Generated, Sampling, ScoreRequest,
};
use palimpsest::experiment::EngineSettings;
use palimpsest::torch::TorchEngine;
use palimpsest::trajectory::TrajectoryId;

fn request(member: u32, turn: u32, context: Vec<u32>, most: u32) -> GenerateRequest {
    GenerateRequest {
        id: TrajectoryId {
            member,
            ..TrajectoryId::default()
        },
        turn,
        context,
        max_new_tokens: most,
        sampling: Sampling::plain(1.0, 11),
        stop: Arc::from(vec![]),
        ignore_eos: false,
    }
}

/// First turns of different lengths; some share their context.
fn first_turns() -> Vec<GenerateRequest> {
    (0..12u32)
        .map(|n| request(n, 0, ids(n / 3, 5 + 7 * (n as usize / 3)), 4 + 5 * (n % 5)))
        .collect()
}

/// Second turns: the first, and something after it; every fourth has another context altogether,
/// and every fifth only the beginning of the old one.
fn second_turns(first: &[GenerateRequest], written: &[Generated]) -> Vec<GenerateRequest> {
    first
        .iter()
        .zip(written)
        .map(|(before, turn)| {
            let n = before.id.member;
            let mut context = before.context.clone();
            if n % 5 != 4 {
                context.extend(&turn.ids);
            }
            context.extend(ids(50 + n, 3 + n as usize));
            if n % 4 == 3 {
                context = ids(70 + n, 30);
            }
            request(n, 1, context, 12)
        })
        .collect()
}

/// The log-probs that scoring gives to what was written.
fn rescored(engine: &mut TorchEngine, r: &GenerateRequest, turn: &Generated) -> Vec<f32> {
    let mut trunk = r.context.clone();
    trunk.extend(&turn.ids);
    let request = ScoreRequest {
        id: r.id,
        trunk,
        score_trunk: true,
        branches: vec![],
        temperature: r.sampling.temperature,
        under: Default::default(),
    };
    engine.score(&[request]).unwrap()[0].trunk[r.context.len()..].to_vec()
}

fn assert_same(a: &[Generated], b: &[Generated]) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        assert_eq!(
            (a.id, a.turn, &a.ids, a.finish),
            (b.id, b.turn, &b.ids, b.finish)
        );
        for (x, y) in a.logprobs.iter().zip(&b.logprobs) {
            assert!((x - y).abs() < 1e-4, "{x} against {y}");
        }
    }
}

#[test]
fn sampled_log_probs_are_those_of_scoring_over_ragged_turns() {
    let mut engine = engine(2);
    let mut turns = first_turns();
    turns[5].sampling.temperature = 0.6;
    turns[6].sampling.temperature = 0.0;
    let written = engine.generate(&turns).unwrap();
    let seconds = second_turns(&turns, &written);
    let again = engine.generate(&seconds).unwrap();
    for (r, turn) in turns.iter().zip(&written).chain(seconds.iter().zip(&again)) {
        assert_eq!((turn.id, turn.turn), (r.id, r.turn));
        assert_eq!(turn.ids.len(), r.max_new_tokens as usize);
        assert_eq!(turn.finish, Finish::Length);
        let expected = rescored(&mut engine, r, turn);
        for (sampled, scored) in turn.logprobs.iter().zip(expected) {
            assert!(
                (sampled - scored).abs() < 1e-4,
                "{}: {sampled} against {scored}",
                r.id
            );
        }
    }
}

#[test]
fn kept_caches_change_nothing() {
    let (mut keeping, mut forgetting) = (engine(2), engine(2));
    let turns = first_turns();
    let written = keeping.generate(&turns).unwrap();
    assert_same(&written, &forgetting.generate(&turns).unwrap());
    let everyone: Vec<TrajectoryId> = turns.iter().map(|r| r.id).collect();
    forgetting.release(&everyone);
    let seconds = second_turns(&turns, &written);
    assert_same(
        &keeping.generate(&seconds).unwrap(),
        &forgetting.generate(&seconds).unwrap(),
    );
}

#[test]
fn a_batch_writes_what_each_would_write_alone() {
    let (mut together, mut alone) = (engine(2), engine(2));
    let turns = first_turns();
    let written = together.generate(&turns).unwrap();
    let mut singles = Vec::new();
    for turn in &turns {
        singles.extend(alone.generate(std::slice::from_ref(turn)).unwrap());
    }
    assert_same(&written, &singles);

    let mut reversed = second_turns(&turns, &written);
    let forth = together.generate(&reversed).unwrap();
    reversed.reverse();
    let mut back = alone.generate(&reversed).unwrap();
    back.reverse();
    assert_same(&forth, &back);
}

#[test]
fn the_same_requests_give_the_same_bits() {
    let turns = first_turns();
    assert_eq!(
        engine(2).generate(&turns).unwrap(),
        engine(2).generate(&turns).unwrap()
    );
}

#[test]
fn members_of_a_group_write_different_turns_and_seeds_matter() {
    let mut engine = engine(2);
    let turns: Vec<_> = (0..3).map(|n| request(n, 0, ids(1, 9), 16)).collect();
    let mut written = engine.generate(&turns).unwrap();
    let mut reseeded = turns[2].clone();
    reseeded.sampling.seed = 12;
    written.extend(engine.generate(&[reseeded]).unwrap());
    for i in 0..4 {
        for j in 0..i {
            assert_ne!(written[i].ids, written[j].ids);
        }
    }
}

#[test]
fn sixty_four_greedy_turns_are_those_that_each_would_write_alone() {
    let (mut together, mut alone) = (engine(2), engine(2));
    let turns: Vec<_> = (0..64u32)
        .map(|n| {
            let mut turn = request(n, 0, ids(n / 8, 10 + 3 * (n as usize / 8)), 10 + n % 7);
            turn.sampling.temperature = 0.0;
            turn
        })
        .collect();
    let written = together.generate(&turns).unwrap();
    for (turn, written) in turns.iter().zip(&written) {
        let single = alone.generate(std::slice::from_ref(turn)).unwrap();
        assert_same(std::slice::from_ref(written), &single);
        alone.release(&[turn.id]);
    }
}

#[test]
fn turns_that_join_while_others_run_change_nothing() {
    let (mut closed, mut open) = (engine(2), engine(2));
    let turns = first_turns();
    let expected = closed.generate(&turns).unwrap();
    let mut written = Vec::new();
    for turn in turns {
        open.submit(vec![turn]).unwrap();
        for _ in 0..3 {
            written.extend(open.step().unwrap());
        }
    }
    assert!(!written.is_empty() && open.unfinished() > 0);
    while open.unfinished() > 0 {
        written.extend(open.step().unwrap());
    }
    written.sort_by_key(|turn| turn.id);
    assert_same(&expected, &written);
}

#[test]
fn a_cache_that_is_too_small_for_all_changes_nothing() {
    // One block of two layers: keys and values of 16 positions, 2 heads of 8 floats.
    const BLOCK: u64 = 2 * 2 * 16 * 2 * 8 * 4;
    let small = EngineSettings {
        cache_bytes: 14 * BLOCK,
        ..settings()
    };
    let mut tight = TorchEngine::new(&shape(), 2, Arc::new(Ascii), &small).unwrap();
    let mut ample = engine(2);
    let turns: Vec<_> = (0..10u32)
        .map(|n| request(n, 0, ids(n / 2, 30 + n as usize), 70))
        .collect();
    let expected = ample.generate(&turns).unwrap();
    assert_same(&expected, &tight.generate(&turns).unwrap());
    assert_eq!(ample.preempted(), 0);
    assert!(tight.preempted() > 0);
    let seconds = second_turns(&turns, &expected);
    assert_same(
        &ample.generate(&seconds).unwrap(),
        &tight.generate(&seconds).unwrap(),
    );

    let never = request(0, 2, ids(0, 200), 40);
    let error = tight.submit(vec![never]).unwrap_err();
    assert!(matches!(error, EngineError::BadRequest(_)));
    let text = error.to_string();
    for part in [
        "turn 2 of trajectory 0/0/0",
        "200 ids",
        "224",
        "engine.cache_bytes",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert_eq!(tight.unfinished(), 0);
}

#[test]
fn shaped_sampling_does_not_depend_on_the_batch_and_stays_within_the_cuts() {
    let (mut together, mut alone) = (engine(2), engine(2));
    let mut turns = first_turns();
    for (n, turn) in turns.iter_mut().enumerate() {
        turn.sampling.temperature = 1.2;
        match n % 5 {
            0 => turn.sampling.top_k = 1,
            1 => turn.sampling.top_p = 0.5,
            2 => turn.sampling.min_p = 0.3,
            3 => turn.sampling.repetition_penalty = 1.3,
            _ => {}
        }
    }
    let written = together.generate(&turns).unwrap();
    for (turn, written) in turns.iter().zip(&written) {
        let single = alone.generate(std::slice::from_ref(turn)).unwrap();
        assert_same(std::slice::from_ref(written), &single);
        let scored = rescored(&mut alone, turn, written);
        for (sampled, scored) in written.logprobs.iter().zip(scored) {
            assert!(
                (sampled - scored).abs() < 1e-4,
                "{sampled} against {scored}"
            );
        }
    }
    // The likeliest id alone is what greedy sampling takes.
    let mut greedy = turns[0].clone();
    greedy.sampling = Sampling::plain(0.0, 0);
    alone.release(&[greedy.id]);
    assert_eq!(alone.generate(&[greedy]).unwrap()[0].ids, written[0].ids);
}

#[test]
fn released_turns_are_never_given_out_and_others_go_on() {
    let (mut engine, mut whole) = (engine(2), engine(2));
    let turns = first_turns();
    let expected = whole.generate(&turns).unwrap();
    engine.submit(turns.clone()).unwrap();
    let early = engine.step().unwrap();
    assert!(early.is_empty());
    let gone: Vec<TrajectoryId> = turns[4..].iter().map(|turn| turn.id).collect();
    assert_eq!(engine.release(&gone), 8);
    let mut written = Vec::new();
    while engine.unfinished() > 0 {
        written.extend(engine.step().unwrap());
    }
    written.sort_by_key(|turn| turn.id);
    assert_same(&expected[..4], &written);
}

#[test]
fn a_stop_string_ends_the_turn_with_the_id_that_completes_it() {
    let mut engine = engine(2);
    let plain = request(0, 0, ids(1, 9), 40);
    let whole = engine.generate(std::slice::from_ref(&plain)).unwrap();
    let text = |ids: &[u32]| -> String { ids.iter().map(|&id| (32 + id as u8) as char).collect() };
    let written = text(&whole[0].ids);
    let stop = written[17..20].to_owned();
    let expected = written.find(&stop).unwrap() + 3;
    let mut stopped = plain;
    stopped.stop = Arc::from(vec!["not in there".to_owned(), stop]);
    let turn = engine.generate(&[stopped]).unwrap().remove(0);
    assert_eq!(turn.finish, Finish::Stop);
    assert_eq!(turn.ids, whole[0].ids[..expected]);
    assert_eq!(turn.logprobs.len(), turn.ids.len());
}

#[test]
fn the_context_limit_ends_a_turn_and_refuses_a_context_without_room() {
    let mut engine = engine(2);
    let turns = vec![
        request(0, 0, ids(1, 250), 40),
        request(1, 0, ids(2, 10), 0),
        request(2, 0, ids(3, 255), 3),
    ];
    let written = engine.generate(&turns).unwrap();
    let lengths: Vec<usize> = written.iter().map(|turn| turn.ids.len()).collect();
    assert_eq!(lengths, [6, 0, 1]);
    assert!(written.iter().all(|turn| turn.finish == Finish::Length));

    for (context, problem) in [
        (vec![1; 256], "256 ids"),
        (vec![1; 400], "400 ids"),
        (vec![], "0 ids"),
        (vec![1, 96], "id 96"),
    ] {
        let error = engine.generate(&[request(7, 3, context, 4)]).unwrap_err();
        assert!(matches!(error, EngineError::BadRequest(_)));
        let text = error.to_string();
        assert!(
            text.contains("turn 3 of trajectory 0/0/7") && text.contains(problem),
            "{text}"
        );
    }
    let mut cold = request(7, 3, vec![1], 4);
    cold.sampling.temperature = -1.0;
    let text = engine.generate(&[cold]).unwrap_err().to_string();
    assert!(text.contains("temperature is -1"), "{text}");
}

#[test]
fn training_makes_kept_caches_void() {
    let mut trained = engine(2);
    let turns = first_turns();
    let written = trained.generate(&turns).unwrap();
    trained.supervise(&supervised(0, 0.02, 0.0)).unwrap();
    let seconds = second_turns(&turns, &written);
    let mut fresh = engine(2);
    fresh.supervise(&supervised(0, 0.02, 0.0)).unwrap();
    assert_eq!(
        trained.generate(&seconds).unwrap(),
        fresh.generate(&seconds).unwrap()
    );
}

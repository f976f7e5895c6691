//! How long credit takes for one large step: outcome and memory advantages of 2,048 trajectories of
//! 8 turns, laid over their 4,096 tokens each, on one core. Prints one JSON object.
//!
//! `with_tokens_ms` is the whole of it, into the lists of the step before; `tokens_in_fresh_memory_ms`
//! lays the tokens out in 100 MB that the system has to hand over first, which is what that measures.
//!
//! `cargo bench --no-default-features --bench credit`

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use palimpsest::credit::group::{Estimator, GroupScores, outcome_advantages};
use palimpsest::credit::memory::{self, RoundReward};
use palimpsest::credit::spread::{TokenCredit, token_credit, token_credit_into};
use palimpsest::experiment::Baseline;
use palimpsest::trajectory::{Advantages, Row};

const QUESTIONS: usize = 128;
const MEMBERS: usize = 16;
const TURNS: usize = 8;
const TURN_TOKENS: usize = 512;
const OBSERVATION: usize = 96;
const NOTES: usize = 64;
const RUNS: usize = 21;

/// One trajectory: in every turn notes, other sampled tokens, then an observation.
fn row() -> Row {
    let length = TURNS * TURN_TOKENS;
    let sampled = |at: usize| at % TURN_TOKENS < TURN_TOKENS - OBSERVATION;
    let notes = |turn: usize| {
        let start = turn * TURN_TOKENS;
        (turn as u32, start as u32, (start + NOTES) as u32)
    };
    Row {
        ids: vec![0; length],
        mask: (0..length).map(sampled).collect(),
        notes: (0..TURNS).map(notes).collect(),
        ..Row::default()
    }
}

/// Outcome and memory advantages of every trajectory.
fn advantages(
    scores: &[Vec<f64>],
    lengths: &[u32],
    rewards: &[Vec<Vec<RoundReward>>],
) -> Vec<Advantages> {
    let groups: Vec<GroupScores<'_>> = scores
        .iter()
        .map(|scores| GroupScores { scores, lengths })
        .collect();
    let outcomes = outcome_advantages(Estimator::Grpo, &groups).unwrap();
    let mut all = Vec::with_capacity(QUESTIONS * MEMBERS);
    for (outcomes, rounds) in outcomes.iter().zip(rewards) {
        let values = memory::advantages(rounds, Baseline::Pooled, true).unwrap();
        for ((outcome, rounds), values) in outcomes.iter().zip(rounds).zip(values) {
            let turns = rounds.iter().map(|round| round.turn);
            all.push(Advantages {
                outcome: *outcome as f32,
                memory: turns
                    .zip(values.iter().map(|&value| value as f32))
                    .collect(),
            });
        }
    }
    all
}

/// Milliseconds of the fastest and of the middle run.
fn measure(mut run: impl FnMut()) -> (f64, f64) {
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[0], times[RUNS / 2])
}

fn main() {
    let number = |at: usize| (at * 2_654_435_761 % 1_000) as f64 / 1_000.0;
    let scores: Vec<Vec<f64>> = (0..QUESTIONS)
        .map(|q| {
            (0..MEMBERS)
                .map(|m| number(q * MEMBERS + m).round())
                .collect()
        })
        .collect();
    let lengths = vec![(TURNS * (TURN_TOKENS - OBSERVATION)) as u32; MEMBERS];
    let rounds = |id: usize| -> Vec<RoundReward> {
        let round = |turn: usize| RoundReward {
            turn: turn as u32,
            reward: number(id * TURNS + turn) - 0.5,
        };
        (1..TURNS).map(round).collect()
    };
    let rewards: Vec<Vec<Vec<RoundReward>>> = (0..QUESTIONS)
        .map(|q| (0..MEMBERS).map(|m| rounds(q * MEMBERS + m)).collect())
        .collect();
    let rows: Vec<Row> = (0..QUESTIONS * MEMBERS).map(|_| row()).collect();

    let made = advantages(&scores, &lengths, &rewards);
    let groups = measure(|| {
        black_box(advantages(black_box(&scores), &lengths, &rewards));
    });
    let mut step: Vec<TokenCredit> = vec![TokenCredit::default(); rows.len()];
    let mut all = || {
        let made = advantages(black_box(&scores), &lengths, &rewards);
        for ((row, advantages), credit) in rows.iter().zip(&made).zip(&mut step) {
            token_credit_into(row, advantages, credit).unwrap();
        }
        black_box(&step);
    };
    all();
    let again = measure(all);
    let fresh = measure(|| {
        let of = |(row, advantages)| token_credit(row, advantages).unwrap();
        let all: Vec<TokenCredit> = rows.iter().zip(&made).map(of).collect();
        black_box(all);
    });
    println!(
        "{{\"bench\": \"credit\", \"trajectories\": {}, \"turns\": {TURNS}, \"tokens\": {}, \
         \"runs\": {RUNS}, \"advantages_ms\": {{\"best\": {:.3}, \"median\": {:.3}}}, \
         \"with_tokens_ms\": {{\"best\": {:.3}, \"median\": {:.3}}}, \
         \"tokens_in_fresh_memory_ms\": {{\"best\": {:.3}, \"median\": {:.3}}}}}",
        QUESTIONS * MEMBERS,
        TURNS * TURN_TOKENS,
        groups.0,
        groups.1,
        again.0,
        again.1,
        fresh.0,
        fresh.1,
    );
}

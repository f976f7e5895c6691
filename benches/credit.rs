//! How long credit takes for one large step, on the learner's own path: outcome and memory advantages
//! of 2,048 trajectories of 8 turns, laid by source over their 4,096 tokens each, on one core. Prints
//! one JSON object.
//!
//! `step_ms` is the whole of it as a run does it from its second step on, into the lists of the step
//! before; `first_step_ms` is the one step before those, which lays it out in 100 MB that the system has
//! to hand over first. With `kl_step_ms` the KL in the reward is a source of its own. `cpu` is what the
//! core spent on a step, on average over the steps (Linux tells it, others print null): on a machine that
//! is shared the clock counts the others' work too.
//!
//! `cargo bench --no-default-features --bench credit`

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use palimpsest::credit::assign::{CreditContext, Rewards, credit_step};
use palimpsest::credit::memory::MemoryCreditState;
use palimpsest::credit::spread::TokenCredit;
use palimpsest::experiment::CreditSettings;
use palimpsest::learner::{PackedRow, pack_rows};
use palimpsest::trajectory::{Advantages, MemoryReward, Row, TrajectoryId};

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
        turn: (0..length).map(|at| (at / TURN_TOKENS) as u32).collect(),
        notes: (0..TURNS).map(notes).collect(),
        ..Row::default()
    }
}

fn number(at: usize) -> f64 {
    (at * 2_654_435_761 % 1_000) as f64 / 1_000.0
}

/// What rollout `id` earned; with its KLs if they cost something.
fn rewards(id: usize, kl: bool) -> Rewards {
    let round = |turn: usize| MemoryReward {
        turn: turn as u32,
        reward: (number(id * TURNS + turn) - 0.5) as f32,
        notes_tokens: NOTES as u32,
        ..MemoryReward::default()
    };
    let sampled = TURN_TOKENS - OBSERVATION;
    Rewards {
        outcome: number(id).round(),
        memory: (1..TURNS).map(round).collect(),
        sampled: vec![sampled as u32; TURNS],
        kl: if kl {
            vec![vec![0.01; sampled]; TURNS]
        } else {
            Vec::new()
        },
    }
}

/// Advantages of all trajectories, as the system of credit has them made.
fn advantages(groups: &[Vec<Rewards>], kl_weight: f64) -> Vec<Advantages> {
    let context = CreditContext {
        settings: &CreditSettings::mempo_prob(),
        step: 0,
        kl_weight,
        state: &MemoryCreditState::default(),
    };
    let groups = credit_step(groups, context).unwrap().groups;
    groups.into_iter().flatten().collect()
}

/// The rows of all trajectories with their credit, as the learner has them packed.
fn pack(rows: Vec<Row>, all: &[Advantages], spare: &mut Vec<TokenCredit>) -> Vec<PackedRow> {
    let mut packed = Vec::with_capacity(rows.len());
    for (row, advantages) in rows.into_iter().zip(all) {
        let id = TrajectoryId::default();
        packed.extend(pack_rows(id, vec![row], advantages, spare).unwrap());
    }
    packed
}

/// Milliseconds that this thread has been running, if the system tells.
fn cpu_ms() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanoseconds / 1e6)
}

/// Milliseconds of steps.
struct Times {
    first: f64,
    best: f64,
    median: f64,
    cpu: Option<f64>,
}

/// Times the first step, and those after it, which the lists of the step before serve.
fn measure(groups: &[Vec<Rewards>], kl_weight: f64) -> Times {
    let mut rows: Vec<Row> = (0..QUESTIONS * MEMBERS).map(|_| row()).collect();
    let mut spare: Vec<TokenCredit> = Vec::new();
    let mut times = Vec::new();
    let mut cpu = Some(0.0);
    for run in 0..=RUNS {
        let before = cpu_ms();
        let start = Instant::now();
        let all = advantages(black_box(groups), kl_weight);
        let packed = black_box(pack(std::mem::take(&mut rows), &all, &mut spare));
        times.push(start.elapsed().as_secs_f64() * 1e3);
        if run > 0 {
            let spent = cpu_ms().zip(before).map(|(after, before)| after - before);
            cpu = cpu.zip(spent).map(|(sum, spent)| sum + spent);
        }
        for packed in packed {
            rows.push(packed.row);
            spare.push(packed.credit);
        }
    }
    let first = times.remove(0);
    times.sort_by(f64::total_cmp);
    Times {
        first,
        best: times[0],
        median: times[RUNS / 2],
        cpu: cpu.map(|sum| sum / RUNS as f64),
    }
}

fn main() {
    let groups = |kl: bool| -> Vec<Vec<Rewards>> {
        (0..QUESTIONS)
            .map(|q| (0..MEMBERS).map(|m| rewards(q * MEMBERS + m, kl)).collect())
            .collect()
    };
    let plain = groups(false);
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            black_box(advantages(black_box(&plain), 0.0));
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let step = measure(&plain, 0.0);
    let kl = measure(&groups(true), 0.001);
    let of = |times: &Times| {
        let cpu = times
            .cpu
            .map_or("null".to_owned(), |cpu| format!("{cpu:.3}"));
        let (best, median) = (times.best, times.median);
        format!("{{\"best\": {best:.3}, \"median\": {median:.3}, \"cpu\": {cpu}}}")
    };
    println!(
        "{{\"bench\": \"credit\", \"trajectories\": {}, \"turns\": {TURNS}, \"tokens\": {}, \
         \"runs\": {RUNS}, \"advantages_ms\": {{\"best\": {:.3}, \"median\": {:.3}}}, \
         \"first_step_ms\": {:.3}, \"step_ms\": {}, \"kl_step_ms\": {}}}",
        QUESTIONS * MEMBERS,
        TURNS * TURN_TOKENS,
        times[0],
        times[RUNS / 2],
        step.first,
        of(&step),
        of(&kl),
    );
}

use std::sync::Arc;

use super::*;
use crate::engine::{EngineError as Error, Sampling};

const LIMITS: StepLimits = StepLimits {
    rows: 8,
    tokens: 64,
};

struct Wordless;

impl Vocabulary for Wordless {
    fn size(&self) -> usize {
        1000
    }
    fn bytes(&self, _: TokenId) -> &[u8] {
        b"x"
    }
    fn save(&self, _: &std::path::Path) -> Result<(), Error> {
        Ok(())
    }
}

fn request(member: u32, turn: u32, context: Vec<TokenId>, most: u32) -> GenerateRequest {
    GenerateRequest {
        id: TrajectoryId {
            member,
            ..TrajectoryId::default()
        },
        turn,
        context,
        max_new_tokens: most,
        sampling: Sampling::plain(1.0, 0),
        stop: Arc::from(vec![]),
        ignore_eos: false,
    }
}

fn ids(seed: u32, length: usize) -> Vec<TokenId> {
    (0..length as u32)
        .map(|i| (seed * 131 + i * 7) % 997)
        .collect()
}

/// What a turn samples after the ids it has.
fn next_id(ids: &[TokenId]) -> TokenId {
    let sum: u32 = ids.iter().fold(7, |sum, &id| sum.wrapping_mul(31) + id);
    sum % 997
}

/// A stand-in for a step of the engine: it checks that every turn reads only blocks in which its own ids
/// were written, and samples.
#[derive(Default)]
struct Machine {
    /// What was written to each slot.
    slots: BTreeMap<(u32, usize), TokenId>,
    steps: usize,
    ran: usize,
}

impl Machine {
    fn step(&mut self, scheduler: &mut Scheduler) -> Vec<Generated> {
        let work = scheduler.plan();
        assert!(work.iter().map(|w| w.count).sum::<usize>() <= LIMITS.tokens + LIMITS.rows);
        self.steps += 1;
        for w in &work {
            let turn = &scheduler.running()[w.turn];
            for at in w.start..w.start + w.count {
                let block = turn.cached.table[at / BLOCK];
                self.slots.insert((block, at % BLOCK), turn.ids[at]);
                self.ran += 1;
            }
        }
        let mut sampled = Vec::new();
        for w in &work {
            let turn = &scheduler.running()[w.turn];
            for at in 0..w.start + w.count {
                let slot = (turn.cached.table[at / BLOCK], at % BLOCK);
                assert_eq!(self.slots.get(&slot), Some(&turn.ids[at]), "position {at}");
            }
            if turn.pending() == 0 {
                sampled.push((w.turn, next_id(&turn.ids), -1.0, false));
            }
        }
        scheduler.take(&sampled, &Wordless)
    }

    fn finish(&mut self, scheduler: &mut Scheduler) -> Vec<Generated> {
        let mut turns = Vec::new();
        while scheduler.unfinished() > 0 {
            assert!(self.steps < 10_000, "the scheduler makes no progress");
            turns.extend(self.step(scheduler));
        }
        turns.sort_by_key(|turn| turn.id);
        turns
    }
}

fn assert_written(request: &GenerateRequest, turn: &Generated) {
    let mut ids = request.context.clone();
    for &id in &turn.ids {
        assert_eq!(id, next_id(&ids));
        ids.push(id);
    }
    assert_eq!(turn.ids.len(), request.max_new_tokens as usize);
}

#[test]
fn turns_join_and_leave_at_every_step() {
    let mut scheduler = Scheduler::new(100, 1000, LIMITS);
    let mut machine = Machine::default();
    scheduler.submit(vec![request(0, 0, ids(0, 5), 6)]).unwrap();
    assert!(machine.step(&mut scheduler).is_empty());
    scheduler.submit(vec![request(1, 0, ids(1, 9), 2)]).unwrap();
    let mut order = Vec::new();
    while scheduler.unfinished() > 0 {
        order.extend(
            machine
                .step(&mut scheduler)
                .iter()
                .map(|turn| turn.id.member),
        );
    }
    assert_eq!((order, machine.steps), (vec![1, 0], 6));
}

#[test]
fn the_next_turn_runs_only_what_is_new() {
    let mut scheduler = Scheduler::new(100, 1000, LIMITS);
    let mut machine = Machine::default();
    let first = request(0, 0, ids(0, 37), 9);
    scheduler.submit(vec![first.clone()]).unwrap();
    let turn = machine.finish(&mut scheduler).remove(0);
    assert_written(&first, &turn);
    assert_eq!(machine.ran, 37 + 8);
    // The turn's last id, a tool's 5, and the new turn's.
    let context = [first.context, turn.ids, ids(9, 5)].concat();
    let second = request(0, 1, context, 3);
    machine.ran = 0;
    scheduler.submit(vec![second.clone()]).unwrap();
    assert_written(&second, &machine.finish(&mut scheduler)[0]);
    assert_eq!(machine.ran, 1 + 5 + 2);
}

#[test]
fn a_group_computes_its_prompt_once() {
    let mut scheduler = Scheduler::new(100, 1000, LIMITS);
    let mut machine = Machine::default();
    let prompt = ids(0, 40);
    let turns: Vec<_> = (0..6).map(|n| request(n, 0, prompt.clone(), 1)).collect();
    scheduler.submit(turns).unwrap();
    machine.finish(&mut scheduler);
    // Two whole blocks are shared; the rest, whose last id gives the logits, runs for each.
    assert_eq!((machine.ran, machine.steps), (40 + 5 * 8, 2));
    // One who comes later finds them too.
    machine.ran = 0;
    scheduler.submit(vec![request(9, 0, prompt, 1)]).unwrap();
    machine.finish(&mut scheduler);
    assert_eq!(machine.ran, 8);
}

#[test]
fn long_contexts_are_read_in_pieces_while_others_go_on() {
    let mut scheduler = Scheduler::new(100, 1000, LIMITS);
    let mut machine = Machine::default();
    scheduler
        .submit(vec![request(0, 0, ids(0, 4), 20)])
        .unwrap();
    machine.step(&mut scheduler);
    scheduler
        .submit(vec![request(1, 0, ids(1, 300), 2)])
        .unwrap();
    for _ in 0..4 {
        machine.step(&mut scheduler);
        let pending: Vec<usize> = scheduler.running().iter().map(Sequence::pending).collect();
        assert_eq!(pending[0], 1);
        assert!(pending[1] > 40);
    }
    let turns = machine.finish(&mut scheduler);
    assert_written(&request(0, 0, ids(0, 4), 20), &turns[0]);
    assert_written(&request(1, 0, ids(1, 300), 2), &turns[1]);
}

#[test]
fn preempted_turns_write_what_they_would_have_written() {
    // 20 blocks for 6 turns that need up to 7 each.
    let mut scheduler = Scheduler::new(20, 1000, LIMITS);
    let mut machine = Machine::default();
    let mut requests: Vec<_> = (0..6)
        .map(|n| request(n, 0, ids(n / 2, 20 + n as usize), 60 + n))
        .collect();
    for turn in 0..3 {
        scheduler.submit(requests.clone()).unwrap();
        let written = machine.finish(&mut scheduler);
        assert_eq!(written.len(), 6);
        for (request, turn) in requests.iter().zip(&written) {
            assert_written(request, turn);
        }
        requests = requests
            .iter()
            .zip(&written)
            .map(|(before, written)| {
                // Half go on, half begin with something else after the first ids.
                let keep = if before.id.member % 2 == 0 { 1000 } else { 9 };
                let mut context: Vec<_> = [&before.context[..], &written.ids].concat();
                context.truncate(keep);
                context.extend(ids(50 + turn, 7));
                request(before.id.member, turn + 1, context, 40)
            })
            .collect();
    }
    assert!(scheduler.preempted() > 0);
    let everyone: Vec<_> = requests.iter().map(|r| r.id).collect();
    assert_eq!(scheduler.release(&everyone), 0);
    assert_eq!(scheduler.blocks.available(), 20);
}

#[test]
fn a_turn_that_needs_the_whole_cache_gets_it() {
    let mut scheduler = Scheduler::new(8, 1000, LIMITS);
    let mut machine = Machine::default();
    let requests = vec![
        request(0, 0, ids(0, 28), 100),
        request(1, 0, ids(1, 100), 28),
        request(2, 0, ids(2, 1), 1),
    ];
    scheduler.submit(requests.clone()).unwrap();
    let written = machine.finish(&mut scheduler);
    for (request, turn) in requests.iter().zip(&written) {
        assert_written(request, turn);
    }
}

#[test]
fn a_turn_that_can_never_fit_is_refused_and_none_of_its_batch_is_taken() {
    let mut scheduler = Scheduler::new(8, 1000, LIMITS);
    let batch = vec![request(0, 0, ids(0, 5), 4), request(1, 2, ids(1, 120), 9)];
    let error = scheduler.submit(batch).unwrap_err().to_string();
    for part in [
        "turn 2 of trajectory 0/0/1",
        "120 ids",
        "129",
        "128",
        "engine.cache_bytes",
    ] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(scheduler.unfinished(), 0);
    scheduler.submit(vec![request(0, 0, ids(0, 5), 4)]).unwrap();
    let error = scheduler
        .submit(vec![request(0, 1, ids(0, 5), 4)])
        .unwrap_err();
    assert!(error.to_string().contains("is under way"), "{error}");
}

#[test]
fn released_trajectories_leave_nothing_and_are_never_given_out() {
    let mut scheduler = Scheduler::new(30, 1000, LIMITS);
    let mut machine = Machine::default();
    let requests: Vec<_> = (0..12).map(|n| request(n, 0, ids(n, 30), 9)).collect();
    scheduler.submit(requests.clone()).unwrap();
    machine.step(&mut scheduler);
    let gone: Vec<_> = requests[1..].iter().map(|r| r.id).collect();
    assert_eq!(scheduler.release(&gone), 11);
    let turns = machine.finish(&mut scheduler);
    assert_eq!(turns.len(), 1);
    assert_written(&requests[0], &turns[0]);
    assert_eq!(scheduler.release(&[requests[0].id]), 0);
    assert_eq!(scheduler.blocks.available(), 30);
}

#[test]
fn turns_go_on_after_the_caches_are_forgotten() {
    let mut scheduler = Scheduler::new(30, 1000, LIMITS);
    let mut machine = Machine::default();
    let requests: Vec<_> = (0..3).map(|n| request(n, 0, ids(n, 30), 9)).collect();
    scheduler.submit(requests.clone()).unwrap();
    for _ in 0..4 {
        machine.step(&mut scheduler);
    }
    scheduler.forget_caches();
    machine.slots.clear();
    let turns = machine.finish(&mut scheduler);
    for (request, turn) in requests.iter().zip(&turns) {
        assert_written(request, turn);
    }
}

//! Who runs in the next step. Turns wait, run, and leave their cache to the next turn of their
//! trajectory. When blocks run out, caches that nobody uses are dropped first, then the youngest turn is
//! sent back to wait; what it lost is computed again. Pure: it moves numbers of blocks, not what is in
//! them.

use std::collections::{BTreeMap, VecDeque};

use crate::engine::{EngineError, Finish, GenerateRequest, Generated};
use crate::trajectory::{TokenId, TrajectoryId};

use super::blocks::Blocks;
use super::paged::BLOCK;
use super::sequence::{Cached, Sequence, most_new};
use super::vocabulary::Vocabulary;

/// What one step may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepLimits {
    /// Most turns side by side.
    pub rows: usize,
    /// Most ids in one pass; longer contexts are read in pieces.
    pub tokens: usize,
}

/// What a turn does in a step: its ids from `start` on, `count` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    /// Number of the running turn.
    pub turn: usize,
    /// First id.
    pub start: usize,
    /// Number of ids.
    pub count: usize,
}

/// The cache of a trajectory's finished turn.
struct Kept {
    ids: Vec<TokenId>,
    cached: Cached,
    /// When it was left: the oldest goes first.
    since: u64,
}

/// Turns that wait, run or are over.
pub(super) struct Scheduler {
    blocks: Blocks,
    limits: StepLimits,
    /// The longest context.
    room: usize,
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
    kept: BTreeMap<TrajectoryId, Kept>,
    /// Turns that were over before they began.
    done: Vec<Generated>,
    time: u64,
    preempted: u64,
}

impl Scheduler {
    /// A cache of `blocks` blocks, for contexts of at most `room` ids.
    pub fn new(blocks: usize, room: usize, limits: StepLimits) -> Self {
        Self {
            blocks: Blocks::new(blocks),
            limits,
            room,
            waiting: VecDeque::new(),
            running: Vec::new(),
            kept: BTreeMap::new(),
            done: Vec::new(),
            time: 0,
            preempted: 0,
        }
    }

    /// Turns that were not given out.
    pub fn unfinished(&self) -> usize {
        self.waiting.len() + self.running.len() + self.done.len()
    }

    /// How often a turn lost its cache to another.
    pub fn preempted(&self) -> u64 {
        self.preempted
    }

    /// Blocks of the cache.
    pub fn blocks(&self) -> usize {
        self.blocks.total()
    }

    /// The turns that run.
    pub fn running(&self) -> &[Sequence] {
        &self.running
    }

    /// Takes turns in, all or none.
    ///
    /// # Errors
    /// [`EngineError::BadRequest`] for a turn that could never fit into the cache, or whose trajectory
    /// has an unfinished turn.
    pub fn submit(&mut self, requests: Vec<GenerateRequest>) -> Result<(), EngineError> {
        let under_way = self.waiting.iter().chain(&self.running);
        let mut busy: std::collections::BTreeSet<TrajectoryId> =
            under_way.map(|turn| turn.request.id).collect();
        for request in &requests {
            let what = format!("turn {} of trajectory {}", request.turn, request.id);
            if !busy.insert(request.id) {
                return Err(EngineError::BadRequest(format!(
                    "{what}: a turn of this trajectory is under way; one turn comes after the other"
                )));
            }
            let most = request.context.len() + most_new(request, self.room);
            if most.div_ceil(BLOCK) > self.blocks.total() {
                return Err(EngineError::BadRequest(format!(
                    "{what}: its context of {} ids may grow to {most}, but the cache holds {} in all; \
                     raise engine.cache_bytes, or shorten contexts",
                    request.context.len(),
                    self.blocks.total() * BLOCK
                )));
            }
        }
        for request in requests {
            let mut turn = Sequence::new(request, self.room);
            if turn.is_empty() {
                self.done.push(turn.generated(Finish::Length));
                continue;
            }
            self.take_kept(&mut turn);
            self.waiting.push_back(turn);
        }
        Ok(())
    }

    /// Says what runs now, takes the blocks for it, and counts its ids as computed. Blocks that this step
    /// fills can be shared by turns that join in the same step: they are written before they are read.
    pub fn plan(&mut self) -> Vec<Work> {
        let mut work = Vec::new();
        let mut left = self.limits.tokens;
        let mut turn = 0;
        while turn < self.running.len() {
            let count = match self.running[turn].pending() {
                1 => 1,
                pending => pending.min(left),
            };
            if count > 0 {
                if !self.make_room(turn, count) {
                    break;
                }
                work.push(self.advance(turn, count));
                left = left.saturating_sub(count);
            }
            turn += 1;
        }
        while left > 0 && self.running.len() < self.limits.rows {
            let Some(mut next) = self.waiting.pop_front() else {
                break;
            };
            self.share_known(&mut next);
            // Its whole context must fit. Turns that run will soon need a block more each, which who joins
            // must not take from them.
            let spare = self.running.len();
            let needed = self.missing(&next, next.pending()) + spare;
            while needed > self.blocks.available()
                && (self.drop_kept() || (spare == 0 && self.drop_waiting()))
            {}
            if needed > self.blocks.available() {
                self.waiting.push_front(next);
                break;
            }
            let count = next.pending().min(left);
            self.running.push(next);
            work.push(self.advance(spare, count));
            left -= count;
        }
        work
    }

    /// Takes what was sampled for running turns, (turn, id, log-prob, whether it ends the text), in
    /// ascending order; gives the turns that are over.
    pub fn take(
        &mut self,
        sampled: &[(usize, TokenId, f32, bool)],
        vocabulary: &dyn Vocabulary,
    ) -> Vec<Generated> {
        let mut over = std::mem::take(&mut self.done);
        let mut ended = Vec::new();
        for &(turn, id, logprob, ends) in sampled {
            let Some(sequence) = self.running.get_mut(turn) else {
                continue;
            };
            if let Some(finish) = sequence.push(id, logprob, ends, vocabulary) {
                over.push(sequence.generated(finish));
                ended.push(turn);
            }
        }
        for turn in ended.into_iter().rev() {
            let mut sequence = self.running.remove(turn);
            // The last id was not run.
            sequence.ids.truncate(sequence.cached.computed);
            self.time += 1;
            let kept = Kept {
                ids: sequence.ids,
                cached: sequence.cached,
                since: self.time,
            };
            if let Some(old) = self.kept.insert(sequence.request.id, kept) {
                self.blocks.give_back(&old.cached.table);
            }
        }
        over
    }

    /// Forgets trajectories; says how many of their turns were unfinished.
    pub fn release(&mut self, trajectories: &[TrajectoryId]) -> usize {
        let before = self.unfinished();
        for id in trajectories {
            if let Some(kept) = self.kept.remove(id) {
                self.blocks.give_back(&kept.cached.table);
            }
        }
        let gone: std::collections::BTreeSet<_> = trajectories.iter().copied().collect();
        let blocks = &mut self.blocks;
        let mut stays = |turn: &Sequence| {
            let stays = !gone.contains(&turn.request.id);
            if !stays {
                blocks.give_back(&turn.cached.table);
            }
            stays
        };
        self.waiting.retain(&mut stays);
        self.running.retain(stays);
        self.done.retain(|turn| !gone.contains(&turn.id));
        before - self.unfinished()
    }

    /// Forgets everything that was computed; unfinished turns begin again with the ids they have.
    pub fn forget_caches(&mut self) {
        self.blocks = Blocks::new(self.blocks.total());
        self.kept.clear();
        for turn in self.running.drain(..).rev() {
            self.waiting.push_front(turn);
        }
        for turn in &mut self.waiting {
            turn.cached = Cached::default();
        }
    }

    /// Blocks that a turn needs beyond its own to compute `count` ids more.
    fn missing(&self, turn: &Sequence, count: usize) -> usize {
        let needed = (turn.cached.computed + count).div_ceil(BLOCK);
        needed.saturating_sub(turn.cached.table.len())
    }

    /// Frees blocks until the running turn can compute `count` ids more: caches that nobody uses, then
    /// those of waiting turns, then the youngest running turn. False if that was this turn itself.
    fn make_room(&mut self, turn: usize, count: usize) -> bool {
        while self.missing(&self.running[turn], count) > self.blocks.available() {
            if self.drop_kept() || self.drop_waiting() {
                continue;
            }
            let Some(mut youngest) = self.running.pop() else {
                return false;
            };
            let cached = std::mem::take(&mut youngest.cached);
            self.blocks.give_back(&cached.table);
            self.preempted += 1;
            self.waiting.push_front(youngest);
            if self.running.len() <= turn {
                return false;
            }
        }
        true
    }

    /// Takes the blocks for the next `count` ids of a running turn and publishes those that they fill.
    fn advance(&mut self, turn: usize, count: usize) -> Work {
        let missing = self.missing(&self.running[turn], count);
        let sequence = &mut self.running[turn];
        let cached = &mut sequence.cached;
        cached
            .table
            .extend((0..missing).filter_map(|_| self.blocks.take()));
        let start = cached.computed;
        cached.computed += count;
        for number in cached.published..cached.computed / BLOCK {
            let before = number.checked_sub(1).map(|before| cached.table[before]);
            let ids = &sequence.ids[number * BLOCK..(number + 1) * BLOCK];
            self.blocks.publish(before, ids, cached.table[number]);
        }
        cached.published = cached.published.max(cached.computed / BLOCK);
        Work { turn, start, count }
    }

    /// Gives a new turn what is kept of its trajectory: the longest common beginning, but for the last id,
    /// which has to run for its logits.
    fn take_kept(&mut self, turn: &mut Sequence) {
        let Some(Kept {
            ids, mut cached, ..
        }) = self.kept.remove(&turn.request.id)
        else {
            return;
        };
        let common = ids.iter().zip(&turn.ids).take_while(|(a, b)| a == b);
        let mut common = common.count().min(turn.ids.len() - 1);
        if common % BLOCK != 0 {
            // The last block is about to be written to: it must be this turn's alone, and not be found.
            let last = cached.table[common / BLOCK];
            if self.blocks.holders(last) > 1 {
                common -= common % BLOCK;
            } else {
                self.blocks.hide(last);
            }
        }
        let surplus = cached.table.split_off(common.div_ceil(BLOCK));
        self.blocks.give_back(&surplus);
        cached.computed = common;
        cached.published = cached.published.min(common / BLOCK);
        turn.cached = cached;
    }

    /// Gives a turn the known blocks of its beginning, if they reach further than its own.
    fn share_known(&mut self, turn: &mut Sequence) {
        let found = self.blocks.find(&turn.ids[..turn.ids.len() - 1]);
        if found.len() * BLOCK <= turn.cached.computed {
            return;
        }
        for &block in &found {
            self.blocks.hold(block);
        }
        self.blocks.give_back(&turn.cached.table);
        turn.cached = Cached {
            computed: found.len() * BLOCK,
            published: found.len(),
            table: found,
        };
    }

    /// Drops the cache that was left the longest time ago.
    fn drop_kept(&mut self) -> bool {
        let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.since);
        let Some(id) = oldest.map(|(&id, _)| id) else {
            return false;
        };
        if let Some(kept) = self.kept.remove(&id) {
            self.blocks.give_back(&kept.cached.table);
        }
        true
    }

    /// Drops what the last of the waiting turns holds that holds anything.
    fn drop_waiting(&mut self) -> bool {
        let mut last = self.waiting.iter_mut().rev();
        let Some(turn) = last.find(|turn| !turn.cached.table.is_empty()) else {
            return false;
        };
        let cached = std::mem::take(&mut turn.cached);
        self.blocks.give_back(&cached.table);
        true
    }
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;

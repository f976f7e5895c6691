//! What the bench and its peer work on: prompts, lengths of turns and tool texts, the same in every run.

use serde_json::{Value, json};

/// Ids of the answer that is scored.
pub const ANSWER: usize = 24;

/// Fewest and most ids of a turn, and of a tool's text.
const TURN: (u32, u32) = (24, 96);
const TOOL: (u32, u32) = (64, 256);
const TURNS: usize = 4;

pub struct Workload {
    pub vocabulary: u32,
    pub trajectories: u32,
    pub prompt_ids: usize,
    /// Trajectories that are scored.
    pub scored: u32,
    /// Ids that plain decoding writes.
    pub decode_new: u32,
    /// For each turn and trajectory, how much it writes.
    pub new_ids: Vec<Vec<u32>>,
    /// For each turn but the last and trajectory, what the tool says after it.
    pub tools: Vec<Vec<Vec<u32>>>,
}

impl Workload {
    pub fn new(vocabulary: u32, trajectories: u32) -> Self {
        let number = |turn: usize, n: u32, (low, high): (u32, u32)| {
            let x = mixed(turn as u32 * 7_919 + n * 104_729 + low);
            low + x % (high - low + 1)
        };
        let of_turn = |turn: usize| (0..trajectories).map(move |n| (turn, n));
        Self {
            vocabulary,
            trajectories,
            prompt_ids: 128,
            scored: if vocabulary > 10_000 { 1 } else { 8 },
            decode_new: if vocabulary > 10_000 { 32 } else { 128 },
            new_ids: (0..TURNS)
                .map(|turn| of_turn(turn).map(|(t, n)| number(t, n, TURN)).collect())
                .collect(),
            tools: (0..TURNS - 1)
                .map(|turn| {
                    of_turn(turn)
                        .map(|(t, n)| {
                            let length = number(t, n, TOOL) as usize;
                            ids(vocabulary, 100_000 + t as u32 * 1_000 + n, length)
                        })
                        .collect()
                })
                .collect(),
        }
    }

    pub fn prompt(&self, seed: u32) -> Vec<u32> {
        ids(self.vocabulary, seed, self.prompt_ids)
    }

    /// For a trajectory of so many turns: the history up to each note, and question and note alone.
    pub fn scored_contexts(&self, seed: u32, turns: usize) -> (Vec<Vec<u32>>, Vec<Vec<u32>>) {
        let mut history = self.prompt(seed);
        let (mut full, mut alone) = (Vec::new(), Vec::new());
        for turn in 0..turns as u32 {
            let note = ids(self.vocabulary, 9_000 + 100 * seed + turn, 24);
            alone.push([&self.prompt(seed), &note[..]].concat());
            history.extend(note);
            full.push(history.clone());
            // The rest of the turn and what the tool says.
            history.extend(ids(self.vocabulary, 19_000 + 100 * seed + turn, 104));
        }
        (full, alone)
    }

    pub fn to_json(&self) -> Value {
        let prompts = |first: u32, count: u32| -> Vec<Vec<u32>> {
            (first..first + count).map(|n| self.prompt(n)).collect()
        };
        let scored = |turns: usize| -> Vec<Value> {
            (0..self.scored)
                .map(|n| {
                    let (full, alone) = self.scored_contexts(n, turns);
                    let contexts = [full, alone].concat();
                    json!({
                        "contexts": contexts,
                        "answer": ids(self.vocabulary, 7_000 + n, ANSWER),
                    })
                })
                .collect()
        };
        json!({
            "trajectories": self.trajectories,
            "group_prompts": prompts(0, self.trajectories.div_ceil(8)),
            "decode_prompts": prompts(1000, 64),
            "decode_new": self.decode_new,
            "new_ids": self.new_ids,
            "tools": self.tools,
            "scored_8": scored(8),
        })
    }
}

fn mixed(x: u32) -> u32 {
    let x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
    let x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

/// Ids that look random: `length` of them.
pub fn ids(vocabulary: u32, seed: u32, length: usize) -> Vec<u32> {
    (0..length as u32)
        .map(|i| mixed(seed.wrapping_mul(65_537).wrapping_add(i)) % vocabulary)
        .collect()
}

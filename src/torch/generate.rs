//! Writing turns: plan who runs, run one packed pass, take what was sampled.

use std::time::{Duration, Instant};

use tch::{Device, Tensor};

use crate::engine::{EngineError, GenerateRequest, Generated};
use crate::random;
use crate::trajectory::{TokenId, TrajectoryId};

use super::batch::check_ids;
use super::budget::cache_blocks;
use super::decoder::Decoder;
use super::paged::{BLOCK, Layer, PoolShape, Reads, Writes};
use super::sample::{Choice, check_sampling, sample};
use super::scheduler::{Scheduler, StepLimits, Work};
use super::sequence::Sequence;
use super::vocabulary::Vocabulary;

/// On the processor activations stay in its caches; an accelerator wants large operators.
const ON_CPU: StepLimits = StepLimits {
    rows: 256,
    tokens: 1_024,
};
const ON_DEVICE: StepLimits = StepLimits {
    rows: 1_024,
    tokens: 8_192,
};

/// The turns under way and the cache they share.
pub(super) struct Generation {
    cache_bytes: u64,
    /// Made with the first turn.
    scheduler: Option<Scheduler>,
    /// Keys and values of every layer; none while nothing is cached.
    layers: Vec<Layer>,
    scheduling: Duration,
}

impl Generation {
    /// Nothing is under way; the cache may take so many bytes (0: by the machine).
    pub fn new(cache_bytes: u64) -> Self {
        Self {
            cache_bytes,
            scheduler: None,
            layers: Vec::new(),
            scheduling: Duration::ZERO,
        }
    }

    /// See [`crate::engine::Engine::submit`].
    pub fn submit(
        &mut self,
        decoder: &Decoder,
        requests: Vec<GenerateRequest>,
    ) -> Result<(), EngineError> {
        for request in &requests {
            check(decoder, request)?;
        }
        let shape = pool_shape(decoder);
        let settings = &decoder.shape.settings;
        let layers = settings.num_hidden_layers;
        let scheduler = self.scheduler.get_or_insert_with(|| {
            let limits = match decoder.device {
                Device::Cpu => ON_CPU,
                _ => ON_DEVICE,
            };
            let room = settings.max_position_embeddings.unsigned_abs() as usize;
            let mut blocks = cache_blocks(self.cache_bytes, shape, layers);
            if !shape.lazy() {
                // Every block is written to before the first step: no more than twice what can run.
                blocks = blocks.min(2 * limits.rows * room.div_ceil(BLOCK));
            }
            Scheduler::new(blocks, room, limits)
        });
        scheduler.submit(requests)
    }

    /// See [`crate::engine::Engine::step`].
    pub fn step(
        &mut self,
        decoder: &Decoder,
        vocabulary: &dyn Vocabulary,
    ) -> Result<Vec<Generated>, EngineError> {
        let Some(scheduler) = &mut self.scheduler else {
            return Ok(Vec::new());
        };
        if self.layers.is_empty() {
            let layers = decoder.shape.settings.num_hidden_layers;
            let blocks = scheduler.blocks() as i64;
            self.layers = (0..layers)
                .map(|_| Layer::new(pool_shape(decoder), blocks))
                .collect();
        }
        let started = Instant::now();
        let work = scheduler.plan();
        self.scheduling += started.elapsed();
        let sampled = if work.is_empty() {
            Vec::new()
        } else {
            tch::no_grad(|| run(decoder, &self.layers, scheduler.running(), &work))
        };
        let started = Instant::now();
        let over = scheduler.take(&sampled, vocabulary);
        self.scheduling += started.elapsed();
        if work.is_empty() && over.is_empty() && scheduler.unfinished() > 0 {
            return Err(EngineError::Backend(format!(
                "none of {} turns could run in a cache of {} blocks",
                scheduler.unfinished(),
                scheduler.blocks()
            )));
        }
        Ok(over)
    }

    /// See [`crate::engine::Engine::unfinished`].
    pub fn unfinished(&self) -> usize {
        self.scheduler.as_ref().map_or(0, Scheduler::unfinished)
    }

    /// See [`crate::engine::Engine::release`].
    pub fn release(&mut self, trajectories: &[TrajectoryId]) -> usize {
        let scheduler = self.scheduler.as_mut();
        scheduler.map_or(0, |scheduler| scheduler.release(trajectories))
    }

    /// How often a turn lost its cache to another.
    pub fn preempted(&self) -> u64 {
        self.scheduler.as_ref().map_or(0, Scheduler::preempted)
    }

    /// Time spent on who runs and what was written, apart from computing it.
    pub fn scheduling(&self) -> Duration {
        self.scheduling
    }

    /// The weights have changed: everything cached is void, and its memory goes back to the system.
    pub fn forget_caches(&mut self) {
        self.layers.clear();
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.forget_caches();
        }
    }

    /// Drops everything, as after a failed step.
    pub fn clear(&mut self) {
        self.layers.clear();
        self.scheduler = None;
    }
}

/// The sizes of a layer of keys and values of this decoder.
pub(super) fn pool_shape(decoder: &Decoder) -> PoolShape {
    let settings = &decoder.shape.settings;
    PoolShape {
        heads: settings.num_attention_heads,
        key_heads: settings.num_key_value_heads,
        dim: decoder.shape.head_dim(),
        device: decoder.device,
    }
}

/// Runs the ids of a step as one packed row, and samples for every turn all of whose ids have run.
fn run(
    decoder: &Decoder,
    layers: &[Layer],
    running: &[Sequence],
    work: &[Work],
) -> Vec<(usize, TokenId, f32, bool)> {
    let (mut ids, mut positions) = (Vec::new(), Vec::new());
    let (mut reads, mut writes) = (Reads::default(), Writes::default());
    let (mut turns, mut last) = (Vec::new(), Vec::new());
    for &Work { turn, start, count } in work {
        let Some(sequence) = running.get(turn) else {
            continue;
        };
        let table = &sequence.cached.table;
        for (position, &id) in (start..).zip(&sequence.ids[start..start + count]) {
            writes.push(ids.len(), position, table);
            ids.push(i64::from(id));
            positions.push(position as i64);
        }
        reads.push(count, start, table);
        if sequence.pending() == 0 {
            turns.push((turn, sequence));
            last.push(ids.len() as i64 - 1);
        }
    }
    let row = |list: &[i64]| {
        Tensor::from_slice(list)
            .unsqueeze(0)
            .to_device(decoder.device)
    };
    let wanted = Tensor::from_slice(&last).to_device(decoder.device);
    let attend = |layer: usize, q: &Tensor, k: &Tensor, v: &Tensor| {
        let layer = &layers[layer];
        layer.write(k, v, &writes);
        layer.attend(q, &reads)
    };
    let hidden = decoder.forward(&row(&ids), Some(&row(&positions)), &wanted, attend);
    if turns.is_empty() {
        return Vec::new();
    }
    let logits = decoder.logits(&hidden.last);
    let choices: Vec<Choice<'_>> = turns
        .iter()
        .map(|(_, sequence)| {
            let request = &sequence.request;
            let token = sequence.next_token();
            Choice {
                sampling: &request.sampling,
                uniform: match request.sampling.temperature {
                    0.0 => 0.0,
                    _ => random::sampling_uniform(
                        request.sampling.seed,
                        request.id,
                        request.turn,
                        token,
                    ),
                },
                ids: &sequence.ids,
            }
        })
        .collect();
    let chosen = sample(&logits, &choices);
    turns
        .iter()
        .zip(chosen)
        .map(|(&(turn, sequence), (id, logprob))| {
            let ends = !sequence.request.ignore_eos && decoder.shape.end_of_text.contains(&id);
            (turn, id as TokenId, logprob, ends)
        })
        .collect()
}

fn check(decoder: &Decoder, request: &GenerateRequest) -> Result<(), EngineError> {
    let what = format!("turn {} of trajectory {}", request.turn, request.id);
    check_ids(
        &decoder.shape,
        &format!("{what}: the context"),
        &request.context,
    )?;
    check_sampling(&what, &request.sampling)?;
    let most = decoder.shape.settings.max_position_embeddings;
    if request.context.len() as i64 >= most {
        return Err(EngineError::BadRequest(format!(
            "{what}: the context has {} ids, which leaves no room to write: it must have fewer than \
             {most} (max_position_embeddings)",
            request.context.len()
        )));
    }
    Ok(())
}

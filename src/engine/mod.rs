//! The engine: what generates, scores and learns, behind one trait.
//!
//! Reads requests made of plain ids and floats; writes replies of the same. Runs on its own thread
//! (`link.rs`); the implementation in libtorch lives in `torch`, the one with fixed replies in
//! `scripted.rs`, the one whose turns a server writes in `remote/`.

mod glance;
mod inbox;
mod link;
pub mod remote;
mod request;
pub mod scripted;
mod stop;

pub use glance::{Glance, UnderWay};
pub use inbox::*;
pub use link::*;
pub use request::*;
pub use stop::StopMatcher;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::experiment::LoraSettings;
use crate::trajectory::TrajectoryId;

/// Why the engine could not do what was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A checkpoint or tokenizer file could not be used.
    #[error("cannot use {path:?}: {problem}; {remedy}")]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the value and the rule.
        problem: String,
        /// What to do.
        remedy: String,
    },
    /// A request broke the engine's contract.
    #[error("the engine refused a request: {0}")]
    BadRequest(String),
    /// Loss or gradients were not finite.
    #[error("{0}")]
    NotFinite(String),
    /// The backend failed.
    #[error("the engine failed: {0}")]
    Backend(String),
    /// The device has too little memory for what was asked.
    #[error(
        "out of memory: {0}; ask for less at once (engine.cache_bytes for generating, the micro-batch of the \
         learner, shorter contexts), or compute where there is more"
    )]
    OutOfMemory(String),
    /// Reading or writing failed.
    #[error("cannot write {path:?}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A server did not do what was asked.
    #[error(transparent)]
    Remote(#[from] remote::RemoteError),
    /// The engine thread is gone.
    #[error("the engine thread has ended")]
    Gone,
}

/// Generates, scores and learns with one set of weights. Lives on one thread.
pub trait Engine {
    /// Takes requests in: the steps that follow write one turn for each. What a turn says does not
    /// depend on which others stand beside it, nor on when it came. A trajectory has at most one
    /// unfinished turn.
    ///
    /// # Errors
    /// [`EngineError::BadRequest`] for ids out of range, a context that is too long, or one that
    /// could never fit into the cache. Then none of the requests is taken in.
    fn submit(&mut self, requests: Vec<GenerateRequest>) -> Result<(), EngineError>;

    /// Moves every turn that is under way on by a token or a piece of its context; gives those that
    /// ended. Turns join and leave at every step.
    ///
    /// # Errors
    /// [`EngineError::Backend`]; every unfinished turn is then dropped.
    fn step(&mut self) -> Result<Vec<Generated>, EngineError>;

    /// Turns that were submitted and have not been given out.
    fn unfinished(&self) -> usize;

    /// The ids that unfinished turns have so far, forced ones left out, for whoever watches. An engine
    /// that cannot tell gives none.
    fn under_way(&self) -> UnderWay {
        UnderWay::new()
    }

    /// Writes one turn for each request and gives them in the order of the requests; other turns
    /// that are under way must not be.
    ///
    /// # Errors
    /// As [`Engine::submit`] and [`Engine::step`].
    fn generate(&mut self, requests: &[GenerateRequest]) -> Result<Vec<Generated>, EngineError> {
        let place: BTreeMap<TrajectoryId, usize> = requests.iter().map(|r| r.id).zip(0..).collect();
        self.submit(requests.to_vec())?;
        let mut turns = Vec::with_capacity(requests.len());
        while self.unfinished() > 0 {
            turns.extend(self.step()?);
        }
        turns.sort_by_key(|turn| place.get(&turn.id).copied());
        Ok(turns)
    }

    /// Forgets these trajectories: what is cached for them, and their unfinished turns, which are
    /// never given out. Says how many those were.
    fn release(&mut self, trajectories: &[TrajectoryId]) -> usize;

    /// Log-probs of trunks and branches under the current weights.
    ///
    /// # Errors
    /// [`EngineError::BadRequest`] for ids out of range or a context that is too long.
    fn score(&mut self, requests: &[ScoreRequest]) -> Result<Vec<Scored>, EngineError>;

    /// One RL update: every mini-batch in turn. Rows are already in their final order. Turns under
    /// way go on with the new weights; what was cached under the old ones is computed again. A
    /// mini-batch whose loss or gradient is not finite is skipped, and the report says so.
    ///
    /// # Errors
    /// [`EngineError::BadRequest`] for rows that break the contract.
    fn learn(&mut self, batch: &LearnBatch) -> Result<LearnReport, EngineError>;

    /// One supervised step of the cold start.
    ///
    /// # Errors
    /// [`EngineError::NotFinite`] if a loss or gradient is not finite; the weights are then as
    /// before that step.
    fn supervise(&mut self, batch: &SupervisedBatch) -> Result<SupervisedReport, EngineError>;

    /// Keeps a frozen copy of the current weights as the reference policy for KL.
    fn freeze_reference(&mut self);

    /// Begins a moving average of the policy at its current weights; updates with
    /// [`LearnKnobs::average_decay`] move it. An engine without weights of its own keeps none.
    fn begin_average(&mut self);

    /// Begins the RL stage: drops training-only aids and optimizer state of the cold start.
    fn begin_rl(&mut self);

    /// From now on adapters learn in place of all weights; `seed` gives their first values. The
    /// reference and the average that begin after this share the weights that stay.
    ///
    /// # Errors
    /// [`EngineError::BadRequest`] for an engine without weights of its own.
    fn begin_adapters(&mut self, adapters: &LoraSettings, seed: u64) -> Result<(), EngineError> {
        let _ = seed;
        Err(EngineError::BadRequest(format!(
            "learner.lora asks for adapters of rank {}, but this engine has no weights to put them on",
            adapters.rank
        )))
    }

    /// Writes the policy as a Hugging Face folder (config.json, model.safetensors, tokenizer files)
    /// and, if asked, the optimizer, reference and average beside it, so that training goes on bit for
    /// bit. Adapters then stand apart, in a folder `adapter` as PEFT writes it; else they are merged.
    ///
    /// # Errors
    /// [`EngineError::Io`].
    fn save(&mut self, folder: &Path, with_optimizer: bool) -> Result<(), EngineError>;

    /// Reads back what [`Engine::save`] wrote.
    ///
    /// # Errors
    /// [`EngineError::BadFile`].
    fn load(&mut self, folder: &Path, with_optimizer: bool) -> Result<(), EngineError>;
}

/// A boxed engine is one: which it is may be settled when the program starts.
impl<E: Engine + ?Sized> Engine for Box<E> {
    fn submit(&mut self, requests: Vec<GenerateRequest>) -> Result<(), EngineError> {
        (**self).submit(requests)
    }

    fn step(&mut self) -> Result<Vec<Generated>, EngineError> {
        (**self).step()
    }

    fn unfinished(&self) -> usize {
        (**self).unfinished()
    }

    fn under_way(&self) -> UnderWay {
        (**self).under_way()
    }

    fn release(&mut self, trajectories: &[TrajectoryId]) -> usize {
        (**self).release(trajectories)
    }

    fn score(&mut self, requests: &[ScoreRequest]) -> Result<Vec<Scored>, EngineError> {
        (**self).score(requests)
    }

    fn learn(&mut self, batch: &LearnBatch) -> Result<LearnReport, EngineError> {
        (**self).learn(batch)
    }

    fn supervise(&mut self, batch: &SupervisedBatch) -> Result<SupervisedReport, EngineError> {
        (**self).supervise(batch)
    }

    fn freeze_reference(&mut self) {
        (**self).freeze_reference();
    }

    fn begin_average(&mut self) {
        (**self).begin_average();
    }

    fn begin_rl(&mut self) {
        (**self).begin_rl();
    }

    fn begin_adapters(&mut self, adapters: &LoraSettings, seed: u64) -> Result<(), EngineError> {
        (**self).begin_adapters(adapters, seed)
    }

    fn save(&mut self, folder: &Path, with_optimizer: bool) -> Result<(), EngineError> {
        (**self).save(folder, with_optimizer)
    }

    fn load(&mut self, folder: &Path, with_optimizer: bool) -> Result<(), EngineError> {
        (**self).load(folder, with_optimizer)
    }
}

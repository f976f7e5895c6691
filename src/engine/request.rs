//! What travels between the simulation and the engine.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::experiment::{Aggregation, Importance, KlKind, PolicyLoss, Precision, Recompute};
use crate::trajectory::{TokenId, TrajectoryId};

/// How tokens are chosen: the repetition penalty, the temperature, top-k, top-p and min-p shape the
/// distribution in this order, as transformers does. The number that draws from it is addressed by
/// (seed, trajectory, turn, token).
///
/// Log-probs are those of the whole distribution at the temperature (at 1 if greedy), before the
/// penalty and the cuts: what a learner computes again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f32,
    /// Only so many of the likeliest ids; 0: all.
    pub top_k: u32,
    /// Only the likeliest ids that together have this probability; 1: all.
    pub top_p: f32,
    /// Only ids with at least this share of the likeliest id's probability; 0: all.
    pub min_p: f32,
    /// Logits of ids that stand in the context or the turn are divided by this if positive, else
    /// multiplied; 1: off.
    pub repetition_penalty: f32,
    /// Seed of the run.
    pub seed: u64,
}

impl Sampling {
    /// The whole distribution at this temperature.
    #[must_use]
    pub fn plain(temperature: f32, seed: u64) -> Self {
        Self {
            temperature,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            seed,
        }
    }

    /// Whether ids are drawn from another distribution than the one whose log-probs are given.
    #[must_use]
    pub fn is_shaped(&self) -> bool {
        self.top_k > 0 || self.top_p < 1.0 || self.min_p > 0.0 || self.repetition_penalty != 1.0
    }
}

/// Asks for one turn.
#[derive(Clone, Debug)]
pub struct GenerateRequest {
    /// Whose turn: key of the random stream and of the kept cache.
    pub id: TrajectoryId,
    /// Which turn, from 0.
    pub turn: u32,
    /// All ids the policy sees, forced ids included. The engine computes only what follows the
    /// longest prefix that it holds, of this trajectory or of another.
    pub context: Vec<TokenId>,
    /// Most ids to sample.
    pub max_new_tokens: u32,
    /// How to sample.
    pub sampling: Sampling,
    /// Generation ends after the id with which one of these is complete in the decoded text
    /// (special tokens included). The id stays.
    pub stop: Arc<[String]>,
    /// Whether an end-of-text id is a token like any other.
    pub ignore_eos: bool,
}

/// Why generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// A stop string was completed, or the end-of-text id was sampled.
    Stop,
    /// `max_new_tokens` or the engine's context length was reached.
    Length,
}

/// One finished turn.
#[derive(Clone, Debug, PartialEq)]
pub struct Generated {
    /// Whose turn.
    pub id: TrajectoryId,
    /// Which turn.
    pub turn: u32,
    /// The sampled ids.
    pub ids: Vec<TokenId>,
    /// Their log-probs.
    pub logprobs: Vec<f32>,
    /// Why it ended.
    pub finish: Finish,
}

/// A continuation of a trunk, scored as if it stood alone after the trunk's first `at` ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// How many ids of the trunk it sees; its first id stands at position `at`.
    pub at: u32,
    /// Its ids.
    pub ids: Vec<TokenId>,
    /// First id whose log-prob is wanted (the rest up to the end follow).
    pub scored_from: u32,
}

/// The weights that score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Weights {
    /// The policy as it is.
    #[default]
    Policy,
    /// The copy of [`super::Engine::freeze_reference`].
    Reference,
    /// The moving average that [`super::Engine::begin_average`] began.
    Average,
}

/// Asks for log-probs: of the trunk, and of branches that hang on it. One forward pass per request
/// with a block mask, so that the cost is the trunk plus the branches.
#[derive(Clone, Debug)]
pub struct ScoreRequest {
    /// Whose.
    pub id: TrajectoryId,
    /// Usually a whole transcript.
    pub trunk: Vec<TokenId>,
    /// Whether the trunk's own log-probs are wanted.
    pub score_trunk: bool,
    /// The branches.
    pub branches: Vec<Branch>,
    /// Temperature of the distribution.
    pub temperature: f32,
    /// Whose distribution.
    pub under: Weights,
}

/// Log-probs that were asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    /// Whose.
    pub id: TrajectoryId,
    /// Log-prob of each trunk id given those before it; the first is 0. Empty if not asked for.
    pub trunk: Vec<f32>,
    /// For each branch, the log-probs of `ids[scored_from..]`.
    pub branches: Vec<Vec<f32>>,
}

/// One row to learn from.
#[derive(Clone, Debug, PartialEq)]
pub struct LearnRow {
    /// Ids.
    pub ids: Vec<TokenId>,
    /// True where trained. Never at index 0.
    pub mask: Vec<bool>,
    /// Sampled log-probs.
    pub old_logprobs: Vec<f32>,
    /// Token weights.
    pub advantages: Vec<f32>,
}

/// Loss and optimizer knobs of one update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LearnKnobs {
    /// Ratio may fall to 1 - clip_low.
    pub clip_low: f32,
    /// Ratio may rise to 1 + clip_high.
    pub clip_high: f32,
    /// Dual clip c (> 1) for negative advantages; none if not finite.
    pub clip_dual: f32,
    /// Weight of the KL to the reference; 0 switches it off.
    pub kl_weight: f32,
    /// How that KL is estimated.
    pub kl_kind: KlKind,
    /// The loss of a token.
    pub policy_loss: PolicyLoss,
    /// How the losses of tokens become one number, over each mini-batch.
    pub aggregation: Aggregation,
    /// Weight of the entropy bonus; 0 switches it off.
    pub entropy_weight: f32,
    /// Weights between the engine that sampled and the learner.
    pub importance: Importance,
    /// Most tokens computed at once, of rows packed one after the other (a longer row is computed
    /// alone); 0: what suits the device.
    pub micro_tokens: u32,
    /// What the passes compute with.
    pub precision: Precision,
    /// Whether layers are computed a second time in the backward pass.
    pub recompute: Recompute,
    /// Address of this update in the random stream of losses that draw tokens: (seed, step).
    pub address: (u64, u32),
    /// Learning rate of this update.
    pub lr: f32,
    /// AdamW betas.
    pub betas: (f32, f32),
    /// AdamW epsilon.
    pub eps: f32,
    /// Decoupled weight decay.
    pub weight_decay: f32,
    /// Gradient norm is clipped to this; none if not finite.
    pub grad_clip: f32,
    /// Temperature the rows were sampled at.
    pub temperature: f32,
    /// After the update, the moving average of the weights becomes this times itself + (1 - this)
    /// times the policy; none if no average is kept.
    pub average_decay: Option<f32>,
}

impl Default for LearnKnobs {
    /// PPO-clip as a token mean, without KL, entropy bonus and importance weights.
    fn default() -> Self {
        Self {
            clip_low: 0.2,
            clip_high: 0.2,
            clip_dual: f32::INFINITY,
            kl_weight: 0.0,
            kl_kind: KlKind::default(),
            policy_loss: PolicyLoss::default(),
            aggregation: Aggregation::default(),
            entropy_weight: 0.0,
            importance: Importance::default(),
            micro_tokens: 0,
            precision: Precision::default(),
            recompute: Recompute::default(),
            address: (0, 0),
            lr: 3e-4,
            betas: (0.9, 0.95),
            eps: 1e-8,
            weight_decay: 0.0,
            grad_clip: 1.0,
            temperature: 1.0,
            average_decay: None,
        }
    }
}

/// One RL update.
#[derive(Clone, Debug)]
pub struct LearnBatch {
    /// Rows of all mini-batches.
    pub rows: Vec<LearnRow>,
    /// Row numbers of each mini-batch, in order. The loss is aggregated over the mini-batch.
    pub mini_batches: Vec<Vec<usize>>,
    /// Knobs.
    pub knobs: LearnKnobs,
}

/// What one mini-batch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MiniBatchReport {
    /// Trained tokens.
    pub tokens: u64,
    /// Policy loss, aggregated as asked for, importance weights included.
    pub pg_loss: f64,
    /// Share of tokens where the clipped term was chosen.
    pub pg_clipfrac: f64,
    /// Share of tokens where dual clip was chosen.
    pub pg_clipfrac_lower: f64,
    /// Mean of old - new log-prob.
    pub ppo_kl: f64,
    /// Mean entropy of the policy at trained tokens, nats.
    pub entropy: f64,
    /// KL to the reference, aggregated as the loss (0 if off).
    pub kl_loss: f64,
    /// Gradient norm before clipping.
    pub grad_norm: f64,
    /// Largest |ratio - 1| in this mini-batch.
    pub ratio_gap: f64,
    /// Whether its loss or gradient was not finite, so that no optimizer step was made. Numbers that
    /// are not finite are then 0 here.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
}

impl MiniBatchReport {
    /// Its numbers, to be read or changed.
    pub fn numbers_mut(&mut self) -> [&mut f64; 8] {
        [
            &mut self.pg_loss,
            &mut self.pg_clipfrac,
            &mut self.pg_clipfrac_lower,
            &mut self.ppo_kl,
            &mut self.entropy,
            &mut self.kl_loss,
            &mut self.grad_norm,
            &mut self.ratio_gap,
        ]
    }
}

/// What an update did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LearnReport {
    /// One entry a mini-batch.
    pub mini_batches: Vec<MiniBatchReport>,
    /// For every row, the log-probs under the weights that its mini-batch was computed with
    /// (0 where not trained).
    pub logprobs: Vec<Vec<f32>>,
    /// For every row, the entropies of the policy under the same weights, nats (0 where not trained).
    pub entropies: Vec<Vec<f32>>,
    /// How far engine and learner disagree, if importance weights are on.
    pub mismatch: Option<Mismatch>,
    /// What was not finite, for each mini-batch that was skipped.
    pub skipped: Vec<String>,
}

/// How far the engine that sampled and the learner disagree, over the trained tokens of an update.
/// Means over rows are over all rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Mean weight before it is cut or masked.
    pub weight_mean: f64,
    /// Effective sample size of the weights, kept within the bounds, as a share.
    pub effective_share: f64,
    /// Share of rows that were vetoed.
    pub veto_share: f64,
    /// Share of tokens whose weight was masked.
    pub masked_share: f64,
    /// Share of rows with a masked token.
    pub masked_rows: f64,
    /// Mean of engine - learner log-prob: KL(engine || learner).
    pub kl: f64,
    /// The k3 estimate of the same.
    pub k3: f64,
    /// Mean over rows of the learner's perplexity.
    pub learner_perplexity: f64,
    /// Mean over rows of the engine's perplexity.
    pub engine_perplexity: f64,
    /// Mean over rows of the log of learner perplexity / engine perplexity.
    pub log_perplexity_gap: f64,
}

/// One supervised example.
#[derive(Clone, Debug, PartialEq)]
pub struct SupervisedRow {
    /// Ids.
    pub ids: Vec<TokenId>,
    /// True where the id is a target. Never at index 0.
    pub mask: Vec<bool>,
    /// Position of each id (may have gaps).
    pub positions: Vec<u32>,
}

/// Examples of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct SupervisedPart {
    /// What kind, for the metrics: `full`, `deployed`, `probe`, `drill`, `copy`.
    pub name: String,
    /// Weight of the mean cross-entropy of this part.
    pub weight: f32,
    /// The examples.
    pub rows: Vec<SupervisedRow>,
}

/// One supervised step.
#[derive(Clone, Debug)]
pub struct SupervisedBatch {
    /// The parts; losses are added with their weights.
    pub parts: Vec<SupervisedPart>,
    /// Learning rate of Muon (matrices).
    pub matrix_lr: f32,
    /// Learning rate of AdamW (everything else).
    pub other_lr: f32,
    /// AdamW's second beta.
    pub beta2: f32,
    /// Decoupled weight decay on matrices.
    pub weight_decay: f32,
    /// Gradient norm is clipped to this.
    pub grad_clip: f32,
    /// Weight of the training-only aid (name the previous tokens from block 0's output); 0 = off.
    pub aid_weight: f32,
    /// Address of this step in the random stream of the aid: (seed, step).
    pub address: (u64, u32),
}

/// What a supervised step did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SupervisedReport {
    /// (part, mean cross-entropy, share of targets that are the arg-max).
    pub parts: Vec<(String, f64, f64)>,
    /// Cross-entropy of the aid, 0 if off.
    pub aid_loss: f64,
    /// Gradient norm before clipping.
    pub grad_norm: f64,
    /// Tokens in the batch.
    pub tokens: u64,
}

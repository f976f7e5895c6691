//! The settings of an experiment file. Every field has a unit, a default and a sentence.

use serde::{Deserialize, Serialize};

use crate::task::Split;

/// A whole experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// Name of the run; part of its folder's name.
    pub name: String,
    /// Seed of everything that is random.
    pub seed: u64,
    /// Where questions come from.
    pub task: TaskSettings,
    /// The weights to begin with.
    pub policy: PolicySettings,
    /// Supervised stage before RL.
    pub cold_start: ColdStartSettings,
    /// How trajectories are made.
    pub rollout: RolloutSettings,
    /// What an answer earns.
    pub reward: RewardSettings,
    /// How credit is assigned to tokens.
    pub credit: CreditSettings,
    /// How the policy learns.
    pub learner: LearnerSettings,
    /// When and how it is measured.
    pub evaluation: EvaluationSettings,
    /// What is written down.
    pub record: RecordSettings,
    /// Device and threads.
    pub engine: EngineSettings,
}

/// Where questions come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskSettings {
    /// The kind of task: Lookup.
    pub kind: TaskKind,
    /// File of facts, relative to the experiment file or the project; empty = the facts shipped inside the program.
    pub facts: String,
    /// Fewest objectives in one training question.
    pub objectives_min: u32,
    /// Most objectives in one training question.
    pub objectives_max: u32,
    /// Draw the facts of every training question anew, so that nothing can be memorised.
    pub redraw: bool,
}

/// Kinds of task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskKind {
    /// Facts about countries and elements, one search each.
    Lookup,
}

/// The weights to begin with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PolicySettings {
    /// New random weights of this shape.
    New(DecoderSettings),
    /// A Hugging Face folder: `assets/...` or a path relative to the experiment file.
    Folder(String),
}

/// Shape of a Qwen2-style decoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecoderSettings {
    /// Width of the residual stream.
    pub hidden_size: i64,
    /// Number of blocks.
    pub num_hidden_layers: i64,
    /// Query heads.
    pub num_attention_heads: i64,
    /// Key and value heads (GQA).
    pub num_key_value_heads: i64,
    /// Width of the feed-forward layer.
    pub intermediate_size: i64,
    /// Base of the rotary embedding.
    pub rope_theta: f64,
    /// Longest context, tokens.
    pub max_position_embeddings: i64,
    /// Standard deviation of the initial weights.
    pub initializer_range: f64,
    /// Vocabulary of the tokenizer, tokens.
    pub vocab_size: i64,
}

/// The supervised stage: stages one after the other, each with its own cosine schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ColdStartSettings {
    /// Empty = no cold start.
    pub stages: Vec<StageSettings>,
}

/// One stage of the cold start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageSettings {
    /// Optimizer steps.
    pub steps: u32,
    /// Peak learning rate of Muon (matrices).
    pub matrix_lr: f32,
    /// Peak learning rate of AdamW (embeddings, norms, biases, aids).
    pub other_lr: f32,
    /// Linear warm-up, steps.
    pub warmup_steps: u32,
    /// Learning rate at the end, as a share of the peak (cosine).
    pub final_lr_share: f32,
    /// AdamW's second beta.
    pub beta2: f32,
    /// Weight decay on matrices.
    pub weight_decay: f32,
    /// Gradient norm is clipped to this.
    pub grad_clip: f32,
    /// Weight of the training-only aid.
    pub aid_weight: f32,
    /// The aid is dropped after this share of the stage.
    pub aid_until: f32,
    /// What the examples are.
    pub mix: MixSettings,
}

/// Examples of one cold start step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MixSettings {
    /// Whole scripted trajectories.
    pub full: u32,
    /// Single turns in the deployed context.
    pub deployed: u32,
    /// Notes followed by the answer, loss on the answer.
    pub probe: u32,
    /// Facts asked again after a passage.
    pub drill: u32,
    /// Random segments repeated.
    pub copy: u32,
    /// Questions whose results come in random order; loss on the note and the next action.
    pub sequence: u32,
    /// Drills alone, growing longer, for the first so many steps of the cold start; 0 = none.
    pub opening_steps: u32,
    /// Most objectives in whole trajectories.
    pub full_objectives_max: u32,
    /// Most objectives in single turns and probes.
    pub turn_objectives_max: u32,
    /// Most positions skipped at a turn boundary.
    pub position_gap: u32,
    /// Shares of known facts that the notes keep; one is drawn per trajectory.
    pub keep: Vec<f32>,
    /// Chance that a note holds the distractor's value.
    pub junk: f32,
    /// Chance of made-up names and values.
    pub pseudo: f32,
}

/// How trajectories are made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RolloutSettings {
    /// What the policy sees while training.
    pub context: ContextKind,
    /// Questions per step.
    pub groups: u32,
    /// Rollouts of each question.
    pub group_size: u32,
    /// Sampling temperature.
    pub temperature: f32,
    /// Most trajectories alive at once; 0 = no limit.
    pub in_flight: u32,
    /// Wait for every reply of a tick (repeats bit for bit) or take what is there.
    pub lockstep: bool,
    /// Limits, each with its own ending.
    pub limits: LimitSettings,
}

/// What the policy sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextKind {
    /// Question, then every turn and tool result so far.
    #[serde(alias = "Full")]
    Full,
    /// Question, last notes, last tool result, and a forced `<mem>`.
    #[serde(alias = "Deployed")]
    Deployed,
}

/// Limits of a trajectory.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitSettings {
    /// Turns of a trajectory; 0 = objectives + 3.
    pub turns: u32,
    /// Tokens sampled in one turn.
    pub turn_tokens: u32,
    /// Tokens sampled in one trajectory.
    pub trajectory_tokens: u32,
    /// Tokens of a context with its turn.
    pub context_tokens: u32,
    /// Characters of a tool result; more are cut.
    pub tool_chars: u32,
    /// Seconds a tool may take.
    pub tool_seconds: f32,
}

/// What an answer earns.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RewardSettings {
    /// Added when every turn keeps the format and the answer is wrong (at most 0.1 is wise).
    pub format: f32,
}

/// How credit is assigned; one line of the grammar each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CreditSettings {
    /// Whether the memory advantage is used at all; off = plain GRPO.
    pub memory: bool,
    /// Which answer tokens count.
    pub threshold: Threshold,
    /// What the memory rewards are compared with.
    pub baseline: Baseline,
    /// Divide the outcome advantage by the group's standard deviation.
    pub outcome_std: bool,
    /// Divide the memory advantage by the pool's standard deviation.
    pub memory_std: bool,
    /// Factor of the memory advantage.
    pub weight: f32,
}

/// Which answer tokens take part in P.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Threshold {
    /// All.
    #[serde(rename = "none")]
    Off,
    /// Those whose own probability is above this.
    #[serde(rename = "own")]
    Own(f32),
}

/// What memory rewards are compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Baseline {
    /// All rounds of all rollouts of the question.
    Pooled,
    /// The same round of all rollouts of the question.
    PerRound,
}

/// How the policy learns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LearnerSettings {
    /// RL steps; 0 = none.
    pub steps: u32,
    /// Mini-batches per step.
    pub mini_batches: u32,
    /// Passes over the rows.
    pub epochs: u32,
    /// Peak learning rate.
    pub lr: f32,
    /// Linear warm-up, steps.
    pub warmup_steps: u32,
    /// Learning rate at the last step as a share of the peak (linear); 1 = constant.
    pub final_lr_share: f32,
    /// AdamW betas.
    pub betas: (f32, f32),
    /// AdamW epsilon.
    pub eps: f32,
    /// Weight decay.
    pub weight_decay: f32,
    /// Gradient norm is clipped to this.
    pub grad_clip: f32,
    /// PPO clip below 1.
    pub clip_low: f32,
    /// PPO clip above 1.
    pub clip_high: f32,
    /// Dual clip; 0 = off.
    pub clip_dual: f32,
    /// Weight of KL to the reference; 0 = off.
    pub kl_weight: f32,
}

/// When and how the policy is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationSettings {
    /// Steps between small evaluations; 0 = only at step 0 and at the end.
    pub every: u32,
    /// Questions per entry in evaluations during training.
    pub questions_during: u32,
    /// Objectives in evaluations during training.
    pub objectives_during: Vec<u32>,
    /// Questions per entry at step 0 and at the end.
    pub questions: u32,
    /// Objectives at step 0 and at the end.
    pub objectives: Vec<u32>,
    /// Contexts.
    pub contexts: Vec<ContextKind>,
    /// Entities asked about.
    pub split: Split,
    /// Temperature; 0 = greedy.
    pub temperature: f32,
    /// Seed of the questions: the same in every run, so that runs can be compared.
    pub seed: u64,
}

/// What is written down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordSettings {
    /// Folder of runs.
    pub runs: String,
    /// Steps between checkpoints (cold start and RL); 0 = only at the end.
    pub checkpoint_every: u32,
    /// Cold start steps between checkpoints.
    pub cold_start_checkpoint_every: u32,
    /// Write TensorBoard event files.
    pub tensorboard: bool,
    /// Trajectories of each step whose text and tokens are kept; 0 = all.
    pub trajectories: u32,
}

/// Device and threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineSettings {
    /// auto, cpu, or cuda(n).
    pub device: DeviceSetting,
    /// Threads of libtorch; 0 = cores.
    pub threads: u32,
}

/// Where tensors live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceSetting {
    /// A CUDA device if the build and machine have one.
    Auto,
    /// The processor.
    Cpu,
    /// The CUDA device of this number.
    Cuda(u32),
}

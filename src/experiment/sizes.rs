//! Sizes that follow from the settings: parameters, tokens per step, memory, questions in all.
//!
//! Bounds are exact; what a task's texts need is an estimate from measured means and says so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::path::Path;

use serde_json::Value;

use super::paths::find_path;
use super::spec::{
    ContextKind, DecoderSettings, Experiment, PolicySettings, RolloutSettings, TaskKind,
};

/// Bytes of a number in the engine.
const FLOAT: u64 = 4;
/// Bytes that the record keeps of one token: its columns, and its text in the events.
const RECORDED_TOKEN: u64 = 29 + 8;

impl PolicySettings {
    /// The shape of the decoder, as the settings or the folder's config.json say; none if there is
    /// no such file or it does not say.
    #[must_use]
    pub fn shape(&self) -> Option<DecoderSettings> {
        let folder = match self {
            Self::New(shape) => return Some(shape.clone()),
            Self::Folder(folder) => find_path(folder)?,
            Self::Hub(_) => return None,
        };
        let text = fs::read_to_string(folder.join("config.json")).ok()?;
        let config: Value = serde_json::from_str(&text).ok()?;
        let count = |name: &str| config.get(name).and_then(Value::as_i64);
        let heads = count("num_attention_heads")?;
        Some(DecoderSettings {
            hidden_size: count("hidden_size")?,
            num_hidden_layers: count("num_hidden_layers")?,
            num_attention_heads: heads,
            num_key_value_heads: count("num_key_value_heads").unwrap_or(heads),
            intermediate_size: count("intermediate_size")?,
            max_position_embeddings: count("max_position_embeddings")?,
            vocab_size: count("vocab_size")?,
            ..DecoderSettings::default()
        })
    }
}

/// What the weights of a policy take.
struct PolicySizes {
    /// Number of weights.
    parameters: u64,
    /// Bytes that one token takes in the KV cache.
    cache_bytes: u64,
}

impl PolicySettings {
    /// From the settings, or from what the folder's files say; none if they are not there.
    fn sizes(&self) -> Option<PolicySizes> {
        let shape = self.shape()?;
        let Self::Folder(folder) = self else {
            return Some(PolicySizes {
                parameters: shape.parameters(),
                cache_bytes: shape.cache_bytes(),
            });
        };
        let folder = find_path(folder)?;
        let config: Value =
            serde_json::from_slice(&fs::read(folder.join("config.json")).ok()?).ok()?;
        let tied = config.get("tie_word_embeddings") == Some(&Value::Bool(true));
        let heads = config.get("head_dim").and_then(Value::as_u64);
        let plain = u64::try_from(shape.hidden_size / shape.num_attention_heads.max(1)).ok()?;
        Some(PolicySizes {
            parameters: stored_parameters(&folder, tied)?,
            cache_bytes: shape.cache_bytes() / plain.max(1) * heads.unwrap_or(plain),
        })
    }
}

/// Number of weights that the headers of a folder's safetensors speak of.
fn stored_parameters(folder: &Path, tied: bool) -> Option<u64> {
    const WEIGHTS: &str = "model.safetensors";
    let mut files = BTreeSet::from([WEIGHTS.to_owned()]);
    if !folder.join(WEIGHTS).exists() {
        let index = fs::read(folder.join("model.safetensors.index.json")).ok()?;
        let index: Value = serde_json::from_slice(&index).ok()?;
        let names = index.get("weight_map")?.as_object()?.values();
        files = names
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect();
    }
    let mut count = 0;
    for name in files {
        let mut file = fs::File::open(folder.join(name)).ok()?;
        let mut length = [0; 8];
        file.read_exact(&mut length).ok()?;
        let mut header = Vec::new();
        file.take(u64::from_le_bytes(length).min(LONGEST_HEADER))
            .read_to_end(&mut header)
            .ok()?;
        let header: BTreeMap<String, Value> = serde_json::from_slice(&header).ok()?;
        for (name, tensor) in header {
            if let Some(size) = tensor.get("shape").and_then(Value::as_array)
                && !(tied && name == "lm_head.weight")
            {
                count += size.iter().filter_map(Value::as_u64).product::<u64>();
            }
        }
    }
    Some(count)
}

/// Most bytes of a safetensors header.
const LONGEST_HEADER: u64 = 100_000_000;

impl DecoderSettings {
    /// Number of weights, with tied embeddings.
    #[must_use]
    pub fn parameters(&self) -> u64 {
        let of = |number: i64| u64::try_from(number).unwrap_or(0);
        let (width, keys) = (of(self.hidden_size), self.key_width());
        let attention = 2 * width * width + width + 2 * (width * keys + keys);
        let feed_forward = 3 * width * of(self.intermediate_size);
        let block = attention + feed_forward + 2 * width;
        of(self.vocab_size) * width + of(self.num_hidden_layers) * block + width
    }

    /// Bytes that one token takes in the KV cache.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        2 * u64::try_from(self.num_hidden_layers).unwrap_or(0) * self.key_width() * FLOAT
    }

    /// Width of all key heads together.
    fn key_width(&self) -> u64 {
        let heads = self.num_attention_heads.max(1);
        u64::try_from(self.hidden_size / heads * self.num_key_value_heads).unwrap_or(0)
    }
}

impl RolloutSettings {
    /// Trajectories of one step.
    #[must_use]
    pub fn trajectories(&self) -> u64 {
        u64::from(self.groups) * u64::from(self.group_size)
    }

    /// Most turns of a trajectory with this many objectives.
    #[must_use]
    pub fn turns(&self, objectives: u32) -> u32 {
        match self.limits.turns {
            0 => objectives.saturating_add(3),
            turns => turns,
        }
    }

    /// Rows to learn from in one step, fewest and most: one per trajectory, or one per turn.
    #[must_use]
    pub fn rows(&self, objectives: u32) -> (u64, u64) {
        let trajectories = self.trajectories();
        let most: u64 = (0..self.groups)
            .map(|group| match self.context.of_group(group) {
                kind if kind.grows() => 1,
                _ => u64::from(self.turns(objectives)),
            })
            .fold(0, u64::saturating_add);
        (
            trajectories,
            most.saturating_mul(u64::from(self.group_size)),
        )
    }

    /// Trajectories alive at once.
    fn alive(&self) -> u64 {
        match self.in_flight {
            0 => self.trajectories(),
            most => self.trajectories().min(u64::from(most)),
        }
    }
}

/// Tokens that a lookup question needs, in the mean (a name or value has 2.75 tokens).
#[derive(Clone, Copy, Debug)]
pub(super) struct LookupTokens {
    objectives: u64,
}

impl LookupTokens {
    const PROMPT: u64 = 6;
    const NOTE: u64 = 10;
    const ACTION: u64 = 12;
    const TOOL: u64 = 23;

    pub(super) fn of(objectives: u32) -> Self {
        Self {
            objectives: u64::from(objectives),
        }
    }

    /// The last turn: all notes, then the answer.
    pub(super) fn last_turn(self) -> u64 {
        2 * (Self::NOTE * self.objectives) + 7
    }

    /// A whole trajectory without a detour, with all results and complete notes.
    pub(super) fn trajectory(self) -> u64 {
        let n = self.objectives;
        let notes = Self::NOTE * n * (n + 1) / 2 + 2 * (n + 1);
        2 + Self::PROMPT * n + notes + n * (Self::ACTION + Self::TOOL) + Self::NOTE * n + 5
    }

    /// The longest context: everything, or what the policy sees without the history.
    pub(super) fn context(self, kind: ContextKind) -> u64 {
        match kind {
            kind if kind.grows() => self.trajectory(),
            _ => {
                let n = self.objectives;
                2 + Self::PROMPT * n + Self::NOTE * n + 2 + Self::TOOL + self.last_turn()
            }
        }
    }
}

/// The sizes as lines of text, one fact a line.
pub(super) fn sizes(experiment: &Experiment) -> Vec<String> {
    let mut lines = Vec::new();
    let policy = experiment.policy.sizes();
    let rollout = &experiment.rollout;
    let limits = &rollout.limits;
    match &policy {
        Some(policy) => lines.push(format!("parameters: {}", grouped(policy.parameters))),
        None => lines.push("parameters: unknown until the policy's folder is there".to_owned()),
    }
    if experiment.learner.steps > 0 {
        let trajectories = rollout.trajectories();
        let most = experiment.task.objectives_max;
        let (few, many) = rollout.rows(most);
        let rows = if few == many {
            grouped(few)
        } else {
            format!("{} to {}", grouped(few), grouped(many))
        };
        lines.push(format!(
            "each step: {} questions x {} rollouts = {} trajectories, {rows} rows, {}",
            rollout.groups,
            rollout.group_size,
            grouped(trajectories),
            count(
                u64::from(experiment.learner.mini_batches) * u64::from(experiment.learner.epochs),
                "optimizer step"
            ),
        ));
        let mut text = format!(
            "tokens per step: at most {} sampled, at most {} learned from",
            grouped(trajectories.saturating_mul(limits.trajectory_tokens.into())),
            grouped(many.saturating_mul(limits.context_tokens.into())),
        );
        if experiment.task.kind == TaskKind::Lookup {
            let middle = experiment.task.objectives_min.midpoint(most);
            let about = trajectories.saturating_mul(LookupTokens::of(middle).trajectory());
            let _ = write!(text, ", about {} without detours", grouped(about));
        }
        lines.push(text);
    }
    if let Some(policy) = &policy {
        memory(experiment, policy, &mut lines);
    }
    let cold: u64 = experiment
        .cold_start
        .stages
        .iter()
        .map(|stage| u64::from(stage.steps))
        .sum();
    let steps = u64::from(experiment.learner.steps);
    let trained = steps.saturating_mul(rollout.trajectories());
    let evaluated = evaluations(experiment);
    lines.push(format!(
        "in all: {}, {}, {}, {} to train and {} to measure",
        count(cold, "cold start step"),
        count(steps, "RL step"),
        count(evaluated.0, "evaluation"),
        format_args!("{} trajectories", grouped(trained)),
        grouped(evaluated.1),
    ));
    let kept = match experiment.record.trajectories {
        0 => rollout.trajectories(),
        most => rollout.trajectories().min(u64::from(most)),
    };
    let measured = steps.saturating_mul(kept).saturating_add(evaluated.1);
    let tokens = measured.saturating_mul(limits.trajectory_tokens.into());
    lines.push(format!(
        "record: at most {} without checkpoints",
        bytes(tokens.saturating_mul(RECORDED_TOKEN))
    ));
    lines
}

/// Memory of weights, training and cache.
fn memory(experiment: &Experiment, policy: &PolicySizes, lines: &mut Vec<String>) {
    let weights = policy.parameters * FLOAT;
    let mut copies = String::new();
    if experiment.needs_reference() {
        copies += &format!(", reference policy {}", bytes(weights));
    }
    if experiment.average_decay().is_some() {
        copies += &format!(", average policy {}", bytes(weights));
    }
    lines.push(format!(
        "memory: weights {}, gradients and optimizer {}{copies}; activations come on top",
        bytes(weights),
        bytes(3 * weights),
    ));
    let alive = experiment.rollout.alive();
    let context = u64::from(experiment.rollout.limits.context_tokens);
    lines.push(format!(
        "KV cache: at most {} ({} trajectories x {} tokens x {})",
        bytes(
            alive
                .saturating_mul(context)
                .saturating_mul(policy.cache_bytes)
        ),
        grouped(alive),
        grouped(context),
        bytes(policy.cache_bytes),
    ));
}

/// Evaluations of a run and their trajectories.
fn evaluations(experiment: &Experiment) -> (u64, u64) {
    let evaluation = &experiment.evaluation;
    let steps = experiment.learner.steps;
    let contexts = evaluation.contexts.len() as u64;
    let ends = if steps == 0 { 1 } else { 2 };
    let between = match evaluation.every {
        0 => 0,
        every => u64::from(steps.saturating_sub(1) / every),
    };
    let each = |questions: u32, objectives: &[u32]| {
        u64::from(questions)
            .saturating_mul(objectives.len() as u64)
            .saturating_mul(contexts)
    };
    let big = each(evaluation.questions, &evaluation.objectives);
    let small = each(evaluation.questions_during, &evaluation.objectives_during);
    let held = |trajectories: u64, times: u64| if trajectories == 0 { 0 } else { times };
    (
        held(big, ends) + held(small, between),
        ends.saturating_mul(big)
            .saturating_add(between.saturating_mul(small)),
    )
}

/// `3 steps`, `1 step`.
fn count(number: u64, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", grouped(number))
}

/// `12345` is `12_345`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes as a person reads it.
fn bytes(number: u64) -> String {
    let mut value = number as f64;
    for unit in ["B", "kB", "MB", "GB"] {
        if value < 1000.0 {
            let digits = usize::from(value < 10.0 && unit != "B");
            return format!("{value:.digits$} {unit}");
        }
        value /= 1000.0;
    }
    format!("{value:.1} TB")
}

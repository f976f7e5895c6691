//! How the policy comes to act and to learn: cold start, rollouts, rewards and updates.

use std::collections::BTreeSet;

use super::{
    Aggregation, Importance, KlControl, KlInReward, KlKind, Lora, LrDecay, PolicyLoss, Precision,
    Recompute,
};

settings! {
    /// The supervised stage: stages one after the other, with one optimizer.
    ColdStartSettings {
        /// The stages; an empty list is no cold start.
        stages: Vec<StageSettings> = Vec::new();
        /// Linear warm-up over the first steps of all stages together.
        warmup_steps: u32 = 30, unit "steps";
        /// Learning rate of AdamW (embeddings, norms, biases) as a share of a stage's `lr`.
        other_lr_share: f32 = 0.5, unit "share",
            where above(0.0) or "embeddings, norms and biases would not learn";
        /// AdamW's second beta.
        beta2: f32 = 0.98,
            where from_below(0.0, 1.0) or "the mean of squared gradients would never settle";
        /// Weight decay on matrices.
        weight_decay: f32 = 0.01,
            where at_least(0.0) or "weights would grow by themselves";
        /// Gradient norm is clipped to this; inf: never.
        grad_clip: f32 = 1.0,
            where above_or_inf(0.0) or "every gradient would be scaled to nothing";
    }
}

settings! {
    /// One stage of the cold start.
    StageSettings {
        /// Optimizer steps.
        steps: u32 = 500, unit "steps",
            where at_least(1.0) or "the stage would do nothing";
        /// Learning rate of Muon (matrices) at the first step of the stage.
        lr: f32 = 0.012,
            where above(0.0) or "the policy would not learn";
        /// Learning rate at its end; linear in between.
        lr_end: f32 = 0.008,
            where at_least(0.0) or "the policy would unlearn";
        /// Weight of the training-only aid (name the previous tokens); 0: off.
        aid_weight: f32 = 0.0,
            where at_least(0.0) or "the aid would teach the opposite";
        /// What the examples are.
        mix: MixSettings = MixSettings::default();
    }
}

settings! {
    /// Examples of one cold start step.
    MixSettings {
        /// Whole scripted trajectories.
        full: u32 = 8, unit "rows";
        /// Single turns in the deployed context.
        deployed: u32 = 12, unit "rows";
        /// Notes followed by the answer, loss on the answer.
        probe: u32 = 4, unit "rows";
        /// Facts asked again after a passage.
        drill: u32 = 6, unit "rows";
        /// Random segments repeated.
        copy: u32 = 6, unit "rows";
        /// Questions whose results come in random order; loss on the note and the next action.
        sequence: u32 = 0, unit "rows";
        /// Drills alone, growing longer, for the first so many steps of the whole cold start; 0: none.
        opening_steps: u32 = 0, unit "steps";
        /// Most objectives in whole trajectories.
        full_objectives_max: u32 = 4, unit "objectives",
            where at_least(1.0) or "an example would ask for nothing";
        /// Most objectives in single turns and probes.
        turn_objectives_max: u32 = 6, unit "objectives",
            where at_least(1.0) or "an example would ask for nothing";
        /// Most positions skipped at a turn boundary, so that long contexts are met early.
        position_gap: u32 = 0, unit "tokens";
        /// Shares of the known facts that the notes keep; one is drawn per trajectory.
        keep: Vec<f32> = vec![0.05, 0.2, 0.4, 1.0], unit "shares",
            where from_to(0.0, 1.0) or "notes cannot keep less than nothing or more than everything";
        /// Chance that a note holds the distractor's value.
        junk: f32 = 0.0, unit "chance",
            where from_to(0.0, 1.0) or "it is no chance";
        /// Chance of made-up names and values.
        pseudo: f32 = 0.35, unit "chance",
            where from_to(0.0, 1.0) or "it is no chance";
    }
}

settings! {
    /// How trajectories are made.
    RolloutSettings {
        /// What the policy sees while training.
        context: RolloutContext = RolloutContext::Full;
        /// Questions per step.
        groups: u32 = 8, unit "questions",
            where at_least(1.0) or "a step would have nothing to learn from";
        /// Rollouts of each question.
        group_size: u32 = 16, unit "rollouts",
            where at_least(2.0) or "every advantage is 0";
        /// Sampling temperature.
        temperature: f32 = 1.0,
            where above(0.0) or "the rollouts of a group would be equal and every advantage 0";
        /// Sample only from so many of the likeliest tokens; 0: from all.
        top_k: u32 = 0, unit "tokens";
        /// Sample only from the likeliest tokens that together have this probability; 1: from all.
        top_p: f32 = 1.0, unit "share",
            where above_to(0.0, 1.0) or "there would be no token to choose, or a sum of probabilities above 1";
        /// Sample only tokens with at least this share of the likeliest token's probability; 0: all.
        min_p: f32 = 0.0, unit "share",
            where from_to(0.0, 1.0) or "not even the likeliest token could be chosen";
        /// Logits of tokens that occur already are divided by this if positive, else multiplied; 1: off.
        repetition_penalty: f32 = 1.0,
            where above(0.0) or "logits would change their sign";
        /// Most trajectories alive at once; 0: no limit.
        in_flight: u32 = 0, unit "trajectories";
        /// Wait for every reply of a tick (a run repeats bit for bit on one machine), or take what is there.
        lockstep: bool = true;
        /// Limits, each with its own ending.
        limits: LimitSettings = LimitSettings::default();
    }
}

choice! {
    /// What the policy sees.
    ContextKind: Copy Eq PartialOrd Ord Hash {
        /// Question, then every turn and tool result so far.
        "full" => Full,
        /// Question, last notes, last tool result (`tool_short_chars` of it), and a forced `<mem>`.
        "deployed" => Deployed,
        /// Question, the last turn as it was written, and its tool result.
        "last_turn" => LastTurn,
        /// Question, last notes, and a forced `<mem>`: what the notes are worth alone.
        "memory_only" => MemoryOnly,
        /// MEM1's: turns of thought and action without notes; question, the last turn, and its tool result with the number of turns left.
        "mem1" => Mem1,
        /// MemAgent's: a document read part by part (`task.chunks`), each with the question and the last notes; then the answer from question and notes.
        "chunks" => Chunks,
        /// ReAct's: turns of thought and action without notes; question, then every turn and tool result so far.
        "none" => NoNotes,
    }
}

// Written out, because the macro knows no attributes of words.
#[allow(clippy::derivable_impls)]
impl Default for ContextKind {
    fn default() -> Self {
        Self::Full
    }
}

impl ContextKind {
    /// Its word in files and tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Deployed => "deployed",
            Self::LastTurn => "last_turn",
            Self::MemoryOnly => "memory_only",
            Self::Mem1 => "mem1",
            Self::Chunks => "chunks",
            Self::NoNotes => "none",
        }
    }

    /// Whether a context is the one before and what came since, so that a trajectory is one row.
    #[must_use]
    pub fn grows(self) -> bool {
        matches!(self, Self::Full | Self::NoNotes)
    }

    /// Whether turns write notes.
    #[must_use]
    pub fn has_notes(self) -> bool {
        !matches!(self, Self::Mem1 | Self::NoNotes)
    }
}

choice! {
    /// What the policy sees while training.
    RolloutContext: Copy {
        /// Question, then every turn and tool result so far.
        "full" => Full,
        /// Question, last notes, last tool result (`tool_short_chars` of it), and a forced `<mem>`.
        "deployed" => Deployed,
        /// Question, the last turn as it was written, and its tool result.
        "last_turn" => LastTurn,
        /// Question, last notes, and a forced `<mem>`: what the notes are worth alone.
        "memory_only" => MemoryOnly,
        /// MEM1's: turns of thought and action without notes; question, the last turn, and its tool result with the number of turns left.
        "mem1" => Mem1,
        /// MemAgent's: a document read part by part (`task.chunks`), each with the question and the last notes; then the answer from question and notes.
        "chunks" => Chunks,
        /// ReAct's: turns of thought and action without notes; question, then every turn and tool result so far.
        "none" => NoNotes,
        /// This share of a step's groups in the deployed context, the others in the full one.
        "mixed" => Mixed(deployed: f32, where between(0.0, 1.0) or "it would be `full` or `deployed` under another name"),
    }
}

impl RolloutContext {
    /// The context of group `group` of a step: every rollout of a question sees the same. With
    /// `mixed(s)`, of the first n groups floor(n s) are deployed, spread evenly.
    #[must_use]
    pub fn of_group(self, group: u32) -> ContextKind {
        match self {
            Self::Full => ContextKind::Full,
            Self::Deployed => ContextKind::Deployed,
            Self::LastTurn => ContextKind::LastTurn,
            Self::MemoryOnly => ContextKind::MemoryOnly,
            Self::Mem1 => ContextKind::Mem1,
            Self::Chunks => ContextKind::Chunks,
            Self::NoNotes => ContextKind::NoNotes,
            Self::Mixed(share) => {
                let deployed = |groups: u32| (f64::from(groups) * f64::from(share)).floor();
                if deployed(group + 1) > deployed(group) {
                    ContextKind::Deployed
                } else {
                    ContextKind::Full
                }
            }
        }
    }

    /// The contexts that occur in a step of so many groups.
    #[must_use]
    pub fn kinds(self, groups: u32) -> BTreeSet<ContextKind> {
        (0..groups).map(|group| self.of_group(group)).collect()
    }
}

settings! {
    /// Limits of a trajectory.
    LimitSettings: Copy {
        /// Turns of a trajectory; 0: objectives + 3.
        turns: u32 = 0, unit "turns";
        /// Tokens sampled in one turn.
        turn_tokens: u32 = 160, unit "tokens",
            where at_least(1.0) or "no turn could be written";
        /// Tokens sampled in one trajectory.
        trajectory_tokens: u32 = 1024, unit "tokens",
            where at_least(1.0) or "no trajectory could be written";
        /// Tokens of a context with its turn.
        context_tokens: u32 = 1024, unit "tokens",
            where at_least(1.0) or "no question fits";
        /// Characters of a tool result; more are cut.
        tool_chars: u32 = 400, unit "characters",
            where at_least(1.0) or "tools would say nothing";
        /// Tokens of a tool result, cut after its characters; 0: no limit.
        tool_tokens: u32 = 0, unit "tokens";
        /// What is kept of a tool result that is cut.
        tool_kept: KeptSide = KeptSide::Head;
        /// Characters of the last tool result in the contexts that show only that one (`deployed`, `last_turn`, `mem1`); 0: as many as everywhere.
        tool_short_chars: u32 = 0, unit "characters";
        /// Time a tool may take, from the moment it is at work.
        tool_seconds: f32 = 5.0, unit "seconds",
            where above(0.0) or "every tool call would time out";
        /// Tool calls at work at once; further ones wait.
        tools_in_flight: u32 = 120, unit "calls",
            where from_to(1.0, 10000.0) or "no tool could be called, or more than a machine has connections for";
        /// Failed tool calls that a trajectory is told of and goes on; one more ends it.
        tool_failures: u32 = 3, unit "calls";
    }
}

choice! {
    /// What is kept of a text that is cut.
    KeptSide: Copy Eq {
        /// Its beginning; verl calls this `left`.
        "head" => Head,
        /// Its end; verl calls this `right`.
        "tail" => Tail,
        /// Half of the characters at each end; verl calls this `middle`.
        "ends" => Ends,
    }
}

settings! {
    /// What an answer earns.
    RewardSettings: Copy {
        /// Added when every turn keeps the format and the answer is wrong (a right answer earns 1).
        format: f32 = 0.0, unit "reward",
            where from_below(0.0, 1.0) or "a wrong answer would earn as much as a right one, or less than broken text";
    }
}

settings! {
    /// How the policy learns.
    LearnerSettings {
        /// RL steps; 0: none.
        steps: u32 = 24, unit "steps";
        /// Mini-batches per step, one optimizer step each.
        mini_batches: u32 = 2, unit "batches",
            where at_least(1.0) or "there would be no update";
        /// Passes over the rows of a step.
        epochs: u32 = 1, unit "passes",
            where at_least(1.0) or "there would be no update";
        /// Peak learning rate.
        lr: f32 = 3e-4,
            where above(0.0) or "the policy would not learn";
        /// Linear warm-up.
        warmup_steps: u32 = 0, unit "steps";
        /// The way from the peak to the last step's learning rate.
        lr_decay: LrDecay = LrDecay::Linear;
        /// Learning rate at the last step as a share of the peak; 1: constant.
        final_lr_share: f32 = 1.0, unit "share",
            where from_to(0.0, 1.0) or "the learning rate would turn negative or grow";
        /// AdamW betas.
        betas: (f32, f32) = (0.9, 0.95),
            where from_below(0.0, 1.0) or "the mean gradient would never settle";
        /// AdamW epsilon.
        eps: f32 = 1e-8,
            where above(0.0) or "a weight without gradient would be divided by 0";
        /// Weight decay.
        weight_decay: f32 = 0.0,
            where at_least(0.0) or "weights would grow by themselves";
        /// Gradient norm is clipped to this; inf: never.
        grad_clip: f32 = 1.0,
            where above_or_inf(0.0) or "every gradient would be scaled to nothing";
        /// The probability ratio counts down to 1 - this.
        clip_low: f32 = 0.2,
            where between(0.0, 1.0) or "the clip would stop every update, or none";
        /// The probability ratio counts up to 1 + this.
        clip_high: f32 = 0.2,
            where above(0.0) or "the clip would stop every update";
        /// Dual clip: the loss of a negative advantage is bounded by this times the advantage; 0: off.
        clip_dual: f32 = 0.0,
            where at_least(0.0) or "it is a bound on a ratio";
        /// Weight of the KL to the policy at the start of RL; 0: off.
        kl_weight: f32 = 0.0,
            where at_least(0.0) or "the policy would be driven away from where it began";
        /// How that KL is estimated.
        kl_kind: KlKind = KlKind::K3;
        /// Who decides its weight.
        kl_control: KlControl = KlControl::Fixed;
        /// KL to the policy at the start of RL as a cost on rewards; `kl_weight` puts it into the loss.
        kl_in_reward: KlInReward = KlInReward::Off;
        /// The loss of a token.
        policy_loss: PolicyLoss = PolicyLoss::Ppo;
        /// How the losses of tokens become one number.
        aggregation: Aggregation = Aggregation::TokenMean;
        /// Weight of the entropy of the policy, which is rewarded; 0: off.
        entropy_weight: f32 = 0.0,
            where at_least(0.0) or "the policy would be paid to lose its spread";
        /// Weights between the engine that sampled and the learner.
        importance: Importance = Importance::Off;
        /// Most tokens computed at once, of rows packed one after the other (a longer row is computed alone); 0: on the processor as many as keep 1 GiB of activations, 2048 to 8192; 32768 on CUDA. Changes no result beyond rounding.
        micro_tokens: u32 = 0, unit "tokens";
        /// Mini-batches in a row whose loss or gradient is not finite before the run stops. Each is skipped: weights and optimizer stay as they are.
        max_skipped: u32 = 3, unit "batches",
            where at_least(1.0) or "no mini-batch could be skipped, and none is learned from that is not finite";
        /// The kind of numbers that forward and backward passes compute with. Weights, moments, losses and the gradient norm are f32 always, and so is generation.
        precision: Precision = Precision::F32;
        /// Whether layers are computed a second time in the backward pass, so that their activations need not be kept: less memory, about a third more work. Changes no result beyond rounding.
        recompute: Recompute = Recompute::Auto;
        /// Whether all weights learn, or low-rank adapters beside them.
        lora: Lora = Lora::Off;
    }
}

#[cfg(test)]
mod tests {
    use super::{ContextKind, RolloutContext};

    #[test]
    fn mixed_groups_are_deployed_in_their_share_and_spread() {
        let deployed = |share: f32, groups: u32| -> Vec<u32> {
            (0..groups)
                .filter(|&g| RolloutContext::Mixed(share).of_group(g) == ContextKind::Deployed)
                .collect()
        };
        assert_eq!(deployed(0.5, 8), [1, 3, 5, 7]);
        assert_eq!(deployed(0.25, 8), [3, 7]);
        assert_eq!(deployed(0.75, 4), [1, 2, 3]);
        assert_eq!(RolloutContext::Mixed(0.5).kinds(2).len(), 2);
        assert_eq!(RolloutContext::Deployed.kinds(3).len(), 1);
    }
}

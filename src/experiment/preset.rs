//! Presets of the credit grammar, and the short questions that the credit code asks of it.

use super::spec::{
    Answers, Baseline, CreditSettings, CreditTokens, Experiment, First, Gate, KlInReward, Placebo,
    Scale, Scorer, Space, Support, Target, Threshold, Unclosed, Weight,
};

impl Experiment {
    /// Whether weights change in the run: a cold start, or RL steps. A run without either only
    /// measures the policy.
    #[must_use]
    pub fn trains(&self) -> bool {
        !self.evaluation.only && (self.learner.steps > 0 || !self.cold_start.stages.is_empty())
    }

    /// Whether a copy of the policy at the start of RL has to be kept: for the KL in loss or reward, or
    /// to score.
    #[must_use]
    pub fn needs_reference(&self) -> bool {
        self.learner.kl_weight > 0.0
            || self.pays_for_kl()
            || self.credit.memory && self.credit.scorer == Scorer::Frozen
    }

    /// Decay of the moving average of the policy, if that has to be kept: to score.
    #[must_use]
    pub fn average_decay(&self) -> Option<f32> {
        match self.credit.scorer {
            Scorer::Average(decay) if self.credit.memory => Some(decay),
            _ => None,
        }
    }

    /// Whether the KL to the reference costs reward.
    #[must_use]
    pub fn pays_for_kl(&self) -> bool {
        self.learner.kl_in_reward != KlInReward::Off
    }

    /// Whether something is scored between rollouts and credit.
    #[must_use]
    pub fn scores(&self) -> bool {
        self.credit.memory || self.pays_for_kl()
    }
}

impl CreditSettings {
    /// MemPO as published: threshold 0.5, pooled baseline, weight 1.
    #[must_use]
    pub fn mempo() -> Self {
        Self::default()
    }

    /// Plain GRPO: the outcome advantage alone.
    #[must_use]
    pub fn grpo() -> Self {
        Self {
            memory: false,
            threshold: Threshold::Off,
            ..Self::default()
        }
    }

    /// MemPO over all answer tokens.
    #[must_use]
    pub fn mempo_prob() -> Self {
        Self {
            threshold: Threshold::Off,
            ..Self::default()
        }
    }

    /// What each round added, as a return over the rounds that follow; the first round too (IGPO).
    #[must_use]
    pub fn information_gain() -> Self {
        Self {
            target: Target::MinusPrevious,
            discount: 1.0,
            first: First::MinusEmpty,
            ..Self::mempo_prob()
        }
    }

    /// What the notes are worth beyond a guess, in clipped log-probs, where the answer was right
    /// (InfoMem).
    #[must_use]
    pub fn infomem() -> Self {
        Self {
            target: Target::MinusEmpty,
            space: Space::Log(5.0),
            gate: Gate::Success,
            first: First::MinusEmpty,
            ..Self::mempo_prob()
        }
    }

    /// What each round added to each sub-answer, as a return against a moving average of its
    /// position (in the style of MGPO).
    #[must_use]
    pub fn mgpo() -> Self {
        Self {
            answers: Answers::PerAnswer,
            baseline: Baseline::PositionAverage(0.9),
            scale: Scale::Off,
            ..Self::information_gain()
        }
    }

    /// What each round added, its own round only (in the style of HiMPO).
    #[must_use]
    pub fn himpo() -> Self {
        Self {
            target: Target::MinusPrevious,
            first: First::MinusEmpty,
            ..Self::mempo_prob()
        }
    }

    /// MemPO over all answer tokens, with a mean for every sub-answer.
    #[must_use]
    pub fn per_answer() -> Self {
        Self {
            answers: Answers::PerAnswer,
            ..Self::mempo_prob()
        }
    }

    /// Nothing in it depends on when a policy stops: returns against the other rollouts, unscaled.
    #[must_use]
    pub fn unbiased() -> Self {
        Self {
            answers: Answers::PerAnswer,
            baseline: Baseline::LeaveOneOut,
            scale: Scale::Off,
            ..Self::information_gain()
        }
    }

    /// Repairs together: supported gains of each sub-answer alone, bounded in scale, silent where
    /// every rollout fared alike.
    #[must_use]
    pub fn guarded() -> Self {
        Self {
            scale: Scale::StdFloor(0.1),
            gate: Gate::GroupSpread,
            support: Support::On,
            ..Self::unbiased()
        }
    }

    /// What each turn added to the notes, over all its tokens, so that a search is paid for what it
    /// brings and an early answer for what it leaves out (IGPO's turns, on notes).
    #[must_use]
    pub fn turn_gain() -> Self {
        Self {
            answers: Answers::PerAnswer,
            baseline: Baseline::Absorbing,
            scale: Scale::Off,
            tokens: CreditTokens::Turn,
            unclosed: Unclosed::Empty,
            ..Self::information_gain()
        }
    }

    /// MemPO over all answer tokens of another question's answer: a control arm.
    #[must_use]
    pub fn placebo() -> Self {
        Self {
            placebo: Placebo::ShuffledGold,
            ..Self::mempo_prob()
        }
    }

    /// Factor of the memory advantage in RL step `step` (from 0); 0 if memory credit is off.
    #[must_use]
    pub fn weight_at(&self, step: u32) -> f32 {
        match self.weight {
            _ if !self.memory => 0.0,
            Weight::Constant(factor) => factor,
            Weight::Linear(line) => {
                let along = (step as f32 / line.steps.max(1) as f32).min(1.0);
                line.from + (line.to - line.from) * along
            }
        }
    }

    /// Whether the memory advantage is 0 in every step.
    #[must_use]
    pub fn weighs_nothing(&self) -> bool {
        match self.weight {
            Weight::Constant(factor) => factor == 0.0,
            Weight::Linear(line) => line.from == 0.0 && line.to == 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::LinearSettings;

    #[test]
    fn a_linear_weight_moves_and_stays_at_its_end() {
        let settings = CreditSettings {
            weight: Weight::Linear(LinearSettings {
                from: 1.0,
                to: 0.0,
                steps: 4,
            }),
            ..CreditSettings::mempo()
        };
        let weights: Vec<f32> = [0, 1, 2, 4, 9].map(|step| settings.weight_at(step)).into();
        assert_eq!(weights, [1.0, 0.75, 0.5, 0.0, 0.0]);
        assert_eq!(CreditSettings::grpo().weight_at(0), 0.0);
    }
}

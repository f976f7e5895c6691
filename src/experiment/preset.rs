//! Presets of the credit grammar, and the short questions that the credit code asks of it.

use super::spec::{CreditSettings, Scale, Threshold, Weight};

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

    /// Whether the outcome advantage is divided by the group's standard deviation.
    #[must_use]
    pub fn outcome_std(&self) -> bool {
        self.outcome_scale == Scale::Std
    }

    /// Whether the memory advantage is divided by the standard deviation of its pool.
    #[must_use]
    pub fn memory_std(&self) -> bool {
        self.scale == Scale::Std
    }

    /// Factor of the memory advantage; 0 if memory credit is off.
    #[must_use]
    pub fn weight(&self) -> f32 {
        match self.weight {
            _ if !self.memory => 0.0,
            Weight::Constant(factor) => factor,
        }
    }
}

//! The numbers of a step, by name.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::names;
use crate::engine::{MiniBatchReport, Mismatch, SupervisedReport};
use crate::trajectory::{FormatRule, StopReason};

/// The numbers of a step. Every name stands in [`super::METRICS`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics(pub BTreeMap<String, f64>);

impl Metrics {
    /// Sets one number.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        self.0.insert(name.into(), value);
    }

    /// Sets `name/mean`, `name/max` and `name/min`; nothing if there are no values.
    pub fn set_spread(&mut self, name: &str, values: &[f64]) {
        if values.is_empty() {
            return;
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        self.set(format!("{name}/mean"), mean);
        self.set(
            format!("{name}/max"),
            values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        );
        self.set(
            format!("{name}/min"),
            values.iter().copied().fold(f64::INFINITY, f64::min),
        );
    }

    /// Sets `name/mean`; nothing if there are no values.
    pub fn set_mean(&mut self, name: &str, values: &[f64]) {
        if !values.is_empty() {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            self.set(format!("{name}/mean"), mean);
        }
    }

    /// Sets `stop/<reason>` for every reason: the share of trajectories that ended so.
    pub fn set_stops(&mut self, reasons: &[StopReason]) {
        for reason in names::STOP_REASONS {
            let hits = reasons.iter().filter(|&&r| r == reason).count();
            let share = hits as f64 / reasons.len().max(1) as f64;
            self.set(format!("stop/{}", names::stop_reason(reason)), share);
        }
    }

    /// Sets `format/<rule>` for every rule: the share of turns that broke it first.
    pub fn set_broken_rules(&mut self, turns: &[Option<FormatRule>]) {
        for rule in names::FORMAT_RULES {
            let hits = turns.iter().filter(|&&r| r == Some(rule)).count();
            let share = hits as f64 / turns.len().max(1) as f64;
            self.set(format!("format/{}", names::format_rule(rule)), share);
        }
    }

    /// Sets the `actor/*` numbers of an update: means over the mini-batches that were learned from.
    pub fn set_update(&mut self, mini_batches: &[MiniBatchReport]) {
        let made = || mini_batches.iter().filter(|mini| !mini.skipped);
        let count = made().count();
        if !mini_batches.is_empty() {
            self.set("actor/skipped_steps", (mini_batches.len() - count) as f64);
        }
        let mut mean = |name: &str, value: fn(&MiniBatchReport) -> f64| {
            if count > 0 {
                self.set(name, made().map(value).sum::<f64>() / count as f64);
            }
        };
        mean("actor/pg_loss", |m| m.pg_loss);
        mean("actor/pg_clipfrac", |m| m.pg_clipfrac);
        mean("actor/pg_clipfrac_lower", |m| m.pg_clipfrac_lower);
        mean("actor/ppo_kl", |m| m.ppo_kl);
        mean("actor/entropy", |m| m.entropy);
        mean("actor/kl_loss", |m| m.kl_loss);
        mean("actor/grad_norm", |m| m.grad_norm);
    }

    /// Sets the `training/rollout_probs_diff_*` numbers from (sampled, learner) log-probs of tokens that
    /// both computed with the same weights: |p - p|, as verl does (`debug/metrics.py`); none without tokens.
    pub fn set_probs_diff(&mut self, logprobs: impl Iterator<Item = (f32, f32)>) {
        let gap = |(sampled, learner)| {
            (f64::exp(f64::from(sampled)) - f64::exp(f64::from(learner))).abs()
        };
        let gaps: Vec<f64> = logprobs.map(gap).collect();
        if gaps.is_empty() {
            return;
        }
        let count = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / count;
        // torch.std: n - 1, and nothing to say about one token.
        let squares = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>();
        let std = (squares / (count - 1.0).max(1.0)).sqrt();
        self.set("training/rollout_probs_diff_mean", mean);
        self.set(
            "training/rollout_probs_diff_max",
            gaps.iter().copied().fold(0.0, f64::max),
        );
        self.set("training/rollout_probs_diff_std", std);
    }

    /// Sets the `mismatch/*` numbers of an update with importance weights.
    pub fn set_mismatch(&mut self, mismatch: &Mismatch) {
        let numbers = [
            ("rollout_is_mean", mismatch.weight_mean),
            ("rollout_is_eff_sample_size", mismatch.effective_share),
            ("rollout_is_veto_fraction", mismatch.veto_share),
            ("rollout_is_masked_fraction", mismatch.masked_share),
            ("rollout_is_seq_masked_fraction", mismatch.masked_rows),
            ("mismatch_kl", mismatch.kl),
            ("mismatch_k3_kl", mismatch.k3),
            ("mismatch_training_ppl", mismatch.learner_perplexity),
            ("mismatch_rollout_ppl", mismatch.engine_perplexity),
            ("mismatch_log_ppl_diff", mismatch.log_perplexity_gap),
        ];
        for (name, value) in numbers {
            self.set(format!("mismatch/{name}"), value);
        }
    }

    /// Sets the `cold_start/*` numbers of a supervised step.
    pub fn set_cold_start(&mut self, report: &SupervisedReport, lr: f64) {
        for (part, loss, accuracy) in &report.parts {
            self.set(format!("cold_start/{part}/loss"), *loss);
            self.set(format!("cold_start/{part}/accuracy"), *accuracy);
        }
        self.set("cold_start/aid_loss", report.aid_loss);
        self.set("cold_start/grad_norm", report.grad_norm);
        self.set("cold_start/tokens", report.tokens as f64);
        self.set("cold_start/lr", lr);
    }

    /// One number.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0.get(name).copied()
    }
}

/// A line of `metrics.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MetricsLine {
    /// The last event written before it: a resume that voids the event voids the line.
    pub seq: u64,
    /// The step of its axis: cold start steps for `cold_start/*`, RL steps for everything else.
    pub step: u32,
    /// The numbers.
    pub metrics: Metrics,
}

/// JSON knows no NaN and no infinity; they stand as text.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Number<'a> {
    Finite(f64),
    Other(std::borrow::Cow<'a, str>),
}

impl Serialize for Metrics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, &value)| {
            let value = if value.is_finite() {
                Number::Finite(value)
            } else {
                Number::Other(value.to_string().into())
            };
            (name, value)
        }))
    }
}

impl<'de> Deserialize<'de> for Metrics {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let map = BTreeMap::<String, Number<'de>>::deserialize(deserializer)?;
        let number = |value| match value {
            Number::Finite(value) => Ok(value),
            Number::Other(text) => text.parse().map_err(serde::de::Error::custom),
        };
        map.into_iter()
            .map(|(name, value)| Ok((name, number(value)?)))
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_json_lacks_are_read_back() {
        let mut metrics = Metrics::default();
        metrics.set("actor/grad_norm", f64::INFINITY);
        metrics.set("actor/pg_loss", -0.125);
        metrics.set("actor/entropy", f64::NAN);
        let text = serde_json::to_string(&metrics).unwrap();
        let read: Metrics = serde_json::from_str(&text).unwrap();
        assert_eq!(read.get("actor/grad_norm"), Some(f64::INFINITY));
        assert_eq!(read.get("actor/pg_loss"), Some(-0.125));
        assert!(read.get("actor/entropy").is_some_and(f64::is_nan));
    }

    #[test]
    fn the_gap_between_engine_and_learner_is_one_of_probabilities() {
        let mut metrics = Metrics::default();
        metrics.set_probs_diff(std::iter::empty());
        assert_eq!(metrics.get("training/rollout_probs_diff_mean"), None);
        let log = |p: f32| p.ln();
        let pairs = [(0.5, 0.25), (0.25, 0.5), (1.0, 1.0), (0.125, 0.625)];
        metrics.set_probs_diff(pairs.into_iter().map(|(a, b)| (log(a), log(b))));
        let told = |name: &str| metrics.get(&format!("training/rollout_probs_diff_{name}"));
        // torch: d = (old.exp() - new.exp()).abs(); d.mean(), d.max(), d.std()
        for (name, expected) in [("mean", 0.25), ("max", 0.5), ("std", 0.204_124_145)] {
            let found = told(name).unwrap();
            assert!((found - expected).abs() < 1e-6, "{name}: {found}");
        }
    }

    #[test]
    fn every_name_that_a_helper_sets_is_in_the_table() {
        let mut metrics = Metrics::default();
        metrics.set_spread("critic/score", &[1.0, 0.0]);
        metrics.set_stops(&[StopReason::Answered]);
        metrics.set_probs_diff([(0.0, 0.0)].into_iter());
        metrics.set_broken_rules(&[None]);
        metrics.set_update(&[MiniBatchReport::default()]);
        let report = SupervisedReport {
            parts: vec![("full".into(), 1.0, 0.5)],
            ..SupervisedReport::default()
        };
        metrics.set_cold_start(&report, 0.01);
        assert_eq!(metrics.get("critic/score/mean"), Some(0.5));
        assert_eq!(metrics.get("stop/answered"), Some(1.0));
        for name in metrics.0.keys() {
            assert!(names::MetricName::find(name).is_some(), "{name}");
        }
    }

    #[test]
    fn nothing_is_set_from_no_values() {
        let mut metrics = Metrics::default();
        metrics.set_spread("critic/score", &[]);
        metrics.set_mean("memory/reward", &[]);
        metrics.set_update(&[]);
        assert_eq!(metrics, Metrics::default());
    }
}

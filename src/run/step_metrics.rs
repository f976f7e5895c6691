//! The numbers of a step, summed up from its trajectories.

use std::collections::BTreeMap;

use crate::credit::group::mean_std;
use crate::record::{MemoryCredit, Metrics};
use crate::trajectory::{
    FormatRule, Outcome, Question, StopReason, TrajectoryId, TurnState, Turns,
};

/// What the metrics of a step are made of.
#[derive(Default)]
pub(super) struct StepSums {
    /// Weights of the trained tokens.
    pub(super) weights: Vec<f64>,
    scores: Vec<f64>,
    /// Scores less what leaving the reference cost.
    rewards: Vec<f64>,
    em: Vec<f64>,
    f1: Vec<f64>,
    valid: Vec<f64>,
    recall: Vec<f64>,
    notes_tokens: Vec<f64>,
    turns: Vec<f64>,
    tool_calls: Vec<f64>,
    prompt: Vec<f64>,
    response: Vec<f64>,
    memory: Vec<MemoryCredit>,
    reasons: Vec<StopReason>,
    rules: Vec<Option<FormatRule>>,
    groups: BTreeMap<u32, Vec<f32>>,
    /// Tokens of all trajectories.
    pub(super) tokens: f64,
}

impl StepSums {
    /// Takes one trajectory of the step in; `kl_cost` is what it paid for leaving the reference.
    pub(super) fn add(
        &mut self,
        id: TrajectoryId,
        turns: &Turns,
        state: TurnState,
        outcome: &Outcome,
        memory: &[MemoryCredit],
        question: &Question,
        kl_cost: f64,
    ) {
        self.scores.push(f64::from(outcome.reward));
        self.rewards.push(f64::from(outcome.reward) - kl_cost);
        self.em.push(f64::from(outcome.em));
        self.f1.push(f64::from(outcome.f1));
        self.valid.push(f64::from(u8::from(outcome.valid)));
        self.recall.push(f64::from(outcome.notes_recall));
        self.notes_tokens.push(f64::from(outcome.notes_tokens));
        self.turns.push(turns.0.len() as f64);
        self.tool_calls
            .push(turns.0.iter().filter(|turn| turn.tool.is_some()).count() as f64);
        let response: usize = turns
            .0
            .iter()
            .map(|turn| turn.ids.len() + turn.tool.as_ref().map_or(0, |tool| tool.ids.len()))
            .sum();
        self.prompt.push(question.0.prompt_ids.len() as f64);
        self.response.push(response as f64);
        self.tokens += (question.0.prompt_ids.len() + response) as f64;
        self.memory.extend_from_slice(memory);
        self.rules.extend(turns.0.iter().map(|turn| turn.broken));
        if let TurnState::Terminated(reason) = state {
            self.reasons.push(reason);
        }
        self.groups
            .entry(id.group)
            .or_default()
            .push(outcome.reward);
    }

    /// The numbers of the step, under their names.
    pub(super) fn metrics(&self) -> Metrics {
        let mut metrics = Metrics::default();
        metrics.set_spread("critic/score", &self.scores);
        metrics.set_spread("critic/rewards", &self.rewards);
        metrics.set_spread("critic/advantages", &self.weights);
        metrics.set_spread("response_length", &self.response);
        metrics.set_spread("prompt_length", &self.prompt);
        metrics.set_spread("num_turns", &self.turns);
        metrics.set_spread("tool_call_counts", &self.tool_calls);
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        metrics.set("outcome/em", mean(&self.em));
        metrics.set("outcome/f1", mean(&self.f1));
        metrics.set("outcome/valid", mean(&self.valid));
        metrics.set("memory/notes_recall", mean(&self.recall));
        metrics.set("memory/notes_tokens", mean(&self.notes_tokens));
        metrics.set("memory/rounds", self.memory.len() as f64);
        let column = |of: fn(&MemoryCredit) -> f32| -> Vec<f64> {
            self.memory
                .iter()
                .map(|credit| f64::from(of(credit)))
                .collect()
        };
        let rewards = column(|credit| credit.reward);
        let advantages = column(|credit| credit.advantage);
        metrics.set_mean("memory/p_memory", &column(|credit| credit.p_memory));
        let known = |of: fn(&MemoryCredit) -> Option<f32>| -> Vec<f64> {
            let values = self.memory.iter().filter_map(of);
            values.map(f64::from).collect()
        };
        metrics.set_mean("memory/p_full", &known(|credit| credit.p_full));
        metrics.set_mean("memory/p_previous", &known(|credit| credit.p_previous));
        metrics.set_mean("memory/p_empty", &known(|credit| credit.p_empty));
        for (name, values) in [
            ("memory/reward", &rewards),
            ("memory/advantage", &advantages),
        ] {
            metrics.set_mean(name, values);
            if values.len() > 1 {
                metrics.set(format!("{name}/std"), mean_std(values).1);
            }
        }
        let flat = self
            .groups
            .values()
            .filter(|group| group.windows(2).all(|pair| pair[0] == pair[1]))
            .count();
        metrics.set(
            "groups/without_spread",
            flat as f64 / self.groups.len().max(1) as f64,
        );
        metrics.set("perf/total_num_tokens", self.tokens);
        metrics.set_stops(&self.reasons);
        metrics.set_broken_rules(&self.rules);
        metrics
    }
}

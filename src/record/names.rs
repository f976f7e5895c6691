//! The names of all metrics, with unit and meaning. Names follow verl where it has one.

use std::fmt::Write as _;

use crate::trajectory::{FormatRule, StopReason};

/// A metric, or a family of them: a part in braces stands for several words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricName {
    /// As it stands in `metrics.jsonl` and in TensorBoard.
    pub name: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// One line.
    pub meaning: &'static str,
    /// Whether verl has the name.
    pub verl: bool,
}

const fn verl(name: &'static str, unit: &'static str, meaning: &'static str) -> MetricName {
    MetricName {
        name,
        unit,
        meaning,
        verl: true,
    }
}

const fn own(name: &'static str, unit: &'static str, meaning: &'static str) -> MetricName {
    MetricName {
        name,
        unit,
        meaning,
        verl: false,
    }
}

/// Every metric.
#[rustfmt::skip]
pub const METRICS: &[MetricName] = &[
    verl("actor/pg_loss", "nats", "Policy loss, aggregated over the trained tokens as the learner is told (by default their mean), then mean over mini-batches."),
    verl("actor/pg_clipfrac", "share of tokens", "Tokens where the clipped term was chosen. Above 0.3 the update goes too far."),
    verl("actor/pg_clipfrac_lower", "share of tokens", "Tokens where dual clip was chosen."),
    verl("actor/ppo_kl", "nats", "Mean of sampled minus learner log-prob: how far the policy moved since sampling."),
    verl("actor/entropy", "nats", "Mean entropy of the policy at trained tokens. Near 0 it no longer explores."),
    verl("actor/kl_loss", "nats", "KL to the reference policy, estimated and aggregated as the learner is told; 0 if switched off."),
    verl("actor/grad_norm", "norm", "Gradient norm before clipping."),
    own("actor/skipped_steps", "mini-batches", "Mini-batches that were skipped, as their loss or gradient was not finite."),
    verl("actor/lr", "1", "Learning rate of the step."),
    verl("actor/kl_coef", "1", "Weight of the KL to the reference policy in the loss; only if there is one."),
    verl("mismatch/rollout_is_mean", "1", "Mean weight between engine and learner before it is cut or masked. Near 1 if both agree. All mismatch/* only with learner.importance."),
    verl("mismatch/rollout_is_eff_sample_size", "share", "Effective sample size of those weights."),
    verl("mismatch/rollout_is_veto_fraction", "share of rows", "Rows left out for one token of a very small ratio."),
    verl("mismatch/rollout_is_masked_fraction", "share of tokens", "Tokens whose weight was outside the bounds and masked."),
    verl("mismatch/rollout_is_seq_masked_fraction", "share of rows", "Rows with a masked token."),
    verl("mismatch/mismatch_kl", "nats", "Mean of sampled minus learner log-prob before the first update."),
    verl("mismatch/mismatch_k3_kl", "nats", "The k3 estimate of the same."),
    verl("mismatch/mismatch_training_ppl", "1", "Perplexity of the sampled tokens for the learner, mean over rows."),
    verl("mismatch/mismatch_rollout_ppl", "1", "The same for the engine."),
    verl("mismatch/mismatch_log_ppl_diff", "nats", "Mean over rows of the log of learner perplexity over engine perplexity."),
    verl("actor/reward_kl_penalty", "nats", "KL to the reference that cost reward: mean over trajectories of the mean of their sampled tokens."),
    verl("actor/reward_kl_penalty_coeff", "1", "Weight of that KL."),
    verl("critic/score/{stat}", "reward", "Reward of the trajectories: R_T. (verl's name; there is no critic.)"),
    verl("critic/rewards/{stat}", "reward", "The same, less what the KL in the reward cost."),
    verl("critic/advantages/{stat}", "weight", "Weights of the trained tokens, all parts together."),
    verl("response_length/{stat}", "tokens", "Length of a trajectory after its prompt, tool tokens included."),
    verl("prompt_length/{stat}", "tokens", "Length of the prompt."),
    verl("num_turns/{stat}", "turns", "Turns of a trajectory."),
    verl("tool_call_counts/{stat}", "calls", "Tool calls of a trajectory."),
    verl("training/global_step", "steps", "RL steps done."),
    verl("training/rollout_probs_diff_mean", "probability", "Mean difference between sampled and learner probabilities of the same tokens, in the mini-batch before the first optimizer step. Only with learner.epochs: 1."),
    verl("training/rollout_probs_diff_max", "probability", "Largest such difference. It should be near 0: both come from the same weights."),
    verl("training/rollout_probs_diff_std", "probability", "Standard deviation of such differences."),
    verl("timing_s/gen", "seconds", "Generating the turns of the step."),
    verl("timing_s/reward", "seconds", "Judging answers."),
    verl("timing_s/adv", "seconds", "Scoring P(gold) for the memory rewards, and laying out advantages."),
    verl("timing_s/update_actor", "seconds", "The update."),
    verl("timing_s/testing", "seconds", "Evaluations."),
    verl("timing_s/save_checkpoint", "seconds", "Saving a checkpoint."),
    verl("timing_s/step", "seconds", "The whole step."),
    verl("perf/total_num_tokens", "tokens", "Tokens of the step's trajectories."),
    verl("perf/time_per_step", "seconds", "The whole step."),
    verl("perf/throughput", "tokens per second", "Tokens of the step's trajectories by its time."),
    verl("val-core/{task}/em/{context}/{objectives}", "share of questions", "Exact match over all objectives, by what the policy sees and by objectives."),
    verl("val-aux/{task}/{figure}/{context}/{objectives}", "as in the table of evaluations", "Every other figure of an evaluation, under its name in docs/evaluation.md: f1, cem, notes_recall, peak_tokens and so on."),
    own("val-aux/{task}/stop/{reason}/{context}/{objectives}", "share of trajectories", "How the trajectories of an evaluation ended."),
    own("val-aux/{task}/format/{rule}/{context}/{objectives}", "share of turns", "Turns of an evaluation that broke this rule first."),
    own("outcome/em", "share of trajectories", "Exact match of the training trajectories."),
    own("outcome/f1", "0 to 1", "Mean F1 of the training trajectories."),
    own("outcome/valid", "share of trajectories", "Trajectories that kept every format rule and answered."),
    own("memory/reward/mean", "reward", "Mean memory reward over rounds."),
    own("memory/reward/std", "reward", "Its spread. At 0 the notes get no signal."),
    own("memory/p_memory/mean", "probability", "Mean P(gold | question, notes): what the notes alone are worth."),
    own("memory/p_full/mean", "probability", "Mean P(gold | everything so far): what could be known."),
    own("memory/p_previous/mean", "probability", "Mean P(gold | question, notes of the round before), where credit compares with it."),
    own("memory/p_empty/mean", "probability", "Mean P(gold | question, empty notes), where credit compares with it: what a guess is worth."),
    own("memory/advantage/mean", "weight", "Mean memory advantage over rounds."),
    own("memory/advantage/std", "weight", "Its spread."),
    own("memory/rounds", "rounds", "Rounds that got a memory reward."),
    own("memory/notes_recall", "share of facts", "Facts seen so far that stood in the notes, training trajectories."),
    own("memory/notes_tokens", "tokens", "Mean length of the notes, training trajectories."),
    own("groups/without_spread", "share of groups", "Groups whose rollouts all got the same reward: no outcome signal."),
    own("stop/{reason}", "share of trajectories", "How trajectories ended."),
    own("format/{rule}", "share of turns", "Turns that broke this rule first."),
    own("cold_start/{part}/loss", "nats", "Mean cross-entropy of one kind of example. Its steps are cold start steps."),
    own("cold_start/{part}/accuracy", "share of targets", "Targets that are the arg-max."),
    own("cold_start/aid_loss", "nats", "Cross-entropy of the training-only aid; 0 once it is dropped."),
    own("cold_start/grad_norm", "norm", "Gradient norm before clipping."),
    own("cold_start/tokens", "tokens", "Tokens of the batch."),
    own("cold_start/lr", "1", "Learning rate of the matrices."),
    own("cold_start/timing_s/step", "seconds", "A whole cold start step."),
];

impl MetricName {
    /// The entry of a name, if it is one of ours.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        METRICS.iter().find(|entry| entry.covers(name))
    }

    fn covers(&self, name: &str) -> bool {
        let mut ours = self.name.split('/');
        let mut theirs = name.split('/');
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) => return true,
                (Some(a), Some(b)) if a == b || (a.starts_with('{') && !b.is_empty()) => {}
                _ => return false,
            }
        }
    }
}

/// The text of `docs/metrics.md`.
#[must_use]
pub fn metrics_page() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         Every step writes one line to `metrics.jsonl`, and the same numbers to TensorBoard. Names\n\
         follow verl where it has one; the others are ours. A part in braces stands for several\n\
         words: `{stat}` is mean, max or min. This page is made from the table in\n\
         `src/record/names.rs`.\n\n\
         | Name | Unit | Meaning | From |\n|---|---|---|---|\n",
    );
    for MetricName {
        name,
        unit,
        meaning,
        verl,
    } in METRICS
    {
        let from = if *verl { "verl" } else { "palimpsest" };
        let _ = writeln!(page, "| `{name}` | {unit} | {meaning} | {from} |");
    }
    let list = |words: Vec<&str>| {
        let quoted: Vec<String> = words.iter().map(|w| format!("`{w}`")).collect();
        quoted.join(", ")
    };
    let _ = write!(
        page,
        "\n`{{reason}}` is one of {}.\n\n`{{rule}}` is one of {}.\n",
        list(STOP_REASONS.map(stop_reason).to_vec()),
        list(FORMAT_RULES.map(format_rule).to_vec()),
    );
    page
}

/// Every way to end.
pub(crate) const STOP_REASONS: [StopReason; StopReason::COUNT] = StopReason::ALL;

/// Every format rule.
pub(crate) const FORMAT_RULES: [FormatRule; FormatRule::COUNT] = FormatRule::ALL;

pub(crate) fn stop_reason(reason: StopReason) -> &'static str {
    reason.name()
}

pub(crate) fn format_rule(rule: FormatRule) -> &'static str {
    rule.name()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_made_from_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, metrics_page()).unwrap();
        }
        let page = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            page == metrics_page(),
            "run the tests once with UPDATE_DOCS=1"
        );
    }

    #[test]
    fn names_are_unique_and_families_cover_their_members() {
        for (i, entry) in METRICS.iter().enumerate() {
            assert!(
                METRICS[..i].iter().all(|e| e.name != entry.name),
                "{}",
                entry.name
            );
        }
        let found = MetricName::find("val-core/lookup/em/deployed/2").unwrap();
        assert!(found.verl);
        assert!(MetricName::find("val-core/lookup/em").is_none());
        assert!(MetricName::find("actor/unknown").is_none());
    }

    #[test]
    fn reasons_and_rules_are_written_as_in_the_events() {
        for reason in STOP_REASONS {
            let text = serde_json::to_string(&reason).unwrap();
            assert_eq!(text.trim_matches('"'), stop_reason(reason));
        }
        for rule in FORMAT_RULES {
            let text = serde_json::to_string(&rule).unwrap();
            assert_eq!(text.trim_matches('"'), format_rule(rule));
        }
    }
}

//! The charts that are always there.

use crate::record::names::METRICS;

/// A chart by its metrics.
#[derive(Clone, Copy)]
pub struct ChartOf<'a> {
    /// Its heading.
    pub title: &'a str,
    /// Metrics by verl's names; a `*` stands for any parts.
    pub metrics: &'a [&'a str],
    /// What a high value means.
    pub means: &'a str,
    /// Whether a band shows the lowest and the highest mean reward of a group.
    pub groups: bool,
    /// What the vertical axis shows at least.
    pub span: Option<(f64, f64)>,
    /// Where a click leads.
    pub leads: Leads,
}

/// Where a click into a chart leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leads {
    /// To the rollouts of the training step.
    Step,
    /// To the rollouts of the evaluation nearest to it.
    Evaluation,
    /// Nowhere: its steps have no rollouts.
    Nowhere,
}

impl<'a> ChartOf<'a> {
    /// A chart over training steps.
    pub const fn new(title: &'a str, metrics: &'a [&'a str], means: &'a str) -> Self {
        Self {
            title,
            metrics,
            means,
            groups: false,
            span: None,
            leads: Leads::Step,
        }
    }

    const fn share(mut self) -> Self {
        self.span = Some((0.0, 1.0));
        self
    }

    const fn groups(mut self) -> Self {
        self.groups = true;
        self
    }

    /// The same with another target of its clicks.
    pub const fn leads(mut self, leads: Leads) -> Self {
        self.leads = leads;
        self
    }
}

/// Where a click into the chart of one metric leads.
pub fn leads_of(metric: &str) -> Leads {
    if metric.starts_with("val-") {
        Leads::Evaluation
    } else if metric.starts_with("cold_start/") {
        Leads::Nowhere
    } else {
        Leads::Step
    }
}

/// A name of a chart as `docs/metrics.md` has it: `{part}` where the star is.
pub fn full_name(name: &str) -> &str {
    let Some((beginning, end)) = name.split_once('*') else {
        return name;
    };
    let family = METRICS
        .iter()
        .find(|of| of.name.starts_with(beginning) && of.name.ends_with(end));
    family.map_or(name, |of| of.name)
}

/// Charts by the question that they answer.
#[rustfmt::skip]
pub const GROUPS: [(&str, &[ChartOf<'static>]); 3] = [
    ("Is it learning?", &[
        ChartOf::new("Reward", &["critic/score/mean"], "High: more rollouts are right. Band: from the lowest to the highest mean of a group.").groups(),
        ChartOf::new("Evaluation, exact match", &["val-core/*"], "High: unseen questions are answered. Deployed context: from the notes alone.")
            .share().leads(Leads::Evaluation),
        ChartOf::new("Groups without spread", &["groups/without_spread"], "High: most groups give no outcome signal.").share(),
        ChartOf::new("Facts kept in the notes", &["memory/notes_recall"], "High: what was read is written down.").share(),
        ChartOf::new("Memory reward", &["memory/reward/mean", "memory/reward/std"], "A spread of 0: the notes get no signal."),
    ]),
    ("Is it healthy?", &[
        ChartOf::new("Entropy", &["actor/entropy"], "Near 0: it no longer explores."),
        ChartOf::new("Clipped tokens", &["actor/pg_clipfrac"], "Above 0.3: the update goes too far."),
        ChartOf::new("Engine against learner", &["training/rollout_probs_diff_max"], "High: the two disagree about the same weights."),
        ChartOf::new("Length of the notes", &["memory/notes_tokens"], "High: notes grow; is it worth it?"),
        ChartOf::new("Valid rollouts", &["outcome/valid"], "Low: the protocol is broken often.").share(),
        ChartOf::new("Gradient norm", &["actor/grad_norm"], "A jump: an update that hurts."),
    ]),
    ("Is it fast?", &[
        ChartOf::new("Throughput", &["perf/throughput"], "Tokens of the step by its time."),
        ChartOf::new("Time of a step", &["timing_s/gen", "timing_s/adv", "timing_s/update_actor"], "Where the seconds go."),
        ChartOf::new("Length of a rollout", &["response_length/mean"], "High: steps take longer."),
    ]),
];

/// Charts of the supervised steps before RL; only those that a run wrote are shown.
#[rustfmt::skip]
pub const COLD_START: (&str, &[ChartOf<'static>]) = ("Cold start: does it learn the protocol?", &[
    ChartOf::new("Cold start, loss", &["cold_start/*/loss"], "Low: the examples are predicted. One line a kind of example.").leads(Leads::Nowhere),
    ChartOf::new("Cold start, accuracy", &["cold_start/*/accuracy"], "Share of targets that are the arg-max.").share().leads(Leads::Nowhere),
    ChartOf::new("Cold start, loss of the aid", &["cold_start/aid_loss"], "0 once the training-only aid is dropped.").leads(Leads::Nowhere),
    ChartOf::new("Cold start, gradient norm", &["cold_start/grad_norm"], "A jump: an update that hurts.").leads(Leads::Nowhere),
    ChartOf::new("Cold start, learning rate", &["cold_start/lr"], "Warm-up, then decay.").leads(Leads::Nowhere),
    ChartOf::new("Cold start, time of a step", &["cold_start/timing_s/step"], "Seconds.").leads(Leads::Nowhere),
]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::names::MetricName;

    #[test]
    fn every_fixed_chart_names_metrics_that_exist() {
        let (_, cold) = COLD_START;
        for chart in GROUPS.iter().flat_map(|(_, charts)| *charts).chain(cold) {
            for name in chart.metrics {
                let known = METRICS.iter().any(|of| of.name == full_name(name));
                assert!(known || MetricName::find(name).is_some(), "{name}");
            }
        }
    }
}

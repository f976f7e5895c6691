//! The table of an evaluation: a line for each context and number of objectives.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::TrajectoryFigures;
use super::bootstrap::interval;
use crate::experiment::{ContextKind, EvaluationSettings};
use crate::rollout::EvaluationEntry;
use crate::trajectory::{FormatRule, Outcome, StopReason};

/// One line of the evaluation table. Figures are means over all answers; with several answers to a
/// question `em` is avg@k.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Evaluation {
    /// RL steps done when it was measured.
    pub step: u32,
    /// What the policy saw.
    pub context: ContextKind,
    /// Objectives per question.
    pub objectives: u32,
    /// Questions.
    pub n: u32,
    /// Answers to each question (k).
    pub samples: u32,
    /// Share of answers with every objective right and the format valid.
    pub em: f64,
    /// Bootstrap interval of `em`, 95 %.
    pub em_low: f64,
    /// Its upper end.
    pub em_high: f64,
    /// Share of questions of which at least one of the k answers is right.
    pub pass_at_k: f64,
    /// Mean share of objectives that are answered exactly.
    pub objectives_em: f64,
    /// Mean F1.
    pub f1: f64,
    /// Bootstrap interval of `f1`, 95 %.
    pub f1_low: f64,
    /// Its upper end.
    pub f1_high: f64,
    /// Share of answers that cover the words of every objective's right answer.
    pub cem: f64,
    /// Mean share of shown facts that stood in the notes; none where turns write nothing down.
    pub notes_recall: Option<f64>,
    /// Mean length of the notes, tokens; none where turns write nothing down.
    pub notes_tokens: Option<f64>,
    /// PT: mean longest context with its turn, tokens.
    pub peak_tokens: f64,
    /// TT: mean of all tokens processed.
    pub total_tokens: f64,
    /// MEM1's dependency, mean.
    pub dependency: f64,
    /// Mean turns.
    pub turns: f64,
    /// Mean searches.
    pub searches: f64,
    /// Mean pages read.
    pub accesses: f64,
    /// Mean turns that broke a rule of the format.
    pub format_errors: f64,
    /// Mean tool calls that failed.
    pub tool_failures: f64,
    /// Share that ended with an answer.
    pub answered: f64,
    /// Shares of how they ended, in the order of [`StopReason::ALL`].
    #[serde(with = "super::shares::stop")]
    pub stop: [f64; StopReason::COUNT],
    /// Shares of turns that broke each rule first, in the order of [`FormatRule::ALL`].
    #[serde(with = "super::shares::format")]
    pub format: [f64; FormatRule::COUNT],
}

impl Evaluation {
    /// Every figure under its name, in the order of tables; none where there is nothing to measure.
    #[must_use]
    pub fn figures(&self) -> [(&'static str, Option<f64>); 20] {
        [
            ("em", Some(self.em)),
            ("em_low", Some(self.em_low)),
            ("em_high", Some(self.em_high)),
            ("pass_at_k", Some(self.pass_at_k)),
            ("objectives_em", Some(self.objectives_em)),
            ("f1", Some(self.f1)),
            ("f1_low", Some(self.f1_low)),
            ("f1_high", Some(self.f1_high)),
            ("cem", Some(self.cem)),
            ("notes_recall", self.notes_recall),
            ("notes_tokens", self.notes_tokens),
            ("peak_tokens", Some(self.peak_tokens)),
            ("total_tokens", Some(self.total_tokens)),
            ("dependency", Some(self.dependency)),
            ("turns", Some(self.turns)),
            ("searches", Some(self.searches)),
            ("accesses", Some(self.accesses)),
            ("format_errors", Some(self.format_errors)),
            ("tool_failures", Some(self.tool_failures)),
            ("answered", Some(self.answered)),
        ]
    }

    /// How trajectories ended and which rules turns broke, as `stop/answered` or `format/one_action`.
    pub fn endings(&self) -> impl Iterator<Item = (String, f64)> + '_ {
        let stops = StopReason::ALL.into_iter().zip(self.stop);
        let rules = FormatRule::ALL.into_iter().zip(self.format);
        stops
            .map(|(reason, share)| (format!("stop/{}", reason.name()), share))
            .chain(rules.map(|(rule, share)| (format!("format/{}", rule.name()), share)))
    }
}

/// One answer that was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// The line of the table it counts for.
    pub entry: EvaluationEntry,
    /// Number of its question.
    pub group: u32,
    /// What it was worth.
    pub outcome: Outcome,
    /// What it took.
    pub figures: TrajectoryFigures,
}

/// Sums answers up per line of the table.
#[must_use]
pub fn summarise(
    step: u32,
    answers: &[Measured],
    settings: &EvaluationSettings,
) -> Vec<Evaluation> {
    let mut lines: BTreeMap<EvaluationEntry, Vec<Measured>> = BTreeMap::new();
    for measured in answers {
        lines.entry(measured.entry).or_default().push(*measured);
    }
    lines
        .into_iter()
        .map(|(entry, answers)| line(step, entry, &answers, settings))
        .collect()
}

fn line(
    step: u32,
    entry: EvaluationEntry,
    answers: &[Measured],
    settings: &EvaluationSettings,
) -> Evaluation {
    let mean =
        |of: fn(&Measured) -> f64| answers.iter().map(of).sum::<f64>() / answers.len() as f64;
    let outcome = |of: fn(&Outcome) -> f32| {
        let sum: f64 = answers
            .iter()
            .map(|answer| f64::from(of(&answer.outcome)))
            .sum();
        sum / answers.len() as f64
    };
    let mut questions: BTreeMap<u32, Vec<&Outcome>> = BTreeMap::new();
    for answer in answers {
        questions
            .entry(answer.group)
            .or_default()
            .push(&answer.outcome);
    }
    let by_question = |of: fn(&Outcome) -> f32| -> Vec<f64> {
        questions
            .values()
            .map(|of_one| {
                let sum: f64 = of_one.iter().map(|outcome| f64::from(of(outcome))).sum();
                sum / of_one.len() as f64
            })
            .collect()
    };
    let bounds = |of, number| {
        let address = (entry.context as u32, entry.objectives * 2 + number);
        interval(&by_question(of), settings.bootstrap, settings.seed, address)
    };
    let (em_low, em_high) = bounds(|outcome: &Outcome| outcome.em, 0);
    let (f1_low, f1_high) = bounds(|outcome: &Outcome| outcome.f1, 1);
    let kept = |value: f64| Some(value).filter(|_| entry.context.keeps_facts());
    let passed = questions
        .values()
        .filter(|of_one| of_one.iter().any(|outcome| outcome.em > 0.0))
        .count();
    Evaluation {
        step,
        context: entry.context,
        objectives: entry.objectives,
        n: questions.len() as u32,
        samples: (answers.len() / questions.len().max(1)) as u32,
        em: outcome(|outcome| outcome.em),
        em_low,
        em_high,
        pass_at_k: passed as f64 / questions.len() as f64,
        objectives_em: outcome(|outcome| outcome.objectives_em),
        f1: outcome(|outcome| outcome.f1),
        f1_low,
        f1_high,
        cem: outcome(|outcome| outcome.cem),
        notes_recall: kept(outcome(|outcome| outcome.notes_recall)),
        notes_tokens: kept(outcome(|outcome| outcome.notes_tokens)),
        peak_tokens: mean(|answer| f64::from(answer.outcome.peak_tokens)),
        total_tokens: mean(|answer| f64::from(answer.outcome.total_tokens)),
        dependency: mean(|answer| answer.figures.dependency),
        turns: mean(|answer| f64::from(answer.figures.turns)),
        searches: mean(|answer| f64::from(answer.figures.searches)),
        accesses: mean(|answer| f64::from(answer.figures.accesses)),
        format_errors: mean(|answer| f64::from(answer.figures.format_errors)),
        tool_failures: mean(|answer| f64::from(answer.figures.tool_failures)),
        answered: mean(|answer| f64::from(u8::from(answer.figures.answered))),
        stop: StopReason::ALL.map(|reason| {
            let ended = |answer: &&Measured| answer.figures.reason == Some(reason);
            answers.iter().filter(ended).count() as f64 / answers.len() as f64
        }),
        format: broken(answers),
    }
}

/// The share of turns that broke each rule first.
fn broken(answers: &[Measured]) -> [f64; FormatRule::COUNT] {
    let mut shares = [0.0; FormatRule::COUNT];
    for answer in answers {
        for (share, &count) in shares.iter_mut().zip(&answer.figures.broken) {
            *share += f64::from(count);
        }
    }
    let turns: u32 = answers.iter().map(|answer| answer.figures.turns).sum();
    shares.map(|count| count / f64::from(turns.max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn avg_at_k_is_over_answers_and_pass_at_k_over_questions() {
        let answer = |group, em: f32| Measured {
            entry: EvaluationEntry {
                context: ContextKind::Deployed,
                objectives: 2,
            },
            group,
            outcome: Outcome {
                em,
                f1: 0.5,
                ..Outcome::default()
            },
            figures: TrajectoryFigures {
                turns: 3,
                broken: [0, 0, 0, 0, group, 0, 0, 0],
                reason: Some([StopReason::Answered, StopReason::Malformed][group as usize]),
                ..TrajectoryFigures::default()
            },
        };
        let answers = [
            answer(0, 1.0),
            answer(0, 0.0),
            answer(1, 0.0),
            answer(1, 0.0),
        ];
        let lines = summarise(7, &answers, &EvaluationSettings::default());
        let [line] = lines.as_slice() else {
            panic!("one line")
        };
        assert_eq!((line.step, line.n, line.samples), (7, 2, 2));
        assert_eq!((line.em, line.pass_at_k, line.turns), (0.25, 0.5, 3.0));
        assert!(line.em_low <= line.em && line.em <= line.em_high);
        assert_eq!((line.f1_low, line.f1_high), (0.5, 0.5));
        assert_eq!(line.notes_recall, Some(0.0));
        let endings: Vec<(String, f64)> =
            line.endings().filter(|(_, share)| *share > 0.0).collect();
        assert_eq!(
            endings,
            [
                ("stop/answered".to_owned(), 0.5),
                ("stop/malformed".to_owned(), 0.5),
                ("format/one_action".to_owned(), 1.0 / 6.0),
            ]
        );
        let text = serde_json::to_string(line).unwrap();
        assert!(text.contains("\"one_action\":0.1666"), "{text}");
        assert_eq!(serde_json::from_str::<Evaluation>(&text).unwrap(), *line);
    }

    #[test]
    fn where_nothing_is_written_down_no_fact_is_kept_or_lost() {
        let answer = Measured {
            entry: EvaluationEntry {
                context: ContextKind::NoNotes,
                objectives: 1,
            },
            group: 0,
            outcome: Outcome::default(),
            figures: TrajectoryFigures::default(),
        };
        let line = summarise(0, &[answer], &EvaluationSettings::default())[0];
        assert_eq!((line.notes_recall, line.notes_tokens), (None, None));
        let text = serde_json::to_string(&line).unwrap();
        assert!(text.contains("\"notes_recall\":null"), "{text}");
    }
}

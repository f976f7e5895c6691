//! Whether a file of questions has what an experiment asks for, and what of it is left over.

use std::collections::BTreeSet;

use super::{SearchQuestion, SearchTask};
use crate::experiment::{Experiment, TaskSettings};
use crate::task::{Split, TaskError};

impl SearchTask {
    /// Every number of objectives that the run asks for is there, or can be put together.
    pub(super) fn can_ask(&self, experiment: &Experiment) -> Result<(), TaskError> {
        let settings = &experiment.task;
        for (split, objectives) in asked_for(experiment) {
            if self.composed(split, objectives, 0).is_empty() {
                let (questions, file) = self.of_split(split, settings);
                return Err(TaskError::TooFewQuestions {
                    path: file.into(),
                    questions: questions.len(),
                    having: having(questions),
                    objectives,
                });
            }
        }
        self.warn_of_rest(experiment);
        Ok(())
    }

    /// The questions of a split, and the setting's file that they stand in.
    fn of_split<'a>(
        &'a self,
        split: Split,
        settings: &'a TaskSettings,
    ) -> (&'a [SearchQuestion], &'a str) {
        match split {
            Split::Train => (&self.train, &settings.questions),
            _ if settings.test_questions.is_empty() => (&self.test, &settings.questions),
            _ => (&self.test, &settings.test_questions),
        }
    }

    /// Says which questions are not asked, and where there are fewer than an evaluation wants.
    fn warn_of_rest(&self, experiment: &Experiment) {
        let asked = asked_for(experiment);
        let evaluation = &experiment.evaluation;
        let mut files: Vec<(&[SearchQuestion], &str)> = Vec::new();
        for split in [Split::Train, evaluation.split] {
            let (questions, file) = self.of_split(split, &experiment.task);
            if files.iter().all(|(_, known)| *known != file) {
                files.push((questions, file));
            }
        }
        for (questions, file) in files {
            let numbers: BTreeSet<u32> = asked
                .iter()
                .filter(|(split, _)| self.of_split(*split, &experiment.task).1 == file)
                .map(|(_, objectives)| *objectives)
                .collect();
            // Single questions are parts of any larger one.
            let left = questions.iter().filter(|question| {
                let count = question.objectives.len() as u32;
                count > 1 && !numbers.contains(&count)
            });
            let left: Vec<SearchQuestion> = left.cloned().collect();
            if !numbers.is_empty() && !left.is_empty() {
                tracing::warn!(
                    "{} of the {} questions in {file:?} are not asked: they have {} objectives, and {numbers:?} are asked for",
                    left.len(),
                    questions.len(),
                    having(&left)
                );
            }
        }
        for &objectives in &evaluation.objectives {
            let there = self.composed(evaluation.split, objectives, evaluation.seed);
            if (there.len() as u64) < u64::from(evaluation.questions) {
                tracing::warn!(
                    "with {objectives} objectives there are {} questions, fewer than evaluation.questions {}: each is asked once",
                    there.len(),
                    evaluation.questions
                );
            }
        }
    }
}

/// The numbers of objectives that a run asks for, and of which split.
fn asked_for(experiment: &Experiment) -> BTreeSet<(Split, u32)> {
    let (task, evaluation) = (&experiment.task, &experiment.evaluation);
    let mut asked: BTreeSet<(Split, u32)> = evaluation
        .objectives
        .iter()
        .map(|&objectives| (evaluation.split, objectives))
        .collect();
    if experiment.trains() {
        if evaluation.every > 0 {
            let during = evaluation.objectives_during.iter();
            asked.extend(during.map(|&objectives| (evaluation.split, objectives)));
        }
        let training = task.objectives_min..=task.objectives_max;
        asked.extend(training.map(|objectives| (Split::Train, objectives)));
    }
    asked
}

/// The numbers of objectives that questions have, as words: `1 or 2`.
fn having(questions: &[SearchQuestion]) -> String {
    let numbers: BTreeSet<usize> = questions.iter().map(|of| of.objectives.len()).collect();
    let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    numbers.join(" or ")
}

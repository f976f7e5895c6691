//! The questions of a recorded evaluation, judged again: no file of questions and no corpus is needed.

use std::sync::Arc;

use super::render::render_tool;
use super::{Judgement, NotesCount, Observed, Split, Task, TaskError, lookup, search};
use crate::engine::SupervisedPart;
use crate::experiment::{ChunkSettings, ContextKind, MixSettings, TaskKind};
use crate::tokenizer::TextTokenizer;
use crate::trajectory::{QuestionData, TokenId};

/// A question as a context showed it.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedQuestion {
    /// The context.
    pub context: ContextKind,
    /// Objectives of the line of the table that it counts for.
    pub objectives: u32,
    /// The question.
    pub question: QuestionData,
}

/// A task that asks recorded questions.
pub struct ReplayTask {
    tokenizer: Arc<TextTokenizer>,
    kind: TaskKind,
    questions: Vec<RecordedQuestion>,
}

impl ReplayTask {
    /// Asks `questions` in their order, and judges them as tasks of this kind do.
    #[must_use]
    pub fn new(tokenizer: TextTokenizer, kind: TaskKind, questions: Vec<RecordedQuestion>) -> Self {
        Self {
            tokenizer: Arc::new(tokenizer),
            kind,
            questions,
        }
    }

    /// The questions that were asked as those with so many objectives, each once.
    fn asked(&self, objectives: u32) -> impl Iterator<Item = &RecordedQuestion> {
        let first = self.questions.first().map(|recorded| recorded.context);
        self.questions.iter().filter(move |recorded| {
            Some(recorded.context) == first && recorded.objectives == objectives
        })
    }
}

impl Task for ReplayTask {
    fn tokenizer(&self) -> &Arc<TextTokenizer> {
        &self.tokenizer
    }

    /// The question number `index` among those with so many objectives.
    fn question(
        &self,
        _: u64,
        _: u32,
        index: u32,
        objectives: u32,
        _: Split,
        _: bool,
    ) -> QuestionData {
        self.asked(objectives)
            .nth(index as usize)
            .map(|recorded| recorded.question.clone())
            .unwrap_or_default()
    }

    fn available(&self, _: u64, objectives: u32, _: Split) -> Option<u32> {
        Some(self.asked(objectives).count() as u32)
    }

    fn seen_as(
        &self,
        question: &QuestionData,
        context: ContextKind,
        _: &ChunkSettings,
    ) -> Result<Option<QuestionData>, TaskError> {
        let same = |recorded: &&RecordedQuestion| {
            recorded.context == context && recorded.question.objectives == question.objectives
        };
        Ok(self
            .questions
            .iter()
            .find(same)
            .map(|recorded| recorded.question.clone()))
    }

    fn judge(&self, question: &QuestionData, answer: &str) -> Judgement {
        match self.kind {
            TaskKind::Lookup => lookup::judge::judge(question, answer),
            TaskKind::Search => search::judge(question, answer),
        }
    }

    fn count_notes(&self, question: &QuestionData, notes: &str, seen: &[Observed]) -> NotesCount {
        match self.kind {
            TaskKind::Lookup => lookup::judge::count_notes(question, notes, seen),
            TaskKind::Search => search::count_notes(question, notes, seen),
        }
    }

    fn cold_start_examples(&self, _: u64, _: u32, _: &MixSettings) -> Vec<SupervisedPart> {
        Vec::new()
    }

    fn render_tool(&self, text: &str) -> (String, Vec<TokenId>) {
        render_tool(&self.tokenizer, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::lookup::LookupTask;
    use crate::trajectory::Objective;

    #[test]
    fn questions_are_asked_again_in_the_line_that_they_counted_for() {
        let objective = |key: &str| Objective {
            key: key.into(),
            gold: vec!["x".into()],
        };
        // An older program measured questions with two objectives under one.
        let question = QuestionData {
            objectives: vec![objective("a"), objective("b")],
            ..QuestionData::default()
        };
        let recorded = RecordedQuestion {
            context: ContextKind::Deployed,
            objectives: 1,
            question: question.clone(),
        };
        let words = TextTokenizer::clone(LookupTask::shipped().unwrap().tokenizer());
        let task = ReplayTask::new(words, TaskKind::Search, vec![recorded]);
        assert_eq!(task.available(0, 1, Split::Test), Some(1));
        assert_eq!(task.available(0, 2, Split::Test), Some(0));
        assert_eq!(task.question(0, 0, 0, 1, Split::Test, false), question);
    }
}

//! Tasks: where questions come from and how answers are judged.
//!
//! A task draws questions (with the documents their tools can find), judges answers and notes, and
//! makes the examples of the cold start. It reads assets and settings; it knows nothing of engines.

mod error;
mod find;
pub mod lookup;
pub mod qa;
mod render;
mod replay;
pub mod search;

pub use error::TaskError;
pub use find::{NOTHING_FOUND, find_document, load};
pub use replay::{RecordedQuestion, ReplayTask};

use crate::engine::SupervisedPart;
use crate::experiment::{ChunkSettings, ContextKind, Experiment, MixSettings};
use crate::retrieval::Library;
use crate::trajectory::{QuestionData, TokenId};

pub use crate::experiment::Split;

/// What an answer was worth.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Judgement {
    /// 1 if every objective is answered exactly, else 0.
    pub em: f32,
    /// Partial credit, 0 to 1.
    pub f1: f32,
    /// 1 if every objective's right words stand in its answer, else 0.
    pub cem: f32,
    /// Share of objectives that are answered exactly.
    pub objectives_em: f32,
}

/// How much of what was seen stands in the notes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotesCount {
    /// Facts asked for and seen before this turn.
    pub seen: u32,
    /// Those of them that stand in the notes, with the right value.
    pub kept: u32,
}

/// A tool call that was answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// What was asked.
    pub query: String,
    /// What the policy was shown.
    pub text: String,
}

/// A source of questions.
pub trait Task: Send + Sync {
    /// The tokenizer of the task's text.
    fn tokenizer(&self) -> &std::sync::Arc<crate::tokenizer::TextTokenizer>;

    /// Draws question number `index` of (`seed`, `a`): the same address gives the same question.
    /// `redraw` draws the facts anew, so that nothing can be memorised.
    fn question(
        &self,
        seed: u64,
        a: u32,
        index: u32,
        objectives: u32,
        split: Split,
        redraw: bool,
    ) -> QuestionData;

    /// Judges the text between the answer tags.
    fn judge(&self, question: &QuestionData, answer: &str) -> Judgement;

    /// Counts the facts in `notes` (text between the memory tags), given what was seen before the
    /// notes were written.
    fn count_notes(&self, question: &QuestionData, notes: &str, seen: &[Observed]) -> NotesCount;

    /// Examples of one cold start step: the same address gives the same examples. `step` counts
    /// from the beginning of the cold start, over all its stages.
    fn cold_start_examples(&self, seed: u64, step: u32, mix: &MixSettings) -> Vec<SupervisedPart>;

    /// Renders a tool result as the policy sees it: text and ids, tool tags included.
    fn render_tool(&self, text: &str) -> (String, Vec<TokenId>);

    /// How many different questions with so many objectives there are; none: as many as one likes.
    fn available(&self, seed: u64, objectives: u32, split: Split) -> Option<u32> {
        let _ = (seed, objectives, split);
        None
    }

    /// The question as a context shows it, where that is another than the plain one: with instructions
    /// for turns without notes, or with the parts of a document.
    ///
    /// # Errors
    /// [`TaskError`] if the document cannot be found.
    fn seen_as(
        &self,
        question: &QuestionData,
        context: ContextKind,
        chunks: &ChunkSettings,
    ) -> Result<Option<QuestionData>, TaskError> {
        if context != ContextKind::Chunks {
            return Ok(None);
        }
        let texts: Vec<&str> = question
            .documents
            .iter()
            .map(|(_, text)| text.as_str())
            .collect();
        let mut seen = question.clone();
        seen.chunks = self.chunks_of(&texts.join("\n"), chunks);
        Ok(Some(seen))
    }

    /// The parts of a document as the policy sees them.
    fn chunks_of(&self, document: &str, settings: &ChunkSettings) -> Vec<Vec<TokenId>> {
        let tokenizer = self.tokenizer();
        tokenizer
            .encode(document)
            .chunks(settings.tokens.max(1) as usize)
            .take(settings.most as usize)
            .map(|part| self.render_tool(&tokenizer.decode(part)).1)
            .collect()
    }

    /// What its tools search, if not the documents of each question.
    fn library(&self) -> Option<&Library> {
        None
    }

    /// Checks that it can ask what an experiment wants.
    ///
    /// # Errors
    /// [`TaskError`] naming what is too little.
    fn ready(&self, experiment: &Experiment) -> Result<(), TaskError> {
        let _ = experiment;
        Ok(())
    }
}

//! The task itself: how it is set up, and the trait every task has.

use std::path::Path;
use std::sync::Arc;

use crate::engine::SupervisedPart;
use crate::experiment::MixSettings;
use crate::random::{Domain, stream};
use crate::task::render::render_tool;
use crate::task::{Judgement, NotesCount, Observed, Split, Task, TaskError};
use crate::tokenizer::TextTokenizer;
use crate::trajectory::{QuestionData, TokenId};

use super::draft::{Source, Truth};
use super::facts::{FactsFile, SHIPPED_FACTS};
use super::phrases::Phrases;
use super::table::Table;
use super::{judge, question};

const SHIPPED_TOKENIZER: &str = include_str!("../../../assets/lookup/tokenizer.json");
const SHIPPED_FACTS_PATH: &str = "assets/lookup/facts.json";
const SHIPPED_TOKENIZER_PATH: &str = "assets/lookup/tokenizer.json";
/// Tokens of a vocabulary trained on a file of facts.
const VOCABULARY: usize = 1536;

/// Facts about countries and elements, one search each.
pub struct LookupTask {
    pub(super) tokenizer: Arc<TextTokenizer>,
    pub(super) phrases: Phrases,
    pub(super) source: Source,
}

impl LookupTask {
    /// The task with the facts and the tokenizer that are part of the program.
    ///
    /// # Errors
    /// None in a sound build; see [`TaskError`].
    pub fn shipped() -> Result<Self, TaskError> {
        let path = Path::new(SHIPPED_TOKENIZER_PATH);
        Self::shipped_for(TextTokenizer::from_json(SHIPPED_TOKENIZER, path)?)
    }

    /// The task with the shipped facts, in the tokens of a policy that brings its own tokenizer.
    ///
    /// # Errors
    /// [`TaskError::TooFewEntities`] if the tokenizer cuts the facts into too many tokens.
    pub fn shipped_for(tokenizer: TextTokenizer) -> Result<Self, TaskError> {
        let path = Path::new(SHIPPED_FACTS_PATH);
        Self::new(&FactsFile::parse(SHIPPED_FACTS, path)?, tokenizer, path)
    }

    /// The task with a file of facts of your own, and the tokenizer of a policy that knows them.
    /// Without a tokenizer, one is trained on the facts: the same facts give the same tokenizer.
    ///
    /// # Errors
    /// [`TaskError`] if a file breaks a rule.
    pub fn from_file(path: &Path, tokenizer: Option<TextTokenizer>) -> Result<Self, TaskError> {
        let text = std::fs::read_to_string(path).map_err(|source| TaskError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        let facts = FactsFile::parse(&text, path)?;
        let tokenizer = match tokenizer {
            Some(tokenizer) => tokenizer,
            None => TextTokenizer::train(&facts.tokenizer_lines(), VOCABULARY)?,
        };
        Self::new(&facts, tokenizer, path)
    }

    fn new(facts: &FactsFile, tokenizer: TextTokenizer, path: &Path) -> Result<Self, TaskError> {
        tracing::debug!(source = %facts.source, licence = %facts.licence, "facts read");
        let phrases = Phrases::new(&tokenizer);
        let table = Table::new(facts, &tokenizer, &phrases, path)?;
        Ok(Self {
            source: Source::new(table, &tokenizer),
            tokenizer: Arc::new(tokenizer),
            phrases,
        })
    }

    /// Most objectives that a question about a split can have: each is about another entity.
    #[must_use]
    pub fn objectives_max(&self, split: Split) -> usize {
        self.source.table.entities(split).len()
    }
}

impl Task for LookupTask {
    fn tokenizer(&self) -> &Arc<TextTokenizer> {
        &self.tokenizer
    }

    fn question(
        &self,
        seed: u64,
        a: u32,
        index: u32,
        objectives: u32,
        split: Split,
        redraw: bool,
    ) -> QuestionData {
        let mut rng = stream(seed, Domain::Questions, a, index, objectives);
        let truth = if redraw {
            Truth::Redrawn(0.0)
        } else {
            Truth::Real
        };
        let asked = self
            .source
            .draft(&mut rng, &self.tokenizer, objectives, split, truth);
        question::compose(&self.phrases, &self.tokenizer, &asked)
    }

    fn judge(&self, question: &QuestionData, answer: &str) -> Judgement {
        judge::judge(question, answer)
    }

    fn count_notes(&self, question: &QuestionData, notes: &str, seen: &[Observed]) -> NotesCount {
        judge::count_notes(question, notes, seen)
    }

    fn cold_start_examples(&self, seed: u64, step: u32, mix: &MixSettings) -> Vec<SupervisedPart> {
        self.parts(seed, step, mix)
    }

    fn render_tool(&self, text: &str) -> (String, Vec<TokenId>) {
        render_tool(&self.tokenizer, text)
    }
}

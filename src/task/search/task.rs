//! The search task: questions of a file, answered from a corpus.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rand::RngExt as _;

use super::judge::{count_notes, judge};
use super::told::{example, has_its_own_words, instructions};
use super::{Asked, SearchQuestion, compose, read_questions};
use crate::engine::SupervisedPart;
use crate::experiment::{
    ChunkSettings, ContextKind, Experiment, MixSettings, Retrieval, TaskSettings, find_path,
};
use crate::random::{Domain, stream};
use crate::retrieval::{
    Corpus, Hybrid, LexicalIndex, Library, OnProgress, OpenDense, RetrievalError, Retriever,
};
use crate::task::render::render_tool;
use crate::task::{Judgement, NotesCount, Observed, Split, Task, TaskError};
use crate::tokenizer::{ChatMessage, TextTokenizer};
use crate::trajectory::{GoldAlias, Objective, QuestionData, TokenId};

/// Questions over a corpus.
pub struct SearchTask {
    tokenizer: Arc<TextTokenizer>,
    /// None if passages are found by a server.
    library: Option<Library>,
    pub(super) train: Vec<SearchQuestion>,
    pub(super) test: Vec<SearchQuestion>,
    instructions: bool,
    example: bool,
    /// What the chat template puts before and behind a prompt.
    frame: (String, String),
    answer_prefix: Vec<TokenId>,
    composed: Mutex<BTreeMap<Composed, Arc<Vec<SearchQuestion>>>>,
}

/// Which questions, how many objectives, which seed.
type Composed = (bool, u32, u64);

impl SearchTask {
    /// Reads corpus and questions, and opens (or builds) the index.
    ///
    /// # Errors
    /// [`TaskError`] if a file breaks a rule or an index cannot be made.
    pub fn open(
        settings: &TaskSettings,
        tokenizer: TextTokenizer,
        dense: OpenDense<'_>,
        progress: OnProgress<'_>,
    ) -> Result<Self, TaskError> {
        let frame = if settings.chat {
            frame(&tokenizer)?
        } else {
            <(String, String)>::default()
        };
        let library = library(settings, dense, progress)?;
        let train = read_questions(&found(&settings.questions))?;
        let test = match settings.test_questions.as_str() {
            "" => train.clone(),
            file => read_questions(&found(file))?,
        };
        Ok(Self {
            answer_prefix: tokenizer.encode("<think> done</think><answer>"),
            tokenizer: Arc::new(tokenizer),
            library,
            train,
            test,
            instructions: settings.instructions,
            example: settings.example,
            frame,
            composed: Mutex::default(),
        })
    }

    /// The questions with so many objectives, put together once for each seed.
    pub(super) fn composed(
        &self,
        split: Split,
        objectives: u32,
        seed: u64,
    ) -> Arc<Vec<SearchQuestion>> {
        let train = split == Split::Train;
        let mut composed = self.composed.lock().unwrap_or_else(PoisonError::into_inner);
        let questions = if train { &self.train } else { &self.test };
        let made = || Arc::new(compose(questions, objectives as usize, seed));
        Arc::clone(
            composed
                .entry((train, objectives, seed))
                .or_insert_with(made),
        )
    }

    fn prompt(&self, question: &str, context: ContextKind) -> String {
        let told = if self.instructions {
            instructions(context)
        } else {
            ""
        };
        let shown = if self.example {
            example(context)
        } else {
            String::new()
        };
        let (before, behind) = &self.frame;
        format!("{before}{told}{shown}<q> {question}</q>{behind}")
    }

    /// The document that the parts are made of: the passages that fit best, in the order of the corpus.
    fn document(&self, question: &str, passages: u32) -> Result<String, RetrievalError> {
        let Some(library) = &self.library else {
            return Ok(String::new());
        };
        let query = [question.to_owned()];
        let found = library.retriever.search(&query, passages as usize)?;
        let mut rows: Vec<u32> = found.iter().flatten().map(|hit| hit.passage).collect();
        rows.sort_unstable();
        let texts: Vec<String> = rows
            .into_iter()
            .map(|row| Ok(library.corpus.passage(row)?.contents))
            .collect::<Result<_, RetrievalError>>()?;
        Ok(texts.join("\n\n"))
    }

    fn data(&self, question: &SearchQuestion) -> QuestionData {
        let text = self.prompt(&question.text(), ContextKind::Full);
        let alias = |number: usize, text: &str| {
            let before = if number == 0 { " " } else { "; " };
            GoldAlias {
                ids: self.tokenizer.encode(&format!("{before}{text}")),
                value_ids: self.tokenizer.encode(&format!(" {text}")),
            }
        };
        let gold_answers: Vec<Vec<GoldAlias>> = question
            .objectives
            .iter()
            .enumerate()
            .map(|(number, asked)| asked.gold.iter().map(|text| alias(number, text)).collect())
            .collect();
        let gold_ids: Vec<TokenId> = gold_answers
            .iter()
            .filter_map(|aliases| aliases.first())
            .flat_map(|alias| alias.ids.iter().copied())
            .collect();
        let prompt_ids = self.tokenizer.encode(&text);
        QuestionData {
            objectives: question
                .objectives
                .iter()
                .map(|Asked { question, gold }| Objective {
                    key: question.clone(),
                    gold: gold.clone(),
                })
                .collect(),
            text: self.tokenizer.decode(&prompt_ids),
            prompt_ids,
            gold_text: self.tokenizer.decode(&gold_ids),
            gold_ids,
            gold_answers,
            answer_prefix_ids: self.answer_prefix.clone(),
            ..QuestionData::default()
        }
    }
}

/// What the chat template of the policy puts before and behind a message of the user, up to where the
/// assistant begins to write.
fn frame(tokenizer: &TextTokenizer) -> Result<(String, String), TaskError> {
    const PLACE: &str = "PLACE-OF-THE-PROMPT";
    let template = tokenizer.chat_template()?.ok_or(TaskError::NoTemplate)?;
    let text = template.render(&[ChatMessage::new("user", PLACE)], true)?;
    let (before, behind) = text.split_once(PLACE).ok_or(TaskError::NoTemplate)?;
    Ok((before.to_owned(), behind.to_owned()))
}

/// Corpus and index; none if a server has them.
fn library(
    settings: &TaskSettings,
    dense: OpenDense<'_>,
    progress: OnProgress<'_>,
) -> Result<Option<Library>, TaskError> {
    if matches!(settings.retrieval, Retrieval::Served(_)) {
        return Ok(None);
    }
    let corpus = Arc::new(Corpus::open(&found(&settings.corpus), progress)?);
    let mut parts: Vec<Arc<dyn Retriever>> = Vec::new();
    if matches!(
        settings.retrieval,
        Retrieval::Lexical | Retrieval::Hybrid(_)
    ) {
        parts.push(Arc::new(LexicalIndex::open(&corpus, progress)?));
    }
    if let Retrieval::Dense(encoder) | Retrieval::Hybrid(encoder) = &settings.retrieval {
        parts.push(dense(&corpus, &found(encoder), progress)?);
    }
    let retriever: Arc<dyn Retriever> = match parts.as_slice() {
        [one] => Arc::clone(one),
        _ => Arc::new(Hybrid(parts)),
    };
    Ok(Some(Library { corpus, retriever }))
}

/// Where a file of the settings lies; if nowhere, opening it says so.
fn found(path: &str) -> std::path::PathBuf {
    find_path(path).unwrap_or_else(|| Path::new(path).to_owned())
}

impl Task for SearchTask {
    fn tokenizer(&self) -> &Arc<TextTokenizer> {
        &self.tokenizer
    }

    /// Training draws among all questions with so many objectives; evaluation asks them in order.
    fn question(
        &self,
        seed: u64,
        a: u32,
        index: u32,
        objectives: u32,
        split: Split,
        _: bool,
    ) -> QuestionData {
        let composed = self.composed(split, objectives, seed);
        let count = composed.len().max(1);
        let number = if split == Split::Train {
            let mut rng = stream(seed, Domain::Questions, a, index, objectives);
            rng.random_range(0..count)
        } else {
            index as usize % count
        };
        // There is one: `ready` has seen to it.
        composed
            .get(number)
            .map(|question| self.data(question))
            .unwrap_or_default()
    }

    fn judge(&self, question: &QuestionData, answer: &str) -> Judgement {
        judge(question, answer)
    }

    fn count_notes(&self, question: &QuestionData, notes: &str, seen: &[Observed]) -> NotesCount {
        count_notes(question, notes, seen)
    }

    fn available(&self, seed: u64, objectives: u32, split: Split) -> Option<u32> {
        Some(self.composed(split, objectives, seed).len() as u32)
    }

    fn seen_as(
        &self,
        question: &QuestionData,
        context: ContextKind,
        chunks: &ChunkSettings,
    ) -> Result<Option<QuestionData>, TaskError> {
        if !has_its_own_words(context) {
            return Ok(None);
        }
        let asked: Vec<&str> = question
            .objectives
            .iter()
            .map(|of| of.key.as_str())
            .collect();
        let asked = asked.join("; ");
        let mut seen = question.clone();
        seen.prompt_ids = self.tokenizer.encode(&self.prompt(&asked, context));
        seen.text = self.tokenizer.decode(&seen.prompt_ids);
        if context == ContextKind::Chunks {
            let document = self.document(&asked, chunks.passages)?;
            seen.chunks = self.chunks_of(&document, chunks);
        }
        Ok(Some(seen))
    }

    fn cold_start_examples(&self, _: u64, _: u32, _: &MixSettings) -> Vec<SupervisedPart> {
        Vec::new()
    }

    fn render_tool(&self, text: &str) -> (String, Vec<TokenId>) {
        render_tool(&self.tokenizer, text)
    }

    fn library(&self) -> Option<&Library> {
        self.library.as_ref()
    }

    fn ready(&self, experiment: &Experiment) -> Result<(), TaskError> {
        self.can_ask(experiment)
    }
}

//! The search task: questions of a file, answered from a corpus.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rand::RngExt as _;

use super::{Asked, SearchQuestion, compose, read_questions};
use crate::engine::SupervisedPart;
use crate::experiment::{Experiment, MixSettings, Retrieval, TaskSettings, find_path};
use crate::random::{Domain, stream};
use crate::retrieval::{Corpus, Hybrid, LexicalIndex, Library, OnProgress, OpenDense, Retriever};
use crate::task::qa::{Metric, normalize_answer, score_objectives};
use crate::task::render::render_tool;
use crate::task::{Judgement, NotesCount, Observed, Split, Task, TaskError};
use crate::tokenizer::TextTokenizer;
use crate::trajectory::{GoldAlias, Objective, QuestionData, TokenId};

/// What the policy is told before the question, if it is told.
const INSTRUCTIONS: &str = "Answer the question. In every turn write all that you know so far between \
<mem> and </mem>, then what to do next between <think> and </think>, then exactly one of: a search \
between <search> and </search>, the address of a page to read between <access> and </access>, or the \
answer between <answer> and </answer>. You may not see earlier turns again: what is not in your notes \
is lost. Several questions are parted by \";\": answer all of them in order, parted by \";\".\n";

/// Questions over a corpus.
pub struct SearchTask {
    tokenizer: Arc<TextTokenizer>,
    library: Library,
    train: Vec<SearchQuestion>,
    test: Vec<SearchQuestion>,
    instructions: bool,
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
        let corpus = Arc::new(Corpus::open(&found(&settings.corpus), progress)?);
        let lexical = |progress: OnProgress<'_>| -> Result<Arc<dyn Retriever>, TaskError> {
            Ok(Arc::new(LexicalIndex::open(&corpus, progress)?))
        };
        let retriever: Arc<dyn Retriever> = match &settings.retrieval {
            Retrieval::Lexical => lexical(progress)?,
            Retrieval::Dense(encoder) => dense(&corpus, &found(encoder), progress)?,
            Retrieval::Hybrid(encoder) => Arc::new(Hybrid(vec![
                lexical(progress)?,
                dense(&corpus, &found(encoder), progress)?,
            ])),
        };
        let train = read_questions(&found(&settings.questions))?;
        let test = match settings.test_questions.as_str() {
            "" => train.clone(),
            file => read_questions(&found(file))?,
        };
        Ok(Self {
            answer_prefix: tokenizer.encode("<think> done</think><answer>"),
            tokenizer: Arc::new(tokenizer),
            library: Library { corpus, retriever },
            train,
            test,
            instructions: settings.instructions,
            composed: Mutex::default(),
        })
    }

    /// The questions with so many objectives, put together once for each seed.
    fn composed(&self, split: Split, objectives: u32, seed: u64) -> Arc<Vec<SearchQuestion>> {
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

    fn data(&self, question: &SearchQuestion) -> QuestionData {
        let instructions = if self.instructions { INSTRUCTIONS } else { "" };
        let text = format!("{instructions}<q> {}</q>", question.text());
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
            documents: Vec::new(),
        }
    }
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

    /// EM: every objective's normalised answer is one of its aliases, and nothing else is answered.
    /// F1: mean over objectives of the F1 of word sets.
    fn judge(&self, question: &QuestionData, answer: &str) -> Judgement {
        let golds: Vec<Vec<String>> = question
            .objectives
            .iter()
            .map(|objective| objective.gold.clone())
            .collect();
        let right = score_objectives(answer, &golds, Metric::ExactMatch).joint();
        Judgement {
            em: if right { 1.0 } else { 0.0 },
            f1: score_objectives(answer, &golds, Metric::SetF1).mean() as f32,
        }
    }

    /// A fact is an answer: seen once a result shows one of its aliases as whole words.
    fn count_notes(&self, question: &QuestionData, notes: &str, seen: &[Observed]) -> NotesCount {
        let padded = |text: &str| format!(" {} ", normalize_answer(text));
        let notes = padded(notes);
        let seen: Vec<String> = seen.iter().map(|observed| padded(&observed.text)).collect();
        let mut count = NotesCount::default();
        for objective in &question.objectives {
            let aliases: Vec<String> = objective
                .gold
                .iter()
                .map(|gold| padded(gold))
                .filter(|gold| !gold.trim().is_empty())
                .collect();
            let stands_in = |text: &String| aliases.iter().any(|gold| text.contains(gold.as_str()));
            if seen.iter().any(stands_in) {
                count.seen += 1;
                count.kept += u32::from(stands_in(&notes));
            }
        }
        count
    }

    fn cold_start_examples(&self, _: u64, _: u32, _: &MixSettings) -> Vec<SupervisedPart> {
        Vec::new()
    }

    fn render_tool(&self, text: &str) -> (String, Vec<TokenId>) {
        render_tool(&self.tokenizer, text)
    }

    fn library(&self) -> Option<&Library> {
        Some(&self.library)
    }

    /// Every number of objectives that is asked for can be put together.
    fn ready(&self, experiment: &Experiment) -> Result<(), TaskError> {
        let task = &experiment.task;
        let training = (task.objectives_min..=task.objectives_max).map(|of| (Split::Train, of));
        let evaluation = &experiment.evaluation;
        let evaluated = evaluation
            .objectives
            .iter()
            .chain(&evaluation.objectives_during);
        for (split, objectives) in training.chain(evaluated.map(|&of| (evaluation.split, of))) {
            let (questions, file) = match split {
                Split::Train => (&self.train, &task.questions),
                _ if task.test_questions.is_empty() => (&self.test, &task.questions),
                _ => (&self.test, &task.test_questions),
            };
            if self.composed(split, objectives, 0).is_empty() {
                return Err(TaskError::TooFewQuestions {
                    path: file.into(),
                    questions: questions.len(),
                    objectives,
                });
            }
        }
        Ok(())
    }
}

//! ASearcher's agent (Gao et al., 2025, `agent/asearcher.py`) as text: a prompt that grows by
//! generations and tool results, results shown in full once and in short form from then on.

use std::collections::VecDeque;

use crate::task::qa::blocks;
use crate::tools::{Shown, asearcher_block, head, information};

/// Stop strings while the agent is to act.
const ACTIONS: [&str; 3] = ["</search>", "</access>", "</answer>"];
/// Stop string of the turn that reads a result: it only thinks.
const READING: [&str; 1] = ["</think>"];
/// Most passages of a search that are shown.
const PASSAGES: usize = 5;
/// Characters of a page that are read, in parts, and that are shown again later.
const PAGE: usize = 250_000;
const PART: usize = 25_000;
const PART_AGAIN: usize = 100;
/// Most parts of a page.
const PARTS: usize = 10;

/// One entry of the agent's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// What the model wrote.
    Generation(String),
    /// What a tool brought.
    Result(Reading),
}

/// A tool result, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// As it is shown once.
    pub text: String,
    /// As it is shown from then on.
    pub short: String,
    /// Which tool it is from.
    pub from: Source,
    /// Whether the tool found something.
    pub found: bool,
    /// Which part of a page, from 1.
    pub part: usize,
}

/// Which tool a result is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `<search>`
    Search,
    /// `<access>`
    Page,
}

/// The next request to the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The prompt.
    pub prompt: String,
    /// Its stop strings.
    pub stop: &'static [&'static str],
}

/// How often the tools were used, and how often in vain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Turns of the model.
    pub generations: usize,
    /// Searches read.
    pub searches: usize,
    /// Of them without a passage.
    pub searches_failed: usize,
    /// Parts of pages read.
    pub parts: usize,
    /// Pages read.
    pub pages: usize,
    /// Of them empty.
    pub pages_failed: usize,
}

/// The agent: what it has seen, and what it has not read yet.
#[derive(Clone, Debug)]
pub struct AsearcherAgent {
    prompt: String,
    memory: Vec<Entry>,
    unread: VecDeque<Reading>,
}

impl AsearcherAgent {
    /// An agent that has seen only its prompt.
    #[must_use]
    pub fn new(prompt: &str) -> Self {
        Self {
            prompt: prompt.to_owned(),
            memory: Vec::new(),
            unread: VecDeque::new(),
        }
    }

    /// The next request. If results wait, the first is taken into the memory and shown in full, and
    /// the turn only thinks.
    pub fn ask(&mut self) -> Asked {
        let mut prompt = self.prompt.clone();
        for entry in &self.memory {
            match entry {
                Entry::Generation(text) => prompt.push_str(text),
                Entry::Result(reading) => prompt.push_str(&framed(&reading.short)),
            }
        }
        let Some(reading) = self.unread.pop_front() else {
            return Asked {
                prompt,
                stop: &ACTIONS,
            };
        };
        prompt.push_str(&framed(&reading.text));
        self.memory.push(Entry::Result(reading));
        Asked {
            prompt,
            stop: &READING,
        }
    }

    /// Takes in what the model wrote; gives its calls: the last of each kind, in the order search,
    /// access, answer, tags included.
    pub fn hear(&mut self, text: &str) -> Vec<String> {
        self.memory.push(Entry::Generation(text.to_owned()));
        ["search", "access", "answer"]
            .iter()
            .filter_map(|tag| {
                let content = blocks(text, tag).last().copied()?;
                Some(format!("<{tag}>{content}</{tag}>"))
            })
            .collect()
    }

    /// Takes in what a search brought; gives the number of results that wait.
    pub fn take_passages(&mut self, passages: &[Shown<'_>]) -> usize {
        let shown = passages.get(..PASSAGES).unwrap_or(passages);
        let text = asearcher_block(shown);
        self.unread.push_back(Reading {
            short: text.clone(),
            text,
            from: Source::Search,
            found: !shown.is_empty(),
            part: 1,
        });
        self.unread.len()
    }

    /// Takes in a page, cut into parts; gives the number of results that wait.
    pub fn take_page(&mut self, page: &str) -> usize {
        let mut rest = if page.trim().is_empty() {
            ""
        } else {
            head(page, PAGE)
        };
        if rest.is_empty() {
            let text = information("No More Information is Found for this URL.");
            self.unread.push_back(Reading {
                short: text.clone(),
                text,
                from: Source::Page,
                found: false,
                part: 1,
            });
        }
        for part in 1..=PARTS {
            if rest.is_empty() {
                break;
            }
            let now = head(rest, PART);
            rest = &rest[now.len()..];
            let shown = |text: &str| information(&format!(">>>> Page {part} >>>>\n\n{text}"));
            self.unread.push_back(Reading {
                text: shown(now),
                short: shown(head(now, PART_AGAIN)),
                from: Source::Page,
                found: true,
                part,
            });
        }
        self.unread.len()
    }

    /// Turns the model has taken.
    #[must_use]
    pub fn turns(&self) -> usize {
        self.generations().count()
    }

    /// Whether it has answered.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.answer().is_some()
    }

    /// The last answer that the model wrote. (ASearcher looks through its whole next prompt, where
    /// an example in the question or a page can pass for an answer.)
    #[must_use]
    pub fn answer(&self) -> Option<&str> {
        self.generations()
            .filter_map(crate::task::qa::last_answer)
            .next_back()
    }

    fn generations(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.memory.iter().filter_map(|entry| match entry {
            Entry::Generation(text) => Some(text.as_str()),
            Entry::Result(_) => None,
        })
    }

    /// What it has seen, in order, without the prompt.
    #[must_use]
    pub fn memory(&self) -> &[Entry] {
        &self.memory
    }

    /// How often the tools were used. A page counts once, however many parts it has.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for entry in &self.memory {
            let Entry::Result(reading) = entry else {
                usage.generations += 1;
                continue;
            };
            let failed = usize::from(!reading.found);
            match reading.from {
                Source::Search => {
                    usage.searches += 1;
                    usage.searches_failed += failed;
                }
                Source::Page => {
                    usage.parts += 1;
                    usage.pages += usize::from(reading.part == 1);
                    usage.pages_failed += failed;
                }
            }
        }
        usage
    }
}

fn framed(text: &str) -> String {
    format!("\n\n{text}\n<think>\n")
}

//! MEM1's evaluation (Zhou et al., 2025, `inference/eval.py`): scores over several questions and
//! figures of how much context a trajectory took, so that numbers can be set beside MEM1's.

use std::collections::BTreeSet;

use crate::task::qa::{blocks, set_f1, spaced_words};

/// Steps that MEM1 looks at.
const STEPS: usize = 10;
/// Where the last response begins in a chat text.
const ASSISTANT: &str = "<|im_start|>assistant";

/// Sums over the objectives, from 0 to their number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mem1Scores {
    /// Sum of the best F1 over word sets of every answer.
    pub f1: f64,
    /// Number of answers whose words, punctuation aside, are those of an alias.
    pub em: f64,
}

/// Scores the last response of a text. All is lower case; there must be as many answers as
/// objectives, and as many closing as opening answer tags, or nothing scores.
#[must_use]
pub fn mem1_scores(text: &str, golds: &[Vec<String>]) -> Mem1Scores {
    let text = text.to_lowercase();
    let response = text.rsplit(ASSISTANT).next().unwrap_or(&text);
    let found = blocks(response, "answer");
    let Some(answer) = found.last().filter(|_| mem1_tags_balanced(response)) else {
        return Mem1Scores::default();
    };
    let answers: Vec<String> = answer.split(';').map(spaced_words).collect();
    if answers.len() != golds.len() {
        return Mem1Scores::default();
    }
    let mut scores = Mem1Scores::default();
    for (answer, gold) in answers.iter().zip(golds) {
        let aliases: BTreeSet<String> = gold.iter().map(|alias| spaced_words(alias)).collect();
        scores.em += f64::from(u8::from(aliases.contains(answer)));
        scores.f1 += aliases
            .iter()
            .map(|alias| set_f1(answer, alias))
            .fold(0.0, f64::max);
    }
    scores
}

/// Whether every answer tag that opens is closed, and none closes besides.
#[must_use]
pub fn mem1_tags_balanced(text: &str) -> bool {
    let (open, close) = ("<answer>", "</answer>");
    if text.matches(open).count() != text.matches(close).count() {
        return false;
    }
    // From each opening tag on there must be a closing one; tags up to it are passed over.
    let mut rest = text;
    while let Some((_, inside)) = rest.split_once(open) {
        let Some((_, after)) = inside.split_once(close) else {
            return false;
        };
        rest = after;
    }
    true
}

/// One step of a trajectory as MEM1 writes it down. A step that is missing is an empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mem1Step {
    /// The thought, which is MEM1's memory.
    pub think: String,
    /// The action: a search or an answer.
    pub action: String,
    /// What the search brought.
    pub information: String,
}

/// How much context a trajectory took, in tokens. Prompts are not counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mem1Tokens {
    /// Longest context with its generation if a step sees only the one before.
    pub peak_pruned: usize,
    /// The whole text: the longest context if nothing is dropped.
    pub peak_full: usize,
    /// Sum over generated blocks of (context + length / 2) * length if a step sees only the one
    /// before: what attention costs.
    pub dependency_pruned: usize,
    /// The same if nothing is dropped.
    pub dependency_full: usize,
    /// Length of the last step with its context over that of the whole text.
    pub compression: f64,
}

/// The figures of a trajectory; none if it generated nothing. `memories` are texts that a memory
/// module kept beside the steps, of which the longest counts for the peaks. `count` says how many
/// tokens a text has.
///
/// MEM1's tables average the peaks over solved trajectories alone; leave the others out there.
#[must_use]
pub fn mem1_tokens(
    steps: &[Mem1Step],
    memories: &[String],
    count: impl Fn(&str) -> usize,
) -> Option<Mem1Tokens> {
    let steps = steps.get(..STEPS).unwrap_or(steps);
    let memory = memories.iter().map(|text| count(text)).max().unwrap_or(0);
    let (mut full, mut pruned) = (String::new(), String::new());
    let (mut peak, mut last, mut generated, mut total) = (0, 0, 0, 0);
    let (mut dependency_pruned, mut dependency_full) = (0, 0);
    for step in steps {
        for block in [&step.think, &step.action] {
            let length = count(block);
            dependency_pruned += (count(&pruned) + length / 2) * length;
            dependency_full += (count(&full) + length / 2) * length;
            pruned.push_str(block);
            full.push_str(block);
            generated += length;
            total += length;
        }
        let with_context = count(&pruned);
        peak = peak.max(with_context);
        if !step.action.is_empty() {
            last = with_context;
        }
        full.push_str(&step.information);
        total += count(&step.information);
        pruned = [&*step.think, &step.action, &step.information].concat();
    }
    (generated > 0).then(|| Mem1Tokens {
        peak_pruned: peak + memory,
        peak_full: count(&full) + memory,
        dependency_pruned,
        dependency_full,
        compression: last as f64 / total as f64,
    })
}

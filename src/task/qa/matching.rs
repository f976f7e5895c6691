//! One answer against the right answers of one question.

use std::collections::BTreeSet;

use super::normalize::{normalize_answer, spaced_words, truth_as_yes_no};

/// How an answer is compared with a right one. An answer scores the best over the aliases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Metric {
    /// EM: the normalised texts are equal.
    ExactMatch,
    /// SubEM: the normalised right answer is a part of the normalised answer, words or not.
    SubstringMatch,
    /// F1 over sets of words, articles kept (ASearcher, MEM1).
    SetF1,
    /// CEM: every word of the normalised right answer is one of the normalised answer (ASearcher).
    WordsCovered,
}

impl Metric {
    /// Every metric.
    pub const ALL: [Self; 4] = [
        Self::ExactMatch,
        Self::SubstringMatch,
        Self::SetF1,
        Self::WordsCovered,
    ];

    /// Its name in tables and records; it says what is measured.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ExactMatch => "em_normalized",
            Self::SubstringMatch => "em_substring",
            Self::SetF1 => "f1_word_sets",
            Self::WordsCovered => "cem_words_covered",
        }
    }

    /// The best score of `answer` over the aliases `gold`, 0 to 1; 0 without an alias.
    #[must_use]
    pub fn score(self, answer: &str, gold: &[String]) -> f64 {
        let truth = |holds: bool| if holds { 1.0 } else { 0.0 };
        match self {
            Self::ExactMatch => truth(exact_match(answer, gold)),
            Self::SubstringMatch => truth(substring_match(answer, gold)),
            Self::SetF1 => gold
                .iter()
                .map(|gold| set_f1(answer, gold))
                .fold(0.0, f64::max),
            Self::WordsCovered => truth(gold.iter().any(|gold| all_words_covered(answer, gold))),
        }
    }
}

/// EM: whether the normalised answer equals a normalised alias.
#[must_use]
pub fn exact_match(answer: &str, gold: &[String]) -> bool {
    let answer = normalize_answer(answer);
    gold.iter().any(|gold| normalize_answer(gold) == answer)
}

/// SubEM: whether a normalised alias is a part of the normalised answer. An alias that normalises to
/// nothing (`The`) is a part of everything.
#[must_use]
pub fn substring_match(answer: &str, gold: &[String]) -> bool {
    let answer = normalize_answer(answer);
    gold.iter()
        .any(|gold| answer.contains(&normalize_answer(gold)))
}

/// F1 over sets of words: `2 |A and G| / (|A| + |G|)`, 0 if either is empty.
#[must_use]
pub fn set_f1(answer: &str, gold: &str) -> f64 {
    let (answer, gold) = (spaced_words(answer), spaced_words(gold));
    let words = |text: &str| -> BTreeSet<String> {
        text.split(' ')
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let (answer, gold) = (words(&answer), words(&gold));
    let common = answer.intersection(&gold).count();
    if common == 0 {
        return 0.0;
    }
    // Precision and recall first, as the peers round.
    let precision = common as f64 / answer.len() as f64;
    let recall = common as f64 / gold.len() as f64;
    2.0 * (precision * recall) / (precision + recall)
}

/// CEM: whether every word of the alias is among the words of the answer. An alias without words is
/// covered only by an answer without words.
#[must_use]
pub fn all_words_covered(answer: &str, gold: &str) -> bool {
    let answer = normalize_answer(truth_as_yes_no(answer));
    let gold = normalize_answer(truth_as_yes_no(gold));
    let words: BTreeSet<&str> = answer.split(' ').collect();
    gold.split(' ').all(|word| words.contains(word))
}

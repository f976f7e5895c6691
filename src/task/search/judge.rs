//! What an answer to a question over a corpus is worth, and what of it stands in the notes.

use crate::task::qa::{Metric, normalize_answer, score_objectives};
use crate::task::{Judgement, NotesCount, Observed};
use crate::trajectory::QuestionData;

/// EM: every objective's normalised answer is one of its aliases, and nothing else is answered. F1:
/// mean over objectives of the F1 of word sets. CEM: every objective's answer covers the words of one
/// of its aliases, and nothing else is answered.
pub(in crate::task) fn judge(question: &QuestionData, answer: &str) -> Judgement {
    let golds: Vec<Vec<String>> = question
        .objectives
        .iter()
        .map(|objective| objective.gold.clone())
        .collect();
    let exact = score_objectives(answer, &golds, Metric::ExactMatch);
    let covered = score_objectives(answer, &golds, Metric::WordsCovered).joint();
    Judgement {
        em: if exact.joint() { 1.0 } else { 0.0 },
        f1: score_objectives(answer, &golds, Metric::SetF1).mean() as f32,
        cem: if covered { 1.0 } else { 0.0 },
        objectives_em: exact.mean() as f32,
    }
}

/// A fact is an answer: seen once a result shows one of its aliases as whole words.
pub(in crate::task) fn count_notes(
    question: &QuestionData,
    notes: &str,
    seen: &[Observed],
) -> NotesCount {
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

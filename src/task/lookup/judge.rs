//! Judging answers and counting what stands in the notes. Both are lists ` key = value;`.

use std::collections::BTreeSet;

use crate::task::{Judgement, NotesCount, Observed, find_document};
use crate::trajectory::{Objective, QuestionData};

/// A list of facts as it was written.
struct Written<'a> {
    /// (key, value), trimmed, in the order of writing.
    facts: Vec<(&'a str, &'a str)>,
    /// Whether nothing but well-formed facts was written.
    clean: bool,
}

fn read(text: &str) -> Written<'_> {
    let mut pieces: Vec<&str> = text.split(';').collect();
    let rest = pieces.pop().unwrap_or_default();
    let facts: Vec<_> = pieces
        .iter()
        .filter_map(|piece| piece.split_once('='))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect();
    let clean = facts.len() == pieces.len() && rest.trim().is_empty();
    Written { facts, clean }
}

fn is_right(objective: &Objective, value: &str) -> bool {
    objective.gold.iter().any(|gold| gold == value)
}

/// Exact match: every objective answered exactly, nothing twice, nothing besides, every fact closed
/// by `;`. CEM: every objective answered exactly, whatever else stands there. F1 is twice the hits over objectives plus facts written; of a key that stands there twice
/// only the first counts.
pub(in crate::task) fn judge(question: &QuestionData, answer: &str) -> Judgement {
    let written = read(answer);
    let hits = question
        .objectives
        .iter()
        .filter(|objective| {
            written
                .facts
                .iter()
                .find(|(key, _)| *key == objective.key)
                .is_some_and(|(_, value)| is_right(objective, value))
        })
        .count();
    let asked = question.objectives.len();
    let exact = written.clean && hits == asked && written.facts.len() == asked;
    let possible = asked + written.facts.len().max(1);
    Judgement {
        em: if exact { 1.0 } else { 0.0 },
        f1: 2.0 * hits as f32 / possible as f32,
        cem: if hits == asked { 1.0 } else { 0.0 },
        objectives_em: hits as f32 / asked.max(1) as f32,
    }
}

/// Of the facts whose sentence one of the documents asked for shows, how many stand in the notes.
pub(in crate::task) fn count_notes(
    question: &QuestionData,
    notes: &str,
    seen: &[Observed],
) -> NotesCount {
    let shown: BTreeSet<&str> = seen
        .iter()
        .filter_map(|observed| find_document(question, &observed.query))
        .collect();
    let written = read(notes);
    let mut count = NotesCount::default();
    for objective in &question.objectives {
        let was_shown = objective.gold.iter().any(|gold| {
            let sentence = format!("The {} is {gold}.", objective.key);
            shown.iter().any(|text| text.contains(&sentence))
        });
        if was_shown {
            count.seen += 1;
            let kept = written
                .facts
                .iter()
                .any(|(key, value)| *key == objective.key && is_right(objective, value));
            count.kept += u32::from(kept);
        }
    }
    count
}

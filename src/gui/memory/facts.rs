//! The facts that a question asks for, and where parts of the notes came from.

use crate::record::TrajectoryView;
use crate::trajectory::Action;

/// What became of a fact that the question asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// What is asked.
    pub key: String,
    /// The right answer.
    pub value: String,
    /// The first turn whose tool result showed it.
    pub shown: Option<usize>,
    /// Turns whose notes held it.
    pub held: Vec<usize>,
}

impl Fact {
    /// One line: where it was read, written, kept and lost.
    #[must_use]
    pub fn story(&self, turns: usize) -> String {
        let shown = match self.shown {
            Some(turn) => format!("read in turn {turn}"),
            None => "never read".into(),
        };
        let Some(first) = self.held.first() else {
            return format!("{shown}, never written");
        };
        let lost = (*first..turns).find(|turn| !self.held.contains(turn));
        match lost {
            Some(turn) => format!("{shown}, written in turn {first}, lost in turn {turn}"),
            None => format!("{shown}, written in turn {first}, kept to the end"),
        }
    }

    /// What is true of it after a turn.
    #[must_use]
    pub fn chip(&self, turn: usize) -> &'static str {
        if self.held.contains(&turn) {
            "in the notes"
        } else if self.held.iter().any(|held| *held < turn) {
            "lost"
        } else if self.shown.is_some_and(|shown| shown < turn) {
            "read, not written"
        } else {
            "not read yet"
        }
    }
}

/// The facts of the right answer (`key = value; key = value;`) and their fates. A fact is held where its
/// key and its value stand in one part; an answer without keys is a fact whose key is the question itself.
#[must_use]
pub fn facts(gold: &str, of: &TrajectoryView) -> Vec<Fact> {
    gold.split(';')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (key, value) = key_and_value(part).unwrap_or(("", part));
            let held = of.turns.iter().enumerate().filter(|(_, turn)| {
                let notes = turn.wrote.notes.as_deref();
                notes.is_some_and(|notes| holds(notes, key, value))
            });
            let held = held.map(|(turn, _)| turn).collect();
            let named = if key.is_empty() { "answer" } else { key };
            Fact {
                key: named.to_owned(),
                value: value.to_owned(),
                shown: (0..of.turns.len()).find(|turn| shows(of, *turn, key, value)),
                held,
            }
        })
        .collect()
}

/// Whether one part of a text holds a key and a value.
fn holds(text: &str, key: &str, value: &str) -> bool {
    parts(text)
        .any(|part| (key.is_empty() || contains_words(part, key)) && contains_words(part, value))
}

/// Whether the tool of a turn showed a value under a key. A result may leave out what was asked for,
/// so the query counts as its key.
fn shows(of: &TrajectoryView, turn: usize, key: &str, value: &str) -> bool {
    let Some(turn) = of.turns.get(turn) else {
        return false;
    };
    let Some((text, _)) = &turn.tool else {
        return false;
    };
    let asked = match &turn.wrote.action {
        Some(Action::Search(query) | Action::Access(query)) => query.as_str(),
        _ => "",
    };
    holds(text, key, value)
        || !key.is_empty() && contains_words(asked, key) && contains_words(text, value)
        || parts(text).any(|part| contains_words(part, value) && names(part, key))
}

/// Whether a sentence has the words of a key: it may say them in another order, and leave out `of`.
fn names(part: &str, key: &str) -> bool {
    let part = part.to_lowercase();
    let mut words = key.split_whitespace().filter(|word| word.len() > 3);
    words.all(|word| part.contains(&word.to_lowercase()))
}

/// The parts of notes or results: `key = value;`, lines, sentences.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let marks = text.match_indices([';', '\n']);
    let mut ends: Vec<usize> = marks
        .chain(text.match_indices(". "))
        .map(|(at, _)| at)
        .collect();
    ends.sort_unstable();
    ends.push(text.len());
    let mut from = 0;
    ends.into_iter().filter_map(move |end| {
        let part = text.get(from..end);
        from = (end + 1).min(text.len());
        part.map(str::trim).filter(|part| !part.is_empty())
    })
}

/// `key = value` or `key: value` as its two halves.
fn key_and_value(part: &str) -> Option<(&str, &str)> {
    let halves = part.split_once(" = ").or_else(|| part.split_once(": "));
    halves.map(|(key, value)| (key.trim(), value.trim()))
}

/// Whether a text holds these words as whole words: `6` does not stand in `16`.
fn contains_words(text: &str, words: &str) -> bool {
    !words.is_empty()
        && text.match_indices(words).any(|(at, found)| {
            let before = text.get(..at).and_then(|text| text.chars().next_back());
            let rest = text.get(at + found.len()..);
            let after = rest.and_then(|text| text.chars().next());
            let ends = |letter: Option<char>| letter.is_none_or(|letter| !letter.is_alphanumeric());
            ends(before) && ends(after)
        })
}

/// The parts that a turn's notes hold and the notes before did not.
#[must_use]
pub fn new_parts<'a>(before: &str, now: &'a str) -> Vec<&'a str> {
    let had: Vec<&str> = parts(before).collect();
    parts(now).filter(|part| !had.contains(part)).collect()
}

/// Where a part of the notes was read, what it replaced, where it was used, and how long it stayed.
#[must_use]
pub fn provenance(of: &TrajectoryView, turn: usize, part: &str) -> String {
    let (key, value) = key_and_value(part).unwrap_or(("", part));
    let read = (0..turn.min(of.turns.len()))
        .rev()
        .find(|&turn| shows(of, turn, key, value));
    let read = read.map_or("read nowhere".into(), |from| format!("read in turn {from}"));
    let notes = |turn: usize| -> &str {
        let turn = of.turns.get(turn);
        turn.and_then(|turn| turn.wrote.notes.as_deref())
            .unwrap_or_default()
    };
    let old = turn.checked_sub(1).map_or("", notes);
    let replaced = parts(old)
        .filter_map(key_and_value)
        .find(|(of, was)| !key.is_empty() && *of == key && *was != value);
    let replaced = replaced.map_or(String::new(), |(_, was)| format!(", replaced '{was}'"));
    let gone = (turn + 1..of.turns.len()).find(|&later| !holds(notes(later), key, value));
    // The notes of a turn are read by the next one: what it does with them is told by its action.
    let used = (turn..gone.unwrap_or(of.turns.len())).find_map(|at| {
        let action = of.turns.get(at)?.wrote.action.as_ref()?;
        let (what, text) = match action {
            Action::Search(query) => ("search", query),
            Action::Access(page) => ("access", page),
            Action::Answer(answer) => ("answer", answer),
        };
        contains_words(text, value).then(|| format!(", used in the {what} of turn {at}"))
    });
    let fate = gone.map_or("kept to the end".into(), |at| format!("lost in turn {at}"));
    format!(
        "{read}, written in turn {turn}{replaced}{}, {fate}",
        used.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{TurnEvent, TurnView};

    fn trajectory(turns: &[(&str, &str)]) -> TrajectoryView {
        let turn = |(number, (notes, tool)): (usize, &(&str, &str))| TurnView {
            wrote: TurnEvent {
                id: Default::default(),
                turn: number as u32,
                text: String::new(),
                tokens: 1,
                context_tokens: 0,
                notes: Some((*notes).to_owned()),
                action: None,
                broken: None,
            },
            tool: Some(((*tool).to_owned(), 1)),
        };
        TrajectoryView {
            turns: turns.iter().enumerate().map(turn).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn facts_are_read_written_kept_and_lost() {
        let of = trajectory(&[
            ("", "The capital of Peru is Lima."),
            (" capital of Peru = Lima;", "Carbon has 16 electrons."),
            ("", "Carbon has 6 electrons."),
        ]);
        let facts = facts(" capital of Peru = Lima; electrons of carbon = 6;", &of);
        let stories: Vec<String> = facts.iter().map(|fact| fact.story(3)).collect();
        assert_eq!(
            stories,
            [
                "read in turn 0, written in turn 1, lost in turn 2",
                "read in turn 2, never written"
            ]
        );
        assert_eq!(facts[0].chip(1), "in the notes");
        assert_eq!(facts[0].chip(2), "lost");
    }

    #[test]
    fn a_fact_is_held_by_its_key_and_its_value_together() {
        let of = trajectory(&[
            ("prefix of Peru = 51; region of Chad = 7;", ""),
            ("prefix of Chad = 51;", ""),
        ]);
        let facts = facts(" prefix of Peru = 51;", &of);
        assert_eq!(facts[0].held, [0], "the same value under another key");
    }

    #[test]
    fn a_part_is_traced_to_the_turn_that_showed_it_and_to_what_it_replaced() {
        let mut of = trajectory(&[
            ("capital of Peru = Cusco;", "The capital of Peru is Lima."),
            ("capital of Peru = Lima;", ""),
            ("capital of Peru = Lima;", ""),
        ]);
        assert_eq!(
            provenance(&of, 1, "capital of Peru = Lima"),
            "read in turn 0, written in turn 1, replaced 'Cusco', kept to the end"
        );
        of.turns[2].wrote.action = Some(Action::Answer("Lima".into()));
        assert_eq!(
            provenance(&of, 1, "capital of Peru = Lima"),
            "read in turn 0, written in turn 1, replaced 'Cusco', used in the answer of turn 2, kept to the end"
        );
        assert!(provenance(&of, 1, "Cusco").starts_with("read nowhere"));
    }

    #[test]
    fn new_parts_are_whole_facts() {
        let before = "series of lanthanum = f; region of Palau = Oceania;";
        let now =
            "region of Palau = Oceania; region of Costa Rica = Limon; series of lanthanum = f";
        assert_eq!(new_parts(before, now), ["region of Costa Rica = Limon"]);
        assert_eq!(
            new_parts("", "one sentence. Another"),
            ["one sentence", "Another"]
        );
    }
}

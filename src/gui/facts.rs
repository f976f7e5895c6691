//! The facts that a question asks for, and where parts of the notes came from.

use crate::record::TrajectoryView;

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

/// The facts of the right answer (`key = value; key = value;`) and their fates. An answer without keys
/// is a fact whose key is the question itself.
#[must_use]
pub fn facts(gold: &str, of: &TrajectoryView) -> Vec<Fact> {
    gold.split(';')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (key, value) = part.split_once(" = ").unwrap_or(("answer", part));
            let value = value.trim();
            let holds = |text: &str| contains_words(text, value);
            let tool = |turn: &crate::record::TurnView| {
                turn.tool.as_ref().is_some_and(|(text, _)| holds(text))
            };
            let held = of
                .turns
                .iter()
                .enumerate()
                .filter(|(_, turn)| turn.wrote.notes.as_deref().is_some_and(holds));
            Fact {
                key: key.trim().to_owned(),
                value: value.to_owned(),
                shown: of.turns.iter().position(tool),
                held: held.map(|(turn, _)| turn).collect(),
            }
        })
        .collect()
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

/// Where a part of the notes was read, and how long it stayed.
#[must_use]
pub fn provenance(of: &TrajectoryView, turn: usize, part: &str) -> String {
    let part = part.trim().trim_matches([';', '.', ',']);
    let last_with = |words: &str| {
        let before = of.turns.iter().take(turn).enumerate().rev();
        let told = |tool: &(String, _)| contains_words(&tool.0, words);
        before
            .filter(|(_, turn)| turn.tool.as_ref().is_some_and(told))
            .map(|(number, _)| number)
            .next()
    };
    // What was not read as a whole may have been read word by word: the value is what counts.
    let value = part.rsplit_once(" = ").map_or(part, |(_, value)| value);
    let found = last_with(part).or_else(|| last_with(value));
    let read = found.map_or("read nowhere".into(), |from| format!("read in turn {from}"));
    let gone = of
        .turns
        .iter()
        .enumerate()
        .skip(turn + 1)
        .find(|(_, later)| {
            !later
                .wrote
                .notes
                .as_deref()
                .is_some_and(|notes| contains_words(notes, value))
        });
    let fate = gone.map_or("kept to the end".into(), |(at, _)| {
        format!("lost in turn {at}")
    });
    format!("{read}, written in turn {turn}, {fate}")
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
    fn a_part_is_traced_to_the_turn_that_showed_it() {
        let of = trajectory(&[
            ("", "The capital of Peru is Lima."),
            ("capital of Peru = Lima;", ""),
            ("capital of Peru = Lima;", ""),
        ]);
        assert_eq!(
            provenance(&of, 1, "capital of Peru = Lima"),
            "read in turn 0, written in turn 1, kept to the end"
        );
        assert!(provenance(&of, 1, "Cusco").starts_with("read nowhere"));
    }
}

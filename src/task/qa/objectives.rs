//! Several questions in one, as MEM1 and MemPO ask them: `q1; q2; q3`, answered `a1; a2; a3`, each
//! with its own list of right answers.

use super::extract::answer_after_example;
use super::matching::{Metric, exact_match};
use super::normalize::is_space;

/// What stands between questions and between answers.
const SEPARATOR: char = ';';

/// The answers of `a1; a2; ...`, without spaces around them. One `;` at the end adds none.
#[must_use]
pub fn split_answers(answer: &str) -> Vec<&str> {
    let trim = |piece: &'_ str| -> usize { piece.trim_matches(is_space).len() };
    let mut pieces: Vec<&str> = answer.split(SEPARATOR).collect();
    if pieces.len() > 1 && pieces.last().is_some_and(|last| trim(last) == 0) {
        pieces.pop();
    }
    pieces
        .into_iter()
        .map(|piece| piece.trim_matches(is_space))
        .collect()
}

/// The questions of `q1; q2; ...`, if there are `count` of them. One that has a `;` of its own is told
/// apart where `; ` parts them, or the end of a question (`?;`).
#[must_use]
pub fn split_questions(text: &str, count: usize) -> Option<Vec<&str>> {
    if count == 1 {
        return Some(vec![text.trim_matches(is_space)]);
    }
    let plain = split_answers(text);
    if plain.len() == count {
        return Some(plain);
    }
    let spaced: Vec<&str> = text.split("; ").map(bare).collect();
    let ended: Vec<&str> = text.split_inclusive("?;").map(bare).collect();
    [spaced, ended]
        .into_iter()
        .find(|parts| parts.len() == count && !parts.contains(&""))
}

/// A question without the spaces and separators around it.
fn bare(part: &str) -> &str {
    part.trim_matches(|letter| letter == SEPARATOR || is_space(letter))
}

/// What an answer scored, objective by objective.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ObjectiveScores {
    /// One score an objective, 0 to 1; 0 where there is no answer.
    pub each: Vec<f64>,
    /// Answers beyond the last objective.
    pub extra: usize,
}

impl ObjectiveScores {
    /// Mean over objectives; 0 if there are none. Extra answers cost nothing here.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.each.is_empty() {
            return 0.0;
        }
        self.each.iter().sum::<f64>() / self.each.len() as f64
    }

    /// Whether every objective scored 1 and nothing else was answered.
    #[must_use]
    pub fn joint(&self) -> bool {
        !self.each.is_empty() && self.extra == 0 && self.each.iter().all(|&score| score >= 1.0)
    }
}

/// Scores an answer against the aliases of every objective, answer by position. With one objective
/// the whole answer counts, so that it may hold a `;`.
#[must_use]
pub fn score_objectives(answer: &str, golds: &[Vec<String>], metric: Metric) -> ObjectiveScores {
    let answers = match golds {
        [_] => vec![answer],
        _ => split_answers(answer),
    };
    ObjectiveScores {
        each: golds
            .iter()
            .enumerate()
            .map(|(number, gold)| {
                answers
                    .get(number)
                    .map_or(0.0, |answer| metric.score(answer, gold))
            })
            .collect(),
        extra: answers.len().saturating_sub(golds.len()),
    }
}

/// MEM1's training reward: the number of answers that match the aliases of their position, from 0
/// to the number of objectives. The text is prompt and response together. Without an answer it is 0
/// (MEM1's own code fails there).
#[must_use]
pub fn mem1_reward(prompt_and_response: &str, golds: &[Vec<String>]) -> f64 {
    let Some(answer) = answer_after_example(prompt_and_response) else {
        return 0.0;
    };
    let right = answer
        .split(SEPARATOR)
        .zip(golds)
        .filter(|(answer, gold)| exact_match(answer, gold))
        .count();
    right as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golds() -> Vec<Vec<String>> {
        vec![
            vec!["Ulm".into(), "Ulm City".into()],
            vec!["John Doe".into()],
        ]
    }

    #[test]
    fn answers_are_matched_by_position_and_by_any_alias() {
        let scores = |answer| score_objectives(answer, &golds(), Metric::ExactMatch);
        assert!(scores("ulm city; john doe").joint());
        assert!(scores(" Ulm;John Doe; ").joint());
        assert_eq!(scores("John Doe; Ulm").mean(), 0.0);
        assert_eq!(scores("Ulm").each, [1.0, 0.0]);
        let extra = scores("Ulm; John Doe; Rome");
        assert_eq!((extra.mean(), extra.extra, extra.joint()), (1.0, 1, false));
        assert_eq!(
            ObjectiveScores::default().mean(),
            0.0,
            "nothing asked is nothing earned"
        );
    }

    #[test]
    fn a_single_answer_may_hold_a_semicolon() {
        let gold = vec![vec!["Tea; Coffee".to_owned()]];
        assert!(score_objectives("tea; coffee", &gold, Metric::ExactMatch).joint());
    }

    #[test]
    fn questions_part_where_there_are_as_many() {
        assert_eq!(
            split_questions("Where? ; Who?", 2),
            Some(vec!["Where?", "Who?"])
        );
        assert_eq!(
            split_questions("Where; or who?", 1),
            Some(vec!["Where; or who?"])
        );
        assert_eq!(split_questions("Where? Who?", 2), None);
    }

    #[test]
    fn a_question_may_hold_a_semicolon_among_others() {
        assert_eq!(
            split_questions("Which of a; b?; What is tea?", 2),
            Some(vec!["Which of a; b?", "What is tea?"])
        );
        assert_eq!(
            split_questions("a;b or c; d", 2),
            Some(vec!["a;b or c", "d"])
        );
        assert_eq!(split_questions("a; b; c", 2), None);
    }
}

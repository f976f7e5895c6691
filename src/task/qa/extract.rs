//! Finding the answer in a text.

use super::matching::exact_match;
use super::normalize::is_space;

/// The contents of the blocks `<tag>..</tag>`, each up to the first closing tag after its opening
/// one, without overlap.
#[must_use]
pub fn blocks<'a>(text: &'a str, tag: &str) -> Vec<&'a str> {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((_, inside)) = rest.split_once(&open) {
        let Some((content, after)) = inside.split_once(&close) else {
            break;
        };
        found.push(content);
        rest = after;
    }
    found
}

/// The last answer of a response, without the spaces around it. Give it the response alone: a
/// prompt may hold an example.
#[must_use]
pub fn last_answer(response: &str) -> Option<&str> {
    blocks(response, "answer")
        .last()
        .map(|answer| answer.trim_matches(is_space))
}

/// Search-R1's and MEM1's way: prompt and response are read as one text whose first answer is the
/// prompt's example, so an answer counts only from the second on.
#[must_use]
pub fn answer_after_example(prompt_and_response: &str) -> Option<&str> {
    let answers = blocks(prompt_and_response, "answer");
    answers
        .get(1..)?
        .last()
        .map(|answer| answer.trim_matches(is_space))
}

/// Most tags of one kind that verl pays in full.
const VERL_TAGS: usize = 10;

/// verl's `search_r1_like_qa_em`: 0 without an answer, 1 for a right one, else `format_score`. A
/// right answer among more than ten opening or closing tags counts a quarter, so that listing
/// guesses does not pay.
#[must_use]
pub fn verl_search_score(response: &str, gold: &[String], format_score: f64) -> f64 {
    match last_answer(response) {
        None => 0.0,
        Some(answer) if exact_match(answer, gold) => {
            let many = ["<answer>", "</answer>"]
                .iter()
                .any(|tag| response.matches(tag).count() > VERL_TAGS);
            if many { 0.25 } else { 1.0 }
        }
        Some(_) => format_score,
    }
}

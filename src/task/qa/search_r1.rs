//! Search-R1's format reward (Jin et al., 2025): a sequence of blocks that a finite automaton
//! accepts, and a score that pays for format and for evidence that was found.

use super::extract::{answer_after_example, blocks};
use super::matching::{exact_match, substring_match};
use super::normalize::is_space;

/// Where the response begins in a chat text.
const ASSISTANT: &str = "<|im_start|>assistant";
const BLOCKS: [&str; 4] = ["think", "search", "information", "answer"];

/// Where the automaton stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Start,
    /// Inside the block of this number.
    Inside(usize),
    /// Behind the block of this number.
    Behind(usize),
}

/// Whether the text after the first assistant mark is `think (search information think)* answer`
/// with nothing but white space between the blocks, every tag closed.
#[must_use]
pub fn search_r1_format_holds(text: &str) -> bool {
    let Some((_, response)) = text.split_once(ASSISTANT) else {
        return false;
    };
    let balanced = BLOCKS.iter().all(|tag| {
        let count = |mark: String| response.matches(&mark).count();
        count(format!("<{tag}>")) == count(format!("</{tag}>"))
    });
    if !balanced {
        return false;
    }
    let (mut place, mut rest) = (Place::Start, response);
    loop {
        let next = next_tag(rest);
        let words = next.map_or(rest, |found| &rest[..found.start]);
        let only_space = words.chars().all(is_space);
        if !only_space && !matches!(place, Place::Inside(_)) {
            return false;
        }
        let Some(found) = next else {
            return place == Place::Behind(3);
        };
        let Some(reached) = after(place, found) else {
            return false;
        };
        place = reached;
        rest = &rest[found.end..];
    }
}

/// A tag in a text.
#[derive(Clone, Copy)]
struct Found {
    start: usize,
    end: usize,
    block: usize,
    opens: bool,
}

/// The first tag of any block.
fn next_tag(text: &str) -> Option<Found> {
    BLOCKS
        .iter()
        .enumerate()
        .flat_map(|(block, tag)| {
            [(format!("<{tag}>"), true), (format!("</{tag}>"), false)]
                .into_iter()
                .filter_map(move |(mark, opens)| {
                    text.find(&mark).map(|start| Found {
                        start,
                        end: start + mark.len(),
                        block,
                        opens,
                    })
                })
        })
        .min_by_key(|found| found.start)
}

/// Where a tag leads, if it may stand here.
fn after(place: Place, found: Found) -> Option<Place> {
    const THINK: usize = 0;
    const SEARCH: usize = 1;
    const INFORMATION: usize = 2;
    const ANSWER: usize = 3;
    if !found.opens {
        return (place == Place::Inside(found.block)).then_some(Place::Behind(found.block));
    }
    let allowed = matches!(
        (place, found.block),
        (Place::Start | Place::Behind(INFORMATION), THINK)
            | (Place::Behind(THINK), SEARCH | ANSWER)
            | (Place::Behind(SEARCH), INFORMATION)
    );
    allowed.then_some(Place::Inside(found.block))
}

/// The contents of the information blocks, without spaces around them.
#[must_use]
pub fn search_r1_information(text: &str) -> Vec<&str> {
    blocks(text, "information")
        .into_iter()
        .map(|block| block.trim_matches(is_space))
        .collect()
}

/// Whether an information block shows a right answer (as SubEM).
#[must_use]
pub fn search_r1_evidence_shown(text: &str, gold: &[String]) -> bool {
    search_r1_information(text)
        .iter()
        .any(|block| substring_match(block, gold))
}

/// What Search-R1 pays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShapedScores {
    /// A right answer in the right format.
    pub right: f64,
    /// The right format; also what a right answer loses without it.
    pub structure: f64,
    /// Any answer, in a wrong format.
    pub answered: f64,
    /// Evidence shown, on top of the right format.
    pub evidence: f64,
}

/// Search-R1's shaped score of prompt and response as one text.
#[must_use]
pub fn search_r1_shaped_score(text: &str, gold: &[String], pay: ShapedScores) -> f64 {
    let valid = search_r1_format_holds(text);
    let for_format = || {
        if search_r1_evidence_shown(text, gold) {
            pay.structure + pay.evidence
        } else {
            pay.structure
        }
    };
    match answer_after_example(text) {
        Some(answer) if exact_match(answer, gold) => {
            if valid {
                pay.right
            } else {
                pay.right - pay.structure
            }
        }
        _ if valid => for_format(),
        Some(_) => pay.answered,
        None => 0.0,
    }
}

//! What the policy sees: the full history, or only what it has when deployed. The same code serves
//! training and evaluation.

use crate::experiment::ContextKind;
use crate::trajectory::{QuestionData, Row, Tag, TokenId, Turn};

/// The ids of `<mem>`, which the deployed context forces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForcedIds(pub Vec<TokenId>);

/// A context and the number of ids at its end that are forced upon the next turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// Everything the policy sees, forced ids included.
    pub ids: Vec<TokenId>,
    /// How many of the last ids belong to the next turn.
    pub forced: u32,
}

/// The context of the turn after `turns`.
///
/// `Full`: the question, then every turn and tool result. `Deployed`: the question, the last notes
/// with their tags, the last tool result, and a forced `<mem>`; nothing else.
#[must_use]
pub fn next_context(
    kind: ContextKind,
    question: &QuestionData,
    turns: &[Turn],
    forced: &ForcedIds,
) -> Context {
    let mut ids = question.prompt_ids.clone();
    match kind {
        ContextKind::Full => {
            for turn in turns {
                ids.extend_from_slice(&turn.ids);
                ids.extend(tool_ids(turn));
            }
            Context { ids, forced: 0 }
        }
        ContextKind::Deployed => {
            if let Some(turn) = turns.last() {
                ids.extend_from_slice(notes_ids(turn));
                ids.extend(tool_ids(turn));
            }
            ids.extend_from_slice(&forced.0);
            Context {
                ids,
                forced: forced.0.len() as u32,
            }
        }
    }
}

/// The ids of a turn's notes with their tags; empty if it wrote none.
#[must_use]
pub fn notes_ids(turn: &Turn) -> &[TokenId] {
    turn.spans
        .iter()
        .find(|span| span.tag == Tag::Mem)
        .and_then(|span| turn.ids.get(span.start as usize..span.end as usize))
        .unwrap_or(&[])
}

/// The ids of the content of a turn's notes, without the tags.
#[must_use]
pub fn notes_content_ids(turn: &Turn) -> &[TokenId] {
    turn.spans
        .iter()
        .find(|span| span.tag == Tag::Mem)
        .and_then(|span| {
            turn.ids
                .get(span.inner_start as usize..span.inner_end as usize)
        })
        .unwrap_or(&[])
}

fn tool_ids(turn: &Turn) -> impl Iterator<Item = TokenId> + '_ {
    turn.tool.iter().flat_map(|tool| tool.ids.iter().copied())
}

/// The training rows of a finished trajectory: one for the full context, one a turn for the
/// deployed context. Prompt, forced ids and tool results are masked.
#[must_use]
pub fn training_rows(
    kind: ContextKind,
    question: &QuestionData,
    turns: &[Turn],
    forced: &ForcedIds,
) -> Vec<Row> {
    match kind {
        ContextKind::Full => {
            let mut row = Row::default();
            push_context(&mut row, &question.prompt_ids, 0);
            for (number, turn) in turns.iter().enumerate() {
                push_turn(&mut row, turn, number as u32);
                if let Some(tool) = &turn.tool {
                    push_context(&mut row, &tool.ids, number as u32);
                }
            }
            vec![row]
        }
        ContextKind::Deployed => turns
            .iter()
            .enumerate()
            .map(|(number, turn)| {
                let context = next_context(kind, question, &turns[..number], forced);
                let seen = context.ids.len() - turn.forced as usize;
                let mut row = Row::default();
                push_context(&mut row, &context.ids[..seen], number as u32);
                push_turn(&mut row, turn, number as u32);
                row
            })
            .collect(),
    }
}

fn push_context(row: &mut Row, ids: &[TokenId], turn: u32) {
    row.ids.extend_from_slice(ids);
    row.mask.extend(ids.iter().map(|_| false));
    row.logprobs.extend(ids.iter().map(|_| 0.0));
    row.turn.extend(ids.iter().map(|_| turn));
}

fn push_turn(row: &mut Row, turn: &Turn, number: u32) {
    let start = row.ids.len() as u32;
    let forced = turn.forced as usize;
    row.ids.extend_from_slice(&turn.ids);
    row.mask.extend((0..turn.ids.len()).map(|at| at >= forced));
    row.logprobs.extend_from_slice(&turn.logprobs);
    row.turn.extend(turn.ids.iter().map(|_| number));
    for span in turn.spans.iter().filter(|span| span.tag == Tag::Mem) {
        row.notes
            .push((number, start + span.start, start + span.end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trajectory::{Span, ToolResult};

    fn question() -> QuestionData {
        QuestionData {
            objectives: Vec::new(),
            text: String::new(),
            prompt_ids: vec![1, 2],
            gold_text: String::new(),
            gold_ids: Vec::new(),
            gold_answers: Vec::new(),
            answer_prefix_ids: Vec::new(),
            documents: Vec::new(),
        }
    }

    fn turn(base: TokenId, forced: u32) -> Turn {
        Turn {
            forced,
            // <mem> note </mem> call
            ids: vec![9, base, 10, base + 1],
            logprobs: vec![if forced > 0 { 0.0 } else { -0.5 }, -0.5, -0.5, -0.5],
            spans: vec![Span {
                tag: Tag::Mem,
                start: 0,
                end: 3,
                inner_start: 1,
                inner_end: 2,
            }],
            tool: Some(ToolResult {
                text: String::new(),
                ids: vec![base + 2],
            }),
            ..Turn::default()
        }
    }

    #[test]
    fn the_full_context_holds_everything() {
        let turns = [turn(20, 0), turn(30, 0)];
        let context = next_context(ContextKind::Full, &question(), &turns, &ForcedIds(vec![9]));
        assert_eq!(context.ids, [1, 2, 9, 20, 10, 21, 22, 9, 30, 10, 31, 32]);
        assert_eq!(context.forced, 0);
    }

    #[test]
    fn the_deployed_context_holds_question_last_notes_last_result_and_a_forced_tag() {
        let turns = [turn(20, 1), turn(30, 1)];
        let context = next_context(
            ContextKind::Deployed,
            &question(),
            &turns,
            &ForcedIds(vec![9]),
        );
        assert_eq!(context.ids, [1, 2, 9, 30, 10, 32, 9]);
        assert_eq!(context.forced, 1);
        let first = next_context(ContextKind::Deployed, &question(), &[], &ForcedIds(vec![9]));
        assert_eq!(first.ids, [1, 2, 9]);
    }

    #[test]
    fn full_rows_mask_prompt_and_tools() {
        let rows = training_rows(
            ContextKind::Full,
            &question(),
            &[turn(20, 0), turn(30, 0)],
            &ForcedIds(vec![9]),
        );
        let [row] = rows.as_slice() else {
            panic!("one row")
        };
        let trained: Vec<TokenId> = row
            .ids
            .iter()
            .zip(&row.mask)
            .filter(|(_, mask)| **mask)
            .map(|(id, _)| *id)
            .collect();
        assert_eq!(trained, [9, 20, 10, 21, 9, 30, 10, 31]);
        assert_eq!(row.notes, [(0, 2, 5), (1, 7, 10)]);
        assert_eq!(row.turn[6..8], [0, 1]);
    }

    #[test]
    fn deployed_rows_are_one_a_turn_and_mask_the_forced_tag() {
        let rows = training_rows(
            ContextKind::Deployed,
            &question(),
            &[turn(20, 1), turn(30, 1)],
            &ForcedIds(vec![9]),
        );
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1].ids, [1, 2, 9, 20, 10, 22, 9, 30, 10, 31]);
        let trained: Vec<usize> = (0..rows[1].ids.len())
            .filter(|&at| rows[1].mask[at])
            .collect();
        assert_eq!(trained, [7, 8, 9]);
        assert_eq!(rows[1].notes, [(1, 6, 9)]);
    }
}

//! What the policy sees: the full history, or a context that is written anew every turn. The same
//! code serves training and evaluation.

use crate::experiment::ContextKind;
use crate::trajectory::{QuestionData, Row, Tag, TokenId, Turn};

/// The ids of `<mem>`, which some contexts force.
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

/// Blocks that a turn is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnForm {
    /// Notes, thought, action.
    Noted,
    /// Thought, action: ReAct and MEM1.
    Bare,
    /// Thought, answer: MemAgent's, after the last part.
    Answering,
    /// Notes alone, about a part of a document.
    Reading,
}

/// The form of the turn with this number.
#[must_use]
pub fn turn_form(kind: ContextKind, question: &QuestionData, turn: usize) -> TurnForm {
    match kind {
        ContextKind::Chunks if turn < question.chunks.len() => TurnForm::Reading,
        ContextKind::Chunks => TurnForm::Answering,
        ContextKind::Mem1 | ContextKind::NoNotes => TurnForm::Bare,
        _ => TurnForm::Noted,
    }
}

/// The context of the turn after `turns`. After the question come
///
/// - `full`, `none`: every turn and tool result;
/// - `deployed`: the last notes with their tags, the last tool result in its short form, a forced
///   `<mem>`; nothing else;
/// - `last_turn`, `mem1`: the last turn, its tool result in its short form (with `mem1` it begins with
///   the number of turns left);
/// - `memory_only`: the last notes, a forced `<mem>`;
/// - `chunks`: the last notes, the next part of the document, a forced `<mem>`; after the last part
///   the last notes alone.
#[must_use]
pub fn next_context(
    kind: ContextKind,
    question: &QuestionData,
    turns: &[Turn],
    forced: &ForcedIds,
) -> Context {
    let mut ids = question.prompt_ids.clone();
    let last = turns.last();
    let mut forces = false;
    match kind {
        ContextKind::Full | ContextKind::NoNotes => {
            for turn in turns {
                ids.extend_from_slice(&turn.ids);
                ids.extend(tool_ids(turn));
            }
        }
        ContextKind::Deployed => {
            ids.extend(last.map(notes_ids).into_iter().flatten());
            ids.extend(last.map(short_tool_ids).into_iter().flatten());
            forces = true;
        }
        ContextKind::MemoryOnly => {
            ids.extend(last.map(notes_ids).into_iter().flatten());
            forces = true;
        }
        ContextKind::LastTurn | ContextKind::Mem1 => {
            ids.extend(last.map(|turn| &turn.ids).into_iter().flatten());
            ids.extend(last.map(short_tool_ids).into_iter().flatten());
        }
        ContextKind::Chunks => {
            ids.extend(last.map(notes_ids).into_iter().flatten());
            if let Some(chunk) = question.chunks.get(turns.len()) {
                ids.extend_from_slice(chunk);
                forces = true;
            }
        }
    }
    let forced: &[TokenId] = if forces { &forced.0 } else { &[] };
    ids.extend_from_slice(forced);
    Context {
        ids,
        forced: forced.len() as u32,
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
    content_ids(turn, Tag::Mem)
}

/// The ids of the content of a turn's first block of this kind, without the tags.
#[must_use]
pub fn content_ids(turn: &Turn, tag: Tag) -> &[TokenId] {
    turn.spans
        .iter()
        .find(|span| span.tag == tag)
        .and_then(|span| {
            turn.ids
                .get(span.inner_start as usize..span.inner_end as usize)
        })
        .unwrap_or(&[])
}

fn tool_ids(turn: &Turn) -> impl Iterator<Item = TokenId> + '_ {
    turn.tool.iter().flat_map(|tool| tool.ids.iter().copied())
}

/// The ids of a tool result in its short form.
fn short_tool_ids(turn: &Turn) -> &[TokenId] {
    turn.tool
        .as_ref()
        .map_or(&[], |tool| tool.short_ids.as_ref().unwrap_or(&tool.ids))
}

/// The training rows of a finished trajectory: one where the context only grows, one a turn where it
/// is written anew. Prompt, forced ids and tool results are masked, and so is what a row repeats of
/// earlier turns.
#[must_use]
pub fn training_rows(
    kind: ContextKind,
    question: &QuestionData,
    turns: &[Turn],
    forced: &ForcedIds,
) -> Vec<Row> {
    if kind.grows() {
        let mut row = Row::default();
        push_context(&mut row, &question.prompt_ids, 0);
        for (number, turn) in turns.iter().enumerate() {
            push_turn(&mut row, turn, number as u32);
            if let Some(tool) = &turn.tool {
                push_context(&mut row, &tool.ids, number as u32);
            }
        }
        return vec![row];
    }
    turns
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
        .collect()
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
mod tests;

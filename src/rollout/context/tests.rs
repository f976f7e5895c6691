use super::*;
use crate::trajectory::{Span, ToolResult};

fn question() -> QuestionData {
    QuestionData {
        prompt_ids: vec![1, 2],
        ..QuestionData::default()
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
            ids: vec![base + 2],
            ..ToolResult::default()
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

/// What stands after the prompt of every context: `<mem>` is 9, `</mem>` is 10.
#[test]
fn every_context_holds_what_its_setting_says_and_nothing_else() {
    let forced = ForcedIds(vec![9]);
    let mut turns = [turn(20, 0), turn(30, 0)];
    let ids = |kind, question: &QuestionData, turns: &[Turn]| {
        let context = next_context(kind, question, turns, &forced);
        (context.ids[2..].to_vec(), context.forced)
    };
    let of = |kind, turns: &[Turn]| ids(kind, &question(), turns);
    assert_eq!(
        of(ContextKind::NoNotes, &turns),
        (vec![9, 20, 10, 21, 22, 9, 30, 10, 31, 32], 0)
    );
    assert_eq!(
        of(ContextKind::LastTurn, &turns),
        (vec![9, 30, 10, 31, 32], 0)
    );
    assert_eq!(of(ContextKind::Mem1, &turns), (vec![9, 30, 10, 31, 32], 0));
    assert_eq!(of(ContextKind::MemoryOnly, &turns), (vec![9, 30, 10, 9], 1));
    assert_eq!(of(ContextKind::Mem1, &[]), (vec![], 0));
    if let Some(tool) = &mut turns[1].tool {
        tool.short_ids = Some(vec![77]);
    }
    assert_eq!(
        of(ContextKind::Deployed, &turns),
        (vec![9, 30, 10, 77, 9], 1)
    );
    assert_eq!(
        of(ContextKind::LastTurn, &turns),
        (vec![9, 30, 10, 31, 77], 0)
    );
    assert_eq!(
        of(ContextKind::Full, &turns).0.last(),
        Some(&32),
        "the short form is for short contexts"
    );
    let document = QuestionData {
        chunks: vec![vec![50], vec![60]],
        ..question()
    };
    assert_eq!(ids(ContextKind::Chunks, &document, &[]), (vec![50, 9], 1));
    assert_eq!(
        ids(ContextKind::Chunks, &document, &turns[..1]),
        (vec![9, 20, 10, 60, 9], 1)
    );
    assert_eq!(
        ids(ContextKind::Chunks, &document, &turns),
        (vec![9, 30, 10], 0)
    );
    assert_eq!(
        turn_form(ContextKind::Chunks, &document, 1),
        TurnForm::Reading
    );
    assert_eq!(
        turn_form(ContextKind::Chunks, &document, 2),
        TurnForm::Answering
    );
}

#[test]
fn a_rewritten_context_gives_one_row_a_turn_that_learns_only_what_that_turn_sampled() {
    let forced = ForcedIds(vec![9]);
    let document = QuestionData {
        chunks: vec![vec![50]],
        ..question()
    };
    for kind in [
        ContextKind::Deployed,
        ContextKind::LastTurn,
        ContextKind::MemoryOnly,
        ContextKind::Mem1,
        ContextKind::Chunks,
    ] {
        let mut turns = Vec::new();
        for base in [20, 30, 40] {
            let context = next_context(kind, &document, &turns, &forced);
            turns.push(turn(base, context.forced));
        }
        let rows = training_rows(kind, &document, &turns, &forced);
        assert_eq!(rows.len(), 3, "{kind:?}");
        for (number, row) in rows.iter().enumerate() {
            let context = next_context(kind, &document, &turns[..number], &forced);
            let learned: Vec<TokenId> = row
                .ids
                .iter()
                .zip(&row.mask)
                .filter(|(_, on)| **on)
                .map(|(id, _)| *id)
                .collect();
            assert_eq!(
                learned,
                turns[number].ids[turns[number].forced as usize..],
                "{kind:?}"
            );
            assert_eq!(
                row.ids[..context.ids.len()],
                context.ids,
                "{kind:?}: what was seen is what is learned on"
            );
            assert!(row.turn.iter().all(|turn| *turn == number as u32));
        }
    }
}

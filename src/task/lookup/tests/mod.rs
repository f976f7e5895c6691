#![allow(clippy::unwrap_used)]

mod texts;

use std::sync::LazyLock;

use crate::engine::{SupervisedPart, SupervisedRow};
use crate::experiment::MixSettings;
use crate::task::Task as _;

use super::LookupTask;

fn task() -> &'static LookupTask {
    static TASK: LazyLock<LookupTask> = LazyLock::new(|| LookupTask::shipped().unwrap());
    &TASK
}

fn mix() -> MixSettings {
    MixSettings {
        full: 6,
        deployed: 8,
        probe: 4,
        drill: 3,
        copy: 3,
        sequence: 2,
        opening_steps: 10,
        full_objectives_max: 4,
        turn_objectives_max: 6,
        position_gap: 30,
        keep: vec![0.05, 0.2, 0.4, 1.0],
        junk: 0.0,
        pseudo: 0.35,
    }
}

/// The text of a row with what is trained between `[` and `]`.
fn marked(task: &LookupTask, row: &SupervisedRow) -> String {
    let mut text = String::new();
    let mut before = false;
    for (&id, &trained) in row.ids.iter().zip(&row.mask) {
        if trained != before {
            text.push(if trained { '[' } else { ']' });
        }
        before = trained;
        text += &task.tokenizer.decode(&[id]);
    }
    if before {
        text.push(']');
    }
    text
}

#[test]
fn the_ids_of_rows_are_those_of_their_text() {
    let task = task();
    for part in (10..60).flat_map(|step| task.cold_start_examples(2, step, &mix())) {
        if part.name == "copy" {
            continue; // random tokens, not text
        }
        for row in &part.rows {
            let text = task.tokenizer.decode(&row.ids);
            assert_eq!(
                task.tokenizer.encode(&text),
                row.ids,
                "{}: {text}",
                part.name
            );
        }
    }
}

#[test]
fn copies_train_what_was_there_before() {
    let task = task();
    for part in (0..30).flat_map(|step| task.cold_start_examples(3, step, &mix())) {
        for row in part.rows.iter().filter(|_| part.name == "copy") {
            let first = row.mask.iter().position(|&trained| trained).unwrap();
            let period = first - 1;
            assert!(period > 0 && row.mask[first..].iter().all(|&trained| trained));
            assert_eq!(row.ids[..row.ids.len() - period], row.ids[period..]);
        }
    }
}

#[test]
fn positions_jump_only_between_turns_and_in_most_rows() {
    let task = task();
    let (mut jumped, mut rows) = (0, 0);
    for part in (10..60).flat_map(|step| task.cold_start_examples(1, step, &mix())) {
        for row in &part.rows {
            assert_eq!(row.ids.len(), row.mask.len());
            assert_eq!(row.ids.len(), row.positions.len());
            assert!(!row.mask[0] && row.mask.contains(&true));
            assert_eq!(row.positions[0], 0);
            let jumps: Vec<usize> = (1..row.ids.len())
                .filter(|&at| row.positions[at] != row.positions[at - 1] + 1)
                .collect();
            for &at in &jumps {
                let step = row.positions[at] - row.positions[at - 1];
                assert!((2..=31).contains(&step), "{step}");
                let before = task.tokenizer.decode(&row.ids[at - 1..at]);
                assert!(
                    ["</q>", "</tool>", "</search>", "</think>"].contains(&&before[..]),
                    "{before}"
                );
            }
            if part.name != "copy" {
                jumped += usize::from(!jumps.is_empty());
                rows += 1;
            }
        }
    }
    let share = jumped as f32 / rows as f32;
    assert!((0.5..0.65).contains(&share), "{share}");
    let flat = MixSettings {
        position_gap: 0,
        ..mix()
    };
    for part in task.cold_start_examples(1, 10, &flat) {
        for row in part.rows {
            assert!(row.positions.iter().copied().eq(0..row.ids.len() as u32));
        }
    }
}

#[test]
fn the_opening_is_drills_alone_that_grow() {
    let task = task();
    let sizes = |step| {
        let parts = task.cold_start_examples(1, step, &mix());
        let names: Vec<_> = parts
            .iter()
            .map(|part| (part.name.clone(), part.weight, part.rows.len()))
            .collect();
        assert_eq!(
            names,
            [("copy".to_owned(), 1.0, 24), ("drill".to_owned(), 1.0, 8)]
        );
        let longest =
            |part: &SupervisedPart| part.rows.iter().map(|row| row.ids.len()).max().unwrap();
        longest(&parts[1])
    };
    assert!(sizes(0) < sizes(9));
    let names: Vec<_> = task
        .cold_start_examples(1, 10, &mix())
        .iter()
        .map(|part| part.name.clone())
        .collect();
    assert_eq!(
        names,
        ["full", "deployed", "probe", "drill", "copy", "sequence"]
    );
}

#[test]
fn a_row_depends_on_its_address_and_not_on_its_company() {
    let task = task();
    let all = task.cold_start_examples(1, 20, &mix());
    assert_eq!(all, task.cold_start_examples(1, 20, &mix()));
    let fewer = MixSettings {
        full: 3,
        deployed: 0,
        ..mix()
    };
    let few = task.cold_start_examples(1, 20, &fewer);
    assert_eq!(few[0].rows[..], all[0].rows[..3]);
    assert_eq!(
        few[1], all[2],
        "an empty part is left out, the next stays as it was"
    );
    assert_ne!(all, task.cold_start_examples(1, 21, &mix()));
    assert_ne!(all, task.cold_start_examples(2, 20, &mix()));
}

//! What the rows of the cold start say, with what is trained between `[` and `]`.

use crate::experiment::MixSettings;
use crate::task::Task as _;
use crate::task::lookup::LookupTask;

use super::{marked, mix, task};

/// Marked rows of one part over many steps.
fn rows_of(task: &LookupTask, name: &str, mix: &MixSettings) -> Vec<String> {
    (10..60)
        .flat_map(|step| task.cold_start_examples(1, step, mix))
        .filter(|part| part.name == name)
        .flat_map(|part| part.rows)
        .map(|row| marked(task, &row))
        .collect()
}

fn plain(marked: &str) -> String {
    marked.replace(['[', ']'], "")
}

/// What stands between the first `open` and the `close` after it.
fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(open)?;
    rest.split_once(close).map(|(inner, _)| inner)
}

#[test]
fn one_row_of_each_kind_reads_as_it_shall() {
    let task = task();
    let first: Vec<(String, f32, String)> = task
        .cold_start_examples(1, 12, &mix())
        .iter()
        .map(|part| (part.name.clone(), part.weight, marked(task, &part.rows[0])))
        .collect();
    let golden: Vec<(String, f32, String)> =
        serde_json::from_str(include_str!("../../../../tests/fixtures/cold_start.json")).unwrap();
    assert_eq!(first, golden);
}

#[test]
fn prompts_and_results_are_never_trained() {
    let task = task();
    for name in ["full", "deployed", "probe", "drill", "sequence"] {
        for row in rows_of(task, name, &mix()) {
            let mut rest = row.as_str();
            assert!(rest.starts_with("<q>"), "{name}: {row}");
            for (open, close) in [("<q>", "</q>"), ("<tool>", "</tool>")] {
                while let Some((before, after)) = rest.split_once(open) {
                    let trained = before.matches('[').count() > before.matches(']').count();
                    let (inner, after) = after.split_once(close).unwrap();
                    assert!(!trained && !inner.contains(['[', ']']), "{name}: {row}");
                    rest = after;
                }
            }
        }
    }
}

#[test]
fn whole_trajectories_search_in_order_and_end_with_the_gold_answer() {
    let task = task();
    for row in rows_of(task, "full", &mix()) {
        let text = plain(&row);
        let keys: Vec<&str> = between(&text, "<q>", "</q>").unwrap().split(';').collect();
        let searches: Vec<&str> = text
            .split("<search>")
            .skip(1)
            .map(|rest| rest.split_once("</search>").unwrap().0)
            .collect();
        assert_eq!(searches, keys, "{text}");
        let answer = between(&text, "<think> done</think><answer>", "</answer>").unwrap();
        let answered: Vec<&str> = answer
            .split_terminator(';')
            .map(|fact| fact.split_once(" =").unwrap().0)
            .collect();
        assert_eq!(answered, keys, "{text}");
        for fact in answer.split_terminator(';') {
            let sentence = format!(" The{}.", fact.replacen(" =", " is", 1));
            assert!(text.contains(&sentence), "{sentence} in {text}");
        }
        assert!(
            row.contains("</q>[<mem></mem>") && row.ends_with("</answer>]"),
            "{row}"
        );
    }
}

#[test]
fn values_are_trained_exactly_where_they_can_be_known() {
    let task = task();
    for name in ["deployed", "probe"] {
        let mut unknown = 0;
        for row in rows_of(task, name, &mix()) {
            assert!(!row.contains("[<mem>"), "forced notes are trained: {row}");
            let Some((context, answer)) = row.split_once("<answer>") else {
                continue;
            };
            let (notes, written) = context.rsplit_once("<mem>").unwrap();
            // The last notes of a deployed turn are what it writes; a probe is given its notes.
            let view = if name == "probe" { written } else { notes };
            let view = plain(view).replace(" is ", " = ").replace('.', ";");
            for fact in answer
                .split_inclusive(';')
                .filter(|fact| fact.contains('='))
            {
                let (key, value) = fact.split_once(" =").unwrap();
                let fact = plain(&format!("{key} ={value}"));
                let known = view.contains(&fact.replace('.', ";"));
                assert_eq!(known, !value.starts_with(']'), "{fact} in {row}");
                unknown += usize::from(!known);
            }
        }
        assert!(unknown > 25, "{name}: only {unknown} unknown values");
    }
}

#[test]
fn probes_train_the_answer_alone_and_drills_the_values() {
    let task = task();
    for row in rows_of(task, "probe", &mix()) {
        assert!(row.contains("<think> done</think><answer>["), "{row}");
        assert!(row.ends_with("</answer>]"), "{row}");
    }
    for row in rows_of(task, "drill", &mix()) {
        let passage = between(&row, "<tool>", "</tool>").unwrap().to_owned();
        let (_, asked) = row.split_once("<mem>").unwrap();
        let facts: Vec<&str> = asked.split_terminator("]").collect();
        assert_eq!(facts.len(), 12, "{row}");
        for fact in facts {
            let sentence = fact.replacen(" =[", " is", 1).replace(';', ".");
            assert!(passage.contains(&sentence), "{sentence} in {row}");
        }
    }
}

#[test]
fn the_share_of_kept_facts_is_the_one_of_the_settings() {
    let task = task();
    for (keep, low, high) in [(0.0, 0.0, 0.0), (0.3, 0.25, 0.35), (1.0, 1.0, 1.0)] {
        let mix = MixSettings {
            keep: vec![keep],
            ..mix()
        };
        let (mut kept, mut known) = (0, 0);
        for row in rows_of(task, "full", &mix) {
            for (turn, notes) in plain(&row).split("<mem>").skip(1).enumerate() {
                kept += notes.split_once("</mem>").unwrap().0.matches(';').count();
                known += turn;
            }
        }
        let share = kept as f32 / known as f32;
        assert!((low..=high).contains(&share), "{keep}: {share}");
    }
}

#[test]
fn junk_puts_the_distractors_value_into_notes_but_never_into_the_answer() {
    let task = task();
    let mix = MixSettings {
        junk: 1.0,
        keep: vec![1.0],
        ..mix()
    };
    for row in rows_of(task, "full", &mix) {
        let text = plain(&row);
        let answer = between(&text, "<answer>", "</answer>").unwrap();
        let notes = text.rsplit_once("<mem>").unwrap().1;
        for (noted, right) in notes.split(';').zip(answer.split_terminator(';')) {
            assert_ne!(noted, right, "{text}");
            assert_eq!(noted.split('=').next(), right.split('=').next(), "{text}");
        }
    }
}

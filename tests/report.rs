//! The report page: what it holds, and what it looks like when little is known.
#![allow(clippy::unwrap_used, reason = "helpers of tests count as code")]

mod sample_run;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use palimpsest::record::{RecordWriter, RunFolder, RunRecord, Summary, write_report};
use sample_run::{start, write_cold_start, write_run};

fn page_of(folder: &RunFolder) -> String {
    fs::read_to_string(write_report(folder).unwrap()).unwrap()
}

/// The pages stay under `target/tmp/report`, to be looked at.
fn runs(name: &str) -> std::path::PathBuf {
    let runs = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("report")
        .join(name);
    fs::remove_dir_all(&runs).ok();
    runs
}

#[test]
fn a_finished_run_is_told_on_one_self_contained_page() {
    let folder = write_run(&runs("finished"), 10);
    let view = RunRecord::read(&folder).unwrap().view();
    let wall = BTreeMap::from([("total".to_owned(), 83.0), ("rl".to_owned(), 51.5)]);
    Summary::new(&view, wall).write(&folder).unwrap();
    let page = page_of(&folder);
    for text in [
        "quickstart-0001",
        "Exact match",
        "1 min 23 s",
        "0.31 \u{2192} 0.59",
        "Is it healthy?",
        "How did the cold start go?",
        "Step 1, question 1, rollout 1",
        "Step 10, question 1, rollout 2",
        "<ins>",
        "<del>",
        "aria-label=\"Exact match: deployed 0.31 at step 0, 0.59 at step 10",
        "turn limit",
        "outcome +0.60 + memory +0.24 = weight +0.84",
        "Groups that taught nothing",
        "every rollout is wrong",
        "all memory rewards are equal",
        "<td>5</td><td>25 %</td><td class=\"left\">2, 4, 6, 8, 10</td>",
    ] {
        assert!(page.contains(text), "{text:?} is missing");
    }
    assert!(!page.contains("http"), "the page must load nothing");
    assert!(!page.contains("<script"), "the page needs no script");
}

#[test]
fn text_of_the_run_cannot_become_markup() {
    let page = page_of(&write_run(&runs("markup"), 1));
    assert!(page.contains("&lt;mem&gt;"));
    assert!(!page.contains("<mem>"));
    assert!(page.contains("&lt;b&gt;not bold"));
    assert!(page.contains("the tool &lt;search&gt; found nothing"));
}

#[test]
fn a_run_without_rl_steps_shows_its_cold_start() {
    let runs = runs("cold-start");
    let folder = RunFolder::create(&runs, "cold").unwrap();
    let mut writer = RecordWriter::create(&folder, &start(&[])).unwrap();
    write_cold_start(&mut writer, 30);
    writer.sync().unwrap();
    let page = page_of(&folder);
    assert!(page.contains("running"));
    assert!(page.contains("one evaluation so far"));
    assert!(page.contains("Loss by kind of example"));
    assert!(
        !page.contains("Is it learning?"),
        "one evaluation is no curve"
    );
    assert!(page.contains("No trajectory was kept."));
    assert!(!page.contains("Is it healthy?"));
}

#[test]
fn a_run_that_has_only_begun_has_a_page() {
    let folder = RunFolder::create(&runs("begun"), "begun").unwrap();
    RecordWriter::create(&folder, &start(&[])).unwrap();
    assert!(page_of(&folder).contains("Nothing was measured yet."));
}

#[test]
fn damaged_tokens_are_told_and_the_rest_is_shown() {
    let folder = write_run(&runs("damaged"), 2);
    let tokens = folder.file("tokens.bin");
    let mut bytes = fs::read(&tokens).unwrap();
    bytes[60] ^= 1;
    fs::write(&tokens, bytes).unwrap();
    let page = page_of(&folder);
    assert!(page.contains("The tokens cannot be shown"));
    assert!(page.contains("the checksum is"));
    assert!(page.contains("trained tokens, weights add up to"));
}

//! The run folder: what is written is read back, whatever happened in between.
#![allow(clippy::unwrap_used, reason = "helpers of tests count as code")]

mod sample_run;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use palimpsest::experiment::ContextKind;
use palimpsest::record::{
    Event, Metrics, Notice, RecordError, RecordWriter, RunFolder, RunRecord, RunStatus, Summary,
    TokenReader, TokenRef, read_events,
};
use sample_run::{Words, evaluation, id, start, write_cold_start, write_run, write_step};

fn append_raw(path: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn events_of(folder: &RunFolder) -> Vec<Event> {
    let record = RunRecord::read(folder).unwrap();
    record.events.into_iter().map(|e| e.event).collect()
}

#[test]
fn what_was_written_is_read_back() {
    let runs = tempfile::tempdir().unwrap();
    let folder = write_run(runs.path(), 3);
    let record = RunRecord::read(&folder).unwrap();
    assert_eq!(record.notices, []);
    let numbers: Vec<u64> = record.events.iter().map(|e| e.seq).collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());

    let view = record.view();
    assert_eq!((view.name.as_str(), view.seed), ("quickstart", 7));
    assert_eq!((view.steps, view.cold_start_steps), (3, 120));
    assert_eq!(view.status, RunStatus::Finished);
    assert_eq!(view.cold_start.len(), 120);
    assert_eq!(view.metric("critic/score/mean").len(), 3);
    assert_eq!(view.trajectories.len(), 6);
    assert_eq!(view.question_of(id(2, 0, 1)).unwrap().gold, "Lima; 6");

    let trajectory = &view.trajectories[&id(2, 0, 0)];
    assert_eq!(trajectory.turns.len(), 3);
    assert!(trajectory.turns[0].tool.is_some());
    let mut tokens = TokenReader::open(folder.path()).unwrap();
    let block = tokens.read(trajectory.tokens[0]).unwrap();
    assert_eq!(block.id, id(2, 0, 0));
    assert_eq!(block.ids.len(), block.weight.len());
    for i in 0..block.ids.len() {
        assert_eq!(block.weight[i], block.outcome[i] + block.memory[i]);
        assert_eq!(block.kl[i], 0.0);
    }
}

#[test]
fn two_runs_give_the_same_events_and_tokens() {
    let runs = tempfile::tempdir().unwrap();
    let (a, b) = (write_run(runs.path(), 2), write_run(runs.path(), 2));
    assert!(a.path().ends_with("quickstart-0001"));
    assert!(b.path().ends_with("quickstart-0002"));
    for name in ["events.jsonl", "tokens.bin", "metrics.jsonl", "vocab.json"] {
        let same = fs::read(a.file(name)).unwrap() == fs::read(b.file(name)).unwrap();
        assert!(same, "{name} differs");
    }
}

#[test]
fn a_torn_last_line_is_skipped_and_said_and_the_run_goes_on() {
    let runs = tempfile::tempdir().unwrap();
    let path = write_run(runs.path(), 2).path().to_path_buf();
    let whole = read_events(&path).unwrap().0.len();
    append_raw(&path.join("events.jsonl"), r#"{"seq":999,"kind":"step_be"#);
    append_raw(&path.join("metrics.jsonl"), r#"{"seq":999,"st"#);
    let (events, notices) = read_events(&path).unwrap();
    assert_eq!(events.len(), whole);
    let torn = |n: &Notice| matches!(n, Notice::TornLine { .. });
    assert_eq!(notices.iter().filter(|n| torn(n)).count(), 2, "{notices:?}");
    assert!(notices[0].to_string().contains("events.jsonl: line "));

    let folder = RunFolder::open(&path).unwrap();
    let last = events.last().unwrap().seq;
    let mut writer = RecordWriter::reopen(&folder, last, 2, 120, true).unwrap();
    writer.append(&Event::StepBegan { step: 3 }).unwrap();
    writer.append_metrics(3, &Metrics::default()).unwrap();
    writer.flush().unwrap();
    let record = RunRecord::read(&folder).unwrap();
    assert_eq!(record.events.len(), whole + 2);
    assert_eq!(record.events.last().unwrap().seq, last + 2);
    assert_eq!(record.notices.iter().filter(|n| torn(n)).count(), 2);
    assert_eq!(record.metrics.last().unwrap().step, 3);
}

#[test]
fn what_a_resumed_run_did_again_counts_once() {
    let runs = tempfile::tempdir().unwrap();
    let mut words = Words::default();
    let folder = RunFolder::create(runs.path(), "resumed").unwrap();
    let path = folder.path().to_path_buf();
    let mut writer = RecordWriter::create(&folder, &start(&[])).unwrap();
    write_cold_start(&mut writer, 5);
    write_step(&mut writer, &mut words, 1);
    let from_seq = writer.next_seq();
    let saved = Event::CheckpointSaved {
        step: 1,
        cold_start_step: 5,
        folder: "step-000001".into(),
    };
    assert_eq!(writer.append(&saved).unwrap(), from_seq);
    write_step(&mut writer, &mut words, 2);
    write_step(&mut writer, &mut words, 3);
    let void = Event::Evaluated(Box::new(evaluation(3, ContextKind::Full, 2, 0.9)));
    writer.append(&void).unwrap();
    writer.sync().unwrap();
    drop((writer, folder));

    let folder = RunFolder::open(&path).unwrap();
    let before = fs::read(folder.file("events.jsonl")).unwrap();
    let mut writer = RecordWriter::reopen(&folder, from_seq, 1, 5, true).unwrap();
    write_step(&mut writer, &mut words, 2);
    writer.sync().unwrap();
    let after = fs::read(folder.file("events.jsonl")).unwrap();
    assert!(after.starts_with(&before), "nothing is ever removed");

    let record = RunRecord::read(&folder).unwrap();
    assert!(matches!(
        record.notices[..],
        [Notice::Void { count: 36, .. }]
    ));
    let view = record.view();
    assert_eq!((view.steps, view.resumes), (2, 1));
    assert_eq!(view.checkpoints.len(), 1);
    assert_eq!(view.evaluations.len(), 4);
    assert_eq!(view.trajectories.len(), 4);
    assert_eq!(view.metric("actor/entropy").len(), 2);
    assert_eq!(view.updates.keys().copied().collect::<Vec<_>>(), [1, 2]);
    let redone = &view.trajectories[&id(2, 0, 0)];
    assert_eq!(redone.turns.len(), 3);
    let mut tokens = TokenReader::open(folder.path()).unwrap();
    assert_eq!(tokens.read(redone.tokens[0]).unwrap().id, id(2, 0, 0));
}

#[test]
fn a_second_writer_is_refused_and_a_reader_is_not() {
    let runs = tempfile::tempdir().unwrap();
    let folder = write_run(runs.path(), 1);
    let refused = RunFolder::open(folder.path()).unwrap_err();
    assert!(matches!(refused, RecordError::Locked { .. }));
    assert!(refused.to_string().contains("quickstart-0001"), "{refused}");
    assert!(RunFolder::look(folder.path()).is_ok());
    let path = folder.path().to_path_buf();
    drop(folder);
    assert!(RunFolder::open(&path).unwrap().is_locked());
}

#[test]
fn a_folder_that_is_no_run_is_refused_with_the_reason() {
    let place = tempfile::tempdir().unwrap();
    let why = |path: &Path| RunFolder::open(path).unwrap_err().to_string();
    assert!(why(&place.path().join("none")).contains("it does not exist"));
    assert!(why(place.path()).contains("events.jsonl is missing"));
    let events = place.path().join("events.jsonl");
    fs::write(&events, "").unwrap();
    assert!(why(place.path()).contains("does not begin with an event"));
    fs::write(&events, "{\"seq\":0,\"kind\":\"step_began\",\"step\":1}\n").unwrap();
    assert!(why(place.path()).contains("does not begin with run_started"));
    assert!(why(&events).contains("it is a file"));
    assert!(!place.path().join("lock").exists(), "it is left untouched");
}

#[test]
fn a_newer_schema_is_refused_by_name() {
    let place = tempfile::tempdir().unwrap();
    let first = r#"{"seq":0,"kind":"run_started","schema":9,"version":"3.1.0","new":true}"#;
    fs::write(place.path().join("events.jsonl"), format!("{first}\n")).unwrap();
    let refused = RunFolder::look(place.path()).unwrap_err();
    assert!(matches!(refused, RecordError::NewerSchema { found: 9, .. }));
    assert!(
        refused.to_string().contains("palimpsest 3.1.0"),
        "{refused}"
    );
}

#[test]
fn unknown_kinds_and_unreadable_lines_are_skipped_and_said() {
    let runs = tempfile::tempdir().unwrap();
    let folder = write_run(runs.path(), 1);
    let whole = events_of(&folder).len();
    let extra =
        "{\"seq\":900,\"kind\":\"dreamt\",\"of\":1}\n{\"seq\":901,\"kind\":\"step_began\"}\n";
    append_raw(&folder.file("events.jsonl"), extra);
    let record = RunRecord::read(&folder).unwrap();
    assert_eq!(record.events.len(), whole);
    let said: Vec<String> = record.notices.iter().map(ToString::to_string).collect();
    assert!(
        said.iter().any(|s| s.contains("missing field `step`")),
        "{said:?}"
    );
    assert!(said.iter().any(|s| s.contains("\"dreamt\"")), "{said:?}");
}

#[test]
fn a_damaged_token_block_is_an_error_that_says_where() {
    let runs = tempfile::tempdir().unwrap();
    let folder = write_run(runs.path(), 1);
    let view = RunRecord::read(&folder).unwrap().view();
    let at = view.trajectories[&id(1, 0, 1)].tokens[0];
    let path = folder.file("tokens.bin");
    let mut bytes = fs::read(&path).unwrap();
    bytes[at.offset as usize + 40] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let mut tokens = TokenReader::open(folder.path()).unwrap();
    let why = |tokens: &mut TokenReader, at| tokens.read(at).unwrap_err().to_string();
    assert!(why(&mut tokens, at).contains("the checksum is"));
    let beyond = TokenRef {
        offset: bytes.len() as u64,
        bytes: 100,
    };
    assert!(why(&mut tokens, beyond).contains("4 bytes are needed, 0 are left"));
    let sound = view.trajectories[&id(1, 0, 0)].tokens[0];
    assert!(tokens.read(sound).is_ok());
    fs::write(&path, b"something else").unwrap();
    assert!(TokenReader::open(folder.path()).is_err());
}

#[test]
fn a_checkpoint_appears_whole_or_not_at_all() {
    let runs = tempfile::tempdir().unwrap();
    let folder = write_run(runs.path(), 1);
    let none = folder.latest_checkpoint().unwrap_err();
    assert!(matches!(none, RecordError::NoCheckpoint { .. }));
    let save = |content: &str| {
        let draft = folder.begin_checkpoint("step-000001").unwrap();
        fs::write(draft.path().join("state.json"), content).unwrap();
        draft
    };
    let path = save("one").commit().unwrap();
    assert_eq!(folder.latest_checkpoint().unwrap(), path);
    // A draft that is never committed changes nothing, and goes at the next opening.
    let draft = save("two");
    assert_eq!(fs::read_to_string(path.join("state.json")).unwrap(), "one");
    let left = draft.path().to_path_buf();
    let run = folder.path().to_path_buf();
    drop((draft, folder));
    let folder = RunFolder::open(&run).unwrap();
    assert!(!left.exists());
    // The same name again replaces what a run left that was resumed from before it.
    let draft = folder.begin_checkpoint("step-000001").unwrap();
    fs::write(draft.path().join("state.json"), "three").unwrap();
    assert_eq!(draft.commit().unwrap(), path);
    assert_eq!(
        fs::read_to_string(path.join("state.json")).unwrap(),
        "three"
    );
}

#[test]
fn the_summary_has_the_promised_shape() {
    let runs = tempfile::tempdir().unwrap();
    let folder = write_run(runs.path(), 2);
    let view = RunRecord::read(&folder).unwrap().view();
    let wall = BTreeMap::from([("total".to_owned(), 1.5)]);
    let summary = Summary::new(&view, wall);
    summary.write(&folder).unwrap();
    assert_eq!(Summary::read(&folder).unwrap(), Some(summary));
    let text = fs::read_to_string(folder.file("summary.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["name"], "quickstart");
    assert_eq!(json["status"], "finished");
    assert_eq!(
        (json["seed"].as_u64(), json["steps"].as_u64()),
        (Some(7), Some(2))
    );
    assert_eq!(json["wall_seconds"]["total"], 1.5);
    let first = &json["evaluations"][0];
    assert_eq!(
        (first["step"].as_u64(), &first["context"]),
        (Some(0), &"deployed".into())
    );
    for key in [
        "objectives",
        "n",
        "em",
        "f1",
        "notes_recall",
        "notes_tokens",
        "peak_tokens",
        "total_tokens",
    ] {
        assert!(first[key].is_number(), "{key}");
    }
}

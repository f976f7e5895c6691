//! Reads a run folder back, one that is still being written too.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;

use serde::de::DeserializeOwned;

use super::{Event, MetricsLine, RecordError, Recorded, RunFolder, RunView};

/// Something that was skipped while reading, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A line was cut off by a crash, a full disk, or because it is being written right now.
    TornLine {
        /// Name of the file.
        file: &'static str,
        /// Number of the line, from 1.
        line: u64,
    },
    /// A whole line does not hold what it should.
    UnreadableLine {
        /// Name of the file.
        file: &'static str,
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong.
        why: String,
    },
    /// Events of a kind that this program does not know.
    UnknownKind {
        /// The kind.
        kind: String,
        /// How many.
        count: u64,
    },
    /// Events that were done again after a resume.
    Void {
        /// The event that says so.
        resumed_at: u64,
        /// How many.
        count: u64,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TornLine { file, line } => {
                write!(f, "{file}: line {line} is torn and was skipped")
            }
            Self::UnreadableLine { file, line, why } => {
                write!(f, "{file}: line {line} was skipped: {why}")
            }
            Self::UnknownKind { kind, count } => write!(
                f,
                "events.jsonl: {count} event(s) of the unknown kind {kind:?} were skipped; a later program may know it"
            ),
            Self::Void { resumed_at, count } => write!(
                f,
                "events.jsonl: {count} event(s) before the resume at event {resumed_at} are void; their steps were done again"
            ),
        }
    }
}

/// What a run folder tells: what was done again after a resume is left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunRecord {
    /// The events, in order.
    pub events: Vec<Recorded>,
    /// The lines of `metrics.jsonl`, in order.
    pub metrics: Vec<MetricsLine>,
    /// What was skipped.
    pub notices: Vec<Notice>,
}

impl RunRecord {
    /// Reads events and metrics.
    ///
    /// # Errors
    /// [`RecordError::Io`].
    pub fn read(folder: &RunFolder) -> Result<Self, RecordError> {
        let mut record = Self::default();
        let void = record.read_events(&folder.file("events.jsonl"))?;
        record.read_metrics(&folder.file("metrics.jsonl"), &void)?;
        Ok(record)
    }

    /// Folds what was read.
    #[must_use]
    pub fn view(&self) -> RunView {
        let mut view = RunView::default();
        for recorded in &self.events {
            view.apply(recorded);
        }
        for line in &self.metrics {
            view.apply_metrics(line.step, &line.metrics);
        }
        view
    }

    /// Gives the void ranges: events after the first number and before the second.
    fn read_events(&mut self, path: &Path) -> Result<Vec<(u64, u64)>, RecordError> {
        let mut void = Vec::new();
        let mut unknown = BTreeMap::<String, u64>::new();
        let Self {
            events, notices, ..
        } = self;
        each_line(path, |line, text| match parse::<Recorded>(text) {
            Ok(recorded) => {
                if let Event::RunResumed { from_seq, .. } = recorded.event {
                    let before = events.len();
                    events.retain(|e| e.seq <= from_seq);
                    void.push((from_seq, recorded.seq));
                    if events.len() < before {
                        notices.push(Notice::Void {
                            resumed_at: recorded.seq,
                            count: (before - events.len()) as u64,
                        });
                    }
                }
                events.push(recorded);
            }
            Err(bad) => match unknown_kind(text) {
                Some(kind) => *unknown.entry(kind).or_default() += 1,
                None => notices.push(bad.notice("events.jsonl", line)),
            },
        })?;
        notices.extend(
            unknown
                .into_iter()
                .map(|(kind, count)| Notice::UnknownKind { kind, count }),
        );
        Ok(void)
    }

    fn read_metrics(&mut self, path: &Path, void: &[(u64, u64)]) -> Result<(), RecordError> {
        let Self {
            metrics, notices, ..
        } = self;
        let is_void = |seq| void.iter().any(|&(from, to)| from < seq && seq < to);
        each_line(path, |line, text| match parse::<MetricsLine>(text) {
            Ok(found) if is_void(found.seq) => {}
            Ok(found) => metrics.push(found),
            Err(bad) => notices.push(bad.notice("metrics.jsonl", line)),
        })
    }
}

/// Reads the events of a run, and what had to be skipped.
///
/// # Errors
/// [`RecordError::NotARun`], [`RecordError::NewerSchema`] or [`RecordError::Io`].
pub fn read_events(folder: &Path) -> Result<(Vec<Recorded>, Vec<Notice>), RecordError> {
    let RunRecord {
        events, notices, ..
    } = RunRecord::read(&RunFolder::look(folder)?)?;
    Ok((events, notices))
}

/// Why a line was not taken.
pub(super) enum Bad {
    /// It ends in the middle.
    Torn,
    /// It is whole, but wrong.
    Wrong(String),
}

impl Bad {
    pub(super) fn notice(self, file: &'static str, line: u64) -> Notice {
        match self {
            Self::Torn => Notice::TornLine { file, line },
            Self::Wrong(why) => Notice::UnreadableLine { file, line, why },
        }
    }
}

pub(super) fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T, Bad> {
    serde_json::from_slice(text).map_err(|e| {
        if e.is_eof() {
            Bad::Torn
        } else {
            Bad::Wrong(e.to_string())
        }
    })
}

/// The kind of an event that is well-formed, but of no kind that we know.
pub(super) fn unknown_kind(text: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(text).ok()?;
    let kind = value.get("kind")?.as_str()?;
    (!Event::KINDS.contains(&kind)).then(|| kind.to_owned())
}

/// Calls `take` with the number and the text of every line that is not empty. A missing file has
/// no lines.
fn each_line(path: &Path, mut take: impl FnMut(u64, &[u8])) -> Result<(), RecordError> {
    let refused = |e| RecordError::io("read", path, e);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(refused(e)),
    };
    let mut reader = BufReader::new(file);
    let mut text = Vec::new();
    let mut line = 0;
    loop {
        text.clear();
        if reader.read_until(b'\n', &mut text).map_err(refused)? == 0 {
            return Ok(());
        }
        line += 1;
        let text = text.trim_ascii_end();
        if !text.is_empty() {
            take(line, text);
        }
    }
}

//! Writes a run folder: events, token blocks and metrics.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::append::{AppendFile, write_atomic};
use super::tensorboard::TensorBoard;
use super::tokens::HEADER;
use super::{Event, Metrics, MetricsLine, RecordError, RunFolder, SCHEMA, TokenBlock, TokenRef};

/// What a new run folder begins with.
#[derive(Clone, Copy, Debug)]
pub struct RunStart<'a> {
    /// Name in the experiment.
    pub name: &'a str,
    /// Seed of the run.
    pub seed: u64,
    /// The resolved experiment as RON: becomes `experiment.ron`.
    pub experiment: &'a str,
    /// The text of every token id: becomes `vocab.json`, so that pages can show tokens.
    pub vocabulary: &'a [String],
    /// Whether TensorBoard event files are written.
    pub tensorboard: bool,
}

/// Writes the record of a run. Nothing is on the disk before [`Self::flush`]; call it every tick,
/// and [`Self::sync`] before a checkpoint is committed and at the end.
///
/// After an error it can be kept: what was not written waits in memory, and a later flush goes on
/// exactly where the failed one stopped.
pub struct RecordWriter {
    events: AppendFile,
    tokens: AppendFile,
    metrics: AppendFile,
    tensorboard: Option<TensorBoard>,
    next_seq: u64,
}

impl RecordWriter {
    /// Begins the record of a new run: `experiment.ron`, `vocab.json`, empty files, and the event
    /// `run_started`.
    ///
    /// # Errors
    /// [`RecordError::Io`], or [`RecordError::DiskFull`].
    pub fn create(folder: &RunFolder, start: &RunStart<'_>) -> Result<Self, RecordError> {
        write_atomic(&folder.file("experiment.ron"), start.experiment.as_bytes())?;
        let vocabulary = serde_json::to_vec(start.vocabulary).map_err(layout("vocab.json"))?;
        write_atomic(&folder.file("vocab.json"), &vocabulary)?;
        let mut tokens = AppendFile::create(&folder.file("tokens.bin"))?;
        tokens.push(&HEADER)?;
        let tensorboard = start
            .tensorboard
            .then(|| TensorBoard::new(folder.path(), None));
        let mut writer = Self {
            metrics: AppendFile::create(&folder.file("metrics.jsonl"))?,
            events: AppendFile::create(&folder.file("events.jsonl"))?,
            tokens,
            tensorboard,
            next_seq: 0,
        };
        writer.append(&Event::RunStarted {
            schema: SCHEMA,
            name: start.name.into(),
            seed: start.seed,
            version: env!("CARGO_PKG_VERSION").into(),
            experiment: fingerprint(start.experiment),
        })?;
        writer.sync()?;
        Ok(writer)
    }

    /// Goes on with the record of a run from a checkpoint. `from_seq`, `step` and
    /// `cold_start_step` are what the checkpoint holds; the event `run_resumed` makes everything
    /// after `from_seq` void for readers. Nothing that was written is removed.
    ///
    /// # Errors
    /// [`RecordError::Io`], or [`RecordError::DiskFull`].
    pub fn reopen(
        folder: &RunFolder,
        from_seq: u64,
        step: u32,
        cold_start_step: u32,
        tensorboard: bool,
    ) -> Result<Self, RecordError> {
        let path = folder.file("events.jsonl");
        let next_seq = last_seq(&path)?.map_or(0, |seq| seq + 1);
        let mut tokens = AppendFile::reopen(&folder.file("tokens.bin"))?;
        if tokens.length() == 0 {
            tokens.push(&HEADER)?;
        }
        let tensorboard =
            tensorboard.then(|| TensorBoard::new(folder.path(), Some((cold_start_step, step))));
        let mut writer = Self {
            metrics: AppendFile::reopen_lines(&folder.file("metrics.jsonl"))?,
            events: AppendFile::reopen_lines(&path)?,
            tokens,
            tensorboard,
            next_seq,
        };
        writer.append(&Event::RunResumed {
            from_seq,
            step,
            cold_start_step,
        })?;
        writer.sync()?;
        Ok(writer)
    }

    /// The number that the next event will get. Right before a checkpoint is saved this is what the
    /// checkpoint must hold as `from_seq`: the number of its own `checkpoint_saved` event.
    #[must_use]
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Adds an event; gives its number.
    ///
    /// # Errors
    /// [`RecordError::Io`], or [`RecordError::DiskFull`], if the buffer had to be written.
    pub fn append(&mut self, event: &Event) -> Result<u64, RecordError> {
        #[derive(Serialize)]
        struct Line<'a> {
            seq: u64,
            #[serde(flatten)]
            event: &'a Event,
        }
        let seq = self.next_seq;
        let line = json_line("an event", &Line { seq, event })?;
        self.next_seq += 1;
        self.events.push(&line)?;
        Ok(seq)
    }

    /// Adds a token block; gives the reference that its `credit_assigned` event holds.
    ///
    /// # Errors
    /// [`RecordError::Layout`] if columns differ in length; [`RecordError::Io`] or
    /// [`RecordError::DiskFull`] if the buffer had to be written.
    pub fn append_tokens(&mut self, block: &TokenBlock) -> Result<TokenRef, RecordError> {
        let bytes = block.to_bytes()?;
        let at = TokenRef {
            offset: self.tokens.length(),
            bytes: bytes.len() as u32,
        };
        self.tokens.push(&bytes)?;
        Ok(at)
    }

    /// Adds the numbers of a step, to `metrics.jsonl` and to TensorBoard.
    ///
    /// # Errors
    /// [`RecordError::Io`], or [`RecordError::DiskFull`], if the buffer had to be written.
    pub fn append_metrics(&mut self, step: u32, metrics: &Metrics) -> Result<(), RecordError> {
        let line = MetricsLine {
            seq: self.next_seq.saturating_sub(1),
            step,
            metrics: metrics.clone(),
        };
        self.metrics.push(&json_line("metrics", &line)?)?;
        if let Some(tensorboard) = &mut self.tensorboard {
            tensorboard.add(step, metrics)?;
        }
        Ok(())
    }

    /// Hands everything to the system. Token blocks go first, so that a reader never meets a
    /// reference to a block that is not there.
    ///
    /// # Errors
    /// [`RecordError::Io`], or [`RecordError::DiskFull`].
    pub fn flush(&mut self) -> Result<(), RecordError> {
        self.tokens.flush()?;
        self.events.flush()?;
        self.metrics.flush()?;
        self.tensorboard.as_mut().map_or(Ok(()), TensorBoard::flush)
    }

    /// Flushes, and waits until everything is on the disk.
    ///
    /// # Errors
    /// [`RecordError::Io`], or [`RecordError::DiskFull`].
    pub fn sync(&mut self) -> Result<(), RecordError> {
        self.flush()?;
        self.tokens.sync()?;
        self.events.sync()?;
        self.metrics.sync()
    }
}

/// Says whether two experiments are the same text.
#[must_use]
pub fn fingerprint(experiment: &str) -> String {
    format!("{:08x}", crc32c::crc32c(experiment.as_bytes()))
}

fn json_line(what: &'static str, value: &impl Serialize) -> Result<Vec<u8>, RecordError> {
    let mut line = serde_json::to_vec(value).map_err(layout(what))?;
    line.push(b'\n');
    Ok(line)
}

fn layout(what: &'static str) -> impl FnOnce(serde_json::Error) -> RecordError {
    move |e| RecordError::Layout {
        what,
        why: e.to_string(),
    }
}

/// The number of the last readable event.
fn last_seq(events: &Path) -> Result<Option<u64>, RecordError> {
    #[derive(Deserialize)]
    struct Numbered {
        seq: u64,
    }
    let refused = |e| RecordError::io("read", events, e);
    let mut reader = BufReader::new(File::open(events).map_err(refused)?);
    let mut line = Vec::new();
    let mut last = None;
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(refused)? == 0 {
            return Ok(last);
        }
        if let Ok(Numbered { seq }) = serde_json::from_slice(&line) {
            last = last.max(Some(seq));
        }
    }
}

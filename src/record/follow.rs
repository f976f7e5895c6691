//! Follows a run folder while it is written: every call gives what is new since the last one.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use super::reader::{parse, unknown_kind};
use super::{Event, MetricsLine, Notice, RecordError, Recorded, RunFolder};

/// Most bytes of a file that one call takes in, so that a long record arrives in parts.
const CHUNK: u64 = 4 << 20;

/// What was new.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct News {
    /// Forget everything before: the file was replaced, or a resume made events void.
    pub restart: bool,
    /// Events, in order.
    pub events: Vec<Recorded>,
    /// Lines of `metrics.jsonl`, in order.
    pub metrics: Vec<MetricsLine>,
    /// What was skipped.
    pub notices: Vec<Notice>,
    /// More is there already: call again at once.
    pub more: bool,
}

/// Reads a run folder in steps. A torn last line waits for its end.
#[derive(Debug)]
pub struct Follower {
    folder: PathBuf,
    checked: bool,
    events: Tail,
    metrics: Tail,
    /// Ranges of events that a resume made void: after the first number and before the second.
    void: Vec<(u64, u64)>,
    /// The last event that was given out.
    last: Option<u64>,
}

impl Follower {
    /// A follower that has read nothing.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_path_buf(),
            checked: false,
            events: Tail::new(folder.join("events.jsonl")),
            metrics: Tail::new(folder.join("metrics.jsonl")),
            void: Vec::new(),
            last: None,
        }
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The name of a file whose last line has no end: it is being written, or it was torn.
    #[must_use]
    pub fn torn(&self) -> Option<&'static str> {
        if !self.events.partial.is_empty() {
            Some("events.jsonl")
        } else if !self.metrics.partial.is_empty() {
            Some("metrics.jsonl")
        } else {
            None
        }
    }

    /// What is new.
    ///
    /// # Errors
    /// [`RecordError::NotARun`] or [`RecordError::NewerSchema`] at the first call,
    /// [`RecordError::Io`] at any; a later call goes on where this one could not.
    pub fn poll(&mut self) -> Result<News, RecordError> {
        if !self.checked {
            RunFolder::look(&self.folder)?;
            self.checked = true;
        }
        let mut news = News::default();
        let lines = self.events.read()?;
        if lines.replaced {
            self.forget();
            news.restart = true;
        }
        news.more |= lines.more;
        for (number, text) in lines.whole {
            match parse::<Recorded>(&text) {
                Ok(recorded) => {
                    if self.resumed(&recorded) {
                        // What was given out is void: everything is read again without it.
                        self.rewind();
                        return Ok(News {
                            restart: true,
                            more: true,
                            ..News::default()
                        });
                    }
                    if !self.is_void(recorded.seq) {
                        self.last = Some(recorded.seq);
                        news.events.push(recorded);
                    }
                }
                Err(bad) => news.notices.push(match unknown_kind(&text) {
                    Some(kind) => Notice::UnknownKind { kind, count: 1 },
                    None => bad.notice("events.jsonl", number),
                }),
            }
        }
        let lines = self.metrics.read()?;
        news.more |= lines.more;
        for (number, text) in lines.whole {
            match parse::<MetricsLine>(&text) {
                Ok(line) if self.is_void(line.seq) => {}
                Ok(line) => news.metrics.push(line),
                Err(bad) => news.notices.push(bad.notice("metrics.jsonl", number)),
            }
        }
        Ok(news)
    }

    /// Whether this event makes void what has been given out already.
    fn resumed(&mut self, recorded: &Recorded) -> bool {
        let Event::RunResumed { from_seq, .. } = recorded.event else {
            return false;
        };
        let range = (from_seq, recorded.seq);
        if self.void.contains(&range) {
            return false;
        }
        self.void.push(range);
        self.last.is_some_and(|last| last > from_seq)
    }

    fn is_void(&self, seq: u64) -> bool {
        self.void.iter().any(|&(from, to)| from < seq && seq < to)
    }

    fn rewind(&mut self) {
        self.events.rewind();
        self.metrics.rewind();
        self.last = None;
    }

    fn forget(&mut self) {
        self.metrics.rewind();
        self.void.clear();
        self.last = None;
    }
}

/// A growing file of lines.
#[derive(Debug)]
struct Tail {
    path: PathBuf,
    offset: u64,
    line: u64,
    partial: Vec<u8>,
}

/// The lines that were new.
#[derive(Default)]
struct Lines {
    whole: Vec<(u64, Vec<u8>)>,
    replaced: bool,
    more: bool,
}

impl Tail {
    fn new(path: PathBuf) -> Self {
        Self {
            path,
            offset: 0,
            line: 0,
            partial: Vec::new(),
        }
    }

    fn rewind(&mut self) {
        self.offset = 0;
        self.line = 0;
        self.partial.clear();
    }

    /// Reads on. A missing file has no lines as long as it never had any.
    fn read(&mut self) -> Result<Lines, RecordError> {
        let mut lines = Lines::default();
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound && self.offset == 0 => return Ok(lines),
            Err(e) => return Err(RecordError::io("read", &self.path, e)),
        };
        let refused = |e| RecordError::io("read", &self.path, e);
        let length = file.metadata().map_err(refused)?.len();
        if length < self.offset {
            self.rewind();
            lines.replaced = true;
        }
        if length == self.offset {
            return Ok(lines);
        }
        let refused = |e| RecordError::io("read", &self.path, e);
        file.seek(SeekFrom::Start(self.offset)).map_err(refused)?;
        let mut bytes = Vec::new();
        file.take(CHUNK).read_to_end(&mut bytes).map_err(refused)?;
        self.offset += bytes.len() as u64;
        lines.more = self.offset < length;
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if piece.last() == Some(&b'\n') {
                self.line += 1;
                let whole = std::mem::take(&mut self.partial);
                let text = whole.trim_ascii();
                if !text.is_empty() {
                    lines.whole.push((self.line, text.to_vec()));
                }
            }
        }
        Ok(lines)
    }
}

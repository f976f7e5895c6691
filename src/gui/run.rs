//! An open run: what its record tells, folded, and what is read on demand.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use eframe::egui::Context;

use super::source::{Source, Told};
use super::timeline::Timeline;
use super::tokens::Document;
use crate::experiment::Experiment;
use crate::record::{
    Event, RecordError, Recorded, RunStatus, RunView, TokenBlock, TokenReader, TokenRef,
};
use crate::trajectory::{Purpose, TrajectoryId};

/// Parts taken in a frame: a frame stays short while a long record loads.
const PARTS: usize = 2;
/// Token documents that are kept.
const KEPT: usize = 24;
/// Notices that are kept: a damaged file can have one a line.
const NOTICES: usize = 200;

/// How the folder of a run stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Its record is being read for the first time.
    Loading,
    /// All that is there has been read.
    UpToDate,
    /// The record cannot be read any more; what was read stays.
    Lost(String),
    /// It was never read, and this says why.
    Refused(String),
}

/// An open run.
pub struct Run {
    /// Its folder.
    pub path: PathBuf,
    /// The fold of its record.
    pub view: RunView,
    /// When things happened.
    pub timeline: Timeline,
    /// The settings, if `experiment.ron` can be read.
    pub experiment: Option<Box<Experiment>>,
    /// Why they cannot.
    pub settings_error: String,
    /// The text of every token id.
    pub vocabulary: Arc<Vec<String>>,
    /// Why there is none: without it tokens have no text, and the notes among them cannot be found.
    pub vocabulary_error: String,
    /// How its folder stands.
    pub health: Health,
    /// What was skipped while reading: the first of it.
    pub notices: Vec<String>,
    /// How much more was skipped.
    pub more_notices: usize,
    /// Events that a resume made void, as the first and the last of each stretch.
    pub void: Vec<(u64, u64)>,
    /// What the user is to be told once.
    pub said: Vec<String>,
    /// A file whose last line has no end.
    pub torn: Option<&'static str>,
    /// Grows with everything that is new, so that others know when to work anew.
    pub revision: u64,
    /// Grows with every line of metrics.
    pub measured: u64,
    /// Grows when everything is read anew.
    pub epoch: u64,
    /// When the last news came.
    pub news_at: Option<Instant>,
    source: Option<Source>,
    reader: Option<TokenReader>,
    /// The token file of a record that ships inside the program.
    embedded: Option<&'static [u8]>,
    documents: Vec<(TrajectoryId, Vec<TokenRef>, Arc<Document>)>,
    /// Whether all that was there has been read once.
    read_once: bool,
}

impl Run {
    /// Begins to read a folder, in a thread of its own.
    #[must_use]
    pub fn open(path: &Path, context: &Context) -> Self {
        let mut run = Self::empty(path);
        run.source = Some(Source::open(path, context.clone()));
        run.read_settings();
        run
    }

    /// A record that ships inside the program: the four files of a run folder.
    ///
    /// # Errors
    /// What is wrong with it, as text; a test rules it out.
    pub fn embedded(
        name: &str,
        events: &str,
        tokens: &'static [u8],
        vocabulary: &str,
        experiment: &str,
    ) -> Result<Self, String> {
        let mut run = Self::empty(Path::new(name));
        for line in events.lines() {
            let recorded: Recorded = serde_json::from_str(line).map_err(|e| e.to_string())?;
            run.view.apply(&recorded);
            run.timeline.apply(&recorded);
        }
        let words = serde_json::from_str(vocabulary).map_err(|e| e.to_string())?;
        run.vocabulary = Arc::new(words);
        let read = Experiment::from_ron(name, experiment, &[]).map_err(|e| e.to_string())?;
        run.experiment = Some(Box::new(read.experiment));
        run.embedded = Some(tokens);
        run.health = Health::UpToDate;
        Ok(run)
    }

    /// A run of which nothing is known yet.
    pub(super) fn empty(path: &Path) -> Self {
        Self {
            path: path.to_path_buf(),
            view: RunView::default(),
            timeline: Timeline::default(),
            experiment: None,
            settings_error: String::new(),
            vocabulary: Arc::default(),
            vocabulary_error: String::new(),
            health: Health::Loading,
            notices: Vec::new(),
            more_notices: 0,
            void: Vec::new(),
            said: Vec::new(),
            torn: None,
            revision: 0,
            measured: 0,
            epoch: 0,
            news_at: None,
            source: None,
            reader: None,
            embedded: None,
            documents: Vec::new(),
            read_once: false,
        }
    }

    /// The name that is shown: that of its folder.
    #[must_use]
    pub fn name(&self) -> String {
        let folder = self.path.file_name().unwrap_or(self.path.as_os_str());
        folder.to_string_lossy().into_owned()
    }

    /// Experiment and vocabulary. Both appear with the run's first event, and do not change.
    fn read_settings(&mut self) {
        if self.vocabulary.is_empty() {
            let read = std::fs::read(self.path.join("vocab.json")).map_err(|e| e.to_string());
            let words = read.and_then(|text| {
                serde_json::from_slice::<Vec<String>>(&text).map_err(|e| e.to_string())
            });
            match words {
                Ok(words) => {
                    self.vocabulary = Arc::new(words);
                    self.vocabulary_error.clear();
                }
                Err(why) => {
                    self.vocabulary_error = format!(
                        "vocab.json cannot be read ({why}): tokens have no text, and notes cannot be found among them; copy the file from where the run was made"
                    );
                }
            }
        }
        if self.experiment.is_none() {
            match Experiment::load(&self.path.join("experiment.ron"), &[]) {
                Ok(read) => self.experiment = Some(Box::new(read.experiment)),
                Err(problems) => self.settings_error = problems.to_string(),
            }
        }
    }

    /// Takes in what the reading thread has sent. Says whether something was new.
    pub fn take_news(&mut self) -> bool {
        let Some(source) = &self.source else {
            return false;
        };
        let told: Vec<Told> = source.take(PARTS).collect();
        let any = !told.is_empty();
        for part in told {
            self.tell(part);
        }
        any
    }

    /// Waits until all that is there has been read, or it is clear that it never will.
    pub fn settle(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while self.health == Health::Loading {
            let left = until.saturating_duration_since(Instant::now());
            let Some(part) = self.source.as_ref().and_then(|source| source.wait(left)) else {
                return;
            };
            self.tell(part);
        }
    }

    fn tell(&mut self, told: Told) {
        self.revision += 1;
        match told {
            Told::News(news) => {
                if news.restart {
                    self.view = RunView::default();
                    self.timeline = Timeline::default();
                    self.notices.clear();
                    self.more_notices = 0;
                    self.void.clear();
                    self.documents.clear();
                    self.reader = None;
                    self.epoch += 1;
                    // Until all of it is there again, what was selected may only seem to be gone.
                    self.health = Health::Loading;
                }
                for recorded in &news.events {
                    self.view.apply(recorded);
                    self.timeline.apply(recorded);
                    self.resumed(recorded);
                }
                for line in &news.metrics {
                    self.view.apply_metrics(line.step, &line.metrics);
                    self.measured += 1;
                }
                let room = NOTICES.saturating_sub(self.notices.len());
                self.more_notices += news.notices.len().saturating_sub(room);
                self.notices
                    .extend(news.notices.iter().take(room).map(ToString::to_string));
                self.news_at = Some(Instant::now());
                self.read_settings();
            }
            Told::UpToDate(torn) => {
                self.torn = torn;
                self.health = Health::UpToDate;
                self.read_once = true;
                self.read_settings();
            }
            Told::Failed { why, .. } => {
                self.health = match self.read_once {
                    false => Health::Refused(why),
                    true => Health::Lost(why),
                };
            }
        }
    }

    /// Keeps what a resume made void, and has it told if somebody was watching.
    fn resumed(&mut self, recorded: &Recorded) {
        let Event::RunResumed { from_seq, step, .. } = recorded.event else {
            return;
        };
        if recorded.seq > from_seq + 1 {
            self.void.push((from_seq + 1, recorded.seq - 1));
        }
        if self.read_once {
            let count = recorded.seq.saturating_sub(from_seq + 1);
            self.said.push(format!(
                "The run goes on from step {step}: {count} events after its checkpoint became void, and are shown no more"
            ));
        }
    }

    /// One line on how the run stands.
    #[must_use]
    pub fn standing(&self) -> String {
        match &self.health {
            Health::Loading => "loading".into(),
            Health::Refused(_) => "not opened".into(),
            Health::Lost(_) => "folder lost".into(),
            Health::UpToDate => match self.view.status {
                RunStatus::Running => match self.news_at.map(|at| at.elapsed().as_secs_f64()) {
                    Some(seconds) if seconds < 2.0 => "live".into(),
                    Some(seconds) => format!("quiet for {seconds:.0} s"),
                    None => "no end written".into(),
                },
                status => status.as_str().into(),
            },
        }
    }

    /// The tokens of a trajectory, read from `tokens.bin` and laid in order.
    ///
    /// # Errors
    /// Why they cannot be shown, as text for the panel.
    pub fn document(&mut self, id: TrajectoryId) -> Result<Arc<Document>, String> {
        let Some(trajectory) = self.view.trajectories.get(&id) else {
            return Err("This trajectory is not in the record.".into());
        };
        let refs = trajectory.tokens.clone();
        if let Some((_, _, known)) = self.documents.iter().find(|(of, from, known)| {
            *of == id && *from == refs && Arc::ptr_eq(&known.vocabulary, &self.vocabulary)
        }) {
            return Ok(Arc::clone(known));
        }
        if refs.is_empty() {
            return Err(match id.purpose {
                Purpose::Evaluate => "Evaluations are not trained on, so the record keeps their text and no token columns. The Memory panel shows what was written.".into(),
                Purpose::Train => "The token columns of this trajectory appear once its update is done (and if record.trajectories keeps it).".into(),
            });
        }
        let blocks = self.blocks(&refs)?;
        let made = Arc::new(Document::new(id, &blocks, &self.vocabulary));
        self.documents.retain(|(of, _, _)| *of != id);
        if self.documents.len() >= KEPT {
            self.documents.remove(0);
        }
        self.documents.push((id, refs, Arc::clone(&made)));
        Ok(made)
    }

    /// Blocks of `tokens.bin`.
    ///
    /// # Errors
    /// Why they cannot be read, as text.
    pub fn blocks(&mut self, refs: &[TokenRef]) -> Result<Vec<TokenBlock>, String> {
        if let Some(bytes) = self.embedded {
            let read = refs.iter().map(|at| {
                let from = usize::try_from(at.offset).unwrap_or(usize::MAX);
                let block = bytes.get(from..from.saturating_add(at.bytes as usize));
                TokenBlock::from_bytes(block.unwrap_or_default())
            });
            return read.collect();
        }
        if self.reader.is_none() {
            self.reader = Some(TokenReader::open(&self.path).map_err(|e| e.to_string())?);
        }
        let Some(reader) = &mut self.reader else {
            return Ok(Vec::new());
        };
        let read: Result<Vec<TokenBlock>, RecordError> =
            refs.iter().map(|at| reader.read(*at)).collect();
        read.map_err(|e| e.to_string())
    }
}

//! Reads a run folder beside the window: a thread follows the folder and sends what is new. It asks
//! for a frame when there is something to show, and at most five times a second.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, bounded};
use eframe::egui::Context;

use crate::record::{Follower, News, RecordError};

/// How often a folder is looked at.
const EVERY: Duration = Duration::from_millis(200);
/// Parts that wait for the window: what is more stays in the file.
const WAITING: usize = 4;

/// What the reading thread tells.
#[derive(Debug)]
pub enum Told {
    /// New events and metrics.
    News(News),
    /// Everything that was there has been sent; the name of a file with a torn last line.
    UpToDate(Option<&'static str>),
    /// The folder cannot be read, now or for good.
    Failed {
        /// Why.
        why: String,
        /// Whether another try can help.
        passing: bool,
    },
}

/// A thread that follows one folder, until this is dropped.
pub struct Source {
    /// The folder.
    pub path: PathBuf,
    told: Receiver<Told>,
    stop: Arc<AtomicBool>,
}

impl Source {
    /// Begins to follow a folder.
    #[must_use]
    pub fn open(path: &Path, context: Context) -> Self {
        let (sender, told) = bounded(WAITING);
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, folder) = (Arc::clone(&stop), path.to_path_buf());
        // A thread that cannot be started shows as a run that never loads; there is no other state.
        std::thread::Builder::new()
            .name("follow".into())
            .spawn(move || follow(&folder, &sender, &stopped, &context))
            .ok();
        Self {
            path: path.to_path_buf(),
            told,
            stop,
        }
    }

    /// What has been told since the last call, as far as `room` parts go.
    pub fn take(&self, room: usize) -> impl Iterator<Item = Told> + '_ {
        self.told.try_iter().take(room)
    }

    /// Waits for the next part; none if none came in time.
    #[must_use]
    pub fn wait(&self, time: Duration) -> Option<Told> {
        self.told.recv_timeout(time).ok()
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn follow(folder: &Path, told: &Sender<Told>, stop: &AtomicBool, context: &Context) {
    let mut follower = Follower::new(folder);
    let mut quiet: Option<Option<&'static str>> = None;
    let mut failed: Option<String> = None;
    while !stop.load(Ordering::Relaxed) {
        let part = match follower.poll() {
            Ok(news) => {
                let recovered = failed.take().is_some();
                let empty = news
                    == News {
                        more: news.more,
                        ..News::default()
                    };
                let more = news.more;
                if !empty && told.send(Told::News(news)).is_err() {
                    return;
                }
                if more {
                    continue;
                }
                let state = Some(follower.torn());
                let changed = quiet != state || recovered || !empty;
                quiet = state;
                changed.then(|| Told::UpToDate(follower.torn()))
            }
            Err(error) => {
                let passing = !matches!(error, RecordError::NewerSchema { .. });
                let why = error.to_string();
                let changed = failed.as_ref() != Some(&why);
                failed = Some(why.clone());
                changed.then_some(Told::Failed { why, passing })
            }
        };
        if let Some(part) = part {
            if told.send(part).is_err() {
                return;
            }
            context.request_repaint();
        }
        std::thread::sleep(EVERY);
    }
}

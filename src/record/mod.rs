//! The record: everything a run leaves behind, in one folder.
//!
//! Reads the events, token columns and metrics that the other folders hand over; writes the run
//! folder and nothing else. Events and token blocks hold no times, process ids or paths, so two
//! runs of one seed give the same files. Times go to the metrics and to `summary.json`. Whoever
//! shows a run folds its events into a [`RunView`]; a live run and a finished one look the same.

mod append;
mod checkpoint;
mod error;
mod event;
mod folder;
mod follow;
mod metrics;
pub(crate) mod names;
mod palette;
mod progress;
mod reader;
pub(crate) mod report;
mod summary;
mod tensorboard;
mod tokens;
mod view;
mod writer;

pub use append::write_atomic;
pub use checkpoint::CheckpointDraft;
pub use error::RecordError;
pub use event::*;
pub use folder::RunFolder;
pub use follow::{Follower, News};
pub use metrics::{Metrics, MetricsLine};
pub use names::{METRICS, MetricName, metrics_page};
pub use palette::{Palette, Rgb, SignedScale};
pub use progress::{PlainLines, Progress};
pub use reader::{Notice, RunRecord, read_events};
pub use report::write_report;
pub use summary::Summary;
pub use tokens::{TokenBlock, TokenReader, TokenRef};
pub use view::*;
pub use writer::{RecordWriter, RunStart, fingerprint};

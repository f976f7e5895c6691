//! Evaluation: the same rollouts, greedy, on questions never trained on, summed up per context and
//! number of objectives.
//!
//! Reads evaluation trajectories and their `Outcome`s; writes a table (`table.rs`) and, where an
//! evaluation is all that is done, transcripts (`transcript.rs`) that replay without model, corpus and
//! network.

pub mod bootstrap;
pub mod figures;
pub mod mem1;
mod orders;
mod plugin;
mod shares;
mod table;
mod transcript;
mod write;

pub use figures::TrajectoryFigures;
pub use orders::{evaluation_orders, evaluation_plan};
pub use plugin::{Evaluated, Transcripts, plugin};
pub use table::{Evaluation, Measured, summarise};
pub use transcript::{Transcript, read_transcripts, replay_parts, write_transcripts};
pub use write::{csv, table_text};

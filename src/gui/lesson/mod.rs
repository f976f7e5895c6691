//! The Lesson panel: credit assignment in seven stations, on recorded rollouts.
//!
//! Every number comes from `credit`, through `whatif`: what moves here is what the learner would have
//! used. `record.rs` has the lessons that ship with the program; `bench.rs` the step on the table, which
//! is only read; `moved.rs` what was moved, for each station by itself; `station.rs` the seven stations
//! and what each is made of, one file for each; `panel.rs` the panel, `scene.rs` its tokens.
//!
//! Two rules: every sentence is made from the numbers it stands beside, and no number is shown before its
//! question is answered.

mod bench;
mod broadcast;
mod exhibits;
mod inherited;
mod moved;
mod museum;
mod notes;
mod panel;
mod push;
mod record;
mod scene;
mod source;
mod station;
mod stopping;
mod threshold;

pub use panel::LessonPanel;
pub use record::{LessonRecord, lesson_names};

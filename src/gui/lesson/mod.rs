//! The Lesson panel: credit assignment in six stations, on recorded rollouts.
//!
//! Every number comes from `credit`, through `whatif`: what moves here is what the learner would have
//! used. `record.rs` has the lessons that ship with the program, `bench.rs` the group on the table and
//! the settings it is under, `station.rs` the six stations and their questions, one file for what each
//! shows, `panel.rs` the panel.

mod bench;
mod broadcast;
mod inherited;
mod museum;
mod notes;
mod panel;
mod record;
mod station;
mod stopping;
mod threshold;

pub use panel::LessonPanel;
pub use record::{LessonRecord, lesson_names};

//! The Watch panel: the rollouts of a group as lanes, and the text of the selected one.
//!
//! `lane.rs` draws one rollout as bars, `text.rs` what it wrote and the futures that forks of it had;
//! `panel.rs` puts them together. Reads the record and, if this process trains, the live run.

mod lane;
mod panel;
mod text;

pub use panel::WatchPanel;

//! The Memory panel: the notes of a trajectory turn by turn, where each part came from, and what the
//! answer's probability did.
//!
//! `facts.rs` finds facts and parts of notes in what was read and written, `card.rs` draws a turn,
//! `panel.rs` puts them together. Reads the record; asks the engine of a live run what if.

mod card;
mod facts;
mod panel;

pub use panel::MemoryPanel;

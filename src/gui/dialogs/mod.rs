//! What opens over the panels: the palette and the keys (`palette.rs`), runs and lessons to open
//! (`open.rs`), and the fork (`fork.rs`). At most one is open, and the keys are its own while it is.

mod fork;
mod open;
mod palette;
mod shown;

pub use shown::Dialogs;

//! The window: watches runs live or recorded, and lets credit assignment be moved.
//!
//! Reads run folders (through `record`), credit functions and, if this process trains, the controls of
//! its run; writes pictures and tables where the user asks. Nothing here names libtorch. `world.rs`
//! holds what all panels share; one file or folder a panel; `app.rs` puts them together.

mod app;
mod bars;
mod chart;
mod command;
mod curves;
mod dialogs;
mod doing;
mod error;
mod export;
mod keys;
mod lesson;
mod live;
mod memory;
mod open;
mod rollouts;
mod run;
mod selection;
mod side;
mod source;
mod theme;
mod timeline;
mod tokens;
mod trouble;
mod watch;
mod whatif;
mod words;
mod world;

pub use app::{Panels, Window};
pub use command::Command;
pub use error::GuiError;
pub use lesson::{LessonRecord, lesson_names};
pub use live::Live;
pub use open::{Open, Picture, open};
pub use run::{Health, Run};
pub use selection::{Cursor, Selection};
pub use source::Source;
pub use tokens::{Document, Granularity, Layout, Value};
pub use whatif::{
    Member, MemberResult, Recomputed, Scope, StepInputs, inputs, recompute, recorded_settings,
    state_before,
};
pub use world::{Tab, World};

pub use eframe::egui::ThemePreference;

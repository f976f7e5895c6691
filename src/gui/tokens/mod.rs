//! The Tokens panel: the exact ids that the learner used, and what it gave each.
//!
//! `document.rs` lays the rows of `tokens.bin` in order and finds the blocks of the protocol in them;
//! `layout.rs` breaks them into lines of one height, once a width; `paint.rs` draws the visible lines
//! alone, `line.rs` with its pointer and keys; `laid.rs` keeps what is worked out once; `panel.rs` has the controls,
//! `minimap.rs` the strip at the side, `strip.rs` tokens inside other panels.

mod document;
mod laid;
mod layout;
mod legend;
mod line;
mod minimap;
mod paint;
mod panel;
mod strip;
mod value;

pub use document::{Document, row_of};
pub use layout::Layout;
pub use legend::legend;
pub use panel::TokensPanel;
pub use strip::Strip;
pub use value::{Granularity, Value, token_limit};

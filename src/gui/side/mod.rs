//! The panels left and right of the tabs.
//!
//! `left.rs` puts the steps, the histogram of rewards (`histogram.rs`), the groups and the list of troubles
//! (`troubles.rs`) together; `details.rs` has the numbers of what is selected.

mod details;
mod histogram;
mod left;
mod troubles;

pub use details::{right, token_line};
pub use left::Side;

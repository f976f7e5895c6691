//! The audit: whether what the learner is given is what was sampled and what credit declared, and
//! whether what it learned from is what it was given.
//!
//! It reads trajectories from both ends, the turns as they were sampled and the rows as they are
//! sent, and works out every token's weight a second way: from the span inside the turn, not from
//! the row's notes. A mistake on the way from advantages to tokens (advantages of another turn, a
//! retokenised turn, a token in two rows, credit on a tool's text) shows as a difference.
//!
//! `sent` is everything that can be known before an update, so that a faulty one never touches the
//! weights; `learned` is what only the learner's report tells.

mod fault;
mod learned;
mod sent;

pub use fault::{Breach, Fault};
pub use learned::{Learned, consumption, first_ratio, masked};
pub use sent::{Declared, Sent, dealt, rows};

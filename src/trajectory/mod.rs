//! The shared vocabulary: what a trajectory is made of, and the messages that say what happened to it.
//!
//! Holds components, messages and token arithmetic; no systems. Every other folder reads these
//! types, and none of them knows about engines, tools or files.

mod components;
mod endings;
mod messages;
mod question;
mod tokens;
mod unknown;

pub use components::*;
pub use endings::*;
pub use messages::*;
pub use question::*;
pub use tokens::*;

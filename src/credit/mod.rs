//! Credit: pure functions from rewards to the weight of every token.
//!
//! Reads scores, memory rewards and rows; writes advantages by source. No components, no engine: the
//! learner, the record, the report and the tests call the same functions.

pub mod assign;
pub mod audit;
pub mod baseline;
mod error;
pub mod group;
pub mod kl;
pub mod memory;
pub mod plugin;
pub mod signal;
pub mod spread;

pub use error::CreditError;

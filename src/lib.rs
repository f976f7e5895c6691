//! palimpsest trains long-horizon LLM agents to write good notes, and shows why each note was
//! rewarded.
//!
//! Data runs one way: experiment -> task -> rollout <-> engine, tools -> reward -> credit -> learner
//! -> record -> report. `ARCHITECTURE.md` has the picture.

pub mod engine;
pub mod experiment;
pub mod random;
pub mod task;
pub mod tokenizer;
#[cfg(feature = "torch")]
pub mod torch;
pub mod trajectory;

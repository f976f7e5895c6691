//! palimpsest trains long-horizon LLM agents to write good notes, and shows why each note was
//! rewarded.
//!
//! Data runs one way: experiment -> task -> rollout <-> engine, tools -> reward -> credit -> learner
//! -> record -> report. `ARCHITECTURE.md` has the picture.

pub mod credit;
pub mod doctor;
pub mod engine;
pub mod eval;
pub mod experiment;
#[cfg(feature = "gui")]
pub mod gui;
mod http;
pub mod hub;
pub mod learner;
pub mod random;
pub mod record;
pub mod retrieval;
pub mod reward;
pub mod rollout;
pub mod run;
pub mod schedule;
pub mod study;
pub mod task;
pub mod tokenizer;
pub mod tools;
#[cfg(feature = "torch")]
pub mod torch;
pub mod trajectory;

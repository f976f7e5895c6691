//! A finished step under other credit settings: every token weight worked out again from the record.
//!
//! `inputs.rs` takes out of the record what credit is made from; `recompute.rs` calls the functions of
//! `credit`, the ones the learner's weights came from; `settings.rs` is the form of settings, `results.rs`
//! what came of them; `panel.rs` puts the two together.

mod inputs;
mod panel;
mod recompute;
mod results;
mod settings;

pub use inputs::{Member, StepInputs, inputs, recorded_settings};
pub use panel::WhatIfPanel;
pub use recompute::{MemberResult, Recomputed, Scope, document_of, recompute, state_before};
pub use settings::threshold;

//! The lookup task: facts about countries and elements, one search each.
//!
//! ```text
//! <q> prefix of Botswana; currency of Canada</q>
//! <mem></mem><think> next</think><search> prefix of Botswana</search><tool> The prefix of Botswana is 267. The language of Benin is French.</tool>
//! <mem> prefix of Botswana = 267;</mem><think> next</think><search> currency of Canada</search><tool> ... </tool>
//! <mem> prefix of Botswana = 267; currency of Canada = CAD;</mem><think> done</think><answer> prefix of Botswana = 267; currency of Canada = CAD;</answer>
//! ```
//!
//! A search finds its fact and one distractor; the page of an entity (`page:Botswana`) has what the
//! question knows of it. Reads a file of facts and a tokenizer; writes questions, judgements and
//! cold start rows. Training draws the values anew for every question, evaluation asks entities
//! that were never trained on for their real facts.

mod cold_start;
mod draft;
mod drills;
mod facts;
pub(in crate::task) mod judge;
mod phrases;
mod question;
mod rows;
mod table;
mod task;

#[cfg(test)]
mod tests;

pub use question::PAGE_PREFIX;
pub use task::LookupTask;

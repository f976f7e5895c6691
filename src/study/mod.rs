//! Studies: arms x seeds of one base experiment, run as processes of this program, and a table of
//! what came out.
//!
//! Reads a study file and the summaries of its runs; writes run folders, `study.json`, `study.csv`,
//! `study.md` and `study.html`.

mod error;
mod report;
mod runner;
mod spec;
mod table;

pub use error::StudyError;
pub use report::write_results;
pub use runner::{Job, Plan, run_all};
pub use spec::{Arm, METRICS, Study};
pub use table::{Cell, Results, interval, student_t};

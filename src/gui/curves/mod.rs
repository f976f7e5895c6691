//! The Curves panel: the metrics of the open runs, grouped by the question that they answer.
//!
//! `charts.rs` lists the charts that are always there, `series.rs` makes their lines out of the metrics of
//! runs, `panel.rs` lays them out. Reads the record alone.

mod charts;
mod panel;
mod series;

pub use panel::CurvesPanel;

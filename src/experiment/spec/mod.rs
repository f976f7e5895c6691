//! The settings of an experiment file, each with its unit, its default, its rule and a sentence.

mod credit;
mod experiment;
mod measuring;
mod training;

pub use credit::*;
pub use experiment::*;
pub use measuring::*;
pub use training::*;

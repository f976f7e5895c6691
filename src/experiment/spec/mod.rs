//! The settings of an experiment file, each with its unit, its default, its rule and a sentence.

mod credit;
mod experiment;
mod generator;
mod learning;
mod loss;
mod measuring;
mod retrieval;
mod training;

pub use credit::*;
pub use experiment::*;
pub use generator::*;
pub use learning::*;
pub use loss::*;
pub use measuring::*;
pub use retrieval::*;
pub use training::*;

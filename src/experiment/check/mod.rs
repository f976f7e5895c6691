//! Rules that bind several settings. All of them are checked, and all findings reported at once.
//!
//! Reads a resolved experiment; adds findings to the log. A rule about a setting that could not be
//! read stays silent.

mod credit;
mod lengths;
mod setup;
mod training;

use super::finding::{Log, Severity};
use super::spec::Experiment;

/// Checks everything that no single setting can see.
pub(super) fn check(experiment: &Experiment, log: &mut Log) {
    let shape = experiment.policy.shape();
    setup::what_is_there(experiment, log);
    setup::generator(experiment, log);
    setup::questions(experiment, log);
    if let Some(shape) = &shape {
        setup::heads(shape, log);
    }
    lengths::limits(experiment, shape.as_ref(), log);
    training::cold_start(experiment, shape.as_ref(), log);
    training::learner(experiment, log);
    credit::credit(experiment, log);
    lengths::evaluation(experiment, shape.as_ref(), log);
}

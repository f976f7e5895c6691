//! Group estimators: from the scores of rollouts to advantages, as pure functions over slices.
//!
//! Reads scores, lengths, token rewards and masks; writes advantages. `outcome` needs one score a
//! rollout, `returns` a reward a token, `statistics` is what both count with, `verl` keeps the
//! peer's other behaviours, each under a name, for comparing. `docs/credit.md` has every formula
//! with source and weakness.

mod estimator;
mod outcome;
mod returns;
pub mod statistics;
pub mod verl;

pub use estimator::{GroupScores, OVER_SCORES, outcome_advantages};
pub use outcome::{
    dr_grpo, gpg, gpg_scale, grpo, grpo_passk, opo, reinforce_plus_plus_baseline, rloo,
};
pub use returns::{Estimates, TokenRow, gae, reinforce_plus_plus, remax};
pub use statistics::{EPSILON, mean_std};

//! Losses: pure functions of tensors. What a token costs (`policy`, `kl`, `value`, the entropy),
//! what its weight is where engine and learner disagree (`importance`), and how tokens become one
//! number (`aggregate`).
//!
//! Every function keeps masked places out of values and gradients; denominators are arguments.

mod aggregate;
mod importance;
mod kl;
mod policy;
mod value;

use tch::Tensor;

pub use aggregate::{Aggregation, Denominators, aggregate};
pub use importance::{Bounds, importance};
pub use kl::{KlKind, k3, kl};
pub use policy::{
    Clip, PolicyForm, PolicyTerms, Tokens, cispo, clip_cov, gmpo, gpg, gspo, kl_cov, ppo_clip,
};
pub use value::value_loss;

/// Entropy in nats of distributions given as log-probs [.., vocab]; gives [..].
pub fn entropy(log_softmax: &Tensor) -> Tensor {
    -(log_softmax.exp() * log_softmax).sum_dim_intlist(-1, false, log_softmax.kind())
}

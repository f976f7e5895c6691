//! The KL to the reference, estimated from one token. `credit::kl` has the same for plain numbers.

use tch::Tensor;

pub use crate::experiment::KlKind;

/// Differences of log-probs are kept within this, either side, before the exponential of k3.
const LOG_RATIO_BOUND: f64 = 20.0;
/// k3 is kept within this, either side.
const K3_BOUND: f64 = 10.0;

/// The estimate of `kind` for every token; tensors of one size. Only `logprobs` carries a gradient.
/// The formulas stand at the kinds ([`KlKind`]); the straight-through kinds have the value of their
/// namesake and the gradient of k2.
pub fn kl(kind: KlKind, logprobs: &Tensor, reference: &Tensor) -> Tensor {
    match kind {
        KlKind::K1 => logprobs - reference,
        KlKind::Abs => (logprobs - reference).abs(),
        KlKind::K2 => (logprobs - reference).square() * 0.5,
        KlKind::K3 => k3(logprobs, reference),
        KlKind::K1Straight => straight(KlKind::K1, logprobs, reference),
        KlKind::AbsStraight => straight(KlKind::Abs, logprobs, reference),
        KlKind::K3Straight => straight(KlKind::K3, logprobs, reference),
    }
}

fn straight(value: KlKind, logprobs: &Tensor, reference: &Tensor) -> Tensor {
    let slope = kl(KlKind::K2, logprobs, reference);
    let value = kl(value, logprobs, reference);
    &slope - slope.detach() + value.detach()
}

/// Schulman's k3 estimate of KL(policy || reference) per token: exp(d) - d - 1 with
/// d = reference - log-prob. Never negative.
pub fn k3(logprobs: &Tensor, reference: &Tensor) -> Tensor {
    let d = (reference - logprobs).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND);
    (d.exp() - &d - 1.0).clamp(-K3_BOUND, K3_BOUND)
}

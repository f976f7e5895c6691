//! The loss of a critic.

use tch::Tensor;

/// The clipped value loss (Schulman et al., 2017), per token: half the larger of (v - R)² and
/// (v' - R)², where v' is v kept within `clip` of the value `old` at sampling time. Gives the loss,
/// and 1 where the clipped term was chosen. All tensors have one size; `values` may carry a gradient.
pub fn value_loss(values: &Tensor, old: &Tensor, returns: &Tensor, clip: f64) -> (Tensor, Tensor) {
    let near = values.maximum(&(old - clip)).minimum(&(old + clip));
    let plain = (values - returns).square();
    let bounded = (near - returns).square();
    let clipped = bounded.gt_tensor(&plain).to_kind(values.kind());
    (plain.maximum(&bounded) * 0.5, clipped)
}

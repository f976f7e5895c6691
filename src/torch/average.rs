//! The moving average of the policy's weights: a slower policy that scores (`credit.scorer`).

use super::decoder::Decoder;
use crate::engine::EngineError;

/// The average and its decay, if an update has to move one.
///
/// # Errors
/// [`EngineError::BadRequest`] if there is none to move, or the decay is no share.
pub(super) fn ready(
    average: Option<&Decoder>,
    decay: Option<f32>,
) -> Result<Option<(&Decoder, f64)>, EngineError> {
    let Some(decay) = decay else {
        return Ok(None);
    };
    if !(0.0..=1.0).contains(&decay) {
        return Err(EngineError::BadRequest(format!(
            "average_decay is {decay}, but must lie from 0 (the policy) to 1 (never moves)"
        )));
    }
    let average = average.ok_or_else(|| {
        EngineError::BadRequest(format!(
            "average_decay is {decay}, but no average of the policy was begun"
        ))
    })?;
    Ok(Some((average, f64::from(decay))))
}

/// `average <- decay * average + (1 - decay) * policy`, tensor by tensor, in f32. Decay 0 gives the
/// policy's bits and decay 1 leaves the average's.
pub(super) fn follow(average: &Decoder, policy: &Decoder, decay: f64) {
    let _guard = tch::no_grad_guard();
    for (of, policy) in average.parameters().into_iter().zip(policy.parameters()) {
        let mut tensor = of.tensor;
        let moved = &tensor * decay + policy.tensor.detach() * (1.0 - decay);
        tensor.copy_(&moved);
    }
}

//! Choosing tokens: greedy, or by the inverse of the cumulative distribution at an addressed
//! uniform number, so that the make-up of a batch changes nothing.

use tch::{Kind, Tensor};

use super::batch::heat;

/// Samples one id for each row of `logits` [rows, vocab]; greedy where the temperature is 0.
/// `uniforms` are in [0, 1). Gives ids and their log-probs at the row's temperature (1 if greedy).
pub(super) fn sample(logits: &Tensor, temperatures: &[f32], uniforms: &[f64]) -> Vec<(i64, f32)> {
    let device = logits.device();
    let logprobs = if temperatures.iter().all(|&t| heat(t) == 1.0) {
        logits.log_softmax(-1, None::<Kind>)
    } else {
        let heats: Vec<f32> = temperatures.iter().map(|&t| heat(t)).collect();
        let heats = Tensor::from_slice(&heats).unsqueeze(1).to_device(device);
        (logits / heats).log_softmax(-1, None::<Kind>)
    };
    let greedy: Vec<bool> = temperatures.iter().map(|&t| t == 0.0).collect();
    let ids = if greedy.iter().all(|&g| g) {
        logprobs.argmax(-1, true)
    } else {
        let cumulative = logprobs.exp().cumsum(-1, Kind::Double);
        let total = cumulative
            .narrow(1, cumulative.size()[1] - 1, 1)
            .contiguous();
        let uniforms = Tensor::from_slice(uniforms).unsqueeze(1).to_device(device);
        // The first id whose cumulative probability is above u * total has itself a probability
        // above 0. If rounding lifts u * total to the total, it is the last such id.
        let at = first(&cumulative, &(&total * uniforms), true);
        let drawn = at.minimum(&first(&cumulative, &total, false));
        if greedy.contains(&true) {
            let greedy = Tensor::from_slice(&greedy).unsqueeze(1).to_device(device);
            logprobs.argmax(-1, true).where_self(&greedy, &drawn)
        } else {
            drawn
        }
    };
    // One transfer; an id is exact in f64.
    let chosen = logprobs.gather(1, &ids, false).to_kind(Kind::Double);
    let both = Tensor::cat(&[ids.to_kind(Kind::Double), chosen], 1).contiguous();
    let mut flat = vec![0f64; both.numel()];
    both.copy_data(&mut flat, both.numel());
    flat.chunks_exact(2)
        .map(|pair| (pair[0] as i64, pair[1] as f32))
        .collect()
}

/// Per row, the first index whose entry of `sorted` is at least `value` (or above it).
fn first(sorted: &Tensor, value: &Tensor, above: bool) -> Tensor {
    let side = if above { "right" } else { "left" };
    value.searchsorted(sorted, false, above, side, None::<&Tensor>)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logits(probabilities: &[f32]) -> Tensor {
        Tensor::from_slice(probabilities).log().unsqueeze(0)
    }

    #[test]
    fn the_uniform_number_picks_the_id_whose_share_it_falls_into() {
        let logits = logits(&[0.0, 0.25, 0.0, 0.5, 0.25, 0.0]);
        for (uniform, expected) in [
            (0.0, 1),
            (0.2499, 1),
            (0.2501, 3),
            (0.7499, 3),
            (0.7501, 4),
            (1.0 - f64::EPSILON / 2.0, 4),
            (1.0, 4), // what rounding could make of it
        ] {
            assert_eq!(
                sample(&logits, &[1.0], &[uniform])[0].0,
                expected,
                "{uniform}"
            );
        }
    }

    #[test]
    fn rows_have_their_own_temperature_and_greedy_takes_the_likeliest() {
        let rows = logits(&[0.2, 0.5, 0.3]).repeat([3, 1]);
        let chosen = sample(&rows, &[0.0, 1.0, 0.5], &[0.0, 0.0, 0.999]);
        assert_eq!(chosen.iter().map(|c| c.0).collect::<Vec<_>>(), [1, 0, 2]);
        assert!((chosen[0].1 - 0.5f32.ln()).abs() < 1e-6);
        assert!((chosen[1].1 - 0.2f32.ln()).abs() < 1e-6);
        let squares = 0.04 + 0.25 + 0.09;
        assert!((chosen[2].1 - (0.09f32 / squares).ln()).abs() < 1e-5);
    }

    #[test]
    fn shares_of_samples_match_the_distribution() {
        let logits = logits(&[0.1, 0.6, 0.3]).repeat([4000, 1]);
        let uniforms: Vec<f64> = (0..4000).map(|i| (f64::from(i) + 0.5) / 4000.0).collect();
        let chosen = sample(&logits, &[1.0; 4000], &uniforms);
        let share = |id| chosen.iter().filter(|c| c.0 == id).count();
        assert_eq!([share(0), share(1), share(2)], [400, 2400, 1200]);
    }
}

//! Mean, deviation, masked statistics and whitening.

use crate::credit::CreditError;

/// Added to every standard deviation, as verl does (it never passes another value).
pub const EPSILON: f64 = 1e-6;

/// What verl adds to the count of a masked mean, and to a variance before the root of whitening.
pub const MASKED_EPSILON: f64 = 1e-8;

/// Mean and unbiased standard deviation. A single value has mean 0 and deviation 1, so that its
/// advantage is the value itself: verl's `compute_grpo_outcome_advantage` (volcengine/verl
/// `verl/trainer/ppo/core_algos.py`), which MemPO forks. Equal values have deviation exactly 0 and
/// themselves as mean, so that rounding never makes a signal of a group without spread.
#[must_use]
pub fn mean_std(values: &[f64]) -> (f64, f64) {
    let [first, _, ..] = values else {
        return (0.0, 1.0);
    };
    if values.iter().all(|value| value == first) {
        return (*first, 0.0);
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0)).sqrt())
}

/// The values that the mask lets through; what stands elsewhere is never read, NaN included.
fn inside<'a>(values: &'a [f64], mask: &'a [bool]) -> impl Iterator<Item = f64> + 'a {
    values
        .iter()
        .zip(mask)
        .filter(|(_, on)| **on)
        .map(|(value, _)| *value)
}

/// Sum of the values inside the mask (verl `masked_sum`). `values` and `mask` have one length.
#[must_use]
pub fn masked_sum(values: &[f64], mask: &[bool]) -> f64 {
    inside(values, mask).sum()
}

/// `sum / (count + 1e-8)` over the values inside the mask; 0 if there are none (verl
/// `masked_mean`). The 1e-8 shrinks every mean a little; we keep it, so that numbers compare.
#[must_use]
pub fn masked_mean(values: &[f64], mask: &[bool]) -> f64 {
    let count = inside(values, mask).count() as f64;
    masked_sum(values, mask) / (count + MASKED_EPSILON)
}

/// Masked mean of `(x - mean)^2`, times `n / (n - 1)` if `unbiased` (verl `masked_var`).
///
/// # Errors
/// The unbiased variance of fewer than two values (verl raises `ValueError`).
pub fn masked_variance(values: &[f64], mask: &[bool], unbiased: bool) -> Result<f64, CreditError> {
    let count = inside(values, mask).count();
    let mean = masked_mean(values, mask);
    let squares: f64 = inside(values, mask)
        .map(|value| (value - mean).powi(2))
        .sum();
    let biased = squares / (count as f64 + MASKED_EPSILON);
    if !unbiased {
        return Ok(biased);
    }
    if count < 2 {
        return Err(CreditError::TooFewTokens { count });
    }
    Ok(biased * (count as f64 / (count as f64 - 1.0)))
}

/// `(x - mean) / sqrt(var + 1e-8)` with the statistics of the values inside the mask; without
/// `shift` the mean is added again (verl `masked_whiten`). Every value is mapped, those outside the
/// mask too: an estimator sets them to zero afterwards.
///
/// # Errors
/// Fewer than two values inside the mask.
pub fn whiten(values: &[f64], mask: &[bool], shift: bool) -> Result<Vec<f64>, CreditError> {
    let mean = masked_mean(values, mask);
    let scale = 1.0 / (masked_variance(values, mask, true)? + MASKED_EPSILON).sqrt();
    let back = if shift { 0.0 } else { mean };
    Ok(values
        .iter()
        .map(|value| (value - mean) * scale + back)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_no_deviation_at_all() {
        assert_eq!(mean_std(&[0.1, 0.1, 0.1]), (0.1, 0.0));
        assert_eq!(mean_std(&[0.7]), (0.0, 1.0));
        assert_eq!(mean_std(&[]), (0.0, 1.0));
        assert_eq!(mean_std(&[1.0, 3.0]), (2.0, 2.0f64.sqrt()));
    }

    #[test]
    fn what_stands_outside_the_mask_is_never_read() {
        let (values, mask) = ([1.0, f64::NAN, 3.0], [true, false, true]);
        assert_eq!(masked_sum(&values, &mask), 4.0);
        assert!((masked_mean(&values, &mask) - 2.0).abs() < 1e-7);
        assert!((masked_variance(&values, &mask, true).unwrap() - 2.0).abs() < 1e-7);
        assert_eq!(masked_mean(&values, &[false; 3]), 0.0);
    }

    #[test]
    fn a_variance_of_one_value_is_refused() {
        assert_eq!(
            whiten(&[1.0, 2.0], &[true, false], true),
            Err(CreditError::TooFewTokens { count: 1 })
        );
    }
}

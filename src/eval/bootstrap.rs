//! Intervals of means by bootstrap: questions are drawn again and again with replacement.

use rand::RngExt as _;

use crate::random::{Domain, stream};

/// The middle 95 % of the means of `draws` resamples; (0, 0) without a value. A question's samples
/// are averaged first and drawn together: they are not independent. The same (seed, address) draws the
/// same.
#[must_use]
pub fn interval(values: &[f64], draws: u32, seed: u64, address: (u32, u32)) -> (f64, f64) {
    if values.is_empty() {
        return (0.0, 0.0);
    }
    let mut rng = stream(seed, Domain::Bootstrap, address.0, address.1, 0);
    let mut means: Vec<f64> = (0..draws.max(1))
        .map(|_| {
            let sum: f64 = (0..values.len())
                .filter_map(|_| values.get(rng.random_range(0..values.len())))
                .sum();
            sum / values.len() as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let number = (share * (means.len() - 1) as f64).round() as usize;
        means.get(number).copied().unwrap_or(0.0)
    };
    (at(0.025), at(0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_holds_the_mean_is_as_wide_as_theory_says_and_repeats() {
        let values: Vec<f64> = (0..100).map(|n| f64::from(n % 2)).collect();
        let (low, high) = interval(&values, 2000, 1, (0, 0));
        // The standard error of a share of 1/2 in 100 is 0.05; 1.96 of them to each side.
        assert!(
            (low - 0.402).abs() < 0.015 && (high - 0.598).abs() < 0.015,
            "{low} {high}"
        );
        assert_eq!(interval(&values, 2000, 1, (0, 0)), (low, high));
        assert_ne!(interval(&values, 2000, 2, (0, 0)), (low, high));
        assert_eq!(interval(&[0.25; 5], 100, 1, (0, 0)), (0.25, 0.25));
        assert_eq!(interval(&[], 100, 1, (0, 0)), (0.0, 0.0));
    }
}

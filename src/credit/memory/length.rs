//! What notes cost (W7): `r_t - beta * |m_t| / B`, |m| in tokens without the tags, B a budget.
//!
//! `price(beta, budget)` keeps beta (0.05 holds, 0.4 collapses: Mem-alpha, Fine-Mem). `budget(B)`
//! moves it: after every step `beta <- max(0, beta + 0.05 * (mean |m| / B - 1))`, a multiplier that
//! rises while the mean length is over B.

use crate::experiment::Length;

/// How fast the multiplier of `budget` moves.
pub const BUDGET_RATE: f64 = 0.05;

/// A reward less the price of the notes. `multiplier` is the beta of `budget`.
#[must_use]
pub fn priced(reward: f64, tokens: u32, length: Length, multiplier: f64) -> f64 {
    match length {
        Length::Off => reward,
        Length::Price(of) => reward - f64::from(of.beta) * f64::from(tokens) / f64::from(of.budget),
        Length::Budget(budget) => reward - multiplier * f64::from(tokens) / f64::from(budget),
    }
}

/// The multiplier after a step whose notes were this long. Without notes it stays.
#[must_use]
pub fn next_multiplier(multiplier: f64, lengths: &[u32], budget: f64) -> f64 {
    if lengths.is_empty() {
        return multiplier;
    }
    let mean = lengths.iter().map(|&length| f64::from(length)).sum::<f64>() / lengths.len() as f64;
    (multiplier + BUDGET_RATE * (mean / budget - 1.0)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::PriceSettings;

    #[test]
    fn a_price_is_paid_by_the_token() {
        let price = Length::Price(PriceSettings {
            beta: 0.5,
            budget: 8.0,
        });
        assert_eq!(priced(1.0, 4, price, 9.0), 0.75);
        assert_eq!(priced(1.0, 4, Length::Budget(8.0), 0.25), 0.875);
        assert_eq!(priced(1.0, 4, Length::Off, 0.25), 1.0);
    }

    #[test]
    fn the_multiplier_rises_over_the_budget_and_falls_under_it() {
        let over = next_multiplier(0.1, &[10, 30], 10.0);
        assert!((over - 0.15).abs() < 1e-12, "{over}");
        let under = next_multiplier(0.1, &[5], 10.0);
        assert!((under - 0.075).abs() < 1e-12, "{under}");
        assert_eq!(next_multiplier(0.01, &[0], 10.0), 0.0);
        assert_eq!(next_multiplier(0.1, &[], 10.0), 0.1);
    }
}

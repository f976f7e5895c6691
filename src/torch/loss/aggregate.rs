//! How the losses of tokens become one number.

use tch::Tensor;

pub use crate::experiment::Aggregation;

/// What sums over tokens are divided by. Counted over the whole mini-batch before it is split, so
/// that the parts of a split add up to the whole, whatever their size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Denominators {
    /// Trained tokens of the mini-batch: for `token_mean`.
    pub tokens: f64,
    /// Rows of the mini-batch with a trained token: for both `seq_mean` modes.
    pub rows: f64,
    /// Added to each row's number of tokens in `seq_mean_token_mean`: 0 here; verl adds 1e-8.
    pub slack: f64,
}

impl Denominators {
    /// Of a mini-batch whose rows have so many trained tokens. Rows without one count nothing.
    #[must_use]
    pub fn of(trained: &[usize]) -> Self {
        Self {
            tokens: trained.iter().sum::<usize>() as f64,
            rows: trained.iter().filter(|&&n| n > 0).count() as f64,
            slack: 0.0,
        }
    }

    /// What one trained token weighs in the loss, if its row has `length` trained tokens. 0 where a
    /// denominator is 0: what is empty teaches nothing.
    #[must_use]
    pub fn share(&self, mode: Aggregation, length: f64) -> f64 {
        let denominator = match mode {
            Aggregation::TokenMean => self.tokens,
            Aggregation::SeqMeanTokenSum => self.rows,
            Aggregation::SeqMeanTokenMean => self.rows * (length + self.slack),
            Aggregation::SeqMeanTokenSumNorm(tokens) => f64::from(tokens),
        };
        if denominator > 0.0 && length > 0.0 {
            1.0 / denominator
        } else {
            0.0
        }
    }
}

/// Adds up `values` [rows, time] where `mask` (same size) is not 0, every token with its
/// [`Denominators::share`]. What stands at masked places has no value and no gradient, even if it is
/// not finite.
///
/// A peer's version may give NaN for a row, or a batch, without a trained token; here it gives 0.
pub fn aggregate(
    values: &Tensor,
    mask: &Tensor,
    mode: Aggregation,
    denominators: &Denominators,
) -> Tensor {
    let kind = values.kind();
    let trained = mask.ne(0.0);
    let masked = values.where_self(&trained, &values.zeros_like());
    let rows = masked.sum_dim_intlist(-1, false, kind);
    let counts = trained.to_kind(kind).sum_dim_intlist(-1, false, kind);
    let mut lengths = vec![0f64; counts.numel()];
    counts
        .to_kind(tch::Kind::Double)
        .to_device(tch::Device::Cpu)
        .view(-1)
        .copy_data(&mut lengths, counts.numel());
    let shares: Vec<f64> = lengths
        .iter()
        .map(|&length| denominators.share(mode, length))
        .collect();
    let shares = Tensor::from_slice(&shares)
        .to_kind(kind)
        .to_device(values.device());
    (rows.view(-1) * shares).sum(kind)
}

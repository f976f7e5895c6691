//! Rotary positions: the frequencies of every scaling that config.json may ask for, and the tables of
//! their cosines and sines.
//!
//! Frequencies are computed in f32 in the order of operations of transformers'
//! `modeling_rope_utils.py`, as their last bit grows into an angle at position 100,000.

use std::f64::consts::TAU;

use tch::{Device, Kind, Tensor};

/// How frequencies are stretched beyond theta^(-2i / head_dim).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rope {
    /// Not at all. `dynamic` is the same up to `max_position_embeddings`, where contexts end here.
    Plain,
    /// All divided by the factor (position interpolation).
    Linear { factor: f64 },
    /// Llama 3.1: long waves are divided by the factor, short ones kept, with a ramp between.
    Llama3 {
        factor: f64,
        low_freq_factor: f64,
        high_freq_factor: f64,
        original: f64,
    },
    /// YaRN (Peng et al. 2023): a ramp between kept and divided frequencies over the dimensions.
    Yarn(Yarn),
}

/// What YaRN needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Yarn {
    pub factor: f64,
    /// Context length of the pretraining.
    pub original: f64,
    pub beta_fast: f64,
    pub beta_slow: f64,
    /// Whether the ends of the ramp are whole dimensions.
    pub truncate: bool,
    /// cos and sin are multiplied by this, so scores by its square.
    pub attention_factor: f64,
}

impl Rope {
    /// Radians per position of each pair of dimensions, [head_dim / 2].
    pub fn frequencies(&self, theta: f64, head_dim: i64) -> Vec<f32> {
        let powers: Vec<f32> = (0..head_dim / 2)
            .map(|i| (theta as f32).powf((2 * i) as f32 / head_dim as f32))
            .collect();
        let plain = powers.iter().map(|power| 1.0 / power);
        match *self {
            Self::Plain => plain.collect(),
            Self::Linear { factor } => plain.map(|f| f / factor as f32).collect(),
            Self::Llama3 {
                factor,
                low_freq_factor: low,
                high_freq_factor: high,
                original,
            } => plain
                .map(|frequency| {
                    let wave = TAU as f32 / frequency;
                    if wave > (original / low) as f32 {
                        return frequency / factor as f32;
                    }
                    if wave < (original / high) as f32 {
                        return frequency;
                    }
                    let kept = (original as f32 / wave - low as f32) / (high - low) as f32;
                    (1.0 - kept) * frequency / factor as f32 + kept * frequency
                })
                .collect(),
            Self::Yarn(yarn) => {
                let (low, high) = yarn.ramp(theta, head_dim);
                (0u16..)
                    .zip(&powers)
                    .map(|(i, power)| {
                        let place = (f32::from(i) - low as f32) / (high - low) as f32;
                        let kept = 1.0 - place.clamp(0.0, 1.0);
                        1.0 / (yarn.factor as f32 * power) * (1.0 - kept) + 1.0 / power * kept
                    })
                    .collect()
            }
        }
    }

    /// cos and sin of every position below `positions`, [positions, head_dim / 2].
    pub fn tables(
        &self,
        theta: f64,
        head_dim: i64,
        positions: i64,
        device: Device,
    ) -> (Tensor, Tensor) {
        let frequencies = Tensor::from_slice(&self.frequencies(theta, head_dim));
        let at = Tensor::arange(positions, (Kind::Float, Device::Cpu)).unsqueeze(1);
        let angles = at * frequencies.unsqueeze(0);
        let finish = |table: Tensor| match self {
            Self::Yarn(yarn) => (table * yarn.attention_factor).to_device(device),
            _ => table.to_device(device),
        };
        (finish(angles.cos()), finish(angles.sin()))
    }
}

impl Yarn {
    /// The factor on cos and sin when the config names none: the paper's 0.1 ln(s) + 1, or the
    /// quotient of two such terms.
    pub fn attention_factor(factor: f64, mscale: Option<(f64, f64)>) -> f64 {
        let term = |weight: f64| {
            if factor <= 1.0 {
                1.0
            } else {
                0.1 * weight * factor.ln() + 1.0
            }
        };
        match mscale {
            Some((above, below)) => term(above) / term(below),
            None => term(1.0),
        }
    }

    /// First and last dimension of the ramp.
    fn ramp(&self, theta: f64, head_dim: i64) -> (f64, f64) {
        let dim = head_dim as f64;
        // The dimension that turns this often over the original context.
        let turning = |times: f64| dim * (self.original / (times * TAU)).ln() / (2.0 * theta.ln());
        let (mut low, mut high) = (turning(self.beta_fast), turning(self.beta_slow));
        if self.truncate {
            (low, high) = (low.floor(), high.ceil());
        }
        let (low, high) = (low.max(0.0), high.min(dim - 1.0));
        // Equal ends would divide by nothing.
        (low, if low == high { high + 0.001 } else { high })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LLAMA3: Rope = Rope::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original: 64.0,
    };

    #[test]
    fn plain_frequencies_fall_from_one_by_the_base() {
        let frequencies = Rope::Plain.frequencies(10_000.0, 8);
        for (found, expected) in frequencies.iter().zip([1.0, 0.1, 0.01, 0.001]) {
            assert!((found / expected - 1.0f32).abs() < 1e-6, "{frequencies:?}");
        }
    }

    #[test]
    fn llama3_keeps_short_waves_divides_long_ones_and_blends_between() {
        let (plain, scaled) = (
            Rope::Plain.frequencies(10_000.0, 16),
            LLAMA3.frequencies(10_000.0, 16),
        );
        let ratios: Vec<f32> = plain.iter().zip(&scaled).map(|(p, s)| p / s).collect();
        assert_eq!(ratios[0], 1.0);
        assert_eq!(ratios[7], 8.0);
        assert!(
            ratios.windows(2).all(|pair| pair[0] <= pair[1] + 1e-5),
            "{ratios:?}"
        );
        assert!(ratios.iter().any(|&r| r > 1.01 && r < 7.9), "{ratios:?}");
    }

    #[test]
    fn yarn_keeps_fast_dimensions_divides_slow_ones_and_raises_the_scores() {
        let attention_factor = Yarn::attention_factor(4.0, None);
        assert!((attention_factor - (0.1 * 4f64.ln() + 1.0)).abs() < 1e-12);
        assert_eq!(Yarn::attention_factor(0.5, None), 1.0);
        assert_eq!(Yarn::attention_factor(4.0, Some((1.0, 1.0))), 1.0);
        let yarn = Rope::Yarn(Yarn {
            factor: 4.0,
            original: 4096.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            truncate: true,
            attention_factor,
        });
        let (plain, scaled) = (
            Rope::Plain.frequencies(10_000.0, 64),
            yarn.frequencies(10_000.0, 64),
        );
        assert_eq!(plain[0], scaled[0]);
        assert!((plain[31] / scaled[31] - 4.0).abs() < 1e-5);
        let (cos, _) = yarn.tables(10_000.0, 64, 2, Device::Cpu);
        assert!((cos.double_value(&[0, 0]) - attention_factor).abs() < 1e-6);
    }
}

//! The KL to a reference in plain numbers: its estimates per token, the penalty on rewards, and the
//! controller of its weight. `torch::loss` has the same estimates with gradients.

use crate::experiment::KlKind;

/// The estimate of one token from its log-probs under policy and reference. Straight-through kinds
/// differ in gradients only, so here they equal their namesakes.
#[must_use]
pub fn kl_estimate(kind: KlKind, logprob: f64, reference: f64) -> f64 {
    let d = logprob - reference;
    match kind {
        KlKind::K1 | KlKind::K1Straight => d,
        KlKind::Abs | KlKind::AbsStraight => d.abs(),
        KlKind::K2 => 0.5 * d * d,
        KlKind::K3 | KlKind::K3Straight => {
            let d = (-d).clamp(-20.0, 20.0);
            (d.exp() - d - 1.0).clamp(-10.0, 10.0)
        }
    }
}

/// One trajectory's tokens for the penalty; lists of one length.
#[derive(Clone, Copy, Debug)]
pub struct KlTokens<'a> {
    /// Rewards at tokens before the penalty.
    pub rewards: &'a [f64],
    /// Log-probs under the policy that sampled.
    pub logprobs: &'a [f64],
    /// Log-probs under the reference.
    pub reference: &'a [f64],
    /// True where sampled; other tokens cost nothing and keep their reward.
    pub mask: &'a [bool],
}

/// Rewards of one trajectory's tokens less `weight` times their KL, and the mean KL of its sampled
/// tokens (0 if there are none).
#[must_use]
pub fn penalise(kind: KlKind, weight: f64, tokens: KlTokens<'_>) -> (Vec<f64>, f64) {
    let (mut sum, mut count) = (0.0, 0usize);
    let pairs = tokens.logprobs.iter().zip(tokens.reference);
    let rewards = tokens
        .rewards
        .iter()
        .zip(tokens.mask)
        .zip(pairs)
        .map(|((&reward, &on), (&logprob, &reference))| {
            if !on {
                return reward;
            }
            let kl = kl_estimate(kind, logprob, reference);
            sum += kl;
            count += 1;
            reward - weight * kl
        })
        .collect();
    (rewards, if count > 0 { sum / count as f64 } else { 0.0 })
}

/// Decides the weight of the KL.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KlController {
    /// The weight stays.
    Fixed {
        /// The weight.
        weight: f64,
    },
    /// The weight follows a target (Ziegler et al., 2019).
    Adaptive {
        /// The weight now.
        weight: f64,
        /// The KL to keep.
        target: f64,
        /// Trajectories after which an error counts fully.
        horizon: f64,
    },
}

impl KlController {
    /// The weight to use now.
    #[must_use]
    pub fn weight(&self) -> f64 {
        match *self {
            Self::Fixed { weight } | Self::Adaptive { weight, .. } => weight,
        }
    }

    /// Takes in the mean KL of `trajectories` trajectories, after the weight was used:
    /// weight *= 1 + clip(KL / target - 1, -0.2, 0.2) * trajectories / horizon.
    pub fn update(&mut self, kl: f64, trajectories: u64) {
        if let Self::Adaptive {
            weight,
            target,
            horizon,
        } = self
        {
            let error = (kl / *target - 1.0).clamp(-0.2, 0.2);
            *weight *= 1.0 + error * trajectories as f64 / *horizon;
        }
    }
}

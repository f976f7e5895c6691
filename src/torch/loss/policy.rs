//! Policy losses per token. Only `loss` of the terms carries a gradient.

use rand::seq::SliceRandom as _;
use tch::Tensor;

use super::aggregate::Aggregation;
use crate::experiment::PolicyLoss;
use crate::random::{Domain, stream};

/// Log ratios are kept within this, either side, before the exponential.
const LOG_RATIO_BOUND: f64 = 20.0;
/// GSPO's log ratio of a row is kept below this.
const ROW_RATIO_BOUND: f64 = 10.0;

/// Bounds of the ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clip {
    /// The ratio may fall to 1 - low.
    pub low: f64,
    /// The ratio may rise to 1 + high.
    pub high: f64,
    /// Dual clip c > 1: with a negative advantage the loss is at most c |advantage|. None if not
    /// finite.
    pub dual: f64,
}

/// A policy loss with its numbers in double precision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PolicyForm {
    /// [`ppo_clip`].
    Ppo(Clip),
    /// [`gspo`].
    Gspo(Clip),
    /// [`cispo`].
    Cispo(Clip),
    /// [`gmpo`].
    Gmpo(Clip),
    /// [`gpg`].
    Gpg,
    /// [`clip_cov`].
    ClipCov {
        /// Bounds of the ratio.
        clip: Clip,
        /// Most tokens left out, as a share of the trained ones.
        share: f64,
        /// Tokens left out have a covariance above this.
        lower: f64,
        /// And below this.
        upper: f64,
    },
    /// [`kl_cov`].
    KlCov {
        /// Tokens held back, as a share of the trained ones.
        share: f64,
        /// Weight of |log ratio| there.
        weight: f64,
    },
}

impl PolicyForm {
    /// That of the experiment.
    #[must_use]
    pub fn of(loss: PolicyLoss, clip: Clip) -> Self {
        match loss {
            PolicyLoss::Ppo => Self::Ppo(clip),
            PolicyLoss::Gspo => Self::Gspo(clip),
            PolicyLoss::Cispo => Self::Cispo(clip),
            PolicyLoss::Gmpo => Self::Gmpo(clip),
            PolicyLoss::Gpg => Self::Gpg,
            PolicyLoss::ClipCov(tokens) => Self::ClipCov {
                clip,
                share: f64::from(tokens.share),
                lower: f64::from(tokens.lower),
                upper: f64::from(tokens.upper),
            },
            PolicyLoss::KlCov(tokens) => Self::KlCov {
                share: f64::from(tokens.share),
                weight: f64::from(tokens.weight),
            },
        }
    }

    /// Whether a token's loss needs its whole row, laid out as [rows, time].
    #[must_use]
    pub fn needs_rows(&self) -> bool {
        matches!(self, Self::Gspo(_) | Self::Gmpo(_))
    }

    /// Whether tokens have to be chosen over the whole mini-batch first ([`PolicyForm::choose`]).
    #[must_use]
    pub fn needs_choice(&self) -> bool {
        matches!(self, Self::ClipCov { .. } | Self::KlCov { .. })
    }

    /// How this loss is aggregated if `asked` is asked for: losses of rows are always means of rows.
    #[must_use]
    pub fn aggregation(&self, asked: Aggregation) -> Aggregation {
        if self.needs_rows() {
            Aggregation::SeqMeanTokenMean
        } else {
            asked
        }
    }

    /// The tokens of a whole mini-batch that Clip-Cov leaves out or KL-Cov holds back; false
    /// everywhere for other losses. The lists hold the trained tokens of the mini-batch, row after
    /// row. The covariance of a token is (A - mean A)(log p - mean log p). Clip-Cov draws at random
    /// among those within its bounds that are not clipped anyway; `address` is (seed, step, number of
    /// the mini-batch). KL-Cov takes the highest, the first of equal ones.
    #[must_use]
    pub fn choose(
        &self,
        logprobs: &[f64],
        old: &[f64],
        advantages: &[f64],
        address: (u64, u32, u32),
    ) -> Vec<bool> {
        let count = logprobs.len();
        let mut chosen = vec![false; count];
        let number = |share: f64| ((share * count as f64) as usize).max(1);
        let mean = |list: &[f64]| list.iter().sum::<f64>() / count.max(1) as f64;
        let (mean_advantage, mean_logprob) = (mean(advantages), mean(logprobs));
        let covariance: Vec<f64> = advantages
            .iter()
            .zip(logprobs)
            .map(|(a, lp)| (a - mean_advantage) * (lp - mean_logprob))
            .collect();
        let picked: Vec<usize> = match *self {
            Self::ClipCov {
                clip,
                share,
                lower,
                upper,
            } => {
                let is_clipped = |at: usize| {
                    let ratio = log_bound(logprobs[at] - old[at]).exp();
                    let bounded = ratio.clamp(1.0 - clip.low, 1.0 + clip.high);
                    -advantages[at] * bounded > -advantages[at] * ratio
                };
                let mut candidates: Vec<usize> = (0..count)
                    .filter(|&at| covariance[at] > lower && covariance[at] < upper)
                    .filter(|&at| !is_clipped(at))
                    .collect();
                let (seed, step, batch) = address;
                candidates.shuffle(&mut stream(seed, Domain::TokenChoice, step, batch, 0));
                candidates.truncate(number(share));
                candidates
            }
            Self::KlCov { share, .. } => {
                let mut order: Vec<usize> = (0..count).collect();
                order.sort_by(|&a, &b| covariance[b].total_cmp(&covariance[a]));
                order.truncate(number(share));
                order
            }
            _ => Vec::new(),
        };
        for at in picked {
            chosen[at] = true;
        }
        chosen
    }

    /// The loss of every token. `tokens.chosen` comes from [`PolicyForm::choose`]; it may be left
    /// out where [`PolicyForm::needs_choice`] is false.
    #[must_use]
    pub fn terms(&self, tokens: &Tokens<'_>) -> PolicyTerms {
        let (new, old, advantages) = (tokens.logprobs, tokens.old, tokens.advantages);
        let none = || new.detach().zeros_like();
        let chosen = || tokens.chosen.map_or_else(none, Tensor::shallow_clone);
        match *self {
            Self::Ppo(clip) => ppo_clip(new, old, advantages, clip),
            Self::Gspo(clip) => gspo(tokens, clip),
            Self::Cispo(clip) => cispo(new, old, advantages, clip),
            Self::Gmpo(clip) => gmpo(tokens, clip),
            Self::Gpg => gpg(new, old, advantages),
            Self::ClipCov { clip, .. } => clip_cov(new, old, advantages, clip, &chosen()),
            Self::KlCov { weight, .. } => kl_cov(new, old, advantages, weight, &chosen()),
        }
    }
}

fn log_bound(ratio: f64) -> f64 {
    ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
}

/// What a policy loss reads; tensors of one size, [rows, time] if a row's loss is asked for.
#[derive(Debug)]
pub struct Tokens<'a> {
    /// Log-probs under the weights that learn; may carry a gradient.
    pub logprobs: &'a Tensor,
    /// Log-probs at the start of the update.
    pub old: &'a Tensor,
    /// Advantages.
    pub advantages: &'a Tensor,
    /// 1 where trained.
    pub mask: &'a Tensor,
    /// 1 where chosen by [`PolicyForm::choose`].
    pub chosen: Option<&'a Tensor>,
}

/// What a policy loss gives for every token; all tensors have the size of the log-probs.
#[derive(Debug)]
pub struct PolicyTerms {
    /// The loss; the only one with a gradient.
    pub loss: Tensor,
    /// 1 where the clipped term was chosen, else 0.
    pub clipped: Tensor,
    /// 1 where dual clip was chosen (GMPO: where a bad token's ratio was clipped), else 0.
    pub clipped_lower: Tensor,
    /// Old - new log-prob (PPO, CISPO: clamped; KL-Cov: its absolute value; GPG: 0).
    pub kl: Tensor,
    /// New probability / old probability.
    pub ratio: Tensor,
}

/// PPO-clip (Schulman et al., 2017) with separate bounds and dual clip (Ye et al., 2020), per token:
/// max(-A r, -A clip(r, 1 - low, 1 + high)) with r = exp(new - old); for A < 0 at most -A dual.
/// `logprobs` may carry a gradient; `old` and `advantages` have its size.
#[must_use]
pub fn ppo_clip(logprobs: &Tensor, old: &Tensor, advantages: &Tensor, clip: Clip) -> PolicyTerms {
    let log_ratio = (logprobs - old).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND);
    let ratio = log_ratio.exp();
    let plain = -advantages * &ratio;
    let bounded = -advantages * ratio.clamp(1.0 - clip.low, 1.0 + clip.high);
    let kind = logprobs.kind();
    let mut loss = plain.maximum(&bounded);
    let clipped = bounded.gt_tensor(&plain).to_kind(kind);
    let clipped_lower;
    if clip.dual.is_finite() {
        let ceiling = -advantages * clip.dual;
        let negative = advantages.lt(0.0);
        clipped_lower = loss
            .gt_tensor(&ceiling)
            .logical_and(&negative)
            .to_kind(kind);
        loss = loss.minimum(&ceiling).where_self(&negative, &loss);
    } else {
        clipped_lower = clipped.zeros_like();
    }
    PolicyTerms {
        loss,
        clipped,
        clipped_lower,
        kl: -log_ratio.detach(),
        ratio: ratio.detach(),
    }
}

/// GSPO (Zheng et al., 2025), per token of [rows, time]: the ratio of a row is
/// r = exp(mean over its trained tokens of new - old), bounded by exp(10); a token's loss is
/// max(-A r, -A clip(r)). Every token carries the row's ratio as its value and its own log-prob as
/// its gradient, so that the mean over the row has the gradient of the row's ratio (GSPO-token).
#[must_use]
pub fn gspo(tokens: &Tokens<'_>, clip: Clip) -> PolicyTerms {
    let (new, advantages) = (tokens.logprobs, tokens.advantages);
    let log_ratio = masked(&(new - tokens.old), tokens.mask);
    let kind = new.kind();
    let lengths = tokens.mask.sum_dim_intlist(-1, true, kind).clamp_min(1.0);
    let of_row = (log_ratio.detach().sum_dim_intlist(-1, true, kind) / lengths).expand_as(new);
    let ratio = (new - new.detach() + of_row)
        .clamp_max(ROW_RATIO_BOUND)
        .exp();
    let plain = -advantages * &ratio;
    let bounded = -advantages * ratio.clamp(1.0 - clip.low, 1.0 + clip.high);
    let clipped = bounded.gt_tensor(&plain).to_kind(kind);
    PolicyTerms {
        loss: plain.maximum(&bounded),
        clipped_lower: clipped.zeros_like(),
        clipped,
        kl: -log_ratio.detach(),
        ratio: ratio.detach(),
    }
}

/// CISPO (MiniMax-M1, 2025), per token: -sg(clip(r, 1 - low, 1 + high)) A log p. The clipped ratio
/// is a constant weight: a token outside the bounds keeps its gradient.
#[must_use]
pub fn cispo(logprobs: &Tensor, old: &Tensor, advantages: &Tensor, clip: Clip) -> PolicyTerms {
    let log_ratio = (logprobs.detach() - old).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND);
    let ratio = log_ratio.exp();
    let weight = ratio.clamp(1.0 - clip.low, 1.0 + clip.high);
    let clipped = ratio.ne_tensor(&weight).to_kind(logprobs.kind());
    PolicyTerms {
        loss: -weight * advantages * logprobs,
        clipped_lower: clipped.zeros_like(),
        clipped,
        kl: -log_ratio,
        ratio,
    }
}

/// GMPO (Zhao et al., 2025; "geo_mean"), per token of [rows, time]: every token of a row has the
/// row's loss -A r, where A is the mean advantage of its trained tokens and r = exp(mean of their
/// bounded log ratios). A token's log ratio d is bounded on the side where it would be rewarded:
/// min(d, high) for A > 0, max(d, -low) for A < 0, 0 for A = 0.
#[must_use]
pub fn gmpo(tokens: &Tokens<'_>, clip: Clip) -> PolicyTerms {
    let (new, advantages) = (tokens.logprobs, masked(tokens.advantages, tokens.mask));
    let kind = new.kind();
    let log_ratio = masked(&(new - tokens.old), tokens.mask);
    let near = log_ratio.clamp(-clip.low, clip.high);
    let sign = advantages.sign();
    let kept = &sign * (&sign * &log_ratio).minimum(&(&sign * &near));
    let lengths = tokens.mask.sum_dim_intlist(-1, true, kind) + 1e-8;
    let ratio = (kept.sum_dim_intlist(-1, true, kind) / &lengths).exp();
    let advantage = advantages.sum_dim_intlist(-1, true, kind) / lengths;
    let clipped = log_ratio.ne_tensor(&near);
    let where_sign = |positive: bool| {
        let side = if positive {
            advantages.gt(0.0)
        } else {
            advantages.lt(0.0)
        };
        clipped.logical_and(&side).to_kind(kind)
    };
    PolicyTerms {
        loss: (-advantage * ratio).expand_as(new),
        clipped: where_sign(true),
        clipped_lower: where_sign(false),
        kl: -log_ratio.detach(),
        ratio: log_ratio.detach().exp(),
    }
}

/// GPG (Chu et al., 2025), per token: -A log p, without a ratio. `old` is only read for the report.
#[must_use]
pub fn gpg(logprobs: &Tensor, old: &Tensor, advantages: &Tensor) -> PolicyTerms {
    let zero = logprobs.detach().zeros_like();
    let log_ratio = (logprobs.detach() - old).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND);
    PolicyTerms {
        loss: -advantages * logprobs,
        clipped: zero.shallow_clone(),
        clipped_lower: zero.shallow_clone(),
        kl: zero,
        ratio: log_ratio.exp(),
    }
}

/// Clip-Cov (Cui et al., 2025), per token: max(-A r, -A clip(r)), and no loss at `chosen` tokens.
/// `clipped` says where tokens were left out.
#[must_use]
pub fn clip_cov(
    logprobs: &Tensor,
    old: &Tensor,
    advantages: &Tensor,
    clip: Clip,
    chosen: &Tensor,
) -> PolicyTerms {
    let single = Clip {
        dual: f64::INFINITY,
        ..clip
    };
    let terms = ppo_clip(logprobs, old, advantages, single);
    PolicyTerms {
        loss: terms.loss * (chosen.ones_like() - chosen),
        clipped: chosen.shallow_clone(),
        ..terms
    }
}

/// KL-Cov (Cui et al., 2025), per token: -A r, and + `weight` |new - old| at `chosen` tokens. `kl`
/// is |new - old|.
#[must_use]
pub fn kl_cov(
    logprobs: &Tensor,
    old: &Tensor,
    advantages: &Tensor,
    weight: f64,
    chosen: &Tensor,
) -> PolicyTerms {
    let log_ratio = (logprobs - old).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND);
    let (ratio, distance) = (log_ratio.exp(), log_ratio.abs());
    let zero = logprobs.detach().zeros_like();
    PolicyTerms {
        loss: -advantages * &ratio + &distance * chosen * weight,
        clipped: zero.shallow_clone(),
        clipped_lower: zero,
        kl: distance.detach(),
        ratio: ratio.detach(),
    }
}

/// `values` where `mask` is not 0, and 0 elsewhere, even if what stands there is not finite.
fn masked(values: &Tensor, mask: &Tensor) -> Tensor {
    values.where_self(&mask.ne(0.0), &values.zeros_like())
}

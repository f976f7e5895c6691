//! Policy losses per token, and how tokens become one number. Pure functions of tensors.

use tch::{Kind, Tensor};

/// Log ratios are clamped to this, either side, before the exponential.
const LOG_RATIO_BOUND: f64 = 20.0;
/// k3 is clamped to this, either side.
const K3_BOUND: f64 = 10.0;

/// Bounds of the ratio.
#[derive(Clone, Copy, Debug)]
pub struct Clip {
    /// The ratio may fall to 1 - low.
    pub low: f64,
    /// The ratio may rise to 1 + high.
    pub high: f64,
    /// Dual clip c > 1: with a negative advantage the loss is at most c |advantage|. None if not
    /// finite.
    pub dual: f64,
}

/// What PPO-clip gives for every token; all tensors have the size of the log-probs.
#[derive(Debug)]
pub struct PolicyTerms {
    /// The loss; the only one with a gradient.
    pub loss: Tensor,
    /// 1 where the clipped term was chosen, else 0.
    pub clipped: Tensor,
    /// 1 where dual clip was chosen, else 0.
    pub clipped_lower: Tensor,
    /// Old - new log-prob (clamped).
    pub kl: Tensor,
    /// New probability / old probability.
    pub ratio: Tensor,
}

/// PPO-clip (Schulman et al., 2017) with separate bounds and dual clip (Ye et al., 2020), per token.
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

/// Schulman's k3 estimate of KL(policy || reference) per token: exp(d) - d - 1 with
/// d = reference - log-prob. Never negative.
pub fn k3(logprobs: &Tensor, reference: &Tensor) -> Tensor {
    let d = (reference - logprobs).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND);
    (d.exp() - &d - 1.0).clamp(-K3_BOUND, K3_BOUND)
}

/// How the losses of tokens [rows, time] become one number (the names are verl's).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregation {
    /// Mean over all masked-in tokens.
    TokenMean,
    /// Sum over a row's tokens, mean over rows.
    SeqMeanTokenSum,
    /// Mean over a row's tokens, mean over rows.
    SeqMeanTokenMean,
    /// Sum over a row's tokens, sum over rows, divided by the padded length.
    SeqMeanTokenSumNorm,
}

/// Aggregates `values` [rows, time] where `mask` (same size) is 1.
pub fn aggregate(values: &Tensor, mask: &Tensor, mode: Aggregation) -> Tensor {
    let kind = values.kind();
    let masked = values * mask;
    let rows = || masked.sum_dim_intlist(-1, false, kind);
    match mode {
        Aggregation::TokenMean => masked.sum(kind) / (mask.sum(kind) + 1e-8),
        Aggregation::SeqMeanTokenSum => rows().mean(kind),
        Aggregation::SeqMeanTokenMean => {
            (rows() / mask.sum_dim_intlist(-1, false, kind)).mean(kind)
        }
        Aggregation::SeqMeanTokenSumNorm => {
            let time = values.size().last().copied().unwrap_or(1);
            rows().sum(kind) / time as f64
        }
    }
}

/// Entropy in nats of distributions given as log-probs [.., vocab]; gives [..].
pub(super) fn entropy(log_softmax: &Tensor) -> Tensor {
    -(log_softmax.exp() * log_softmax).sum_dim_intlist(-1, false, Kind::Float)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn matrix(value: &Value) -> Tensor {
        let rows = value.as_array().unwrap();
        let flat: Vec<f64> = rows
            .iter()
            .flat_map(|row| row.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()))
            .collect();
        Tensor::from_slice(&flat).view([rows.len() as i64, -1])
    }

    fn close(name: &str, actual: f64, expected: &Value, tolerance: f64) {
        let expected = expected.as_f64().unwrap();
        let gap = (actual - expected).abs();
        assert!(
            gap <= tolerance * expected.abs().max(1.0),
            "{name}: {actual} for {expected}"
        );
    }

    #[test]
    fn every_golden_case_of_ppo_loss_agrees_with_its_gradient() {
        let folder = std::env::var("PALIMPSEST_GOLDEN").unwrap_or("tests/golden".into());
        let text = std::fs::read(format!("{folder}/ppo_loss.json")).unwrap();
        let file: Value = serde_json::from_slice(&text).unwrap();
        let cases = file["cases"].as_array().unwrap();
        assert!(!cases.is_empty());
        for case in cases {
            let (name, input, expected) = (
                case["name"].as_str().unwrap(),
                &case["inputs"],
                &case["expected"],
            );
            assert_eq!(input["fn"], "vanilla", "{name}");
            let both = input["clip_ratio"].as_f64().unwrap();
            let clip = Clip {
                low: input["clip_ratio_low"].as_f64().unwrap_or(both),
                high: input["clip_ratio_high"].as_f64().unwrap_or(both),
                dual: input["clip_ratio_c"].as_f64().unwrap_or(f64::INFINITY),
            };
            let mode = match input["loss_agg_mode"].as_str().unwrap() {
                "token-mean" => Aggregation::TokenMean,
                "seq-mean-token-sum" => Aggregation::SeqMeanTokenSum,
                "seq-mean-token-mean" => Aggregation::SeqMeanTokenMean,
                "seq-mean-token-sum-norm" => Aggregation::SeqMeanTokenSumNorm,
                other => panic!("{name}: unknown mode {other}"),
            };
            let mask = matrix(&input["response_mask"]);
            let logprobs = matrix(&input["log_prob"]).set_requires_grad(true);
            let terms = ppo_clip(
                &logprobs,
                &matrix(&input["old_log_prob"]),
                &matrix(&input["advantages"]),
                clip,
            );
            let mut values = terms.loss;
            if input["rollout_is_weights"].is_array() {
                values *= matrix(&input["rollout_is_weights"]);
            }
            let loss = aggregate(&values, &mask, mode);
            loss.backward();
            close(name, loss.double_value(&[]), &expected["loss"], 1e-9);
            let gap = (logprobs.grad() - matrix(&expected["grad_log_prob"]))
                .abs()
                .max();
            assert!(
                gap.double_value(&[]) < 1e-9,
                "{name}: gradient off by {gap:?}"
            );
            let share = |x: &Tensor| aggregate(x, &mask, Aggregation::TokenMean).double_value(&[]);
            close(name, share(&terms.clipped), &expected["pg_clipfrac"], 1e-6);
            close(
                name,
                share(&terms.clipped_lower),
                &expected["pg_clipfrac_lower"],
                1e-6,
            );
            close(name, share(&terms.kl), &expected["ppo_kl"], 1e-6);
        }
    }

    #[test]
    fn the_gradient_agrees_with_finite_differences() {
        let logprobs = Tensor::from_slice(&[-0.5, -1.7, -0.05, -2.2, -1.0]);
        let old = Tensor::from_slice(&[-0.6, -0.9, -1.4, -2.1, -1.1]);
        let advantages = Tensor::from_slice(&[1.0, -0.7, 0.4, -1.3, 0.0]);
        let clip = Clip {
            low: 0.2,
            high: 0.28,
            dual: 3.0,
        };
        let loss = |x: &Tensor| {
            let terms = ppo_clip(x, &old, &advantages, clip);
            (terms.loss + k3(x, &old) * 0.1).sum(Kind::Double)
        };
        let x = logprobs.copy().set_requires_grad(true);
        loss(&x).backward();
        let step = 1e-6;
        for i in 0..5 {
            let shifted = |by: f64| {
                let moved = logprobs.copy();
                let _ = moved.get(i).fill_(logprobs.double_value(&[i]) + by);
                loss(&moved).double_value(&[])
            };
            let slope = (shifted(step) - shifted(-step)) / (2.0 * step);
            let gap = (slope - x.grad().double_value(&[i])).abs();
            assert!(gap < 1e-6, "token {i}: {slope} against {:?}", x.grad());
        }
    }

    #[test]
    fn k3_is_zero_for_equal_policies_and_positive_otherwise() {
        let a = Tensor::from_slice(&[-0.5, -1.0]);
        let b = Tensor::from_slice(&[-0.5, -3.0]);
        let values = Vec::<f64>::try_from(k3(&a, &b)).unwrap();
        assert!(values[0].abs() < 1e-12 && values[1] > 0.0, "{values:?}");
    }
}

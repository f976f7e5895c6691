//! verl's other behaviours, each under its name: for comparing with runs made by verl, and for its
//! golden vectors. Nothing in palimpsest trains with them. Inputs are taken as they come: these
//! functions check nothing.

use super::returns::TokenRow;
use super::statistics::{EPSILON, MASKED_EPSILON, masked_mean, masked_variance};

/// `grpo_vectorized`: sums in 32 bits, and the variance floored at 1e-6 before the root, so that a
/// group with a deviation under 1e-3 is scaled by 1e-3.
#[must_use]
pub fn grpo_vectorized(scores: &[f64], std: bool) -> Vec<f64> {
    let count = scores.len() as f32;
    let (sum, squares) = scores
        .iter()
        .fold((0.0f32, 0.0f32), |(sum, squares), &score| {
            let score = score as f32;
            (sum + score, squares + score * score)
        });
    let (mean, deviation) = if scores.len() > 1 {
        let variance = (squares - sum * sum / count) / (count - 1.0);
        (sum / count, variance.max(EPSILON as f32).sqrt())
    } else {
        (0.0, 1.0)
    };
    let scale = f64::from(deviation + EPSILON as f32);
    scores
        .iter()
        .map(|score| (score - f64::from(mean)) / if std { scale } else { 1.0 })
        .collect()
}

/// GPG's factor as verl counts it, in 32 bits: `B` times the reciprocal of the count.
#[must_use]
pub fn gpg_scale(scores: &[f64]) -> f64 {
    let paid = scores.iter().filter(|score| **score != 0.0).count().max(1);
    f64::from(scores.len() as f32 * (1.0 / paid as f32))
}

/// `rloo_vectorized`: as RLOO, but a group of one gets 0.
#[must_use]
pub fn rloo_vectorized(scores: &[f64]) -> Vec<f64> {
    let count = scores.len() as f64;
    let sum: f64 = scores.iter().sum();
    scores
        .iter()
        .map(|score| {
            if scores.len() > 1 {
                (score * count - sum) / (count - 1.0)
            } else {
                0.0
            }
        })
        .collect()
}

/// REINFORCE++ before PR #7300: the return is set to 0 at every masked token, the tools' included,
/// so that only the last turn of a rollout learns of its outcome (verl#7278). Returns first, then
/// advantages.
#[must_use]
pub fn reinforce_plus_plus(rows: &[TokenRow<'_>], gamma: f64) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
    let returns: Vec<Vec<f64>> = rows
        .iter()
        .map(|row| {
            let (mut next, mut returns) = (0.0, Vec::new());
            for (&reward, &on) in row.rewards.iter().zip(row.mask).rev() {
                next = reward + gamma * next;
                returns.push(next);
                next = if on { next } else { 0.0 };
            }
            returns.reverse();
            returns
        })
        .collect();
    let mut advantages = whitened(&returns, rows);
    for (row, advantages) in rows.iter().zip(&mut advantages) {
        for (value, &on) in advantages.iter_mut().zip(row.mask) {
            *value = if on { *value } else { 0.0 };
        }
    }
    (returns, advantages)
}

/// ReMax with the bare return left on masked tokens. Returns first, then advantages.
#[must_use]
pub fn remax(rows: &[TokenRow<'_>], baselines: &[f64]) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
    let (mut all, mut advantages) = (Vec::new(), Vec::new());
    for (row, baseline) in rows.iter().zip(baselines) {
        let mut sum = 0.0;
        let mut returns = Vec::new();
        for (&reward, &on) in row.rewards.iter().zip(row.mask).rev() {
            sum += if on { reward } else { 0.0 };
            returns.push(sum);
        }
        returns.reverse();
        let less = |(value, &on): (&f64, &bool)| value - if on { *baseline } else { 0.0 };
        advantages.push(returns.iter().zip(row.mask).map(less).collect());
        all.push(returns);
    }
    (all, advantages)
}

/// GAE with what the scan carries left on masked tokens, whitened with the rest. Returns first,
/// then advantages.
#[must_use]
pub fn gae(
    rows: &[TokenRow<'_>],
    values: &[&[f64]],
    gamma: f64,
    lambda: f64,
) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
    let (mut raw, mut returns) = (Vec::new(), Vec::new());
    for (row, values) in rows.iter().zip(values) {
        let (mut next_value, mut next) = (0.0, 0.0);
        let mut carried = Vec::new();
        for ((&reward, &on), &value) in row.rewards.iter().zip(row.mask).zip(*values).rev() {
            if on {
                next = reward + gamma * next_value - value + gamma * lambda * next;
                next_value = value;
            }
            carried.push(next);
        }
        carried.reverse();
        returns.push(carried.iter().zip(*values).map(|(a, v)| a + v).collect());
        raw.push(carried);
    }
    let advantages = whitened(&raw, rows);
    (returns, advantages)
}

/// Whitened with the statistics of the sampled tokens, masked tokens mapped too.
fn whitened(values: &[Vec<f64>], rows: &[TokenRow<'_>]) -> Vec<Vec<f64>> {
    let mask: Vec<bool> = rows.iter().flat_map(|row| row.mask).copied().collect();
    let flat = values.concat();
    let mean = masked_mean(&flat, &mask);
    let variance = masked_variance(&flat, &mask, true).unwrap_or(0.0);
    let scale = 1.0 / (variance + MASKED_EPSILON).sqrt();
    let map = |value: &f64| (value - mean) * scale;
    values
        .iter()
        .map(|row| row.iter().map(map).collect())
        .collect()
}

//! Muon (Jordan et al., 2024): momentum whose matrix is made orthogonal before it is applied.

use std::collections::BTreeMap;

use tch::Tensor;

use super::weights::Parameter;

/// Decay of the momentum.
const MOMENTUM: f64 = 0.95;
/// Newton-Schulz iterations.
const ITERATIONS: usize = 5;

/// Muon with Nesterov momentum. State is keyed by parameter name.
#[derive(Default)]
pub(super) struct Muon {
    /// Momentum of each parameter.
    pub momenta: BTreeMap<String, Tensor>,
}

impl Muon {
    /// One step along the gradients of the block matrices. Matrices fused in one parameter are made
    /// orthogonal one by one. The update is scaled by 0.2 sqrt(max(rows, columns)), which gives it
    /// the size of an AdamW update, so that learning rates carry over.
    pub fn step(&mut self, parameters: &[&Parameter], lr: f64, weight_decay: f64) {
        let _guard = tch::no_grad_guard();
        for parameter in parameters {
            let gradient = parameter.tensor.grad();
            let Some(rows) = &parameter.matrices else {
                continue;
            };
            if !gradient.defined() {
                continue;
            }
            let momentum = self
                .momenta
                .entry(parameter.name.clone())
                .or_insert_with(|| gradient.zeros_like());
            let _ = momentum.g_mul_scalar_(MOMENTUM);
            let _ = momentum.g_add_(&gradient);
            let update = gradient + &*momentum * MOMENTUM;
            let mut weight = parameter.tensor.shallow_clone();
            let _ = weight.g_mul_scalar_(1.0 - lr * weight_decay);
            let updates = update.split_with_sizes(rows, 0);
            for (mut part, update) in weight.split_with_sizes(rows, 0).into_iter().zip(updates) {
                let largest = part.size().into_iter().max().unwrap_or(1) as f64;
                let _ = part.g_sub_(&(orthogonalised(&update) * (lr * 0.2 * largest.sqrt())));
            }
        }
    }
}

/// A matrix with the singular vectors of `matrix` and singular values near 1.
fn orthogonalised(matrix: &Tensor) -> Tensor {
    let (a, b, c) = (3.4445, -4.7750, 2.0315);
    let tall = matrix.size()[0] > matrix.size()[1];
    let mut x = if tall {
        matrix.tr().contiguous()
    } else {
        matrix.shallow_clone()
    };
    x = &x / (x.norm() + 1e-7);
    for _ in 0..ITERATIONS {
        let square = x.mm(&x.tr());
        let polynomial = &square * b + square.mm(&square) * c;
        x = &x * a + polynomial.mm(&x);
    }
    if tall { x.tr() } else { x }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn singular_values_come_near_one_for_wide_and_tall_matrices() {
        let values: Vec<f32> = (0..24)
            .map(|i| ((i * i * 7 + 3) % 23) as f32 - 11.0)
            .collect();
        for size in [[4, 6], [6, 4]] {
            let x = orthogonalised(&Tensor::from_slice(&values).view(size));
            assert_eq!(x.size(), size);
            let (_, s, _) = x.svd(true, false);
            for s in Vec::<f32>::try_from(s).unwrap() {
                assert!((0.6..1.4).contains(&s), "{s}");
            }
        }
    }
}

//! AdamW with its state in plain tensors, and what every optimizer needs of gradients.

use std::collections::BTreeMap;

use tch::{Kind, Tensor};

use super::weights::Parameter;

/// Knobs of one AdamW step.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdamKnobs {
    pub lr: f64,
    pub betas: (f64, f64),
    pub eps: f64,
    /// Decoupled; applied to parameters that decay.
    pub weight_decay: f64,
}

/// AdamW (Loshchilov and Hutter) with bias correction. State is keyed by parameter name.
#[derive(Default)]
pub(super) struct AdamW {
    /// Steps taken.
    pub steps: i64,
    /// First and second moment of each parameter.
    pub moments: BTreeMap<String, (Tensor, Tensor)>,
}

impl AdamW {
    /// One step along the gradients that backward passes have left.
    pub fn step(&mut self, parameters: &[&Parameter], knobs: AdamKnobs) {
        let _guard = tch::no_grad_guard();
        self.steps += 1;
        let (b1, b2) = knobs.betas;
        let correction1 = 1.0 - b1.powi(self.steps as i32);
        let correction2 = 1.0 - b2.powi(self.steps as i32);
        for parameter in parameters {
            let gradient = parameter.tensor.grad();
            if !gradient.defined() {
                continue;
            }
            let (first, second) = self
                .moments
                .entry(parameter.name.clone())
                .or_insert_with(|| (gradient.zeros_like(), gradient.zeros_like()));
            let _ = first.lerp_(&gradient, 1.0 - b1);
            let _ = second.g_mul_scalar_(b2);
            let _ = second.g_add_(&(&gradient * &gradient * (1.0 - b2)));
            let scale = second.sqrt() / correction2.sqrt() + knobs.eps;
            let mut weight = parameter.tensor.shallow_clone();
            if parameter.decays && knobs.weight_decay != 0.0 {
                let _ = weight.g_mul_scalar_(1.0 - knobs.lr * knobs.weight_decay);
            }
            let _ = weight.g_sub_(&(&*first / scale * (knobs.lr / correction1)));
        }
    }
}

/// Forgets the gradients.
pub(super) fn zero_gradients(parameters: &[Parameter]) {
    for parameter in parameters {
        parameter.tensor.shallow_clone().zero_grad();
    }
}

/// Global norm of all gradients.
pub(super) fn gradient_norm(parameters: &[Parameter]) -> f64 {
    let norms: Vec<Tensor> = parameters
        .iter()
        .map(|parameter| parameter.tensor.grad())
        .filter(Tensor::defined)
        .map(|gradient| gradient.norm())
        .collect();
    if norms.is_empty() {
        return 0.0;
    }
    Tensor::stack(&norms, 0)
        .to_kind(Kind::Double)
        .norm()
        .double_value(&[])
}

/// Scales all gradients so that their global norm `norm` becomes at most `most`.
pub(super) fn clip_gradients(parameters: &[Parameter], norm: f64, most: f64) {
    let scale = most / (norm + 1e-6);
    if !most.is_finite() || scale >= 1.0 {
        return;
    }
    let _guard = tch::no_grad_guard();
    for parameter in parameters {
        let mut gradient = parameter.tensor.grad();
        if gradient.defined() {
            let _ = gradient.g_mul_scalar_(scale);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(values: &[f64], gradient: &[f64]) -> Parameter {
        let tensor = Tensor::from_slice(values).set_requires_grad(true);
        (&tensor * Tensor::from_slice(gradient))
            .sum(Kind::Double)
            .backward();
        Parameter {
            name: "w".into(),
            tensor,
            matrices: None,
            decays: true,
        }
    }

    #[test]
    fn the_first_adamw_step_moves_every_weight_by_the_learning_rate() {
        let w = parameter(&[1.0, -2.0], &[0.3, -0.01]);
        let knobs = AdamKnobs {
            lr: 0.1,
            betas: (0.9, 0.99),
            eps: 1e-12,
            weight_decay: 0.5,
        };
        AdamW::default().step(&[&w], knobs);
        let after = Vec::<f64>::try_from(w.tensor.detach()).unwrap();
        // weight * (1 - lr * decay) - lr * sign(gradient)
        assert!((after[0] - (0.95 - 0.1)).abs() < 1e-9, "{after:?}");
        assert!((after[1] - (-1.9 + 0.1)).abs() < 1e-9, "{after:?}");
    }

    #[test]
    fn clipping_scales_to_the_norm_and_leaves_small_gradients_alone() {
        let all = [parameter(&[0.0, 0.0], &[3.0, 4.0])];
        assert!((gradient_norm(&all) - 5.0).abs() < 1e-9);
        clip_gradients(&all, 5.0, 10.0);
        assert!((gradient_norm(&all) - 5.0).abs() < 1e-9);
        clip_gradients(&all, 5.0, f64::INFINITY);
        assert!((gradient_norm(&all) - 5.0).abs() < 1e-9);
        clip_gradients(&all, 5.0, 1.0);
        assert!((gradient_norm(&all) - 1.0).abs() < 1e-6);
    }
}

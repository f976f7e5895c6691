//! AdamW with its state in plain tensors.

use std::collections::BTreeMap;

use tch::Tensor;

use super::bridge::{AdamWTensors, adamw};
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
        self.steps += 1;
        let (mut decaying, mut staying) = (AdamWTensors::default(), AdamWTensors::default());
        for parameter in parameters {
            let gradient = parameter.tensor.grad();
            if !gradient.defined() {
                continue;
            }
            let (first, second) = self
                .moments
                .entry(parameter.name.clone())
                .or_insert_with(|| (gradient.zeros_like(), gradient.zeros_like()));
            let group = match parameter.decays {
                true => &mut decaying,
                false => &mut staying,
            };
            group.weights.push(parameter.tensor.shallow_clone());
            group.gradients.push(gradient);
            group.first.push(first.shallow_clone());
            group.second.push(second.shallow_clone());
        }
        adamw(&decaying, self.steps, knobs);
        let still = AdamKnobs {
            weight_decay: 0.0,
            ..knobs
        };
        adamw(&staying, self.steps, still);
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use tch::Kind;

    /// A parameter with this gradient.
    pub fn parameter(values: &[f64], gradient: &[f64]) -> Parameter {
        of(&Tensor::from_slice(values), &Tensor::from_slice(gradient))
    }

    fn of(values: &Tensor, gradient: &Tensor) -> Parameter {
        let tensor = values.copy().set_requires_grad(true);
        (&tensor * gradient).sum(values.kind()).backward();
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
        assert!((after[0] - (0.95 - 0.1)).abs() < 1e-6, "{after:?}");
        assert!((after[1] - (-1.9 + 0.1)).abs() < 1e-6, "{after:?}");
    }

    #[test]
    fn the_fused_steps_follow_the_plain_formula_and_repeat_bit_for_bit() {
        let numbers = |seed: i64, count: i64| -> Tensor {
            let x = Tensor::arange(count, (Kind::Double, tch::Device::Cpu));
            ((x * 12.9898 + seed as f64 * 78.233).sin() * 43_758.545).sin()
        };
        let knobs = AdamKnobs {
            lr: 0.01,
            betas: (0.9, 0.95),
            eps: 1e-8,
            weight_decay: 0.1,
        };
        let count = 40_003;
        let run = || {
            let (mut adam, mut plain) = (AdamW::default(), numbers(0, count));
            let (mut m, mut v) = (plain.zeros_like(), plain.zeros_like());
            let mut weight = plain.to_kind(Kind::Float);
            for step in 1..=5 {
                let gradient = numbers(step, count) * 0.01;
                m = &m * 0.9 + &gradient * 0.1;
                v = &v * 0.95 + gradient.square() * 0.05;
                let m_hat = &m / (1.0 - 0.9f64.powi(step as i32));
                let v_hat = &v / (1.0 - 0.95f64.powi(step as i32));
                plain = &plain * (1.0 - 0.01 * 0.1) - m_hat / (v_hat.sqrt() + 1e-8) * 0.01;
                let parameter = of(&weight, &gradient.to_kind(Kind::Float));
                adam.step(&[&parameter], knobs);
                weight = parameter.tensor.detach();
            }
            (weight, plain)
        };
        let (weight, plain) = run();
        let gap = (weight.to_kind(Kind::Double) - &plain).abs().max();
        assert!(gap.double_value(&[]) < 1e-6, "{gap}");
        assert_eq!(run().0, weight);
    }
}

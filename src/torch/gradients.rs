//! What the gradients of a step pass before an optimizer sees them: the sum over processes, the look at
//! whether they are finite, the clip. Every optimizer step of the cold start and of RL goes through
//! [`Gradients::pass`].

use tch::{Kind, Tensor};

use super::bridge::forget_gradients;
use super::weights::Parameter;

/// Makes one gradient of those of several processes, in place: the place of an all-reduce. It gets every
/// gradient of a step at once, in the order of the parameters, so that it can put small ones together.
pub(super) type Reduce = Box<dyn FnMut(&mut [Tensor])>;

/// The one place between backward passes and optimizers.
pub(super) struct Gradients {
    reduce: Reduce,
}

impl Default for Gradients {
    /// One process: its gradients are the gradients.
    fn default() -> Self {
        Self::new(Box::new(|_| {}))
    }
}

impl Gradients {
    /// With this reduction over processes.
    pub fn new(reduce: Reduce) -> Self {
        Self { reduce }
    }

    /// Reduces the gradients of `parameters`, and scales them so that their global norm becomes at most
    /// `most` (any norm if that is not finite). Gives the norm before that; if it is not finite, nothing
    /// was scaled, and no step must be made.
    pub fn pass(&mut self, parameters: &[Parameter], most: f64) -> f64 {
        let _guard = tch::no_grad_guard();
        let mut gradients: Vec<Tensor> = parameters
            .iter()
            .map(|parameter| parameter.tensor.grad())
            .filter(Tensor::defined)
            .collect();
        if gradients.is_empty() {
            return 0.0;
        }
        (self.reduce)(&mut gradients);
        let norms: Vec<Tensor> = gradients
            .iter()
            .map(|gradient| gradient.norm().to_kind(Kind::Double))
            .collect();
        let norm = Tensor::stack(&norms, 0).norm().double_value(&[]);
        let scale = most / (norm + 1e-6);
        if norm.is_finite() && most.is_finite() && scale < 1.0 {
            for gradient in &mut gradients {
                let _ = gradient.g_mul_scalar_(scale);
            }
        }
        norm
    }
}

/// Forgets the gradients, and gives their memory back.
pub(super) fn forget(parameters: &[Parameter]) {
    let tensors: Vec<Tensor> = parameters
        .iter()
        .map(|p| p.tensor.shallow_clone())
        .collect();
    forget_gradients(&tensors);
}

#[cfg(test)]
mod tests {
    use super::super::optimizer::tests::parameter;
    use super::*;

    #[test]
    fn clipping_scales_to_the_norm_and_leaves_small_gradients_alone() {
        let all = [parameter(&[0.0, 0.0], &[3.0, 4.0])];
        let mut gradients = Gradients::default();
        for most in [10.0, f64::INFINITY, 1.0] {
            assert!((gradients.pass(&all, most) - 5.0).abs() < 1e-9, "{most}");
        }
        assert!((gradients.pass(&all, 10.0) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn a_reduction_over_processes_comes_before_the_norm_and_the_clip() {
        let all = [
            parameter(&[0.0], &[3.0]),
            parameter(&[0.0, 0.0], &[0.0, 4.0]),
        ];
        let mut twice = Gradients::new(Box::new(|gradients| {
            assert_eq!(gradients.len(), 2);
            for gradient in gradients {
                let _ = gradient.g_mul_scalar_(2.0);
            }
        }));
        assert!((twice.pass(&all, 5.0) - 10.0).abs() < 1e-9);
        assert!((Gradients::default().pass(&all, 50.0) - 5.0).abs() < 1e-5);
    }

    #[test]
    fn a_gradient_that_is_not_finite_is_told_and_not_scaled() {
        let all = [parameter(&[0.0, 0.0], &[f64::NAN, 4.0])];
        assert!(Gradients::default().pass(&all, 1.0).is_nan());
        assert_eq!(all[0].tensor.grad().double_value(&[1]), 4.0);
        forget(&all);
        assert!(!all[0].tensor.grad().defined());
        assert_eq!(Gradients::default().pass(&all, 1.0), 0.0);
    }
}

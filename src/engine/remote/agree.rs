//! Whether server and learner compute the same probabilities, after every weight update: a server
//! that samples from other weights, or tells log-probs of another distribution, would bend every
//! ratio that the policy loss is made of.

use super::{Needs, RemoteError};

/// How far two lists of log-probs are apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Gap {
    /// Mean of |difference|, nats.
    pub mean: f64,
    /// Largest |ratio - 1|.
    pub largest: f64,
}

impl Gap {
    pub fn between(server: &[f32], learner: &[f32]) -> Self {
        let apart = || {
            server
                .iter()
                .zip(learner)
                .map(|(server, learner)| f64::from(learner - server))
        };
        Self {
            mean: apart().map(f64::abs).sum::<f64>() / server.len().max(1) as f64,
            largest: apart()
                .map(|difference| (difference.exp() - 1.0).abs())
                .fold(0.0, f64::max),
        }
    }
}

/// Refuses to go on where the gap makes training wrong. `at_temperature` compares with the learner's
/// distribution at the temperature of the rollouts, `at_one` with that at temperature 1.
///
/// Importance weights mend a gap of rounding, not log-probs of a distribution that nothing was
/// sampled from.
pub(super) fn judge(
    update: u64,
    at_temperature: Gap,
    at_one: Gap,
    needs: &Needs,
) -> Result<(), RemoteError> {
    let Gap { mean, largest } = at_temperature;
    if largest <= needs.ratio {
        return Ok(());
    }
    let disagrees = |problem| Err(RemoteError::Disagrees { update, problem });
    if needs.temperature != 1.0 && at_one.mean < mean / 2.0 {
        return disagrees(format!(
            "they are {mean:.4} nats off in the mean at temperature {}, and {:.4} at temperature 1: it samples at one temperature and tells log-probs at another. Start vLLM with --logprobs-mode processed_logprobs and SGLang without SGLANG_RETURN_ORIGINAL_LOGPROB, or set rollout.temperature: 1",
            needs.temperature, at_one.mean
        ));
    }
    if !needs.importance {
        return disagrees(format!(
            "the largest |ratio - 1| of a probe is {largest:.4} and must be at most {} (record.audit_ratio). If the server computes in bf16 or fp16, set learner.importance: truncate(..) or mask(..), or start it with --dtype float32; if it is far off, the server has other weights than it was told to load",
            needs.ratio
        ));
    }
    tracing::debug!("weight update {update}: the largest |ratio - 1| of a probe is {largest:.4}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(temperature: f32, importance: bool) -> Needs {
        Needs {
            trains: true,
            scoring: None,
            context_tokens: 1,
            temperature,
            ratio: 1e-2,
            importance,
        }
    }

    fn said(needs: Needs, at_temperature: &[f32], at_one: &[f32]) -> String {
        let server = [-1.0, -2.0];
        let gap = |learner| Gap::between(&server, learner);
        match judge(3, gap(at_temperature), gap(at_one), &needs) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn equal_log_probs_agree_and_rounding_asks_for_importance_weights() {
        assert_eq!(
            said(needs(1.0, false), &[-1.0, -2.005], &[-1.0, -2.005]),
            ""
        );
        let rounded = said(needs(1.0, false), &[-1.0, -2.05], &[-1.0, -2.05]);
        assert!(rounded.contains("learner.importance"), "{rounded}");
        assert!(
            rounded.contains("update 3") && rounded.contains("0.0488"),
            "{rounded}"
        );
        assert_eq!(said(needs(1.0, true), &[-1.0, -2.05], &[-1.0, -2.05]), "");
    }

    #[test]
    fn log_probs_at_another_temperature_are_refused_whatever_the_weights() {
        for importance in [false, true] {
            let raw = said(needs(0.7, importance), &[-0.8, -2.4], &[-1.0, -2.0]);
            assert!(raw.contains("--logprobs-mode processed_logprobs"), "{raw}");
        }
    }
}

//! Golden vectors of the losses: `runner` knows the families ppo_loss, policy_loss_other, agg_loss,
//! kl, value_loss, entropy_logprob and rollout_is. Values and gradients are compared in float64.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use palimpsest::credit::kl::{KlController, KlTokens, penalise};
use palimpsest::experiment::ImportanceLevel;
use palimpsest::torch::loss::{
    Aggregation, Bounds, Clip, Denominators, KlKind, PolicyForm, Tokens, aggregate, entropy,
    importance, kl, value_loss,
};
use serde_json::Value;
use tch::{Kind, Tensor};

/// Runs one case with the meta of its file.
pub type Runner = fn(&Value, &Value) -> Result<(), String>;

/// Cases where a peer's figure is a peer's bug: (name, with `*` for any text, and the reason).
pub const EXCEPTIONS: &[(&str, &str)] = &[
    (
        "kl_*+",
        "the peer documents straight-through kinds and raises NotImplementedError (verl PR #6058); \
         here they work",
    ),
    (
        "agg05_seq-mean-token-mean_fully_masked_row*",
        "one row without a trained token makes the peer's loss NaN; here such a row counts nothing",
    ),
    (
        "agg05_seq-mean-token-mean_all_masked*",
        "without a trained token the peer's loss is NaN; here it is 0",
    ),
    (
        "aggmain_*all_masked*",
        "without a trained token the peer's loss is NaN; here it is 0",
    ),
];

/// Why a case is not run, if it is listed in [`EXCEPTIONS`].
pub fn exception(name: &str) -> Option<&'static str> {
    let listed = EXCEPTIONS.iter().find(|(pattern, _)| fits(pattern, name));
    listed.map(|(_, reason)| *reason)
}

fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, rest)) => name.strip_prefix(head).is_some_and(|tail| {
            rest.is_empty()
                || (0..=tail.len())
                    .filter(|&at| tail.is_char_boundary(at))
                    .any(|at| fits(rest, &tail[at..]))
        }),
    }
}

/// What runs the cases of a family, if it is one of the losses.
pub fn runner(family: &str) -> Option<Runner> {
    match family {
        "ppo_loss" | "policy_loss_other" => Some(policy_loss),
        "agg_loss" => Some(agg_loss),
        "kl" => Some(kl_case),
        "value_loss" => Some(value_case),
        "entropy_logprob" => Some(entropy_case),
        "rollout_is" => Some(rollout_is),
        _ => None,
    }
}

/// What the peers add to counts.
const SLACK: f64 = 1e-8;

fn number(value: &Value) -> Result<f64, String> {
    match value.as_str() {
        Some("nan") => Ok(f64::NAN),
        Some("inf") => Ok(f64::INFINITY),
        Some("-inf") => Ok(f64::NEG_INFINITY),
        _ => value.as_f64().ok_or(format!("{value} is no number")),
    }
}

fn number_or(value: &Value, otherwise: f64) -> Result<f64, String> {
    if value.is_null() {
        Ok(otherwise)
    } else {
        number(value)
    }
}

/// Nested lists of numbers as a float64 tensor.
fn tensor(value: &Value) -> Result<Tensor, String> {
    fn walk(
        value: &Value,
        depth: usize,
        sizes: &mut Vec<i64>,
        flat: &mut Vec<f64>,
    ) -> Result<(), String> {
        let Some(list) = value.as_array() else {
            flat.push(match value.as_bool() {
                Some(on) => f64::from(u8::from(on)),
                None => number(value)?,
            });
            return Ok(());
        };
        if sizes.len() == depth {
            sizes.push(list.len() as i64);
        }
        list.iter()
            .try_for_each(|item| walk(item, depth + 1, sizes, flat))
    }
    let (mut sizes, mut flat) = (Vec::new(), Vec::new());
    walk(value, 0, &mut sizes, &mut flat)?;
    let expected: i64 = sizes.iter().product();
    if expected != flat.len() as i64 {
        return Err(format!("{} numbers do not fill {sizes:?}", flat.len()));
    }
    Ok(Tensor::from_slice(&flat).view(&sizes[..]))
}

fn host(tensor: &Tensor) -> Vec<f64> {
    let tensor = tensor.detach().to_kind(Kind::Double).contiguous();
    let mut values = vec![0f64; tensor.numel()];
    tensor.copy_data(&mut values, tensor.numel());
    values
}

fn near(what: &str, ours: f64, theirs: f64, tolerance: f64) -> Result<(), String> {
    let close = (ours - theirs).abs() <= tolerance * theirs.abs().max(1.0)
        || (ours.is_nan() && theirs.is_nan())
        || ours == theirs;
    if close {
        Ok(())
    } else {
        Err(format!("{what}: ours {ours}, theirs {theirs}"))
    }
}

fn all_near(what: &str, ours: &Tensor, theirs: &Value, tolerance: f64) -> Result<(), String> {
    let theirs = tensor(theirs)?;
    if ours.size() != theirs.size() {
        return Err(format!(
            "{what}: our size {:?}, theirs {:?}",
            ours.size(),
            theirs.size()
        ));
    }
    for (at, (ours, theirs)) in host(ours).iter().zip(host(&theirs)).enumerate() {
        near(&format!("{what} at {at}"), *ours, theirs, tolerance)?;
    }
    Ok(())
}

fn tolerance(meta: &Value, key: &str, otherwise: f64) -> f64 {
    meta["tolerance"][key].as_f64().unwrap_or(otherwise)
}

fn exact(meta: &Value) -> f64 {
    tolerance(meta, "loss_and_grad", 1e-9)
}

fn loose(meta: &Value) -> f64 {
    tolerance(meta, "clipfrac", 1e-6)
}

/// The mode and the denominators of a peer's version for this mask.
fn aggregation(
    mode: &str,
    version: &str,
    mask: &Tensor,
    inputs: &Value,
) -> Result<(Aggregation, Denominators), String> {
    let newer = version.starts_with("0.8");
    let size = mask.size();
    let (rows, time) = (size[0] as f64, size[1] as f64);
    let counts = host(&mask.sum_dim_intlist(-1, false, Kind::Double));
    let tokens: f64 = counts.iter().sum();
    let filled = counts.iter().filter(|n| **n > 0.0).count() as f64;
    let workers = number_or(&inputs["dp_size"], 1.0)?;
    let horizon = number_or(&inputs["loss_scale_factor"], time)?;
    let denominators = if newer {
        Denominators {
            tokens: number_or(&inputs["batch_num_tokens"], tokens)? / workers,
            rows: number_or(&inputs["global_batch_size"], filled)? / workers,
            slack: SLACK,
        }
    } else {
        Denominators {
            tokens: tokens + SLACK,
            rows,
            slack: 0.0,
        }
    };
    let mode = match mode {
        "token-mean" => Aggregation::TokenMean,
        "seq-mean-token-sum" => Aggregation::SeqMeanTokenSum,
        "seq-mean-token-mean" => Aggregation::SeqMeanTokenMean,
        "seq-mean-token-sum-norm" => Aggregation::SeqMeanTokenSumNorm(horizon as f32),
        other => return Err(format!("unknown aggregation {other:?}")),
    };
    Ok((mode, denominators))
}

/// The mean over masked-in places, as the peers take it.
fn masked_mean(values: &Tensor, mask: &Tensor) -> f64 {
    let denominators = Denominators {
        tokens: mask.sum(Kind::Double).double_value(&[]) + SLACK,
        rows: 0.0,
        slack: 0.0,
    };
    aggregate(values, mask, Aggregation::TokenMean, &denominators).double_value(&[])
}

fn policy_loss(case: &Value, meta: &Value) -> Result<(), String> {
    let (inputs, expected) = (&case["inputs"], &case["expected"]);
    let version = inputs["version"].as_str().unwrap_or("0.5");
    let name = inputs["fn"].as_str().unwrap_or("vanilla");
    let both = number_or(&inputs["clip_ratio"], 0.2)?;
    let clip = Clip {
        low: number_or(&inputs["clip_ratio_low"], both)?,
        high: number_or(&inputs["clip_ratio_high"], both)?,
        dual: number_or(&inputs["clip_ratio_c"], 3.0)?,
    };
    let form = match name {
        "vanilla" => PolicyForm::Ppo(clip),
        "gspo" => PolicyForm::Gspo(clip),
        "cispo" => PolicyForm::Cispo(clip),
        "geo_mean" => PolicyForm::Gmpo(clip),
        "gpg" => PolicyForm::Gpg,
        "clip_cov" => PolicyForm::ClipCov {
            clip,
            share: number_or(&inputs["clip_cov_ratio"], 2e-4)?,
            lower: number_or(&inputs["clip_cov_lb"], 1.0)?,
            upper: number_or(&inputs["clip_cov_ub"], 5.0)?,
        },
        "kl_cov" => PolicyForm::KlCov {
            share: number_or(&inputs["kl_cov_ratio"], 2e-4)?,
            weight: number_or(&inputs["ppo_kl_coef"], 1.0)?,
        },
        other => return Err(format!("unknown policy loss {other:?}")),
    };
    let mask = tensor(&inputs["response_mask"])?;
    let advantages = tensor(&inputs["advantages"])?;
    let logprobs = tensor(&inputs["log_prob"])?.set_requires_grad(true);
    let old = if inputs["old_log_prob"].is_null() {
        logprobs.detach().copy()
    } else {
        tensor(&inputs["old_log_prob"])?
    };
    let chosen = chosen(&form, &logprobs, &old, &advantages, &mask);
    let terms = form.terms(&Tokens {
        logprobs: &logprobs,
        old: &old,
        advantages: &advantages,
        mask: &mask,
        chosen: Some(&chosen),
    });
    let asked = inputs["loss_agg_mode"].as_str().unwrap_or("token-mean");
    let (asked, mut denominators) = aggregation(asked, version, &mask, inputs)?;
    if name == "geo_mean" {
        // A mean over all rows in every version; the slack is inside the loss.
        denominators.rows = mask.size()[0] as f64;
        denominators.slack = 0.0;
    }
    let mut values = terms.loss;
    if inputs["rollout_is_weights"].is_array() {
        values *= tensor(&inputs["rollout_is_weights"])?;
    }
    let loss = aggregate(&values, &mask, form.aggregation(asked), &denominators);
    loss.backward();
    near(
        "loss",
        loss.double_value(&[]),
        number(&expected["loss"])?,
        exact(meta),
    )?;
    all_near(
        "gradient",
        &logprobs.grad(),
        &expected["grad_log_prob"],
        exact(meta),
    )?;
    let metrics = [
        ("pg_clipfrac", &terms.clipped),
        ("pg_clipfrac_lower", &terms.clipped_lower),
        ("ppo_kl", &terms.kl),
    ];
    for (metric, values) in metrics {
        let theirs = match &expected[metric] {
            Value::Null => &expected["metrics"][format!("actor/{metric}")],
            value => value,
        };
        if !theirs.is_null() {
            near(
                metric,
                masked_mean(values, &mask),
                number(theirs)?,
                loose(meta),
            )?;
        }
    }
    Ok(())
}

/// 1 at the tokens that the loss chooses, laid out as the mask.
fn chosen(
    form: &PolicyForm,
    logprobs: &Tensor,
    old: &Tensor,
    advantages: &Tensor,
    mask: &Tensor,
) -> Tensor {
    let places: Vec<usize> = host(mask)
        .iter()
        .enumerate()
        .filter(|(_, on)| **on != 0.0)
        .map(|(at, _)| at)
        .collect();
    let of = |x: &Tensor| -> Vec<f64> {
        let all = host(x);
        places.iter().map(|&at| all[at]).collect()
    };
    let picked = form.choose(&of(logprobs), &of(old), &of(advantages), (1, 0, 0));
    let mut flat = vec![0f64; mask.numel()];
    for (&at, on) in places.iter().zip(picked) {
        flat[at] = f64::from(u8::from(on));
    }
    Tensor::from_slice(&flat).view_as(mask)
}

fn agg_loss(case: &Value, meta: &Value) -> Result<(), String> {
    let (inputs, expected) = (&case["inputs"], &case["expected"]);
    let values = tensor(&inputs["loss_mat"])?.set_requires_grad(true);
    let mask = tensor(&inputs["loss_mask"])?;
    let version = inputs["version"].as_str().unwrap_or("0.5");
    let mode = inputs["mode"].as_str().unwrap_or("token-mean");
    let (mode, denominators) = aggregation(mode, version, &mask, inputs)?;
    let loss = aggregate(&values, &mask, mode, &denominators);
    near(
        "loss",
        loss.double_value(&[]),
        number(&expected["loss"])?,
        exact(meta),
    )?;
    if expected["grad"].is_array() {
        loss.backward();
        all_near("gradient", &values.grad(), &expected["grad"], exact(meta))?;
    }
    Ok(())
}

/// The kinds by the peers' names.
fn kind(name: &str) -> Option<KlKind> {
    Some(match name {
        "kl" | "k1" => KlKind::K1,
        "abs" => KlKind::Abs,
        "mse" | "k2" | "mse+" | "k2+" => KlKind::K2,
        "low_var_kl" | "k3" => KlKind::K3,
        "kl+" | "k1+" => KlKind::K1Straight,
        "abs+" => KlKind::AbsStraight,
        "low_var_kl+" | "k3+" => KlKind::K3Straight,
        _ => return None,
    })
}

fn kl_case(case: &Value, meta: &Value) -> Result<(), String> {
    let (inputs, expected) = (&case["inputs"], &case["expected"]);
    if inputs["steps"].is_array() {
        return controller(inputs, expected, meta);
    }
    let name = inputs["kind"].as_str().unwrap_or("kl");
    let Some(kind) = kind(name) else {
        return if expected["error"].is_string() {
            Ok(())
        } else {
            Err(format!("no kind of KL is named {name:?}"))
        };
    };
    if expected["error"].is_string() {
        return Err(format!("{name} works here, but should fail"));
    }
    if inputs["token_level_scores"].is_array() {
        return reward_kl(kind, inputs, expected, meta);
    }
    let logprobs = tensor(&inputs["logprob"])?.set_requires_grad(true);
    let values = kl(kind, &logprobs, &tensor(&inputs["ref_logprob"])?);
    all_near("value", &values, &expected["value"], exact(meta))?;
    if expected["grad_log_prob"].is_array() {
        values.sum(Kind::Double).backward();
        all_near(
            "gradient",
            &logprobs.grad(),
            &expected["grad_log_prob"],
            exact(meta),
        )?;
    }
    Ok(())
}

fn controller(inputs: &Value, expected: &Value, meta: &Value) -> Result<(), String> {
    let weight = number(&inputs["init_kl_coef"])?;
    let mut controller = if inputs["target_kl"].is_null() {
        KlController::Fixed { weight }
    } else {
        KlController::Adaptive {
            weight,
            target: number(&inputs["target_kl"])?,
            horizon: number(&inputs["horizon"])?,
        }
    };
    let steps = inputs["steps"].as_array().unwrap();
    for (at, step) in steps.iter().enumerate() {
        controller.update(number(&step[0])?, number(&step[1])? as u64);
        let theirs = number(&expected["trace"][at]["value"])?;
        near(
            &format!("weight after step {at}"),
            controller.weight(),
            theirs,
            exact(meta),
        )?;
    }
    Ok(())
}

fn reward_kl(kind: KlKind, inputs: &Value, expected: &Value, meta: &Value) -> Result<(), String> {
    let beta = number(&inputs["beta"])?;
    let rows = inputs["token_level_scores"].as_array().unwrap().len();
    let row = |name: &str, at: usize| tensor(&inputs[name][at]).map(|row| host(&row));
    let mut sum = 0.0;
    for at in 0..rows {
        let mask: Vec<bool> = row("response_mask", at)?
            .iter()
            .map(|m| *m != 0.0)
            .collect();
        let (rewards, kl) = penalise(
            kind,
            beta,
            KlTokens {
                rewards: &row("token_level_scores", at)?,
                logprobs: &row("old_log_probs", at)?,
                reference: &row("ref_log_prob", at)?,
                mask: &mask,
            },
        );
        let ours = Tensor::from_slice(&rewards);
        all_near(
            "rewards",
            &ours,
            &expected["token_level_rewards"][at],
            exact(meta),
        )?;
        sum += kl;
    }
    let theirs = number(&expected["reward_kl_penalty"])?;
    // The peer adds 1e-8 to counts.
    near("mean KL", sum / rows as f64, theirs, 1e-8)?;
    near(
        "weight",
        beta,
        number_or(&expected["reward_kl_penalty_coeff"], beta)?,
        exact(meta),
    )
}

fn value_case(case: &Value, meta: &Value) -> Result<(), String> {
    let (inputs, expected) = (&case["inputs"], &case["expected"]);
    let values = tensor(&inputs["vpreds"])?.set_requires_grad(true);
    let mask = tensor(&inputs["response_mask"])?;
    let (losses, clipped) = value_loss(
        &values,
        &tensor(&inputs["values"])?,
        &tensor(&inputs["returns"])?,
        number_or(&inputs["cliprange_value"], 0.5)?,
    );
    let mode = inputs["loss_agg_mode"].as_str().unwrap_or("token-mean");
    let version = inputs["version"].as_str().unwrap_or("0.5");
    let (mode, denominators) = aggregation(mode, version, &mask, inputs)?;
    let loss = aggregate(&losses, &mask, mode, &denominators);
    loss.backward();
    near(
        "loss",
        loss.double_value(&[]),
        number(&expected["vf_loss"])?,
        exact(meta),
    )?;
    all_near(
        "gradient",
        &values.grad(),
        &expected["grad_vpreds"],
        exact(meta),
    )?;
    near(
        "clipped share",
        masked_mean(&clipped, &mask),
        number(&expected["vf_clipfrac"])?,
        loose(meta),
    )
}

fn entropy_case(case: &Value, meta: &Value) -> Result<(), String> {
    let (inputs, expected) = (&case["inputs"], &case["expected"]);
    let logits = tensor(&inputs["logits"])?.set_requires_grad(true);
    let log_softmax = logits.log_softmax(-1, None::<Kind>);
    let entropies = entropy(&log_softmax);
    all_near("entropy", &entropies, &expected["entropy"], exact(meta))?;
    if inputs["response_mask"].is_null() {
        return Ok(());
    }
    let mask = tensor(&inputs["response_mask"])?;
    let (mode, denominators) = aggregation("token-mean", "0.5", &mask, inputs)?;
    let mean = aggregate(&entropies, &mask, mode, &denominators);
    if !expected["entropy_token_mean"].is_null() {
        let theirs = number(&expected["entropy_token_mean"])?;
        near("mean entropy", mean.double_value(&[]), theirs, exact(meta))?;
    }
    let slope_of = |value: &Tensor| {
        let slopes = Tensor::run_backward(&[value], &[&logits], true, false);
        slopes.into_iter().next().ok_or("no gradient".to_owned())
    };
    let theirs = &expected["grad_logits_of_entropy_token_mean"];
    if theirs.is_array() {
        all_near(
            "gradient of the entropy",
            &slope_of(&mean)?,
            theirs,
            exact(meta),
        )?;
    }
    if inputs["labels"].is_array() {
        let labels = tensor(&inputs["labels"])?
            .to_kind(Kind::Int64)
            .unsqueeze(-1);
        let logprobs = log_softmax.gather(-1, &labels, false).squeeze_dim(-1);
        if expected["logprob"].is_array() {
            all_near("log-probs", &logprobs, &expected["logprob"], exact(meta))?;
        }
        let theirs = &expected["grad_logits_of_masked_logprob_sum"];
        if theirs.is_array() {
            let sum = (&logprobs * &mask).sum(Kind::Double);
            all_near(
                "gradient of log-probs",
                &slope_of(&sum)?,
                theirs,
                exact(meta),
            )?;
        }
    }
    Ok(())
}

fn rollout_is(case: &Value, meta: &Value) -> Result<(), String> {
    let (inputs, expected) = (&case["inputs"], &case["expected"]);
    let upper = number_or(&inputs["threshold"], 2.0)?;
    let bounds = Bounds {
        level: match inputs["level"].as_str() {
            Some("token") | None => ImportanceLevel::Token,
            Some("sequence") => ImportanceLevel::Sequence,
            Some("geometric") => ImportanceLevel::Geometric,
            Some(other) => return Err(format!("unknown level {other:?}")),
        },
        masks: match inputs["mode"].as_str() {
            Some("truncate") | None => false,
            Some("mask") => true,
            Some(other) => return Err(format!("unknown mode {other:?}")),
        },
        lower: number_or(&inputs["threshold_lower"], 1.0 / upper)?,
        upper,
        veto: number_or(&inputs["veto_threshold"], 0.0)?,
    };
    let (weights, mismatch) = importance(
        &bounds,
        &tensor(&inputs["old_log_prob"])?,
        &tensor(&inputs["rollout_log_prob"])?,
        &tensor(&inputs["response_mask"])?,
    );
    all_near("weights", &weights, &expected["weights"], exact(meta))?;
    let ours = [
        ("rollout_is_veto_fraction", mismatch.veto_share),
        ("rollout_is_mean", mismatch.weight_mean),
        ("rollout_is_eff_sample_size", mismatch.effective_share),
        ("rollout_is_masked_fraction", mismatch.masked_share),
        ("rollout_is_seq_masked_fraction", mismatch.masked_rows),
        ("mismatch_kl", mismatch.kl),
        ("mismatch_k3_kl", mismatch.k3),
        ("mismatch_training_ppl", mismatch.learner_perplexity),
        ("mismatch_rollout_ppl", mismatch.engine_perplexity),
        ("mismatch_log_ppl_diff", mismatch.log_perplexity_gap),
    ];
    let theirs = expected["metrics"].as_object();
    for (name, value) in theirs.into_iter().flatten() {
        let short = name.strip_prefix("mismatch/").unwrap_or(name);
        let Some((_, ours)) = ours.iter().find(|(known, _)| *known == short) else {
            return Err(format!("nothing here computes {name}"));
        };
        near(name, *ours, number(value)?, exact(meta))?;
    }
    Ok(())
}

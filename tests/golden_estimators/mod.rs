//! Vectors of the group estimators and of masked statistics.

use palimpsest::credit::CreditError;
use palimpsest::credit::group::statistics::{masked_mean, masked_sum, masked_variance, whiten};
use palimpsest::credit::group::{self, TokenRow, verl};
use serde_json::Value;

use crate::{Runner, close, floats, groups, number, table, tolerance};

/// What runs the cases of a family, if it is one of estimators.
pub fn runner(family: &str) -> Option<Runner> {
    match family {
        "grpo" | "rloo_opo_gpg" => Some(by_score),
        "reinforce_remax" | "gae" => Some(by_function),
        "masked_stats" => Some(masked_stats),
        _ => None,
    }
}

/// A batch as verl takes it.
struct Batch {
    rewards: Vec<Vec<f64>>,
    mask: Vec<Vec<bool>>,
}

impl Batch {
    fn read(inputs: &Value) -> Self {
        let on = |row: Vec<f64>| row.iter().map(|&on| on > 0.0).collect();
        Self {
            rewards: table(&inputs["token_level_rewards"]),
            mask: table(&inputs["response_mask"])
                .into_iter()
                .map(on)
                .collect(),
        }
    }

    fn rows(&self) -> Vec<TokenRow<'_>> {
        let row = |(rewards, mask)| TokenRow { rewards, mask };
        let pairs = self.rewards.iter().map(Vec::as_slice);
        pairs
            .zip(self.mask.iter().map(Vec::as_slice))
            .map(row)
            .collect()
    }

    fn scores(&self) -> Vec<f64> {
        self.rewards.iter().map(|row| row.iter().sum()).collect()
    }

    fn lengths(&self) -> Vec<u32> {
        let length = |row: &Vec<bool>| row.iter().filter(|&&on| on).count() as u32;
        self.mask.iter().map(length).collect()
    }

    /// One advantage a row, on the sampled tokens.
    fn spread(&self, advantages: &[f64]) -> Vec<Vec<f64>> {
        let lay = |(&value, mask): (&f64, &Vec<bool>)| {
            mask.iter()
                .map(|&on| if on { value } else { 0.0 })
                .collect()
        };
        advantages.iter().zip(&self.mask).map(lay).collect()
    }
}

/// Compares the tables that a case expects with ours. Unknown keys are failures.
fn compare(case: &Value, meta: &Value, ours: &[(&str, &Vec<Vec<f64>>)]) -> Result<(), String> {
    let (absolute, relative) = tolerance(case, meta);
    for (key, theirs) in case["expected"].as_object().unwrap() {
        let Some((_, ours)) = ours.iter().find(|(known, _)| known == key) else {
            return Err(format!("expects {key:?}, which this runner does not know"));
        };
        let theirs = table(theirs);
        if ours.len() != theirs.len() {
            return Err(format!("{key}: {} rows for {}", ours.len(), theirs.len()));
        }
        for (row, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
            if ours.len() != theirs.len() {
                return Err(format!("{key} row {row}: another length"));
            }
            for (token, (&ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                let name = format!("{key} row {row} token {token}");
                close(&name, ours, theirs, absolute, relative)?;
            }
        }
    }
    Ok(())
}

/// Whether the peer raised an error on this case.
fn raises(case: &Value) -> bool {
    let error = &case["expected"]["error"];
    !error.is_null() && error != &Value::Bool(false)
}

/// Ours and theirs agree that there is a result, or that there is none.
fn settle(
    case: &Value,
    meta: &Value,
    result: Result<Vec<(&str, Vec<Vec<f64>>)>, CreditError>,
) -> Result<(), String> {
    match (raises(case), result) {
        (true, Err(_)) => Ok(()),
        (true, Ok(_)) => Err("the peer raises an error, ours gives a result".into()),
        (false, Err(error)) => Err(error.to_string()),
        (false, Ok(ours)) => {
            let ours: Vec<_> = ours.iter().map(|(key, table)| (*key, table)).collect();
            compare(case, meta, &ours)
        }
    }
}

/// One advantage a row, group by group.
fn each_group(
    inputs: &Value,
    scores: &[f64],
    of: impl Fn(&[f64], &[usize]) -> Result<Vec<f64>, CreditError>,
) -> Result<Vec<f64>, CreditError> {
    let mut all = vec![0.0; scores.len()];
    for rows in groups(&inputs["uid"]) {
        let of_group: Vec<f64> = rows.iter().map(|&row| scores[row]).collect();
        for (&row, value) in rows.iter().zip(of(&of_group, &rows)?) {
            all[row] = value;
        }
    }
    Ok(all)
}

/// `norm_adv_by_std_in_grpo`, true unless a case says otherwise.
fn by_std(inputs: &Value) -> bool {
    let key = ["norm_by_std", "norm_adv_by_std_in_grpo"];
    key.iter()
        .find_map(|key| inputs[*key].as_bool())
        .unwrap_or(true)
}

fn by_score(case: &Value, meta: &Value) -> Result<(), String> {
    let inputs = &case["inputs"];
    let batch = Batch::read(inputs);
    let (scores, lengths) = (batch.scores(), batch.lengths());
    let std = by_std(inputs);
    let function = inputs["fn"].as_str().unwrap_or("grpo");
    let advantages = match function {
        "grpo" | "grpo_vectorized" => each_group(inputs, &scores, |of, _| group::grpo(of, std)),
        "grpo_passk" => each_group(inputs, &scores, |of, _| group::grpo_passk(of, std)),
        "rloo" | "rloo_vectorized" => each_group(inputs, &scores, |of, _| group::rloo(of)),
        "opo" => each_group(inputs, &scores, |of, rows| {
            let lengths: Vec<u32> = rows.iter().map(|&row| lengths[row]).collect();
            group::opo(of, &lengths)
        }),
        "gpg" => {
            let alpha = group::gpg_scale(scores.iter().copied());
            let norm = inputs["f_norm"].as_f64().unwrap_or(1.0);
            each_group(inputs, &scores, |of, _| group::gpg(of, alpha, norm))
        }
        _ => return Err(format!("the function {function:?} is not known")),
    };
    let tables = advantages.map(|advantages| {
        let spread = batch.spread(&advantages);
        vec![("advantages", spread.clone()), ("returns", spread)]
    });
    settle(case, meta, tables)
}

fn by_function(case: &Value, meta: &Value) -> Result<(), String> {
    let inputs = &case["inputs"];
    let batch = Batch::read(inputs);
    let number = |key: &str| inputs[key].as_f64().unwrap_or(1.0);
    let function = inputs["fn"].as_str().unwrap_or("gae");
    let estimates = match function {
        "reinforce_plus_plus" => group::reinforce_plus_plus(&batch.rows(), number("gamma")),
        "remax" => group::remax(&batch.rows(), &floats(&inputs["reward_baselines"])),
        "gae" => {
            let values = table(&inputs["values"]);
            let values: Vec<&[f64]> = values.iter().map(Vec::as_slice).collect();
            group::gae(&batch.rows(), &values, number("gamma"), number("lam"))
        }
        "reinforce_plus_plus_baseline" => return whitened_groups(case, meta, &batch),
        _ => return Err(format!("the function {function:?} is not known")),
    };
    let tables = estimates.map(|of| vec![("advantages", of.advantages), ("returns", of.returns)]);
    settle(case, meta, tables)
}

fn whitened_groups(case: &Value, meta: &Value, batch: &Batch) -> Result<(), String> {
    let (scores, lengths) = (batch.scores(), batch.lengths());
    let members = groups(&case["inputs"]["uid"]);
    let parts: Vec<(Vec<f64>, Vec<u32>)> = members
        .iter()
        .map(|rows| rows.iter().map(|&row| (scores[row], lengths[row])).unzip())
        .collect();
    let pairs: Vec<(&[f64], &[u32])> = parts
        .iter()
        .map(|(scores, lengths)| (scores.as_slice(), lengths.as_slice()))
        .collect();
    let tables = group::reinforce_plus_plus_baseline(&pairs).map(|of_groups| {
        let mut all = vec![0.0; scores.len()];
        for (rows, values) in members.iter().zip(of_groups) {
            for (&row, value) in rows.iter().zip(values) {
                all[row] = value;
            }
        }
        let spread = batch.spread(&all);
        vec![("advantages", spread.clone()), ("returns", spread)]
    });
    settle(case, meta, tables)
}

fn masked_stats(case: &Value, meta: &Value) -> Result<(), String> {
    let (inputs, (absolute, relative)) = (&case["inputs"], tolerance(case, meta));
    let (values, mask) = (table(&inputs["values"]), table(&inputs["mask"]));
    let on = |row: &Vec<f64>| row.iter().map(|&on| on > 0.0).collect::<Vec<bool>>();
    let mask: Vec<Vec<bool>> = mask.iter().map(on).collect();
    let (flat, flat_mask) = (values.concat(), mask.concat());
    let variance = |unbiased| masked_variance(&flat, &flat_mask, unbiased);
    let near =
        |key: &str, ours: f64, theirs: &Value| close(key, ours, number(theirs), absolute, relative);
    let nears = |key: &str, ours: &[f64], theirs: &[f64]| {
        if ours.len() != theirs.len() {
            return Err(format!("{key}: another length"));
        }
        let mut pairs = ours.iter().zip(theirs);
        pairs.try_for_each(|(&ours, &theirs)| close(key, ours, theirs, absolute, relative))
    };
    let text = |error: CreditError| error.to_string();
    for (key, theirs) in case["expected"].as_object().unwrap() {
        match key.as_str() {
            "sum" => near(key, masked_sum(&flat, &flat_mask), theirs)?,
            "mean" => near(key, masked_mean(&flat, &flat_mask), theirs)?,
            "mean_axis1" => {
                let rows = values.iter().zip(&mask);
                let means: Vec<f64> = rows.map(|(row, mask)| masked_mean(row, mask)).collect();
                nears(key, &means, &floats(theirs))?;
            }
            "var" => near(key, variance(true).map_err(text)?, theirs)?,
            "var_biased" => near(key, variance(false).map_err(text)?, theirs)?,
            "var_error" if theirs.is_null() == variance(true).is_ok() => {}
            "var_error" => return Err(format!("var_error is {theirs}, ours {:?}", variance(true))),
            "whiten" | "whiten_noshift" => {
                let ours = whiten(&flat, &flat_mask, key == "whiten").map_err(text)?;
                nears(key, &ours, &table(theirs).concat())?;
            }
            _ => return Err(format!("expects {key:?}, which this runner does not know")),
        }
    }
    Ok(())
}

/// verl's 32-bit twin in every group; ours too, wherever the floor of 1e-3 is far.
pub fn grpo_vectorized(case: &Value, meta: &Value) -> Result<(), String> {
    let inputs = &case["inputs"];
    let batch = Batch::read(inputs);
    let std = by_std(inputs);
    let theirs = each_group(inputs, &batch.scores(), |of, _| {
        Ok(verl::grpo_vectorized(of, std))
    });
    agree_where(case, &batch, |of| {
        let (_, deviation) = group::mean_std(of);
        let apart = deviation > 1e-2;
        apart.then(|| (group::grpo(of, std), verl::grpo_vectorized(of, std)))
    })?;
    settle(
        case,
        meta,
        theirs.map(|of| vec![("advantages", batch.spread(&of))]),
    )
}

/// verl's formula without a word about equal scores; ours too, to what rounding is worth.
pub fn grpo_of_equal_scores(case: &Value, meta: &Value) -> Result<(), String> {
    let inputs = &case["inputs"];
    let batch = Batch::read(inputs);
    let ours = each_group(inputs, &batch.scores(), |of, _| group::grpo(of, true));
    let ours = batch.spread(&ours.map_err(|error| error.to_string())?);
    let (_, relative) = tolerance(case, meta);
    let theirs = table(&case["expected"]["advantages"]);
    for (ours, theirs) in ours.iter().flatten().zip(theirs.iter().flatten()) {
        close("to rounding over 1e-6", *ours, *theirs, 1e-7, relative)?;
    }
    Ok(())
}

/// verl's twin in every group; ours too, but for groups of one.
pub fn rloo_vectorized(case: &Value, meta: &Value) -> Result<(), String> {
    let inputs = &case["inputs"];
    let batch = Batch::read(inputs);
    let theirs = each_group(inputs, &batch.scores(), |of, _| {
        Ok(verl::rloo_vectorized(of))
    });
    agree_where(case, &batch, |of| {
        (of.len() > 1).then(|| (group::rloo(of), verl::rloo_vectorized(of)))
    })?;
    settle(
        case,
        meta,
        theirs.map(|of| vec![("advantages", batch.spread(&of))]),
    )
}

/// verl's factor; ours is the same number to 32 bits.
pub fn gpg_in_32_bits(case: &Value, meta: &Value) -> Result<(), String> {
    let inputs = &case["inputs"];
    let batch = Batch::read(inputs);
    let scores = batch.scores();
    let (ours, theirs) = (
        group::gpg_scale(scores.iter().copied()),
        verl::gpg_scale(&scores),
    );
    close("the factor", ours, theirs, 0.0, 1e-6)?;
    let norm = inputs["f_norm"].as_f64().unwrap_or(1.0);
    let theirs = each_group(inputs, &scores, |of, _| group::gpg(of, theirs, norm));
    settle(
        case,
        meta,
        theirs.map(|of| vec![("advantages", batch.spread(&of))]),
    )
}

/// Ours and a twin, for a group in which the two should agree.
type Pair = (Result<Vec<f64>, CreditError>, Vec<f64>);

fn agree_where(
    case: &Value,
    batch: &Batch,
    pair: impl Fn(&[f64]) -> Option<Pair>,
) -> Result<(), String> {
    let scores = batch.scores();
    for rows in groups(&case["inputs"]["uid"]) {
        let of_group: Vec<f64> = rows.iter().map(|&row| scores[row]).collect();
        let Some((ours, theirs)) = pair(&of_group) else {
            continue;
        };
        for (ours, theirs) in ours.map_err(|error| error.to_string())?.iter().zip(theirs) {
            close("ours and the twin", *ours, theirs, 1e-4, 1e-4)?;
        }
    }
    Ok(())
}

/// verl before its PR #7300.
pub fn reinforce_plus_plus_reset(case: &Value, meta: &Value) -> Result<(), String> {
    let batch = Batch::read(&case["inputs"]);
    let gamma = case["inputs"]["gamma"].as_f64().unwrap_or(1.0);
    let (returns, advantages) = verl::reinforce_plus_plus(&batch.rows(), gamma);
    compare(
        case,
        meta,
        &[("advantages", &advantages), ("returns", &returns)],
    )
}

/// verl everywhere; ours on the sampled tokens, and exactly zero elsewhere.
pub fn remax_unmasked(case: &Value, meta: &Value) -> Result<(), String> {
    let batch = Batch::read(&case["inputs"]);
    let baselines = floats(&case["inputs"]["reward_baselines"]);
    let (returns, advantages) = verl::remax(&batch.rows(), &baselines);
    let ours = group::remax(&batch.rows(), &baselines).map_err(|error| error.to_string())?;
    same_where_sampled(&batch, &ours.advantages, &advantages)?;
    same_where_sampled(&batch, &ours.returns, &returns)?;
    compare(
        case,
        meta,
        &[("advantages", &advantages), ("returns", &returns)],
    )
}

/// verl everywhere; ours on the sampled tokens, and exactly zero elsewhere.
pub fn gae_unmasked(case: &Value, meta: &Value) -> Result<(), String> {
    let inputs = &case["inputs"];
    let batch = Batch::read(inputs);
    let values = table(&inputs["values"]);
    let values: Vec<&[f64]> = values.iter().map(Vec::as_slice).collect();
    let of = |key: &str| inputs[key].as_f64().unwrap_or(1.0);
    let (gamma, lambda) = (of("gamma"), of("lam"));
    let (returns, advantages) = verl::gae(&batch.rows(), &values, gamma, lambda);
    let ours = group::gae(&batch.rows(), &values, gamma, lambda);
    let ours = ours.map_err(|error| error.to_string())?;
    same_where_sampled(&batch, &ours.advantages, &advantages)?;
    same_where_sampled(&batch, &ours.returns, &returns)?;
    compare(
        case,
        meta,
        &[("advantages", &advantages), ("returns", &returns)],
    )
}

fn same_where_sampled(batch: &Batch, ours: &[Vec<f64>], theirs: &[Vec<f64>]) -> Result<(), String> {
    for ((ours, theirs), mask) in ours.iter().zip(theirs).zip(&batch.mask) {
        for ((&ours, &theirs), &on) in ours.iter().zip(theirs).zip(mask) {
            if on {
                close("on a sampled token", ours, theirs, 1e-9, 1e-9)?;
            } else if ours != 0.0 {
                return Err(format!("ours carry {ours} on a masked token"));
            }
        }
    }
    Ok(())
}

//! Choosing tokens: greedy, or by the inverse of the cumulative distribution at an addressed
//! uniform number, so that the make-up of a batch changes nothing.

use tch::{Kind, Tensor};

use crate::engine::{EngineError, Sampling};
use crate::trajectory::TokenId;

use super::batch::{check_temperature, heat};

/// So many of the likeliest ids are sorted first; only if top-p needs more, all are.
const SORTED_FIRST: i64 = 1_024;

/// How one row's id is chosen.
pub(super) struct Choice<'a> {
    pub sampling: &'a Sampling,
    /// In [0, 1).
    pub uniform: f64,
    /// The ids before, for the repetition penalty.
    pub ids: &'a [TokenId],
}

/// Checks the settings of one request.
///
/// # Errors
/// [`EngineError::BadRequest`], naming `what`, the value and the rule.
pub(super) fn check_sampling(what: &str, sampling: &Sampling) -> Result<(), EngineError> {
    check_temperature(what, sampling.temperature)?;
    let rules = [
        (
            sampling.top_p > 0.0 && sampling.top_p <= 1.0,
            format!(
                "top_p is {}, but must be above 0 and at most 1",
                sampling.top_p
            ),
        ),
        (
            (0.0..=1.0).contains(&sampling.min_p),
            format!("min_p is {}, but must be from 0 to 1", sampling.min_p),
        ),
        (
            sampling.repetition_penalty > 0.0 && sampling.repetition_penalty.is_finite(),
            format!(
                "repetition_penalty is {}, but must be above 0",
                sampling.repetition_penalty
            ),
        ),
    ];
    match rules.into_iter().find(|(kept, _)| !kept) {
        Some((_, rule)) => Err(EngineError::BadRequest(format!("{what}: {rule}"))),
        None => Ok(()),
    }
}

/// Chooses one id for each row of `logits` [rows, vocab]. Gives ids and their log-probs in the whole
/// distribution at the row's temperature (1 if greedy).
pub(super) fn sample(logits: &Tensor, choices: &[Choice<'_>]) -> Vec<(i64, f32)> {
    let device = logits.device();
    let logprobs = heated(logits, choices).log_softmax(-1, None::<Kind>);
    let shaped: Vec<i64> = (0i64..)
        .zip(choices)
        .filter(|(_, choice)| choice.sampling.is_shaped())
        .map(|(row, _)| row)
        .collect();
    // The log-probs of what is drawn from.
    let drawn_from = if shaped.is_empty() {
        logprobs.shallow_clone()
    } else {
        let rows = Tensor::from_slice(&shaped).to_device(device);
        let choices: Vec<&Choice<'_>> = shaped.iter().map(|&row| &choices[row as usize]).collect();
        logprobs.index_copy(0, &rows, &shape(&logits.index_select(0, &rows), &choices))
    };
    let greedy: Vec<bool> = choices
        .iter()
        .map(|c| c.sampling.temperature == 0.0)
        .collect();
    let ids = if greedy.iter().all(|&g| g) {
        drawn_from.argmax(-1, true)
    } else {
        let uniforms: Vec<f64> = choices.iter().map(|choice| choice.uniform).collect();
        let drawn = draw(&drawn_from, &uniforms);
        if greedy.contains(&true) {
            let greedy = Tensor::from_slice(&greedy).unsqueeze(1).to_device(device);
            drawn_from.argmax(-1, true).where_self(&greedy, &drawn)
        } else {
            drawn
        }
    };
    // One transfer; an id is exact in f64.
    let chosen = logprobs.gather(1, &ids, false).to_kind(Kind::Double);
    let both = Tensor::cat(&[ids.to_kind(Kind::Double), chosen], 1).contiguous();
    let mut flat = vec![0f64; both.numel()];
    both.copy_data(&mut flat, both.numel());
    flat.chunks_exact(2)
        .map(|pair| (pair[0] as i64, pair[1] as f32))
        .collect()
}

/// Logits divided by the temperatures.
fn heated(logits: &Tensor, choices: &[Choice<'_>]) -> Tensor {
    let heats: Vec<f32> = choices
        .iter()
        .map(|c| heat(c.sampling.temperature))
        .collect();
    if heats.iter().all(|&heat| heat == 1.0) {
        return logits.shallow_clone();
    }
    logits
        / Tensor::from_slice(&heats)
            .unsqueeze(1)
            .to_device(logits.device())
}

/// One id a row by the inverse of the cumulative distribution.
fn draw(logprobs: &Tensor, uniforms: &[f64]) -> Tensor {
    let cumulative = logprobs.exp().cumsum(-1, Kind::Double);
    let total = cumulative
        .narrow(1, cumulative.size()[1] - 1, 1)
        .contiguous();
    let uniforms = Tensor::from_slice(uniforms)
        .unsqueeze(1)
        .to_device(logprobs.device());
    // The first id whose cumulative probability is above u * total has itself a probability
    // above 0. If rounding lifts u * total to the total, it is the last such id.
    let at = first(&cumulative, &(&total * uniforms), true);
    at.minimum(&first(&cumulative, &total, false))
}

/// Per row, the first index whose entry of `sorted` is at least `value` (or above it).
fn first(sorted: &Tensor, value: &Tensor, above: bool) -> Tensor {
    let side = if above { "right" } else { "left" };
    value.searchsorted(sorted, false, above, side, None::<&Tensor>)
}

/// Log-probs after penalty, temperature and cuts; -inf where an id is cut. Ids as likely as the last one
/// that a cut keeps are kept too, so that their order does not matter.
fn shape(logits: &Tensor, choices: &[&Choice<'_>]) -> Tensor {
    let logits = logits.copy();
    for (row, choice) in (0i64..).zip(choices) {
        penalise(&logits.get(row), choice);
    }
    let column = |values: Vec<f32>| {
        Tensor::from_slice(&values)
            .unsqueeze(1)
            .to_device(logits.device())
    };
    let of = |value: &dyn Fn(&Sampling) -> f32| {
        column(
            choices
                .iter()
                .map(|choice| value(choice.sampling))
                .collect(),
        )
    };
    let logprobs = (&logits / of(&|s| heat(s.temperature))).log_softmax(-1, None::<Kind>);
    let probabilities = logprobs.exp();
    let likeliest = probabilities.amax([-1], true);
    let mut least = &likeliest * of(&|s| s.min_p);
    if choices
        .iter()
        .any(|c| c.sampling.top_k > 0 || c.sampling.top_p < 1.0)
    {
        least = least.maximum(&last_kept(&probabilities, choices, &of));
    }
    logprobs.masked_fill(&probabilities.lt_tensor(&least), f64::NEG_INFINITY)
}

/// The probability of the last id that top-k and then top-p keep, [rows, 1].
fn last_kept(
    probabilities: &Tensor,
    choices: &[&Choice<'_>],
    of: &dyn Fn(&dyn Fn(&Sampling) -> f32) -> Tensor,
) -> Tensor {
    let vocabulary = probabilities.size()[1];
    // Without a cut: more ids, or more probability, than there are.
    let most_ids = of(&|s| match s.top_k {
        0 => f32::INFINITY,
        k => k as f32,
    });
    let share = of(&|s| if s.top_p < 1.0 { s.top_p } else { 2.0 });
    let mut width = SORTED_FIRST.min(vocabulary);
    loop {
        let (sorted, _) = probabilities.topk(width, -1, true, true);
        let rank = Tensor::arange(width, (Kind::Float, sorted.device()));
        let kept = &sorted * rank.lt_tensor(&most_ids);
        // Top-p is a share of what top-k leaves.
        let whole = of(&|s| if s.top_k > 0 { 0.0 } else { 1.0 });
        let total = kept.sum_dim_intlist(-1, true, Kind::Float).maximum(&whole);
        let before = kept.cumsum(-1, Kind::Double) - &kept;
        let stays = before
            .lt_tensor(&(&share * &total))
            .logical_and(&rank.lt_tensor(&most_ids));
        let count = stays.sum_dim_intlist(-1, true, Kind::Int64);
        let cut_short = choices.iter().any(|c| c.sampling.top_k as i64 > width)
            || (0i64..).zip(choices).any(|(row, choice)| {
                let open = choice.sampling.top_k == 0 && choice.sampling.top_p < 1.0;
                open && count.int64_value(&[row, 0]) >= width
            });
        if width < vocabulary && cut_short {
            width = vocabulary;
            continue;
        }
        // Rows without a cut keep everything.
        let uncut = of(&|s| f32::from(u8::from(s.top_k > 0 || s.top_p < 1.0)));
        return sorted.gather(1, &(count - 1).clamp_min(0), false) * uncut;
    }
}

/// Penalises the ids that occurred already in a row of logits [vocab].
fn penalise(logits: &Tensor, choice: &Choice<'_>) {
    let penalty = f64::from(choice.sampling.repetition_penalty);
    if penalty == 1.0 || choice.ids.is_empty() {
        return;
    }
    let ids: Vec<i64> = choice.ids.iter().map(|&id| i64::from(id)).collect();
    let ids = Tensor::from_slice(&ids).to_device(logits.device());
    let before = logits.index_select(0, &ids);
    let after = (&before / penalty).where_self(&before.gt(0.0), &(&before * penalty));
    // An id that occurs twice is written twice with the same number.
    let _ = logits.shallow_clone().index_copy_(0, &ids, &after);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logits(probabilities: &[f32]) -> Tensor {
        Tensor::from_slice(probabilities).log().unsqueeze(0)
    }

    fn draw_with(
        logits: &Tensor,
        sampling: Sampling,
        uniforms: &[f64],
        ids: &[u32],
    ) -> Vec<(i64, f32)> {
        let choice = |&uniform: &f64| Choice {
            sampling: &sampling,
            uniform,
            ids,
        };
        let choices: Vec<Choice<'_>> = uniforms.iter().map(choice).collect();
        sample(&logits.repeat([uniforms.len() as i64, 1]), &choices)
    }

    #[test]
    fn the_uniform_number_picks_the_id_whose_share_it_falls_into() {
        let logits = logits(&[0.0, 0.25, 0.0, 0.5, 0.25, 0.0]);
        for (uniform, expected) in [
            (0.0, 1),
            (0.2499, 1),
            (0.2501, 3),
            (0.7499, 3),
            (0.7501, 4),
            (1.0 - f64::EPSILON / 2.0, 4),
            (1.0, 4), // what rounding could make of it
        ] {
            let chosen = draw_with(&logits, Sampling::plain(1.0, 0), &[uniform], &[]);
            assert_eq!(chosen[0].0, expected, "{uniform}");
        }
    }

    #[test]
    fn rows_have_their_own_temperature_and_greedy_takes_the_likeliest() {
        let rows = logits(&[0.2, 0.5, 0.3]).repeat([3, 1]);
        let settings = [0.0, 1.0, 0.5].map(|t| Sampling::plain(t, 0));
        let choices: Vec<Choice<'_>> = settings
            .iter()
            .zip([0.0, 0.0, 0.999])
            .map(|(sampling, uniform)| Choice {
                sampling,
                uniform,
                ids: &[],
            })
            .collect();
        let chosen = sample(&rows, &choices);
        assert_eq!(chosen.iter().map(|c| c.0).collect::<Vec<_>>(), [1, 0, 2]);
        assert!((chosen[0].1 - 0.5f32.ln()).abs() < 1e-6);
        assert!((chosen[1].1 - 0.2f32.ln()).abs() < 1e-6);
        let squares = 0.04 + 0.25 + 0.09;
        assert!((chosen[2].1 - (0.09f32 / squares).ln()).abs() < 1e-5);
    }

    /// 4000 numbers spread evenly.
    fn even() -> Vec<f64> {
        (0..4000).map(|i| (f64::from(i) + 0.5) / 4000.0).collect()
    }

    fn shares(chosen: &[(i64, f32)]) -> Vec<usize> {
        let share = |id| chosen.iter().filter(|c| c.0 == id).count();
        (0..4).map(share).collect()
    }

    #[test]
    fn shares_of_samples_match_the_distribution() {
        let logits = logits(&[0.1, 0.6, 0.3]);
        let chosen = draw_with(&logits, Sampling::plain(1.0, 0), &even(), &[]);
        assert_eq!(shares(&chosen), [400, 2400, 1200, 0]);
    }

    #[test]
    fn cuts_leave_the_likeliest_in_their_proportions_and_log_probs_whole() {
        let logits = logits(&[0.1, 0.4, 0.2, 0.3]);
        let plain = Sampling::plain(1.0, 0);
        let cases = [
            (
                Sampling { top_k: 2, ..plain },
                [0.0, 4.0 / 7.0, 0.0, 3.0 / 7.0],
            ),
            (Sampling { top_k: 9, ..plain }, [0.1, 0.4, 0.2, 0.3]),
            (
                Sampling {
                    top_p: 0.65,
                    ..plain
                },
                [0.0, 4.0 / 7.0, 0.0, 3.0 / 7.0],
            ),
            (
                Sampling {
                    top_p: 0.75,
                    ..plain
                },
                [0.0, 4.0 / 9.0, 2.0 / 9.0, 3.0 / 9.0],
            ),
            (
                Sampling {
                    top_p: 1e-6,
                    ..plain
                },
                [0.0, 1.0, 0.0, 0.0],
            ),
            // 0.5 of the 0.9 that top-k leaves is 0.45.
            (
                Sampling {
                    top_k: 3,
                    top_p: 0.5,
                    ..plain
                },
                [0.0, 4.0 / 7.0, 0.0, 3.0 / 7.0],
            ),
            (
                Sampling {
                    min_p: 0.4,
                    ..plain
                },
                [0.0, 4.0 / 9.0, 2.0 / 9.0, 3.0 / 9.0],
            ),
            (
                Sampling {
                    min_p: 1.0,
                    ..plain
                },
                [0.0, 1.0, 0.0, 0.0],
            ),
            // Temperature comes before the cut: squares are 1, 16, 4, 9 of 30.
            (
                Sampling {
                    temperature: 0.5,
                    top_p: 0.8,
                    ..plain
                },
                [0.0, 16.0 / 25.0, 0.0, 9.0 / 25.0],
            ),
        ];
        for (sampling, expected) in cases {
            let chosen = draw_with(&logits, sampling, &even(), &[]);
            for (share, expected) in shares(&chosen).into_iter().zip(expected) {
                let gap = (share as f64 - 4000.0 * expected).abs();
                assert!(gap <= 1.0, "{sampling:?}: {share} of 4000, not {expected}");
            }
            let whole = sample(
                &logits,
                &[Choice {
                    sampling: &Sampling::plain(sampling.temperature, 0),
                    uniform: 0.3,
                    ids: &[],
                }],
            );
            let again = chosen.iter().find(|c| c.0 == whole[0].0).unwrap();
            assert_eq!(again.1, whole[0].1);
        }
    }

    #[test]
    fn top_p_over_many_ids_sorts_as_far_as_it_must() {
        let flat = Tensor::zeros([1, 4_000], (Kind::Float, tch::Device::Cpu))
            - Tensor::arange(4_000, (Kind::Float, tch::Device::Cpu)) * 1e-4;
        let sampling = Sampling {
            top_p: 0.75,
            ..Sampling::plain(1.0, 0)
        };
        let last = draw_with(&flat, sampling, &[0.999_999], &[])[0].0;
        let probabilities = flat
            .softmax(-1, Kind::Double)
            .cumsum(-1, Kind::Double)
            .squeeze();
        let expected = (0..4_000)
            .find(|&i| probabilities.double_value(&[i]) >= 0.75)
            .unwrap();
        assert!((last - expected).abs() <= 1, "{last}, not {expected}");
    }

    #[test]
    fn repeated_ids_are_penalised_once_whatever_their_sign() {
        // Logits 2, 1, -1; penalty 2 makes ids 0 and 2 1 and -2.
        let logits = Tensor::from_slice(&[2.0f32, 1.5, -1.0]).unsqueeze(0);
        let penalised = Sampling {
            repetition_penalty: 2.0,
            ..Sampling::plain(0.0, 0)
        };
        assert_eq!(draw_with(&logits, penalised, &[0.0], &[0, 2, 0])[0].0, 1);
        assert_eq!(draw_with(&logits, penalised, &[0.0], &[2])[0].0, 0);
        let choice = Choice {
            sampling: &penalised,
            uniform: 0.0,
            ids: &[0, 2, 0, 2],
        };
        let shaped = shape(&logits, &[&choice]).exp();
        let expected = Tensor::from_slice(&[1.0f32, 1.5, -2.0]).softmax(-1, Kind::Float);
        assert!((shaped - expected).abs().max().double_value(&[]) < 1e-6);
        let log_prob = draw_with(&logits, penalised, &[0.0], &[0, 2, 0])[0].1;
        let whole = logits.log_softmax(-1, Kind::Float).double_value(&[0, 1]);
        assert!((f64::from(log_prob) - whole).abs() < 1e-6);
    }

    #[test]
    fn settings_out_of_range_are_refused_with_their_value() {
        let plain = Sampling::plain(1.0, 0);
        for (sampling, part) in [
            (
                Sampling {
                    top_p: 0.0,
                    ..plain
                },
                "top_p is 0",
            ),
            (
                Sampling {
                    top_p: 1.5,
                    ..plain
                },
                "top_p is 1.5",
            ),
            (
                Sampling {
                    min_p: -0.1,
                    ..plain
                },
                "min_p is -0.1",
            ),
            (
                Sampling {
                    repetition_penalty: 0.0,
                    ..plain
                },
                "repetition_penalty is 0",
            ),
            (
                Sampling {
                    temperature: f32::NAN,
                    ..plain
                },
                "temperature is NaN",
            ),
        ] {
            let error = check_sampling("turn 1", &sampling).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("turn 1"), "{error}");
        }
    }
}

//! Losses: the peers' own figures, gradients against finite differences in float64, and splits of a
//! mini-batch that change nothing.

#![cfg(feature = "torch")]
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod golden_losses;

use golden_losses::{exception, runner};
use palimpsest::torch::loss::{
    Aggregation, Clip, Denominators, KlKind, PolicyForm, Tokens, aggregate, entropy, kl, value_loss,
};
use tch::{Kind, Tensor};

#[test]
fn the_peers_own_figures_of_losses_are_met() {
    let folder = std::env::var("PALIMPSEST_GOLDEN").unwrap_or_else(|_| "tests/golden".into());
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("PALIMPSEST_GOLDEN {folder:?} cannot be read: {error}"))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect();
    files.sort();
    let mut failures = Vec::new();
    for path in files {
        let file: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let family = file["meta"]["family"].as_str().unwrap_or("unnamed");
        let Some(run) = runner(family) else {
            continue;
        };
        let (mut ran, mut excepted) = (0, 0);
        for case in file["cases"].as_array().unwrap() {
            let name = case["name"].as_str().unwrap();
            if let Some(reason) = exception(name) {
                println!("{family} {name}: {reason}");
                excepted += 1;
                continue;
            }
            ran += 1;
            if let Err(problem) = run(case, &file["meta"]) {
                failures.push(format!("{family} {name}: {problem}"));
            }
        }
        println!("{family}: {ran} ran, {excepted} exceptions");
    }
    assert!(
        failures.is_empty(),
        "{} cases failed:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

const CLIP: Clip = Clip {
    low: 0.2,
    high: 0.28,
    dual: 3.0,
};
const WEIGHTS: [f64; 12] = [
    0.3, -0.8, 1.1, 0.45, -0.6, 0.9, 0.25, -1.2, 0.7, 0.15, -0.35, 0.55,
];

/// Three rows of four tokens. A row has one advantage, so that losses of rows are true functions.
struct Batch {
    logprobs: Tensor,
    old: Tensor,
    advantages: Tensor,
    mask: Tensor,
}

fn batch() -> Batch {
    let grid = |list: &[f64]| Tensor::from_slice(list).view([3, 4]);
    Batch {
        logprobs: grid(&[
            -0.5, -1.7, -0.05, -2.2, -1.0, -0.3, -0.9, -1.4, -0.7, -2.6, -0.15, -1.1,
        ]),
        old: grid(&[
            -0.6, -0.9, -1.4, -2.1, -1.1, -0.45, -2.9, -1.35, -0.75, -2.0, -0.2, -0.4,
        ]),
        advantages: grid(&[
            1.0, 1.0, 1.0, 1.0, -0.7, -0.7, -0.7, -0.7, 0.4, 0.4, 0.4, 0.4,
        ]),
        mask: grid(&[1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0]),
    }
}

/// The gradient of `f` at `x` against central differences.
fn check_gradient(name: &str, x: &Tensor, f: &dyn Fn(&Tensor) -> Tensor) {
    check_against(name, x, f, f);
}

/// The gradient of `f` at `x` against central differences of `value`.
fn check_against(
    name: &str,
    x: &Tensor,
    f: &dyn Fn(&Tensor) -> Tensor,
    value: &dyn Fn(&Tensor) -> Tensor,
) {
    let leaf = x.copy().set_requires_grad(true);
    f(&leaf).backward();
    let gradient = leaf.grad().view(-1);
    let step = 1e-6;
    for at in 0..x.numel() as i64 {
        let shifted = |by: f64| {
            let moved = x.copy();
            let mut entry = moved.view(-1).get(at);
            let before = entry.double_value(&[]);
            let _ = entry.fill_(before + by);
            value(&moved).double_value(&[])
        };
        let slope = (shifted(step) - shifted(-step)) / (2.0 * step);
        let ours = gradient.double_value(&[at]);
        assert!(
            (slope - ours).abs() < 1e-7,
            "{name}, entry {at}: differences say {slope}, the gradient {ours}"
        );
    }
}

fn modes() -> [Aggregation; 4] {
    [
        Aggregation::TokenMean,
        Aggregation::SeqMeanTokenSum,
        Aggregation::SeqMeanTokenMean,
        Aggregation::SeqMeanTokenSumNorm(16.0),
    ]
}

fn forms() -> Vec<(&'static str, PolicyForm)> {
    vec![
        ("ppo", PolicyForm::Ppo(CLIP)),
        ("gspo", PolicyForm::Gspo(CLIP)),
        ("gmpo", PolicyForm::Gmpo(CLIP)),
        ("gpg", PolicyForm::Gpg),
        (
            "clip_cov",
            PolicyForm::ClipCov {
                clip: CLIP,
                share: 0.3,
                lower: 0.05,
                upper: 5.0,
            },
        ),
        (
            "kl_cov",
            PolicyForm::KlCov {
                share: 0.3,
                weight: 0.7,
            },
        ),
    ]
}

/// What `choose` says for the batch at its own log-probs.
fn chosen(form: &PolicyForm, b: &Batch) -> Tensor {
    let on: Vec<f64> = Vec::try_from(b.mask.view(-1)).unwrap();
    let places: Vec<usize> = (0..on.len()).filter(|&at| on[at] > 0.0).collect();
    let of = |x: &Tensor| -> Vec<f64> {
        let all: Vec<f64> = Vec::try_from(x.view(-1)).unwrap();
        places.iter().map(|&at| all[at]).collect()
    };
    let picked = form.choose(&of(&b.logprobs), &of(&b.old), &of(&b.advantages), (3, 1, 0));
    let mut flat = vec![0f64; on.len()];
    for (&at, on) in places.iter().zip(picked) {
        flat[at] = f64::from(u8::from(on));
    }
    Tensor::from_slice(&flat).view_as(&b.mask)
}

fn counts(mask: &Tensor) -> Vec<usize> {
    let sums: Vec<f64> = Vec::try_from(mask.sum_dim_intlist(-1, false, Kind::Double)).unwrap();
    sums.into_iter().map(|n| n as usize).collect()
}

fn policy_loss(
    form: &PolicyForm,
    x: &Tensor,
    b: &Batch,
    picked: &Tensor,
    mode: Aggregation,
) -> Tensor {
    let terms = form.terms(&Tokens {
        logprobs: x,
        old: &b.old,
        advantages: &b.advantages,
        mask: &b.mask,
        chosen: Some(picked),
    });
    let denominators = Denominators::of(&counts(&b.mask));
    aggregate(&terms.loss, &b.mask, form.aggregation(mode), &denominators)
}

#[test]
fn gradients_of_policy_losses_agree_with_finite_differences() {
    let b = batch();
    for (name, form) in forms() {
        let picked = chosen(&form, &b);
        for mode in modes() {
            check_gradient(&format!("{name} {mode:?}"), &b.logprobs, &|x| {
                policy_loss(&form, x, &b, &picked, mode)
            });
        }
    }
}

#[test]
fn the_gradient_of_cispo_is_that_of_a_log_prob_with_a_constant_weight() {
    let b = batch();
    let form = PolicyForm::Cispo(CLIP);
    let weight = (&b.logprobs - &b.old).exp().clamp(0.8, 1.28);
    let denominators = Denominators::of(&counts(&b.mask));
    for mode in modes() {
        check_against(
            "cispo",
            &b.logprobs,
            &|x| policy_loss(&form, x, &b, &b.mask, mode),
            &|x| {
                let loss = -&weight * &b.advantages * x;
                aggregate(&loss, &b.mask, mode, &denominators)
            },
        );
    }
}

#[test]
fn gradients_of_every_kl_agree_with_finite_differences_and_straight_ones_have_that_of_k2() {
    let b = batch();
    let weights = Tensor::from_slice(&WEIGHTS).view([3, 4]);
    let total = |kind: KlKind, x: &Tensor| (kl(kind, x, &b.old) * &weights).sum(Kind::Double);
    for kind in [KlKind::K1, KlKind::Abs, KlKind::K2, KlKind::K3] {
        check_gradient(&format!("{kind:?}"), &b.logprobs, &|x| total(kind, x));
    }
    let straight = [
        (KlKind::K1Straight, KlKind::K1),
        (KlKind::AbsStraight, KlKind::Abs),
        (KlKind::K3Straight, KlKind::K3),
    ];
    for (kind, namesake) in straight {
        check_against(
            &format!("{kind:?}"),
            &b.logprobs,
            &|x| total(kind, x),
            &|x| total(KlKind::K2, x),
        );
        let gap = kl(kind, &b.logprobs, &b.old) - kl(namesake, &b.logprobs, &b.old);
        assert!(gap.abs().max().double_value(&[]) < 1e-15, "{kind:?}");
    }
}

#[test]
fn gradients_of_the_value_loss_and_the_entropy_agree_with_finite_differences() {
    let b = batch();
    let returns = Tensor::from_slice(&WEIGHTS).view([3, 4]);
    let denominators = Denominators::of(&counts(&b.mask));
    for mode in modes() {
        check_gradient("value", &b.logprobs, &|x| {
            let (loss, _) = value_loss(x, &b.old, &returns, 0.2);
            aggregate(&loss, &b.mask, mode, &denominators)
        });
    }
    let logits = Tensor::from_slice(&WEIGHTS).view([1, 3, 4]);
    let mask = Tensor::from_slice(&[1.0, 0.0, 1.0]).view([1, 3]);
    check_gradient("entropy", &logits, &|x| {
        let entropies = entropy(&x.log_softmax(-1, None::<Kind>));
        aggregate(
            &entropies,
            &mask,
            Aggregation::TokenMean,
            &Denominators::of(&[2]),
        )
    });
}

#[test]
fn rows_computed_alone_add_up_to_the_whole_in_value_and_gradient() {
    let b = batch();
    let mut forms = forms();
    forms.push(("cispo", PolicyForm::Cispo(CLIP)));
    let denominators = Denominators::of(&counts(&b.mask));
    for (name, form) in forms {
        let picked = chosen(&form, &b);
        for mode in modes() {
            let run = |first: i64, rows: i64, x: &Tensor| {
                let part = |t: &Tensor| t.narrow(0, first, rows);
                let terms = form.terms(&Tokens {
                    logprobs: &part(x),
                    old: &part(&b.old),
                    advantages: &part(&b.advantages),
                    mask: &part(&b.mask),
                    chosen: Some(&part(&picked)),
                });
                let loss = aggregate(
                    &terms.loss,
                    &part(&b.mask),
                    form.aggregation(mode),
                    &denominators,
                );
                loss.backward();
                loss.double_value(&[])
            };
            let whole = b.logprobs.copy().set_requires_grad(true);
            let split = b.logprobs.copy().set_requires_grad(true);
            let at_once = run(0, 3, &whole);
            let added: f64 = (0..3).map(|row| run(row, 1, &split)).sum();
            let gap = (whole.grad() - split.grad()).abs().max().double_value(&[]);
            assert!(
                (at_once - added).abs() < 1e-14 && gap < 1e-14,
                "{name} {mode:?}: {at_once} and {added}, gradients {gap} apart"
            );
        }
    }
}

#[test]
fn masked_tokens_have_no_value_and_no_gradient_even_if_they_are_not_finite() {
    let b = batch();
    for (name, form) in forms() {
        let bad = b.mask.eq(0.0);
        let nan = Tensor::full([3, 4], f64::NAN, (Kind::Double, tch::Device::Cpu));
        let dirty = Batch {
            logprobs: nan.where_self(&bad, &b.logprobs),
            old: nan.where_self(&bad, &b.old),
            advantages: nan.where_self(&bad, &b.advantages),
            mask: b.mask.copy(),
        };
        let picked = chosen(&form, &b);
        let mode = Aggregation::SeqMeanTokenMean;
        let clean = policy_loss(&form, &b.logprobs, &b, &picked, mode).double_value(&[]);
        let loss = policy_loss(&form, &dirty.logprobs, &dirty, &picked, mode).double_value(&[]);
        assert_eq!(clean, loss, "{name}");
        let x = b.logprobs.copy().set_requires_grad(true);
        policy_loss(&form, &x, &b, &picked, mode).backward();
        let outside = (x.grad() * bad.to_kind(Kind::Double)).abs().max();
        assert_eq!(outside.double_value(&[]), 0.0, "{name}");
    }
}

#[test]
fn a_mini_batch_without_a_trained_token_costs_nothing() {
    let values = Tensor::from_slice(&[1.0, f64::NAN]).view([1, 2]);
    let mask = values.zeros_like();
    for mode in modes() {
        let loss = aggregate(&values, &mask, mode, &Denominators::of(&[0]));
        assert_eq!(loss.double_value(&[]), 0.0, "{mode:?}");
    }
}

#[test]
fn the_tokens_that_clip_cov_leaves_out_depend_on_the_address_alone() {
    let form = PolicyForm::ClipCov {
        clip: CLIP,
        share: 0.25,
        lower: 0.0,
        upper: 1e9,
    };
    let logprobs: Vec<f64> = (0..64).map(|i| -0.1 * f64::from(i % 13)).collect();
    let advantages: Vec<f64> = (0..64).map(|i| f64::from(i % 7) - 3.0).collect();
    let pick = |address| form.choose(&logprobs, &logprobs, &advantages, address);
    assert_eq!(pick((1, 2, 0)), pick((1, 2, 0)));
    assert_ne!(pick((1, 2, 0)), pick((1, 2, 1)));
    assert_eq!(pick((1, 2, 0)).iter().filter(|on| **on).count(), 16);
}

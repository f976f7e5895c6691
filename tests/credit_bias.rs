//! Which baselines keep the policy gradient unbiased when the policy chooses when to stop.
//!
//! A policy of twelve logits plays at most four rounds. In each it stops, writes a good note or a poor
//! one; notes pay more the more is known, and stopping pays for what is known. The true gradient is
//! summed over every trajectory there is; the estimate is `1/N sum_i sum_t A[i][t] grad log pi`
//! with the returns of `N` rollouts centred by each baseline, over many groups.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::OnceLock;

use palimpsest::credit::baseline::{BaselineKind, PositionAverages, centre};

const ROUNDS: usize = 4;
const ACTIONS: usize = 3;
const SIZE: usize = ROUNDS * ACTIONS;
const STOP: usize = 0;
const MEMBERS: usize = 4;
const GROUPS: usize = 20_000;

type Gradient = [f64; SIZE];

/// Logits of (stop, good, poor) in every round.
const LOGITS: [[f64; ACTIONS]; ROUNDS] = [
    [-0.5, 0.3, 0.2],
    [0.2, 0.4, -0.1],
    [0.5, 0.1, 0.3],
    [0.3, -0.2, 0.0],
];

/// The probabilities of a round's actions.
fn policy(round: usize) -> [f64; ACTIONS] {
    static ALL: OnceLock<[[f64; ACTIONS]; ROUNDS]> = OnceLock::new();
    ALL.get_or_init(|| {
        LOGITS.map(|logits| {
            let weights = logits.map(f64::exp);
            let sum: f64 = weights.iter().sum();
            weights.map(|weight| weight / sum)
        })
    })[round]
}

/// What an action pays to one who knows `known` facts.
fn reward(action: usize, known: usize) -> f64 {
    let known = known as f64;
    [0.5 * known, 0.1 + 0.3 * known, 0.2 * known][action]
}

/// Adds `weight` times the gradient of the log-probability of an action.
fn add_score(gradient: &mut Gradient, round: usize, action: usize, weight: f64) {
    for (other, p) in policy(round).into_iter().enumerate() {
        let indicator = if other == action { 1.0 } else { 0.0 };
        gradient[round * ACTIONS + other] += weight * (indicator - p);
    }
}

/// The gradient of the expected return, over all trajectories that begin with `path`.
fn exact(path: &mut Vec<usize>, known: usize, p: f64, sum: f64, gradient: &mut Gradient) {
    if path.len() == ROUNDS || path.last() == Some(&STOP) {
        for (round, &action) in path.iter().enumerate() {
            add_score(gradient, round, action, p * sum);
        }
        return;
    }
    for (action, q) in policy(path.len()).into_iter().enumerate() {
        path.push(action);
        let paid = reward(action, known);
        exact(
            path,
            known + usize::from(action == 1),
            p * q,
            sum + paid,
            gradient,
        );
        path.pop();
    }
}

/// splitmix64, a uniform number in [0, 1).
fn uniform(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// Actions of one rollout, and its returns `G_t`.
fn play(state: &mut u64) -> (Vec<usize>, Vec<f64>) {
    let (mut actions, mut returns, mut known) = (Vec::new(), Vec::new(), 0);
    while actions.len() < ROUNDS && actions.last() != Some(&STOP) {
        let (draw, p) = (uniform(state), policy(actions.len()));
        let action = if draw < p[0] {
            0
        } else if draw < p[0] + p[1] {
            1
        } else {
            2
        };
        returns.push(reward(action, known));
        known += usize::from(action == 1);
        actions.push(action);
    }
    for at in (1..returns.len()).rev() {
        returns[at - 1] += returns[at];
    }
    (actions, returns)
}

#[derive(Clone, Copy)]
struct Moments {
    sum: Gradient,
    squares: Gradient,
}

impl Moments {
    fn mean(&self) -> Gradient {
        self.sum.map(|sum| sum / GROUPS as f64)
    }

    /// Standard error of the mean of every coordinate.
    fn error(&self) -> Gradient {
        let mean = self.mean();
        let mut error = [0.0; SIZE];
        for (at, error) in error.iter_mut().enumerate() {
            let variance = self.squares[at] / GROUPS as f64 - mean[at] * mean[at];
            *error = (variance / GROUPS as f64).sqrt();
        }
        error
    }

    /// The furthest coordinate from `factor` times the truth, in standard errors.
    fn furthest(&self, truth: &Gradient, factor: f64) -> f64 {
        let (mean, error) = (self.mean(), self.error());
        (0..SIZE)
            .map(|at| (mean[at] - factor * truth[at]).abs() / error[at])
            .fold(0.0, f64::max)
    }

    /// Standard deviation of one group's gradient, over all coordinates.
    fn noise(&self) -> f64 {
        let error = self.error();
        (dot(&error, &error) * GROUPS as f64).sqrt()
    }

    /// The factor of the truth that is nearest in least squares.
    fn fit(&self, truth: &Gradient) -> f64 {
        dot(&self.mean(), truth) / dot(truth, truth)
    }
}

fn dot(a: &Gradient, b: &Gradient) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[test]
fn only_baselines_that_do_not_look_at_the_own_rollout_are_unbiased() {
    let mut truth = [0.0; SIZE];
    exact(&mut Vec::new(), 0, 1.0, 0.0, &mut truth);
    let names = [
        "none",
        "pooled",
        "per_round",
        "leave_one_out",
        "absorbing",
        "position_average",
    ];
    let mut moments = [Moments {
        sum: [0.0; SIZE],
        squares: [0.0; SIZE],
    }; 6];
    let (mut averages, mut state) = (PositionAverages::default(), 7);
    for _ in 0..GROUPS {
        let (actions, returns): (Vec<_>, Vec<_>) = (0..MEMBERS).map(|_| play(&mut state)).unzip();
        for (name, moments) in names.iter().zip(&mut moments) {
            let advantages = match *name {
                "none" => returns.clone(),
                "pooled" => centre(&returns, BaselineKind::Pooled),
                "per_round" => centre(&returns, BaselineKind::PerRound),
                "leave_one_out" => centre(&returns, BaselineKind::LeaveOneOut),
                "absorbing" => centre(&returns, BaselineKind::Absorbing),
                _ => centre(&returns, BaselineKind::PositionAverage(averages.as_slice())),
            };
            let mut gradient = [0.0; SIZE];
            for (actions, advantages) in actions.iter().zip(&advantages) {
                for (round, (&action, value)) in actions.iter().zip(advantages).enumerate() {
                    add_score(&mut gradient, round, action, value / MEMBERS as f64);
                }
            }
            for (at, value) in gradient.into_iter().enumerate() {
                moments.sum[at] += value;
                moments.squares[at] += value * value;
            }
        }
        let rounds: Vec<Vec<(usize, f64)>> = returns
            .iter()
            .map(|of| of.iter().copied().enumerate().collect())
            .collect();
        averages.update(&rounds, 0.9);
    }
    let shrink = 1.0 - 1.0 / MEMBERS as f64;
    let mut lines = vec![
        "| baseline | gradient along the truth | off by (standard errors) | off by after the best constant factor | noise |".to_owned(),
        "| --- | --- | --- | --- | --- |".to_owned(),
    ];
    for (name, moments) in names.iter().zip(&moments) {
        let fit = moments.fit(&truth);
        let factor = if *name == "absorbing" { shrink } else { fit };
        lines.push(format!(
            "| `{name}` | {fit:.3} | {:.1} | {:.1} | {:.2} |",
            moments.furthest(&truth, 1.0),
            moments.furthest(&truth, factor),
            moments.noise(),
        ));
    }
    // The own rollout is 1/N of the mean in every round: one factor for all of the gradient.
    let [_, pooled, per_round, leave_one_out, absorbing, position] = &moments;
    lines.push(format!(
        "| `absorbing`, times N / (N - 1) | {:.3} | {:.1} | {:.1} | {:.2} |",
        absorbing.fit(&truth) / shrink,
        absorbing.furthest(&truth, shrink),
        absorbing.furthest(&truth, shrink),
        absorbing.noise() / shrink,
    ));
    let printed = lines.join("\n");
    println!("{printed}");
    for unbiased in [&moments[0], leave_one_out, position] {
        assert!(unbiased.furthest(&truth, 1.0) < 3.0, "{printed}");
    }
    assert!(absorbing.furthest(&truth, shrink) < 3.0, "{printed}");
    // Here no learning rate makes up for it: the factor differs from round to round.
    for biased in [pooled, per_round] {
        assert!(biased.furthest(&truth, 1.0) > 3.0, "{printed}");
        assert!(
            biased.furthest(&truth, biased.fit(&truth)) > 3.0,
            "{printed}"
        );
    }
    let docs = std::fs::read_to_string("docs/credit.md").unwrap();
    assert!(
        docs.contains(&printed),
        "docs/credit.md shows another table than:\n{printed}"
    );
}

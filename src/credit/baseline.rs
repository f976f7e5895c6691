//! What a round's value is compared with: the baselines of memory credit.
//!
//! Notation: `x[i][t]` is the value of round `t` of rollout `i` (a reward, or a return
//! `G_t = sum over k >= t of gamma^(k-t) r_k`); `N` rollouts answer the same question; `R_t` is the
//! set of rollouts that reached round `t`. A baseline keeps a policy gradient unbiased exactly when
//! it does not depend on what rollout `i` samples from round `t` on; `docs/credit.md` shows the
//! measured bias of each.

use serde::{Deserialize, Serialize};

use super::group::mean_std;

/// Which values a round is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BaselineKind<'a> {
    /// `b = mean of all rounds of all rollouts of the question` (MemPO, arXiv 2603.00680).
    ///
    /// Weakness: late rounds know more and score higher whatever the skill; and both sum and count
    /// of the pool depend on when rollout `i` stops, so the gradient is biased.
    Pooled,
    /// `b_t = mean over i in R_t of x[i][t]`: the same round of every rollout that reached it.
    ///
    /// Weakness: own value included, so the gradient of round `t` shrinks by `1 - 1/|R_t|`, and
    /// `|R_t|` depends on when the policy stops: late rounds shrink more (verl#7244).
    PerRound,
    /// `b[i] = mean of all rounds of the rollouts other than i`; 0 if they have none.
    ///
    /// Unbiased: no term depends on rollout `i`. Source: RLOO (arXiv 2402.14740), over rounds. A mean
    /// over the others' same round alone is unbiased too, but has few values late and more noise.
    LeaveOneOut,
    /// `b_t = 1/N sum over i in R_t of x[i][t]`: a rollout that has ended counts as 0.
    ///
    /// Own value included, but the divisor is always `N`: the gradient of every round shrinks by the
    /// same `1 - 1/N`, as GRPO's does, so its direction is unbiased. Own derivation.
    Absorbing,
    /// `b_t = average of the returns at position t over earlier steps` ([`PositionAverages`]); 0 for
    /// a position never seen.
    ///
    /// Unbiased: earlier steps do not depend on this group. Source: MGPO.
    PositionAverage(&'a [Option<f64>]),
}

/// Mean and deviation that one round is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pool {
    /// The baseline `b`.
    pub mean: f64,
    /// Unbiased standard deviation: of the round for `PerRound` and `Absorbing`, else of all rounds
    /// of the question; 1 if those are fewer than two values, so that dividing changes nothing.
    pub deviation: f64,
}

/// `x - b` in the shape of `rewards`; the position of a round is its index.
///
/// A pool of one round has mean 0, as everywhere (verl's group of one): the value itself stays. With
/// `Absorbing` a rollout without others is its own mean, so 0 stays.
#[must_use]
pub fn centre(rewards: &[Vec<f64>], kind: BaselineKind<'_>) -> Vec<Vec<f64>> {
    let rounds: Vec<Vec<(usize, f64)>> = rewards
        .iter()
        .map(|rounds| rounds.iter().copied().enumerate().collect())
        .collect();
    pools(&rounds, kind)
        .iter()
        .zip(rewards)
        .map(|(pools, rounds)| pools.iter().zip(rounds).map(|(b, x)| x - b.mean).collect())
        .collect()
}

/// The pool of every round, in the shape of `rounds`: pairs of position and value, so that a rollout
/// may skip positions (a turn without notes).
#[must_use]
pub fn pools(rounds: &[Vec<(usize, f64)>], kind: BaselineKind<'_>) -> Vec<Vec<Pool>> {
    let of = |values: &[f64]| {
        let (mean, deviation) = mean_std(values);
        Pool { mean, deviation }
    };
    let everything: Vec<f64> = rounds.iter().flatten().map(|(_, value)| *value).collect();
    let whole = of(&everything);
    match kind {
        BaselineKind::Pooled => shape(rounds, |_, _| whole),
        BaselineKind::LeaveOneOut => {
            let sums: Vec<f64> = rounds
                .iter()
                .map(|list| list.iter().map(|(_, value)| value).sum())
                .collect();
            shape(rounds, |member, _| {
                let count = everything.len() - rounds[member].len();
                let others = sums.iter().enumerate().filter(|(of, _)| *of != member);
                let sum: f64 = others.map(|(_, sum)| sum).sum();
                Pool {
                    mean: if count > 0 { sum / count as f64 } else { 0.0 },
                    ..whole
                }
            })
        }
        BaselineKind::PositionAverage(averages) => shape(rounds, |_, position| Pool {
            mean: averages.get(position).copied().flatten().unwrap_or(0.0),
            ..whole
        }),
        BaselineKind::PerRound => {
            let pools: Vec<Pool> = by_position(rounds)
                .iter()
                .map(|of_round| of(of_round))
                .collect();
            shape(rounds, |_, position| pools[position])
        }
        BaselineKind::Absorbing => {
            let pad = |mut values: Vec<f64>| {
                values.resize(values.len().max(rounds.len()), 0.0);
                match values[..] {
                    [alone] => Pool {
                        mean: alone,
                        ..of(&values)
                    },
                    _ => of(&values),
                }
            };
            let pools: Vec<Pool> = by_position(rounds).into_iter().map(pad).collect();
            shape(rounds, |_, position| pools[position])
        }
    }
}

/// A pool for every round, by member and position.
fn shape(rounds: &[Vec<(usize, f64)>], of: impl Fn(usize, usize) -> Pool) -> Vec<Vec<Pool>> {
    rounds
        .iter()
        .enumerate()
        .map(|(member, list)| {
            list.iter()
                .map(|&(position, _)| of(member, position))
                .collect()
        })
        .collect()
}

/// The values of every position, in the order of the rollouts.
fn by_position(rounds: &[Vec<(usize, f64)>]) -> Vec<Vec<f64>> {
    let mut values: Vec<Vec<f64>> = Vec::new();
    for &(position, value) in rounds.iter().flatten() {
        if values.len() <= position {
            values.resize(position + 1, Vec::new());
        }
        values[position].push(value);
    }
    values
}

/// The moving averages behind [`BaselineKind::PositionAverage`]: part of a run's saved state.
///
/// After a step, `b_t <- decay * b_t + (1 - decay) * mean of the step's values at position t`; the
/// first value of a position is taken as it is, and a position nobody reached is left alone. Use the
/// averages for a step first and update them afterwards, or the baseline sees its own rewards.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PositionAverages {
    averages: Vec<Option<f64>>,
}

impl PositionAverages {
    /// For [`BaselineKind::PositionAverage`].
    #[must_use]
    pub fn as_slice(&self) -> &[Option<f64>] {
        &self.averages
    }

    /// Takes in the values of one step: all rollouts of all its groups, as pairs of position and
    /// value.
    pub fn update<'a>(
        &mut self,
        step: impl IntoIterator<Item = &'a Vec<(usize, f64)>>,
        decay: f64,
    ) {
        let mut sums: Vec<(f64, u32)> = Vec::new();
        for &(position, value) in step.into_iter().flatten() {
            if sums.len() <= position {
                sums.resize(position + 1, (0.0, 0));
            }
            sums[position].0 += value;
            sums[position].1 += 1;
        }
        if self.averages.len() < sums.len() {
            self.averages.resize(sums.len(), None);
        }
        for (average, (sum, count)) in self.averages.iter_mut().zip(sums) {
            if count > 0 {
                let mean = sum / f64::from(count);
                *average = Some(average.map_or(mean, |old| decay * old + (1.0 - decay) * mean));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rollout 0 has three rounds, rollout 1 two, rollout 2 one.
    fn ragged() -> Vec<Vec<f64>> {
        vec![vec![1.0, 3.0, 5.0], vec![2.0, 7.0], vec![6.0]]
    }

    fn means(pools: &[Pool]) -> Vec<f64> {
        pools.iter().map(|pool| pool.mean).collect()
    }

    fn near(ours: &[Vec<f64>], table: &[&[f64]]) {
        for (ours, table) in ours.iter().zip(table) {
            assert_eq!(ours.len(), table.len());
            for (ours, table) in ours.iter().zip(*table) {
                assert!((ours - table).abs() < 1e-12, "{ours} {table}");
            }
        }
    }

    #[test]
    fn every_baseline_meets_its_table() {
        let x = ragged();
        near(
            &centre(&x, BaselineKind::Pooled),
            &[&[-3.0, -1.0, 1.0], &[-2.0, 3.0], &[2.0]],
        );
        // A pool of one (round 2) keeps its value.
        near(
            &centre(&x, BaselineKind::PerRound),
            &[&[-2.0, -2.0, 5.0], &[-1.0, 2.0], &[3.0]],
        );
        near(
            &centre(&x, BaselineKind::LeaveOneOut),
            &[&[-4.0, -2.0, 0.0], &[-1.75, 3.25], &[2.4]],
        );
        let third = 1.0 / 3.0;
        near(
            &centre(&x, BaselineKind::Absorbing),
            &[&[-2.0, -third, 10.0 * third], &[-1.0, 11.0 * third], &[3.0]],
        );
        near(
            &centre(&x, BaselineKind::PositionAverage(&[Some(1.0), None])),
            &[&[0.0, 3.0, 5.0], &[1.0, 7.0], &[5.0]],
        );
    }

    #[test]
    fn a_skipped_position_is_compared_with_its_own() {
        let rounds = vec![vec![(0, 1.0), (2, 4.0)], vec![(2, 6.0)]];
        let per_round = pools(&rounds, BaselineKind::PerRound);
        assert_eq!(means(&per_round[0]), [0.0, 5.0]);
        let absorbing = pools(&rounds, BaselineKind::Absorbing);
        assert_eq!(means(&absorbing[0]), [0.5, 5.0]);
        let others = pools(&rounds, BaselineKind::LeaveOneOut);
        assert_eq!(means(&others[0]), [6.0, 6.0]);
        assert_eq!(means(&others[1]), [2.5]);
        let alone = pools(&rounds[..1], BaselineKind::LeaveOneOut);
        assert_eq!(means(&alone[0]), [0.0, 0.0]);
    }

    #[test]
    fn averages_start_at_the_first_value_and_then_move() {
        let mut averages = PositionAverages::default();
        averages.update(&[vec![(0, 2.0)], vec![(0, 4.0), (1, 8.0)]], 0.9);
        assert_eq!(averages.as_slice(), [Some(3.0), Some(8.0)]);
        averages.update(&[vec![(0, 13.0)]], 0.9);
        assert!((averages.as_slice()[0].unwrap() - 4.0).abs() < 1e-12);
        assert_eq!(averages.as_slice()[1], Some(8.0));
    }
}

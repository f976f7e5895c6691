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
    /// `b[i][t] = mean over j in R_t, j != i, of x[j][t]`; 0 if no other rollout reached round `t`.
    ///
    /// Unbiased: no term depends on rollout `i`. Source: RLOO (arXiv 2402.14740), per round.
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
    /// Unbiased standard deviation of the values that the mean was taken over; 1 if they are fewer
    /// than two, so that dividing by it changes nothing.
    pub deviation: f64,
}

/// `x - b` in the shape of `rewards`; the position of a round is its index.
///
/// A pool of one value has mean 0, as everywhere (verl's group of one): the value itself stays.
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
    let mut by_position: Vec<Vec<(usize, f64)>> = Vec::new();
    for (member, list) in rounds.iter().enumerate() {
        for &(position, value) in list {
            if by_position.len() <= position {
                by_position.resize(position + 1, Vec::new());
            }
            by_position[position].push((member, value));
        }
    }
    let values = |position: usize| -> Vec<f64> {
        by_position[position]
            .iter()
            .map(|(_, value)| *value)
            .collect()
    };
    let shared: Vec<Pool> = match kind {
        BaselineKind::Pooled => {
            let all: Vec<f64> = rounds.iter().flatten().map(|(_, value)| *value).collect();
            vec![of(&all); by_position.len()]
        }
        BaselineKind::PerRound => (0..by_position.len()).map(|at| of(&values(at))).collect(),
        BaselineKind::Absorbing => (0..by_position.len())
            .map(|at| {
                let mut padded = values(at);
                padded.resize(padded.len().max(rounds.len()), 0.0);
                of(&padded)
            })
            .collect(),
        BaselineKind::PositionAverage(averages) => (0..by_position.len())
            .map(|at| Pool {
                mean: averages.get(at).copied().flatten().unwrap_or(0.0),
                deviation: of(&values(at)).deviation,
            })
            .collect(),
        BaselineKind::LeaveOneOut => {
            return rounds
                .iter()
                .enumerate()
                .map(|(member, list)| {
                    list.iter()
                        .map(|&(position, _)| others(&by_position[position], member))
                        .collect()
                })
                .collect();
        }
    };
    rounds
        .iter()
        .map(|list| list.iter().map(|&(position, _)| shared[position]).collect())
        .collect()
}

/// Mean and deviation of everyone but `member`; one other is a mean of one, nobody is 0.
fn others(all: &[(usize, f64)], member: usize) -> Pool {
    let rest: Vec<f64> = all
        .iter()
        .filter(|(of, _)| *of != member)
        .map(|(_, value)| *value)
        .collect();
    let (mean, deviation) = mean_std(&rest);
    Pool {
        // `mean_std` calls the mean of one value 0; here that value is another rollout's.
        mean: if rest.len() == 1 { rest[0] } else { mean },
        deviation,
    }
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
            &[&[-3.0, -4.0, 5.0], &[-1.5, 4.0], &[4.5]],
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
        let pools = pools(&rounds, BaselineKind::LeaveOneOut);
        assert_eq!(pools[0][0].mean, 0.0);
        assert_eq!(pools[0][1].mean, 6.0);
        assert_eq!(pools[1][0].mean, 4.0);
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

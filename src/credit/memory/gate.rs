//! When the memory advantage counts (W2, W5).
//!
//! `none`: always, as MemPO. `sign`: where `A_T >= 0` (the variant that stands commented out in
//! MemPO's code). `success`: where `R_T = 1` (InfoMem). `group_spread`: where the outcomes of the
//! group differ, so that a dense reward cannot rule alone where every rollout failed (2607.21273).

use crate::experiment::Gate;

/// For every rollout, whether its memory advantages count.
#[must_use]
pub fn opens(gate: Gate, outcomes: &[f64], advantages: &[f64]) -> Vec<bool> {
    let spread = outcomes.windows(2).any(|pair| pair[0] != pair[1]);
    outcomes
        .iter()
        .zip(advantages)
        .map(|(&outcome, &advantage)| match gate {
            Gate::Off => true,
            Gate::Sign => advantage >= 0.0,
            Gate::Success => outcome >= 1.0,
            Gate::GroupSpread => spread,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_gate_opens_for_its_own_rollouts() {
        let (outcomes, advantages) = ([1.0, 0.1, 0.0], [1.0, 0.0, -1.0]);
        for (gate, expected) in [
            (Gate::Off, [true, true, true]),
            (Gate::Sign, [true, true, false]),
            (Gate::Success, [true, false, false]),
            (Gate::GroupSpread, [true, true, true]),
        ] {
            assert_eq!(opens(gate, &outcomes, &advantages), expected, "{gate:?}");
        }
        assert_eq!(
            opens(Gate::GroupSpread, &[0.0, 0.0], &[0.0, 0.0]),
            [false, false]
        );
    }
}

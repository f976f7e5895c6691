//! What memory credit keeps from step to step: the moving averages of `position_average` and the
//! multiplier of `budget`. It is part of every checkpoint.

use bevy_ecs::prelude::*;
use serde::{Deserialize, Serialize};

use super::RoundReward;
use super::length::next_multiplier;
use crate::experiment::{Baseline, CreditSettings, Length};

/// See the module.
#[derive(Resource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryCreditState {
    /// Moving average of the return in every turn, from turn 0; none where there was no return yet.
    pub positions: Vec<Option<f64>>,
    /// Price of notes as long as the budget.
    pub multiplier: f64,
}

impl MemoryCreditState {
    /// The average of a turn; 0 before there is one.
    #[must_use]
    pub fn position(&self, turn: u32) -> f64 {
        let known = self.positions.get(turn as usize).copied().flatten();
        known.unwrap_or(0.0)
    }

    /// Takes in the returns and note lengths of a whole step, after its advantages are made: a step
    /// is compared with the steps before it alone. `b_t <- decay b_t + (1 - decay) mean G_t`; the first
    /// mean is taken as it is.
    pub fn learn(&mut self, settings: &CreditSettings, returns: &[RoundReward], lengths: &[u32]) {
        if let Baseline::PositionAverage(decay) = settings.baseline {
            let turns = returns.iter().map(|round| round.turn as usize + 1).max();
            let turns = turns.unwrap_or(0).max(self.positions.len());
            self.positions.resize(turns, None);
            for (turn, average) in (0u32..).zip(&mut self.positions) {
                let at = || returns.iter().filter(|round| round.turn == turn);
                let count = at().count();
                if count == 0 {
                    continue;
                }
                let mean = at().map(|round| round.reward).sum::<f64>() / count as f64;
                let decay = f64::from(decay);
                *average = Some(average.map_or(mean, |old| decay * old + (1.0 - decay) * mean));
            }
        }
        if let Length::Budget(budget) = settings.length {
            self.multiplier = next_multiplier(self.multiplier, lengths, f64::from(budget));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(turn: u32, reward: f64) -> RoundReward {
        RoundReward { turn, reward }
    }

    #[test]
    fn averages_move_by_position_and_wait_where_nothing_came() {
        let settings = CreditSettings {
            baseline: Baseline::PositionAverage(0.75),
            ..CreditSettings::mempo()
        };
        let mut state = MemoryCreditState::default();
        state.learn(
            &settings,
            &[round(1, 1.0), round(1, 3.0), round(3, 5.0)],
            &[],
        );
        assert_eq!(state.positions, [None, Some(2.0), None, Some(5.0)]);
        state.learn(&settings, &[round(1, 6.0)], &[]);
        assert_eq!(state.positions, [None, Some(3.0), None, Some(5.0)]);
        assert_eq!(
            (state.position(0), state.position(1), state.position(9)),
            (0.0, 3.0, 0.0)
        );
    }

    #[test]
    fn nothing_is_kept_unless_a_setting_asks_for_it() {
        let mut state = MemoryCreditState::default();
        state.learn(&CreditSettings::mempo(), &[round(1, 1.0)], &[100]);
        assert_eq!(state, MemoryCreditState::default());
        let settings = CreditSettings {
            length: Length::Budget(10.0),
            ..CreditSettings::mempo()
        };
        state.learn(&settings, &[], &[30]);
        assert!((state.multiplier - 0.1).abs() < 1e-12);
    }
}

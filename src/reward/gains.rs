//! The memory rewards of a trajectory, from the scores that its plan asked for.

use super::plan::{MemoryScorePlan, Round};
use crate::credit::CreditError;
use crate::credit::memory::reward::reward_of;
use crate::engine::Scored;
use crate::experiment::CreditSettings;
use crate::trajectory::{MemoryReward, RoundScores};

impl MemoryScorePlan {
    /// The turns that get a memory reward.
    pub fn turns(&self) -> impl Iterator<Item = u32> + '_ {
        self.rounds.iter().map(|round| round.turn)
    }

    /// The log-probs of every round, out of the engine's scores.
    ///
    /// # Errors
    /// Scores that do not fit the request.
    pub fn scores(&self, scored: &Scored) -> Result<Vec<RoundScores>, CreditError> {
        let rounds = self.rounds.iter();
        rounds
            .map(|round| self.round_scores(round, scored))
            .collect()
    }

    /// The memory rewards, from the engine's scores.
    ///
    /// # Errors
    /// Scores that do not fit the request, or a gold answer without tokens.
    pub fn rewards(
        &self,
        scored: &Scored,
        settings: &CreditSettings,
    ) -> Result<Vec<MemoryReward>, CreditError> {
        let scores = self.scores(scored)?;
        scores
            .iter()
            .map(|round| reward_of(round, settings))
            .collect()
    }

    fn round_scores(&self, round: &Round, scored: &Scored) -> Result<RoundScores, CreditError> {
        let texts = |context: usize| -> Result<Vec<Vec<f32>>, CreditError> {
            let from = context * self.texts;
            let branches = scored.branches.get(from..from + self.texts);
            branches
                .map(<[_]>::to_vec)
                .ok_or(CreditError::MissingScores {
                    turn: round.turn,
                    got: scored.branches.len(),
                    expected: self.request.branches.len(),
                })
        };
        let against = round.against.map(|(_, at)| texts(at)).transpose()?;
        Ok(RoundScores {
            turn: round.turn,
            notes_tokens: round.notes_tokens,
            notes: texts(round.notes)?,
            compared: round.against.map(|(kind, _)| kind),
            against: against.unwrap_or_default(),
            answers: self.slices.iter().map(|slice| slice.len() as u32).collect(),
            // Nothing to withhold is the rule, and need not be written down.
            supported: if round.supported.iter().all(|&seen| seen) {
                Vec::new()
            } else {
                round.supported.clone()
            },
        })
    }
}

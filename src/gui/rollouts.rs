//! Which rollouts a run holds, where they belong, and how they stood at the cursor.

use std::borrow::Cow;
use std::hash::{Hash as _, Hasher as _};

use super::run::Run;
use super::{Cursor, words};
use crate::experiment::ContextKind;
use crate::record::TrajectoryView;
use crate::trajectory::{Purpose, TrajectoryId};

impl Run {
    /// The steps that have trajectories, in order.
    #[must_use]
    pub fn steps(&self) -> Vec<(Purpose, u32)> {
        let mut steps: Vec<(Purpose, u32)> = Vec::new();
        let mut at = self.view.trajectories.keys().next().copied();
        // From step to step, not from trajectory to trajectory: a long run has hundreds of thousands.
        while let Some(id) = at {
            steps.push((id.purpose, id.step));
            let last = TrajectoryId {
                group: u32::MAX,
                member: u32::MAX,
                ..id
            };
            let after = (std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded);
            at = self
                .view
                .trajectories
                .range(after)
                .next()
                .map(|(id, _)| *id);
        }
        steps
    }

    /// The trajectories of a group, or of a whole step.
    #[must_use]
    pub fn members(&self, purpose: Purpose, step: u32, group: Option<u32>) -> Vec<TrajectoryId> {
        let from = TrajectoryId {
            step,
            purpose,
            group: group.unwrap_or(0),
            member: 0,
        };
        let to = TrajectoryId {
            group: group.unwrap_or(u32::MAX),
            member: u32::MAX,
            ..from
        };
        self.view
            .trajectories
            .range(from..=to)
            .map(|(id, _)| *id)
            .collect()
    }

    /// What the policy sees in a rollout, where the settings tell.
    #[must_use]
    pub fn context_of(&self, id: TrajectoryId) -> Option<ContextKind> {
        let experiment = self.experiment.as_ref()?;
        match id.purpose {
            Purpose::Train => Some(experiment.rollout.context.of_group(id.group)),
            // Every question of an evaluation is asked in every context: groups take turns.
            Purpose::Evaluate => {
                let contexts = &experiment.evaluation.contexts;
                contexts
                    .get(id.group as usize % contexts.len().max(1))
                    .copied()
            }
        }
    }

    /// A rollout, and for evaluations the context it was asked in.
    #[must_use]
    pub fn place(&self, id: TrajectoryId) -> String {
        let context = self
            .context_of(id)
            .filter(|_| id.purpose == Purpose::Evaluate);
        let context = context.map_or(String::new(), |of| format!(", {} context", of.name()));
        format!("{}{context}", words::place(id))
    }

    /// A number that changes when the credit or the tokens of these rollouts do, and not with other news.
    #[must_use]
    pub fn stamp(&self, purpose: Purpose, step: u32, group: Option<u32>) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        (self.epoch, self.vocabulary.len(), self.experiment.is_some()).hash(&mut hasher);
        for id in self.members(purpose, step, group) {
            let Some(of) = self.view.trajectories.get(&id) else {
                continue;
            };
            let credit = of.outcome_advantage.map(f32::to_bits);
            (id, credit, of.memory.len(), of.reason.is_some()).hash(&mut hasher);
            for at in &of.tokens {
                (at.offset, at.bytes).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    /// A rollout as it stood at the cursor: nothing that came later is in it.
    #[must_use]
    pub fn seen(&self, id: TrajectoryId, cursor: Cursor) -> Option<Cow<'_, TrajectoryView>> {
        let whole = self.view.trajectories.get(&id)?;
        let Some(at) = cursor.event() else {
            return Some(Cow::Borrowed(whole));
        };
        let standing = self.timeline.standing(id, Some(at));
        let mut seen = TrajectoryView {
            id,
            turns: whole
                .turns
                .get(..standing.turns)
                .unwrap_or(&whole.turns)
                .to_vec(),
            ..TrajectoryView::default()
        };
        if !standing.answered
            && let Some(last) = seen.turns.last_mut()
        {
            last.tool = None;
        }
        if standing.ended {
            seen.reason = whole.reason;
            seen.outcome = whole.outcome;
        }
        if standing.credited {
            seen.outcome_advantage = whole.outcome_advantage;
            seen.kl_advantage = whole.kl_advantage;
            seen.memory.clone_from(&whole.memory);
            seen.scores.clone_from(&whole.scores);
            seen.tokens.clone_from(&whole.tokens);
        }
        Some(Cow::Owned(seen))
    }

    /// What a rollout had earned at the cursor.
    #[must_use]
    pub fn reward_at(&self, id: TrajectoryId, cursor: Cursor) -> Option<f32> {
        let outcome = self.view.trajectories.get(&id)?.outcome?;
        let ended = match cursor.event() {
            None => true,
            at => self.timeline.standing(id, at).ended,
        };
        ended.then_some(outcome.reward)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::record::{Event, Recorded};
    use crate::trajectory::{Outcome, StopReason};

    #[test]
    fn at_a_cursor_nothing_that_came_later_is_seen() {
        let mut run = Run::empty(Path::new("run"));
        let id = TrajectoryId::default();
        let outcome = Outcome {
            reward: 1.0,
            ..Outcome::default()
        };
        let events = [
            Event::TrajectoryTerminated {
                id,
                reason: StopReason::Answered,
                outcome,
            },
            Event::CreditAssigned {
                id,
                outcome: 0.5,
                kl: 0.0,
                memory: Vec::new(),
                scores: Vec::new(),
                tokens: Vec::new(),
            },
        ];
        for (seq, event) in (3..).zip(events) {
            let recorded = Recorded { seq, event };
            run.view.apply(&recorded);
            run.timeline.apply(&recorded);
        }
        let stamp = run.stamp(Purpose::Train, 0, None);
        for (at, reward, credit) in [
            (Cursor::At(2), None, None),
            (Cursor::At(3), Some(1.0), None),
            (Cursor::Live, Some(1.0), Some(0.5)),
        ] {
            let seen = run.seen(id, at).unwrap();
            assert_eq!(seen.outcome.map(|of| of.reward), reward, "{at:?}");
            assert_eq!(run.reward_at(id, at), reward, "{at:?}");
            assert_eq!(seen.outcome_advantage, credit, "{at:?}");
        }
        run.revision += 1;
        assert_eq!(run.stamp(Purpose::Train, 0, None), stamp);
        run.epoch += 1;
        assert_ne!(run.stamp(Purpose::Train, 0, None), stamp);
    }
}

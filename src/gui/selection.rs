//! One selection and one cursor: every panel obeys them, and every panel may move them.

use super::run::Run;
use crate::record::{RunStatus, TrajectoryView};
use crate::trajectory::{Purpose, TrajectoryId};

/// What is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The trajectory; with it step, purpose and group.
    pub id: TrajectoryId,
    /// The turn.
    pub turn: u32,
    /// The token that is pinned, by its place in the document of the trajectory.
    pub token: Option<usize>,
    /// Whether somebody chose it; else the first sight of a run may choose better.
    chosen: bool,
}

/// Up to which event the record is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cursor {
    /// The end, also while it moves.
    #[default]
    Live,
    /// This event.
    At(u64),
}

impl Cursor {
    /// The event, if it is not the end.
    #[must_use]
    pub fn event(self) -> Option<u64> {
        match self {
            Self::Live => None,
            Self::At(seq) => Some(seq),
        }
    }
}

impl Selection {
    /// Another trajectory, its first turn.
    #[must_use]
    pub fn of(id: TrajectoryId) -> Self {
        Self {
            id,
            chosen: true,
            ..Self::default()
        }
    }

    /// Whether somebody, or a first look at the whole record, chose it.
    #[must_use]
    pub fn is_chosen(&self) -> bool {
        self.chosen
    }

    /// The selected trajectory, if the run has it.
    #[must_use]
    pub fn trajectory<'a>(&self, run: &'a Run) -> Option<&'a TrajectoryView> {
        run.view.trajectories.get(&self.id)
    }

    /// Selects something that exists: what is selected, else the first rollout of the last training
    /// step with credit, else the first of all.
    pub fn settle(&mut self, run: &Run) {
        if self.chosen && self.trajectory(run).is_some() {
            return;
        }
        let step = run.members(self.id.purpose, self.id.step, None);
        if let Some(id) = step.first().filter(|_| self.chosen) {
            // The step was chosen, and what was meant in it was not kept.
            *self = Self::of(*id);
            return;
        }
        let steps = run.steps();
        let advantage = |id: &TrajectoryId| {
            let of = run.view.trajectories.get(id);
            of.and_then(|of| of.outcome_advantage)
        };
        let trained = steps.iter().rev().find(|(purpose, step)| {
            *purpose == Purpose::Train
                && run
                    .members(*purpose, *step, None)
                    .iter()
                    .any(|id| advantage(id).is_some())
        });
        let Some(&(purpose, step)) = trained.or_else(|| steps.first()) else {
            return;
        };
        // A group whose rollouts differ has more to show than one whose rollouts are all alike.
        let members = run.members(purpose, step, None);
        let spread = |id: &&TrajectoryId| advantage(id).is_some_and(|a| a != 0.0);
        if let Some(id) = members.iter().find(spread).or(members.first()) {
            *self = Self::of(*id);
        }
    }

    /// Moves to the newest step of a run that goes on, if that is another.
    pub fn go_along(&mut self, run: &Run) {
        let newest = run.view.trajectories.keys().next_back().copied();
        let Some(newest) = newest.filter(|_| run.view.status == RunStatus::Running) else {
            return;
        };
        if (newest.purpose, newest.step) == (self.id.purpose, self.id.step) {
            return;
        }
        if let Some(id) = run.members(newest.purpose, newest.step, None).first() {
            *self = Self::of(*id);
        }
    }

    /// Moves to another step of the same purpose; stays if there is none.
    pub fn step_by(&mut self, run: &Run, forward: bool) {
        let steps = run.steps();
        let here = (self.id.purpose, self.id.step);
        let at = steps.iter().position(|step| *step == here);
        let next = match (at, forward) {
            (Some(at), true) => steps.get(at + 1),
            (Some(at), false) => at.checked_sub(1).and_then(|at| steps.get(at)),
            (None, _) => steps.first(),
        };
        if let Some(&(purpose, step)) = next {
            let members = run.members(purpose, step, None);
            let same = members
                .iter()
                .find(|id| id.group == self.id.group && id.member == self.id.member);
            if let Some(id) = same.or(members.first()) {
                *self = Self::of(*id);
            }
        }
    }

    /// Moves to a step by its number, to training if it trained.
    pub fn go_to_step(&mut self, run: &Run, step: u32) {
        for purpose in [Purpose::Train, Purpose::Evaluate] {
            if let Some(id) = run.members(purpose, step, None).first() {
                *self = Self::of(*id);
                return;
            }
        }
    }

    /// Moves to the evaluation after so many steps, or the nearest to it that was kept; says whether
    /// there is one.
    pub fn go_to_evaluation(&mut self, run: &Run, step: f64) -> bool {
        let far = |of: u32| (f64::from(of) - step).abs();
        let nearest = run
            .steps()
            .into_iter()
            .filter(|(purpose, _)| *purpose == Purpose::Evaluate)
            .min_by(|(_, a), (_, b)| far(*a).total_cmp(&far(*b)));
        let found =
            nearest.and_then(|(purpose, step)| run.members(purpose, step, None).first().copied());
        if let Some(id) = found {
            *self = Self::of(id);
        }
        found.is_some()
    }

    /// Moves among the shown trajectories.
    pub fn move_in(&mut self, shown: &[TrajectoryId], forward: bool) {
        let at = shown.iter().position(|id| *id == self.id);
        let next = match (at, forward) {
            (Some(at), true) => shown.get(at + 1),
            (Some(at), false) => at.checked_sub(1).and_then(|at| shown.get(at)),
            (None, _) => shown.first(),
        };
        if let Some(id) = next {
            *self = Self::of(*id);
        }
    }

    /// Moves to the next or the previous group among these rollouts of the step.
    pub fn group_by(&mut self, members: &[TrajectoryId], forward: bool) {
        let mut groups: Vec<u32> = members.iter().map(|id| id.group).collect();
        groups.dedup();
        let at = groups.iter().position(|group| *group == self.id.group);
        let next = match (at, forward) {
            (Some(at), true) => groups.get(at + 1),
            (Some(at), false) => at.checked_sub(1).and_then(|at| groups.get(at)),
            (None, _) => groups.first(),
        };
        if let Some(group) = next
            && let Some(id) = members.iter().find(|id| id.group == *group)
        {
            *self = Self::of(*id);
        }
    }

    /// Moves to the next or previous turn for which `wanted` holds.
    pub fn turn_by(
        &mut self,
        run: &Run,
        forward: bool,
        wanted: impl Fn(&TrajectoryView, usize) -> bool,
    ) {
        let Some(trajectory) = self.trajectory(run) else {
            return;
        };
        let here = self.turn as usize;
        let found = if forward {
            (here + 1..trajectory.turns.len()).find(|&turn| wanted(trajectory, turn))
        } else {
            (0..here.min(trajectory.turns.len()))
                .rev()
                .find(|&turn| wanted(trajectory, turn))
        };
        if let Some(turn) = found {
            self.turn = turn as u32;
            self.token = None;
        }
    }
}

/// Whether a turn left other notes than the turn before it.
#[must_use]
pub fn edits_notes(trajectory: &TrajectoryView, turn: usize) -> bool {
    let notes = |turn: usize| -> &str {
        let turn = trajectory.turns.get(turn);
        turn.and_then(|turn| turn.wrote.notes.as_deref())
            .unwrap_or_default()
            .trim()
    };
    match turn.checked_sub(1) {
        Some(before) => notes(before) != notes(turn),
        None => !notes(turn).is_empty(),
    }
}

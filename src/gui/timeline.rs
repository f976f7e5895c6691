//! When things happened, in events: the record keeps no clock, so its numbers are the time.

use std::collections::BTreeMap;

use crate::record::{Event, Recorded};
use crate::trajectory::{Purpose, TrajectoryId};

/// The moments of one trajectory, as numbers of events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moments {
    /// When each turn was written, by its place in the view.
    pub turns: Vec<u64>,
    /// When each tool answered, by turn.
    pub tools: BTreeMap<u32, u64>,
    /// When it ended.
    pub ended: Option<u64>,
    /// When its credit was written.
    pub credited: Option<u64>,
}

impl Moments {
    fn first(&self) -> Option<u64> {
        self.turns.first().copied().or(self.ended)
    }
}

/// All moments of a run.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    moments: BTreeMap<TrajectoryId, Moments>,
    /// The number of the last event of all.
    pub last: u64,
    /// Events of trajectories, in order: (number, whose).
    marks: Vec<(u64, TrajectoryId)>,
}

/// How a trajectory stood at the cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Turns that were written by then.
    pub turns: usize,
    /// Whether the tool of the last of them had answered.
    pub answered: bool,
    /// Whether it was over.
    pub ended: bool,
    /// Whether its credit was known.
    pub credited: bool,
}

impl Timeline {
    /// Takes an event in.
    pub fn apply(&mut self, recorded: &Recorded) {
        let seq = recorded.seq;
        self.last = self.last.max(seq);
        let id = match &recorded.event {
            Event::TurnGenerated(turn) => {
                self.of(turn.id).turns.push(seq);
                turn.id
            }
            Event::ToolReturned { id, turn, .. } => {
                self.of(*id).tools.insert(*turn, seq);
                *id
            }
            Event::TrajectoryTerminated { id, .. } => {
                self.of(*id).ended = Some(seq);
                *id
            }
            Event::CreditAssigned { id, .. } => {
                self.of(*id).credited = Some(seq);
                *id
            }
            _ => return,
        };
        self.marks.push((seq, id));
    }

    fn of(&mut self, id: TrajectoryId) -> &mut Moments {
        self.moments.entry(id).or_default()
    }

    /// How a trajectory stood when event `at` had happened; none for the end of the record.
    #[must_use]
    pub fn standing(&self, id: TrajectoryId, at: Option<u64>) -> Standing {
        let Some(moments) = self.moments.get(&id) else {
            return Standing {
                turns: 0,
                answered: false,
                ended: false,
                credited: false,
            };
        };
        let at = at.unwrap_or(u64::MAX);
        let turns = moments.turns.partition_point(|&seq| seq <= at);
        let last = turns
            .checked_sub(1)
            .and_then(|turn| u32::try_from(turn).ok());
        let by = |moment: Option<u64>| moment.is_some_and(|seq| seq <= at);
        Standing {
            turns,
            answered: by(last.and_then(|turn| moments.tools.get(&turn).copied())),
            ended: by(moments.ended),
            credited: by(moments.credited),
        }
    }

    /// The event of a trajectory after `at`, or the one before it.
    #[must_use]
    pub fn neighbour(&self, at: u64, forward: bool) -> Option<(u64, TrajectoryId)> {
        let found = if forward {
            self.marks.partition_point(|&(seq, _)| seq <= at)
        } else {
            self.marks
                .partition_point(|&(seq, _)| seq < at)
                .checked_sub(1)?
        };
        self.marks.get(found).copied()
    }

    /// The first event of a step's trajectories.
    #[must_use]
    pub fn first_of(&self, purpose: Purpose, step: u32) -> Option<u64> {
        let from = TrajectoryId {
            step,
            purpose,
            group: 0,
            member: 0,
        };
        self.moments
            .range(from..)
            .take_while(|(id, _)| id.step == step && id.purpose == purpose)
            .filter_map(|(_, moments)| moments.first())
            .min()
    }

    /// When a turn was written.
    #[must_use]
    pub fn turn_at(&self, id: TrajectoryId, turn: usize) -> Option<u64> {
        self.moments.get(&id)?.turns.get(turn).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::TurnEvent;

    fn turn(seq: u64, member: u32, turn: u32) -> Recorded {
        let id = TrajectoryId {
            member,
            ..TrajectoryId::default()
        };
        let event = Event::TurnGenerated(TurnEvent {
            id,
            turn,
            text: String::new(),
            tokens: 1,
            context_tokens: 0,
            notes: None,
            action: None,
            broken: None,
        });
        Recorded { seq, event }
    }

    #[test]
    fn a_cursor_sees_what_had_happened_by_then() {
        let mut timeline = Timeline::default();
        for event in [turn(3, 0, 0), turn(4, 1, 0), turn(7, 0, 1)] {
            timeline.apply(&event);
        }
        let id = TrajectoryId::default();
        for (at, turns) in [
            (Some(2), 0),
            (Some(3), 1),
            (Some(6), 1),
            (Some(7), 2),
            (None, 2),
        ] {
            assert_eq!(timeline.standing(id, at).turns, turns, "{at:?}");
        }
        assert_eq!(timeline.neighbour(3, true).unwrap().0, 4);
        assert_eq!(timeline.neighbour(3, false), None);
        assert_eq!(timeline.neighbour(7, true), None);
        assert_eq!(timeline.first_of(Purpose::Train, 0), Some(3));
    }
}

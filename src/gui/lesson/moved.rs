//! What is looked at in a station, and what was moved there. Every station has its own, so that what is
//! moved in one changes nothing in another.

use super::bench::Bench;
use super::museum::Piece;
use super::station::Station;
use crate::experiment::CreditSettings;

/// A rollout of the step on the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Place of its group among the groups of the step.
    pub group: usize,
    /// Its place inside the group.
    pub member: usize,
}

/// What a station shows: a question is asked, and a guess kept, for each of these by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// The rollout.
    pub place: Place,
    /// The piece of the museum; the first one in the other stations.
    pub piece: Piece,
}

/// What was moved at a station.
#[derive(Clone, Debug, PartialEq)]
pub struct Moved {
    /// What is looked at.
    pub at: At,
    /// The settings.
    pub settings: CreditSettings,
    /// The outcome rewards of the group.
    pub rewards: Vec<f64>,
    /// After how many scored notes the rollout stops (the station about stopping).
    pub kept: usize,
    /// Whether the piece is shown as it was published (the museum).
    pub published: bool,
    /// The bound that ratios are clipped at (the station about the push).
    pub clip: f32,
}

impl Moved {
    /// How a station starts: from the record, with the rollout that shows its point best.
    #[must_use]
    pub fn start(station: Station, bench: &Bench) -> Self {
        let at = best(station, bench, Piece::default(), None);
        Self::start_at(station, bench, at)
    }

    /// How a station starts with something to look at.
    #[must_use]
    pub fn start_at(station: Station, bench: &Bench, at: At) -> Self {
        Self {
            at,
            settings: (station.parts().start)(&bench.recorded),
            rewards: bench.rewards(at.place.group),
            kept: 1,
            published: false,
            clip: bench.clip.1,
        }
    }

    /// Looks at something else. What belongs to a rollout or a group starts anew; settings stay.
    pub fn look_at(&mut self, bench: &Bench, at: At) {
        if at.place.group != self.at.place.group {
            self.rewards = bench.rewards(at.place.group);
        }
        if at.place != self.at.place {
            self.kept = 1;
        }
        self.at = at;
    }

    /// The next group, with the rollout in front that shows the point of the station best.
    pub fn next_group(&mut self, station: Station, bench: &Bench) {
        let count = bench.inputs.groups.len().max(1);
        let group = (self.at.place.group + 1) % count;
        let at = best(station, bench, self.at.piece, Some(group));
        self.look_at(bench, at);
    }
}

/// The rollout of a group, or of the whole step, that shows the point of a station best.
#[must_use]
pub fn best(station: Station, bench: &Bench, piece: Piece, group: Option<usize>) -> At {
    let worth = station.parts().worth;
    let groups = match group {
        Some(group) => group..group + 1,
        None => 0..bench.inputs.groups.len(),
    };
    let mut found = At {
        place: Place {
            group: groups.start,
            member: 0,
        },
        piece,
    };
    let mut most = f64::NEG_INFINITY;
    for group in groups {
        for member in 0..bench.members(group).len() {
            let place = Place { group, member };
            let worth = worth(bench, At { place, piece });
            if worth > most {
                (found.place, most) = (place, worth);
            }
        }
    }
    found
}

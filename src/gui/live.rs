//! The run that this process trains, as the window sees it: what it does now, and what it is asked.

use std::collections::BTreeMap;

use super::words::{reason, signed};
use crate::run::{Aside, AsideAnswer, Controls, Pace, Told};
use crate::schedule::Activity;
use crate::tools::Interrupts;
use crate::trajectory::{Action, TokenId, TrajectoryId, TurnState};

/// The live run.
pub struct Live {
    /// What it is asked through.
    pub controls: Controls,
    /// Stops it at the next safe point.
    pub interrupts: Interrupts,
    told: Told,
    writing: BTreeMap<TrajectoryId, String>,
    forks: Vec<ShownFork>,
    forked: u32,
}

/// A trajectory of the running phase, ready to be shown.
pub struct ShownLane<'a> {
    /// What it is doing.
    pub says: &'a str,
    /// What has been written of its turn.
    pub text: &'a str,
}

/// A fork, ready to be shown.
#[derive(Clone, Debug)]
pub struct ShownFork {
    /// Of which trajectory.
    pub id: TrajectoryId,
    /// After which turn.
    pub turn: u32,
    /// The turns that came of it.
    pub turns: Vec<String>,
    end: String,
}

impl ShownFork {
    /// What it is.
    #[must_use]
    pub fn heading(&self) -> String {
        format!(
            "Fork after turn {}: not trained on, not recorded",
            self.turn
        )
    }

    /// How it ended.
    #[must_use]
    pub fn verdict(&self) -> &str {
        &self.end
    }
}

impl Live {
    /// A run that is controlled through these.
    #[must_use]
    pub fn new(controls: Controls, interrupts: Interrupts) -> Self {
        Self {
            controls,
            interrupts,
            told: Told::default(),
            writing: BTreeMap::new(),
            forks: Vec::new(),
            forked: 0,
        }
    }

    /// Takes in how the run stands; gives what is to be said of what was asked aside.
    pub fn update(&mut self, vocabulary: &[String]) -> Vec<String> {
        let before = self.told.asides.len();
        self.told = self.controls.told();
        let word = |id: &TokenId| vocabulary.get(*id as usize).map_or("", String::as_str);
        let under_way = self.controls.under_way();
        self.writing = self
            .told
            .lanes
            .keys()
            .filter_map(|id| Some((*id, under_way.get(id)?.iter().map(word).collect())))
            .collect();
        let new = self.told.asides.get(before..).unwrap_or_default().to_vec();
        new.into_iter()
            .map(|(ask, answer)| self.hear(&ask, answer))
            .collect()
    }

    fn hear(&mut self, ask: &Aside, answer: Result<AsideAnswer, String>) -> String {
        match (ask, answer) {
            (_, Err(why)) => why,
            (
                Aside::Fork { id, turn, .. },
                Ok(AsideAnswer::Forked {
                    turns,
                    reason: why,
                    outcome,
                }),
            ) => {
                let end = format!("{}, {:.2}", reason(why), outcome.reward);
                let said = format!("The fork of {id} ended: {end}");
                self.forks.push(ShownFork {
                    id: *id,
                    turn: *turn,
                    turns,
                    end,
                });
                said
            }
            (Aside::WithoutNotes { turn, .. }, Ok(AsideAnswer::WithoutNotes { with, without })) => {
                format!(
                    "Turn {turn}: P(answer | notes) is {with:.3}; had the notes been empty, {without:.3} (difference {})",
                    signed((with - without) as f32, 3)
                )
            }
            (ask, Ok(answer)) => format!("{ask:?} was answered by {answer:?}"),
        }
    }

    /// A trajectory of the running phase.
    #[must_use]
    pub fn lane(&self, id: TrajectoryId) -> Option<ShownLane<'_>> {
        let lane = self.told.lanes.get(&id)?;
        let says = match (lane.state, &lane.call) {
            (TurnState::Pending, _) => "waits for the engine",
            (TurnState::Generating, _) => "writes",
            (TurnState::ProcessingTools, Some(Action::Access(_))) => "opens a page",
            (TurnState::ProcessingTools, _) => "searches",
            (TurnState::Terminated(why), _) => reason(why),
        };
        let text = self.writing.get(&id).map_or("", String::as_str);
        Some(ShownLane { says, text })
    }

    /// What a trajectory may still spend, as a sentence.
    #[must_use]
    pub fn budget(&self, id: TrajectoryId) -> Option<String> {
        let lane = self.told.lanes.get(&id)?;
        Some(format!(
            "{} turns and {} tokens left",
            lane.budget.turns, lane.budget.tokens
        ))
    }

    /// The forks of a trajectory, the oldest first.
    pub fn forks_of(&self, id: TrajectoryId) -> impl Iterator<Item = &ShownFork> {
        self.forks.iter().filter(move |fork| fork.id == id)
    }

    /// Asks for a fork; numbers make each a future of its own.
    pub fn fork(
        &mut self,
        id: TrajectoryId,
        turn: u32,
        notes: Option<String>,
        tool: Option<String>,
    ) {
        self.forked += 1;
        self.controls.ask(Aside::Fork {
            id,
            turn,
            notes,
            tool,
            number: self.forked,
        });
    }

    /// Whether the run is paused, or about to be.
    #[must_use]
    pub fn paused(&self) -> bool {
        self.controls.pace() != Pace::Free
    }

    /// Whether the run is over.
    #[must_use]
    pub fn over(&self) -> bool {
        self.told.over
    }

    /// Pauses, or goes on.
    pub fn toggle(&self) {
        self.controls.set(if self.paused() {
            Pace::Free
        } else {
            Pace::Paused
        });
    }

    /// One tick; or, if the selected trajectory is under way, until its state changes.
    pub fn step(&self, selected: TrajectoryId) {
        let alive = self
            .told
            .lanes
            .get(&selected)
            .is_some_and(|lane| !matches!(lane.state, TurnState::Terminated(_)));
        self.controls.set(if alive {
            Pace::Until(selected, None)
        } else {
            Pace::Ticks(1)
        });
    }

    /// One line: what the run is doing.
    #[must_use]
    pub fn status(&self) -> String {
        let activity = match self.told.activity {
            None | Some(Activity::Starting) => "starting",
            Some(Activity::ColdStart) => "cold start",
            Some(Activity::BeginRl) => "begins RL",
            Some(Activity::Evaluating) => "evaluating",
            Some(Activity::RollingOut) => "rolling out",
            Some(Activity::Scoring) => "scoring notes",
            Some(Activity::Learning) => "learning",
            Some(Activity::Saving) => "saving",
            Some(Activity::Finishing) => "finishing",
            Some(Activity::Finished) => "done",
        };
        let (done, steps) = self.told.steps;
        let paused = if self.paused() && !self.over() {
            ", paused"
        } else {
            ""
        };
        format!("{activity}{paused}, step {done} of {steps}")
    }
}

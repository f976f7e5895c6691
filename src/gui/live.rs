//! The run that this process trains, as the window sees it: what it does now, and what it is asked.

use std::collections::BTreeMap;
use std::time::Instant;

use super::words::{place, reason, signed};
use crate::record::TrajectoryView;
use crate::run::{Aside, AsideAnswer, Controls, Pace, Told};
use crate::schedule::Activity;
use crate::tools::Interrupts;
use crate::trajectory::{Action, TokenId, TrajectoryId, TurnState};

/// Forks that are kept, of all trajectories.
const FORKS: usize = 32;

/// The live run.
pub struct Live {
    /// What it is asked through.
    pub controls: Controls,
    /// Stops it at the next safe point.
    pub interrupts: Interrupts,
    told: Told,
    writing: BTreeMap<TrajectoryId, String>,
    /// Since when each trajectory is in its state, as far as the window saw.
    since: BTreeMap<TrajectoryId, (TurnState, Instant)>,
    /// Answers that were taken in.
    heard: u64,
    forks: Vec<ShownFork>,
    forked: u32,
}

/// A trajectory of the running phase, ready to be shown.
pub struct ShownLane<'a> {
    /// What it is doing: its state, with what it waits for.
    pub says: String,
    /// What has been written of its turn; nothing if the record has all of it.
    pub text: &'a str,
}

/// A fork, ready to be shown.
#[derive(Clone, Debug)]
pub struct ShownFork {
    /// Of which trajectory.
    pub id: TrajectoryId,
    /// After which turn.
    pub turn: u32,
    /// What was put in the place of the notes.
    pub notes: Option<String>,
    /// What was put in the place of the tool's answer.
    pub tool: Option<String>,
    /// The turns that came of it.
    pub turns: Vec<String>,
    end: String,
}

impl ShownFork {
    /// What it is.
    #[must_use]
    pub fn heading(&self) -> String {
        let edited = match (&self.notes, &self.tool) {
            (Some(_), Some(_)) => "notes and tool result edited",
            (Some(_), None) => "notes edited",
            (None, Some(_)) => "tool result edited",
            (None, None) => "nothing edited, sampled again",
        };
        format!(
            "Fork after turn {}, {edited}: not trained on, not recorded",
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
            since: BTreeMap::new(),
            heard: 0,
            forks: Vec::new(),
            forked: 0,
        }
    }

    /// Takes in how the run stands; gives what is to be said of what was asked aside.
    pub fn update(&mut self, vocabulary: &[String]) -> Vec<String> {
        self.told = self.controls.told();
        let now = Instant::now();
        let before = std::mem::take(&mut self.since);
        self.since = self
            .told
            .lanes
            .iter()
            .map(|(id, lane)| {
                let same = before.get(id).filter(|(state, _)| *state == lane.state);
                (*id, same.copied().unwrap_or((lane.state, now)))
            })
            .collect();
        let word = |id: &TokenId| vocabulary.get(*id as usize).map_or("", String::as_str);
        let under_way = self.controls.under_way();
        self.writing = self
            .told
            .lanes
            .keys()
            .filter_map(|id| Some((*id, under_way.get(id)?.iter().map(word).collect())))
            .collect();
        let new = self.told.answered.saturating_sub(self.heard) as usize;
        self.heard = self.told.answered;
        let from = self.told.asides.len().saturating_sub(new);
        let new = self.told.asides.get(from..).unwrap_or_default().to_vec();
        new.iter().map(|told| self.hear(&told.0, &told.1)).collect()
    }

    fn hear(&mut self, ask: &Aside, answer: &Result<AsideAnswer, String>) -> String {
        let (Aside::Fork { id, .. } | Aside::WithoutNotes { id, .. }) = ask;
        match (ask, answer) {
            (_, Err(why)) => format!("{}: {why}", place(*id)),
            (
                Aside::Fork {
                    id,
                    turn,
                    notes,
                    tool,
                    ..
                },
                Ok(AsideAnswer::Forked {
                    turns,
                    reason: why,
                    outcome,
                }),
            ) => {
                let end = format!("{}, {:.2}", reason(*why), outcome.reward);
                let said = format!("The fork of {} ended: {end}", place(*id));
                if self.forks.len() >= FORKS {
                    self.forks.remove(0);
                }
                self.forks.push(ShownFork {
                    id: *id,
                    turn: *turn,
                    notes: notes.clone(),
                    tool: tool.clone(),
                    turns: turns.clone(),
                    end,
                });
                said
            }
            (Aside::WithoutNotes { turn, .. }, Ok(AsideAnswer::WithoutNotes { with, without })) => {
                format!(
                    "{}, turn {turn}: P(answer | notes) is {with:.3}; had the notes been empty, {without:.3} (difference {})",
                    place(*id),
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
        let waited = self
            .since
            .get(&id)
            .map_or(0.0, |(_, since)| since.elapsed().as_secs_f32());
        let text = self
            .writing
            .get(&id)
            .filter(|_| lane.state == TurnState::Generating)
            .map_or("", String::as_str);
        let says = match (lane.state, &lane.call) {
            (TurnState::Pending, _) => "waits for the engine".into(),
            (TurnState::Generating, _) => "writes".into(),
            (TurnState::ProcessingTools, Some(Action::Access(page))) => {
                format!("opens {}, {waited:.1} s", page.trim())
            }
            (TurnState::ProcessingTools, Some(Action::Search(query))) => {
                format!("searches {}, {waited:.1} s", query.trim())
            }
            (TurnState::ProcessingTools, _) => format!("waits for a tool, {waited:.1} s"),
            (TurnState::Terminated(why), _) => reason(why).into(),
        };
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

    /// Whether the engine can go on with a trajectory, or score its notes; else why not.
    ///
    /// # Errors
    /// The reason, for the user.
    pub fn within_reach(&self, id: TrajectoryId) -> Result<(), String> {
        if self.over() {
            return Err("The run is over, and its engine with it".into());
        }
        if !self.told.lanes.contains_key(&id) {
            return Err(
                "The engine knows only the rollouts of the phase that is under way: pause the run while it rolls out, and ask then"
                    .into(),
            );
        }
        Ok(())
    }

    /// Asks what the answer would be worth without the notes of a turn.
    ///
    /// # Errors
    /// Why it cannot be asked, for the user.
    pub fn ask_without_notes(&self, of: &TrajectoryView, turn: u32) -> Result<(), String> {
        self.within_reach(of.id)?;
        let notes = of.turns.get(turn as usize);
        if notes.is_none_or(|turn| turn.wrote.notes.is_none()) {
            return Err(format!("Turn {turn} wrote no notes"));
        }
        self.controls.ask(Aside::WithoutNotes { id: of.id, turn });
        Ok(())
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
        if self.over() {
            return format!("over, {done} of {steps} steps done");
        }
        let step = match self.told.activity {
            // What is under way is the step after those that are done.
            Some(Activity::RollingOut | Activity::Scoring | Activity::Learning) => {
                format!("step {} of {steps}", (done + 1).min(steps))
            }
            _ => format!("{done} of {steps} steps done"),
        };
        let paused = if self.paused() { ", paused" } else { "" };
        format!("{activity}{paused}, {step}")
    }
}

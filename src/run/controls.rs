//! What a window may ask of a run that this process trains: pause, step, go on. The run looks between
//! two ticks, so nothing that is computed changes; what it tells in return is a copy.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bevy_ecs::prelude::*;

use super::aside::{self, Aside, AsideAnswer};
use crate::engine::{EngineLink, Glance};
use crate::rollout::{Roster, RunSettings};
use crate::schedule::{Activity, Cursor, Phase};
use crate::tools::Interrupts;
use crate::trajectory::{Action, Budget, TrajectoryId, TurnState, Turns};

/// How often a paused run looks whether it was interrupted.
const LOOK: Duration = Duration::from_millis(50);
/// How often a run that goes on tells how it stands.
const TELL: Duration = Duration::from_millis(200);

/// Answers that are kept: a window that looks a few times a second misses none.
const ASIDES: usize = 32;

/// How the run is to go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// As fast as it can.
    #[default]
    Free,
    /// Not at all.
    Paused,
    /// So many ticks, then a pause.
    Ticks(u32),
    /// Until this trajectory changes its state, then a pause.
    Until(TrajectoryId, Option<TurnState>),
}

/// How a trajectory of the running phase stands.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneTold {
    /// Its state.
    pub state: TurnState,
    /// Turns begun.
    pub turns: u32,
    /// What it may still spend.
    pub budget: Budget,
    /// The tool call it waits for.
    pub call: Option<Action>,
}

/// How the run stands.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// What it is doing.
    pub activity: Option<Activity>,
    /// RL steps done, and to do.
    pub steps: (u32, u32),
    /// The trajectories of the phase.
    pub lanes: Arc<BTreeMap<TrajectoryId, LaneTold>>,
    /// What was asked aside, and what came of it: the last few, the newest last.
    pub asides: Vec<Arc<(Aside, Result<AsideAnswer, String>)>>,
    /// How many were answered in all.
    pub answered: u64,
    /// Whether the run is over.
    pub over: bool,
}

impl Told {
    fn hear(&mut self, ask: Aside, answer: Result<AsideAnswer, String>) {
        if self.asides.len() >= ASIDES {
            self.asides.remove(0);
        }
        self.asides.push(Arc::new((ask, answer)));
        self.answered += 1;
    }
}

#[derive(Default)]
struct State {
    pace: Pace,
    asides: Vec<Aside>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    told: Mutex<Told>,
    glance: Mutex<Option<Glance>>,
    listener: Mutex<Option<Box<dyn Fn() + Send>>>,
}

/// Shared by the run and its window.
#[derive(Resource, Clone, Default)]
pub struct Controls(Arc<Shared>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Controls {
    /// Sets the pace.
    pub fn set(&self, pace: Pace) {
        lock(&self.0.state).pace = pace;
        self.0.changed.notify_all();
    }

    /// The pace.
    #[must_use]
    pub fn pace(&self) -> Pace {
        lock(&self.0.state).pace
    }

    /// Asks for something that the run does between two ticks, beside its own work.
    pub fn ask(&self, aside: Aside) {
        lock(&self.0.state).asides.push(aside);
        self.0.changed.notify_all();
    }

    /// How the run stands.
    #[must_use]
    pub fn told(&self) -> Told {
        lock(&self.0.told).clone()
    }

    /// Called by the run when it has something new to tell.
    pub fn listen(&self, listener: impl Fn() + Send + 'static) {
        *lock(&self.0.listener) = Some(Box::new(listener));
    }

    /// A look at the turns that are being written; none before the run has an engine.
    #[must_use]
    pub fn under_way(&self) -> crate::engine::UnderWay {
        let glance = lock(&self.0.glance).clone();
        glance.map(|glance| glance.look()).unwrap_or_default()
    }

    /// Says that the run is over, so that nobody waits for it.
    pub fn end(&self) {
        lock(&self.0.told).over = true;
        self.notify();
    }

    fn notify(&self) {
        if let Some(listener) = &*lock(&self.0.listener) {
            listener();
        }
    }

    /// What the run does before a tick: answers what was asked aside, and waits while it is paused.
    /// An interrupt ends every pause.
    pub(super) fn before_tick(&self, world: &mut World, last_told: &mut Option<Instant>) {
        if lock(&self.0.glance).is_none() {
            let glance = world.get_resource::<EngineLink>().map(EngineLink::glance);
            *lock(&self.0.glance) = glance;
        }
        if last_told.is_none_or(|at| at.elapsed() >= TELL) {
            self.tell(world);
            *last_told = Some(Instant::now());
        }
        let mut told = false;
        loop {
            let asides = std::mem::take(&mut lock(&self.0.state).asides);
            for ask in asides {
                let answer = aside::answer(world, &ask);
                lock(&self.0.told).hear(ask, answer);
                self.notify();
            }
            if self.may_go_on(world) {
                return;
            }
            if !told {
                self.tell(world);
                told = true;
            }
            let state = lock(&self.0.state);
            if state.asides.is_empty() {
                drop(self.0.changed.wait_timeout(state, LOOK));
            }
        }
    }

    fn may_go_on(&self, world: &World) -> bool {
        let interrupted = world
            .get_resource::<Interrupts>()
            .is_some_and(Interrupts::requested);
        if interrupted {
            return true;
        }
        let mut state = lock(&self.0.state);
        match state.pace {
            Pace::Free => true,
            Pace::Paused => false,
            Pace::Ticks(0) => {
                state.pace = Pace::Paused;
                false
            }
            Pace::Ticks(left) => {
                state.pace = Pace::Ticks(left - 1);
                true
            }
            Pace::Until(id, from) => {
                let now = state_of(world, id);
                // A trajectory that the phase does not have never changes: one tick, then.
                match (from, now) {
                    (_, None) => {
                        state.pace = Pace::Paused;
                        true
                    }
                    (None, now) => {
                        state.pace = Pace::Until(id, now);
                        true
                    }
                    (Some(then), Some(now)) => {
                        if then != now {
                            state.pace = Pace::Paused;
                        }
                        then == now
                    }
                }
            }
        }
    }

    fn tell(&self, world: &World) {
        let lanes = lanes(world);
        let steps = world
            .get_resource::<RunSettings>()
            .map_or(0, |of| of.0.learner.steps);
        let done = world
            .get_resource::<Cursor>()
            .map_or(0, |cursor| cursor.step);
        {
            let mut told = lock(&self.0.told);
            told.activity = world.get_resource::<Phase>().map(|phase| phase.activity);
            told.steps = (done, steps);
            told.lanes = Arc::new(lanes);
        }
        self.notify();
    }
}

fn state_of(world: &World, id: TrajectoryId) -> Option<TurnState> {
    let entity = *world.get_resource::<Roster>()?.entities.get(&id)?;
    world.get::<TurnState>(entity).copied()
}

fn lanes(world: &World) -> BTreeMap<TrajectoryId, LaneTold> {
    let Some(roster) = world.get_resource::<Roster>() else {
        return BTreeMap::new();
    };
    let lane = |(&id, &entity): (&TrajectoryId, &Entity)| {
        let state = *world.get::<TurnState>(entity)?;
        let turns = world.get::<Turns>(entity)?;
        let waits = state == TurnState::ProcessingTools;
        let call = turns
            .0
            .last()
            .filter(|_| waits)
            .and_then(|turn| turn.action.clone());
        let told = LaneTold {
            state,
            turns: turns.0.len() as u32,
            budget: world.get::<Budget>(entity).copied().unwrap_or_default(),
            call,
        };
        Some((id, told))
    };
    roster.entities.iter().filter_map(lane).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_answers_are_kept_and_all_are_counted() {
        let mut told = Told::default();
        for turn in 0..100 {
            let id = TrajectoryId::default();
            told.hear(Aside::WithoutNotes { id, turn }, Err("no".into()));
        }
        assert_eq!((told.asides.len(), told.answered), (ASIDES, 100));
        let last = told.asides.last().map(|told| told.0.clone());
        let id = TrajectoryId::default();
        assert_eq!(last, Some(Aside::WithoutNotes { id, turn: 99 }));
    }
}

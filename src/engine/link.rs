//! The engine thread and the channels to it.
//!
//! One thread owns model, cache and optimizer; generating, scoring and learning use the same
//! weights, so nothing has to be synchronised. The simulation sends batches of plain data and takes
//! replies in; only the receiving system may wait. While turns are under way, the thread takes new
//! requests in between two steps, and every step gives out the turns that ended in it.

use std::path::PathBuf;
use std::time::Instant;

use bevy_app::prelude::*;
use bevy_ecs::prelude::*;
use crossbeam::channel::{Receiver, Sender, TryRecvError, unbounded};

use super::{
    Engine, EngineError, GenerateRequest, Generated, LearnBatch, LearnReport, ScoreRequest, Scored,
    SupervisedBatch, SupervisedReport,
};
use crate::experiment::LoraSettings;
use crate::schedule::{PalimpsestSystems, stop_on_error};
use crate::tools::ToolLink;
use crate::trajectory::TrajectoryId;

/// What the simulation asks the engine thread for. Every turn gets one reply, and so does every
/// other request.
#[derive(Debug)]
pub enum EngineRequest {
    /// [`Engine::submit`].
    Generate(Vec<GenerateRequest>),
    /// [`Engine::release`].
    Release(Vec<TrajectoryId>),
    /// [`Engine::score`].
    Score(Vec<ScoreRequest>),
    /// [`Engine::learn`].
    Learn(LearnBatch),
    /// [`Engine::supervise`].
    Supervise(SupervisedBatch),
    /// [`Engine::begin_rl`], then [`Engine::begin_adapters`], [`Engine::freeze_reference`] and
    /// [`Engine::begin_average`] if asked.
    BeginRl {
        /// Whether a reference policy is kept.
        reference: bool,
        /// Whether a moving average of the policy is kept.
        average: bool,
        /// Adapters that learn in place of all weights, and the seed of their first values.
        lora: Option<(LoraSettings, u64)>,
    },
    /// [`Engine::save`].
    Save {
        /// Where to.
        folder: PathBuf,
        /// Whether the optimizer goes with it.
        with_optimizer: bool,
    },
}

/// What the engine thread answers.
#[derive(Debug)]
pub enum EngineReply {
    /// Turns that ended.
    Generated(Vec<Generated>),
    /// Trajectories were forgotten, and so many of their turns are never given out.
    Released(usize),
    /// Log-probs.
    Scored(Vec<Scored>),
    /// An update.
    Learned(LearnReport),
    /// A supervised step.
    Supervised(SupervisedReport),
    /// RL has begun.
    BegunRl,
    /// A folder was written.
    Saved(PathBuf),
}

/// The simulation's end of the channels.
#[derive(Resource)]
pub struct EngineLink {
    requests: Option<Sender<EngineRequest>>,
    replies: Receiver<Answer>,
    outstanding: usize,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl EngineLink {
    /// Starts the engine thread. `make` runs on it, since tensors do not like to travel; its error
    /// is returned here.
    ///
    /// # Errors
    /// What `make` returned, or [`EngineError::Backend`] if no thread could be started.
    pub fn start<E: Engine>(
        make: impl FnOnce() -> Result<E, EngineError> + Send + 'static,
    ) -> Result<Self, EngineError> {
        let (requests, inbox) = unbounded();
        let (outbox, replies) = unbounded();
        let (ready, is_ready) = unbounded();
        let thread = std::thread::Builder::new()
            .name("engine".into())
            .spawn(move || {
                let mut engine = match make() {
                    Ok(engine) => engine,
                    Err(error) => {
                        ready.send(Err(error)).ok();
                        return;
                    }
                };
                ready.send(Ok(())).ok();
                serve(&mut engine, &inbox, &outbox);
            })
            .map_err(|error| {
                EngineError::Backend(format!("no thread could be started: {error}"))
            })?;
        is_ready.recv().map_err(|_| EngineError::Gone)??;
        Ok(Self {
            requests: Some(requests),
            replies,
            outstanding: 0,
            thread: Some(thread),
        })
    }

    /// Hands a request over; never waits.
    ///
    /// # Errors
    /// [`EngineError::Gone`] if the thread has ended.
    pub fn send(&mut self, request: EngineRequest) -> Result<(), EngineError> {
        let replies = match &request {
            EngineRequest::Generate(requests) => requests.len(),
            _ => 1,
        };
        let sender = self.requests.as_ref().ok_or(EngineError::Gone)?;
        sender.send(request).map_err(|_| EngineError::Gone)?;
        self.outstanding += replies;
        Ok(())
    }

    /// Turns and other requests that have not been answered.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }
}

impl Drop for EngineLink {
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

type Answer = (Result<EngineReply, EngineError>, f64);

fn serve(engine: &mut impl Engine, inbox: &Receiver<EngineRequest>, outbox: &Sender<Answer>) {
    let mut started = Instant::now();
    loop {
        // Requests come before the next step; without turns under way there is nothing else to do.
        let request = if engine.unfinished() > 0 {
            inbox.try_recv()
        } else {
            let request = inbox.recv().map_err(|_| TryRecvError::Disconnected);
            started = Instant::now();
            request
        };
        let reply = match request {
            Ok(request) => answer(engine, request),
            Err(TryRecvError::Empty) => match engine.step() {
                Ok(turns) if turns.is_empty() => continue,
                turns => Some(turns.map(EngineReply::Generated)),
            },
            Err(TryRecvError::Disconnected) => return,
        };
        let Some(reply) = reply else { continue };
        let spent = std::mem::replace(&mut started, Instant::now());
        if outbox.send((reply, spent.elapsed().as_secs_f64())).is_err() {
            return;
        }
    }
}

/// Does what is asked for; turns are answered by the steps in which they end.
fn answer(
    engine: &mut impl Engine,
    request: EngineRequest,
) -> Option<Result<EngineReply, EngineError>> {
    let reply = match request {
        EngineRequest::Generate(requests) => {
            return engine.submit(requests).err().map(Err);
        }
        EngineRequest::Release(trajectories) => {
            Ok(EngineReply::Released(engine.release(&trajectories)))
        }
        EngineRequest::Score(requests) => engine.score(&requests).map(EngineReply::Scored),
        EngineRequest::Learn(batch) => engine.learn(&batch).map(EngineReply::Learned),
        EngineRequest::Supervise(batch) => engine.supervise(&batch).map(EngineReply::Supervised),
        EngineRequest::BeginRl {
            reference,
            average,
            lora,
        } => {
            engine.begin_rl();
            if let Some((adapters, seed)) = &lora
                && let Err(error) = engine.begin_adapters(adapters, *seed)
            {
                return Some(Err(error));
            }
            if reference {
                engine.freeze_reference();
            }
            if average {
                engine.begin_average();
            }
            Ok(EngineReply::BegunRl)
        }
        EngineRequest::Save {
            folder,
            with_optimizer,
        } => engine
            .save(&folder, with_optimizer)
            .map(|()| EngineReply::Saved(folder)),
    };
    Some(reply)
}

/// Replies taken in this tick; consumers take them out.
#[derive(Resource, Debug, Default)]
pub struct EngineInbox {
    /// Turns, sorted by (trajectory, turn).
    pub generated: Vec<Generated>,
    /// Log-probs.
    pub scored: Option<Vec<Scored>>,
    /// An update.
    pub learned: Option<LearnReport>,
    /// A supervised step.
    pub supervised: Option<SupervisedReport>,
    /// RL has begun.
    pub begun_rl: bool,
    /// A folder was written.
    pub saved: Option<PathBuf>,
}

/// Seconds the engine spent since they were last taken, by kind of work.
#[derive(Resource, Clone, Copy, Debug, Default)]
pub struct EngineSeconds {
    /// Generating.
    pub generate: f64,
    /// Scoring.
    pub score: f64,
    /// Learning, supervised or not.
    pub learn: f64,
    /// Saving.
    pub save: f64,
}

/// Whether a tick waits for all its replies.
#[derive(Resource, Clone, Copy, Debug)]
pub struct Lockstep(pub bool);

/// Takes replies in. In lockstep it waits until every outstanding reply of engine and tools is here,
/// then sorts them, so that a run repeats bit for bit. Free-running it takes what is there, and
/// waits only if nothing else could happen.
fn receive_replies(
    lockstep: Res<Lockstep>,
    mut link: ResMut<EngineLink>,
    mut inbox: ResMut<EngineInbox>,
    mut seconds: ResMut<EngineSeconds>,
    mut tools: ResMut<ToolLink>,
) -> Result {
    let link = &mut *link;
    if lockstep.0 {
        while link.outstanding > 0 {
            let reply = link.replies.recv().map_err(|_| EngineError::Gone)?;
            take(link, &mut inbox, &mut seconds, reply)?;
        }
        tools.wait_for_all()?;
    } else {
        let mut idle = true;
        while let Ok(reply) = link.replies.try_recv() {
            idle = false;
            take(link, &mut inbox, &mut seconds, reply)?;
        }
        idle &= !tools.drain();
        if idle && link.outstanding + tools.outstanding() > 0 {
            // Nothing to do until one of them answers: sleep on both.
            crossbeam::channel::select! {
                recv(link.replies) -> reply => {
                    let reply = reply.map_err(|_| EngineError::Gone)?;
                    take(link, &mut inbox, &mut seconds, reply)?;
                }
                recv(tools.replies()) -> reply => tools.accept(reply),
            }
        }
    }
    inbox.generated.sort_by_key(|turn| (turn.id, turn.turn));
    Ok(())
}

fn take(
    link: &mut EngineLink,
    inbox: &mut EngineInbox,
    seconds: &mut EngineSeconds,
    (reply, spent): Answer,
) -> Result<(), EngineError> {
    let reply = reply?;
    let answered = match &reply {
        EngineReply::Generated(turns) => turns.len(),
        EngineReply::Released(dropped) => 1 + dropped,
        _ => 1,
    };
    link.outstanding = link.outstanding.saturating_sub(answered);
    match reply {
        EngineReply::Released(_) => {}
        EngineReply::Generated(turns) => {
            inbox.generated.extend(turns);
            seconds.generate += spent;
        }
        EngineReply::Scored(scored) => {
            inbox.scored = Some(scored);
            seconds.score += spent;
        }
        EngineReply::Learned(report) => {
            inbox.learned = Some(report);
            seconds.learn += spent;
        }
        EngineReply::Supervised(report) => {
            inbox.supervised = Some(report);
            seconds.learn += spent;
        }
        EngineReply::BegunRl => inbox.begun_rl = true,
        EngineReply::Saved(folder) => {
            inbox.saved = Some(folder);
            seconds.save += spent;
        }
    }
    Ok(())
}

/// Wires the receiving system. The link itself is inserted by whoever builds the app.
pub fn plugin(app: &mut App) {
    app.init_resource::<EngineInbox>()
        .init_resource::<EngineSeconds>()
        .add_systems(
            Update,
            receive_replies
                .pipe(stop_on_error)
                .in_set(PalimpsestSystems::Receive),
        );
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::scripted::ScriptedEngine;
    use super::super::{GenerateRequest, Sampling};
    use super::*;

    fn request(member: u32) -> GenerateRequest {
        GenerateRequest {
            id: TrajectoryId {
                member,
                ..TrajectoryId::default()
            },
            turn: 0,
            context: vec![member],
            max_new_tokens: 9,
            sampling: Sampling::plain(1.0, 0),
            stop: Arc::from(vec![]),
            ignore_eos: false,
        }
    }

    fn take_all(link: &mut EngineLink) -> EngineInbox {
        let (mut inbox, mut seconds) = (EngineInbox::default(), EngineSeconds::default());
        while link.outstanding() > 0 {
            let reply = link.replies.recv().unwrap();
            take(link, &mut inbox, &mut seconds, reply).unwrap();
        }
        inbox
    }

    fn start() -> EngineLink {
        let script = |request: &GenerateRequest| vec![request.context[0] + 1];
        EngineLink::start(move || Ok(ScriptedEngine::new(Arc::new(script)))).unwrap()
    }

    #[test]
    fn every_turn_is_one_reply_and_so_is_every_other_request() {
        let mut link = start();
        link.send(EngineRequest::Generate(vec![request(0), request(1)]))
            .unwrap();
        link.send(EngineRequest::Generate(vec![request(2)]))
            .unwrap();
        link.send(EngineRequest::Release(vec![])).unwrap();
        assert_eq!(link.outstanding(), 4);
        let mut turns = take_all(&mut link).generated;
        turns.sort_by_key(|turn| turn.id);
        let said: Vec<u32> = turns.iter().map(|turn| turn.ids[0]).collect();
        assert_eq!(said, [1, 2, 3]);
    }

    #[test]
    fn turns_that_are_released_are_not_waited_for() {
        let mut link = start();
        let everyone: Vec<TrajectoryId> = (0..50).map(|n| request(n).id).collect();
        link.send(EngineRequest::Generate((0..50).map(request).collect()))
            .unwrap();
        link.send(EngineRequest::Release(everyone)).unwrap();
        let turns = take_all(&mut link).generated.len();
        assert!(
            turns == 0 || turns == 50,
            "{turns} turns of a released batch"
        );
        assert_eq!(link.outstanding(), 0);
    }
}

//! The engine thread and the channels to it.
//!
//! One thread owns model, cache and optimizer; generating, scoring and learning use the same
//! weights, so nothing has to be synchronised. The simulation sends batches of plain data and takes
//! replies in; only the receiving system may wait.

use std::path::PathBuf;
use std::time::Instant;

use bevy_app::prelude::*;
use bevy_ecs::prelude::*;
use crossbeam::channel::{Receiver, Sender, unbounded};

use super::{
    Engine, EngineError, GenerateRequest, Generated, LearnBatch, LearnReport, ScoreRequest, Scored,
    SupervisedBatch, SupervisedReport,
};
use crate::schedule::{PalimpsestSystems, stop_on_error};
use crate::tools::ToolLink;
use crate::trajectory::TrajectoryId;

/// What the simulation asks the engine thread for. Every request but `Release` gets one reply.
#[derive(Debug)]
pub enum EngineRequest {
    /// [`Engine::generate`].
    Generate(Vec<GenerateRequest>),
    /// [`Engine::release`]; no reply.
    Release(Vec<TrajectoryId>),
    /// [`Engine::score`].
    Score(Vec<ScoreRequest>),
    /// [`Engine::learn`].
    Learn(LearnBatch),
    /// [`Engine::supervise`].
    Supervise(SupervisedBatch),
    /// [`Engine::begin_rl`], then [`Engine::freeze_reference`] and [`Engine::begin_average`] if asked.
    BeginRl {
        /// Whether a reference policy is kept.
        reference: bool,
        /// Whether a moving average of the policy is kept.
        average: bool,
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
    /// Turns.
    Generated(Vec<Generated>),
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
    replies: Receiver<(Result<EngineReply, EngineError>, f64)>,
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
        let replies = !matches!(request, EngineRequest::Release(_));
        let sender = self.requests.as_ref().ok_or(EngineError::Gone)?;
        sender.send(request).map_err(|_| EngineError::Gone)?;
        self.outstanding += usize::from(replies);
        Ok(())
    }

    /// Requests that have not been answered.
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

fn serve(
    engine: &mut impl Engine,
    inbox: &Receiver<EngineRequest>,
    outbox: &Sender<(Result<EngineReply, EngineError>, f64)>,
) {
    for request in inbox {
        let started = Instant::now();
        let reply = match request {
            EngineRequest::Release(trajectories) => {
                engine.release(&trajectories);
                continue;
            }
            EngineRequest::Generate(requests) => {
                engine.generate(&requests).map(EngineReply::Generated)
            }
            EngineRequest::Score(requests) => engine.score(&requests).map(EngineReply::Scored),
            EngineRequest::Learn(batch) => engine.learn(&batch).map(EngineReply::Learned),
            EngineRequest::Supervise(batch) => {
                engine.supervise(&batch).map(EngineReply::Supervised)
            }
            EngineRequest::BeginRl { reference, average } => {
                engine.begin_rl();
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
        if outbox
            .send((reply, started.elapsed().as_secs_f64()))
            .is_err()
        {
            return;
        }
    }
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
    (reply, spent): (Result<EngineReply, EngineError>, f64),
) -> Result<(), EngineError> {
    link.outstanding -= 1;
    match reply? {
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

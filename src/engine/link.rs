//! The engine thread and the channels to it.
//!
//! One thread owns model, cache and optimizer; generating, scoring and learning use the same
//! weights, so nothing has to be synchronised. The simulation sends batches of plain data and takes
//! replies in; only the receiving system may wait. While turns are under way, the thread takes new
//! requests in between two steps, and every step gives out the turns that ended in it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bevy_app::prelude::*;
use bevy_ecs::prelude::*;
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, unbounded};

use super::{
    Engine, EngineError, EngineInbox, EngineSeconds, GenerateRequest, Generated, Glance,
    LearnBatch, LearnReport, Lockstep, ScoreRequest, Scored, SupervisedBatch, SupervisedReport,
};
use crate::experiment::LoraSettings;
use crate::schedule::{PalimpsestSystems, stop_on_error};
use crate::tools::{Interrupts, ToolLink};
use crate::trajectory::TrajectoryId;

/// How long a wait lasts before it looks whether the run was asked to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

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
    glance: Glance,
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
        let glance = Glance::default();
        let offered = glance.clone();
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
                serve(&mut engine, &inbox, &outbox, &offered);
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
            glance,
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

    /// Waits for everything that was asked, and puts it where the next tick finds it; not any longer
    /// once the run is asked to stop.
    ///
    /// # Errors
    /// [`EngineError::Gone`], or what the engine says: the run cannot go on then.
    pub fn wait_for_all(
        &mut self,
        inbox: &mut EngineInbox,
        seconds: &mut EngineSeconds,
        interrupts: &Interrupts,
    ) -> Result<(), EngineError> {
        while self.outstanding > 0 {
            match self.replies.recv_timeout(LOOK_EVERY) {
                Ok(reply) => take(self, inbox, seconds, reply)?,
                Err(RecvTimeoutError::Timeout) if interrupts.requested() => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(EngineError::Gone),
            }
        }
        Ok(())
    }

    /// Asks for something beside the run, and waits for it. Nothing else may be outstanding.
    ///
    /// # Errors
    /// [`EngineError::Gone`], or what the engine says of this request.
    pub fn ask_aside(&mut self, request: EngineRequest) -> Result<Vec<EngineReply>, EngineError> {
        self.send(request)?;
        let mut replies = Vec::new();
        while self.outstanding > 0 {
            let (reply, _) = self.replies.recv().map_err(|_| EngineError::Gone)?;
            // An error answers everything that was asked.
            let reply = reply.inspect_err(|_| self.outstanding = 0)?;
            self.outstanding = self.outstanding.saturating_sub(answered(&reply));
            replies.push(reply);
        }
        Ok(replies)
    }

    /// A look at the turns that are being written.
    #[must_use]
    pub fn glance(&self) -> Glance {
        self.glance.clone()
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

fn serve(
    engine: &mut impl Engine,
    inbox: &Receiver<EngineRequest>,
    outbox: &Sender<Answer>,
    glance: &Glance,
) {
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
        glance.offer(engine);
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

/// Takes replies in. In lockstep it waits until every outstanding reply of engine and tools is here,
/// then sorts them, so that a run repeats bit for bit. Free-running it takes what is there, and
/// waits only if nothing else could happen. A run that is asked to stop waits for nobody.
fn receive_replies(
    lockstep: Res<Lockstep>,
    mut link: ResMut<EngineLink>,
    mut inbox: ResMut<EngineInbox>,
    mut seconds: ResMut<EngineSeconds>,
    mut tools: ResMut<ToolLink>,
    interrupts: Res<Interrupts>,
) -> Result {
    let link = &mut *link;
    if lockstep.0 {
        link.wait_for_all(&mut inbox, &mut seconds, &interrupts)?;
        tools.wait_unless(&interrupts)?;
    } else {
        let mut idle = true;
        while let Ok(reply) = link.replies.try_recv() {
            idle = false;
            take(link, &mut inbox, &mut seconds, reply)?;
        }
        idle &= !tools.drain();
        // Nothing to do until one of them answers: sleep on both.
        while idle && link.outstanding + tools.outstanding() > 0 {
            crossbeam::channel::select! {
                recv(link.replies) -> reply => {
                    let reply = reply.map_err(|_| EngineError::Gone)?;
                    take(link, &mut inbox, &mut seconds, reply)?;
                    idle = false;
                }
                recv(tools.replies()) -> reply => {
                    tools.accept(reply);
                    idle = false;
                }
                default(LOOK_EVERY) => idle = !interrupts.requested(),
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
    link.outstanding = link.outstanding.saturating_sub(answered(&reply));
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

/// How many requests a reply answers.
fn answered(reply: &EngineReply) -> usize {
    match reply {
        EngineReply::Generated(turns) => turns.len(),
        EngineReply::Released(dropped) => 1 + dropped,
        _ => 1,
    }
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
mod tests;

//! The only place where tokio runtimes are made: that of the tools, behind crossbeam channels, and
//! that of an engine that is a server.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use bevy_ecs::prelude::*;
use crossbeam::channel::{Receiver, RecvError, RecvTimeoutError, Sender, unbounded};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use crate::http::within;
use crate::trajectory::{Action, QuestionData, ToolFailure, TrajectoryId};

/// How long a wait lasts before it looks whether the run was asked to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A tokio runtime.
pub type Runtime = tokio::runtime::Runtime;

/// Starts a runtime with `workers` threads of this name.
///
/// # Errors
/// What the system said when threads could not be started.
pub fn start_runtime(name: &str, workers: usize) -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .thread_name(name)
        .enable_all()
        .build()
}

/// A call of a tool.
#[derive(Clone, Debug)]
pub struct ToolCall {
    /// Whose.
    pub id: TrajectoryId,
    /// Which turn.
    pub turn: u32,
    /// What is asked.
    pub action: Action,
    /// The question, with the documents its tools can find.
    pub question: Arc<QuestionData>,
}

/// Why a tool gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// It took too long.
    #[error("the tool {name:?} did not answer within {seconds} s")]
    TimedOut {
        /// The tool.
        name: String,
        /// The limit.
        seconds: String,
    },
    /// It failed.
    #[error("the tool {name:?} failed: {problem}")]
    Failed {
        /// The tool.
        name: String,
        /// What went wrong.
        problem: String,
    },
    /// No tool serves the action.
    #[error("no tool serves {0:?}")]
    Unknown(Action),
    /// What a recorded call said when it failed.
    #[error("{said}")]
    Recorded {
        /// Its words.
        said: String,
        /// How it failed.
        failure: ToolFailure,
    },
    /// The runtime is gone.
    #[error("the tool runtime has ended")]
    Gone,
}

impl ToolError {
    /// How it failed, in short.
    #[must_use]
    pub fn failure(&self) -> ToolFailure {
        match self {
            Self::TimedOut { .. } => ToolFailure::TimedOut,
            Self::Recorded { failure, .. } => *failure,
            Self::Failed { .. } | Self::Unknown(_) | Self::Gone => ToolFailure::Failed,
        }
    }
}

/// What a call returned.
#[derive(Clone, Debug)]
pub struct ToolReply {
    /// Whose.
    pub id: TrajectoryId,
    /// Which turn.
    pub turn: u32,
    /// The text, without tool tags.
    pub result: Result<String, ToolError>,
}

/// A running call.
pub type ToolFuture = Pin<Box<dyn Future<Output = Result<String, ToolError>> + Send>>;

/// A tool.
pub trait Tool: Send + Sync {
    /// Its name in messages.
    fn name(&self) -> &'static str;
    /// Whether it takes this action.
    fn serves(&self, action: &Action) -> bool;
    /// Starts a call.
    fn call(&self, call: ToolCall) -> ToolFuture;
}

/// Counts interrupts (Ctrl-C, SIGTERM). The second one ends the program at once.
#[derive(Resource, Clone, Debug, Default)]
pub struct Interrupts(Arc<AtomicU32>);

impl Interrupts {
    /// Whether the run was asked to stop.
    #[must_use]
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Asks the run to stop at the next safe point, as Ctrl-C does.
    pub fn request(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The simulation's end of the tool runtime.
#[derive(Resource)]
pub struct ToolLink {
    /// Always there but while it is dropped.
    runtime: Option<Runtime>,
    tools: Vec<Arc<dyn Tool>>,
    limit: Duration,
    room: Arc<Semaphore>,
    sender: Sender<ToolReply>,
    replies: Receiver<ToolReply>,
    /// Calls that have not been answered, and how each is stopped.
    under_way: BTreeMap<(TrajectoryId, u32), Option<AbortHandle>>,
    inbox: BTreeMap<(TrajectoryId, u32), ToolReply>,
}

impl Drop for ToolLink {
    fn drop(&mut self) {
        // A search that is at work on a thread of its own holds nothing up.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl ToolLink {
    /// Starts the runtime. A call may take `seconds` once it is at work, what it waits for our own rate
    /// not counted; `in_flight` calls are at work
    /// at a time, further ones wait.
    ///
    /// # Errors
    /// What the system said when threads could not be started.
    pub fn start(tools: Vec<Arc<dyn Tool>>, seconds: f32, in_flight: u32) -> std::io::Result<Self> {
        let runtime = start_runtime("tools", 1)?;
        let (sender, replies) = unbounded();
        let limit = Duration::from_secs_f32(seconds.clamp(0.001, 86_400.0));
        Ok(Self {
            runtime: Some(runtime),
            tools,
            limit,
            room: Arc::new(Semaphore::new(in_flight.max(1) as usize)),
            sender,
            replies,
            under_way: BTreeMap::new(),
            inbox: BTreeMap::new(),
        })
    }

    /// Listens for Ctrl-C and SIGTERM: the first asks for a stop at the next safe point, the second
    /// ends the program at once.
    pub fn listen_for_interrupts(&self, interrupts: &Interrupts) {
        let interrupts = interrupts.clone();
        let Some(runtime) = &self.runtime else { return };
        runtime.spawn(async move {
            loop {
                if wait_for_signal().await.is_err() {
                    return;
                }
                if interrupts.requested() {
                    tracing::error!("second interrupt: ending at once; go on from the last checkpoint with --resume");
                    // Without destructors: the engine thread is still at work in libtorch.
                    signal_hook::low_level::exit(130);
                }
                tracing::warn!("interrupt: ending at the next safe point; interrupt again to end at once");
                interrupts.request();
            }
        });
    }

    /// Starts a call; never waits.
    pub fn call(&mut self, call: ToolCall) {
        let sender = self.sender.clone();
        let (id, turn) = (call.id, call.turn);
        self.under_way.insert((id, turn), None);
        let Some(tool) = self
            .tools
            .iter()
            .find(|tool| tool.serves(&call.action))
            .map(Arc::clone)
        else {
            sender
                .send(ToolReply {
                    id,
                    turn,
                    result: Err(ToolError::Unknown(call.action)),
                })
                .ok();
            return;
        };
        let (limit, room) = (self.limit, Arc::clone(&self.room));
        let Some(runtime) = &self.runtime else { return };
        let task = runtime.spawn(async move {
            // The semaphore is never closed. Waiting for a place is no part of a call's time.
            let _place = room.acquire_owned().await.ok();
            let name = tool.name();
            let work = unbroken(name, async move { tool.call(call).await });
            let result = within(limit, work).await.unwrap_or_else(|| {
                Err(ToolError::TimedOut {
                    name: name.into(),
                    seconds: format!("{}", limit.as_secs_f32()),
                })
            });
            sender.send(ToolReply { id, turn, result }).ok();
        });
        self.under_way.insert((id, turn), Some(task.abort_handle()));
    }

    /// Stops every call and forgets what came of it: connections are dropped, nothing more is waited
    /// for.
    pub fn cancel(&mut self) {
        for stop in std::mem::take(&mut self.under_way).into_values().flatten() {
            stop.abort();
        }
        self.inbox.clear();
    }

    /// Calls that have not been answered.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.under_way.len()
    }

    /// Waits for every outstanding call.
    ///
    /// # Errors
    /// [`ToolError::Gone`].
    pub fn wait_for_all(&mut self) -> Result<(), ToolError> {
        self.wait_unless(&Interrupts::default())
    }

    /// Waits for every outstanding call, but no longer once the run is asked to stop.
    ///
    /// # Errors
    /// [`ToolError::Gone`].
    pub fn wait_unless(&mut self, interrupts: &Interrupts) -> Result<(), ToolError> {
        while !self.under_way.is_empty() {
            match self.replies.recv_timeout(LOOK_EVERY) {
                Ok(reply) => self.keep(reply),
                Err(RecvTimeoutError::Timeout) if interrupts.requested() => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(ToolError::Gone),
            }
        }
        Ok(())
    }

    /// Takes what is there; true if something was.
    pub fn drain(&mut self) -> bool {
        let before = self.under_way.len();
        while let Ok(reply) = self.replies.try_recv() {
            self.keep(reply);
        }
        self.under_way.len() < before
    }

    /// The replies that have come in, sorted by (trajectory, turn).
    pub fn take_replies(&mut self) -> Vec<ToolReply> {
        std::mem::take(&mut self.inbox).into_values().collect()
    }

    /// One reply that has come in; the others stay.
    pub fn take_reply(&mut self, id: TrajectoryId, turn: u32) -> Option<ToolReply> {
        self.inbox.remove(&(id, turn))
    }

    pub(crate) fn replies(&self) -> Receiver<ToolReply> {
        self.replies.clone()
    }

    pub(crate) fn accept(&mut self, reply: Result<ToolReply, RecvError>) {
        if let Ok(reply) = reply {
            self.keep(reply);
        }
    }

    fn keep(&mut self, reply: ToolReply) {
        // A reply to a call that was stopped comes too late.
        if self.under_way.remove(&(reply.id, reply.turn)).is_some() {
            self.inbox.insert((reply.id, reply.turn), reply);
        }
    }
}

/// A call that panics has failed: whoever waits for it is told.
async fn unbroken(
    name: &str,
    call: impl Future<Output = Result<String, ToolError>>,
) -> Result<String, ToolError> {
    let mut call = std::pin::pin!(call);
    std::future::poll_fn(|cx| {
        // What a panic may have left half done is dropped with the call.
        let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx)));
        polled.unwrap_or_else(|_| {
            Poll::Ready(Err(ToolError::Failed {
                name: name.into(),
                problem: "it broke down".into(),
            }))
        })
    })
    .await
}

/// Waits for Ctrl-C or SIGTERM.
///
/// # Errors
/// What the system said when it would not tell of signals.
#[cfg(unix)]
pub async fn wait_for_signal() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result,
        _ = terminate.recv() => Ok(()),
    }
}

/// Waits for Ctrl-C.
///
/// # Errors
/// What the system said when it would not tell of signals.
#[cfg(not(unix))]
pub async fn wait_for_signal() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}

#[cfg(test)]
mod tests;

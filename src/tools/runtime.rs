//! The only place where tokio runtimes are made: that of the tools, behind crossbeam channels, and
//! that of an engine that is a server.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bevy_ecs::prelude::*;
use crossbeam::channel::{Receiver, RecvError, Sender, unbounded};

use crate::trajectory::{Action, QuestionData, TrajectoryId};

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
    /// The runtime is gone.
    #[error("the tool runtime has ended")]
    Gone,
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
    runtime: Runtime,
    tools: Vec<Arc<dyn Tool>>,
    limit: Duration,
    sender: Sender<ToolReply>,
    replies: Receiver<ToolReply>,
    outstanding: usize,
    inbox: BTreeMap<(TrajectoryId, u32), ToolReply>,
}

impl ToolLink {
    /// Starts the runtime. A call may take `seconds`.
    ///
    /// # Errors
    /// What the system said when threads could not be started.
    pub fn start(tools: Vec<Arc<dyn Tool>>, seconds: f32) -> std::io::Result<Self> {
        let runtime = start_runtime("tools", 1)?;
        let (sender, replies) = unbounded();
        let limit = Duration::from_secs_f32(seconds.clamp(0.001, 86_400.0));
        Ok(Self {
            runtime,
            tools,
            limit,
            sender,
            replies,
            outstanding: 0,
            inbox: BTreeMap::new(),
        })
    }

    /// Listens for Ctrl-C and SIGTERM: the first asks for a stop at the next safe point, the second
    /// ends the program at once.
    pub fn listen_for_interrupts(&self, interrupts: &Interrupts) {
        let interrupts = interrupts.clone();
        self.runtime.spawn(async move {
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
        self.outstanding += 1;
        let sender = self.sender.clone();
        let (id, turn) = (call.id, call.turn);
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
        let limit = self.limit;
        self.runtime.spawn(async move {
            let result = tokio::time::timeout(limit, tool.call(call))
                .await
                .unwrap_or_else(|_| {
                    Err(ToolError::TimedOut {
                        name: tool.name().into(),
                        seconds: format!("{}", limit.as_secs_f32()),
                    })
                });
            sender.send(ToolReply { id, turn, result }).ok();
        });
    }

    /// Calls that have not been answered.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Waits for every outstanding call.
    ///
    /// # Errors
    /// [`ToolError::Gone`].
    pub fn wait_for_all(&mut self) -> Result<(), ToolError> {
        while self.outstanding > 0 {
            let reply = self.replies.recv().map_err(|_| ToolError::Gone)?;
            self.keep(reply);
        }
        Ok(())
    }

    /// Takes what is there; true if something was.
    pub fn drain(&mut self) -> bool {
        let before = self.outstanding;
        while let Ok(reply) = self.replies.try_recv() {
            self.keep(reply);
        }
        self.outstanding < before
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
        self.outstanding = self.outstanding.saturating_sub(1);
        self.inbox.insert((reply.id, reply.turn), reply);
    }
}

#[cfg(unix)]
async fn wait_for_signal() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        result = tokio::signal::ctrl_c() => result,
        _ = terminate.recv() => Ok(()),
    }
}

#[cfg(not(unix))]
async fn wait_for_signal() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Slow;
    impl Tool for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }
        fn serves(&self, action: &Action) -> bool {
            matches!(action, Action::Search(_))
        }
        fn call(&self, _: ToolCall) -> ToolFuture {
            Box::pin(async {
                tokio::time::sleep(Duration::from_secs(60)).await;
                Ok(String::new())
            })
        }
    }

    fn call(action: Action) -> ToolCall {
        let question = QuestionData {
            objectives: Vec::new(),
            text: String::new(),
            prompt_ids: Vec::new(),
            gold_text: String::new(),
            gold_ids: Vec::new(),
            gold_answers: Vec::new(),
            answer_prefix_ids: Vec::new(),
            documents: vec![(
                "capital of Peru".into(),
                "The capital of Peru is Lima.".into(),
            )],
        };
        ToolCall {
            id: TrajectoryId::default(),
            turn: 0,
            action,
            question: Arc::new(question),
        }
    }

    #[test]
    fn a_slow_tool_times_out_and_an_unknown_one_says_so() {
        let mut link = ToolLink::start(vec![Arc::new(Slow)], 0.05).unwrap();
        link.call(call(Action::Search("x".into())));
        link.wait_for_all().unwrap();
        let replies = link.take_replies();
        assert!(
            matches!(replies[0].result, Err(ToolError::TimedOut { .. })),
            "{replies:?}"
        );
        link.call(call(Action::Access("x".into())));
        link.wait_for_all().unwrap();
        assert!(matches!(
            link.take_replies()[0].result,
            Err(ToolError::Unknown(_))
        ));
    }

    #[test]
    fn search_finds_the_exact_query_and_nothing_else() {
        let mut link = ToolLink::start(crate::tools::embedded(), 1.0).unwrap();
        for (query, expected) in [
            (" capital of Peru", "The capital of Peru is Lima."),
            ("capital of Chile", "nothing found."),
        ] {
            link.call(call(Action::Search(query.into())));
            link.wait_for_all().unwrap();
            assert_eq!(link.take_replies()[0].result.as_deref(), Ok(expected));
        }
    }
}

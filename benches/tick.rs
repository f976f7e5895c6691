//! What one tick of the app costs with 1,024 live trajectories: one turn comes in from the engine, is
//! parsed, recorded and followed by a tool call or the next request. Prints one JSON object with CPU time
//! of the simulation's thread; waiting for the engine is not in it.
//!
//! `cargo bench --no-default-features --bench tick` (Linux)

#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::Receiver;

use common::{Player, play, small_experiment};
use palimpsest::engine::scripted::ScriptedEngine;
use palimpsest::engine::{
    Engine, EngineError, EngineLink, GenerateRequest, Generated, LearnBatch, LearnReport,
    ScoreRequest, Scored, SupervisedBatch, SupervisedReport,
};
use palimpsest::rollout::Roster;
use palimpsest::run::{Origin, Started, build_app, plugins};
use palimpsest::task::Task;
use palimpsest::tools::Interrupts;
use palimpsest::trajectory::TrajectoryId;

const LIVE: usize = 1_024;
const TICKS: usize = 2_000;

/// A scripted engine in whose steps one turn ends, and that takes a step when it is let.
struct OneByOne {
    inner: ScriptedEngine,
    waiting: VecDeque<GenerateRequest>,
    may_step: Receiver<()>,
}

impl Engine for OneByOne {
    fn submit(&mut self, requests: Vec<GenerateRequest>) -> Result<(), EngineError> {
        self.waiting.extend(requests);
        Ok(())
    }
    fn step(&mut self) -> Result<Vec<Generated>, EngineError> {
        if self.may_step.try_recv().is_err() {
            std::thread::sleep(Duration::from_micros(50));
            return Ok(Vec::new());
        }
        self.inner
            .submit(self.waiting.pop_front().into_iter().collect())?;
        self.inner.step()
    }
    fn unfinished(&self) -> usize {
        self.waiting.len()
    }
    fn release(&mut self, _: &[TrajectoryId]) -> usize {
        std::mem::take(&mut self.waiting).len()
    }
    fn score(&mut self, requests: &[ScoreRequest]) -> Result<Vec<Scored>, EngineError> {
        self.inner.score(requests)
    }
    fn learn(&mut self, batch: &LearnBatch) -> Result<LearnReport, EngineError> {
        self.inner.learn(batch)
    }
    fn supervise(&mut self, batch: &SupervisedBatch) -> Result<SupervisedReport, EngineError> {
        self.inner.supervise(batch)
    }
    fn freeze_reference(&mut self) {}
    fn begin_average(&mut self) {}

    fn begin_rl(&mut self) {}
    fn save(&mut self, folder: &Path, with_optimizer: bool) -> Result<(), EngineError> {
        self.inner.save(folder, with_optimizer)
    }
    fn load(&mut self, _: &Path, _: bool) -> Result<(), EngineError> {
        Ok(())
    }
}

/// CPU milliseconds of this thread so far.
fn cpu_ms() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds: f64 = text.split(' ').next().unwrap().parse().unwrap();
    nanoseconds * 1e-6
}

fn main() {
    let mut experiment = small_experiment();
    experiment.rollout.groups = LIVE as u32 / 8;
    experiment.rollout.group_size = 8;
    experiment.rollout.lockstep = false;
    experiment.task.objectives_min = 6;
    experiment.task.objectives_max = 6;
    experiment.evaluation.objectives.clear();
    let task: Arc<dyn Task> = Arc::from(
        palimpsest::task::load(
            &experiment.task,
            None,
            &palimpsest::retrieval::no_dense,
            &mut |_, _, _| {},
        )
        .unwrap(),
    );
    let folder = tempfile::tempdir().unwrap();
    let text = experiment.to_ron();
    let origin = Origin::At(folder.path().join("run"));
    let started = Started::new(&origin, experiment, &text, Arc::clone(&task), &[]).unwrap();
    let (let_step, may_step) = crossbeam::channel::unbounded();
    let link = EngineLink::start(move || {
        let script = move |request: &GenerateRequest| play(task.as_ref(), Player::Perfect, request);
        Ok(OneByOne {
            inner: ScriptedEngine::new(Arc::new(script)),
            waiting: VecDeque::new(),
            may_step,
        })
    })
    .unwrap();
    let mut app = build_app(started.launch, link, Interrupts::default(), plugins()).unwrap();
    while app.world().resource::<Roster>().alive < LIVE {
        app.update();
    }
    let mut ticks: Vec<f64> = (0..TICKS)
        .map(|_| {
            let_step.send(()).unwrap();
            // The turn that ends now is received in this tick or in the next one.
            std::thread::sleep(Duration::from_millis(1));
            let before = cpu_ms();
            app.update();
            cpu_ms() - before
        })
        .collect();
    let alive = app.world().resource::<Roster>().alive;
    assert_eq!(alive, LIVE, "a trajectory ended while ticks were measured");
    let mean = ticks.iter().sum::<f64>() / TICKS as f64;
    ticks.sort_by(f64::total_cmp);
    println!(
        "{{\"bench\": \"tick\", \"live\": {LIVE}, \"ticks\": {TICKS}, \"mean_ms\": {mean:.4}, \
         \"median_ms\": {:.4}, \"p99_ms\": {:.4}}}",
        ticks[TICKS / 2],
        ticks[TICKS * 99 / 100],
    );
    // The link waits for its engine to end; there is nothing left to be learned.
    std::process::exit(0);
}

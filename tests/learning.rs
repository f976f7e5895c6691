//! Learning in whole runs and in the files it leaves: steps that are skipped until a run stops, and adapters from
//! their first value to the file that PEFT reads.
#![cfg(feature = "torch")]
#![allow(clippy::unwrap_used)]

#[path = "learning/adapters.rs"]
mod adapters;
#[path = "common/torch.rs"]
mod common;

use std::path::Path;
use std::sync::Arc;

use common::settings;
use palimpsest::engine::{
    Engine, EngineError, EngineLink, GenerateRequest, Generated, LearnBatch, LearnReport,
    ScoreRequest, Scored, SupervisedBatch, SupervisedReport,
};
use palimpsest::experiment::{ContextKind, Experiment, LoraSettings};
use palimpsest::record::{Event, RunStatus, read_events};
use palimpsest::run::{Origin, Started, build_app, plugins, run_to_end};
use palimpsest::task::Task;
use palimpsest::tools::Interrupts;
use palimpsest::torch::TorchEngine;
use palimpsest::trajectory::TrajectoryId;

/// The engine in libtorch, with a number that is not finite in every update of these steps.
struct Spoilt {
    inner: TorchEngine,
    steps: Vec<u32>,
}

impl Engine for Spoilt {
    fn submit(&mut self, requests: Vec<GenerateRequest>) -> Result<(), EngineError> {
        self.inner.submit(requests)
    }
    fn step(&mut self) -> Result<Vec<Generated>, EngineError> {
        self.inner.step()
    }
    fn unfinished(&self) -> usize {
        self.inner.unfinished()
    }
    fn release(&mut self, trajectories: &[TrajectoryId]) -> usize {
        self.inner.release(trajectories)
    }
    fn score(&mut self, requests: &[ScoreRequest]) -> Result<Vec<Scored>, EngineError> {
        self.inner.score(requests)
    }
    fn learn(&mut self, batch: &LearnBatch) -> Result<LearnReport, EngineError> {
        let mut batch = batch.clone();
        if self.steps.contains(&batch.knobs.address.1) {
            for row in &mut batch.rows {
                row.advantages.fill(f32::NAN);
            }
        }
        self.inner.learn(&batch)
    }
    fn supervise(&mut self, batch: &SupervisedBatch) -> Result<SupervisedReport, EngineError> {
        self.inner.supervise(batch)
    }
    fn freeze_reference(&mut self) {
        self.inner.freeze_reference();
    }
    fn begin_average(&mut self) {
        self.inner.begin_average();
    }
    fn begin_rl(&mut self) {
        self.inner.begin_rl();
    }
    fn begin_adapters(&mut self, adapters: &LoraSettings, seed: u64) -> Result<(), EngineError> {
        self.inner.begin_adapters(adapters, seed)
    }
    fn save(&mut self, folder: &Path, with_optimizer: bool) -> Result<(), EngineError> {
        self.inner.save(folder, with_optimizer)
    }
    fn load(&mut self, folder: &Path, with_optimizer: bool) -> Result<(), EngineError> {
        self.inner.load(folder, with_optimizer)
    }
}

/// Four steps of two mini-batches with the policy that is shipped.
fn experiment() -> Experiment {
    let mut experiment = Experiment {
        name: "learning".into(),
        ..Experiment::default()
    };
    experiment.cold_start.stages.clear();
    experiment.rollout.groups = 2;
    experiment.rollout.group_size = 2;
    experiment.rollout.limits.turn_tokens = 24;
    experiment.rollout.limits.trajectory_tokens = 96;
    experiment.learner.steps = 4;
    experiment.learner.mini_batches = 2;
    experiment.learner.lr = 1e-3;
    experiment.record.checkpoint_every = 1;
    experiment.record.keep_checkpoints = 10;
    experiment.record.tensorboard = false;
    experiment.evaluation.every = 0;
    experiment.evaluation.questions = 1;
    experiment.evaluation.objectives = vec![2];
    experiment.evaluation.contexts = vec![ContextKind::Full];
    experiment
}

/// Runs it, or goes on with it, in `folder`; the updates of `spoilt` steps are not finite.
fn run(folder: &Path, experiment: Experiment, spoilt: &[u32]) -> Result<RunStatus, String> {
    let task: Arc<dyn Task> = Arc::from(
        palimpsest::task::load(
            &experiment.task,
            None,
            &palimpsest::retrieval::no_dense,
            &mut |_, _, _| {},
        )
        .unwrap(),
    );
    let origin = match folder.exists() {
        true => Origin::Resume(folder.to_path_buf()),
        false => Origin::At(folder.to_path_buf()),
    };
    let text = experiment.to_ron();
    let started = Started::new(&origin, experiment, &text, Arc::clone(&task), &[]).unwrap();
    let (steps, checkpoint) = (spoilt.to_vec(), started.checkpoint.clone());
    let link = EngineLink::start(move || {
        let tokenizer = Arc::clone(task.tokenizer());
        let policy = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/lookup/policy");
        let mut inner = TorchEngine::from_folder(&policy, tokenizer, &settings())?;
        if let Some(checkpoint) = checkpoint {
            inner.load(&checkpoint, true)?;
        }
        Ok(Spoilt { inner, steps })
    })
    .unwrap();
    let mut app = build_app(started.launch, link, Interrupts::default(), plugins()).unwrap();
    run_to_end(&mut app).map_err(|error| error.to_string())
}

fn troubles(folder: &Path) -> Vec<String> {
    let (events, _) = read_events(folder).unwrap();
    let troubles = events.into_iter().filter_map(|event| match event.event {
        Event::TroubleFound { what, .. } => Some(what),
        _ => None,
    });
    troubles.collect()
}

fn weights(folder: &Path, checkpoint: &str) -> Vec<u8> {
    let folder = folder.join("checkpoints").join(checkpoint);
    std::fs::read(folder.join("model.safetensors")).unwrap()
}

#[test]
fn a_step_that_is_not_finite_is_skipped_told_and_counted_and_the_run_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let run_folder = folder.path().join("run");
    let status = run(&run_folder, experiment(), &[1]).unwrap();
    assert_eq!(status, RunStatus::Finished);
    let told = troubles(&run_folder);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[0].contains("step 2: mini-batch 0 was skipped"),
        "{told:?}"
    );
    assert_eq!(
        weights(&run_folder, "step-00001"),
        weights(&run_folder, "step-00002")
    );
    assert_ne!(
        weights(&run_folder, "step-00002"),
        weights(&run_folder, "step-00003")
    );
    let metrics = std::fs::read_to_string(run_folder.join("metrics.jsonl")).unwrap();
    let counted: Vec<bool> = metrics
        .lines()
        .filter(|line| line.contains("actor/lr"))
        .map(|line| line.contains("\"actor/skipped_steps\":2"))
        .collect();
    assert_eq!(counted, [false, true, false, false]);
}

#[test]
fn too_many_skipped_steps_stop_the_run_with_the_last_good_weights_saved_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let run_folder = folder.path().join("run");
    let error = run(&run_folder, experiment(), &[1, 2]).unwrap_err();
    assert!(error.contains("3 mini-batches in a row"), "{error}");
    assert!(
        error.contains("step-00003") && error.contains("resume"),
        "{error}"
    );
    assert_eq!(
        weights(&run_folder, "step-00001"),
        weights(&run_folder, "step-00003")
    );
    assert_eq!(
        troubles(&run_folder).len(),
        5,
        "four skipped, and why it stopped"
    );
    assert_eq!(
        run(&run_folder, experiment(), &[]).unwrap(),
        RunStatus::Finished
    );
    assert_ne!(
        weights(&run_folder, "step-00003"),
        weights(&run_folder, "step-00004")
    );
}

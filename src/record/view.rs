//! The state of a run as its record tells it: a fold over events and metrics.

use std::collections::BTreeMap;

use super::{Evaluation, Event, MemoryCredit, Metrics, Recorded, RunStatus, TokenRef, TurnEvent};
use crate::credit::signal::DeadGroup;
use crate::engine::MiniBatchReport;
use crate::trajectory::{Outcome, Purpose, RoundScores, StopReason, TrajectoryId};

/// What is known of a run. The window, the report and the summary read this and nothing else.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunView {
    /// Name in the experiment.
    pub name: String,
    /// Seed of the run.
    pub seed: u64,
    /// Version of the program that began it.
    pub version: String,
    /// Fingerprint of the resolved experiment.
    pub experiment: String,
    /// How it stands.
    pub status: RunStatus,
    /// RL steps done.
    pub steps: u32,
    /// Cold start steps done.
    pub cold_start_steps: u32,
    /// How often it was resumed.
    pub resumes: u32,
    /// The measurements, in order.
    pub evaluations: Vec<Evaluation>,
    /// The cold start, step by step.
    pub cold_start: Vec<ColdStartPoint>,
    /// What each update did, by RL step.
    pub updates: BTreeMap<u32, Vec<MiniBatchReport>>,
    /// Groups that gave no gradient, by RL step.
    pub silent: BTreeMap<u32, SilentGroups>,
    /// Every metric: (step, value) in order.
    pub series: BTreeMap<String, Vec<(u32, f64)>>,
    /// The questions that were kept.
    pub questions: BTreeMap<QuestionKey, QuestionView>,
    /// The trajectories that were kept.
    pub trajectories: BTreeMap<TrajectoryId, TrajectoryView>,
    /// What went wrong while the run went on.
    pub troubles: Vec<Trouble>,
    /// Complete checkpoints: (RL steps, cold start steps, name).
    pub checkpoints: Vec<(u32, u32, String)>,
}

/// Names a question: purpose, step, number inside the step.
pub type QuestionKey = (Purpose, u32, u32);

/// The groups of an update that gave no gradient.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SilentGroups {
    /// Groups of the step.
    pub groups: u32,
    /// Those without a gradient, and why.
    pub dead: Vec<DeadGroup>,
}

/// A cold start step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColdStartPoint {
    /// Number of the step.
    pub step: u32,
    /// (part, mean cross-entropy, share of targets that are the arg-max).
    pub parts: Vec<(String, f64, f64)>,
    /// Cross-entropy of the aid.
    pub aid_loss: f64,
    /// Learning rate of the matrices.
    pub lr: f64,
}

/// A question.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuestionView {
    /// The prompt.
    pub text: String,
    /// How many things it asks for.
    pub objectives: u32,
    /// The right answer.
    pub gold: String,
}

/// A trajectory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TrajectoryView {
    /// Which.
    pub id: TrajectoryId,
    /// Its turns so far.
    pub turns: Vec<TurnView>,
    /// How it ended.
    pub reason: Option<StopReason>,
    /// What it was worth.
    pub outcome: Option<Outcome>,
    /// A_T, once credit is assigned.
    pub outcome_advantage: Option<f32>,
    /// What the KL in the reward changed in it.
    pub kl_advantage: f32,
    /// Memory rewards and advantages by round.
    pub memory: Vec<MemoryCredit>,
    /// What those rewards were made of; empty in records that do not keep it.
    pub scores: Vec<RoundScores>,
    /// Its training rows in `tokens.bin`.
    pub tokens: Vec<TokenRef>,
}

/// A turn, and what its tool answered.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnView {
    /// What the policy wrote.
    pub wrote: TurnEvent,
    /// What came back: text and length in tokens.
    pub tool: Option<(String, u32)>,
}

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Trouble {
    /// The event that told it.
    pub seq: u64,
    /// Where, if it is about one trajectory.
    pub id: Option<TrajectoryId>,
    /// What.
    pub what: String,
}

impl RunView {
    /// Takes an event in. Events come in order; void ones are left out by the reader.
    pub fn apply(&mut self, recorded: &Recorded) {
        match &recorded.event {
            Event::RunStarted {
                name,
                seed,
                version,
                experiment,
                ..
            } => {
                self.name.clone_from(name);
                self.seed = *seed;
                self.version.clone_from(version);
                self.experiment.clone_from(experiment);
            }
            Event::RunResumed {
                step,
                cold_start_step,
                ..
            } => {
                self.resumes += 1;
                self.status = RunStatus::Running;
                self.done(*step, *cold_start_step);
            }
            Event::ColdStartStep {
                step,
                parts,
                aid_loss,
                lr,
            } => {
                self.done(0, *step);
                self.cold_start.push(ColdStartPoint {
                    step: *step,
                    parts: parts.clone(),
                    aid_loss: *aid_loss,
                    lr: *lr,
                });
            }
            Event::StepBegan { .. } => {}
            Event::QuestionDrawn {
                step,
                purpose,
                group,
                text,
                objectives,
                gold,
            } => {
                let question = QuestionView {
                    text: text.clone(),
                    objectives: *objectives,
                    gold: gold.clone(),
                };
                self.questions.insert((*purpose, *step, *group), question);
            }
            Event::TurnGenerated(wrote) => self.trajectory(wrote.id).turns.push(TurnView {
                wrote: wrote.clone(),
                tool: None,
            }),
            Event::ToolReturned {
                id,
                turn,
                text,
                tokens,
                ..
            } => {
                let turns = &mut self.trajectory(*id).turns;
                if let Some(asked) = turns.iter_mut().find(|t| t.wrote.turn == *turn) {
                    asked.tool = Some((text.clone(), *tokens));
                }
            }
            Event::TrajectoryTerminated {
                id,
                reason,
                outcome,
            } => {
                let trajectory = self.trajectory(*id);
                trajectory.reason = Some(*reason);
                trajectory.outcome = Some(*outcome);
            }
            Event::CreditAssigned {
                id,
                outcome,
                kl,
                memory,
                scores,
                tokens,
            } => {
                let trajectory = self.trajectory(*id);
                trajectory.outcome_advantage = Some(*outcome);
                trajectory.kl_advantage = *kl;
                trajectory.memory.clone_from(memory);
                trajectory.scores.clone_from(scores);
                trajectory.tokens.clone_from(tokens);
            }
            Event::Learned { step, mini_batches } => {
                self.done(*step, 0);
                self.updates.insert(*step, mini_batches.clone());
            }
            Event::SignalMissing { step, groups, dead } => {
                let silent = SilentGroups {
                    groups: *groups,
                    dead: dead.clone(),
                };
                self.silent.insert(*step, silent);
            }
            Event::Evaluated(row) => self.evaluations.push(**row),
            Event::TroubleFound { id, what } => self.troubles.push(Trouble {
                seq: recorded.seq,
                id: *id,
                what: what.clone(),
            }),
            Event::CheckpointSaved {
                step,
                cold_start_step,
                folder,
            } => {
                self.done(*step, *cold_start_step);
                self.checkpoints
                    .push((*step, *cold_start_step, folder.clone()));
            }
            Event::RunEnded { status } => self.status = *status,
        }
    }

    /// Takes the numbers of a step in. A later line of the same step wins.
    pub fn apply_metrics(&mut self, step: u32, metrics: &Metrics) {
        for (name, &value) in &metrics.0 {
            let series = self.series.entry(name.clone()).or_default();
            let at = series.partition_point(|&(s, _)| s < step);
            match series.get_mut(at) {
                Some(point) if point.0 == step => point.1 = value,
                _ => series.insert(at, (step, value)),
            }
        }
    }

    /// One metric; empty if it was never written.
    #[must_use]
    pub fn metric(&self, name: &str) -> &[(u32, f64)] {
        self.series.get(name).map_or(&[], Vec::as_slice)
    }

    /// The question of a trajectory.
    #[must_use]
    pub fn question_of(&self, id: TrajectoryId) -> Option<&QuestionView> {
        self.questions.get(&(id.purpose, id.step, id.group))
    }

    fn trajectory(&mut self, id: TrajectoryId) -> &mut TrajectoryView {
        let entry = self.trajectories.entry(id).or_default();
        entry.id = id;
        entry
    }

    fn done(&mut self, steps: u32, cold_start_steps: u32) {
        self.steps = self.steps.max(steps);
        self.cold_start_steps = self.cold_start_steps.max(cold_start_steps);
    }
}

//! An engine with fixed replies, for tests and replay: the whole application runs with it, without
//! libtorch.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::{
    Engine, EngineError, Finish, GenerateRequest, Generated, LearnBatch, LearnReport,
    MiniBatchReport, ScoreRequest, Scored, SupervisedBatch, SupervisedReport,
};
use crate::trajectory::{TokenId, TrajectoryId};

/// Decides what a turn says, from the request alone.
pub type Script = Arc<dyn Fn(&GenerateRequest) -> Vec<TokenId> + Send + Sync>;

/// A turn as it was sampled once.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedTurn {
    /// The sampled ids.
    pub ids: Vec<TokenId>,
    /// Their log-probs.
    pub logprobs: Vec<f32>,
    /// Why it ended.
    pub finish: Finish,
}

/// Where turns come from.
enum Source {
    Script(Script),
    Record(BTreeMap<(TrajectoryId, u32), RecordedTurn>),
}

/// Replies by a script, with a log-prob of -0.5 for every id, or from a record; learning changes
/// nothing.
pub struct ScriptedEngine {
    source: Source,
    waiting: Vec<GenerateRequest>,
    /// Learn batches seen, for tests.
    pub learned: Vec<LearnBatch>,
}

impl ScriptedEngine {
    /// The log-prob that every id is said to have.
    pub const LOGPROB: f32 = -0.5;

    /// An engine that follows `script`.
    #[must_use]
    pub fn new(script: Script) -> Self {
        Self {
            source: Source::Script(script),
            waiting: Vec::new(),
            learned: Vec::new(),
        }
    }

    /// An engine that writes recorded turns again. A turn that is not there is empty.
    #[must_use]
    pub fn recorded(turns: BTreeMap<(TrajectoryId, u32), RecordedTurn>) -> Self {
        Self {
            source: Source::Record(turns),
            waiting: Vec::new(),
            learned: Vec::new(),
        }
    }

    fn reply(&self, request: &GenerateRequest) -> Generated {
        let mut ids = match &self.source {
            Source::Script(script) => script(request),
            Source::Record(turns) => {
                let turn = turns.get(&(request.id, request.turn));
                let nothing = RecordedTurn {
                    ids: Vec::new(),
                    logprobs: Vec::new(),
                    finish: Finish::Stop,
                };
                let turn = turn.cloned().unwrap_or(nothing);
                return Generated {
                    id: request.id,
                    turn: request.turn,
                    ids: turn.ids,
                    logprobs: turn.logprobs,
                    finish: turn.finish,
                };
            }
        };
        let whole = ids.len() <= request.max_new_tokens as usize;
        ids.truncate(request.max_new_tokens as usize);
        Generated {
            id: request.id,
            turn: request.turn,
            logprobs: vec![Self::LOGPROB; ids.len()],
            ids,
            finish: if whole { Finish::Stop } else { Finish::Length },
        }
    }
}

impl Engine for ScriptedEngine {
    fn submit(&mut self, requests: Vec<GenerateRequest>) -> Result<(), EngineError> {
        self.waiting.extend(requests);
        Ok(())
    }

    fn step(&mut self) -> Result<Vec<Generated>, EngineError> {
        let requests = std::mem::take(&mut self.waiting);
        Ok(requests.iter().map(|request| self.reply(request)).collect())
    }

    fn unfinished(&self) -> usize {
        self.waiting.len()
    }

    fn release(&mut self, trajectories: &[TrajectoryId]) -> usize {
        let before = self.waiting.len();
        self.waiting
            .retain(|request| !trajectories.contains(&request.id));
        before - self.waiting.len()
    }

    fn score(&mut self, requests: &[ScoreRequest]) -> Result<Vec<Scored>, EngineError> {
        let reply = |request: &ScoreRequest| Scored {
            id: request.id,
            trunk: if request.score_trunk {
                vec![Self::LOGPROB; request.trunk.len()]
            } else {
                Vec::new()
            },
            branches: request
                .branches
                .iter()
                .map(|branch| vec![Self::LOGPROB; branch.ids.len() - branch.scored_from as usize])
                .collect(),
        };
        Ok(requests.iter().map(reply).collect())
    }

    fn learn(&mut self, batch: &LearnBatch) -> Result<LearnReport, EngineError> {
        self.learned.push(batch.clone());
        let tokens = |rows: &[usize]| {
            rows.iter()
                .map(|&row| batch.rows[row].mask.iter().filter(|&&on| on).count())
                .sum::<usize>()
        };
        Ok(LearnReport {
            skipped: Vec::new(),
            mini_batches: batch
                .mini_batches
                .iter()
                .map(|rows| MiniBatchReport {
                    tokens: tokens(rows) as u64,
                    ..MiniBatchReport::default()
                })
                .collect(),
            logprobs: batch
                .rows
                .iter()
                .map(|row| row.old_logprobs.clone())
                .collect(),
            entropies: batch
                .rows
                .iter()
                .map(|row| row.mask.iter().map(|&on| f32::from(u8::from(on))).collect())
                .collect(),
            mismatch: None,
        })
    }

    fn supervise(&mut self, batch: &SupervisedBatch) -> Result<SupervisedReport, EngineError> {
        let parts = batch
            .parts
            .iter()
            .map(|part| (part.name.clone(), 0.0, 1.0))
            .collect();
        Ok(SupervisedReport {
            parts,
            ..SupervisedReport::default()
        })
    }

    fn freeze_reference(&mut self) {}

    fn begin_average(&mut self) {}

    fn begin_rl(&mut self) {}

    fn save(&mut self, folder: &Path, _: bool) -> Result<(), EngineError> {
        std::fs::create_dir_all(folder).map_err(|source| EngineError::Io {
            path: folder.into(),
            source,
        })
    }

    fn load(&mut self, _: &Path, _: bool) -> Result<(), EngineError> {
        Ok(())
    }
}

//! What stands in the learner's place in a run that only measures a server's policy.

use std::path::Path;
use std::sync::Arc;

use crate::engine::{
    Engine, EngineError, GenerateRequest, Generated, LearnBatch, LearnReport, ScoreRequest, Scored,
    SupervisedBatch, SupervisedReport,
};
use crate::tokenizer::TextTokenizer;
use crate::trajectory::TrajectoryId;

/// File that says where the weights are.
const FILE: &str = "server.json";

/// No learner: it has no weights, and a folder that it saves holds the tokenizer and the address of
/// the server that has them.
pub struct NoLearner {
    tokenizer: Arc<TextTokenizer>,
    url: String,
}

impl NoLearner {
    /// For the server at `url`.
    #[must_use]
    pub fn new(tokenizer: Arc<TextTokenizer>, url: String) -> Self {
        Self { tokenizer, url }
    }

    fn none<T>(&self, what: &str) -> Result<T, EngineError> {
        Err(EngineError::BadRequest(format!(
            "{what} needs weights, but the weights are on the server at {} and this run only measures them; set learner.steps above 0 to train",
            self.url
        )))
    }
}

impl Engine for NoLearner {
    fn submit(&mut self, _: Vec<GenerateRequest>) -> Result<(), EngineError> {
        self.none("generating here")
    }

    fn step(&mut self) -> Result<Vec<Generated>, EngineError> {
        Ok(Vec::new())
    }

    fn unfinished(&self) -> usize {
        0
    }

    fn release(&mut self, _: &[TrajectoryId]) -> usize {
        0
    }

    fn score(&mut self, _: &[ScoreRequest]) -> Result<Vec<Scored>, EngineError> {
        self.none("scoring here")
    }

    fn learn(&mut self, _: &LearnBatch) -> Result<LearnReport, EngineError> {
        self.none("an update")
    }

    fn supervise(&mut self, _: &SupervisedBatch) -> Result<SupervisedReport, EngineError> {
        self.none("a step of the cold start")
    }

    fn freeze_reference(&mut self) {}

    fn begin_average(&mut self) {}

    fn begin_rl(&mut self) {}

    fn save(&mut self, folder: &Path, _: bool) -> Result<(), EngineError> {
        let io = |path: &Path| {
            let path = path.to_path_buf();
            move |source| EngineError::Io { path, source }
        };
        std::fs::create_dir_all(folder).map_err(io(folder))?;
        let path = folder.join(FILE);
        let text = format!("{:#}\n", serde_json::json!({"weights_on": self.url}));
        std::fs::write(&path, text).map_err(io(&path))?;
        self.tokenizer.save(folder)
    }

    fn load(&mut self, _: &Path, _: bool) -> Result<(), EngineError> {
        Ok(())
    }
}

//! Tools that answer as they did before: a recorded evaluation replays without corpus and network.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Tool, ToolCall, ToolError, ToolFuture};
use crate::trajectory::{Action, ToolFailure, TrajectoryId};

/// A call as it was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedCall {
    /// What the tool said, without tags.
    pub said: String,
    /// Whether it had failed.
    pub failure: Option<ToolFailure>,
}

/// Answers every call from a record.
#[derive(Clone, Debug, Default)]
pub struct RecordedTools {
    /// Answers by trajectory and turn.
    pub calls: Arc<BTreeMap<(TrajectoryId, u32), RecordedCall>>,
}

impl Tool for RecordedTools {
    fn name(&self) -> &'static str {
        "record"
    }

    fn serves(&self, _: &Action) -> bool {
        true
    }

    fn call(&self, call: ToolCall) -> ToolFuture {
        let recorded = self.calls.get(&(call.id, call.turn)).cloned();
        Box::pin(async move {
            match recorded {
                Some(RecordedCall {
                    said,
                    failure: None,
                }) => Ok(said),
                Some(RecordedCall {
                    said,
                    failure: Some(failure),
                }) => Err(ToolError::Recorded { said, failure }),
                None => Err(ToolError::Failed {
                    name: "record".into(),
                    problem: format!("there is no call of turn {} of {}", call.turn, call.id),
                }),
            }
        })
    }
}

//! Whole trajectories of an evaluation, a JSON line each, from which it can be run again.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::engine::Finish;
use crate::engine::scripted::RecordedTurn;
use crate::experiment::ContextKind;
use crate::task::RecordedQuestion;
use crate::tools::{RecordedCall, RecordedTools};
use crate::trajectory::{Outcome, QuestionData, StopReason, TrajectoryId, Turn};

/// A trajectory from its question to what it was worth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transcript {
    /// Which.
    pub id: TrajectoryId,
    /// What the policy saw.
    pub context: ContextKind,
    /// Objectives of its question.
    pub objectives: u32,
    /// How it ended.
    pub reason: StopReason,
    /// What it was worth.
    pub outcome: Outcome,
    /// The question as the context showed it.
    pub question: QuestionData,
    /// Every turn: ids as they were sampled, and what the tool said.
    pub turns: Vec<Turn>,
}

impl Transcript {
    /// Whether both would be written alike, bit for bit: log-probs that nobody knows are equal, too.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        let line = |of: &Self| serde_json::to_string(of).ok();
        line(self).is_some_and(|text| Some(text) == line(other))
    }
}

/// Writes transcripts, a line each.
///
/// # Errors
/// What the system said.
pub fn write_transcripts(path: &Path, transcripts: &[Transcript]) -> std::io::Result<()> {
    let mut file = BufWriter::new(std::fs::File::create(path)?);
    for transcript in transcripts {
        serde_json::to_writer(&mut file, transcript)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}

/// Reads transcripts.
///
/// # Errors
/// What the system said, or the number of the line that is none.
pub fn read_transcripts(path: &Path) -> std::io::Result<Vec<Transcript>> {
    let file = BufReader::new(std::fs::File::open(path)?);
    let parse = |(number, line): (usize, std::io::Result<String>)| {
        serde_json::from_str(&line?).map_err(|error| {
            std::io::Error::other(format!("line {number} is no transcript: {error}"))
        })
    };
    (1..).zip(file.lines()).map(parse).collect()
}

/// What a replay needs: the turns, the tool calls and the questions that were recorded.
#[must_use]
pub fn replay_parts(
    transcripts: &[Transcript],
) -> (
    BTreeMap<(TrajectoryId, u32), RecordedTurn>,
    RecordedTools,
    Vec<RecordedQuestion>,
) {
    let (mut turns, mut calls, mut questions) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    for transcript in transcripts {
        for (number, turn) in (0u32..).zip(&transcript.turns) {
            let sampled = turn.forced as usize;
            turns.insert(
                (transcript.id, number),
                RecordedTurn {
                    ids: turn.ids.get(sampled..).unwrap_or(&[]).to_vec(),
                    logprobs: turn.logprobs.get(sampled..).unwrap_or(&[]).to_vec(),
                    finish: if turn.cut {
                        Finish::Length
                    } else {
                        Finish::Stop
                    },
                },
            );
            if let Some(tool) = &turn.tool {
                let call = RecordedCall {
                    said: tool.said.clone(),
                    failure: tool.failure,
                };
                calls.insert((transcript.id, number), call);
            }
        }
        if transcript.id.member == 0 {
            questions.push(RecordedQuestion {
                context: transcript.context,
                objectives: transcript.objectives,
                question: transcript.question.clone(),
            });
        }
    }
    let tools = RecordedTools {
        calls: Arc::new(calls),
    };
    (turns, tools, questions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_probs_that_nobody_knows_are_written_read_and_equal() {
        let transcript = Transcript {
            id: TrajectoryId::default(),
            context: ContextKind::Full,
            objectives: 1,
            reason: StopReason::Answered,
            outcome: Outcome::default(),
            question: QuestionData::default(),
            turns: vec![Turn {
                ids: vec![1, 2],
                logprobs: vec![f32::NAN, -0.1],
                ..Turn::default()
            }],
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.jsonl");
        write_transcripts(&path, std::slice::from_ref(&transcript)).unwrap();
        let read = read_transcripts(&path).unwrap();
        assert!(read[0].turns[0].logprobs[0].is_nan());
        assert_eq!(read[0].turns[0].logprobs[1], -0.1);
        assert!(read[0].same(&transcript));
        let mut other = transcript.clone();
        other.turns[0].logprobs[1] = -0.2;
        assert!(!read[0].same(&other));
        other.turns[0].logprobs = vec![0.0, -0.1];
        assert!(!read[0].same(&other), "a known number is another");
    }
}

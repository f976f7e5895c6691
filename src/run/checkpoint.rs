//! Checkpoints: weights, optimizer, cursor. Written under a temporary name; they count once the
//! pointer names them.

use std::collections::BTreeMap;

use bevy_ecs::prelude::*;
use serde::{Deserialize, Serialize};

use super::control::SavedAt;
use super::recorder::{Recorder, RunClock};
use crate::credit::memory::MemoryCreditState;
use crate::engine::{EngineInbox, EngineLink, EngineRequest, EngineSeconds};
use crate::record::{Event, write_atomic};
use crate::schedule::{Activity, Cursor, Phase};

/// The file of a checkpoint that says how far the run had come.
pub const CHECKPOINT_FILE: &str = "cursor.json";

/// Content of [`CHECKPOINT_FILE`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointState {
    /// How far the run had come. Random streams are addressed by it.
    pub cursor: Cursor,
    /// The event that records this checkpoint: later ones are void after a resume.
    pub from_seq: u64,
    /// What memory credit keeps from step to step.
    #[serde(default)]
    pub credit: MemoryCreditState,
    /// Wall seconds spent so far, by activity.
    pub wall_seconds: BTreeMap<String, f64>,
}

/// Begins a checkpoint, or the final policy.
pub fn save_checkpoint(
    mut phase: ResMut<Phase>,
    cursor: Res<Cursor>,
    mut recorder: ResMut<Recorder>,
    mut link: ResMut<EngineLink>,
) -> Result {
    let (name, with_optimizer) = match phase.activity {
        Activity::Saving if cursor.rl_begun => (format!("step-{:05}", cursor.step), true),
        Activity::Saving => (format!("cold-start-{:05}", cursor.cold_start_step), true),
        Activity::Finishing => ("final".to_owned(), false),
        _ => return Ok(()),
    };
    let activity = phase.activity;
    if phase.begin(activity) {
        let draft = recorder.folder.begin_checkpoint(&name)?;
        link.send(EngineRequest::Save {
            folder: draft.path().to_path_buf(),
            with_optimizer,
        })?;
        recorder.draft = Some(draft);
    }
    Ok(())
}

/// When the engine has written its files, adds the cursor and makes the checkpoint count.
pub fn commit_checkpoint(
    mut phase: ResMut<Phase>,
    cursor: Res<Cursor>,
    mut inbox: ResMut<EngineInbox>,
    mut recorder: ResMut<Recorder>,
    mut saved: ResMut<SavedAt>,
    seconds: Res<EngineSeconds>,
    clock: Res<RunClock>,
    credit: Res<MemoryCreditState>,
) -> Result {
    if inbox.saved.take().is_none() {
        return Ok(());
    }
    let draft = recorder
        .draft
        .take()
        .context("the engine saved a folder that nobody asked for")?;
    let final_policy = phase.activity == Activity::Finishing;
    recorder.seconds_saving = seconds.save;
    if final_policy {
        draft.commit_beside()?;
        recorder.completed = true;
    } else {
        let state = CheckpointState {
            cursor: *cursor,
            credit: credit.clone(),
            from_seq: recorder.writer.next_seq(),
            wall_seconds: clock.seconds.clone(),
        };
        let text = serde_json::to_vec_pretty(&state).context("cursor.json")?;
        write_atomic(&draft.path().join(CHECKPOINT_FILE), &text)?;
        recorder.writer.append(&Event::CheckpointSaved {
            step: cursor.step,
            cold_start_step: cursor.cold_start_step,
            folder: draft.name().to_owned(),
        })?;
        recorder.writer.sync()?;
        draft.commit()?;
        recorder
            .folder
            .keep_newest_checkpoints(recorder.keep_checkpoints)?;
        saved.0 = Some(*cursor);
    }
    phase.done = true;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_credit_keeps_over_steps_is_read_back_and_older_checkpoints_are_read_too() {
        let state = CheckpointState {
            cursor: Cursor::default(),
            credit: MemoryCreditState {
                positions: vec![None, Some(0.1 + 0.2)],
                multiplier: 1.0 / 3.0,
            },
            from_seq: 7,
            wall_seconds: BTreeMap::new(),
        };
        let text = serde_json::to_string(&state).unwrap_or_default();
        assert_eq!(serde_json::from_str(&text).ok(), Some(state));
        let old = r#"{"cursor":{"cold_start_step":0,"rl_begun":true,"step":1,"evaluated":null},"from_seq":3,"wall_seconds":{}}"#;
        let read: Option<CheckpointState> = serde_json::from_str(old).ok();
        assert_eq!(
            read.map(|read| read.credit),
            Some(MemoryCreditState::default())
        );
    }
}

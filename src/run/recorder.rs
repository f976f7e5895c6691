//! Writes down what happened in a tick: messages become events. `steps.rs` writes finished steps down.

use std::collections::BTreeMap;
use std::time::Instant;

use bevy_ecs::prelude::*;

use crate::engine::EngineSeconds;
use crate::record::{CheckpointDraft, Event, RecordWriter, RunFolder, TurnEvent};
use crate::rollout::{Roster, RunSettings, TaskHandle, notes_content_ids};
use crate::schedule::{Activity, Phase};
use crate::trajectory::{
    Outcome, Purpose, Question, Tag, ToolReturned, TrajectoryId, TrajectorySpawned,
    TrajectoryTerminated, TroubleFound, TurnGenerated, Turns,
};

/// The run folder and its writer.
#[derive(Resource)]
pub struct Recorder {
    /// The folder; holds the lock.
    pub folder: RunFolder,
    /// The writer.
    pub writer: RecordWriter,
    /// Checkpoints kept; 0 = all.
    pub keep_checkpoints: usize,
    /// The final policy has been written.
    pub(super) completed: bool,
    pub(super) draft: Option<CheckpointDraft>,
    pub(super) seconds_saving: f64,
    step_began: Option<u32>,
}

impl Recorder {
    /// A recorder that has written nothing in this process.
    #[must_use]
    pub fn new(folder: RunFolder, writer: RecordWriter, keep_checkpoints: usize) -> Self {
        Self {
            folder,
            writer,
            keep_checkpoints,
            completed: false,
            draft: None,
            seconds_saving: 0.0,
            step_began: None,
        }
    }
}

/// Wall seconds by activity, over all processes of the run.
#[derive(Resource, Clone, Debug, Default)]
pub struct RunClock {
    /// Seconds by activity, under the names of `summary.json`.
    pub seconds: BTreeMap<String, f64>,
    last_tick: Option<Instant>,
    pub(super) step_started: Option<Instant>,
    pub(super) taken: EngineSeconds,
}

impl RunClock {
    /// A clock that goes on from what earlier processes spent.
    #[must_use]
    pub fn from_seconds(seconds: BTreeMap<String, f64>) -> Self {
        Self {
            seconds,
            ..Self::default()
        }
    }
}

/// Name of an activity in `wall_seconds`.
fn activity_name(activity: Activity) -> &'static str {
    match activity {
        Activity::Starting | Activity::BeginRl | Activity::Finished => "start",
        Activity::ColdStart => "cold_start",
        Activity::Evaluating => "evaluation",
        Activity::RollingOut => "rollout",
        Activity::Scoring => "memory_scores",
        Activity::Learning => "update",
        Activity::Saving | Activity::Finishing => "checkpoints",
    }
}

/// Whether the text and tokens of a trajectory are kept (`record.trajectories`).
pub(super) fn keeps(settings: &RunSettings, id: TrajectoryId) -> bool {
    let limit = settings.0.record.trajectories;
    let number = match id.purpose {
        Purpose::Train => id.group * settings.0.rollout.group_size + id.member,
        Purpose::Evaluate => id.group,
    };
    limit == 0 || number < limit
}

/// Writes `step_began` and `question_drawn`.
pub fn record_spawns(
    mut recorder: ResMut<Recorder>,
    mut clock: ResMut<RunClock>,
    settings: Res<RunSettings>,
    roster: Res<Roster>,
    mut spawned: MessageReader<TrajectorySpawned>,
    questions: Query<&Question>,
) -> Result {
    for TrajectorySpawned { id } in spawned.read() {
        if id.purpose == Purpose::Train && recorder.step_began != Some(id.step) {
            recorder.step_began = Some(id.step);
            clock.step_started = Some(Instant::now());
            recorder
                .writer
                .append(&Event::StepBegan { step: id.step + 1 })?;
        }
        if id.member > 0 || !keeps(&settings, *id) {
            continue;
        }
        let Some(question) = roster
            .entities
            .get(id)
            .and_then(|&entity| questions.get(entity).ok())
        else {
            continue;
        };
        recorder.writer.append(&Event::QuestionDrawn {
            step: id.step,
            purpose: id.purpose,
            group: id.group,
            text: question.0.text.clone(),
            objectives: question.0.objectives.len() as u32,
            gold: question.0.gold_text.clone(),
        })?;
    }
    Ok(())
}

/// Writes `turn_generated`.
pub fn record_turns(
    mut recorder: ResMut<Recorder>,
    settings: Res<RunSettings>,
    task: Res<TaskHandle>,
    roster: Res<Roster>,
    mut generated: MessageReader<TurnGenerated>,
    trajectories: Query<&Turns>,
) -> Result {
    let tokenizer = task.task.tokenizer();
    for message in generated
        .read()
        .filter(|message| keeps(&settings, message.id))
    {
        let Some(turns) = roster
            .entities
            .get(&message.id)
            .and_then(|&entity| trajectories.get(entity).ok())
        else {
            continue;
        };
        let Some(turn) = turns.0.get(message.turn as usize) else {
            continue;
        };
        let has_notes = turn.spans.iter().any(|span| span.tag == Tag::Mem);
        recorder.writer.append(&Event::TurnGenerated(TurnEvent {
            id: message.id,
            turn: message.turn,
            text: tokenizer.decode(&turn.ids),
            tokens: turn.ids.len() as u32,
            context_tokens: turn.context_tokens,
            notes: has_notes.then(|| tokenizer.decode(notes_content_ids(turn))),
            action: turn.action.clone(),
            broken: turn.broken,
        }))?;
    }
    Ok(())
}

/// Writes `tool_returned`.
pub fn record_tool_results(
    mut recorder: ResMut<Recorder>,
    settings: Res<RunSettings>,
    roster: Res<Roster>,
    mut returned: MessageReader<ToolReturned>,
    trajectories: Query<&Turns>,
) -> Result {
    for message in returned
        .read()
        .filter(|message| keeps(&settings, message.id))
    {
        let turns = roster
            .entities
            .get(&message.id)
            .and_then(|&entity| trajectories.get(entity).ok());
        let tool = turns
            .and_then(|turns| turns.0.get(message.turn as usize))
            .and_then(|turn| turn.tool.as_ref());
        recorder.writer.append(&Event::ToolReturned {
            id: message.id,
            turn: message.turn,
            text: message.text.clone(),
            tokens: tool.map_or(0, |tool| tool.ids.len() as u32),
            failure: message.failure,
        })?;
    }
    Ok(())
}

/// Writes `trajectory_terminated`.
pub fn record_endings(
    mut recorder: ResMut<Recorder>,
    settings: Res<RunSettings>,
    roster: Res<Roster>,
    mut terminated: MessageReader<TrajectoryTerminated>,
    outcomes: Query<&Outcome>,
) -> Result {
    for message in terminated
        .read()
        .filter(|message| keeps(&settings, message.id))
    {
        let Some(outcome) = roster
            .entities
            .get(&message.id)
            .and_then(|&entity| outcomes.get(entity).ok())
        else {
            continue;
        };
        recorder.writer.append(&Event::TrajectoryTerminated {
            id: message.id,
            reason: message.reason,
            outcome: *outcome,
        })?;
    }
    Ok(())
}

/// Writes `trouble_found`.
pub fn record_trouble(
    mut recorder: ResMut<Recorder>,
    mut found: MessageReader<TroubleFound>,
) -> Result {
    for message in found.read() {
        tracing::warn!("{}", message.what);
        recorder.writer.append(&Event::TroubleFound {
            id: message.id,
            what: message.what.clone(),
        })?;
    }
    Ok(())
}

/// Puts the tick's lines on the disk and counts its time.
pub fn flush_record(
    mut recorder: ResMut<Recorder>,
    mut clock: ResMut<RunClock>,
    phase: Res<Phase>,
) -> Result {
    let now = Instant::now();
    if let Some(last) = clock.last_tick.replace(now) {
        let spent = now.duration_since(last).as_secs_f64();
        *clock
            .seconds
            .entry(activity_name(phase.activity).to_owned())
            .or_default() += spent;
    }
    recorder.writer.flush()?;
    Ok(())
}

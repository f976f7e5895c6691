//! Writes down what happened in a tick: messages become events, finished steps become metrics.

use std::collections::BTreeMap;
use std::time::Instant;

use bevy_ecs::prelude::*;

use super::publish::News;
use super::step_metrics::StepSums;
use crate::engine::EngineSeconds;
use crate::eval::Evaluated;
use crate::learner::{ColdStartProgress, Updated};
use crate::record::{
    CheckpointDraft, Event, MemoryCredit, Metrics, RecordWriter, RunFolder, TokenBlock, TurnEvent,
};
use crate::rollout::{Roster, RunSettings, TaskHandle, notes_content_ids};
use crate::schedule::{Activity, Phase};
use crate::trajectory::{
    Advantages, MemoryRewards, Outcome, Purpose, Question, Tag, ToolReturned, TrajectoryId,
    TrajectorySpawned, TrajectoryTerminated, TroubleFound, TurnGenerated, TurnState, Turns,
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
    step_started: Option<Instant>,
    taken: EngineSeconds,
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
fn keeps(settings: &RunSettings, id: TrajectoryId) -> bool {
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

/// Writes `cold_start_step` and its metrics.
pub fn record_cold_start(
    mut recorder: ResMut<Recorder>,
    mut progress: ResMut<ColdStartProgress>,
    mut clock: ResMut<RunClock>,
    mut news: ResMut<News>,
    seconds: Res<EngineSeconds>,
) -> Result {
    let Some((step, lr, report)) = progress.finished.take() else {
        return Ok(());
    };
    let losses: Vec<String> = report
        .parts
        .iter()
        .map(|(part, loss, accuracy)| format!("{part} {loss:.2} ({:.0} %)", accuracy * 100.0))
        .collect();
    news.step = format!("loss {}", losses.join(", "));
    recorder.writer.append(&Event::ColdStartStep {
        step: step + 1,
        parts: report.parts.clone(),
        aid_loss: report.aid_loss,
        lr: f64::from(lr),
    })?;
    let mut metrics = Metrics::default();
    metrics.set_cold_start(&report, f64::from(lr));
    metrics.set(
        "cold_start/timing_s/step",
        seconds.learn - clock.taken.learn,
    );
    clock.taken = *seconds;
    recorder.writer.append_metrics(step + 1, &metrics)?;
    Ok(())
}

/// Writes `credit_assigned`, `learned` and the metrics of the step.
pub fn record_update(
    mut recorder: ResMut<Recorder>,
    mut clock: ResMut<RunClock>,
    mut updated: ResMut<Updated>,
    settings: Res<RunSettings>,
    roster: Res<Roster>,
    seconds: Res<EngineSeconds>,
    mut news: ResMut<News>,
    trajectories: Query<(
        &Turns,
        &TurnState,
        &Outcome,
        Option<&MemoryRewards>,
        &Advantages,
        &Question,
    )>,
) -> Result {
    let Some(report) = updated.report.take() else {
        return Ok(());
    };
    let mut rows = updated.rows.iter().zip(&report.logprobs).peekable();
    let mut sums = StepSums::default();
    for (&id, &entity) in &roster.entities {
        let (turns, state, outcome, memory, advantages, question) = trajectories
            .get(entity)
            .with_context(|| format!("trajectory {id}"))?;
        let mut tokens = Vec::new();
        while let Some((packed, learner)) = rows.next_if(|(packed, _)| packed.id == id) {
            sums.weights.extend(
                packed
                    .row
                    .mask
                    .iter()
                    .zip(&packed.credit.weight)
                    .filter(|(on, _)| **on)
                    .map(|(_, weight)| f64::from(*weight)),
            );
            if keeps(&settings, id) {
                tokens.push(recorder.writer.append_tokens(&TokenBlock {
                    id,
                    row: packed.number,
                    ids: packed.row.ids.clone(),
                    turn: packed.row.turn.clone(),
                    mask: packed.row.mask.clone(),
                    sampled: packed.row.logprobs.clone(),
                    outcome: packed.credit.outcome.clone(),
                    memory: packed.credit.memory.clone(),
                    weight: packed.credit.weight.clone(),
                    learner: learner.clone(),
                })?);
            }
        }
        let memory: Vec<MemoryCredit> = memory
            .iter()
            .flat_map(|memory| &memory.0)
            .map(|reward| MemoryCredit {
                turn: reward.turn,
                p_memory: reward.p_memory,
                p_full: reward.p_full,
                p_previous: reward.p_previous,
                p_empty: reward.p_empty,
                reward: reward.reward,
                advantage: advantages
                    .memory
                    .iter()
                    .find(|(turn, _)| *turn == reward.turn)
                    .map_or(0.0, |(_, a)| *a),
            })
            .collect();
        sums.add(id, turns, *state, outcome, &memory, question);
        if keeps(&settings, id) {
            recorder.writer.append(&Event::CreditAssigned {
                id,
                outcome: advantages.outcome,
                memory,
                tokens,
            })?;
        }
    }
    let step = updated.step + 1;
    recorder.writer.append(&Event::Learned {
        step,
        mini_batches: report.mini_batches.clone(),
    })?;
    let mut metrics = sums.metrics();
    metrics.set_update(&report.mini_batches);
    metrics.set("actor/lr", f64::from(updated.lr));
    if updated.kl_weight > 0.0 {
        metrics.set("actor/kl_coef", f64::from(updated.kl_weight));
    }
    if let Some(mismatch) = &report.mismatch {
        metrics.set_mismatch(mismatch);
    }
    metrics.set("training/global_step", f64::from(step));
    metrics.set("timing_s/gen", seconds.generate - clock.taken.generate);
    metrics.set("timing_s/adv", seconds.score - clock.taken.score);
    metrics.set("timing_s/update_actor", seconds.learn - clock.taken.learn);
    clock.taken = *seconds;
    if let Some(started) = clock.step_started.take() {
        let spent = started.elapsed().as_secs_f64();
        metrics.set("timing_s/step", spent);
        metrics.set("perf/time_per_step", spent);
        metrics.set("perf/throughput", sums.tokens / spent.max(1e-9));
    }
    metrics.set("timing_s/save_checkpoint", recorder.seconds_saving);
    let number = |name: &str| metrics.get(name).unwrap_or(0.0);
    news.step = format!(
        "EM {:.2}, notes recall {:.2}, notes {:.0} tokens",
        number("outcome/em"),
        number("memory/notes_recall"),
        number("memory/notes_tokens"),
    );
    if let Some(reward) = metrics.get("memory/reward/mean") {
        news.step += &format!(", memory reward {reward:.2}");
    }
    recorder.writer.append_metrics(step, &metrics)?;
    updated.rows.clear();
    Ok(())
}

/// Writes `evaluated` and its metrics.
pub fn record_evaluation(
    mut recorder: ResMut<Recorder>,
    mut evaluated: ResMut<Evaluated>,
    mut news: ResMut<News>,
    clock: Res<RunClock>,
) -> Result {
    let lines = std::mem::take(&mut evaluated.0);
    let Some(step) = lines.first().map(|line| line.step) else {
        return Ok(());
    };
    let mut metrics = Metrics::default();
    news.evaluation.clone_from(&lines);
    for line in lines {
        let context = match line.context {
            crate::experiment::ContextKind::Full => "full",
            crate::experiment::ContextKind::Deployed => "deployed",
        };
        let at = format!("{context}/{}", line.objectives);
        metrics.set(format!("val-core/lookup/em/{at}"), line.em);
        metrics.set(format!("val-aux/lookup/f1/{at}"), line.f1);
        metrics.set(
            format!("val-aux/lookup/notes_recall/{at}"),
            line.notes_recall,
        );
        metrics.set(
            format!("val-aux/lookup/notes_tokens/{at}"),
            line.notes_tokens,
        );
        metrics.set(format!("val-aux/lookup/peak_tokens/{at}"), line.peak_tokens);
        metrics.set(
            format!("val-aux/lookup/total_tokens/{at}"),
            line.total_tokens,
        );
        recorder.writer.append(&Event::Evaluated(line))?;
    }
    metrics.set(
        "timing_s/testing",
        clock.seconds.get("evaluation").copied().unwrap_or(0.0),
    );
    recorder.writer.append_metrics(step, &metrics)?;
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

//! P(gold | notes) and P(gold | full history) of every round from the second (MemPO, arXiv
//! 2603.00680).
//!
//! Each trajectory is scored in one forward pass: its transcript is the trunk, and two branches hang
//! on it per round, one after the whole history up to the round's notes, one after the question
//! alone followed by the notes.

use bevy_ecs::prelude::*;

use crate::credit::{CreditError, memory::probability};
use crate::engine::{Branch, EngineInbox, EngineLink, EngineRequest, ScoreRequest, Scored};
use crate::experiment::{ContextKind, Threshold};
use crate::rollout::{ForcedIds, Roster, RunSettings, TaskHandle, training_rows};
use crate::schedule::{Activity, Phase};
use crate::trajectory::{
    MemoryReward, MemoryRewards, Question, QuestionData, TrajectoryId, Turn, Turns,
};

/// The request that scores a trajectory's notes, and the turns it scores: every turn from the second
/// whose notes are closed. For each, the branch after the notes alone comes first, then the one
/// after the full history. None if there is nothing to score.
#[must_use]
pub fn memory_score_request(
    id: TrajectoryId,
    question: &QuestionData,
    turns: &[Turn],
) -> Option<(ScoreRequest, Vec<u32>)> {
    let row = training_rows(ContextKind::Full, question, turns, &ForcedIds(Vec::new())).pop()?;
    let prompt = question.prompt_ids.len() as u32;
    let mut answer = question.answer_prefix_ids.clone();
    answer.extend_from_slice(&question.gold_ids);
    let prefix = question.answer_prefix_ids.len() as u32;
    let mut branches = Vec::new();
    let mut scored = Vec::new();
    for &(turn, start, end) in row.notes.iter().filter(|(turn, ..)| *turn > 0) {
        let notes = row.ids.get(start as usize..end as usize)?;
        let alone = [notes, &answer].concat();
        branches.push(Branch {
            at: prompt,
            ids: alone,
            scored_from: end - start + prefix,
        });
        branches.push(Branch {
            at: end,
            ids: answer.clone(),
            scored_from: prefix,
        });
        scored.push(turn);
    }
    let request = ScoreRequest {
        id,
        trunk: row.ids,
        score_trunk: false,
        branches,
        temperature: 1.0,
    };
    (!scored.is_empty()).then_some((request, scored))
}

/// The memory rewards of a trajectory: `r_t = P(gold | notes_t) - P(gold | full_t)`.
///
/// # Errors
/// A gold answer without tokens.
pub fn memory_rewards_of(
    scored: &Scored,
    turns: &[u32],
    threshold: Threshold,
) -> Result<Vec<MemoryReward>, CreditError> {
    let pairs = scored.branches.chunks_exact(2);
    turns
        .iter()
        .zip(pairs)
        .map(|(&turn, pair)| {
            let [alone, full] = pair else {
                return Err(CreditError::EmptyAnswer);
            };
            let p_memory = probability(alone, threshold)? as f32;
            let p_full = probability(full, threshold)? as f32;
            Ok(MemoryReward {
                turn,
                p_memory,
                p_full,
                reward: p_memory - p_full,
            })
        })
        .collect()
}

/// At the start of the scoring phase, asks for the scores of every trajectory of the step.
pub fn ask_for_memory_scores(
    mut phase: ResMut<Phase>,
    roster: Res<Roster>,
    mut link: ResMut<EngineLink>,
    trajectories: Query<(&Question, &Turns)>,
) -> Result {
    if !phase.begin(Activity::Scoring) {
        return Ok(());
    }
    let requests: Vec<ScoreRequest> = roster
        .entities
        .iter()
        .filter_map(|(&id, &entity)| {
            let (question, turns) = trajectories.get(entity).ok()?;
            memory_score_request(id, &question.0, &turns.0).map(|(request, _)| request)
        })
        .collect();
    link.send(EngineRequest::Score(requests))?;
    Ok(())
}

/// Takes the scores in and writes the memory rewards.
pub fn take_memory_scores_in(
    mut commands: Commands,
    mut phase: ResMut<Phase>,
    mut inbox: ResMut<EngineInbox>,
    roster: Res<Roster>,
    settings: Res<RunSettings>,
    trajectories: Query<(&Question, &Turns)>,
    task: Res<TaskHandle>,
) -> Result {
    let _ = task;
    let Some(all) = inbox.scored.take() else {
        return Ok(());
    };
    for scored in all {
        let Some(&entity) = roster.entities.get(&scored.id) else {
            continue;
        };
        let Ok((question, turns)) = trajectories.get(entity) else {
            continue;
        };
        let Some((_, of)) = memory_score_request(scored.id, &question.0, &turns.0) else {
            continue;
        };
        let rewards = memory_rewards_of(&scored, &of, settings.0.credit.threshold)
            .with_context(|| format!("trajectory {}", scored.id))?;
        commands.entity(entity).insert(MemoryRewards(rewards));
    }
    if phase.waits_in(Activity::Scoring) {
        phase.done = true;
    }
    Ok(())
}

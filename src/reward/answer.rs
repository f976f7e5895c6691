//! The outcome of a finished trajectory.

use bevy_ecs::prelude::*;

use crate::experiment::RewardSettings;
use crate::rollout::{RunSettings, TaskHandle, notes_content_ids};
use crate::task::{Judgement, Observed, Task};
use crate::trajectory::{
    Action, Outcome, Question, QuestionData, StopReason, Terminated, Turn, TurnState, Turns,
};

/// Judges a finished trajectory: R_T is 1 if the answer matches and the format is valid, else the
/// format reward if the format is valid, else 0 (MemPO, arXiv 2603.00680).
#[must_use]
pub fn outcome_of(
    task: &dyn Task,
    question: &QuestionData,
    turns: &[Turn],
    reason: StopReason,
    settings: &RewardSettings,
) -> Outcome {
    let answer = turns.last().and_then(|turn| match &turn.action {
        Some(Action::Answer(answer)) => Some(answer.as_str()),
        _ => None,
    });
    let valid = reason == StopReason::Answered && turns.iter().all(|turn| turn.broken.is_none());
    let judgement = answer
        .map(|answer| task.judge(question, answer))
        .unwrap_or_default();
    // Broken text earns nothing, whatever it says.
    let judgement = if valid {
        judgement
    } else {
        Judgement::default()
    };
    let em = judgement.em;
    let (notes_recall, notes_tokens) = notes_of(task, question, turns);
    Outcome {
        reward: if em > 0.0 {
            1.0
        } else if valid {
            settings.format
        } else {
            0.0
        },
        em,
        f1: judgement.f1,
        cem: judgement.cem,
        objectives_em: judgement.objectives_em,
        valid,
        notes_recall,
        notes_tokens,
        peak_tokens: turns.iter().map(processed).max().unwrap_or(0),
        total_tokens: turns.iter().map(processed).sum(),
    }
}

/// Tokens that one turn takes: its context and what it sampled.
fn processed(turn: &Turn) -> u32 {
    turn.context_tokens + turn.ids.len() as u32 - turn.forced
}

/// Share of the facts seen that stood in the notes, over all turns from the second, and the mean
/// length of the notes.
fn notes_of(task: &dyn Task, question: &QuestionData, turns: &[Turn]) -> (f32, f32) {
    let (mut seen, mut kept, mut tokens) = (0u32, 0u32, 0usize);
    let mut observed = Vec::new();
    for (number, turn) in turns.iter().enumerate() {
        // A part of a document is seen before the notes about it are written.
        if let Some(chunk) = question.chunks.get(number) {
            observed.push(Observed {
                query: String::new(),
                text: task.tokenizer().decode(chunk),
            });
        }
        if !observed.is_empty() {
            let notes = notes_content_ids(turn);
            let count = task.count_notes(question, &task.tokenizer().decode(notes), &observed);
            seen += count.seen;
            kept += count.kept;
            tokens += notes.len();
        }
        if let (Some(Action::Search(query) | Action::Access(query)), Some(tool)) =
            (&turn.action, &turn.tool)
        {
            observed.push(Observed {
                query: query.clone(),
                text: tool.text.clone(),
            });
        }
    }
    let later = turns.len().saturating_sub(1).max(1) as f32;
    (
        if seen == 0 {
            0.0
        } else {
            kept as f32 / seen as f32
        },
        tokens as f32 / later,
    )
}

/// Judges every trajectory that has just ended.
pub fn judge_outcomes(
    mut commands: Commands,
    settings: Res<RunSettings>,
    task: Res<TaskHandle>,
    ended: Query<(Entity, &Question, &Turns, &TurnState), (With<Terminated>, Without<Outcome>)>,
) {
    for (entity, question, turns, state) in &ended {
        let TurnState::Terminated(reason) = *state else {
            continue;
        };
        let outcome = outcome_of(
            task.task.as_ref(),
            &question.0,
            &turns.0,
            reason,
            &settings.0.reward,
        );
        commands.entity(entity).insert(outcome);
    }
}

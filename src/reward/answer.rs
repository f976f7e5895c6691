//! The outcome of a finished trajectory.

use bevy_ecs::prelude::*;

use crate::experiment::{ContextKind, RewardSettings};
use crate::rollout::{
    RunSettings, TaskHandle, TurnForm, View, content_ids, notes_content_ids, turn_form,
};
use crate::task::{Judgement, Observed, Task};
use crate::trajectory::{
    Action, Outcome, Question, QuestionData, StopReason, Tag, Terminated, TokenId, ToolResult,
    Turn, TurnState, Turns,
};

/// Judges a finished trajectory that was seen in context `view`: R_T is 1 if the answer matches and the format is valid, else the
/// format reward if the format is valid, else 0 (MemPO, arXiv 2603.00680).
#[must_use]
pub fn outcome_of(
    task: &dyn Task,
    question: &QuestionData,
    view: ContextKind,
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
    let (notes_recall, notes_tokens) = notes_of(task, question, view, turns);
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

/// Share of the facts shown that stood in the notes, over all turns that could write them down, and
/// the mean length of those notes. MEM1's notes are its thoughts; turns without any do not count.
fn notes_of(
    task: &dyn Task,
    question: &QuestionData,
    view: ContextKind,
    turns: &[Turn],
) -> (f32, f32) {
    let (mut seen, mut kept, mut tokens, mut written) = (0u32, 0u32, 0usize, 0u32);
    let mut observed = Vec::new();
    for (number, turn) in turns.iter().enumerate() {
        // A part of a document is seen before the notes about it are written.
        let part = question.chunks.get(number);
        observed.extend(part.map(|part| Observed {
            query: String::new(),
            text: content_of(&task.tokenizer().decode(part)).to_owned(),
        }));
        if let Some(notes) = notes_written(view, turn_form(view, question, number), turn)
            && (number > 0 || part.is_some())
        {
            let count = task.count_notes(question, &task.tokenizer().decode(notes), &observed);
            seen += count.seen;
            kept += count.kept;
            tokens += notes.len();
            written += 1;
        }
        if let (Some(Action::Search(query) | Action::Access(query)), Some(tool)) =
            (&turn.action, &turn.tool)
        {
            observed.extend(shown(task, view, tool).map(|text| Observed {
                query: query.clone(),
                text,
            }));
        }
    }
    (
        kept as f32 / seen.max(1) as f32,
        tokens as f32 / written.max(1) as f32,
    )
}

/// The ids of what a turn wrote down for later ones, if turns of its form write anything down.
fn notes_written(view: ContextKind, form: TurnForm, turn: &Turn) -> Option<&[TokenId]> {
    match form {
        TurnForm::Noted | TurnForm::Reading => Some(notes_content_ids(turn)),
        TurnForm::Bare if view == ContextKind::Mem1 => Some(content_ids(turn, Tag::Think)),
        TurnForm::Bare | TurnForm::Answering => None,
    }
}

/// What a context shows of a tool result, without its tags; none if it shows nothing.
fn shown(task: &dyn Task, view: ContextKind, tool: &ToolResult) -> Option<String> {
    let short = tool
        .short_ids
        .as_ref()
        .filter(|_| view.shortens())
        .map(|ids| task.tokenizer().decode(ids));
    let text = short.unwrap_or_else(|| tool.text.clone());
    (view != ContextKind::MemoryOnly).then(|| content_of(&text).to_owned())
}

/// What stands between the tags of a tool result.
fn content_of(text: &str) -> &str {
    let text = text.trim();
    let text = text.strip_prefix("<tool>").unwrap_or(text);
    text.strip_suffix("</tool>").unwrap_or(text)
}

/// Judges every trajectory that has just ended.
pub fn judge_outcomes(
    mut commands: Commands,
    settings: Res<RunSettings>,
    task: Res<TaskHandle>,
    ended: Query<
        (Entity, &Question, &View, &Turns, &TurnState),
        (With<Terminated>, Without<Outcome>),
    >,
) {
    for (entity, question, view, turns, state) in &ended {
        let TurnState::Terminated(reason) = *state else {
            continue;
        };
        let outcome = outcome_of(
            task.task.as_ref(),
            &question.0,
            view.0,
            &turns.0,
            reason,
            &settings.0.reward,
        );
        commands.entity(entity).insert(outcome);
    }
}

#[cfg(test)]
mod tests;

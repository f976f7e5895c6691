//! Moves trajectories on: the transition as a pure function, and the systems that apply it. `handover.rs`
//! hands over what the new state asks for.
//!
//! `Pending -> Generating -> {ProcessingTools -> Pending | Terminated}`

use bevy_ecs::prelude::*;

use super::state::{Roster, RunSettings, TaskHandle, View};
use super::{TurnForm, next_context, notes_content_ids, parse_turn, turn_form};
use crate::engine::{EngineInbox, Finish};
use crate::experiment::{ContextKind, LimitSettings};
use crate::schedule::{Activity, Phase};
use crate::tools::{ToolError, ToolLink, limit_text, limit_tokens};
use crate::trajectory::{
    Action, Budget, NotesWritten, Question, StopReason, Terminated, ToolFailure, ToolResult,
    ToolReturned, TrajectoryTerminated, Turn, TurnGenerated, TurnState, Turns,
};

/// What is known when a turn has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AfterTurn {
    /// Why generation ended.
    pub finish: Finish,
    /// Whether a rule of the protocol was broken.
    pub broken: bool,
    /// Whether it answered; otherwise a well-formed turn calls a tool.
    pub answered: bool,
    /// Whether it only read a part of a document: then the next turn follows at once.
    pub reading: bool,
    /// What is left after this turn.
    pub left: Budget,
    /// Length of the context with this turn, tokens.
    pub context: u32,
}

/// The state after a turn. Limits come first (a turn that was cut off cannot be well formed), each
/// with its own ending; on the last allowed turn a tool call is not made.
#[must_use]
pub fn state_after_turn(after: AfterTurn, limits: &LimitSettings) -> TurnState {
    let ended = TurnState::Terminated;
    if after.finish == Finish::Length {
        let full = after.context >= limits.context_tokens;
        return ended(if full {
            StopReason::ContextFull
        } else {
            StopReason::TokenLimit
        });
    }
    match after {
        AfterTurn { broken: true, .. } => ended(StopReason::Malformed),
        AfterTurn { answered: true, .. } => ended(StopReason::Answered),
        AfterTurn {
            left: Budget { turns: 0, .. },
            ..
        } => ended(StopReason::TurnLimit),
        AfterTurn {
            left: Budget { tokens: 0, .. },
            ..
        } => ended(StopReason::TokenLimit),
        AfterTurn { reading: true, .. } => TurnState::Pending,
        _ => TurnState::ProcessingTools,
    }
}

/// What is known when a tool has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AfterTool<'a> {
    /// The error, if it failed.
    pub error: Option<&'a ToolError>,
    /// Failed calls of the trajectory, this one included.
    pub failures: u32,
    /// Length of the next context with this result, tokens.
    pub next_context: u32,
}

/// The state after a tool call. A failed call is an observation like any other, until there are more
/// of them than the limits allow; a result that leaves no room for another token ends the trajectory.
#[must_use]
pub fn state_after_tool(after: AfterTool<'_>, limits: &LimitSettings) -> TurnState {
    let too_many = after.failures > limits.tool_failures;
    match after.error.map(ToolError::failure) {
        Some(ToolFailure::TimedOut) if too_many => TurnState::Terminated(StopReason::TimedOut),
        Some(ToolFailure::Failed) if too_many => TurnState::Terminated(StopReason::ToolFailed),
        _ if after.next_context >= limits.context_tokens => {
            TurnState::Terminated(StopReason::ResultTooLong)
        }
        _ => TurnState::Pending,
    }
}

/// Takes the engine's turns in, parses them, and decides how each trajectory goes on.
pub fn take_turns_in(
    mut commands: Commands,
    mut inbox: ResMut<EngineInbox>,
    mut roster: ResMut<Roster>,
    settings: Res<RunSettings>,
    task: Res<TaskHandle>,
    mut trajectories: Query<(&mut Turns, &mut TurnState, &mut Budget, &Question, &View)>,
    mut generated: MessageWriter<TurnGenerated>,
    mut notes: MessageWriter<NotesWritten>,
    mut terminated: MessageWriter<TrajectoryTerminated>,
) {
    let tokenizer = task.task.tokenizer();
    for reply in std::mem::take(&mut inbox.generated) {
        let Some(&entity) = roster.entities.get(&reply.id) else {
            continue;
        };
        let Ok((mut turns, mut state, mut budget, question, view)) = trajectories.get_mut(entity)
        else {
            continue;
        };
        let form = turn_form(view.0, &question.0, turns.0.len().saturating_sub(1));
        let Some(turn) = turns.0.last_mut() else {
            continue;
        };
        budget.turns = budget.turns.saturating_sub(1);
        budget.tokens = budget.tokens.saturating_sub(reply.ids.len() as u32);
        turn.ids.extend_from_slice(&reply.ids);
        turn.logprobs.extend_from_slice(&reply.logprobs);
        let parsed = parse_turn(&turn.ids, form, |id| tokenizer.token_bytes(id));
        turn.spans = parsed.spans;
        turn.broken = parsed.broken;
        turn.action = parsed.action;
        turn.cut = reply.finish == Finish::Length;
        let after = AfterTurn {
            finish: reply.finish,
            broken: turn.broken.is_some(),
            answered: matches!(turn.action, Some(Action::Answer(_))),
            reading: form == TurnForm::Reading,
            left: *budget,
            context: turn.context_tokens + reply.ids.len() as u32,
        };
        *state = state_after_turn(after, &settings.0.rollout.limits);
        generated.write(TurnGenerated {
            id: reply.id,
            turn: reply.turn,
        });
        let tokens = notes_content_ids(turn).len() as u32;
        notes.write(NotesWritten {
            id: reply.id,
            turn: reply.turn,
            tokens,
        });
        if let TurnState::Terminated(reason) = *state {
            commands.entity(entity).insert(Terminated);
            roster.alive -= 1;
            terminated.write(TrajectoryTerminated {
                id: reply.id,
                reason,
            });
        }
    }
}

/// Takes tool results in: renders them as the policy sees them and lets the trajectory go on.
pub fn take_tool_results_in(
    mut commands: Commands,
    mut tools: ResMut<ToolLink>,
    mut roster: ResMut<Roster>,
    settings: Res<RunSettings>,
    task: Res<TaskHandle>,
    mut trajectories: Query<(&mut Turns, &mut TurnState, &Question, &View, &Budget)>,
    mut returned: MessageWriter<ToolReturned>,
    mut terminated: MessageWriter<TrajectoryTerminated>,
) {
    let limits = &settings.0.rollout.limits;
    for reply in tools.take_replies() {
        let Some(&entity) = roster.entities.get(&reply.id) else {
            continue;
        };
        let Ok((mut turns, mut state, question, view, budget)) = trajectories.get_mut(entity)
        else {
            continue;
        };
        let Some(turn) = turns.0.last_mut() else {
            continue;
        };
        let shown = tool_result(&reply.result, view.0, budget.turns, &task, limits);
        let error = reply.result.err();
        returned.write(ToolReturned {
            id: reply.id,
            turn: reply.turn,
            text: shown.text.clone(),
            failure: shown.failure,
        });
        turn.tool = Some(shown);
        let failed = |turn: &&Turn| {
            turn.tool
                .as_ref()
                .is_some_and(|tool| tool.failure.is_some())
        };
        let failures = turns.0.iter().filter(failed).count() as u32;
        let next = next_context(view.0, &question.0, &turns.0, &task.forced);
        let after = AfterTool {
            error: error.as_ref(),
            failures,
            next_context: next.ids.len() as u32,
        };
        *state = state_after_tool(after, limits);
        if let TurnState::Terminated(reason) = *state {
            commands.entity(entity).insert(Terminated);
            roster.alive -= 1;
            terminated.write(TrajectoryTerminated {
                id: reply.id,
                reason,
            });
        }
    }
}

/// What a tool answered, as a policy in context `view` with so many turns left is shown it: cut to the
/// limits, in the task's tags.
#[must_use]
pub fn tool_result(
    result: &Result<String, ToolError>,
    view: ContextKind,
    turns: u32,
    task: &TaskHandle,
    limits: &LimitSettings,
) -> ToolResult {
    let said = match result {
        Ok(said) => said.clone(),
        Err(error) => error.to_string(),
    };
    let said = limit_text(&said, limits.tool_chars as usize, limits.tool_kept);
    let most = limits.tool_tokens as usize;
    let said = limit_tokens(task.task.tokenizer(), &said, most, limits.tool_kept);
    let mut before = String::new();
    if view == ContextKind::Mem1 {
        before += &turns_left(turns);
    }
    if result.is_err() {
        before = format!("{} error: ", before.trim_end());
    }
    let (text, ids) = task.task.render_tool(&format!("{before}{said}"));
    let short = limits.tool_short_chars as usize;
    let short_ids = (short > 0 && said.chars().count() > short).then(|| {
        let short = limit_text(&said, short, limits.tool_kept);
        task.task.render_tool(&format!("{before}{short}")).1
    });
    ToolResult {
        text,
        ids,
        short_ids,
        said,
        failure: result.as_ref().err().map(ToolError::failure),
    }
}

/// MEM1's hint in front of a tool result.
fn turns_left(turns: u32) -> String {
    match turns {
        1 => " You have 1 turn left: answer now. ".to_owned(),
        _ => format!(" You have {turns} turns left. "),
    }
}

/// A rollout phase is done when nothing is alive and nothing waits.
pub fn finish_rollouts(
    mut phase: ResMut<Phase>,
    roster: Res<Roster>,
    backlog: Res<super::Backlog>,
) {
    let over = roster.alive == 0 && backlog.0.is_empty() && !roster.entities.is_empty();
    if phase.waits_in(Activity::RollingOut) && over {
        phase.done = true;
    }
}

#[cfg(test)]
mod tests;

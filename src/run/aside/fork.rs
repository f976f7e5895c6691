//! A trajectory that goes on from one of its turns with other notes or another tool result: the same
//! contexts, limits and transitions as in the run, one turn after the other.

use std::sync::Arc;

use bevy_ecs::prelude::*;

use crate::engine::{EngineReply, EngineRequest, GenerateRequest, Generated, Sampling};
use crate::reward::outcome_of;
use crate::rollout::{
    AfterTool, AfterTurn, RunSettings, TaskHandle, TurnForm, View, next_context, parse_turn,
    state_after_tool, state_after_turn, tool_result, turn_form,
};
use crate::tools::{ToolCall, ToolError, ToolLink};
use crate::trajectory::{
    Action, Budget, QuestionData, StopReason, Tag, TokenId, ToolResult, TrajectoryId, Turn,
    TurnState,
};

use super::{AsideAnswer, Original, ask, original};

/// Forks have members from here on: no group is as large, so no random number is used twice.
const FORKS: u32 = 1 << 24;

pub(super) fn fork(
    world: &mut World,
    id: TrajectoryId,
    turn: u32,
    (notes, tool): (Option<&str>, Option<&str>),
    number: u32,
) -> Result<AsideAnswer, String> {
    let Original {
        question,
        view,
        turns,
        temperature,
    } = original(world, id)?;
    let task = world.resource::<TaskHandle>().clone();
    let settings = world.resource::<RunSettings>().clone();
    let limits = &settings.0.rollout.limits;
    let mut turns: Vec<Turn> = turns.into_iter().take(turn as usize + 1).collect();
    let last = turns.last_mut().filter(|last| last.action.is_some());
    let Some(last) = last else {
        return Err(format!(
            "turn {turn} is not finished, or broke the protocol; fork from one that called a tool"
        ));
    };
    if matches!(last.action, Some(Action::Answer(_))) {
        return Err(format!(
            "turn {turn} gave the answer, so nothing comes after it; fork from an earlier turn"
        ));
    }
    if let Some(notes) = notes {
        rewrite_notes(
            last,
            notes,
            turn_form(view.0, &question, turn as usize),
            &task,
        )?;
    }
    if let Some(text) = tool {
        // Edited as it was shown, hints and all.
        let (text, ids) = task.task.render_tool(text);
        last.tool = Some(ToolResult {
            said: text.clone(),
            text,
            ids,
            short_ids: None,
            failure: None,
        });
    }
    if last.tool.is_none() {
        return Err(format!(
            "the tool of turn {turn} has not answered yet; wait, or give its answer"
        ));
    }
    let fork = TrajectoryId {
        member: FORKS + number,
        ..id
    };
    let spent: u32 = turns
        .iter()
        .map(|turn| turn.ids.len() as u32 - turn.forced)
        .sum();
    let allowed = if limits.turns == 0 {
        question.objectives.len() as u32 + 3
    } else {
        limits.turns
    };
    let mut budget = Budget {
        turns: allowed.saturating_sub(turns.len() as u32).max(1),
        tokens: limits.trajectory_tokens.saturating_sub(spent).max(1),
    };
    let kept = turns.len();
    let mut state = TurnState::Pending;
    while let TurnState::Pending = state {
        let written = write_turn(
            world,
            fork,
            &question,
            view,
            &turns,
            &task,
            budget,
            temperature,
        )?;
        budget.turns = budget.turns.saturating_sub(1);
        budget.tokens = budget.tokens.saturating_sub(written.1.ids.len() as u32);
        let (mut made, reply) = written;
        let form = turn_form(view.0, &question, turns.len());
        state = state_after_turn(
            AfterTurn {
                finish: reply.finish,
                broken: made.broken.is_some(),
                answered: matches!(made.action, Some(Action::Answer(_))),
                reading: form == TurnForm::Reading,
                left: budget,
                context: made.context_tokens + reply.ids.len() as u32,
            },
            limits,
        );
        if state == TurnState::ProcessingTools {
            let result = call_tool(world, fork, turns.len() as u32, &made, &question)?;
            made.tool = Some(tool_result(&result, view.0, budget.turns, &task, limits));
            turns.push(made);
            let failed = |turn: &&Turn| {
                let tool = turn.tool.as_ref();
                tool.is_some_and(|tool| tool.failure.is_some())
            };
            let failures = turns.iter().filter(failed).count() as u32;
            let next = next_context(view.0, &question, &turns, &task.forced)
                .ids
                .len() as u32;
            state = state_after_tool(
                AfterTool {
                    error: result.as_ref().err(),
                    failures,
                    next_context: next,
                },
                limits,
            );
        } else {
            turns.push(made);
        }
    }
    ask(world, EngineRequest::Release(vec![fork]))?;
    let reason = match state {
        TurnState::Terminated(reason) => reason,
        _ => StopReason::Aborted,
    };
    let outcome = outcome_of(
        task.task.as_ref(),
        &question,
        view.0,
        &turns,
        reason,
        &settings.0.reward,
    );
    let tokenizer = task.task.tokenizer();
    let text = |turn: &Turn| {
        let tool = turn.tool.as_ref().map_or("", |tool| tool.text.as_str());
        format!("{}{tool}", tokenizer.decode(&turn.ids))
    };
    Ok(AsideAnswer::Forked {
        turns: turns.iter().skip(kept).map(text).collect(),
        reason,
        outcome,
    })
}

/// Puts other text between the memory tags of a turn. Its call stays as it was written.
fn rewrite_notes(
    turn: &mut Turn,
    notes: &str,
    form: TurnForm,
    task: &TaskHandle,
) -> Result<(), String> {
    let tokenizer = task.task.tokenizer();
    let span = turn.spans.iter().find(|span| span.tag == Tag::Mem).copied();
    let Some(span) = span else {
        return Err("the turn has no notes to edit".into());
    };
    let (from, to) = (span.inner_start as usize, span.inner_end as usize);
    let written: Vec<TokenId> = tokenizer.encode(notes);
    turn.ids.splice(from..to, written);
    let parsed = parse_turn(&turn.ids, form, |id| tokenizer.token_bytes(id));
    if parsed.broken.is_some() {
        return Err("these notes would break the protocol: leave tags out of them".into());
    }
    turn.spans = parsed.spans;
    // The log-probs of what nobody sampled mean nothing; only their number counts.
    turn.logprobs.resize(turn.ids.len(), 0.0);
    Ok(())
}

/// Has the engine write one turn.
fn write_turn(
    world: &mut World,
    id: TrajectoryId,
    question: &QuestionData,
    view: View,
    turns: &[Turn],
    task: &TaskHandle,
    budget: Budget,
    temperature: f32,
) -> Result<(Turn, Generated), String> {
    let settings = world.resource::<RunSettings>().clone();
    let limits = &settings.0.rollout.limits;
    let context = next_context(view.0, question, turns, &task.forced);
    let length = context.ids.len() as u32;
    let forced = context
        .ids
        .iter()
        .rev()
        .take(context.forced as usize)
        .rev()
        .copied()
        .collect();
    let room = limits.context_tokens.saturating_sub(length).max(1);
    let request = GenerateRequest {
        id,
        turn: turns.len() as u32,
        context: context.ids,
        max_new_tokens: limits.turn_tokens.min(budget.tokens).min(room),
        sampling: Sampling::plain(temperature, settings.0.seed),
        stop: task.stop.clone(),
        ignore_eos: false,
    };
    let replies = ask(world, EngineRequest::Generate(vec![request]))?;
    let reply = replies.into_iter().find_map(|reply| match reply {
        EngineReply::Generated(turns) => turns.into_iter().find(|turn| turn.id == id),
        _ => None,
    });
    let reply = reply.ok_or("the engine gave no turn for the fork")?;
    let mut turn = Turn {
        forced: context.forced,
        ids: forced,
        context_tokens: length,
        ..Turn::default()
    };
    turn.logprobs = vec![0.0; turn.ids.len()];
    turn.ids.extend_from_slice(&reply.ids);
    turn.logprobs.extend_from_slice(&reply.logprobs);
    let tokenizer = task.task.tokenizer();
    let form = turn_form(view.0, question, turns.len());
    let parsed = parse_turn(&turn.ids, form, |id| tokenizer.token_bytes(id));
    turn.spans = parsed.spans;
    turn.broken = parsed.broken;
    turn.action = parsed.action;
    Ok((turn, reply))
}

/// Calls the tool that a turn asks for, and waits.
fn call_tool(
    world: &mut World,
    id: TrajectoryId,
    turn: u32,
    made: &Turn,
    question: &Arc<QuestionData>,
) -> Result<Result<String, ToolError>, String> {
    let Some(action) = made.action.clone() else {
        return Err("the fork called no tool".into());
    };
    let mut tools = world.resource_mut::<ToolLink>();
    tools.call(ToolCall {
        id,
        turn,
        action,
        question: Arc::clone(question),
    });
    tools.wait_for_all().map_err(|error| error.to_string())?;
    match tools.take_reply(id, turn).map(|reply| reply.result) {
        Some(result) => Ok(result),
        None => Err("the tool gave no answer to the fork".into()),
    }
}

//! Hands over what trajectories wait for: tool calls, and their next turns as one batch.

use bevy_ecs::prelude::*;

use super::state::{Roster, RunSettings, TaskHandle, Temperature, View};
use super::{TurnForm, next_context, turn_form};
use crate::engine::{EngineLink, EngineRequest, GenerateRequest, Sampling};
use crate::experiment::Experiment;
use crate::tools::{ToolCall, ToolLink};
use crate::trajectory::{
    Budget, Purpose, Question, ToolCalled, TrajectoryId, Turn, TurnState, Turns,
};

/// Hands the tool calls of this tick over.
pub fn dispatch_tool_calls(
    mut tools: ResMut<ToolLink>,
    roster: Res<Roster>,
    mut trajectories: Query<(&TrajectoryId, &Question, &Turns, Ref<TurnState>)>,
    mut called: MessageWriter<ToolCalled>,
) {
    for &entity in roster.entities.values() {
        let Ok((&id, question, turns, state)) = trajectories.get_mut(entity) else {
            continue;
        };
        if *state != TurnState::ProcessingTools || !state.is_changed() {
            continue;
        }
        let Some(action) = turns.0.last().and_then(|turn| turn.action.clone()) else {
            continue;
        };
        let turn = turns.0.len() as u32 - 1;
        called.write(ToolCalled {
            id,
            turn,
            action: action.clone(),
        });
        tools.call(ToolCall {
            id,
            turn,
            action,
            question: question.0.clone(),
        });
    }
}

/// How a trajectory is sampled. The cuts are for training: evaluations measure the policy itself.
fn sampling(experiment: &Experiment, purpose: Purpose, temperature: f32) -> Sampling {
    let plain = Sampling::plain(temperature, experiment.seed);
    if purpose == Purpose::Evaluate {
        return plain;
    }
    let rollout = &experiment.rollout;
    Sampling {
        top_k: rollout.top_k,
        top_p: rollout.top_p,
        min_p: rollout.min_p,
        repetition_penalty: rollout.repetition_penalty,
        ..plain
    }
}

/// Hands the next turn of every pending trajectory to the engine, as one batch.
pub fn dispatch_turns(
    mut link: ResMut<EngineLink>,
    roster: Res<Roster>,
    settings: Res<RunSettings>,
    task: Res<TaskHandle>,
    mut trajectories: Query<(
        &Question,
        &View,
        &Temperature,
        &Budget,
        &mut Turns,
        &mut TurnState,
    )>,
) -> Result {
    let limits = &settings.0.rollout.limits;
    let mut requests = Vec::new();
    for (&id, &entity) in &roster.entities {
        let Ok((question, view, temperature, budget, mut turns, mut state)) =
            trajectories.get_mut(entity)
        else {
            continue;
        };
        if *state != TurnState::Pending {
            continue;
        }
        let context = next_context(view.0, &question.0, &turns.0, &task.forced);
        let length = context.ids.len() as u32;
        let room = limits.context_tokens.saturating_sub(length).max(1);
        let forced = context.ids[context.ids.len() - context.forced as usize..].to_vec();
        let form = turn_form(view.0, &question.0, turns.0.len());
        let stop = if form == TurnForm::Reading {
            &task.stop_reading
        } else {
            &task.stop
        };
        requests.push(GenerateRequest {
            id,
            turn: turns.0.len() as u32,
            context: context.ids,
            max_new_tokens: limits.turn_tokens.min(budget.tokens).min(room),
            sampling: sampling(&settings.0, id.purpose, temperature.0),
            stop: stop.clone(),
            ignore_eos: false,
        });
        turns.0.push(Turn {
            forced: context.forced,
            logprobs: vec![0.0; forced.len()],
            ids: forced,
            context_tokens: length,
            ..Turn::default()
        });
        *state = TurnState::Generating;
    }
    if !requests.is_empty() {
        link.send(EngineRequest::Generate(requests))?;
    }
    Ok(())
}

//! Moves trajectories on: the transition as a pure function, and the systems that apply it. `handover.rs`
//! hands over what the new state asks for.
//!
//! `Pending -> Generating -> {ProcessingTools -> Pending | Terminated}`

use bevy_ecs::prelude::*;

use super::state::{Roster, RunSettings, TaskHandle, View};
use super::{next_context, notes_content_ids, parse_turn};
use crate::engine::{EngineInbox, Finish};
use crate::experiment::LimitSettings;
use crate::schedule::{Activity, Phase};
use crate::tools::{ToolError, ToolLink, limit_text, limit_tokens};
use crate::trajectory::{
    Action, Budget, NotesWritten, Question, StopReason, Terminated, ToolResult, ToolReturned,
    TrajectoryTerminated, TurnGenerated, TurnState, Turns,
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
        _ => TurnState::ProcessingTools,
    }
}

/// What is known when a tool has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AfterTool<'a> {
    /// The error, if it failed.
    pub error: Option<&'a ToolError>,
    /// Length of the next context with this result, tokens.
    pub next_context: u32,
}

/// The state after a tool call. A result that leaves no room for another token ends the trajectory.
#[must_use]
pub fn state_after_tool(after: AfterTool<'_>, limits: &LimitSettings) -> TurnState {
    match after.error {
        Some(ToolError::TimedOut { .. }) => TurnState::Terminated(StopReason::TimedOut),
        Some(_) => TurnState::Terminated(StopReason::ToolFailed),
        None if after.next_context >= limits.context_tokens => {
            TurnState::Terminated(StopReason::ResultTooLong)
        }
        None => TurnState::Pending,
    }
}

/// Takes the engine's turns in, parses them, and decides how each trajectory goes on.
pub fn take_turns_in(
    mut commands: Commands,
    mut inbox: ResMut<EngineInbox>,
    mut roster: ResMut<Roster>,
    settings: Res<RunSettings>,
    task: Res<TaskHandle>,
    mut trajectories: Query<(&mut Turns, &mut TurnState, &mut Budget)>,
    mut generated: MessageWriter<TurnGenerated>,
    mut notes: MessageWriter<NotesWritten>,
    mut terminated: MessageWriter<TrajectoryTerminated>,
) {
    let tokenizer = task.task.tokenizer();
    for reply in std::mem::take(&mut inbox.generated) {
        let Some(&entity) = roster.entities.get(&reply.id) else {
            continue;
        };
        let Ok((mut turns, mut state, mut budget)) = trajectories.get_mut(entity) else {
            continue;
        };
        let Some(turn) = turns.0.last_mut() else {
            continue;
        };
        budget.turns = budget.turns.saturating_sub(1);
        budget.tokens = budget.tokens.saturating_sub(reply.ids.len() as u32);
        turn.ids.extend_from_slice(&reply.ids);
        turn.logprobs.extend_from_slice(&reply.logprobs);
        let parsed = parse_turn(&turn.ids, |id| tokenizer.token_bytes(id));
        turn.spans = parsed.spans;
        turn.broken = parsed.broken;
        turn.action = parsed.action;
        let after = AfterTurn {
            finish: reply.finish,
            broken: turn.broken.is_some(),
            answered: matches!(turn.action, Some(Action::Answer(_))),
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
    mut trajectories: Query<(&mut Turns, &mut TurnState, &Question, &View)>,
    mut returned: MessageWriter<ToolReturned>,
    mut terminated: MessageWriter<TrajectoryTerminated>,
) {
    let limits = &settings.0.rollout.limits;
    for reply in tools.take_replies() {
        let Some(&entity) = roster.entities.get(&reply.id) else {
            continue;
        };
        let Ok((mut turns, mut state, question, view)) = trajectories.get_mut(entity) else {
            continue;
        };
        let Some(turn) = turns.0.last_mut() else {
            continue;
        };
        let error = reply.result.as_ref().err().cloned();
        let text = match reply.result {
            Ok(text) => {
                let text = limit_text(&text, limits.tool_chars as usize, limits.tool_kept);
                let most = limits.tool_tokens as usize;
                limit_tokens(task.task.tokenizer(), &text, most, limits.tool_kept)
            }
            Err(error) => format!(" error: {error}"),
        };
        let (text, ids) = task.task.render_tool(&text);
        returned.write(ToolReturned {
            id: reply.id,
            turn: reply.turn,
            text: text.clone(),
        });
        turn.tool = Some(ToolResult { text, ids });
        let next = next_context(view.0, &question.0, &turns.0, &task.forced);
        let after = AfterTool {
            error: error.as_ref(),
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
mod tests {
    use super::*;
    use crate::experiment::KeptSide;

    const LIMITS: LimitSettings = LimitSettings {
        turns: 4,
        turn_tokens: 10,
        trajectory_tokens: 40,
        context_tokens: 100,
        tool_chars: 0,
        tool_tokens: 0,
        tool_kept: KeptSide::Head,
        tool_seconds: 1.0,
    };

    fn after() -> AfterTurn {
        AfterTurn {
            finish: Finish::Stop,
            broken: false,
            answered: false,
            left: Budget {
                turns: 1,
                tokens: 10,
            },
            context: 50,
        }
    }

    #[test]
    fn every_ending_of_a_turn_has_its_own_reason() {
        let ended = TurnState::Terminated;
        let cases = [
            (after(), TurnState::ProcessingTools),
            (
                AfterTurn {
                    answered: true,
                    ..after()
                },
                ended(StopReason::Answered),
            ),
            (
                AfterTurn {
                    broken: true,
                    ..after()
                },
                ended(StopReason::Malformed),
            ),
            (
                AfterTurn {
                    finish: Finish::Length,
                    broken: true,
                    ..after()
                },
                ended(StopReason::TokenLimit),
            ),
            (
                AfterTurn {
                    finish: Finish::Length,
                    context: 100,
                    ..after()
                },
                ended(StopReason::ContextFull),
            ),
            (
                AfterTurn {
                    left: Budget {
                        turns: 0,
                        tokens: 10,
                    },
                    ..after()
                },
                ended(StopReason::TurnLimit),
            ),
            (
                AfterTurn {
                    left: Budget {
                        turns: 1,
                        tokens: 0,
                    },
                    ..after()
                },
                ended(StopReason::TokenLimit),
            ),
            // An answer counts also on the last turn and with the last token.
            (
                AfterTurn {
                    answered: true,
                    left: Budget {
                        turns: 0,
                        tokens: 0,
                    },
                    ..after()
                },
                ended(StopReason::Answered),
            ),
        ];
        for (after, state) in cases {
            assert_eq!(state_after_turn(after, &LIMITS), state, "{after:?}");
        }
    }

    #[test]
    fn a_tool_result_that_leaves_no_room_ends_the_trajectory() {
        let state = |next_context| {
            state_after_tool(
                AfterTool {
                    error: None,
                    next_context,
                },
                &LIMITS,
            )
        };
        assert_eq!(state(99), TurnState::Pending);
        assert_eq!(state(100), TurnState::Terminated(StopReason::ResultTooLong));
        let slow = ToolError::TimedOut {
            name: "search".into(),
            seconds: "1".into(),
        };
        let failed = state_after_tool(
            AfterTool {
                error: Some(&slow),
                next_context: 1,
            },
            &LIMITS,
        );
        assert_eq!(failed, TurnState::Terminated(StopReason::TimedOut));
    }
}

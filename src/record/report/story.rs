//! A trajectory as the report tells it: its notes turn by turn, and its tokens with their credit.

use serde::Serialize;

use super::diff::{Piece, diff};
use super::numbers::{short, signed};
use super::tokens::{Scale, TokenRow, token_row};
use crate::record::{RunView, TokenBlock, TrajectoryView, names};
use crate::trajectory::{Action, Purpose, TrajectoryId};

/// A trajectory.
#[derive(Debug, Serialize)]
pub(super) struct Story {
    title: String,
    right: bool,
    question: String,
    gold: String,
    answer: Option<String>,
    facts: Vec<(&'static str, String)>,
    rounds: Vec<Round>,
    rows: Vec<TokenRow>,
    /// Turns as plain text, if tokens are not kept.
    turns: Vec<PlainTurn>,
    damage: Option<String>,
}

/// Notes that a turn wrote.
#[derive(Debug, Serialize)]
struct Round {
    turn: u32,
    pieces: Vec<Piece>,
    p_memory: Option<String>,
    p_full: Option<String>,
    reward: Option<String>,
    advantage: Option<String>,
    class: String,
}

#[derive(Debug, Serialize)]
struct PlainTurn {
    turn: u32,
    context_tokens: u32,
    text: String,
    broken: Option<&'static str>,
    tool: Option<String>,
}

/// Tells a trajectory. `blocks` are its token rows, or why they cannot be read.
pub(super) fn story(
    view: &RunView,
    trajectory: &TrajectoryView,
    blocks: &Result<Vec<TokenBlock>, String>,
    vocabulary: &[String],
    scale: Scale,
) -> Story {
    let id = trajectory.id;
    let question = view.question_of(id).cloned().unwrap_or_default();
    let outcome = trajectory.outcome.unwrap_or_default();
    let answer = trajectory
        .turns
        .iter()
        .rev()
        .find_map(|t| match &t.wrote.action {
            Some(Action::Answer(text)) => Some(text.trim().to_owned()),
            _ => None,
        });
    let reason = trajectory.reason.map_or("running", names::stop_reason);
    let mut facts = vec![
        ("ended", reason.replace('_', " ")),
        ("reward", short(outcome.reward.into())),
        ("F1", short(outcome.f1.into())),
        ("turns", trajectory.turns.len().to_string()),
        ("notes recall", short(outcome.notes_recall.into())),
        ("peak tokens", outcome.peak_tokens.to_string()),
    ];
    if let Some(advantage) = trajectory.outcome_advantage {
        facts.insert(2, ("outcome advantage", signed(advantage.into())));
        if trajectory.kl_advantage != 0.0 {
            facts.insert(3, ("KL part", signed(trajectory.kl_advantage.into())));
        }
    }
    let (rows, damage) = match blocks {
        Ok(blocks) => (blocks.as_slice(), None),
        Err(why) => (&[][..], Some(why.clone())),
    };
    let rows: Vec<TokenRow> = rows
        .iter()
        .map(|block| token_row(block, vocabulary, scale, rows.len() > 1))
        .collect();
    let turns = if rows.is_empty() {
        plain_turns(trajectory)
    } else {
        Vec::new()
    };
    Story {
        title: place_name(id),
        right: outcome.em > 0.5,
        question: question.text,
        gold: question.gold,
        answer,
        facts,
        rounds: rounds(trajectory, scale),
        rows,
        turns,
        damage,
    }
}

/// Where a trajectory stands in the run, for readers: ids count from 0, readers from 1.
pub(super) fn place_name(id: TrajectoryId) -> String {
    let (question, rollout) = (id.group + 1, id.member + 1);
    match id.purpose {
        Purpose::Train => format!(
            "Step {}, question {question}, rollout {rollout}",
            id.step + 1
        ),
        Purpose::Evaluate => format!("Evaluation after step {}, question {question}", id.step),
    }
}

fn rounds(trajectory: &TrajectoryView, scale: Scale) -> Vec<Round> {
    let mut before = "";
    let mut rounds = Vec::new();
    for turn in &trajectory.turns {
        let Some(notes) = turn.wrote.notes.as_deref() else {
            continue;
        };
        let number = turn.wrote.turn;
        let credit = trajectory.memory.iter().find(|m| m.turn == number);
        let advantage = credit.map(|c| c.advantage);
        rounds.push(Round {
            turn: number + 1,
            pieces: diff(before.trim(), notes.trim()),
            p_memory: credit.map(|c| short(c.p_memory.into())),
            p_full: credit.and_then(|c| c.p_full).map(|p| short(p.into())),
            reward: credit.map(|c| signed(c.reward.into())),
            advantage: advantage.map(|a| signed(a.into())),
            class: scale.class('v', advantage.unwrap_or(0.0)),
        });
        before = notes;
    }
    rounds
}

fn plain_turns(trajectory: &TrajectoryView) -> Vec<PlainTurn> {
    let plain = |turn: &crate::record::TurnView| PlainTurn {
        turn: turn.wrote.turn + 1,
        context_tokens: turn.wrote.context_tokens,
        text: turn.wrote.text.clone(),
        broken: turn.wrote.broken.map(names::format_rule),
        tool: turn.tool.as_ref().map(|(text, _)| text.clone()),
    };
    trajectory.turns.iter().map(plain).collect()
}

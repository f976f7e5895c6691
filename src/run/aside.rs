//! What a window may have tried beside a run, between two of its ticks: a trajectory that goes on from
//! a turn with other notes or another tool result, and notes scored as if they had been empty.
//!
//! Nothing of it is trained on or recorded, and the run itself is not changed by it: its outstanding
//! turns are waited for and kept, random numbers are addressed by trajectory, and a fork has an
//! address of its own.

mod fork;

use std::sync::Arc;

use bevy_ecs::prelude::*;

use crate::credit::memory::probability;
use crate::engine::{
    EngineInbox, EngineLink, EngineReply, EngineRequest, EngineSeconds, ScoreRequest, Weights,
};
use crate::experiment::Threshold;
use crate::rollout::{Roster, Temperature, View, notes_ids};
use crate::schedule::RunFailure;
use crate::tools::Interrupts;
use crate::trajectory::{
    Outcome, Question, QuestionData, StopReason, Tag, TokenId, TrajectoryId, Turn, Turns,
};

use fork::fork;

/// Something to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aside {
    /// Go on from a turn of a trajectory.
    Fork {
        /// Which trajectory.
        id: TrajectoryId,
        /// The last turn that is kept, from 0.
        turn: u32,
        /// What stands between its memory tags; none: as it was written.
        notes: Option<String>,
        /// What its tool answers; none: as it was.
        tool: Option<String>,
        /// Number of the fork: other numbers sample other futures.
        number: u32,
    },
    /// P(gold | notes) of a turn as it is, and with the notes emptied.
    WithoutNotes {
        /// Which trajectory.
        id: TrajectoryId,
        /// The turn, from 0.
        turn: u32,
    },
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub enum AsideAnswer {
    /// The turns after the fork.
    Forked {
        /// Their texts, each with the tool's answer.
        turns: Vec<String>,
        /// How it ended.
        reason: StopReason,
        /// What it was worth.
        outcome: Outcome,
    },
    /// P(gold | question, notes), and with empty notes.
    WithoutNotes {
        /// As it was written.
        with: f64,
        /// With nothing between the tags.
        without: f64,
    },
}

/// Tries it.
///
/// # Errors
/// Why it cannot be done, for the user.
pub(super) fn answer(world: &mut World, aside: &Aside) -> Result<AsideAnswer, String> {
    match aside {
        Aside::Fork {
            id,
            turn,
            notes,
            tool,
            number,
        } => fork(
            world,
            *id,
            *turn,
            (notes.as_deref(), tool.as_deref()),
            *number,
        ),
        Aside::WithoutNotes { id, turn } => without_notes(world, *id, *turn),
    }
}

/// What is read of a trajectory.
struct Original {
    question: Arc<QuestionData>,
    view: View,
    turns: Vec<Turn>,
    temperature: f32,
}

fn original(world: &World, id: TrajectoryId) -> Result<Original, String> {
    let gone = || {
        "the run has forgotten this rollout: only those of the phase that is under way can be gone on with".to_owned()
    };
    let entity = *world
        .resource::<Roster>()
        .entities
        .get(&id)
        .ok_or_else(gone)?;
    let question = world.get::<Question>(entity).ok_or_else(gone)?;
    let turns = world.get::<Turns>(entity).ok_or_else(gone)?;
    Ok(Original {
        question: Arc::clone(&question.0),
        view: *world.get::<View>(entity).ok_or_else(gone)?,
        turns: turns.0.clone(),
        temperature: world.get::<Temperature>(entity).map_or(1.0, |of| of.0),
    })
}

/// Sends a request and takes its replies, while the run's own replies wait where it looks for them.
fn ask(world: &mut World, request: EngineRequest) -> Result<Vec<EngineReply>, String> {
    world.resource_scope(|world, mut link: Mut<EngineLink>| {
        let waited = world.resource_scope(|world, mut inbox: Mut<EngineInbox>| {
            let mut seconds = world.resource_mut::<EngineSeconds>();
            link.wait_for_all(&mut inbox, &mut seconds, &Interrupts::default())
        });
        if let Err(error) = waited {
            // The run's own request failed: the run has to hear of it, and stops.
            let text = error.to_string();
            let mut failure = world.resource_mut::<RunFailure>();
            failure.0.get_or_insert_with(|| error.into());
            return Err(text);
        }
        link.ask_aside(request).map_err(|error| error.to_string())
    })
}

/// Scores the gold answer after the notes of a turn alone, and after none.
fn without_notes(world: &mut World, id: TrajectoryId, turn: u32) -> Result<AsideAnswer, String> {
    let Original {
        question, turns, ..
    } = original(world, id)?;
    let Some(of) = turns
        .get(turn as usize)
        .filter(|of| !notes_ids(of).is_empty())
    else {
        return Err(format!("turn {turn} has no closed notes"));
    };
    let span = of.spans.iter().find(|span| span.tag == Tag::Mem);
    let part = |from: u32, to: u32| of.ids.get(from as usize..to as usize).unwrap_or_default();
    let empty = span.map_or(Vec::new(), |span| {
        [
            part(span.start, span.inner_start),
            part(span.inner_end, span.end),
        ]
        .concat()
    });
    let branch = |notes: &[TokenId]| crate::engine::Branch {
        at: question.prompt_ids.len() as u32,
        ids: [notes, &question.answer_prefix_ids, &question.gold_ids].concat(),
        scored_from: (notes.len() + question.answer_prefix_ids.len()) as u32,
    };
    let request = ScoreRequest {
        id,
        trunk: question.prompt_ids.clone(),
        score_trunk: false,
        branches: vec![branch(notes_ids(of)), branch(&empty)],
        temperature: 1.0,
        under: Weights::Policy,
    };
    let replies = ask(world, EngineRequest::Score(vec![request]))?;
    let scored = replies.into_iter().find_map(|reply| match reply {
        EngineReply::Scored(scored) => scored.into_iter().next(),
        _ => None,
    });
    let scored = scored.ok_or("the engine gave no scores")?;
    let p = |at: usize| {
        let logprobs = scored
            .branches
            .get(at)
            .map(Vec::as_slice)
            .unwrap_or_default();
        probability(logprobs, Threshold::Off).map_err(|error| error.to_string())
    };
    Ok(AsideAnswer::WithoutNotes {
        with: p(0)?,
        without: p(1)?,
    })
}

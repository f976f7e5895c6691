//! The systems of the memory reward: scores are asked for once per step, one request a trajectory.

use std::collections::BTreeMap;
use std::sync::Arc;

use bevy_ecs::prelude::*;

use super::plan::{MemoryScorePlan, plan_memory_scores};
use crate::credit::CreditError;
use crate::credit::memory::placebo::shuffled;
use crate::engine::{EngineInbox, EngineLink, EngineRequest, ScoreRequest};
use crate::experiment::{Experiment, Placebo};
use crate::rollout::{Roster, RunSettings};
use crate::schedule::{Activity, Phase};
use crate::trajectory::{MemoryRewards, Question, QuestionData, TrajectoryId, Turns};

/// For every group of the step, the question whose gold answer its notes are paid for: its own, or
/// another's in the control arm.
fn golds(
    roster: &Roster,
    trajectories: &Query<(&Question, &Turns)>,
    experiment: &Experiment,
) -> BTreeMap<u32, Arc<QuestionData>> {
    let mut own = BTreeMap::new();
    let mut step = 0;
    for (id, &entity) in &roster.entities {
        if let Ok((question, _)) = trajectories.get(entity) {
            own.entry(id.group)
                .or_insert_with(|| Arc::clone(&question.0));
            step = id.step;
        }
    }
    if experiment.credit.placebo == Placebo::Off {
        return own;
    }
    let order = shuffled(own.len(), experiment.seed, step);
    let questions: Vec<&Arc<QuestionData>> = own.values().collect();
    own.keys()
        .zip(order)
        .filter_map(|(&group, of)| Some((group, Arc::clone(questions.get(of)?))))
        .collect()
}

/// The plan of one trajectory.
fn plan_of(
    id: TrajectoryId,
    entity: Entity,
    trajectories: &Query<(&Question, &Turns)>,
    golds: &BTreeMap<u32, Arc<QuestionData>>,
    experiment: &Experiment,
) -> Result<Option<MemoryScorePlan>, CreditError> {
    let (Ok((question, turns)), Some(gold)) = (trajectories.get(entity), golds.get(&id.group))
    else {
        return Ok(None);
    };
    plan_memory_scores(id, &question.0, gold, &turns.0, &experiment.credit)
}

/// At the start of the scoring phase, asks for the scores of every trajectory of the step.
pub fn ask_for_memory_scores(
    mut phase: ResMut<Phase>,
    roster: Res<Roster>,
    settings: Res<RunSettings>,
    mut link: ResMut<EngineLink>,
    trajectories: Query<(&Question, &Turns)>,
) -> Result {
    if !phase.begin(Activity::Scoring) {
        return Ok(());
    }
    let golds = golds(&roster, &trajectories, &settings.0);
    let mut requests: Vec<ScoreRequest> = Vec::new();
    for (&id, &entity) in &roster.entities {
        let plan = plan_of(id, entity, &trajectories, &golds, &settings.0)
            .with_context(|| format!("trajectory {id}"))?;
        requests.extend(plan.map(|plan| plan.request));
    }
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
) -> Result {
    let Some(all) = inbox.scored.take() else {
        return Ok(());
    };
    let golds = golds(&roster, &trajectories, &settings.0);
    for scored in all {
        let Some(&entity) = roster.entities.get(&scored.id) else {
            continue;
        };
        let rewards = plan_of(scored.id, entity, &trajectories, &golds, &settings.0)
            .and_then(|plan| {
                plan.map(|plan| plan.rewards(&scored, &settings.0.credit))
                    .transpose()
            })
            .with_context(|| format!("trajectory {}", scored.id))?;
        if let Some(rewards) = rewards {
            commands.entity(entity).insert(MemoryRewards(rewards));
        }
    }
    if phase.waits_in(Activity::Scoring) {
        phase.done = true;
    }
    Ok(())
}

//! The systems that have trajectories scored: P(gold | context) for the memory reward and log-probs
//! under the reference for the KL in the reward, asked for once per step.

use std::collections::BTreeMap;
use std::sync::Arc;

use bevy_ecs::prelude::*;

use super::plan::{MemoryScorePlan, plan_memory_scores};
use super::reference::{kl_by_turn, reference_requests};
use crate::credit::CreditError;
use crate::credit::memory::placebo::shuffled;
use crate::credit::memory::reward::reward_of;
use crate::engine::{EngineInbox, EngineLink, EngineRequest, ScoreRequest, Scored};
use crate::experiment::{Experiment, KlInReward, KlKind, Placebo};
use crate::rollout::{Roster, RunSettings, TaskHandle, View, training_rows};
use crate::schedule::{Activity, Phase};
use crate::trajectory::{
    AnswerScores, KlToReference, MemoryRewards, Question, QuestionData, Row, TrajectoryId, Turns,
};

/// What is read of a trajectory that is scored.
type Finished<'w> = (&'w Question, &'w View, &'w Turns);

/// How the KL in the reward is estimated; none if it costs nothing.
fn kl_kind(experiment: &Experiment) -> Option<KlKind> {
    match experiment.learner.kl_in_reward {
        KlInReward::Off => None,
        KlInReward::Fixed(cost) => Some(cost.kind),
        KlInReward::Adaptive(aim) => Some(aim.kind),
    }
}

/// For every group of the step, the question whose gold answer its notes are paid for: its own, or
/// another's in the control arm.
fn golds(
    roster: &Roster,
    trajectories: &Query<Finished<'static>>,
    experiment: &Experiment,
) -> BTreeMap<u32, Arc<QuestionData>> {
    let mut own = BTreeMap::new();
    let mut step = 0;
    for (id, &entity) in &roster.entities {
        if let Ok((question, ..)) = trajectories.get(entity) {
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

/// The plan of one trajectory's memory rewards; none if it gets none.
fn plan_of(
    id: TrajectoryId,
    entity: Entity,
    trajectories: &Query<Finished<'static>>,
    golds: &BTreeMap<u32, Arc<QuestionData>>,
    experiment: &Experiment,
) -> Result<Option<MemoryScorePlan>, CreditError> {
    let (Ok((question, _, turns)), Some(gold)) = (trajectories.get(entity), golds.get(&id.group))
    else {
        return Ok(None);
    };
    if !experiment.credit.memory {
        return Ok(None);
    }
    plan_memory_scores(id, &question.0, gold, &turns.0, &experiment.credit)
}

/// The rows of one trajectory that the reference scores.
fn rows_of(
    entity: Entity,
    trajectories: &Query<Finished<'static>>,
    task: &TaskHandle,
) -> Option<(Vec<Row>, usize)> {
    let (question, view, turns) = trajectories.get(entity).ok()?;
    let rows = training_rows(view.0, &question.0, &turns.0, &task.forced);
    Some((rows, turns.0.len()))
}

/// At the start of the scoring phase, asks for the scores of every trajectory of the step: those of
/// its memory first, then those of its rows under the reference.
pub fn ask_for_scores(
    mut phase: ResMut<Phase>,
    roster: Res<Roster>,
    settings: Res<RunSettings>,
    task: Res<TaskHandle>,
    mut link: ResMut<EngineLink>,
    trajectories: Query<Finished<'static>>,
) -> Result {
    if !phase.begin(Activity::Scoring) {
        return Ok(());
    }
    let experiment = &settings.0;
    let golds = golds(&roster, &trajectories, experiment);
    let mut requests: Vec<ScoreRequest> = Vec::new();
    for (&id, &entity) in &roster.entities {
        let plan = plan_of(id, entity, &trajectories, &golds, experiment)
            .with_context(|| format!("trajectory {id}"))?;
        requests.extend(plan.map(|plan| plan.request));
        if kl_kind(experiment).is_some()
            && let Some((rows, _)) = rows_of(entity, &trajectories, &task)
        {
            let temperature = experiment.rollout.temperature;
            requests.extend(reference_requests(id, &rows, temperature));
        }
    }
    link.send(EngineRequest::Score(requests))?;
    Ok(())
}

/// Takes the scores in and writes memory rewards and KLs.
pub fn take_scores_in(
    mut commands: Commands,
    mut phase: ResMut<Phase>,
    mut inbox: ResMut<EngineInbox>,
    roster: Res<Roster>,
    settings: Res<RunSettings>,
    task: Res<TaskHandle>,
    trajectories: Query<Finished<'static>>,
) -> Result {
    let Some(all) = inbox.scored.take() else {
        return Ok(());
    };
    let experiment = &settings.0;
    let golds = golds(&roster, &trajectories, experiment);
    let mut by_id: BTreeMap<TrajectoryId, Vec<Scored>> = BTreeMap::new();
    for scored in all {
        by_id.entry(scored.id).or_default().push(scored);
    }
    for (id, scored) in by_id {
        let Some(&entity) = roster.entities.get(&id) else {
            continue;
        };
        let plan = plan_of(id, entity, &trajectories, &golds, experiment)
            .with_context(|| format!("trajectory {id}"))?;
        // Replies come in the order of the requests.
        let (memory, rows) = scored.split_at(usize::from(plan.is_some()));
        if let (Some(plan), [scored]) = (plan, memory) {
            let scores = plan.scores(scored);
            let scores = scores.with_context(|| format!("trajectory {id}"))?;
            let rewards: Result<_, CreditError> = scores
                .iter()
                .map(|round| reward_of(round, &experiment.credit))
                .collect();
            let rewards = MemoryRewards(rewards.with_context(|| format!("trajectory {id}"))?);
            commands
                .entity(entity)
                .insert((rewards, AnswerScores(scores)));
        }
        if let Some(kind) = kl_kind(experiment)
            && let Some((of, turns)) = rows_of(entity, &trajectories, &task)
        {
            let scores: Vec<&Scored> = rows.iter().collect();
            let kl = kl_by_turn(kind, &of, &scores, turns)
                .with_context(|| format!("trajectory {id}"))?;
            commands.entity(entity).insert(KlToReference(kl));
        }
    }
    if phase.waits_in(Activity::Scoring) {
        phase.done = true;
    }
    Ok(())
}

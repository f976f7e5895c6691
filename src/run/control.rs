//! Which phase comes next.

use bevy_ecs::prelude::*;

use super::recorder::Recorder;
use crate::engine::{EngineLink, EngineRequest};
use crate::eval::evaluation_plan;
use crate::experiment::Experiment;
use crate::learner::stage_at;
use crate::rollout::{Backlog, Roster, RunSettings};
use crate::schedule::{Activity, Cursor, Phase, RunFailure, RunHalt};
use crate::tools::{Interrupts, ToolLink};
use crate::trajectory::{Group, TrajectoryId};

/// The cursor of the last checkpoint.
#[derive(Resource, Clone, Copy, Debug, Default)]
pub struct SavedAt(pub Option<Cursor>);

/// What comes after `done`, from the cursor alone: a resumed run and an uninterrupted one decide
/// alike.
///
/// Cold start, then the start of RL, then per step: rollouts, scores, update; a checkpoint comes
/// before the evaluation of the same step, so that a kill during an evaluation costs only that.
#[must_use]
pub fn next_activity(
    done: Activity,
    cursor: &Cursor,
    saved: Option<Cursor>,
    experiment: &Experiment,
) -> Activity {
    if experiment.evaluation.only {
        let measured = cursor.evaluated == Some(cursor.step);
        return if measured || done == Activity::Evaluating {
            Activity::Finished
        } else {
            Activity::Evaluating
        };
    }
    match done {
        Activity::RollingOut if experiment.scores() => return Activity::Scoring,
        Activity::RollingOut | Activity::Scoring => return Activity::Learning,
        Activity::Finishing | Activity::Finished => return Activity::Finished,
        _ => {}
    }
    if checkpoint_due(cursor, saved, experiment) {
        return Activity::Saving;
    }
    if stage_at(&experiment.cold_start, cursor.cold_start_step).is_some() {
        return Activity::ColdStart;
    }
    if !cursor.rl_begun {
        return Activity::BeginRl;
    }
    if cursor.evaluated != Some(cursor.step) && evaluation_plan(experiment, cursor.step).is_some() {
        return Activity::Evaluating;
    }
    if cursor.step < experiment.learner.steps {
        return Activity::RollingOut;
    }
    Activity::Finishing
}

fn checkpoint_due(cursor: &Cursor, saved: Option<Cursor>, experiment: &Experiment) -> bool {
    let record = &experiment.record;
    let behind = |now: u32, then: fn(&Cursor) -> u32, every: u32| {
        every > 0 && now.is_multiple_of(every) && now > saved.as_ref().map_or(0, then)
    };
    behind(cursor.cold_start_step, |saved| saved.cold_start_step, record.cold_start_checkpoint_every)
        && !cursor.rl_begun
        || behind(cursor.step, |saved| saved.step, record.checkpoint_every)
        // The start of RL, and the end of the last step.
        || cursor.rl_begun && saved.is_none_or(|saved| !saved.rl_begun)
        || cursor.rl_begun && cursor.step == experiment.learner.steps && saved.is_none_or(|saved| saved.step < cursor.step)
}

/// Moves the run on when a phase is done, and stops it at the next safe point when asked to.
///
/// Rollouts and evaluations are dropped at once (their step has not changed the weights); an update
/// that is under way is waited for.
pub fn conduct(
    mut commands: Commands,
    mut phase: ResMut<Phase>,
    cursor: Res<Cursor>,
    saved: Res<SavedAt>,
    settings: Res<RunSettings>,
    interrupts: Res<Interrupts>,
    halt: Res<RunHalt>,
    mut failure: ResMut<RunFailure>,
    recorder: Res<Recorder>,
    mut link: ResMut<EngineLink>,
    mut tools: ResMut<ToolLink>,
    mut backlog: ResMut<Backlog>,
    mut roster: ResMut<Roster>,
    groups: Query<Entity, With<Group>>,
) {
    let droppable = matches!(
        phase.activity,
        Activity::RollingOut | Activity::Evaluating | Activity::Scoring | Activity::Starting
    );
    let stopping = interrupts.requested();
    if stopping && droppable {
        phase.done = true;
    }
    if phase.activity == Activity::Starting {
        phase.done = true;
    }
    if !phase.done {
        return;
    }
    if let Some(why) = &halt.0 {
        if saved.0 != Some(*cursor) {
            *phase = Phase::new(Activity::Saving);
            return;
        }
        let checkpoint = recorder.folder.latest_checkpoint().unwrap_or_default();
        failure.0.get_or_insert_with(|| {
            BevyError::from(format!(
                "{why}. The weights are those of the last step that was made, saved in {checkpoint:?}: lower \
                 learner.lr or look for what is not finite, and resume from there"
            ))
        });
        return;
    }
    let mut next = next_activity(phase.activity, &cursor, saved.0, &settings.0);
    if stopping && phase.activity != Activity::Finished {
        // A run that only measures has nothing to save.
        let nothing_new = saved.0 == Some(*cursor) || settings.0.evaluation.only;
        next = if nothing_new || phase.activity == Activity::Starting {
            Activity::Finished
        } else {
            Activity::Saving
        };
    }
    let leaves_rollouts = !matches!(next, Activity::Scoring | Activity::Learning);
    if leaves_rollouts && !roster.entities.is_empty() {
        // The trajectories have served: forget them here and in the engine's cache.
        let ids: Vec<TrajectoryId> = roster.entities.keys().copied().collect();
        link.send(EngineRequest::Release(ids)).ok();
        tools.cancel();
        for entity in groups.iter().chain(roster.entities.values().copied()) {
            commands.entity(entity).try_despawn();
        }
        roster.entities.clear();
        roster.alive = 0;
        backlog.0.clear();
    }
    *phase = Phase::new(next);
}

#[cfg(test)]
mod tests {
    use super::*;
    use Activity::{
        BeginRl, Evaluating, Finished, Finishing, Learning, RollingOut, Saving, Scoring, Starting,
    };

    #[test]
    fn a_run_that_only_measures_measures_once_and_saves_nothing() {
        let mut experiment = Experiment::default();
        experiment.evaluation.only = true;
        let cursor = Cursor::default();
        let next = |done| next_activity(done, &cursor, None, &experiment);
        assert_eq!(next(Starting), Evaluating);
        assert_eq!(next(Evaluating), Finished);
    }

    #[test]
    fn a_run_without_cold_start_begins_rl_evaluates_and_rolls_out() {
        let mut experiment = Experiment::default();
        experiment.cold_start.stages.clear();
        experiment.learner.steps = 2;
        experiment.record.checkpoint_every = 1;
        let mut cursor = Cursor::default();
        let mut saved = None;
        let mut done = Starting;
        let mut seen = Vec::new();
        while done != Finished {
            done = next_activity(done, &cursor, saved, &experiment);
            match done {
                BeginRl => cursor.rl_begun = true,
                Saving => saved = Some(cursor),
                Evaluating => cursor.evaluated = Some(cursor.step),
                Learning => cursor.step += 1,
                _ => {}
            }
            seen.push(done);
        }
        let step = [RollingOut, Scoring, Learning, Saving];
        let expected = [
            &[BeginRl, Saving, Evaluating][..],
            &step,
            &step,
            &[Evaluating, Finishing, Finished],
        ]
        .concat();
        assert_eq!(seen, expected);
    }
}

//! Shows progress: bars on a terminal, plain lines elsewhere.

use bevy_ecs::prelude::*;

use crate::eval::Evaluation;
use crate::experiment::ContextKind;
use crate::record::{PlainLines, Progress};
use crate::rollout::{Backlog, Roster, RunSettings};
use crate::schedule::{Activity, Cursor, Phase};

/// What the recorder has to tell the screen. Taken out every tick.
#[derive(Resource, Clone, Debug, Default)]
pub struct News {
    /// The numbers that matter of the last cold start or RL step.
    pub step: String,
    /// Lines of an evaluation that has just ended.
    pub evaluation: Vec<Evaluation>,
}

/// The bar that is shown, if any. Inserted by the program; tests have none.
#[derive(Default)]
pub struct Screen {
    shown: Option<(Stage, Progress)>,
}

/// What a bar counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    ColdStart,
    Training,
    Evaluation(u32),
}

/// Moves the bar on, and says how an evaluation went.
pub fn publish_progress(
    screen: Option<NonSendMut<Screen>>,
    mut news: ResMut<News>,
    phase: Res<Phase>,
    cursor: Res<Cursor>,
    settings: Res<RunSettings>,
    roster: Res<Roster>,
    backlog: Res<Backlog>,
) {
    let Some(mut screen) = screen else { return };
    let (stage, done, total) = match phase.activity {
        Activity::ColdStart => {
            let total = settings
                .0
                .cold_start
                .stages
                .iter()
                .map(|stage| u64::from(stage.steps))
                .sum();
            (Stage::ColdStart, u64::from(cursor.cold_start_step), total)
        }
        Activity::RollingOut | Activity::Scoring | Activity::Learning => (
            Stage::Training,
            u64::from(cursor.step),
            u64::from(settings.0.learner.steps),
        ),
        Activity::Evaluating => {
            let all = (roster.entities.len() + backlog.0.len()) as u64;
            (
                Stage::Evaluation(cursor.step),
                (roster.entities.len() - roster.alive) as u64,
                all,
            )
        }
        _ => return,
    };
    let evaluation = std::mem::take(&mut news.evaluation);
    if !evaluation.is_empty()
        && let Some((_, progress)) = &mut screen.shown
    {
        progress.note(&evaluation_line(&evaluation));
    }
    if screen
        .shown
        .as_ref()
        .is_none_or(|(shown, _)| *shown != stage)
    {
        if let Some((_, old)) = screen.shown.take() {
            old.finish();
        }
        let (label, plain) = match stage {
            Stage::ColdStart => ("cold start".to_owned(), PlainLines::Sparse),
            Stage::Training => ("training".to_owned(), PlainLines::Each),
            Stage::Evaluation(step) => {
                (format!("evaluation after step {step}"), PlainLines::Sparse)
            }
        };
        screen.shown = Some((stage, Progress::new(&label, total, done, plain)));
        return;
    }
    let counted = matches!(
        phase.activity,
        Activity::ColdStart | Activity::Learning | Activity::Evaluating
    );
    if counted
        && phase.done
        && let Some((_, progress)) = &mut screen.shown
    {
        progress.advance(done, &std::mem::take(&mut news.step));
    }
}

/// `after 6 steps, EM deployed/full: 3 objectives .77/.80`
fn evaluation_line(lines: &[Evaluation]) -> String {
    let em = |objectives, context| {
        let line = lines
            .iter()
            .find(|line| line.objectives == objectives && line.context == context);
        line.map_or("-".to_owned(), |line| format!("{:.2}", line.em))
    };
    let measured = |context: &ContextKind| lines.iter().any(|line| line.context == *context);
    let forgetful = lines
        .iter()
        .map(|line| line.context)
        .filter(|context| *context != ContextKind::Full);
    let mut contexts: Vec<ContextKind> = forgetful.collect();
    contexts.sort_unstable();
    contexts.dedup();
    contexts.extend([ContextKind::Full].into_iter().filter(measured));
    let mut objectives: Vec<u32> = lines.iter().map(|line| line.objectives).collect();
    objectives.dedup();
    objectives.sort_unstable();
    objectives.dedup();
    let table: Vec<String> = objectives
        .iter()
        .map(|&n| {
            let of: Vec<String> = contexts.iter().map(|&context| em(n, context)).collect();
            format!("{n} objectives {}", of.join("/"))
        })
        .collect();
    let step = lines.first().map_or(0, |line| line.step);
    let names: Vec<&str> = contexts.iter().map(|context| context.name()).collect();
    format!(
        "after {step} steps, EM {}: {}",
        names.join("/"),
        table.join(", ")
    )
}

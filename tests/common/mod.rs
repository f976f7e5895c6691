//! Players for the scripted engine, and a run of the whole app with one of them.

#![allow(clippy::unwrap_used, clippy::expect_used, dead_code)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use palimpsest::engine::scripted::ScriptedEngine;
use palimpsest::engine::{EngineLink, GenerateRequest};
use palimpsest::eval::Evaluation;
use palimpsest::experiment::{ContextKind, Experiment};
use palimpsest::random::sampling_uniform;
use palimpsest::record::{Event, RunStatus, read_events};
use palimpsest::run::{Origin, Started, build_app, plugins, run_to_end};
use palimpsest::task::Task;
use palimpsest::tools::Interrupts;
use palimpsest::trajectory::{TokenId, TrajectoryId};

/// How a scripted policy plays the lookup task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Player {
    /// Searches in order, writes every fact down, answers from what it sees.
    Perfect,
    /// Searches in order, writes nothing down.
    Forgetful,
    /// Keeps a fact with a chance of a half, and sometimes breaks the format.
    Careless,
}

/// A run that is over.
pub struct Done {
    /// How it ended.
    pub status: RunStatus,
    /// Every evaluation line.
    pub evaluations: Vec<Evaluation>,
    /// Text of every turn by (trajectory, turn).
    pub turns: BTreeMap<(TrajectoryId, u32), String>,
}

/// Two RL steps of two groups of three, evaluated on two questions per line.
pub fn small_experiment() -> Experiment {
    let mut experiment = Experiment {
        name: "small".into(),
        ..Experiment::default()
    };
    experiment.cold_start.stages.clear();
    experiment.rollout.groups = 2;
    experiment.rollout.group_size = 3;
    experiment.learner.steps = 2;
    experiment.record.checkpoint_every = 1;
    experiment.record.tensorboard = false;
    experiment.evaluation.every = 0;
    experiment.evaluation.questions = 2;
    experiment.evaluation.objectives = vec![2, 3];
    experiment.evaluation.contexts = vec![ContextKind::Full, ContextKind::Deployed];
    experiment
}

/// Runs the whole app with a player; plugins registered in reverse if `shuffled`.
pub fn run(folder: &Path, experiment: Experiment, player: Player, shuffled: bool) -> Done {
    let task: Arc<dyn Task> = Arc::from(
        palimpsest::task::load(
            &experiment.task,
            None,
            &palimpsest::retrieval::no_dense,
            &mut |_, _, _| {},
        )
        .unwrap(),
    );
    let text = experiment.to_ron();
    let started = Started::new(
        &Origin::At(folder.to_path_buf()),
        experiment,
        &text,
        Arc::clone(&task),
        &[],
    )
    .unwrap();
    let link = EngineLink::start(move || {
        Ok(ScriptedEngine::new(Arc::new(move |request| {
            play(task.as_ref(), player, request)
        })))
    })
    .unwrap();
    let mut plugins = plugins();
    if shuffled {
        plugins.reverse();
    }
    let mut app = build_app(started.launch, link, Interrupts::default(), plugins).unwrap();
    let status = run_to_end(&mut app).unwrap();
    drop(app);
    let (events, notices) = read_events(folder).unwrap();
    assert!(notices.is_empty(), "{notices:?}");
    let mut done = Done {
        status,
        evaluations: Vec::new(),
        turns: BTreeMap::new(),
    };
    for event in events {
        match event.event {
            Event::Evaluated(line) => done.evaluations.push(*line),
            Event::TurnGenerated(turn) => {
                done.turns.insert((turn.id, turn.turn), turn.text);
            }
            _ => {}
        }
    }
    done
}

/// Facts that stand in a text as `The KEY is VALUE.` or `KEY = VALUE;`.
fn facts_in(text: &str, keys: &[String]) -> BTreeMap<usize, String> {
    let mut found = BTreeMap::new();
    for (number, key) in keys.iter().enumerate() {
        let patterns = [(format!("The {key} is "), '.'), (format!(" {key} = "), ';')];
        for (pattern, end) in &patterns {
            if let Some(at) = text.find(pattern.as_str()) {
                let rest = &text[at + pattern.len()..];
                found.insert(
                    number,
                    rest[..rest.find(*end).unwrap_or(rest.len())].to_owned(),
                );
            }
        }
    }
    found
}

/// One turn of a player, from the context alone.
pub fn play(task: &dyn Task, player: Player, request: &GenerateRequest) -> Vec<TokenId> {
    let text = task.tokenizer().decode(&request.context);
    let question = &text[text.find("<q>").unwrap() + 3..text.find("</q>").unwrap()];
    let keys: Vec<String> = question
        .split(';')
        .map(|key| key.trim().to_owned())
        .collect();
    let seen = facts_in(&text[text.find("</q>").unwrap()..], &keys);
    let chance =
        |number: u32| sampling_uniform(request.sampling.seed, request.id, request.turn, number);
    let kept = |number: &usize| match player {
        Player::Perfect => true,
        Player::Forgetful => false,
        Player::Careless => chance(*number as u32) < 0.5,
    };
    let note = |(number, value): (&usize, &String)| format!(" {} = {value};", keys[*number]);
    let notes: String = seen
        .iter()
        .filter(|(number, _)| kept(number))
        .map(note)
        .collect();
    let everything: String = seen.iter().map(note).collect();
    let opening = if text.ends_with("<mem>") { "" } else { "<mem>" };
    let turn = request.turn as usize;
    let action = if player == Player::Careless && chance(99) < 0.1 {
        "<think> lost".to_owned()
    } else if turn < keys.len() {
        format!("<think> next</think><search> {}</search>", keys[turn])
    } else {
        format!("<think> done</think><answer>{everything}</answer>")
    };
    task.tokenizer()
        .encode(&format!("{opening}{notes}</mem>{action}"))
}

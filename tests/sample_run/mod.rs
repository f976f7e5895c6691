//! A made-up run with everything that a record can hold; no engine is needed.
#![allow(clippy::unwrap_used, reason = "a test that cannot write should stop")]
#![allow(dead_code, reason = "every test file uses a part of it")]

use std::path::Path;

use palimpsest::credit::signal::{DeadGroup, MemorySilence, OutcomeSilence};
use palimpsest::engine::MiniBatchReport;
use palimpsest::experiment::ContextKind;
use palimpsest::record::{
    Evaluation, Event, MemoryCredit, Metrics, RecordWriter, RunFolder, RunStart, RunStatus,
    TokenBlock, TurnEvent,
};
use palimpsest::trajectory::{Action, FormatRule, Outcome, Purpose, StopReason, TrajectoryId};

pub const EXPERIMENT: &str =
    "(\n    name: \"quickstart\",\n    seed: 7,\n    // <b>not bold</b>\n)\n";

/// Words as tokens, in the order in which they were first met.
#[derive(Default)]
pub struct Words(pub Vec<String>);

impl Words {
    pub fn ids(&mut self, text: &str) -> Vec<u32> {
        let mut ids = Vec::new();
        for word in text.split_inclusive([' ', '\n', '>']) {
            let known = self.0.iter().position(|w| w == word);
            let id = known.unwrap_or_else(|| {
                self.0.push(word.to_owned());
                self.0.len() - 1
            });
            ids.push(id as u32);
        }
        ids
    }
}

/// The id of a rollout in RL step `step`, counted from 1; ids count from 0.
pub fn id(step: u32, group: u32, member: u32) -> TrajectoryId {
    TrajectoryId {
        step: step - 1,
        purpose: Purpose::Train,
        group,
        member,
    }
}

pub fn evaluation(step: u32, context: ContextKind, objectives: u32, em: f64) -> Evaluation {
    Evaluation {
        step,
        context,
        objectives,
        n: 100,
        em,
        f1: em + 0.08,
        notes_recall: Some(0.5 + em / 2.0),
        notes_tokens: Some(24.0 + 9.0 * em),
        peak_tokens: 120.0 + 60.0 * f64::from(objectives),
        total_tokens: 300.0 * f64::from(objectives) - 40.0 * em,
        ..Evaluation::default()
    }
}

pub fn start<'a>(vocabulary: &'a [String]) -> RunStart<'a> {
    RunStart {
        name: "quickstart",
        seed: 7,
        experiment: EXPERIMENT,
        vocabulary,
        tensorboard: true,
    }
}

const QUESTION: &str =
    "Answer in order: capital of Peru? number of electrons of carbon? Keep notes <short> & true.\n";

/// (notes, rest of the turn, tool result) of a rollout that is right, and of one that is wrong.
type Script = [(&'static str, &'static str, &'static str); 3];
const RIGHT: Script = [
    (
        "nothing yet",
        "<think> find the capital</think><search>capital of Peru</search>",
        "<tool>Lima is the capital of Peru. Cusco was it once.</tool>\n",
    ),
    (
        "capital of Peru: Lima",
        "<think> now carbon</think><search>electrons of carbon</search>",
        "<tool>Carbon has 6 electrons.</tool>\n",
    ),
    (
        "capital of Peru: Lima electrons of carbon: 6",
        "<think> done</think><answer>Lima; 6</answer>",
        "",
    ),
];
const WRONG: Script = [
    RIGHT[0],
    (
        "capital of Peru: Cusco once",
        "<think> now carbon</think><search>electrons of carbon</search>",
        "<tool>Carbon has 6 electrons.</tool>\n",
    ),
    (
        "electrons of carbon: 6",
        "<think> done</think><answer>Cusco; 6</answer>",
        "",
    ),
];

/// Writes a trajectory with its tokens. `gain` scales its credit.
pub fn write_trajectory(
    writer: &mut RecordWriter,
    words: &mut Words,
    id: TrajectoryId,
    right: bool,
    gain: f32,
) {
    let script = if right { RIGHT } else { WRONG };
    let outcome = if right { gain } else { -gain };
    let rewards = if right {
        [0.0, 0.4, 0.55]
    } else {
        [0.0, -0.1, -0.5]
    };
    let mut block = TokenBlock {
        id,
        ..TokenBlock::default()
    };
    let mut put = |words: &mut Words, text: &str, turn: u32, mask: bool, memory: f32| {
        for token in words.ids(text) {
            let weight = if mask { outcome + memory } else { 0.0 };
            block.ids.push(token);
            block.turn.push(turn);
            block.mask.push(mask);
            block.sampled.push(if mask { -0.3 } else { 0.0 });
            block.learner.push(if mask { -0.31 } else { 0.0 });
            block.outcome.push(if mask { outcome } else { 0.0 });
            block.memory.push(memory);
            block.kl.push(0.0);
            block.entropy.push(if mask { 0.6 } else { 0.0 });
            block.weight.push(weight);
        }
        words.ids(text).len() as u32
    };
    let mut context = put(words, QUESTION, 0, false, 0.0);
    for (turn, (notes, rest, tool)) in (0..).zip(script) {
        let advantage = gain * rewards[turn as usize];
        let written = put(words, &format!("<mem>{notes}</mem>"), turn, true, advantage)
            + put(words, rest, turn, true, 0.0);
        let action = if tool.is_empty() {
            Action::Answer(if right { "Lima; 6" } else { "Cusco; 6" }.into())
        } else {
            Action::Search("capital of Peru".into())
        };
        let wrote = TurnEvent {
            id,
            turn,
            text: format!("<mem>{notes}</mem>{rest}"),
            tokens: written,
            context_tokens: context,
            notes: Some(notes.into()),
            action: Some(action),
            broken: (!right && turn == 2).then_some(FormatRule::NothingBetween),
        };
        writer.append(&Event::TurnGenerated(wrote)).unwrap();
        context += written;
        if !tool.is_empty() {
            let tokens = put(words, tool, turn, false, 0.0);
            context += tokens;
            let returned = Event::ToolReturned {
                id,
                turn,
                text: tool.into(),
                tokens,
                failure: None,
            };
            writer.append(&returned).unwrap();
        }
    }
    let terminated = Event::TrajectoryTerminated {
        id,
        reason: StopReason::Answered,
        outcome: Outcome {
            reward: f32::from(u8::from(right)),
            em: f32::from(u8::from(right)),
            f1: if right { 1.0 } else { 0.5 },
            valid: right,
            notes_recall: if right { 1.0 } else { 0.5 },
            notes_tokens: 9.0,
            peak_tokens: context,
            total_tokens: context * 2,
            ..Outcome::default()
        },
    };
    writer.append(&terminated).unwrap();
    let at = writer.append_tokens(&block).unwrap();
    let memory = (1..3)
        .map(|turn: u32| MemoryCredit {
            turn,
            p_memory: 0.5 + rewards[turn as usize] / 2.0,
            p_full: Some(0.8),
            p_previous: None,
            p_empty: None,
            reward: rewards[turn as usize],
            advantage: gain * rewards[turn as usize],
        })
        .collect();
    let credit = Event::CreditAssigned {
        id,
        outcome,
        kl: 0.0,
        memory,
        scores: Vec::new(),
        tokens: vec![at],
    };
    writer.append(&credit).unwrap();
}

/// Writes the cold start: `steps` steps and the evaluation after it.
pub fn write_cold_start(writer: &mut RecordWriter, steps: u32) {
    for step in 1..=steps {
        let t = f64::from(step) / 40.0;
        let parts = ["full", "deployed", "probe"]
            .into_iter()
            .zip([1.0, 1.3, 1.8])
            .map(|(name, k)| {
                let loss = 3.5 * (-t * k).exp() + 0.05 * k;
                (name.to_owned(), loss, (-loss).exp())
            })
            .collect();
        let event = Event::ColdStartStep {
            step,
            parts,
            aid_loss: 2.0 * (-t).exp(),
            lr: 0.02,
        };
        writer.append(&event).unwrap();
        let mut metrics = Metrics::default();
        metrics.set("cold_start/full/loss", 3.5 * (-t).exp());
        writer.append_metrics(step, &metrics).unwrap();
    }
    for (objectives, em) in [(2, 0.31), (4, 0.08)] {
        for (context, bonus) in [(ContextKind::Deployed, 0.0), (ContextKind::Full, 0.12)] {
            let row = evaluation(0, context, objectives, em + bonus);
            writer.append(&Event::Evaluated(Box::new(row))).unwrap();
        }
    }
}

/// Writes one RL step with two trajectories of one group.
pub fn write_step(writer: &mut RecordWriter, words: &mut Words, step: u32) {
    writer.append(&Event::StepBegan { step }).unwrap();
    let question = Event::QuestionDrawn {
        step: step - 1,
        purpose: Purpose::Train,
        group: 0,
        text: QUESTION.into(),
        objectives: 2,
        gold: "Lima; 6".into(),
    };
    writer.append(&question).unwrap();
    write_trajectory(writer, words, id(step, 0, 0), true, 0.6);
    write_trajectory(writer, words, id(step, 0, 1), false, 0.9);
    let report = MiniBatchReport {
        tokens: 64,
        entropy: 0.9 - 0.03 * f64::from(step),
        grad_norm: 0.4 + 0.2 * f64::from(step % 3),
        ..MiniBatchReport::default()
    };
    let mut metrics = Metrics::default();
    let t = f64::from(step) / 10.0;
    metrics.set_update(&[report]);
    metrics.set_spread("critic/score", &[0.3 + 0.4 * t, 0.5 + 0.3 * t]);
    metrics.set_mean("memory/p_memory", &[0.35 + 0.4 * t]);
    metrics.set_mean("memory/p_full", &[0.7 + 0.15 * t]);
    metrics.set_mean("memory/reward", &[0.05 + 0.2 * t]);
    metrics.set("groups/without_spread", 0.4 - 0.2 * t);
    metrics.set_stops(&[StopReason::Answered, StopReason::TurnLimit]);
    metrics.set_broken_rules(&[None, Some(FormatRule::NothingBetween)]);
    metrics.set("timing_s/step", 2.0);
    writer.append_metrics(step, &metrics).unwrap();
    let learned = Event::Learned {
        step,
        mini_batches: vec![report],
    };
    if step.is_multiple_of(2) {
        let dead = DeadGroup {
            group: 1,
            outcome: OutcomeSilence::AllWrong,
            memory: MemorySilence::AllEqual,
        };
        let silent = Event::SignalMissing {
            step,
            groups: 2,
            dead: vec![dead],
        };
        writer.append(&silent).unwrap();
    }
    writer.append(&learned).unwrap();
}

/// Writes a whole run under `runs`.
pub fn write_run(runs: &Path, steps: u32) -> RunFolder {
    let mut words = Words::default();
    for text in RIGHT.iter().chain(&WRONG) {
        words.ids(&format!(
            "{QUESTION}<mem>{}</mem>{}{}",
            text.0, text.1, text.2
        ));
        words.ids(text.1);
        words.ids(text.2);
        words.ids(&format!("<mem>{}</mem>", text.0));
    }
    let folder = RunFolder::create(runs, "quickstart").unwrap();
    let mut writer = RecordWriter::create(&folder, &start(&words.0)).unwrap();
    write_cold_start(&mut writer, 120);
    for step in 1..=steps {
        write_step(&mut writer, &mut words, step);
        if step % 2 == 0 || step == steps {
            let em = 0.31 + 0.28 * f64::from(step) / f64::from(steps);
            for (context, bonus) in [(ContextKind::Deployed, 0.0), (ContextKind::Full, 0.1)] {
                let row = evaluation(step, context, 2, em + bonus);
                writer.append(&Event::Evaluated(Box::new(row))).unwrap();
                if step == steps {
                    let row = evaluation(step, context, 4, em - 0.35 + bonus);
                    writer.append(&Event::Evaluated(Box::new(row))).unwrap();
                }
            }
        }
    }
    let trouble = Event::TroubleFound {
        id: Some(id(1, 0, 1)),
        what: "the tool <search> found nothing".into(),
    };
    writer.append(&trouble).unwrap();
    let status = RunStatus::Finished;
    writer.append(&Event::RunEnded { status }).unwrap();
    writer.sync().unwrap();
    folder
}

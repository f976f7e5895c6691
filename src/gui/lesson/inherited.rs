//! Station 4: credit for inherited notes, and the difference reward.

use eframe::egui::{Grid, Slider, Ui};

use super::bench::Bench;
use super::panel::{Said, Scene};
use super::station::Question;
use crate::experiment::{CreditSettings, First, Target};
use crate::gui::GuiError;
use crate::gui::words::signed;

/// The settings of the station: notes against what the target says, the first notes paid too, so that
/// differences telescope.
fn settings(bench: &Bench, target: Target) -> CreditSettings {
    CreditSettings {
        memory: true,
        target,
        first: First::MinusEmpty,
        ..bench.settings
    }
}

/// The round of the shown rollout whose notes are worth most like those before them: (turn, P before,
/// P now).
fn copied(bench: &Bench) -> Option<(u32, f32, f32)> {
    let made = bench.under(&settings(bench, Target::Absolute)).ok()?;
    let rounds = &bench.of(&made).get(bench.member)?.memory;
    let pairs = rounds
        .array_windows()
        .map(|[before, now]| (now.turn, before.p_memory, now.p_memory));
    pairs.max_by(|a, b| {
        // High and unchanged: most of it was inherited.
        let worth = |of: &(u32, f32, f32)| of.1.min(of.2) - (of.2 - of.1).abs();
        worth(a).total_cmp(&worth(b))
    })
}

/// Whether what was inherited is paid.
pub fn question(bench: &Bench) -> Option<Question> {
    let (turn, before, now) = copied(bench)?;
    let gain = now - before;
    Some(Question {
        text: format!(
            "Before turn {turn} the right answer had probability {before:.2} from the notes, after it {now:.2}. Paid by P(answer | notes), the turn earns {now:.2}. How much of that did the turn itself bring?"
        ),
        options: vec![
            format!("all of it, {now:.2}"),
            format!("the difference, {}", signed(gain, 2)),
            "nothing can be said".into(),
        ],
        right: 1,
        because: format!(
            "{before:.2} stood in the notes it was handed. What this turn changed is {}: the difference reward pays that, and over all turns the differences add up to the last value.",
            signed(gain, 2)
        ),
    })
}

/// Draws the station.
pub fn show(ui: &mut Ui, bench: &mut Bench, scene: &mut Scene) -> Result<Said, GuiError> {
    bench.settings.memory = true;
    bench.settings.first = First::MinusEmpty;
    ui.horizontal_wrapped(|ui| {
        for (target, name) in [
            (Target::Absolute, "pay P(answer | notes)"),
            (
                Target::MinusPrevious,
                "pay the difference to the notes before",
            ),
            (Target::MinusFull, "pay the difference to the full history"),
            (Target::MinusEmpty, "pay the difference to empty notes"),
        ] {
            ui.radio_value(&mut bench.settings.target, target, name);
        }
        ui.add(Slider::new(&mut bench.settings.discount, 0.0..=1.0).text("discount over turns"));
    });
    scene.members(ui, bench);
    let made = bench.under(&bench.settings)?;
    let absolute = bench.under(&settings(bench, Target::Absolute))?;
    let Some(result) = bench.of(&made).get(bench.member) else {
        return Ok(Said(String::new()));
    };
    let values = bench
        .of(&absolute)
        .get(bench.member)
        .map(|of| of.memory.clone())
        .unwrap_or_default();
    scene.csv = String::from("turn,p_notes,reward,advantage\n");
    Grid::new("inherited")
        .num_columns(4)
        .striped(true)
        .show(ui, |ui| {
            for head in ["notes of turn", "P(answer | notes)", "reward", "advantage"] {
                ui.strong(head);
            }
            ui.end_row();
            for (reward, value) in result.memory.iter().zip(&values) {
                let part = result
                    .advantages
                    .memory
                    .iter()
                    .find(|(turn, _)| *turn == reward.turn);
                let part = part.map_or(0.0, |(_, part)| *part);
                ui.label(reward.turn.to_string());
                ui.label(format!("{:.3}", value.p_memory));
                ui.label(signed(reward.reward, 3));
                ui.label(signed(part, 3));
                ui.end_row();
                scene.csv.push_str(&format!(
                    "{},{},{},{part}\n",
                    reward.turn, value.p_memory, reward.reward
                ));
            }
        });
    scene.strip(ui, "What each turn's notes are paid", bench.document(&made));
    let sum: f32 = result.memory.iter().map(|of| of.reward).sum();
    let last = values.last().map_or(0.0, |of| of.p_memory);
    Ok(Said(match bench.settings.target {
        Target::MinusPrevious => format!(
            "The rewards add up to {}: what the last notes know ({last:.2}) beyond empty notes. Nothing is paid twice.",
            signed(sum, 2)
        ),
        Target::Absolute => format!(
            "The rewards add up to {sum:.2}, though the last notes know only {last:.2}: what is carried along is paid in every turn."
        ),
        _ => format!("The rewards add up to {}.", signed(sum, 2)),
    }))
}

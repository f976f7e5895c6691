//! Station 5: the baseline that depends on when you stop.

use eframe::egui::{Grid, Slider, Ui};

use super::bench::Bench;
use super::panel::{Said, Scene};
use super::station::Question;
use crate::experiment::{Baseline, CreditSettings};
use crate::gui::GuiError;
use crate::gui::whatif::Recomputed;
use crate::gui::words::signed;

/// The group as if the shown rollout had stopped after so many rounds.
fn stopped(
    bench: &Bench,
    settings: &CreditSettings,
    rounds: usize,
) -> Result<Recomputed, GuiError> {
    bench.changed(settings, |group| {
        if let Some(member) = group.get_mut(bench.member) {
            member.scores.truncate(rounds);
            member.memory.truncate(rounds);
        }
    })
}

/// How far the advantage of the first kept round of the shown rollout moves when it stops earlier.
fn drift(bench: &Bench, settings: &CreditSettings, rounds: usize) -> Result<f32, GuiError> {
    let first = |made: &Recomputed| {
        let of = bench.of(made).get(bench.member);
        of.and_then(|of| of.advantages.memory.first().copied())
            .map_or(0.0, |(_, value)| value)
    };
    Ok(first(&stopped(bench, settings, rounds)?) - first(&bench.under(settings)?))
}

fn rounds(bench: &Bench) -> usize {
    bench.shown().map_or(0, |member| member.memory.len())
}

/// Whether stopping later changes what an early note is worth.
pub fn question(bench: &Bench) -> Option<Question> {
    if rounds(bench) < 2 {
        return None;
    }
    let settings = CreditSettings {
        memory: true,
        baseline: Baseline::Pooled,
        ..bench.recorded
    };
    let drift = drift(bench, &settings, 1).ok()?;
    let moves = drift.abs() > 1e-4;
    Some(Question {
        text: format!(
            "Rollout {} writes its first notes, and nothing about them changes. Later it stops after one round of notes instead of {}. Does the credit of the first notes change, with MemPO's pooled baseline?",
            bench.id().member,
            rounds(bench)
        ),
        options: vec!["no: they were written before".into(), "yes".into()],
        right: usize::from(moves),
        because: format!(
            "Their advantage moves by {}. The mean runs over all rounds of the group, and stopping takes some out: a baseline that depends on what the rollout does later biases the gradient.",
            signed(drift, 3)
        ),
    })
}

/// Draws the station.
pub fn show(ui: &mut Ui, bench: &mut Bench, scene: &mut Scene) -> Result<Said, GuiError> {
    bench.settings.memory = true;
    let all = rounds(bench);
    let mut kept = scene.kept.unwrap_or(all).clamp(1, all.max(1));
    ui.horizontal_wrapped(|ui| {
        for (baseline, name) in [
            (Baseline::Pooled, "mean of all rounds"),
            (Baseline::PerRound, "mean of the same round"),
            (Baseline::LeaveOneOut, "mean of the other rollouts"),
            (Baseline::Absorbing, "same round, 0 after the end"),
        ] {
            ui.radio_value(&mut bench.settings.baseline, baseline, name);
        }
        let number = bench.id().member;
        if all > 1 {
            ui.add(
                Slider::new(&mut kept, 1..=all)
                    .text(format!("rollout {number} stops after so many rounds")),
            );
        }
    });
    scene.kept = Some(kept);
    scene.members(ui, bench);
    let before = bench.under(&bench.settings)?;
    let after = stopped(bench, &bench.settings, kept)?;
    scene.csv = String::from("rollout,turn,before,after\n");
    Grid::new("stopping")
        .num_columns(5)
        .striped(true)
        .show(ui, |ui| {
            for head in [
                "rollout",
                "notes of turn",
                "advantage, as recorded",
                "after the stop",
                "drift",
            ] {
                ui.strong(head);
            }
            ui.end_row();
            let results = bench
                .of(&before)
                .iter()
                .zip(bench.of(&after))
                .zip(bench.members());
            for ((was, now), member) in results.take(8) {
                for &(turn, value) in &was.advantages.memory {
                    let then = now.advantages.memory.iter().find(|(of, _)| *of == turn);
                    ui.label(format!("#{}", member.id.member));
                    ui.label(turn.to_string());
                    ui.label(signed(value, 3));
                    ui.label(then.map_or("not written".into(), |(_, then)| signed(*then, 3)));
                    ui.label(then.map_or(String::new(), |(_, then)| signed(then - value, 3)));
                    ui.end_row();
                    let then = then.map_or(String::new(), |(_, then)| then.to_string());
                    scene
                        .csv
                        .push_str(&format!("{},{turn},{value},{then}\n", member.id.member));
                }
            }
        });
    let drift = drift(bench, &bench.settings, kept)?;
    Ok(Said(if kept == all {
        "Move the slider: let the rollout stop earlier, and watch notes that were written before."
            .into()
    } else if drift.abs() < 1e-6 {
        "The first notes keep their credit: this baseline does not depend on what the rollout does later.".into()
    } else {
        format!(
            "The first notes of rollout {} are worth {} now, though nothing about them changed.",
            bench.id().member,
            signed(drift, 3)
        )
    }))
}

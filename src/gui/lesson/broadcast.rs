//! Station 1: one reward for everybody.

use eframe::egui::{Grid, Slider, Ui};

use super::bench::Bench;
use super::panel::{Said, Scene};
use super::station::Question;
use crate::experiment::{CreditSettings, Estimator};
use crate::gui::GuiError;
use crate::gui::words::signed;

/// GRPO with the estimator that was chosen: memory credit off.
fn settings(bench: &Bench) -> CreditSettings {
    CreditSettings {
        memory: false,
        ..bench.settings
    }
}

/// Which note of one rollout gets less when one number is broadcast.
pub fn question(bench: &Bench) -> Option<Question> {
    let member = bench.shown()?;
    let (first, last) = (member.memory.first()?.turn, member.memory.last()?.turn);
    Some(Question {
        text: format!(
            "Rollout {} wrote notes in turns {first} and {last}, one better than the other. Under GRPO, which tokens get less?",
            member.id.member
        ),
        options: vec![
            format!("the notes of turn {first}"),
            format!("the notes of turn {last}"),
            "none: all get the same".into(),
        ],
        right: 2,
        because: "GRPO makes one number of a rollout's answer and gives it to every token that the rollout wrote.".into(),
    })
}

/// Draws the station.
pub fn show(ui: &mut Ui, bench: &mut Bench, scene: &mut Scene) -> Result<Said, GuiError> {
    ui.horizontal_wrapped(|ui| {
        let mut divided = bench.settings.estimator == Estimator::Grpo;
        if ui.checkbox(&mut divided, "divide by the spread").changed() {
            bench.settings.estimator = if divided {
                Estimator::Grpo
            } else {
                Estimator::DrGrpo
            };
        }
        let mut others = bench.settings.estimator == Estimator::Rloo;
        if ui
            .checkbox(&mut others, "leave the own reward out of the mean")
            .changed()
        {
            bench.settings.estimator = if others {
                Estimator::Rloo
            } else {
                Estimator::Grpo
            };
        }
        if ui.button("Make all rewards equal").clicked() {
            let mean = bench.rewards.iter().sum::<f64>() / bench.rewards.len().max(1) as f64;
            bench.rewards.fill(mean);
        }
    });
    let made = bench.under(&settings(bench))?;
    let advantages: Vec<f32> = bench
        .of(&made)
        .iter()
        .map(|of| of.advantages.outcome.mean())
        .collect();
    scene.csv = String::from("rollout,reward,advantage\n");
    Grid::new("rewards")
        .num_columns(3)
        .striped(true)
        .show(ui, |ui| {
            for head in ["rollout", "reward (drag it)", "advantage of every token"] {
                ui.strong(head);
            }
            ui.end_row();
            for at in 0..bench.rewards.len() {
                let number = bench.members().get(at).map_or(0, |member| member.id.member);
                if ui
                    .selectable_label(bench.member == at, format!("#{number}"))
                    .clicked()
                {
                    bench.member = at;
                }
                if let Some(reward) = bench.rewards.get_mut(at) {
                    let slider =
                        Slider::new(reward, 0.0..=1.2).text(format!("reward of rollout {number}"));
                    ui.add(slider);
                    let advantage = advantages.get(at).copied().unwrap_or(0.0);
                    ui.label(signed(advantage, 3));
                    scene
                        .csv
                        .push_str(&format!("{number},{reward},{advantage}\n"));
                }
                ui.end_row();
            }
        });
    let mean = bench.rewards.iter().sum::<f64>() / bench.rewards.len().max(1) as f64;
    scene.strip(ui, "One rollout, one number", bench.document(&made));
    let silent = advantages.iter().all(|advantage| *advantage == 0.0);
    Ok(Said(if silent {
        "No spread, no signal: all rewards are equal, so every advantage is 0 and nothing is learned from this question.".into()
    } else {
        format!(
            "The mean reward is {mean:.2}. Rollout {} gets {} on every token it wrote, good notes and bad notes alike.",
            bench.id().member,
            signed(advantages.get(bench.member).copied().unwrap_or(0.0), 2)
        )
    }))
}

//! Station 2: two notes of one rollout, different credit.

use eframe::egui::{Grid, Slider, Ui};

use super::bench::Bench;
use super::panel::{Said, Scene};
use super::station::Question;
use crate::experiment::{CreditSettings, Weight};
use crate::gui::GuiError;
use crate::gui::words::signed;

/// The two notes of the shown rollout that differ most: (turn that gets more, turn that gets less).
fn pair(bench: &Bench) -> Option<(u32, u32)> {
    let rounds = &bench.shown()?.memory;
    let by = |a: &&crate::record::MemoryCredit, b: &&crate::record::MemoryCredit| {
        a.advantage.total_cmp(&b.advantage)
    };
    let (high, low) = (rounds.iter().max_by(by)?, rounds.iter().min_by(by)?);
    (high.turn != low.turn).then_some((high.turn, low.turn))
}

/// Which of two notes gets less.
pub fn question(bench: &Bench) -> Option<Question> {
    let (more, less) = pair(bench)?;
    let member = bench.shown()?;
    let mut turns = [more, less];
    turns.sort_unstable();
    let p = |turn: u32| {
        member
            .memory
            .iter()
            .find(|of| of.turn == turn)
            .map_or(0.0, |of| of.p_memory)
    };
    Some(Question {
        text: format!(
            "The same rollout, with memory credit. From its notes of turn {} the right answer has probability {:.2}, from those of turn {} {:.2}. Which notes get less?",
            turns[0],
            p(turns[0]),
            turns[1],
            p(turns[1])
        ),
        options: vec![
            format!("those of turn {}", turns[0]),
            format!("those of turn {}", turns[1]),
            "both get the same".into(),
        ],
        right: usize::from(turns[1] == less),
        because: format!(
            "Credit compares the memory reward with the other notes of the group. The notes of turn {less} lie below those of turn {more}: what is compared is not P(answer | notes) alone, but its difference to what could be known by then."
        ),
    })
}

/// Draws the station.
pub fn show(ui: &mut Ui, bench: &mut Bench, scene: &mut Scene) -> Result<Said, GuiError> {
    bench.settings.memory = true;
    let mut weight = match bench.settings.weight {
        Weight::Constant(factor) => factor,
        Weight::Linear(_) => 1.0,
    };
    ui.horizontal_wrapped(|ui| {
        if ui
            .add(Slider::new(&mut weight, 0.0..=2.0).text("memory weight"))
            .changed()
        {
            bench.settings.weight = Weight::Constant(weight);
        }
        ui.add(Slider::new(&mut bench.settings.discount, 0.0..=1.0).text("discount over turns"));
    });
    scene.members(ui, bench);
    let made = bench.under(&bench.settings)?;
    let broadcast = bench.under(&CreditSettings {
        memory: false,
        ..bench.settings
    })?;
    let outcome = bench
        .of(&broadcast)
        .get(bench.member)
        .map_or(0.0, |of| of.advantages.outcome.mean());
    let Some((member, result)) = bench.shown().zip(bench.of(&made).get(bench.member)) else {
        return Ok(Said(String::new()));
    };
    scene.csv = String::from("turn,p_notes,reward,outcome,memory,total,tokens\n");
    Grid::new("notes")
        .num_columns(6)
        .striped(true)
        .show(ui, |ui| {
            for head in [
                "notes of turn",
                "P(answer | notes)",
                "reward",
                "outcome",
                "memory",
                "each token gets",
            ] {
                ui.strong(head);
            }
            ui.end_row();
            for reward in &result.memory {
                let part = result
                    .advantages
                    .memory
                    .iter()
                    .find(|(turn, _)| *turn == reward.turn);
                let part = part.map_or(0.0, |(_, part)| *part);
                let tokens = Bench::note_tokens(member, reward.turn);
                ui.label(reward.turn.to_string());
                ui.label(format!("{:.3}", reward.p_memory));
                ui.label(signed(reward.reward, 3));
                ui.label(signed(outcome, 3));
                ui.label(signed(part, 3));
                ui.label(format!(
                    "{} over {tokens} tokens",
                    signed(outcome + part, 3)
                ));
                ui.end_row();
                scene.csv.push_str(&format!(
                    "{},{},{},{outcome},{part},{},{tokens}\n",
                    reward.turn,
                    reward.p_memory,
                    reward.reward,
                    outcome + part
                ));
            }
        });
    scene.strip(
        ui,
        "The same rollout, two notes, different credit",
        bench.document(&made),
    );
    let parts: Vec<f32> = result
        .advantages
        .memory
        .iter()
        .map(|(_, part)| *part)
        .collect();
    let spread = parts.iter().copied().fold(f32::NEG_INFINITY, f32::max)
        - parts.iter().copied().fold(f32::INFINITY, f32::min);
    Ok(Said(if weight == 0.0 || !spread.is_finite() {
        "With weight 0 this is GRPO again: every token of the rollout has the same credit.".into()
    } else {
        format!(
            "The notes of one rollout now differ by {spread:.2}. That is the point: the better note is paid more, whatever the answer was."
        )
    }))
}

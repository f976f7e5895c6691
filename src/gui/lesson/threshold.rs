//! Station 3: the threshold that kills the signal.

use eframe::egui::{Align2, FontId, Grid, Rect, Role, Sense, Ui, WidgetInfo, pos2, vec2};

use super::bench::Bench;
use super::panel::{Said, Scene};
use super::station::Question;
use crate::credit::memory::value::{floor, passing, wide};
use crate::experiment::{CreditSettings, Threshold};
use crate::gui::GuiError;
use crate::gui::theme::Colours;
use crate::gui::words::signed;

/// How many rounds of the group have a reward, and how many of those are 0.
fn silent(bench: &Bench, settings: &CreditSettings) -> Option<(usize, usize)> {
    let made = bench.under(settings).ok()?;
    let rounds: Vec<f32> = bench
        .of(&made)
        .iter()
        .flat_map(|of| of.memory.iter().map(|round| round.reward))
        .collect();
    let zero = rounds.iter().filter(|reward| **reward == 0.0).count();
    Some((rounds.len(), zero))
}

/// How much of the signal a threshold of 0.5 leaves.
pub fn question(bench: &Bench) -> Option<Question> {
    let at = |threshold| CreditSettings {
        memory: true,
        threshold,
        ..bench.recorded
    };
    let (rounds, zero) = silent(bench, &at(Threshold::Own(0.5)))?;
    let (_, before) = silent(bench, &at(Threshold::Off))?;
    let right = match zero {
        zero if zero == before => 0,
        zero if zero == rounds => 2,
        _ => 1,
    };
    Some(Question {
        text: format!(
            "This group has {rounds} rounds of notes; {before} of them have a memory reward of exactly 0 when every answer token counts. What does MemPO's threshold of 0.5 do to them?"
        ),
        options: vec![
            "nothing: as many have a reward".into(),
            "some rewards become exactly 0".into(),
            "all rewards become exactly 0".into(),
        ],
        right,
        because: format!(
            "With the threshold, {zero} of {rounds} rewards are exactly 0: where no answer token is above 0.5 in either context, both values are 0, and so is their difference."
        ),
    })
}

/// Draws the station.
pub fn show(ui: &mut Ui, bench: &mut Bench, scene: &mut Scene) -> Result<Said, GuiError> {
    bench.settings.memory = true;
    crate::gui::whatif::threshold(ui, &mut bench.settings);
    scene.members(ui, bench);
    let made = bench.under(&bench.settings)?;
    let Some((member, result)) = bench.shown().zip(bench.of(&made).get(bench.member)) else {
        return Ok(Said(String::new()));
    };
    if member.scores.is_empty() {
        ui.label("This record holds no answer log-probs; runs of a newer palimpsest do.");
    }
    scene.csv = String::from("turn,v_notes,v_against,reward\n");
    Grid::new("threshold")
        .num_columns(4)
        .striped(true)
        .show(ui, |ui| {
            for head in [
                "notes of turn",
                "answer tokens given the notes",
                "given what they are compared with",
                "reward",
            ] {
                ui.strong(head);
            }
            ui.end_row();
            for round in &member.scores {
                let Some(reward) = result.memory.iter().find(|of| of.turn == round.turn) else {
                    continue;
                };
                let against = reward.p_full.or(reward.p_previous).or(reward.p_empty);
                ui.label(round.turn.to_string());
                for (texts, value) in [
                    (&round.notes, Some(reward.p_memory)),
                    (&round.against, against),
                ] {
                    let logprobs = texts.first().map(Vec::as_slice).unwrap_or_default();
                    bars(
                        ui,
                        logprobs,
                        bench.settings.threshold,
                        value,
                        &scene.colours,
                    );
                }
                ui.label(signed(reward.reward, 3));
                ui.end_row();
                scene.csv.push_str(&format!(
                    "{},{},{},{}\n",
                    round.turn,
                    reward.p_memory,
                    against.unwrap_or(0.0),
                    reward.reward
                ));
            }
        });
    let (rounds, zero) = silent(bench, &bench.settings).unwrap_or((0, 0));
    scene.strip(
        ui,
        "Where the notes get nothing, their tokens show the outcome alone",
        bench.document(&made),
    );
    Ok(Said(format!(
        "{zero} of {rounds} rounds of this group have a memory reward of exactly 0."
    )))
}

/// One bar a token of the answer; those that count are filled, the line is the threshold.
fn bars(
    ui: &mut Ui,
    logprobs: &[f32],
    threshold: Threshold,
    value: Option<f32>,
    colours: &Colours,
) {
    let (rect, response) = ui.allocate_exact_size(vec2(200.0, 40.0), Sense::hover());
    let floor = floor(threshold);
    let counted = passing(&wide(logprobs), floor);
    let room = Rect::from_min_max(rect.min, pos2(rect.right() - 56.0, rect.bottom()));
    let width = room.width() / logprobs.len().max(1) as f32;
    for (at, (logprob, counts)) in logprobs.iter().zip(&counted).enumerate() {
        let height = logprob.exp() * (room.height() - 2.0);
        let bar = Rect::from_min_max(
            pos2(
                room.left() + at as f32 * width,
                room.bottom() - height.max(1.0),
            ),
            pos2(room.left() + (at as f32 + 1.0) * width - 1.0, room.bottom()),
        );
        let fill = if *counts { colours.focus } else { colours.line };
        ui.painter().rect_filled(bar, 0.0, fill);
    }
    if let Some(floor) = floor {
        let y = room.bottom() - (floor.exp() as f32) * (room.height() - 2.0);
        ui.painter()
            .hline(room.x_range(), y, (1.0, colours.warning));
    }
    let text = value.map_or(String::new(), |value| format!("V {value:.3}"));
    let font = FontId::proportional(12.0);
    ui.painter().text(
        rect.right_center(),
        Align2::RIGHT_CENTER,
        text,
        font,
        colours.text,
    );
    let count = counted.iter().filter(|counts| **counts).count();
    response.widget_info(|| {
        let of = logprobs.len();
        WidgetInfo::labeled(
            Role::Image,
            true,
            format!("{count} of {of} answer tokens count"),
        )
    });
}

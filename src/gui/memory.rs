//! The Memory panel: the notes of a trajectory turn by turn, where each part came from, and what the
//! answer's probability did.

use eframe::egui::text::LayoutJob;
use eframe::egui::{
    Button, FontId, Frame, RichText, Role, ScrollArea, Stroke, TextFormat, Ui, WidgetInfo,
};

use super::chart::{Chart, Curve};
use super::facts::{Fact, facts, provenance};
use super::theme::Colours;
use super::words::signed;
use super::world::World;
use crate::record::report::diff::{Piece, diff};
use crate::record::{MemoryCredit, TrajectoryView};
use crate::run::Aside;

/// Width of the card of one turn, points.
const CARD: f32 = 230.0;

/// The Memory panel.
#[derive(Default)]
pub struct MemoryPanel;

impl MemoryPanel {
    /// Draws the panel.
    pub fn ui(&mut self, ui: &mut Ui, world: &mut World) {
        let Some(run) = world.run() else { return };
        let Some(of) = world.trajectory().cloned() else {
            ui.label("No trajectory is selected.");
            return;
        };
        let gold = run
            .view
            .question_of(of.id)
            .map(|question| question.gold.clone());
        let facts = facts(gold.as_deref().unwrap_or_default(), &of);
        let colours = world.theme.of(ui.ctx()).clone();
        ui.horizontal_wrapped(|ui| {
            ui.strong(super::words::place(of.id));
            ui.label(super::words::verdict(&of));
        });
        ScrollArea::vertical()
            .id_salt("memory")
            .auto_shrink(false)
            .show(ui, |ui| {
                ScrollArea::horizontal().id_salt("cards").show(ui, |ui| {
                    ui.horizontal_top(|ui| {
                        for turn in 0..of.turns.len() {
                            card(ui, world, &of, turn, &facts, &colours);
                        }
                    });
                });
                ui.separator();
                probabilities(ui, world, &of, &colours);
                ui.separator();
                ui.strong("Facts");
                for fact in &facts {
                    ui.horizontal_wrapped(|ui| {
                        ui.weak(&fact.key);
                        ui.label(&fact.value);
                        ui.label(fact.story(of.turns.len()));
                    });
                }
                ui.separator();
                edits(ui, world, &of);
            });
    }
}

fn notes(of: &TrajectoryView, turn: usize) -> &str {
    let turn = of.turns.get(turn);
    turn.and_then(|turn| turn.wrote.notes.as_deref())
        .unwrap_or_default()
}

fn round(of: &TrajectoryView, turn: usize) -> Option<&MemoryCredit> {
    let number = of.turns.get(turn)?.wrote.turn;
    of.memory.iter().find(|round| round.turn == number)
}

/// The notes of one turn as a change of those before, with reward and facts.
fn card(
    ui: &mut Ui,
    world: &mut World,
    of: &TrajectoryView,
    turn: usize,
    facts: &[Fact],
    colours: &Colours,
) {
    let before = turn.checked_sub(1).map_or("", |before| notes(of, before));
    let pieces = diff(before.trim(), notes(of, turn).trim());
    let selected = world.selection.turn as usize == turn;
    let edge = if selected {
        colours.focus
    } else {
        colours.line
    };
    let frame =
        Frame::group(ui.style()).stroke(Stroke::new(if selected { 2.0 } else { 1.0 }, edge));
    let shown = frame.show(ui, |ui| {
        ui.set_width(CARD);
        ui.vertical(|ui| {
            let answer = of.turns.get(turn).is_some_and(|turn| {
                matches!(
                    turn.wrote.action,
                    Some(crate::trajectory::Action::Answer(_))
                )
            });
            let head = if answer {
                format!("turn {turn} (answer)")
            } else {
                format!("turn {turn}")
            };
            if ui.selectable_label(selected, head).clicked() {
                world.selection.turn = turn as u32;
            }
            if pieces.iter().all(|piece| piece.text.trim().is_empty()) {
                ui.weak("(no notes)");
            } else {
                ui.label(inline(&pieces, ui, colours));
            }
            for fact in facts {
                let chip = fact.chip(turn);
                if chip == "not read yet" {
                    continue;
                }
                let text = RichText::new(format!("{}: {chip}", fact.value)).size(12.0);
                let colour = if chip == "in the notes" {
                    colours.text
                } else {
                    colours.warning
                };
                ui.label(text.color(colour));
            }
            if let Some(round) = round(of, turn) {
                amounts(ui, world, of, round, colours);
            }
        });
    });
    let sentence = || {
        let what: Vec<String> = pieces
            .iter()
            .map(|piece| format!("{} '{}'", piece.kind, piece.text.trim()))
            .collect();
        let reward = round(of, turn).map_or(String::new(), |round| {
            format!(
                ", reward {}, advantage {}",
                signed(round.reward, 2),
                signed(round.advantage, 2)
            )
        });
        format!("notes of turn {turn}: {}{reward}", what.join(", "))
    };
    let region = ui.interact(
        shown.response.rect,
        ui.scope_id().with(("card", turn)),
        eframe::egui::Sense::hover(),
    );
    region.widget_info(|| WidgetInfo::labeled(Role::Group, true, sentence()));
}

/// Reward and advantage of a round on the signed scale, and the question what if.
fn amounts(
    ui: &mut Ui,
    world: &mut World,
    of: &TrajectoryView,
    round: &MemoryCredit,
    colours: &Colours,
) {
    // One scale for reward and advantage of the whole trajectory.
    let limit = of
        .memory
        .iter()
        .flat_map(|round| [round.reward.abs(), round.advantage.abs()])
        .fold(1e-6, f32::max);
    ui.horizontal(|ui| {
        for (name, value) in [("reward", round.reward), ("advantage", round.advantage)] {
            let (fill, text) = colours.signed(value / limit);
            let text = RichText::new(format!("{name} {}", signed(value, 2))).color(text);
            ui.label(text.background_color(fill));
        }
    });
    let engine = world.live.as_ref().is_some_and(|live| !live.over());
    let button = ui.add_enabled(engine, Button::new("What if these notes were empty?"));
    let button = button.on_disabled_hover_text(match round.p_empty {
        Some(p) => format!("Recorded: P(answer | empty notes) is {p:.3}"),
        None => "This needs an engine: train with --gui and ask while the step is under way".into(),
    });
    if button.clicked()
        && let Some(live) = &world.live
    {
        live.controls.ask(Aside::WithoutNotes {
            id: of.id,
            turn: round.turn,
        });
        world.say("The engine scores the answer without these notes");
    }
}

/// Added text underlined, removed text struck through, kept text plain.
fn inline(pieces: &[Piece], ui: &Ui, colours: &Colours) -> LayoutJob {
    let mut job = LayoutJob::default();
    job.wrap.max_width = CARD;
    let font = FontId::monospace(eframe::egui::TextStyle::Monospace.resolve(ui.style()).size);
    for piece in pieces {
        let mut format = TextFormat {
            font_id: font.clone(),
            color: colours.text,
            ..TextFormat::default()
        };
        match piece.kind {
            "added" => format.underline = Stroke::new(1.5, colours.text),
            "removed" => {
                format.strikethrough = Stroke::new(1.5, colours.weak);
                format.color = colours.weak;
            }
            _ => {}
        }
        job.append(&piece.text, 0.0, format);
    }
    job
}

/// P of the right answer in every scored context, over the turns.
fn probabilities(ui: &mut Ui, world: &World, of: &TrajectoryView, colours: &Colours) {
    let curve = |name: &str, number: usize, dashed, value: fn(&MemoryCredit) -> Option<f32>| {
        let points: Vec<(f64, f64)> = of
            .memory
            .iter()
            .filter_map(|round| Some((f64::from(round.turn), f64::from(value(round)?))))
            .collect();
        Curve {
            name: name.into(),
            points,
            band: None,
            colour: colours.run(number),
            dashed,
        }
    };
    let curves: Vec<Curve> = [
        curve("P(answer | notes)", 0, false, |round| Some(round.p_memory)),
        curve("P(answer | full)", 1, true, |round| round.p_full),
        curve("P(answer | notes before)", 2, true, |round| {
            round.p_previous
        }),
        curve("P(answer | empty notes)", 3, true, |round| round.p_empty),
    ]
    .into_iter()
    .filter(|curve| !curve.points.is_empty())
    .collect();
    if curves.is_empty() {
        ui.label("No round of this trajectory was scored: memory credit is off, or its update is not done.");
        return;
    }
    Chart {
        title: "P of the right answer by turn",
        across: "turn",
        curves: &curves,
        at: Some(f64::from(world.selection.turn)),
        height: 170.0,
        log: false,
        group: None,
        cursor: colours.focus,
    }
    .show(ui);
}

/// Where every part that the selected turn added came from.
fn edits(ui: &mut Ui, world: &World, of: &TrajectoryView) {
    let turn = world.selection.turn as usize;
    ui.strong(format!("What turn {turn} wrote, and where it came from"));
    let before = turn.checked_sub(1).map_or("", |before| notes(of, before));
    let pieces = diff(before.trim(), notes(of, turn).trim());
    let mut any = false;
    for piece in pieces.iter().filter(|piece| piece.kind == "added") {
        for part in piece
            .text
            .split(';')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            any = true;
            ui.horizontal_wrapped(|ui| {
                ui.monospace(part);
                ui.label(provenance(of, turn, part));
            });
        }
    }
    if !any {
        ui.label("Nothing was added in this turn.");
    }
}

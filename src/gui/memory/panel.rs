//! The panel: the cards of the turns, the answer's probability under them, facts and provenance.

use eframe::egui::{ScrollArea, Ui};

use super::card::{Card, notes};
use super::facts::{Fact, facts, new_parts, provenance};
use crate::gui::chart::{Chart, Curve};
use crate::gui::keys::scroll_pages;
use crate::gui::theme::Colours;
use crate::gui::world::World;
use crate::record::report::diff::{Piece, diff_parts};
use crate::record::{MemoryCredit, TrajectoryView};
use crate::trajectory::TrajectoryId;

/// What the kept comparisons were made from: run, reading, rollout, and how far it is seen.
type Made = (usize, u64, TrajectoryId, [usize; 4]);

/// A rollout with everything that is worked out once, and not once a frame.
struct Kept {
    of: TrajectoryView,
    pieces: Vec<Vec<Piece>>,
    facts: Vec<Fact>,
    place: String,
}

/// The Memory panel.
#[derive(Default)]
pub struct MemoryPanel {
    kept: Option<(Made, Kept)>,
    shown: Option<(TrajectoryId, u32)>,
}

impl MemoryPanel {
    /// Draws the panel.
    pub fn ui(&mut self, ui: &mut Ui, world: &mut World) {
        self.prepare(world);
        let Some((_, kept)) = &self.kept else {
            ui.label("No trajectory is selected.");
            return;
        };
        let of = &kept.of;
        let colours = world.theme.of(ui.ctx()).clone();
        let selected = world.selection.turn;
        // The selected card comes into view once, and the user may scroll away from it.
        let bring = self.shown != Some((of.id, selected));
        self.shown = Some((of.id, selected));
        let pages = std::mem::take(&mut world.pages);
        ui.horizontal_wrapped(|ui| {
            ui.strong(&kept.place);
            ui.label(crate::gui::words::verdict(of));
            if let Some(event) = world.cursor.event() {
                ui.weak(format!("as it stood at event {event} (End: the end)"));
            }
        });
        ScrollArea::vertical()
            .id_salt("memory")
            .auto_shrink(false)
            .show(ui, |ui| {
                scroll_pages(ui, pages);
                ScrollArea::horizontal().id_salt("cards").show(ui, |ui| {
                    ui.horizontal_top(|ui| {
                        for (turn, pieces) in kept.pieces.iter().enumerate() {
                            let card = Card {
                                of,
                                turn,
                                pieces,
                                facts: &kept.facts,
                                selected: selected as usize == turn,
                            };
                            let (rect, chosen) = card.show(ui, world, &colours);
                            if chosen {
                                world.selection.turn = turn as u32;
                            }
                            if bring && card.selected {
                                ui.scroll_to_rect(rect, None);
                            }
                        }
                        if kept.pieces.is_empty() {
                            ui.weak("Nothing has been written yet.");
                        }
                    });
                });
                ui.separator();
                probabilities(ui, selected, of, &colours);
                ui.separator();
                ui.strong("Facts");
                for fact in &kept.facts {
                    ui.horizontal_wrapped(|ui| {
                        ui.weak(&fact.key);
                        ui.label(&fact.value);
                        ui.label(fact.story(of.turns.len()));
                    });
                }
                ui.separator();
                edits(ui, selected as usize, of);
            });
    }

    /// Takes the rollout out of the record as it stood at the cursor, if that has changed.
    fn prepare(&mut self, world: &World) {
        let (Some(run), Some(seen)) = (world.run(), world.seen()) else {
            self.kept = None;
            return;
        };
        let answered = seen.turns.iter().filter(|turn| turn.tool.is_some()).count();
        let ended =
            usize::from(seen.reason.is_some()) + usize::from(seen.outcome_advantage.is_some());
        let far = [seen.turns.len(), answered, seen.memory.len(), ended];
        let made = (world.current, run.epoch, seen.id, far);
        if self.kept.as_ref().is_some_and(|(of, _)| *of == made) {
            return;
        }
        let gold = run.view.question_of(seen.id).map(|of| of.gold.as_str());
        let pieces = (0..seen.turns.len())
            .map(|turn| {
                let before = turn.checked_sub(1).map_or("", |turn| notes(&seen, turn));
                diff_parts(before.trim(), notes(&seen, turn).trim())
            })
            .collect();
        let kept = Kept {
            pieces,
            facts: facts(gold.unwrap_or_default(), &seen),
            place: run.place(seen.id),
            of: seen.into_owned(),
        };
        self.kept = Some((made, kept));
    }
}

/// P of the right answer in every scored context, over the turns.
fn probabilities(ui: &mut Ui, turn: u32, of: &TrajectoryView, colours: &Colours) {
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
        ui.label("No round of this trajectory was scored by this event: memory credit is off, or its update is not done.");
        return;
    }
    Chart {
        title: "P of the right answer by turn",
        across: "turn",
        curves: &curves,
        at: Some(f64::from(turn)),
        height: 170.0,
        log: false,
        span: Some((0.0, 1.0)),
        group: None,
        cursor: colours.focus,
        grid: colours.line,
    }
    .show(ui);
}

/// Where every part that the selected turn added came from, and what became of it.
fn edits(ui: &mut Ui, turn: usize, of: &TrajectoryView) {
    ui.strong(format!("What turn {turn} wrote, and where it came from"));
    let before = turn.checked_sub(1).map_or("", |before| notes(of, before));
    let parts = new_parts(before, notes(of, turn));
    for part in &parts {
        ui.horizontal_wrapped(|ui| {
            ui.monospace(*part);
            ui.label(provenance(of, turn, part));
        });
    }
    if parts.is_empty() {
        ui.label("Nothing was added in this turn.");
    }
}

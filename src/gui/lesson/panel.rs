//! The Lesson panel: the ladder of stations, the question, the numbers, what they say in words, the
//! tokens.

use std::collections::BTreeMap;

use eframe::egui::{Button, Frame, Panel, RichText, ScrollArea, Ui, UiBuilder};

use super::bench::Bench;
use super::moved::{At, Moved, best};
use super::museum::pieces;
use super::scene::{Exhibit, Scene, Strips};
use super::source::Opened;
use super::station::{Question, Station};
use crate::gui::Command;
use crate::gui::run::Health;
use crate::gui::theme::Colours;
use crate::gui::world::World;

/// The Lesson panel.
#[derive(Default)]
pub struct LessonPanel {
    /// The station that is shown.
    pub station: Station,
    opened: Option<Opened>,
    /// What was moved, by station.
    moved: BTreeMap<Station, Moved>,
    /// Settings that were kept beside it, by station.
    kept: BTreeMap<Station, Moved>,
    /// Guesses, by what was shown.
    guesses: BTreeMap<(Station, At), usize>,
    /// The question of what is shown; or why there is none.
    asked: Option<((Station, At), Result<Question, String>)>,
    csv: Option<String>,
    strips: Strips,
}

impl LessonPanel {
    /// The shown station back to where it starts.
    pub fn reset(&mut self) {
        let station = self.station;
        if let Some(bench) = bench(&self.opened)
            && let Some(moved) = self.moved.get_mut(&station)
        {
            *moved = Moved::start_at(station, bench, moved.at);
        }
    }

    /// The table of the station, as CSV.
    ///
    /// # Errors
    /// The station shows none: its question is open.
    pub fn table(&self) -> Result<String, String> {
        let none = || "The table comes with the numbers: answer the question of the station first";
        self.csv.clone().ok_or_else(|| none().to_owned())
    }

    /// Answers the question that is asked, rightly: a picture is to show the numbers.
    pub fn reveal(&mut self) {
        if let Some((key, Ok(question))) = &self.asked {
            self.guesses.insert(*key, question.right);
        }
    }

    /// The station before or after.
    pub fn walk(&mut self, forward: bool) {
        let at = Station::ALL
            .iter()
            .position(|of| *of == self.station)
            .unwrap_or(0);
        let next = if forward {
            at + 1
        } else {
            at.saturating_sub(1)
        };
        if let Some(station) = Station::ALL.get(next) {
            self.station = *station;
        }
    }

    /// Puts the next group on the table of the station.
    pub fn next_group(&mut self) {
        let station = self.station;
        if let Some(bench) = bench(&self.opened)
            && let Some(moved) = self.moved.get_mut(&station)
        {
            moved.next_group(station, bench);
            self.kept.remove(&station);
        }
    }

    /// Keeps the settings of the station beside what is moved next, or forgets those that were kept.
    ///
    /// # Errors
    /// There is nothing to keep: the question of the station is open.
    pub fn keep(&mut self) -> Result<(), String> {
        if self.kept.remove(&self.station).is_some() {
            return Ok(());
        }
        self.table()?;
        if let Some(moved) = self.moved.get(&self.station) {
            self.kept.insert(self.station, moved.clone());
        }
        Ok(())
    }

    /// Changes the settings of the station and those that were kept.
    pub fn swap(&mut self) {
        let both = (
            self.moved.get_mut(&self.station),
            self.kept.get_mut(&self.station),
        );
        if let (Some(moved), Some(kept)) = both {
            kept.at.place = moved.at.place;
            std::mem::swap(moved, kept);
        }
    }

    fn open(&mut self, name: &str, world: &mut World) {
        self.opened = Some(Opened::new(name, world));
        self.moved.clear();
        self.kept.clear();
        self.guesses.clear();
        self.asked = None;
    }

    /// Opens what is to be shown. False while a run that is to be shown loads.
    fn ready(&mut self, world: &mut World) -> bool {
        let stale = match &self.opened {
            Some(opened) => opened.stale(world),
            None => true,
        };
        let wanted = world.lesson.take().or_else(|| stale.then(String::new));
        let Some(name) = wanted else { return true };
        let loading = world.run().is_some_and(|run| run.health == Health::Loading);
        if name.is_empty() && loading {
            world.lesson = Some(name);
            return false;
        }
        self.open(&name, world);
        true
    }

    /// Draws the panel.
    pub fn ui(&mut self, ui: &mut Ui, world: &mut World) {
        self.csv = None;
        if !self.ready(world) {
            ui.label("Loading the run");
            return;
        }
        let colours = world.theme.of(ui.ctx()).clone();
        Panel::left("stations")
            .default_size(230.0)
            .show(ui, |ui| self.ladder(ui, world));
        if let Some(Err(why)) = self.opened.as_ref().map(|of| &of.bench) {
            ui.label(why);
            return;
        }
        // A margin between the ladder and the station.
        let room = ui.available_rect_before_wrap();
        let room = room.with_min_x(room.left() + 10.0);
        let builder = UiBuilder::new().max_rect(room);
        let ui = &mut ui.new_child(builder);
        // Text is as wide as there is room; a table that is wider can be scrolled to.
        // The bar of the scroll area floats above its right edge.
        let width = ui.available_width() - 10.0;
        ScrollArea::both()
            .id_salt("station")
            .auto_shrink(false)
            .show(ui, |ui| {
                ui.set_max_width(width);
                self.station(ui, world, (&colours, width));
            });
    }

    fn station(&mut self, ui: &mut Ui, world: &mut World, (colours, width): (&Colours, f32)) {
        let station = self.station;
        let Some(bench) = bench(&self.opened) else {
            return;
        };
        let moved = self
            .moved
            .entry(station)
            .or_insert_with(|| Moved::start(station, bench));
        ui.heading(station.title());
        ui.label(station.about());
        place(ui, world, bench, moved);
        if station == Station::Museum {
            let mut piece = moved.at.piece;
            pieces(ui, &mut piece);
            if piece != moved.at.piece {
                let at = best(station, bench, piece, None);
                moved.look_at(bench, at);
            }
        }
        ui.separator();
        // A question is about the record, not about the sliders.
        let key = (station, moved.at);
        if self.asked.as_ref().is_none_or(|(of, _)| *of != key) {
            let question = (station.parts().question)(bench, moved.at);
            self.asked = Some((key, question.map_err(|error| error.to_string())));
        }
        let asked = self.asked.as_ref().map(|(_, question)| question);
        match asked {
            Some(Ok(question)) => {
                if !answered(ui, question, key, &mut self.guesses) {
                    return;
                }
            }
            Some(Err(why)) => {
                ui.label(why);
                return;
            }
            None => return,
        }
        ui.separator();
        let mut scene = Scene {
            colours: colours.clone(),
            csv: String::new(),
        };
        let said = (station.parts().show)(ui, bench, moved, &mut scene);
        self.csv = said.is_ok().then_some(scene.csv);
        let kept = self.kept.get(&station).map(|kept| {
            let mut kept = kept.clone();
            kept.at.place = moved.at.place;
            kept
        });
        let exhibit = station.parts().exhibit;
        let first = exhibit(bench, moved).ok();
        let second = kept.as_ref().and_then(|kept| exhibit(bench, kept).ok());
        ui.add_space(6.0);
        ui.vertical(|ui| {
            ui.set_max_width(width);
            Frame::group(ui.style()).show(ui, |ui| {
                ui.set_width(ui.available_width());
                match &said {
                    Ok(text) => ui.label(RichText::new(text).strong()),
                    Err(error) => ui.label(error.to_string()),
                }
            });
            beside(ui, world, kept.is_some());
            let Some(first) = first else { return };
            let limit = bench.limit(moved.at.place.group, first.value);
            let shown = side_by_side(first, second);
            let paint = (colours, world.patterns);
            self.strips.show(ui, &shown, limit, paint);
        });
    }

    fn ladder(&mut self, ui: &mut Ui, world: &mut World) {
        ui.heading("Who gets the credit?");
        if let Some(opened) = &self.opened {
            ui.weak(&opened.title);
        }
        ui.add_space(6.0);
        for station in Station::ALL {
            let done = self.guesses.keys().any(|(of, _)| *of == station);
            let done = if done { "  answered" } else { "" };
            let text = format!("{}{done}", station.title());
            let row = Button::selectable(self.station == station, text).wrap();
            if ui.add(row).clicked() {
                self.station = station;
            }
        }
        ui.add_space(8.0);
        ui.label("Sliders call the functions of the learner.");
        for command in [
            Command::ResetLesson,
            Command::CopyTable,
            Command::OpenLesson,
        ] {
            button(ui, world, command, command.text());
        }
    }
}

fn bench(opened: &Option<Opened>) -> Option<&Bench> {
    opened.as_ref()?.bench.as_ref().ok()
}

/// A button for a command, with its key.
fn button(ui: &mut Ui, world: &mut World, command: Command, text: &str) {
    let text = format!("{text} ({})", command.keys());
    if ui.button(text).on_hover_text(command.tooltip()).clicked() {
        world.todo.push(command);
    }
}

/// The question of the group, its rollouts, and the way to others.
fn place(ui: &mut Ui, world: &mut World, bench: &Bench, moved: &mut Moved) {
    ui.horizontal_wrapped(|ui| {
        if let Some((question, gold)) = bench.questions.get(moved.at.place.group) {
            ui.weak("question");
            ui.label(question.replace("<q>", "").replace("</q>", "").trim());
            ui.weak("right answer");
            ui.label(gold.trim());
        }
        if bench.inputs.groups.len() > 1 {
            let command = Command::AnotherGroup;
            button(ui, world, command, command.text());
        }
    });
    ui.horizontal_wrapped(|ui| {
        ui.weak("rollout, reward");
        let mut at = moved.at;
        for (number, member) in bench.members(at.place.group).iter().enumerate() {
            let text = format!("#{} {:.1}", member.id.member, member.rewards.outcome);
            if ui
                .selectable_label(moved.at.place.member == number, text)
                .clicked()
            {
                at.place.member = number;
            }
        }
        moved.look_at(bench, at);
    });
}

/// Asks, and says whether that was right. False until there is an answer.
fn answered(
    ui: &mut Ui,
    question: &Question,
    key: (Station, At),
    guesses: &mut BTreeMap<(Station, At), usize>,
) -> bool {
    let guess = guesses.get(&key).copied();
    ui.strong("Predict first");
    ui.label(&question.text);
    ui.horizontal_wrapped(|ui| {
        for (number, option) in question.options.iter().enumerate() {
            if ui.selectable_label(guess == Some(number), option).clicked() {
                guesses.insert(key, number);
            }
        }
    });
    let Some(guess) = guess else {
        ui.weak("The numbers appear with your answer. It stays on this machine.");
        return false;
    };
    let verdict = if guess == question.right {
        "As you said."
    } else {
        "Not so."
    };
    ui.label(RichText::new(format!("{verdict} {}", question.because)).strong());
    true
}

/// Two settings side by side.
fn beside(ui: &mut Ui, world: &mut World, kept: bool) {
    ui.horizontal(|ui| {
        let text = if kept { "Forget B" } else { "Keep this as B" };
        button(ui, world, Command::KeepBeside, text);
        if kept {
            let command = Command::SwapBeside;
            button(ui, world, command, command.text());
        }
    });
}

/// One exhibit, or two with their difference.
fn side_by_side(mut first: Exhibit, second: Option<Exhibit>) -> Vec<Exhibit> {
    let Some(mut second) = second else {
        return vec![first];
    };
    let less = first.less(&second);
    first.title = format!("A: {}", first.title);
    second.title = format!("B: {}", second.title);
    let mut shown = vec![first, second];
    shown.extend(less);
    shown
}

//! The Lesson panel: the ladder of stations, the question, the numbers, and what changed in words.

use std::collections::BTreeMap;
use std::sync::Arc;

use eframe::egui::{Frame, Panel, RichText, ScrollArea, Ui, UiBuilder};

use super::bench::Bench;
use super::museum::Piece;
use super::record::LessonRecord;
use super::station::{Question, Station};
use super::{broadcast, inherited, museum, notes, stopping, threshold};
use crate::experiment::CreditSettings;
use crate::gui::run::{Health, Run};
use crate::gui::theme::Colours;
use crate::gui::tokens::{Document, Strip, Value, token_limit};
use crate::gui::world::World;
use crate::gui::{Command, GuiError, lesson_names};
use crate::trajectory::Purpose;

/// What a station says in plain words when it is drawn.
pub struct Said(pub String);

/// What the stations share while they are drawn.
pub struct Scene {
    /// Colours.
    pub colours: Colours,
    /// The table, as CSV.
    pub csv: String,
    /// After how many rounds the shown rollout stops (station 5).
    pub kept: Option<usize>,
    /// The piece of the museum, and whether it is shown as published (station 6).
    pub piece: Piece,
    /// See `piece`.
    pub broken: bool,
    patterns: bool,
}

impl Scene {
    /// The tokens of the shown rollout, coloured by weight.
    pub fn strip(&self, ui: &mut Ui, title: &str, document: Option<Arc<Document>>) {
        let Some(document) = document else { return };
        ui.add_space(4.0);
        ui.strong(title);
        let limit = token_limit([document.as_ref()], Value::Weight).max(0.25);
        Strip {
            document: &document,
            limit,
            patterns: self.patterns,
            written_only: true,
        }
        .show(ui, title, &self.colours);
    }

    /// Which rollout of the group is looked at.
    pub fn members(&mut self, ui: &mut Ui, bench: &mut Bench) {
        ui.horizontal_wrapped(|ui| {
            ui.weak("rollout");
            for at in 0..bench.members().len() {
                let Some(member) = bench.members().get(at) else {
                    continue;
                };
                let text = format!("#{} {:.1}", member.id.member, member.rewards.outcome);
                if ui.selectable_label(bench.member == at, text).clicked() {
                    bench.member = at;
                    self.kept = None;
                }
            }
        });
    }
}

/// The Lesson panel.
#[derive(Default)]
pub struct LessonPanel {
    /// The station that is shown.
    pub station: Station,
    bench: Option<Result<Bench, String>>,
    title: String,
    guesses: BTreeMap<Station, usize>,
    question: Option<((Station, usize, usize), Option<Question>)>,
    kept: Option<usize>,
    piece: Piece,
    broken: bool,
    csv: String,
    other: Option<(CreditSettings, Vec<f64>)>,
}

impl LessonPanel {
    /// Sliders back to the record.
    pub fn reset(&mut self) {
        if let Some(Ok(bench)) = &mut self.bench {
            bench.reset();
        }
        self.kept = None;
        self.broken = false;
    }

    /// The table of the station, as CSV.
    #[must_use]
    pub fn table(&self) -> String {
        self.csv.clone()
    }

    /// Answers the question that is asked, rightly: a picture is to show the numbers.
    pub fn reveal(&mut self) {
        if let Some((_, Some(question))) = &self.question {
            self.guesses.insert(self.station, question.right);
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

    fn open(&mut self, name: &str, world: &mut World) -> Result<Bench, GuiError> {
        self.guesses.clear();
        self.question = None;
        if name.is_empty() && world.run().is_some() {
            let id = world.selection.id;
            let Some(run) = world.run_mut() else {
                return Err(GuiError::NotRecorded("no run is open".into()));
            };
            self.title = format!("Lesson on {}", run.name());
            let step = if id.purpose == Purpose::Train {
                id.step
            } else {
                last_step(run)
            };
            return Bench::new(run, step);
        }
        let record = LessonRecord::named(name)?;
        record.title.clone_into(&mut self.title);
        let mut run = record.open()?;
        let step = last_step(&run);
        Bench::new(&mut run, step)
    }

    /// Draws the panel.
    pub fn ui(&mut self, ui: &mut Ui, world: &mut World) {
        let loading = world.run().is_some_and(|run| run.health == Health::Loading);
        if loading && world.lesson.as_deref() == Some("") {
            ui.label("Loading the run");
            return;
        }
        if let Some(name) = world.lesson.take() {
            self.bench = Some(self.open(&name, world).map_err(|error| error.to_string()));
        }
        if self.bench.is_none() {
            self.bench = Some(self.open(first(), world).map_err(|error| error.to_string()));
        }
        let colours = world.theme.of(ui.ctx()).clone();
        Panel::left("stations")
            .default_size(230.0)
            .show(ui, |ui| self.ladder(ui, world));
        let Some(bench) = &mut self.bench else { return };
        let bench = match bench {
            Ok(bench) => bench,
            Err(why) => {
                ui.label(why.as_str());
                return;
            }
        };
        let mut scene = Scene {
            colours,
            csv: String::new(),
            kept: self.kept,
            piece: self.piece,
            broken: self.broken,
            patterns: world.patterns,
        };
        let station = self.station;
        // A margin between the ladder and the station.
        let room = ui.available_rect_before_wrap();
        let room = room.with_min_x(room.left() + 10.0);
        let builder = UiBuilder::new().max_rect(room);
        let ui = &mut ui.new_child(builder);
        ScrollArea::vertical()
            .id_salt("station")
            .auto_shrink(false)
            .show(ui, |ui| {
                ui.heading(station.title());
                ui.label(station.about());
                group_on_the_table(ui, bench);
                ui.separator();
                // A question is about the record, not about the sliders.
                let key = (station, bench.group, bench.member);
                if self.question.as_ref().is_none_or(|(of, _)| *of != key) {
                    self.question = Some((key, station.question(bench)));
                }
                let question = self
                    .question
                    .as_ref()
                    .and_then(|(_, question)| question.clone());
                let guess = self.guesses.get(&station).copied();
                if let Some(question) = &question {
                    ui.strong("Predict first");
                    ui.label(&question.text);
                    ui.horizontal_wrapped(|ui| {
                        for (number, option) in question.options.iter().enumerate() {
                            if ui.selectable_label(guess == Some(number), option).clicked() {
                                self.guesses.insert(station, number);
                            }
                        }
                    });
                    let Some(guess) = guess else {
                        ui.weak("The numbers appear with your answer. It stays on this machine.");
                        return;
                    };
                    let verdict = if guess == question.right {
                        "As you said."
                    } else {
                        "Not so."
                    };
                    ui.label(RichText::new(format!("{verdict} {}", question.because)).strong());
                    ui.separator();
                }
                let said = match station {
                    Station::Broadcast => broadcast::show(ui, bench, &mut scene),
                    Station::Notes => notes::show(ui, bench, &mut scene),
                    Station::Threshold => threshold::show(ui, bench, &mut scene),
                    Station::Inherited => inherited::show(ui, bench, &mut scene),
                    Station::Stopping => stopping::show(ui, bench, &mut scene),
                    Station::Museum => museum::show(ui, bench, &mut scene),
                };
                ui.add_space(6.0);
                Frame::group(ui.style()).show(ui, |ui| {
                    ui.set_width(ui.available_width());
                    match said {
                        Ok(Said(text)) => ui.label(RichText::new(text).strong()),
                        Err(error) => ui.label(error.to_string()),
                    }
                });
                compare(ui, bench, &mut self.other, &scene);
            });
        self.kept = scene.kept;
        self.piece = scene.piece;
        self.broken = scene.broken;
        self.csv = scene.csv;
    }

    fn ladder(&mut self, ui: &mut Ui, world: &mut World) {
        ui.heading("Who gets the credit?");
        ui.weak(&self.title);
        ui.add_space(6.0);
        for station in Station::ALL {
            let done = if self.guesses.contains_key(&station) {
                "  answered"
            } else {
                ""
            };
            let text = format!("{}{done}", station.title());
            let row = eframe::egui::Button::selectable(self.station == station, text).wrap();
            if ui.add(row).clicked() {
                self.station = station;
            }
        }
        ui.add_space(8.0);
        ui.label("Sliders call the functions of the learner.");
        for (text, command) in [
            ("Reset the sliders (R)", Command::ResetLesson),
            ("Copy the table (C)", Command::CopyTable),
            ("Open a lesson...", Command::OpenLesson),
        ] {
            if ui.button(text).on_hover_text(command.tooltip()).clicked() {
                world.todo.push(command);
            }
        }
    }
}

fn first() -> &'static str {
    lesson_names().next().map_or("", |(name, _)| name)
}

/// The last training step that has credit.
fn last_step(run: &Run) -> u32 {
    let steps = run.steps();
    let credited = |(purpose, step): &&(Purpose, u32)| {
        *purpose == Purpose::Train
            && run
                .members(*purpose, *step, None)
                .first()
                .is_some_and(|id| {
                    run.view
                        .trajectories
                        .get(id)
                        .is_some_and(|of| of.outcome_advantage.is_some())
                })
    };
    steps
        .iter()
        .rev()
        .find(credited)
        .map_or(0, |(_, step)| *step)
}

/// The question of the group, and the way to other groups.
fn group_on_the_table(ui: &mut Ui, bench: &mut Bench) {
    let count = bench.inputs.groups.len();
    ui.horizontal_wrapped(|ui| {
        if let Some((question, gold)) = bench.questions.get(bench.group) {
            ui.weak("question");
            ui.label(question.replace("<q>", "").replace("</q>", "").trim());
            ui.weak("right answer");
            ui.label(gold.trim());
        }
        if count > 1 && ui.button("Another group").clicked() {
            bench.choose((bench.group + 1) % count);
        }
    });
}

/// Two settings side by side: the weights of the shown rollout under each.
fn compare(
    ui: &mut Ui,
    bench: &mut Bench,
    other: &mut Option<(CreditSettings, Vec<f64>)>,
    scene: &Scene,
) {
    ui.horizontal(|ui| {
        let text = if other.is_some() {
            "Forget B"
        } else {
            "Keep this as B"
        };
        if ui
            .button(text)
            .on_hover_text("Keeps these settings beside what you move next")
            .clicked()
        {
            *other = match other {
                Some(_) => None,
                None => Some((bench.settings, bench.rewards.clone())),
            };
        }
        if other.is_some()
            && ui.button("Change A and B").clicked()
            && let Some((settings, rewards)) = other
        {
            std::mem::swap(&mut bench.settings, settings);
            if rewards.len() == bench.rewards.len() {
                std::mem::swap(&mut bench.rewards, rewards);
            }
        }
    });
    if let Some((settings, _)) = other {
        let kept = bench
            .under(settings)
            .ok()
            .and_then(|made| bench.document(&made));
        scene.strip(ui, "B", kept);
    }
}

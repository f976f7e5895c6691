//! The panel: its controls, the charts by question, and where a click leads.

use std::collections::BTreeMap;

use eframe::egui::{ComboBox, Id, RichText, Role, ScrollArea, Slider, TextEdit, Ui, WidgetInfo};

use super::charts::{COLD_START, ChartOf, GROUPS, Leads, full_name, leads_of};
use super::series::{How, curves, most_measured, names, objectives_of};
use crate::gui::Command;
use crate::gui::chart::{Chart, Curve};
use crate::gui::keys::{keeps_arrows, scroll_pages};
use crate::gui::run::Run;
use crate::gui::theme::Colours;
use crate::gui::world::{Tab, World};
use crate::record::names::MetricName;

/// What the kept lines were made from.
#[derive(Clone, Debug, Default, PartialEq)]
struct Made {
    runs: Vec<(usize, u64, u64)>,
    smoothing: f64,
    bands: bool,
    objectives: Option<u32>,
    dark: bool,
}

/// The Curves panel.
pub struct CurvesPanel {
    smoothing: f64,
    log: bool,
    bands: bool,
    compare: bool,
    search: String,
    /// The count of objectives of the evaluations; none: the one measured most often.
    objectives: Option<u32>,
    /// Titles of the charts that stand first.
    pinned: Vec<String>,
    /// The lines of every chart that was shown, until something changes.
    kept: BTreeMap<String, Vec<Curve>>,
    made: Made,
}

impl Default for CurvesPanel {
    fn default() -> Self {
        Self {
            smoothing: 0.0,
            log: false,
            bands: false,
            compare: true,
            search: String::new(),
            objectives: None,
            pinned: Vec::new(),
            kept: BTreeMap::new(),
            made: Made::default(),
        }
    }
}

/// What the charts of a frame have in common.
struct Frame<'a> {
    runs: Vec<(usize, &'a Run)>,
    colours: Colours,
    at: f64,
}

impl CurvesPanel {
    /// Does what a command asks of this panel.
    pub fn command(&mut self, command: Command) {
        match command {
            Command::ToggleBands => self.bands = !self.bands,
            Command::ToggleLog => self.log = !self.log,
            _ => {}
        }
    }

    /// Draws the panel.
    pub fn ui(&mut self, ui: &mut Ui, world: &mut World) {
        self.controls(ui, world);
        ui.separator();
        let pages = std::mem::take(&mut world.pages);
        let trained = world.selection.id.purpose == crate::trajectory::Purpose::Train;
        let frame = Frame {
            runs: self.compared(world),
            colours: world.theme.of(ui.ctx()).clone(),
            // Steps of metrics count from 1; the rollouts of the first have the number 0.
            at: f64::from(world.selection.id.step) + f64::from(u8::from(trained)),
        };
        let made = Made {
            runs: frame
                .runs
                .iter()
                .map(|(number, run)| (*number, run.epoch, run.measured))
                .collect(),
            smoothing: self.smoothing,
            bands: self.bands,
            objectives: self.objectives,
            dark: ui.visuals().dark_mode,
        };
        if self.made != made {
            self.kept.clear();
            self.made = made;
        }
        let mut clicked = None;
        ScrollArea::vertical()
            .id_salt("curves")
            .auto_shrink(false)
            .show(ui, |ui| {
                scroll_pages(ui, pages);
                let search = self.search.trim().to_lowercase();
                if search.is_empty() {
                    clicked = self.by_question(ui, &frame);
                    return;
                }
                let names = names(&world.runs, &search);
                if names.is_empty() {
                    ui.label("No metric of the open runs has these letters.");
                }
                clicked = self.grid(ui, names.len(), |panel, ui, number| {
                    let name = names.get(number)?;
                    let meaning = MetricName::find(name).map_or("", |entry| entry.meaning);
                    let metrics = [name.as_str()];
                    let chart = ChartOf::new(name, &metrics, meaning).leads(leads_of(name));
                    panel.cell(ui, &chart, &frame)
                });
            });
        if let Some((leads, x)) = clicked {
            lead(world, leads, x);
        }
    }

    fn controls(&mut self, ui: &mut Ui, world: &World) {
        ui.horizontal_wrapped(|ui| {
            let slider = ui.add(Slider::new(&mut self.smoothing, 0.0..=0.95).text("smoothing"));
            keeps_arrows(ui, &slider);
            ui.checkbox(&mut self.log, "powers of ten");
            if world.runs.len() > 1 {
                ui.checkbox(&mut self.compare, "all open runs");
                ui.checkbox(&mut self.bands, "bands over seeds")
                    .on_hover_text(Command::ToggleBands.tooltip());
            }
            if let Some(run) = world.run() {
                self.objectives(ui, run);
            }
            ui.label("metric");
            let edit = ui.add(TextEdit::singleline(&mut self.search).desired_width(140.0));
            edit.widget_info(|| {
                WidgetInfo::labeled(Role::TextInput, true, "Search among all metrics")
            });
        });
    }

    /// The choice of objectives, where evaluations ask for several counts.
    fn objectives(&mut self, ui: &mut Ui, run: &Run) {
        let counts = objectives_of(run);
        if counts.len() < 2 {
            return;
        }
        let most = most_measured(run).unwrap_or(0);
        let shown = self.objectives.unwrap_or(most);
        let combo = ComboBox::from_id_salt("objectives")
            .selected_text(format!("evaluations of {shown} objectives"))
            .show_ui(ui, |ui| {
                for count in counts {
                    let often = if count == most {
                        ", measured most often"
                    } else {
                        ""
                    };
                    let here = count == shown;
                    if ui
                        .selectable_label(here, format!("{count} objectives{often}"))
                        .clicked()
                    {
                        self.objectives = Some(count);
                    }
                }
            });
        combo.response.widget_info(|| {
            let text = format!("Evaluations of {shown} objectives");
            WidgetInfo::labeled(Role::ComboBox, true, text)
        });
    }

    fn compared<'a>(&self, world: &'a World) -> Vec<(usize, &'a Run)> {
        let compared = |number: &usize| self.compare || *number == world.current;
        world
            .runs
            .iter()
            .enumerate()
            .filter(|(number, _)| compared(number))
            .collect()
    }

    /// The pinned charts, then all by the question that they answer.
    fn by_question(&mut self, ui: &mut Ui, frame: &Frame<'_>) -> Option<(Leads, f64)> {
        let mut clicked = None;
        let (cold_title, cold) = COLD_START;
        let pinned: Vec<ChartOf<'static>> = GROUPS
            .iter()
            .flat_map(|(_, charts)| charts.iter())
            .chain(cold)
            .filter(|chart| self.pinned.iter().any(|title| title == chart.title))
            .copied()
            .collect();
        if !pinned.is_empty() {
            clicked = self.section(ui, "Pinned", &pinned, frame);
            ui.separator();
        }
        let cold: Vec<ChartOf<'static>> = cold
            .iter()
            .filter(|chart| self.has_points(chart, frame))
            .copied()
            .collect();
        let any = |charts: &[ChartOf<'static>], panel: &mut Self| {
            charts.iter().any(|chart| panel.has_points(chart, frame))
        };
        let trained = GROUPS.iter().any(|(_, charts)| any(charts, self));
        // Until RL begins the cold start is all there is; afterwards it is history.
        if !trained && !cold.is_empty() {
            clicked = self.section(ui, cold_title, &cold, frame).or(clicked);
            ui.label("No step of RL has been done yet: its charts fill with the first one.");
            return clicked;
        }
        for (question, charts) in GROUPS {
            clicked = self.section(ui, question, charts, frame).or(clicked);
        }
        if !cold.is_empty() {
            clicked = self.section(ui, cold_title, &cold, frame).or(clicked);
        }
        clicked
    }

    fn section(
        &mut self,
        ui: &mut Ui,
        title: &str,
        charts: &[ChartOf<'_>],
        frame: &Frame<'_>,
    ) -> Option<(Leads, f64)> {
        ui.heading(title);
        ui.push_id(title, |ui| {
            self.grid(ui, charts.len(), |panel, ui, number| {
                panel.cell(ui, charts.get(number)?, frame)
            })
        })
        .inner
    }

    /// Cells in as many columns as fit.
    fn grid(
        &mut self,
        ui: &mut Ui,
        count: usize,
        mut cell: impl FnMut(&mut Self, &mut Ui, usize) -> Option<(Leads, f64)>,
    ) -> Option<(Leads, f64)> {
        let columns = ((ui.available_width() / 300.0).floor() as usize).clamp(1, 4);
        let width = ui.available_width() / columns as f32 - 12.0;
        let mut clicked = None;
        for from in (0..count).step_by(columns) {
            ui.horizontal_top(|ui| {
                for number in from..(from + columns).min(count) {
                    ui.vertical(|ui| {
                        ui.set_width(width);
                        clicked = cell(self, ui, number).or(clicked);
                    });
                }
            });
        }
        clicked
    }

    /// A chart with its title, its pin, the names of its metrics, and what it means.
    fn cell(
        &mut self,
        ui: &mut Ui,
        chart: &ChartOf<'_>,
        frame: &Frame<'_>,
    ) -> Option<(Leads, f64)> {
        ui.horizontal(|ui| {
            ui.strong(chart.title);
            let at = self.pinned.iter().position(|title| title == chart.title);
            let pin = ui.selectable_label(at.is_some(), "pin");
            let pin = pin.on_hover_text("Keeps this chart above the others");
            pin.widget_info(|| {
                let text = format!("Pin {}", chart.title);
                WidgetInfo::selected(Role::Button, true, at.is_some(), text)
            });
            if pin.clicked() {
                match at {
                    Some(at) => drop(self.pinned.remove(at)),
                    None => self.pinned.push(chart.title.to_owned()),
                }
            }
        });
        let written = self.has_points(chart, frame);
        let curves = self.kept.get(chart.title).map_or(&[][..], Vec::as_slice);
        let clicked = if written {
            Chart {
                title: chart.title,
                across: "step",
                curves,
                at: (chart.leads != Leads::Nowhere).then_some(frame.at),
                height: 150.0,
                log: self.log,
                span: chart.span,
                group: (chart.leads != Leads::Nowhere).then(|| Id::unique("steps")),
                cursor: frame.colours.focus,
                grid: frame.colours.line,
            }
            .show(ui)
        } else {
            ui.weak("not written by this run");
            None
        };
        if chart.metrics != [chart.title] {
            let names: Vec<&str> = chart.metrics.iter().map(|name| full_name(name)).collect();
            let names = names.join(", ");
            ui.label(
                RichText::new(names)
                    .monospace()
                    .size(12.0)
                    .color(frame.colours.weak),
            );
        }
        ui.weak(chart.means);
        clicked.map(|x| (chart.leads, x))
    }

    /// Makes the lines of a chart, unless they are there; says whether they hold a point.
    fn has_points(&mut self, chart: &ChartOf<'_>, frame: &Frame<'_>) -> bool {
        if !self.kept.contains_key(chart.title) {
            let how = How {
                smoothing: self.smoothing,
                bands: self.bands,
                objectives: self.objectives,
            };
            let made = curves(&frame.runs, chart, &how, &frame.colours);
            self.kept.insert(chart.title.to_owned(), made);
        }
        let kept = self.kept.get(chart.title);
        kept.is_some_and(|curves| curves.iter().any(|curve| !curve.points.is_empty()))
    }

    /// What is shown, as CSV: run, metric, step, value as it was recorded.
    #[must_use]
    pub fn table(&self, world: &World) -> String {
        let mut text = String::from("run,metric,step,value\n");
        let search = self.search.trim().to_lowercase();
        for (_, run) in self.compared(world) {
            let name = run.name();
            for (metric, points) in &run.view.series {
                if search.is_empty() || metric.to_lowercase().contains(&search) {
                    for (step, value) in points {
                        text.push_str(&format!("{name},{metric},{step},{value}\n"));
                    }
                }
            }
        }
        text
    }
}

/// Goes where a click into a chart leads.
fn lead(world: &mut World, leads: Leads, x: f64) {
    let Some(run) = world.runs.get(world.current) else {
        return;
    };
    match leads {
        Leads::Nowhere => return,
        Leads::Step => {
            let step = (x.round().max(1.0) as u32).saturating_sub(1);
            world.selection.go_to_step(run, step);
        }
        Leads::Evaluation => {
            if !world.selection.go_to_evaluation(run, x) {
                return world.say("The record keeps no rollout of an evaluation");
            }
        }
    }
    let id = world.selection.id;
    let place = crate::gui::words::step_name(id.purpose, id.step);
    world.tab = Tab::Watch;
    world.say(format!("The rollouts of {place}"));
}

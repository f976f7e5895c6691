//! The Curves panel: the metrics of the open runs, grouped by the question that they answer.

use std::collections::BTreeMap;

use eframe::egui::{Id, ScrollArea, Slider, TextEdit, Ui};

use super::chart::{Chart, Curve, smoothed};
use super::run::Run;
use super::theme::Colours;
use super::world::{Tab, World};
use crate::record::names::MetricName;

/// A chart that is always there.
struct Fixed {
    title: &'static str,
    /// Metrics by verl's names, or their common beginning with a `*`.
    metrics: &'static [&'static str],
    /// What a high value means.
    means: &'static str,
}

/// Charts by the question that they answer.
#[rustfmt::skip]
const GROUPS: [(&str, &[Fixed]); 3] = [
    ("Is it learning?", &[
        Fixed { title: "Reward", metrics: &["critic/score/mean"], means: "High: more rollouts are right." },
        Fixed { title: "Evaluation, exact match", metrics: &["val-core/*"], means: "High: unseen questions are answered. Deployed context: from the notes alone." },
        Fixed { title: "Groups without spread", metrics: &["groups/without_spread"], means: "High: most groups give no outcome signal." },
        Fixed { title: "Facts kept in the notes", metrics: &["memory/notes_recall"], means: "High: what was read is written down." },
        Fixed { title: "Memory reward", metrics: &["memory/reward/mean", "memory/reward/std"], means: "A spread of 0: the notes get no signal." },
    ]),
    ("Is it healthy?", &[
        Fixed { title: "Entropy", metrics: &["actor/entropy"], means: "Near 0: it no longer explores." },
        Fixed { title: "Clipped tokens", metrics: &["actor/pg_clipfrac"], means: "Above 0.3: the update goes too far." },
        Fixed { title: "Engine against learner", metrics: &["training/rollout_probs_diff_max"], means: "High: the two disagree about the same weights." },
        Fixed { title: "Length of the notes", metrics: &["memory/notes_tokens"], means: "High: notes grow; is it worth it?" },
        Fixed { title: "Valid rollouts", metrics: &["outcome/valid"], means: "Low: the protocol is broken often." },
        Fixed { title: "Gradient norm", metrics: &["actor/grad_norm"], means: "A jump: an update that hurts." },
    ]),
    ("Is it fast?", &[
        Fixed { title: "Throughput", metrics: &["perf/throughput"], means: "Tokens of the step by its time." },
        Fixed { title: "Time of a step", metrics: &["timing_s/gen", "timing_s/adv", "timing_s/update_actor"], means: "Where the seconds go." },
        Fixed { title: "Length of a rollout", metrics: &["response_length/mean"], means: "High: steps take longer." },
    ]),
];

/// The Curves panel.
pub struct CurvesPanel {
    smoothing: f64,
    log: bool,
    bands: bool,
    compare: bool,
    search: String,
}

impl Default for CurvesPanel {
    fn default() -> Self {
        Self {
            smoothing: 0.0,
            log: false,
            bands: false,
            compare: true,
            search: String::new(),
        }
    }
}

impl CurvesPanel {
    /// Draws the panel.
    pub fn ui(&mut self, ui: &mut Ui, world: &mut World) {
        ui.horizontal_wrapped(|ui| {
            ui.add(Slider::new(&mut self.smoothing, 0.0..=0.95).text("smoothing"));
            ui.checkbox(&mut self.log, "powers of ten");
            if world.runs.len() > 1 {
                ui.checkbox(&mut self.compare, "all open runs");
                ui.checkbox(&mut self.bands, "bands over seeds")
                    .on_hover_text("Runs of one name become one line: mean, lowest and highest");
            }
            ui.label("metric");
            let edit = ui.add(TextEdit::singleline(&mut self.search).desired_width(140.0));
            edit.widget_info(|| {
                eframe::egui::WidgetInfo::labeled(
                    eframe::egui::Role::TextInput,
                    true,
                    "Search among all metrics",
                )
            });
        });
        ui.separator();
        let colours = world.theme.of(ui.ctx()).clone();
        let at = f64::from(world.selection.id.step)
            + f64::from(u8::from(
                world.selection.id.purpose == crate::trajectory::Purpose::Train,
            ));
        let mut clicked = None;
        ScrollArea::vertical()
            .id_salt("curves")
            .auto_shrink(false)
            .show(ui, |ui| {
                let search = self.search.trim().to_lowercase();
                if search.is_empty() {
                    for (question, charts) in GROUPS {
                        ui.heading(question);
                        self.grid(ui, charts.len(), |ui, number, width| {
                            let Some(chart) = charts.get(number) else {
                                return;
                            };
                            let curves = self.curves(world, chart.metrics, &colours);
                            ui.set_width(width);
                            ui.strong(chart.title);
                            let title = chart.title;
                            clicked = self.chart(ui, title, &curves, at, &colours).or(clicked);
                            ui.weak(chart.means);
                        });
                    }
                } else {
                    let names = names(world, &search);
                    if names.is_empty() {
                        ui.label("No metric of the open runs has these letters.");
                    }
                    self.grid(ui, names.len(), |ui, number, width| {
                        let Some(name) = names.get(number) else {
                            return;
                        };
                        let curves = self.curves(world, &[name], &colours);
                        ui.set_width(width);
                        ui.strong(name);
                        clicked = self.chart(ui, name, &curves, at, &colours).or(clicked);
                        if let Some(entry) = MetricName::find(name) {
                            ui.weak(entry.meaning);
                        }
                    });
                }
            });
        if let Some(step) = clicked {
            // Steps of metrics count from 1; the rollouts of the first have the number 0.
            let step = (step.round().max(1.0) as u32).saturating_sub(1);
            if let Some(run) = world.runs.get(world.current) {
                world.selection.go_to_step(run, step);
            }
            world.tab = Tab::Watch;
            world.say(format!(
                "The rollouts of step {}",
                world.selection.id.step + 1
            ));
        }
    }

    /// Cells in as many columns as fit.
    fn grid(&self, ui: &mut Ui, count: usize, mut cell: impl FnMut(&mut Ui, usize, f32)) {
        let columns = ((ui.available_width() / 300.0).floor() as usize).clamp(1, 4);
        let width = ui.available_width() / columns as f32 - 12.0;
        for from in (0..count).step_by(columns) {
            ui.horizontal_top(|ui| {
                for number in from..(from + columns).min(count) {
                    ui.vertical(|ui| cell(ui, number, width));
                }
            });
        }
    }

    fn chart(
        &self,
        ui: &mut Ui,
        title: &str,
        curves: &[Curve],
        at: f64,
        colours: &Colours,
    ) -> Option<f64> {
        if curves.iter().all(|curve| curve.points.is_empty()) {
            ui.weak("not written by this run");
            return None;
        }
        Chart {
            title,
            across: "step",
            curves,
            at: Some(at),
            height: 150.0,
            log: self.log,
            group: Some(Id::unique("steps")),
            cursor: colours.focus,
        }
        .show(ui)
    }

    /// The lines of a chart: every metric of every run that is compared.
    fn curves(&self, world: &World, metrics: &[&str], colours: &Colours) -> Vec<Curve> {
        let compared = |number: &usize| self.compare || *number == world.current;
        let runs: Vec<(usize, &Run)> = world
            .runs
            .iter()
            .enumerate()
            .filter(|(number, _)| compared(number))
            .collect();
        let several = runs.len() > 1;
        let mut by_name: BTreeMap<(String, usize, String), Vec<(usize, Vec<(f64, f64)>)>> =
            BTreeMap::new();
        for (number, run) in &runs {
            for (metric, points) in series_of(run, metrics) {
                // Two folders may have one name; only bands put runs together by it.
                let (name, place) = match self.bands {
                    true => (run.view.name.clone(), 0),
                    false => (run.name(), *number),
                };
                let line = by_name.entry((metric, place, name)).or_default();
                line.push((*number, points));
            }
        }
        let mut metrics_seen: Vec<String> = Vec::new();
        let mut curves = Vec::new();
        for ((metric, _, run), members) in by_name {
            if !metrics_seen.contains(&metric) {
                metrics_seen.push(metric.clone());
            }
            let kind = metrics_seen
                .iter()
                .position(|seen| *seen == metric)
                .unwrap_or(0);
            let first = members.first().map_or(0, |(number, _)| *number);
            let (points, band) = banded(&members);
            let tail = short(&metric);
            curves.push(Curve {
                name: if several {
                    format!("{run} {tail}")
                } else {
                    tail
                },
                points: smoothed(&points, self.smoothing),
                band,
                // With one run the metrics have colours; with several the runs have, always the same.
                colour: colours.run(if several { first } else { kind }),
                dashed: several && kind % 2 == 1,
            });
        }
        curves
    }

    /// What is shown, as CSV: run, metric, step, value as it was recorded.
    #[must_use]
    pub fn table(&self, world: &World) -> String {
        let mut text = String::from("run,metric,step,value\n");
        let search = self.search.trim().to_lowercase();
        for (number, run) in world.runs.iter().enumerate() {
            if !self.compare && number != world.current {
                continue;
            }
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

/// Mean of runs at each step that all of them have, and the ends; one run is its own mean.
fn banded(members: &[(usize, Vec<(f64, f64)>)]) -> (Vec<(f64, f64)>, Option<Vec<(f64, f64)>>) {
    if let [(_, alone)] = members {
        return (alone.clone(), None);
    }
    let mut at: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for &(step, value) in members.iter().flat_map(|(_, points)| points) {
        at.entry(step as u64).or_default().push(value);
    }
    at.retain(|_, values| values.len() == members.len());
    let mean = |values: &Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
    let points = at
        .iter()
        .map(|(step, values)| (*step as f64, mean(values)))
        .collect();
    let ends = |values: &Vec<f64>| {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        (
            low,
            values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        )
    };
    (points, Some(at.values().map(ends).collect()))
}

/// The series that a list of names asks for. A `*` at the end takes all that begin alike; of
/// evaluations only those with the fewest and the most objectives, which say the most.
fn series_of(run: &Run, metrics: &[&str]) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut found = Vec::new();
    for name in metrics {
        let Some(beginning) = name.strip_suffix('*') else {
            found.push(((*name).to_owned(), wide(run.view.metric(name))));
            continue;
        };
        let all: Vec<&String> = run
            .view
            .series
            .keys()
            .filter(|name| name.starts_with(beginning))
            .collect();
        let number = |name: &str| {
            name.rsplit('/')
                .next()
                .and_then(|tail| tail.parse::<u32>().ok())
        };
        // Objectives that were measured more than once: a line needs two points.
        let often = |name: &&&String| run.view.metric(name).len() > 1;
        let shown: Vec<u32> = all
            .iter()
            .filter(often)
            .filter_map(|name| number(name))
            .collect();
        let wanted = shown.iter().max().copied();
        for name in all
            .iter()
            .filter(|name| wanted.is_none() || number(name) == wanted)
        {
            found.push(((*name).clone(), wide(run.view.metric(name))));
        }
    }
    found
}

fn wide(points: &[(u32, f64)]) -> Vec<(f64, f64)> {
    points
        .iter()
        .map(|&(step, value)| (f64::from(step), value))
        .collect()
}

/// The end of a name, which tells lines of one chart apart.
fn short(metric: &str) -> String {
    let parts: Vec<&str> = metric.split('/').collect();
    parts
        .get(parts.len().saturating_sub(2)..)
        .unwrap_or_default()
        .join("/")
}

/// Metrics of all open runs whose names hold these letters.
fn names(world: &World, search: &str) -> Vec<String> {
    let mut names: Vec<String> = world
        .runs
        .iter()
        .flat_map(|run| run.view.series.keys())
        .filter(|name| name.to_lowercase().contains(search))
        .cloned()
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_band_holds_the_steps_that_every_run_has() {
        let members = [
            (0, vec![(1.0, 1.0), (2.0, 4.0)]),
            (1, vec![(1.0, 3.0), (2.0, 0.0), (3.0, 9.0)]),
        ];
        let (points, band) = banded(&members);
        assert_eq!(points, [(1.0, 2.0), (2.0, 2.0)]);
        assert_eq!(band.unwrap(), [(1.0, 3.0), (0.0, 4.0)]);
    }

    #[test]
    fn every_fixed_chart_names_metrics_that_exist() {
        for chart in GROUPS.iter().flat_map(|(_, charts)| *charts) {
            for name in chart.metrics.iter().filter(|name| !name.ends_with('*')) {
                assert!(MetricName::find(name).is_some(), "{name}");
            }
        }
    }
}

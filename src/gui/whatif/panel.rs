//! The What-if panel: the form beside what came of it; one below the other where the window is narrow.

use eframe::egui::{Button, ScrollArea, Ui};

use super::inputs::{StepInputs, inputs, recorded_settings};
use super::recompute::{Recomputed, Scope, recompute, state_before};
use super::results::{Counts, Shown, counts};
use super::settings::form;
use crate::experiment::CreditSettings;
use crate::gui::keys::scroll_pages;
use crate::gui::world::World;
use crate::gui::{GuiError, Run};
use crate::trajectory::Purpose;

/// Width of the form, points.
const FORM: f32 = 300.0;
/// Below this width the results stand under the form.
const WIDE: f32 = 660.0;

/// Which step of which run, and what it held: the run's number, the stamp of the step, the step.
type Key = (usize, u64, u32);

/// What was taken out of the record.
struct Taken {
    step: u32,
    inputs: StepInputs,
    recorded: CreditSettings,
}

/// What came of the settings.
struct Made {
    settings: CreditSettings,
    result: Result<(Recomputed, Counts), String>,
    shown: Option<Shown>,
}

/// The What-if panel.
#[derive(Default)]
pub struct WhatIfPanel {
    settings: Option<CreditSettings>,
    taken: Option<Result<Taken, String>>,
    tried: Option<Key>,
    made: Option<Made>,
}

impl WhatIfPanel {
    /// Back to the settings of the record.
    pub fn reset(&mut self) {
        self.settings = None;
        self.made = None;
    }

    /// The last table, as CSV.
    #[must_use]
    pub fn table(&self) -> String {
        let shown = self.made.as_ref().and_then(|made| made.shown.as_ref());
        shown.map(|shown| shown.csv.clone()).unwrap_or_default()
    }

    /// Draws the panel.
    pub fn ui(&mut self, ui: &mut Ui, world: &mut World) {
        let id = world.selection.id;
        if id.purpose == Purpose::Evaluate {
            ui.label(
                "Evaluations are not trained on, so they have no credit. Select a training step.",
            );
            return;
        }
        self.prepare(world);
        let recorded = match &self.taken {
            Some(Ok(taken)) => taken.recorded,
            Some(Err(why)) => {
                ui.label(why);
                return;
            }
            None => return,
        };
        let mut settings = self.settings.unwrap_or(recorded);
        let pages = std::mem::take(&mut world.pages);
        if ui.available_width() >= WIDE {
            ui.horizontal_top(|ui| {
                ScrollArea::vertical()
                    .id_salt("form")
                    .max_width(FORM)
                    .show(ui, |ui| {
                        ui.vertical(|ui| {
                            ui.set_width(FORM);
                            edit(ui, &mut settings, &recorded);
                        });
                    });
                ui.separator();
                self.work_out(world, settings);
                ui.vertical(|ui| {
                    ScrollArea::both()
                        .id_salt("what if")
                        .auto_shrink(false)
                        .show(ui, |ui| {
                            scroll_pages(ui, pages);
                            self.results(ui, world);
                        });
                });
            });
        } else {
            ScrollArea::both()
                .id_salt("what if")
                .auto_shrink(false)
                .show(ui, |ui| {
                    scroll_pages(ui, pages);
                    edit(ui, &mut settings, &recorded);
                    ui.separator();
                    self.work_out(world, settings);
                    self.results(ui, world);
                });
        }
        self.settings = Some(settings).filter(|of| *of != recorded);
    }

    /// Takes the step out of the record, if that has changed.
    fn prepare(&mut self, world: &mut World) {
        let id = world.selection.id;
        let current = world.current;
        let Some(run) = world.run_mut() else { return };
        let key = (current, run.stamp(Purpose::Train, id.step, None), id.step);
        if self.tried == Some(key) {
            return;
        }
        self.tried = Some(key);
        self.made = None;
        self.taken = Some(take(run, id.step).map_err(|error| error.to_string()));
    }

    /// Works the settings out, unless that was done.
    fn work_out(&mut self, world: &mut World, settings: CreditSettings) {
        let (Some(Ok(taken)), Some(run)) = (&self.taken, world.run_mut()) else {
            return;
        };
        if self
            .made
            .as_ref()
            .is_none_or(|made| made.settings != settings)
        {
            let result = under(run, taken, &settings).map_err(|error| error.to_string());
            self.made = Some(Made {
                settings,
                result,
                shown: None,
            });
        }
    }

    fn results(&mut self, ui: &mut Ui, world: &mut World) {
        let (Some(Ok(taken)), Some(made)) = (&self.taken, &mut self.made) else {
            return;
        };
        let (recomputed, counts) = match &made.result {
            Ok(made) => made,
            Err(why) => {
                ui.label(why);
                return;
            }
        };
        ui.strong(format!(
            "Step {}: {} of {} token weights change, {} change their sign",
            taken.step + 1,
            counts.moved,
            counts.trained,
            counts.turned
        ));
        let id = world.selection.id;
        let shown = match made.shown.take() {
            Some(shown) if shown.id == id => shown,
            _ => Shown::new(id, &taken.inputs, recomputed),
        };
        let shown = made.shown.insert(shown);
        shown.strips(ui, world);
        ui.separator();
        shown.table(ui, world);
    }
}

/// The form, and the way back.
fn edit(ui: &mut Ui, settings: &mut CreditSettings, recorded: &CreditSettings) {
    ui.strong("Credit settings");
    ui.label(
        "They go through the learner's own functions, on this step's record; no rollout is made.",
    );
    form(ui, settings);
    let changed = settings != recorded;
    let back = ui.add_enabled(changed, Button::new("As recorded (R)"));
    if back.clicked() {
        *settings = *recorded;
    }
}

/// Takes a step out of the record. What does not give its own weights back says nothing of others.
fn take(run: &mut Run, step: u32) -> Result<Taken, GuiError> {
    let recorded = recorded_settings(run)?;
    let taken = Taken {
        step,
        inputs: inputs(run, step)?,
        recorded,
    };
    let (_, counts) = under(run, &taken, &recorded)?;
    if counts.moved > 0 {
        return Err(GuiError::NotRecorded(format!(
            "the recorded settings do not give the recorded weights back: {} of {} differ. The record is incomplete, or was written by a program that assigned credit in another way{}",
            counts.moved,
            counts.trained,
            match run.view.version.as_str() {
                "" => String::new(),
                version => format!(" (palimpsest {version})"),
            }
        )));
    }
    Ok(taken)
}

fn under(
    run: &mut Run,
    taken: &Taken,
    settings: &CreditSettings,
) -> Result<(Recomputed, Counts), GuiError> {
    let state = state_before(run, taken.step, settings, &taken.recorded)?;
    let scope = Scope {
        recorded: &taken.recorded,
        state: &state,
    };
    let made = recompute(&taken.inputs, settings, &scope)?;
    let counts = counts(&taken.inputs, &made);
    Ok((made, counts))
}

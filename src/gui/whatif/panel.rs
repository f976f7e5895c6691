//! The What-if panel: the form, the rollouts of the group before and after, the tokens before and
//! after.

use std::sync::Arc;

use eframe::egui::{Grid, ScrollArea, Ui};

use super::inputs::{StepInputs, inputs, recorded_settings};
use super::recompute::{Recomputed, Scope, document_of, recompute, state_before};
use super::settings::form;
use crate::credit::memory::MemoryCreditState;
use crate::experiment::CreditSettings;
use crate::gui::tokens::{Document, Strip};
use crate::gui::words::signed;
use crate::gui::world::World;
use crate::gui::{GuiError, Run};
use crate::trajectory::Purpose;

/// What was taken out of the record, and for which step of which run.
struct Taken {
    of: (usize, u64, u32),
    inputs: StepInputs,
    recorded: CreditSettings,
}

/// What came of the settings.
struct Made {
    settings: CreditSettings,
    result: Result<Recomputed, String>,
}

/// The What-if panel.
#[derive(Default)]
pub struct WhatIfPanel {
    settings: Option<CreditSettings>,
    taken: Option<Result<Taken, String>>,
    tried: Option<(usize, u64, u32)>,
    made: Option<Made>,
    table: String,
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
        self.table.clone()
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
        let current = world.current;
        let Some(revision) = world.run().map(|run| run.revision) else {
            return;
        };
        let key = (current, revision, id.step);
        if self.tried != Some(key)
            && let Some(run) = world.run_mut()
        {
            self.tried = Some(key);
            self.made = None;
            self.taken = Some(take(run, key).map_err(|error| error.to_string()));
        }
        let taken = match &self.taken {
            Some(Ok(taken)) => taken,
            Some(Err(why)) => {
                ui.label(why);
                return;
            }
            None => return,
        };
        let mut settings = self.settings.unwrap_or(taken.recorded);
        ui.horizontal_top(|ui| {
            ui.vertical(|ui| {
                ui.set_width(300.0);
                ui.strong("Credit settings");
                ui.label("Sliders call the learner's own functions on this step's record; no rollout is made.");
                form(ui, &mut settings);
                let changed = settings != taken.recorded;
                if ui.add_enabled(changed, eframe::egui::Button::new("As recorded (R)")).clicked() {
                    settings = taken.recorded;
                }
            });
            ui.separator();
            self.settings = Some(settings);
            if self.made.as_ref().is_none_or(|made| made.settings != settings)
                && let Some(run) = world.run_mut()
            {
                let result = work_out(run, taken, &settings).map_err(|error| error.to_string());
                self.made = Some(Made { settings, result });
            }
            ui.vertical(|ui| match self.made.as_ref().map(|made| &made.result) {
                Some(Ok(made)) => self.table = results(ui, world, taken, made),
                Some(Err(why)) => {
                    ui.label(why);
                }
                None => {}
            });
        });
    }
}

fn take(run: &mut Run, of: (usize, u64, u32)) -> Result<Taken, GuiError> {
    let recorded = recorded_settings(run)?;
    let inputs = inputs(run, of.2)?;
    Ok(Taken {
        of,
        inputs,
        recorded,
    })
}

fn work_out(
    run: &mut Run,
    taken: &Taken,
    settings: &CreditSettings,
) -> Result<Recomputed, GuiError> {
    let state: MemoryCreditState = state_before(run, taken.of.2, settings, &taken.recorded)?;
    recompute(
        &taken.inputs,
        settings,
        &Scope {
            recorded: &taken.recorded,
            state: &state,
        },
    )
}

/// The rollouts of the selected group before and after, and the tokens of the selected one.
fn results(ui: &mut Ui, world: &mut World, taken: &Taken, made: &Recomputed) -> String {
    let id = world.selection.id;
    let mut csv = String::from("group,rollout,part,turn,recorded,now\n");
    let mut tokens: Option<(Arc<Document>, Arc<Document>)> = None;
    let (mut moved, mut turned, mut trained) = (0u32, 0u32, 0u32);
    for (member, result) in taken
        .inputs
        .groups
        .iter()
        .flatten()
        .zip(made.groups.iter().flatten())
    {
        for (block, credit) in member.blocks.iter().zip(&result.credit) {
            for ((&on, &was), &now) in block.mask.iter().zip(&block.weight).zip(&credit.weight) {
                trained += u32::from(on);
                moved += u32::from(on && was.to_bits() != now.to_bits());
                turned += u32::from(on && was * now < 0.0);
            }
        }
    }
    ui.strong(format!(
        "Step {}: {moved} of {trained} token weights change, {turned} change their sign",
        taken.inputs.step + 1
    ));
    ScrollArea::vertical()
        .id_salt("what if")
        .auto_shrink(false)
        .show(ui, |ui| {
            Grid::new("members")
                .num_columns(4)
                .striped(true)
                .show(ui, |ui| {
                    for name in ["rollout", "part", "recorded", "now"] {
                        ui.strong(name);
                    }
                    ui.end_row();
                    for (group, results) in taken.inputs.groups.iter().zip(&made.groups) {
                        for (member, result) in group.iter().zip(results) {
                            if member.id.group != id.group {
                                continue;
                            }
                            let recorded = member.blocks.iter().flat_map(|block| {
                                block.mask.iter().zip(&block.outcome).filter(|(on, _)| **on)
                            });
                            let was = recorded.map(|(_, outcome)| *outcome).next().unwrap_or(0.0);
                            let mut line = |part: &str,
                                            turn: Option<u32>,
                                            was: Option<f32>,
                                            now: f32| {
                                let name = format!("#{}", member.id.member);
                                if ui.selectable_label(member.id == id, name).clicked() {
                                    world.selection = crate::gui::Selection::of(member.id);
                                }
                                ui.label(
                                    turn.map_or(part.to_owned(), |turn| format!("{part} {turn}")),
                                );
                                ui.label(was.map_or("none".into(), |was| signed(was, 3)));
                                ui.label(signed(now, 3));
                                ui.end_row();
                                let turn = turn.map_or(String::new(), |turn| turn.to_string());
                                let was = was.map_or(String::new(), |was| was.to_string());
                                csv.push_str(&format!(
                                    "{},{},{part},{turn},{was},{now}\n",
                                    member.id.group, member.id.member
                                ));
                            };
                            line("outcome", None, Some(was), result.advantages.outcome.mean());
                            for &(turn, now) in &result.advantages.memory {
                                let was = member.memory.iter().find(|of| of.turn == turn);
                                line("notes of turn", Some(turn), was.map(|of| of.advantage), now);
                            }
                            if member.id == id {
                                let vocabulary = &taken.inputs.vocabulary;
                                let before = Document::new(id, &member.blocks, vocabulary);
                                let after = document_of(member, result, vocabulary);
                                tokens = Some((Arc::new(before), Arc::new(after)));
                            }
                        }
                    }
                });
            ui.separator();
            if let Some((before, after)) = tokens {
                let colours = world.theme.of(ui.ctx()).clone();
                let limit = crate::gui::tokens::token_limit(
                    [before.as_ref(), after.as_ref()],
                    crate::gui::Value::Weight,
                );
                for (title, document) in [("Recorded", before), ("Now", after)] {
                    ui.strong(format!("{title}: weights of rollout {}", id.member));
                    Strip {
                        document: &document,
                        value: crate::gui::Value::Weight,
                        limit,
                        patterns: world.patterns,
                        written_only: true,
                    }
                    .show(ui, title, &colours);
                }
            }
        });
    csv
}

//! The left panel: steps, rewards, groups, troubles.

use eframe::egui::{Button, Context, Role, ScrollArea, Ui, WidgetInfo};

use super::histogram::histogram;
use super::troubles::TroubleList;
use crate::gui::words::step_name;
use crate::gui::world::World;
use crate::gui::{Command, Selection};
use crate::trajectory::TrajectoryId;

/// The list at the left.
#[derive(Default)]
pub struct Side {
    troubles: TroubleList,
}

impl Side {
    /// Draws the left panel.
    pub fn left(&mut self, ui: &mut Ui, world: &mut World) {
        let colours = world.theme.of(ui.ctx()).clone();
        steps(ui, world);
        ui.add_space(4.0);
        ui.strong("Rewards");
        histogram(ui, world);
        ui.separator();
        let troubles = 0.4 * ui.available_height();
        let height = (ui.available_height() - troubles - 34.0).max(60.0);
        ui.strong("Groups");
        groups(ui, world, height);
        ui.separator();
        self.troubles.show(ui, world, &colours);
    }

    /// Goes to the next thing that went wrong.
    pub fn next_trouble(&mut self, world: &mut World, context: &Context) {
        self.troubles.next(world, context);
    }
}

/// Which step is shown, and the ones beside it.
fn steps(ui: &mut Ui, world: &mut World) {
    let Some(run) = world.run() else { return };
    let id = world.selection.id;
    let steps = run.steps();
    if steps.is_empty() {
        ui.weak("No rollout so far");
        return;
    }
    let shown = step_name(id.purpose, id.step);
    let mut chosen = None;
    ui.horizontal(|ui| {
        if ui
            .button("<")
            .on_hover_text("Previous step (Ctrl+Left)")
            .clicked()
        {
            world.todo.push(Command::PreviousStep);
        }
        let width = ui.available_width() - 40.0;
        let combo = eframe::egui::ComboBox::from_id_salt("steps")
            .width(width)
            .selected_text(&shown);
        let height = ui.spacing().interact_size.y;
        let response = combo.show_ui(ui, |ui| {
            // Long runs have thousands of steps: only those in view are made.
            ScrollArea::vertical().max_height(300.0).show_rows(
                ui,
                height,
                steps.len(),
                |ui, range| {
                    for &(purpose, step) in steps.get(range).unwrap_or_default() {
                        let here = (purpose, step) == (id.purpose, id.step);
                        if ui
                            .selectable_label(here, step_name(purpose, step))
                            .clicked()
                        {
                            chosen = Some((purpose, step));
                        }
                    }
                },
            );
        });
        response.response.widget_info(|| {
            WidgetInfo::labeled(Role::ComboBox, true, format!("Step shown: {shown}"))
        });
        if ui
            .button(">")
            .on_hover_text("Next step (Ctrl+Right)")
            .clicked()
        {
            world.todo.push(Command::NextStep);
        }
    });
    let first = chosen
        .and_then(|(purpose, step)| world.run()?.members(purpose, step, None).first().copied());
    if let Some(first) = first {
        world.selection = Selection::of(first);
    }
}

/// The groups of the step that hold a rollout with a wanted reward: how many are done, and their mean.
fn groups(ui: &mut Ui, world: &mut World, height: f32) {
    let Some(run) = world.run() else { return };
    let id = world.selection.id;
    let members = run.members(id.purpose, id.step, None);
    let passing = world.passing(None);
    let groups: Vec<&[TrajectoryId]> = members
        .chunk_by(|a, b| a.group == b.group)
        .filter(|of| {
            let group = of.first().map(|id| id.group);
            world.filter.is_none() || passing.iter().any(|id| Some(id.group) == group)
        })
        .collect();
    let row = ui.spacing().interact_size.y;
    let mut chosen = None;
    let area = ScrollArea::vertical()
        .id_salt("groups")
        .max_height(height)
        .auto_shrink(false);
    area.show_rows(ui, row, groups.len(), |ui, range| {
        for of in groups.get(range).unwrap_or_default() {
            let Some(first) = of.first() else { continue };
            let rewards: Vec<f32> = of
                .iter()
                .filter_map(|id| run.reward_at(*id, world.cursor))
                .collect();
            let mean = rewards.iter().sum::<f32>() / rewards.len().max(1) as f32;
            let spread = rewards
                .windows(2)
                .any(|pair| matches!(pair, [a, b] if a != b));
            let matching = passing.iter().filter(|id| id.group == first.group).count();
            let state = if world.filter.is_some() {
                format!("{matching} of {} match", of.len())
            } else if rewards.len() < of.len() {
                format!("{}/{} done", rewards.len(), of.len())
            } else {
                let dead = !spread && of.len() > 1;
                format!("mean {mean:.2}{}", if dead { "  no spread" } else { "" })
            };
            let text = format!("group {}   {state}", first.group);
            let here = first.group == id.group;
            if ui.add(Button::selectable(here, text).truncate()).clicked() {
                let wanted = passing.iter().find(|id| id.group == first.group);
                chosen = Some(*wanted.unwrap_or(first));
            }
        }
    });
    if let Some(first) = chosen {
        world.selection = Selection::of(first);
    }
}

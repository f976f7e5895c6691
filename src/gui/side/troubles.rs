//! The list of what went wrong. Every entry is read in full, and leads to its cause.

use eframe::egui::{Button, Context, RichText, ScrollArea, Ui};

use crate::gui::Selection;
use crate::gui::theme::Colours;
use crate::gui::trouble::{Entry, Jump, Troubles};
use crate::gui::world::{Tab, World};
use crate::trajectory::{Purpose, TrajectoryId};

/// Entries that are laid out at first, and more with every wish: each takes as many lines as it needs.
const PAGE: usize = 60;

/// The list with what was chosen of it.
#[derive(Default)]
pub struct TroubleList {
    troubles: Troubles,
    more: usize,
    at: Option<usize>,
}

impl TroubleList {
    /// Draws the list.
    pub fn show(&mut self, ui: &mut Ui, world: &mut World, colours: &Colours) {
        let Some(run) = world.runs.get(world.current) else {
            return;
        };
        let entries = self.troubles.of(world.current, run, ui.ctx());
        ui.strong(format!("Trouble ({})", entries.len()));
        let room = PAGE + self.more;
        let (mut jump, mut more) = (None, false);
        ScrollArea::vertical()
            .id_salt("troubles")
            .auto_shrink(false)
            .show(ui, |ui| {
                for (number, entry) in entries.iter().take(room).enumerate() {
                    let text = RichText::new(&entry.text).color(colours.warning);
                    let here = self.at == Some(number);
                    let row = ui.add(Button::new(text).frame(here).wrap());
                    if row.clicked() {
                        jump = Some((number, entry.clone()));
                    }
                }
                if entries.len() > room {
                    let text = format!("{} more: show them", entries.len() - room);
                    more = ui.button(text).clicked();
                }
            });
        if more {
            self.more += PAGE * 4;
        }
        if let Some((number, entry)) = jump {
            self.at = Some(number);
            go(&entry, world, ui.ctx());
        }
    }

    /// Goes to the entry after the last one that was chosen, and round again.
    pub fn next(&mut self, world: &mut World, context: &Context) {
        let Some(run) = world.runs.get(world.current) else {
            return;
        };
        let entries = self.troubles.of(world.current, run, context);
        let next = self.at.map_or(0, |at| at + 1) % entries.len().max(1);
        let Some(entry) = entries.get(next).cloned() else {
            return world.say("Nothing went wrong in this run");
        };
        self.at = Some(next);
        go(&entry, world, context);
        world.say(entry.text);
    }
}

/// Where an entry leads.
fn go(entry: &Entry, world: &mut World, context: &Context) {
    match entry.jump {
        Jump::Trajectory(id) => {
            world.selection = Selection::of(id);
            world.tab = Tab::Watch;
        }
        Jump::Group(step, group) => {
            let id = TrajectoryId {
                step,
                purpose: Purpose::Train,
                group,
                member: 0,
            };
            world.selection = Selection::of(id);
            world.tab = Tab::Watch;
        }
        Jump::Step(step) => {
            if let Some(run) = world.runs.get(world.current) {
                world.selection.go_to_step(run, step.saturating_sub(1));
            }
            world.tab = Tab::Curves;
        }
        Jump::Nowhere => {
            context.copy_text(entry.text.clone());
            world.say(format!("{} (copied)", entry.text));
        }
    }
}

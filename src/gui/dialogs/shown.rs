//! Which dialog is open.

use eframe::egui::{Context, Id, Modal};

use super::fork::{ForkDraft, draft, fork};
use super::open::{Opening, open_lesson};
use super::palette::{keys, palette};
use crate::gui::Command;
use crate::gui::world::World;

/// What is open.
#[derive(Default)]
enum Shown {
    #[default]
    Nothing,
    Palette {
        search: String,
        at: usize,
    },
    Keys,
    OpenRun(Opening),
    OpenLesson,
    Fork(ForkDraft),
}

/// The dialogs; at most one is open.
#[derive(Default)]
pub struct Dialogs {
    shown: Shown,
    fresh: bool,
}

impl Dialogs {
    /// Whether one is open.
    #[must_use]
    pub fn open_now(&self) -> bool {
        !matches!(self.shown, Shown::Nothing)
    }

    /// Opens the dialog of a command, or closes it if it is open.
    pub fn open(&mut self, command: Command, world: &mut World) {
        self.fresh = true;
        self.shown = match command {
            Command::Palette => Shown::Palette {
                search: String::new(),
                at: 0,
            },
            Command::Keys => match self.shown {
                Shown::Keys => Shown::Nothing,
                _ => Shown::Keys,
            },
            Command::OpenRun => Shown::OpenRun(Opening::default()),
            Command::OpenLesson => Shown::OpenLesson,
            Command::Fork => match draft(world) {
                Ok(draft) => Shown::Fork(draft),
                Err(why) => {
                    world.say(why);
                    Shown::Nothing
                }
            },
            _ => Shown::Nothing,
        };
    }

    /// Draws what is open.
    pub fn show(&mut self, context: &Context, world: &mut World) {
        if !self.open_now() {
            return;
        }
        let fresh = std::mem::take(&mut self.fresh);
        let response = Modal::new(Id::unique("dialog")).show(context, |ui| {
            let width = (context.content_rect().width() - 60.0).min(680.0);
            ui.set_max_width(width);
            // A dialog is raised as fields are elsewhere; here they are sunk, to be seen.
            let ground = world.theme.of(context).ground;
            ui.visuals_mut().text_edit_bg_color = Some(ground);
            match &mut self.shown {
                Shown::Nothing => true,
                Shown::Palette { search, at } => palette(ui, world, search, at, fresh),
                Shown::Keys => keys(ui, fresh),
                Shown::OpenRun(opening) => opening.show(ui, world, fresh),
                Shown::OpenLesson => open_lesson(ui, world, fresh),
                Shown::Fork(draft) => fork(ui, world, draft, fresh),
            }
        });
        if response.inner || response.should_close() {
            self.shown = Shown::Nothing;
        }
    }
}

//! Opening run folders and lessons.

use std::path::PathBuf;

use crossbeam::channel::{Receiver, bounded};
use eframe::egui::{Context, Id, Key, Role, ScrollArea, TextEdit, Ui, WidgetInfo};

use super::palette::room;
use crate::gui::world::World;
use crate::gui::{Tab, lesson_names};

/// A path that is being written, and the runs right under it.
pub struct Opening {
    path: String,
    /// The path that is listed.
    listed: Option<String>,
    found: Vec<PathBuf>,
    coming: Option<Receiver<Vec<PathBuf>>>,
}

impl Default for Opening {
    fn default() -> Self {
        Self {
            path: "runs/".into(),
            listed: None,
            found: Vec::new(),
            coming: None,
        }
    }
}

impl Opening {
    /// Lists the runs under the path, once a path and beside the window: a mounted folder may be slow.
    fn list(&mut self, context: &Context) {
        if let Some(found) = self.coming.as_ref().and_then(|of| of.try_recv().ok()) {
            self.found = found;
            self.coming = None;
        }
        if self.listed.as_ref() == Some(&self.path) {
            return;
        }
        self.listed = Some(self.path.clone());
        let (sender, coming) = bounded(1);
        let (path, waker) = (self.path.clone(), context.clone());
        // Without a thread the list stays empty, and the path can still be written.
        std::thread::Builder::new()
            .name("list runs".into())
            .spawn(move || {
                sender.send(runs_under(&path)).ok();
                waker.request_repaint();
            })
            .ok();
        self.coming = Some(coming);
    }

    /// Opens a run folder by its path, or by one of the runs beside it. Says whether it is done.
    pub fn show(&mut self, ui: &mut Ui, world: &mut World, fresh: bool) -> bool {
        ui.heading("Open a run");
        let edit = ui.add(
            TextEdit::singleline(&mut self.path)
                .desired_width(f32::INFINITY)
                .id(Id::unique("run folder")),
        );
        edit.widget_info(|| WidgetInfo::labeled(Role::TextInput, true, "Run folder"));
        if fresh {
            edit.request_focus();
        }
        self.list(ui.ctx());
        let entered = edit.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter));
        let mut chosen = entered.then(|| PathBuf::from(self.path.trim()));
        ScrollArea::vertical()
            .max_height(room(ui).min(260.0))
            .show(ui, |ui| {
                for folder in &self.found {
                    let name = folder.display().to_string();
                    if ui.selectable_label(false, name).clicked() {
                        chosen = Some(folder.clone());
                    }
                }
            });
        ui.horizontal(|ui| {
            if ui.button("Open").clicked() {
                chosen = Some(PathBuf::from(self.path.trim()));
            }
            if let Some(folder) = &chosen {
                world.open(folder);
                if matches!(world.tab, Tab::Lesson) {
                    world.tab = Tab::Watch;
                }
            }
            ui.button("Cancel").clicked() || chosen.is_some()
        })
        .inner
    }
}

/// Run folders right under a folder.
fn runs_under(path: &str) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(path.trim()) else {
        return Vec::new();
    };
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|folder| folder.join("events.jsonl").is_file())
        .collect();
    found.sort();
    found
}

/// The lessons that ship with the program.
pub fn open_lesson(ui: &mut Ui, world: &mut World, fresh: bool) -> bool {
    ui.heading("Open a lesson");
    let mut done = false;
    for (number, (name, title)) in lesson_names().enumerate() {
        let button = ui.button(title);
        if fresh && number == 0 {
            button.request_focus();
        }
        if button.clicked() {
            world.lesson = Some(name.to_owned());
            world.tab = Tab::Lesson;
            done = true;
        }
    }
    let has_run = world.run().is_some();
    if ui
        .add_enabled(has_run, eframe::egui::Button::new("The run that is shown"))
        .clicked()
    {
        world.lesson = Some(String::new());
        world.tab = Tab::Lesson;
        done = true;
    }
    ui.button("Cancel").clicked() || done
}

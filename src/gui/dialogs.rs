//! What opens over the panels: the palette, the keys, opening runs and lessons, and the fork.

use std::path::PathBuf;

use eframe::egui::{Context, Grid, Id, Key, Modal, ScrollArea, TextEdit, Ui};

use super::world::World;
use super::{Command, Tab, lesson_names};
use crate::trajectory::TrajectoryId;

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
    OpenRun {
        path: String,
    },
    OpenLesson,
    Fork(ForkDraft),
}

/// A fork that is being written.
struct ForkDraft {
    id: TrajectoryId,
    turn: u32,
    notes: String,
    tool: String,
    before: (String, String),
}

/// The dialogs; at most one is open.
#[derive(Default)]
pub struct Dialogs {
    shown: Shown,
    fresh: bool,
}

impl Dialogs {
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
            Command::OpenRun => Shown::OpenRun {
                path: "runs/".into(),
            },
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
        if matches!(self.shown, Shown::Nothing) {
            return;
        }
        let fresh = std::mem::take(&mut self.fresh);
        let response = Modal::new(Id::unique("dialog")).show(context, |ui| {
            ui.set_max_width((context.content_rect().width() - 60.0).min(680.0));
            match &mut self.shown {
                Shown::Nothing => true,
                Shown::Palette { search, at } => palette(ui, world, search, at, fresh),
                Shown::Keys => keys(ui),
                Shown::OpenRun { path } => open_run(ui, world, path, fresh),
                Shown::OpenLesson => open_lesson(ui, world),
                Shown::Fork(draft) => fork(ui, world, draft),
            }
        });
        if response.inner || response.should_close() {
            self.shown = Shown::Nothing;
        }
    }
}

/// All commands that match a search. Says whether it is done.
fn palette(
    ui: &mut Ui,
    world: &mut World,
    search: &mut String,
    at: &mut usize,
    fresh: bool,
) -> bool {
    let found = |search: &str| -> Vec<Command> {
        Command::ALL
            .iter()
            .copied()
            .filter(|command| command.matches(search))
            .collect()
    };
    let edit = ui.add(
        TextEdit::singleline(search)
            .hint_text("Type a command")
            .desired_width(f32::INFINITY)
            .id(Id::unique("palette search")),
    );
    if fresh {
        edit.request_focus();
    }
    if edit.changed() {
        *at = 0;
    }
    let commands = found(search);
    let (up, down, enter) = ui.input(|input| {
        (
            input.key_pressed(Key::ArrowUp),
            input.key_pressed(Key::ArrowDown),
            input.key_pressed(Key::Enter),
        )
    });
    if down {
        *at = (*at + 1).min(commands.len().saturating_sub(1));
    }
    if up {
        *at = at.saturating_sub(1);
    }
    let mut chosen = commands.get(*at).copied().filter(|_| enter);
    ScrollArea::vertical().max_height(360.0).show(ui, |ui| {
        for (number, command) in commands.iter().enumerate() {
            let text = format!("{}   {}", command.text(), command.keys());
            let row = ui
                .selectable_label(number == *at, text)
                .on_hover_text(command.tooltip());
            if number == *at && (up || down) {
                row.scroll_to_me(None);
            }
            if row.clicked() {
                chosen = Some(*command);
            }
        }
        if commands.is_empty() {
            ui.label("No command has these words.");
        }
    });
    if let Some(command) = chosen {
        world.todo.push(command);
    }
    chosen.is_some()
}

/// Every key.
fn keys(ui: &mut Ui) -> bool {
    ui.heading("Keys");
    ui.label("Keys without Ctrl wait while a text field has the focus; arrows stay with a focused slider or row. Esc gives the focus back.");
    ScrollArea::vertical().max_height(420.0).show(ui, |ui| {
        Grid::new("keys")
            .num_columns(3)
            .striped(true)
            .show(ui, |ui| {
                for command in Command::ALL {
                    ui.strong(command.keys());
                    ui.label(command.text());
                    ui.weak(command.tooltip());
                    ui.end_row();
                }
            });
    });
    ui.button("Close").clicked()
}

/// Opens a run folder by its path, or by one of the runs beside it.
fn open_run(ui: &mut Ui, world: &mut World, path: &mut String, fresh: bool) -> bool {
    ui.heading("Open a run");
    let edit = ui.add(
        TextEdit::singleline(path)
            .desired_width(f32::INFINITY)
            .id(Id::unique("run folder")),
    );
    edit.widget_info(|| {
        eframe::egui::WidgetInfo::labeled(eframe::egui::Role::TextInput, true, "Run folder")
    });
    if fresh {
        edit.request_focus();
    }
    let entered = edit.lost_focus() && ui.input(|input| input.key_pressed(Key::Enter));
    let mut chosen = entered.then(|| PathBuf::from(path.trim()));
    ScrollArea::vertical().max_height(260.0).show(ui, |ui| {
        for folder in runs_under(path) {
            let name = folder.display().to_string();
            if ui.selectable_label(false, name).clicked() {
                chosen = Some(folder);
            }
        }
    });
    ui.horizontal(|ui| {
        if ui.button("Open").clicked() {
            chosen = Some(PathBuf::from(path.trim()));
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
fn open_lesson(ui: &mut Ui, world: &mut World) -> bool {
    ui.heading("Open a lesson");
    let mut done = false;
    for (name, title) in lesson_names() {
        if ui.button(title).clicked() {
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

/// The selected turn as it was, to be edited.
fn draft(world: &World) -> Result<ForkDraft, String> {
    match &world.live {
        None => {
            return Err("A fork needs an engine: start the run with --gui, and pause it".into());
        }
        Some(live) if live.over() => {
            return Err(
                "The run is over, and its engine with it; a fork needs a run that goes on".into(),
            );
        }
        Some(_) => {}
    }
    let selection = world.selection;
    let turn = world
        .trajectory()
        .and_then(|of| of.turns.get(selection.turn as usize));
    let Some(turn) = turn else {
        return Err("Select a turn to fork from".into());
    };
    let notes = turn.wrote.notes.clone().unwrap_or_default();
    let tool = turn
        .tool
        .as_ref()
        .map(|(text, _)| text.clone())
        .unwrap_or_default();
    let tool = tool.replace("<tool>", "").replace("</tool>", "");
    Ok(ForkDraft {
        id: selection.id,
        turn: selection.turn,
        notes: notes.clone(),
        tool: tool.clone(),
        before: (notes, tool),
    })
}

/// Edits notes and tool result, and asks the run to go on from them beside itself.
fn fork(ui: &mut Ui, world: &mut World, draft: &mut ForkDraft) -> bool {
    ui.heading(format!("Fork after turn {}", draft.turn));
    ui.label(
        "The sibling goes on from here with what you write. It is not trained on and not recorded.",
    );
    ui.label("Notes");
    let notes = ui.add(TextEdit::multiline(&mut draft.notes).desired_width(f32::INFINITY));
    notes.widget_info(|| {
        eframe::egui::WidgetInfo::labeled(
            eframe::egui::Role::MultilineTextInput,
            true,
            "Notes of the fork",
        )
    });
    ui.label("Tool result");
    let tool = ui.add(TextEdit::multiline(&mut draft.tool).desired_width(f32::INFINITY));
    tool.widget_info(|| {
        eframe::egui::WidgetInfo::labeled(
            eframe::egui::Role::MultilineTextInput,
            true,
            "Tool result of the fork",
        )
    });
    ui.horizontal(|ui| {
        let go = ui.button("Go on from here").clicked();
        if go && let Some(live) = &mut world.live {
            let changed = |now: &String, before: &String| (now != before).then(|| now.clone());
            live.fork(
                draft.id,
                draft.turn,
                changed(&draft.notes, &draft.before.0),
                changed(&draft.tool, &draft.before.1),
            );
            world.say("The fork runs beside the run");
        }
        ui.button("Cancel").clicked() || go
    })
    .inner
}

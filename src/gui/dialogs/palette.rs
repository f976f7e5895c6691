//! All commands by name, and all keys.

use eframe::egui::{Id, Key, ScrollArea, TextEdit, Ui, vec2};

use crate::gui::Command;
use crate::gui::world::World;

/// All commands that match a search. Says whether it is done.
pub fn palette(
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
    ScrollArea::vertical().max_height(room(ui)).show(ui, |ui| {
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

/// Every key. It can be scrolled by keys: there are more than fit.
pub fn keys(ui: &mut Ui, fresh: bool) -> bool {
    let row = ui.horizontal(|ui| {
        ui.heading("Keys");
        ui.button("Close")
    });
    if fresh {
        row.inner.request_focus();
    }
    listed(ui);
    row.inner.clicked()
}

fn listed(ui: &mut Ui) {
    ui.label("Keys without Ctrl wait while a text field has the focus or a dialog is open; arrows stay with a focused slider or line of tokens. Esc gives the focus back.");
    let moved = ui.input(|input| {
        let count = |key| input.num_presses(key) as f32;
        40.0 * (count(Key::ArrowDown) - count(Key::ArrowUp))
            + 200.0 * (count(Key::PageDown) - count(Key::PageUp))
    });
    ScrollArea::vertical()
        .max_height(room(ui))
        .auto_shrink([false, true])
        .show(ui, |ui| {
            if moved != 0.0 {
                ui.scroll_with_delta(vec2(0.0, -moved));
            }
            for command in Command::ALL {
                // Wrapped, so that a narrow window shows all of it.
                ui.horizontal_wrapped(|ui| {
                    ui.strong(command.keys());
                    ui.label(command.text());
                    ui.weak(command.tooltip());
                });
            }
        });
}

/// Height that a list in a dialog may take: the window less heading and margins.
pub fn room(ui: &Ui) -> f32 {
    (ui.ctx().content_rect().height() - 190.0).clamp(80.0, 420.0)
}

//! Keys: the commands that were pressed, and the keys that stay with what has the focus.

use eframe::egui::{
    Context, FocusDirection, Id, Key, KeyboardShortcut, Memory, Modifiers, Popup, Response, Ui,
    vec2,
};

use super::Command;

/// What the keys may do in this frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    /// A dialog is open: what lies beneath it is left alone.
    pub dialog: bool,
    /// The shown panel has sliders of its own kind, with which all arrows stay.
    pub lesson: bool,
}

/// The keys that move something: a focused slider, a line of tokens or an open menu needs them itself.
const MOVES: [Key; 8] = [
    Key::ArrowLeft,
    Key::ArrowRight,
    Key::ArrowUp,
    Key::ArrowDown,
    Key::Home,
    Key::End,
    Key::PageUp,
    Key::PageDown,
];

impl Command {
    /// The commands whose keys were pressed in this frame.
    #[must_use]
    pub fn pressed(context: &Context, reach: Reach) -> Vec<Self> {
        let typing = context.text_edit_focused();
        let focused = context.memory(Memory::focused);
        let kept = context.data(|data| data.get_temp::<Id>(keeper()));
        let keeps =
            focused.is_some() && (kept == focused || reach.lesson) || Popup::is_any_open(context);
        let ours = !typing && !keeps && !reach.dialog;
        let arrow = |input: &eframe::egui::InputState| {
            MOVES.iter().take(4).any(|key| input.key_pressed(*key)) && input.modifiers.is_none()
        };
        if ours && focused.is_some() && context.input(arrow) {
            // Else the focus would wander to the thing that lies in that direction.
            context.memory_mut(|memory| memory.move_focus(FocusDirection::None));
        }
        let mut found: Vec<Self> = Vec::new();
        context.input_mut(|input| {
            // Most modifiers first, so that Ctrl+Shift+S is not taken for Ctrl+S.
            let mut all: Vec<(Self, KeyboardShortcut)> = Self::ALL
                .iter()
                .filter_map(|command| Some((*command, command.shortcut()?)))
                .collect();
            all.sort_by_key(|(_, shortcut)| {
                let held = shortcut.modifiers;
                u8::from(!held.command) + u8::from(!held.shift)
            });
            // On most keyboards the plus is reached with Shift, and nobody presses that to enlarge.
            let enlarge = KeyboardShortcut::new(Modifiers::COMMAND, Key::Equals);
            all.push((Self::ZoomIn, enlarge));
            for (command, shortcut) in all {
                let plain = !shortcut.modifiers.command;
                let key = shortcut.logical_key;
                let stays = typing
                    || MOVES.contains(&key) && keeps
                    || key == Key::Space && focused.is_some();
                if plain && stays || reach.dialog && !command.over_dialogs() {
                    continue;
                }
                if input.consume_shortcut(&shortcut) {
                    found.push(command);
                }
            }
        });
        found
    }

    /// Whether it may be done while a dialog is open.
    fn over_dialogs(self) -> bool {
        matches!(
            self,
            Self::Palette
                | Self::Keys
                | Self::OpenRun
                | Self::OpenLesson
                | Self::ToggleTheme
                | Self::ZoomIn
                | Self::ZoomOut
                | Self::ZoomReset
                | Self::FullScreen
                | Self::Quit
        )
    }
}

fn keeper() -> Id {
    Id::unique("keeps the arrows")
}

/// Says that the arrows belong to this, or to a part of it, while it has the focus.
pub fn keeps_arrows(ui: &Ui, response: &Response) {
    let Some(focused) = ui.memory(Memory::focused) else {
        return;
    };
    let inside = || {
        let part = ui.ctx().read_response(focused);
        part.is_some_and(|part| response.rect.expand(1.0).contains_rect(part.rect))
    };
    if response.id == focused || inside() {
        ui.data_mut(|data| data.insert_temp(keeper(), focused));
    }
}

/// Scrolls the area that this stands in by so many screens, down if positive.
pub fn scroll_pages(ui: &Ui, pages: i32) {
    if pages != 0 {
        let screen = ui.clip_rect().height() * 0.9;
        ui.scroll_with_delta(vec2(0.0, -(pages as f32) * screen));
    }
}

#[cfg(test)]
mod tests {
    use eframe::egui::{Event, RawInput};

    use super::*;

    fn pressed(key: Key, modifiers: Modifiers, reach: Reach) -> Vec<Command> {
        let context = Context::default();
        let event = Event::Key {
            key,
            physical_key: None,
            pressed: true,
            repeat: false,
            modifiers,
        };
        let input = RawInput {
            events: vec![event],
            ..RawInput::default()
        };
        context.begin_pass(input);
        let found = Command::pressed(&context, reach);
        context.end_pass().textures_delta.clear();
        found
    }

    #[test]
    fn a_dialog_keeps_the_keys_from_what_lies_beneath_it() {
        let open = Reach {
            dialog: true,
            lesson: false,
        };
        let free = Reach::default();
        let (none, command) = (Modifiers::NONE, Modifiers::COMMAND);
        assert_eq!(
            pressed(Key::Num3, none, free),
            [Command::Show(crate::gui::Tab::Memory)]
        );
        assert!(pressed(Key::Num3, none, open).is_empty());
        assert!(pressed(Key::ArrowLeft, command, open).is_empty());
        assert_eq!(pressed(Key::F1, none, open), [Command::Keys]);
    }

    #[test]
    fn the_equals_sign_enlarges_as_the_plus_does() {
        for key in [Key::Plus, Key::Equals] {
            let found = pressed(key, Modifiers::COMMAND, Reach::default());
            assert_eq!(found, [Command::ZoomIn], "{key:?}");
        }
    }
}

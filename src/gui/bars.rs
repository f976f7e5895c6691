//! The bar at the top, the timeline at the bottom, and short messages.

use eframe::egui::{
    Align2, Area, Button, Context, Frame, Id, Rect, Response, Role, Sense, Ui, WidgetInfo, pos2,
    vec2,
};

use super::world::{Tab, World};
use super::{Command, Cursor};

/// Tabs, menus, the run and its controls. All of it wraps: in a narrow window nothing is cut.
pub fn top(ui: &mut Ui, world: &mut World, sides: (bool, bool)) {
    ui.horizontal_wrapped(|ui| {
        for tab in Tab::ALL {
            let here = world.tab == tab;
            let command = Command::Show(tab);
            let hint = format!("{} ({})", command.tooltip(), command.keys());
            if ui
                .selectable_label(here, tab.text())
                .on_hover_text(hint)
                .clicked()
            {
                world.tab = tab;
            }
        }
        ui.separator();
        for command in [Command::OpenRun, Command::Palette, Command::Keys] {
            if menu(ui, command, false) {
                world.todo.push(command);
            }
        }
        if world.run().is_some() && world.tab != Tab::Lesson {
            // What is closed for want of room can be opened.
            for (command, open) in [
                (Command::ToggleGroups, sides.0),
                (Command::ToggleDetails, sides.1),
            ] {
                if menu(ui, command, open) {
                    world.todo.push(command);
                }
            }
        }
        ui.separator();
        runs(ui, world);
        if let Some(live) = &world.live {
            ui.separator();
            ui.label(live.status());
            let over = live.over();
            let pause = if live.paused() { "Go on" } else { "Pause" };
            for (text, command) in [
                (pause, Command::PlayPause),
                ("One step", Command::StepOnce),
                ("Stop", Command::StopRun),
            ] {
                let button = ui.add_enabled(!over, Button::new(text));
                let hint = format!("{} ({})", command.tooltip(), command.keys());
                if button.on_hover_text(hint).clicked() {
                    world.todo.push(command);
                }
            }
        }
    });
}

/// A command as a button of the bar.
fn menu(ui: &mut Ui, command: Command, on: bool) -> bool {
    let hint = format!("{} ({})", command.tooltip(), command.keys());
    ui.add(Button::new(command.text()).selected(on))
        .on_hover_text(hint)
        .clicked()
}

/// Which run is shown, and how it stands.
fn runs(ui: &mut Ui, world: &mut World) {
    let Some(run) = world.run() else {
        ui.weak("no run");
        return;
    };
    let name = run.name();
    let standing = run.standing();
    let seed = run.view.seed;
    let steps = match (run.view.steps, run.view.cold_start_steps) {
        (0, cold) if cold > 0 => format!("{cold} steps of cold start"),
        (steps, _) => format!("{steps} steps"),
    };
    if world.runs.len() > 1 {
        let mut current = world.current;
        let combo = eframe::egui::ComboBox::from_id_salt("runs").selected_text(name.clone());
        let response = combo.show_ui(ui, |ui| {
            for (number, run) in world.runs.iter().enumerate() {
                ui.selectable_value(&mut current, number, run.name());
            }
        });
        response.response.widget_info(|| {
            WidgetInfo::labeled(Role::ComboBox, true, format!("Run shown: {name}"))
        });
        if current != world.current {
            world.show_run(current);
        }
    } else {
        ui.strong(name);
    }
    ui.weak(format!("seed {seed}   {steps}   {standing}"));
}

/// The cursor over the events of the record.
pub fn timeline(ui: &mut Ui, world: &mut World) {
    let Some(run) = world.run() else {
        ui.weak("No run is open.");
        return;
    };
    let last = run.timeline.last;
    let empty = run.view.trajectories.is_empty();
    let id = world.selection.id;
    ui.horizontal(|ui| {
        let playing = world.playing;
        let buttons = [
            ("|<", Command::First),
            ("<", Command::PreviousEvent),
            (if playing { "Pause" } else { "Play" }, Command::PlayPause),
            (">", Command::NextEvent),
            (">|", Command::Follow),
        ];
        for (text, command) in buttons {
            let hint = format!("{} ({})", command.tooltip(), command.keys());
            let button = ui.button(text).on_hover_text(hint);
            button.widget_info(|| WidgetInfo::labeled(Role::Button, true, command.text()));
            if button.clicked() {
                world.todo.push(command);
            }
        }
        let at = world.cursor.event().unwrap_or(last).min(last);
        let text = match world.cursor {
            Cursor::Live => format!("event {last}, following"),
            Cursor::At(_) => format!("event {at} of {last}"),
        };
        let place = match empty {
            true => String::new(),
            false => super::words::step_name(id.purpose, id.step),
        };
        // Both texts stand behind the line, and neither is cut.
        let width = (ui.available_width() - 330.0).max(60.0);
        ui.add_space(8.0);
        let (rect, response) = ui.allocate_exact_size(vec2(width, 16.0), Sense::click_and_drag());
        response.widget_info(|| WidgetInfo::slider(true, at as f64, format!("Cursor: {text}")));
        if let Some(command) = assisted(ui, &response, at, last) {
            world.todo.push(command);
        }
        let colours = world.theme.of(ui.ctx());
        let line = Rect::from_center_size(rect.center(), vec2(rect.width(), 4.0));
        ui.painter().rect_filled(line, 2.0, colours.line);
        let share = at as f32 / last.max(1) as f32;
        let x = rect.left() + share * rect.width();
        let done = Rect::from_min_max(line.min, pos2(x, line.bottom()));
        ui.painter().rect_filled(done, 2.0, colours.focus);
        ui.painter()
            .circle_filled(pos2(x, rect.center().y), 6.0, colours.focus);
        if response.has_focus() {
            ui.painter()
                .circle_stroke(pos2(x, rect.center().y), 8.0, (1.5, colours.text));
        }
        if let Some(pointer) = response.interact_pointer_pos() {
            let share = ((pointer.x - rect.left()) / rect.width()).clamp(0.0, 1.0);
            let seq = (f64::from(share) * last as f64).round() as u64;
            world.cursor = if seq >= last {
                Cursor::Live
            } else {
                Cursor::At(seq)
            };
        }
        ui.add_space(8.0);
        ui.label(text);
        ui.weak(place);
    });
}

/// What a screen reader may do with the line: go to the event beside it. Arrows, Home and
/// End move the cursor wherever the focus is.
fn assisted(ui: &Ui, response: &Response, at: u64, last: u64) -> Option<Command> {
    use eframe::egui::accesskit::Action;
    ui.ctx().accesskit_node_builder(response.id, |node| {
        node.set_min_numeric_value(0.0);
        node.set_max_numeric_value(last as f64);
        node.set_numeric_value_step(1.0);
        if at > 0 {
            node.add_action(Action::Decrement);
        }
        if at < last {
            node.add_action(Action::Increment);
        }
    });
    let asked = |action| ui.input(|input| input.has_accesskit_action_request(response.id, action));
    if asked(Action::Increment) {
        Some(Command::NextEvent)
    } else {
        asked(Action::Decrement).then_some(Command::PreviousEvent)
    }
}

/// Short messages at the lower right.
pub fn toasts(context: &Context, world: &World) {
    if world.toasts.is_empty() {
        return;
    }
    Area::new(Id::unique("toasts"))
        .anchor(Align2::RIGHT_BOTTOM, vec2(-12.0, -44.0))
        .show(context, |ui| {
            ui.set_max_width(420.0);
            for toast in world.toasts.iter().rev().take(4) {
                Frame::popup(ui.style()).show(ui, |ui| ui.label(&toast.text));
            }
        });
}

//! A fork: notes or a tool result are edited, and the engine goes on from them beside the run.

use eframe::egui::{Frame, Id, Role, ScrollArea, Stroke, TextEdit, Ui, WidgetInfo};

use super::palette::room;
use crate::gui::words::place;
use crate::gui::world::World;
use crate::trajectory::TrajectoryId;

/// A fork that is being written.
pub struct ForkDraft {
    id: TrajectoryId,
    turn: u32,
    notes: String,
    tool: String,
    before: (String, String),
}

/// The selected turn as it was, to be edited.
pub fn draft(world: &World) -> Result<ForkDraft, String> {
    match &world.live {
        None => {
            return Err("A fork needs an engine: start the run with --gui, and pause it".into());
        }
        Some(live) => live.within_reach(world.selection.id)?,
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
pub fn fork(ui: &mut Ui, world: &mut World, draft: &mut ForkDraft, fresh: bool) -> bool {
    ui.heading(format!("Fork after turn {}", draft.turn));
    ui.label(format!(
        "{} goes on from here with what you write. It is not trained on and not recorded.",
        place(draft.id)
    ));
    ScrollArea::vertical().max_height(room(ui)).show(ui, |ui| {
        field(ui, "Notes", &mut draft.notes, fresh);
        field(ui, "Tool result", &mut draft.tool, false);
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

/// A text field with an edge that is seen on every ground.
fn field(ui: &mut Ui, name: &str, text: &mut String, focus: bool) {
    ui.label(name);
    let line = ui.visuals().weak_text_color();
    Frame::new().stroke(Stroke::new(1.0, line)).show(ui, |ui| {
        let edit = TextEdit::multiline(text)
            .desired_width(f32::INFINITY)
            .desired_rows(3)
            .id(Id::unique(("fork", name)));
        let edit = ui.add(edit);
        let label = format!("{name} of the fork");
        edit.widget_info(|| WidgetInfo::labeled(Role::MultilineTextInput, true, &label));
        if focus {
            edit.request_focus();
        }
    });
}

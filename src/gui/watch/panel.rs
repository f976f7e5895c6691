//! The panel: the question, the lanes, the text.

use eframe::egui::{ScrollArea, Ui};

use super::lane::{LANE, Lane};
use super::text;
use crate::gui::Selection;
use crate::gui::world::World;
use crate::record::TrajectoryView;
use crate::trajectory::TrajectoryId;

/// Most of the panel's height that lanes take; more scroll.
const LANES: f32 = 0.5;

/// The Watch panel.
#[derive(Default)]
pub struct WatchPanel {
    shown: Option<(TrajectoryId, u32)>,
}

impl WatchPanel {
    /// Draws the panel.
    pub fn ui(&mut self, ui: &mut Ui, world: &mut World) {
        let Some(run) = world.run() else { return };
        let id = world.selection.id;
        let name = match run.context_of(id) {
            Some(context) => format!("Group {}, {} context", id.group, context.name()),
            None => format!("Group {}", id.group),
        };
        match run.view.question_of(id) {
            Some(question) => {
                ui.horizontal_wrapped(|ui| {
                    ui.strong(name);
                    ui.label(plain(&question.text));
                    ui.weak("right answer");
                    ui.label(question.gold.trim());
                });
            }
            None => {
                ui.strong(name);
            }
        }
        ui.separator();
        let members = world.shown_members();
        if members.is_empty() {
            ui.label(match world.filter {
                Some(_) => "No rollout of this group passes the filter (F clears it).",
                None => "No rollout of this group was kept in the record.",
            });
        }
        lanes(ui, world, &members);
        ui.separator();
        // The selected turn comes into view once, and the user may scroll away from it.
        let shown = (id, world.selection.turn);
        let bring = self.shown != Some(shown);
        self.shown = Some(shown);
        text::show(ui, world, bring);
    }
}

fn lanes(ui: &mut Ui, world: &mut World, members: &[TrajectoryId]) {
    let mut chosen: Option<(TrajectoryId, Option<u32>)> = None;
    let colours = world.theme.of(ui.ctx()).clone();
    // Whole lanes: half of one looks like the end of the list.
    let row = LANE + ui.spacing().item_spacing.y;
    let room = (LANES * ui.available_height() / row).floor().max(2.0);
    let height = row * room.min(members.len().max(1) as f32) - ui.spacing().item_spacing.y;
    let Some(run) = world.run() else { return };
    // One scale for all lanes: the longest of the group.
    let longest = members
        .iter()
        .filter_map(|id| run.view.trajectories.get(id))
        .map(length)
        .max()
        .unwrap_or(1)
        .max(1);
    let area = ScrollArea::vertical()
        .id_salt("lanes")
        .max_height(height)
        .min_scrolled_height(LANE)
        .auto_shrink(false);
    area.show_rows(ui, LANE, members.len(), |ui, range| {
        for id in members.get(range).unwrap_or_default() {
            let Some(of) = run.view.trajectories.get(id) else {
                continue;
            };
            let standing = run.timeline.standing(*id, world.cursor.event());
            // What the engine does now says nothing of an earlier event.
            let now = world.cursor.event().is_none();
            let live = world.live.as_ref().filter(|_| now);
            let note = live.and_then(|live| live.lane(*id)).map(|lane| lane.says);
            let budget = live.and_then(|live| live.budget(*id));
            let lane = Lane {
                of,
                standing,
                longest,
                selected: *id == world.selection.id,
                turn: world.selection.turn,
                note: note.as_deref(),
                budget: budget.as_deref(),
            };
            if let Some(turn) = lane.show(ui, &colours) {
                chosen = Some((*id, turn));
            }
        }
    });
    if let Some((id, turn)) = chosen {
        if id != world.selection.id {
            world.selection = Selection::of(id);
        }
        if let Some(turn) = turn {
            world.selection.turn = turn;
        }
    }
}

/// Tokens that a trajectory wrote and was shown.
fn length(of: &TrajectoryView) -> u32 {
    of.turns
        .iter()
        .map(|turn| turn.wrote.tokens + turn.tool.as_ref().map_or(0, |(_, tokens)| *tokens))
        .sum()
}

/// A question without its tags.
fn plain(text: &str) -> String {
    text.replace("<q>", "")
        .replace("</q>", "")
        .trim()
        .to_owned()
}

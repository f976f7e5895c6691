//! What the selected rollout wrote, as far as the cursor has come, and the futures of its forks.

use eframe::egui::{Color32, Frame, RichText, ScrollArea, Ui};

use crate::gui::keys::scroll_pages;
use crate::gui::live::ShownFork;
use crate::gui::theme::Colours;
use crate::gui::words::verdict;
use crate::gui::world::World;
use crate::record::{TrajectoryView, TurnView};

/// Width of one future, points.
const FUTURE: f32 = 300.0;

/// Draws it; `bring` scrolls the selected turn into view.
pub fn show(ui: &mut Ui, world: &mut World, bring: bool) {
    let pages = std::mem::take(&mut world.pages);
    let Some(run) = world.run() else { return };
    let id = world.selection.id;
    let Some(of) = run.view.trajectories.get(&id) else {
        ui.label("No trajectory is selected.");
        return;
    };
    let colours = world.theme.of(ui.ctx()).clone();
    let standing = run.timeline.standing(id, world.cursor.event());
    let now = world.cursor.event().is_none();
    // What the record holds in whole is not shown half again.
    let under_way = now && !standing.ended;
    let live = world.live.as_ref().filter(|_| under_way);
    let live = live.and_then(|live| live.lane(id));
    let selected = world.selection.turn;
    let forks: Vec<&ShownFork> = world
        .live
        .as_ref()
        .map(|live| live.forks_of(id).collect())
        .unwrap_or_default();
    let mut chosen = None;
    ScrollArea::vertical()
        .id_salt("text")
        .auto_shrink(false)
        .show(ui, |ui| {
            scroll_pages(ui, pages);
            for (number, turn) in of.turns.iter().take(standing.turns).enumerate() {
                let number = number as u32;
                let answered = number as usize + 1 < standing.turns || standing.answered;
                let shown = one_turn(ui, turn, number == selected, answered, &colours);
                if shown.inner {
                    chosen = Some(number);
                }
                if bring && number == selected {
                    shown.response.scroll_to_me(None);
                }
            }
            if standing.turns == 0 && live.is_none() {
                ui.weak(match world.cursor.event() {
                    Some(event) => {
                        format!("At event {event} this rollout had written nothing yet (Right: the next event)")
                    }
                    None => "This rollout has written nothing yet.".into(),
                });
            }
            if let Some(lane) = live {
                ui.label(RichText::new(lane.says).color(colours.weak));
                if !lane.text.is_empty() {
                    ui.label(RichText::new(format!("{}_", lane.text)).monospace());
                }
            }
            if standing.ended {
                ui.strong(verdict(of));
            }
            futures(ui, of, &forks, &colours);
        });
    if let Some(turn) = chosen {
        world.selection.turn = turn;
    }
}

/// One turn with its tool's answer. Says whether it was clicked.
fn one_turn(
    ui: &mut Ui,
    turn: &TurnView,
    selected: bool,
    answered: bool,
    colours: &Colours,
) -> eframe::egui::InnerResponse<bool> {
    let fill = if selected {
        colours.selected
    } else {
        Color32::TRANSPARENT
    };
    Frame::new().fill(fill).inner_margin(4).show(ui, |ui| {
        ui.set_width(ui.available_width());
        let head = format!("turn {}", turn.wrote.turn);
        let clicked = ui.selectable_label(selected, head).clicked();
        ui.label(RichText::new(&turn.wrote.text).monospace());
        if let Some(rule) = turn.wrote.broken {
            let rule = crate::record::names::format_rule(rule);
            ui.label(RichText::new(format!("broke the rule {rule}")).color(colours.warning));
        }
        if let Some((text, _)) = turn.tool.as_ref().filter(|_| answered) {
            ui.label(RichText::new(text).monospace().color(colours.masked));
        }
        clicked
    })
}

/// The futures side by side: what came, and what came of every fork.
fn futures(ui: &mut Ui, of: &TrajectoryView, forks: &[&ShownFork], colours: &Colours) {
    let Some(from) = forks.iter().map(|fork| fork.turn).min() else {
        return;
    };
    ui.separator();
    ui.strong(format!("Futures after turn {from}, side by side"));
    ScrollArea::horizontal().id_salt("futures").show(ui, |ui| {
        ui.horizontal_top(|ui| {
            column(ui, |ui| {
                ui.label("What came in the run");
                for turn in of.turns.iter().filter(|turn| turn.wrote.turn > from) {
                    ui.label(RichText::new(&turn.wrote.text).monospace());
                    if let Some((text, _)) = &turn.tool {
                        ui.label(RichText::new(text).monospace().color(colours.masked));
                    }
                }
                ui.strong(verdict(of));
            });
            for fork in forks {
                column(ui, |ui| {
                    ui.label(RichText::new(fork.heading()).color(colours.warning));
                    for (what, text) in [("notes", &fork.notes), ("tool result", &fork.tool)] {
                        if let Some(text) = text {
                            ui.label(format!("{what}: {}", text.trim()));
                        }
                    }
                    for turn in &fork.turns {
                        ui.label(RichText::new(turn).monospace());
                    }
                    ui.strong(fork.verdict());
                });
            }
        });
    });
}

fn column(ui: &mut Ui, add: impl FnOnce(&mut Ui)) {
    Frame::group(ui.style()).show(ui, |ui| {
        ui.vertical(|ui| {
            ui.set_width(FUTURE);
            add(ui);
        });
    });
}

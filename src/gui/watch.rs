//! The Watch panel: the rollouts of a group as lanes, and the text of the selected one.

use eframe::egui::{
    Align2, Color32, FontId, Rect, RichText, Role, ScrollArea, Sense, Stroke, StrokeKind, Ui,
    WidgetInfo, pos2, vec2,
};

use super::theme::Colours;
use super::timeline::Standing;
use super::words::{place, signed, verdict};
use super::world::World;
use crate::record::TrajectoryView;
use crate::trajectory::{Action, TrajectoryId};

/// Height of a lane, points.
const LANE: f32 = 24.0;
/// Most of the height that lanes take; more scroll.
const LANES: f32 = 220.0;

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
        let question = run.view.question_of(id);
        match question {
            Some(question) => {
                ui.horizontal_wrapped(|ui| {
                    ui.strong(format!("Question {}", id.group));
                    ui.label(plain(&question.text));
                });
                ui.horizontal_wrapped(|ui| {
                    ui.weak("right answer");
                    ui.label(question.gold.trim());
                });
            }
            None => {
                ui.strong(place(id));
            }
        }
        ui.separator();
        let members = world.shown_members();
        if members.is_empty() {
            ui.label("No rollout of this group passes the filter (F clears it).");
        }
        self.lanes(ui, world, &members);
        ui.separator();
        self.text(ui, world);
    }

    fn lanes(&mut self, ui: &mut Ui, world: &mut World, members: &[TrajectoryId]) {
        let mut chosen: Option<(TrajectoryId, Option<u32>)> = None;
        let colours = world.theme.of(ui.ctx()).clone();
        let height = (members.len() as f32 * (LANE + 2.0)).clamp(LANE, LANES);
        let Some(run) = world.run() else { return };
        // One scale for all lanes: the longest of the group, or what a trajectory may spend.
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
            .auto_shrink(false);
        area.show_rows(ui, LANE, members.len(), |ui, range| {
            for id in members.get(range).unwrap_or_default() {
                let Some(of) = run.view.trajectories.get(id) else {
                    continue;
                };
                let standing = run.timeline.standing(*id, world.cursor.event());
                let live = world.live.as_ref().and_then(|live| live.lane(*id));
                let lane = Lane {
                    of,
                    standing,
                    longest,
                    selected: *id == world.selection.id,
                    turn: world.selection.turn,
                    note: live.map(|lane| lane.says),
                };
                if let Some(turn) = lane.show(ui, &colours) {
                    chosen = Some((*id, turn));
                }
            }
        });
        if let Some((id, turn)) = chosen {
            if id != world.selection.id {
                world.selection = super::Selection::of(id);
            }
            if let Some(turn) = turn {
                world.selection.turn = turn;
            }
        }
    }

    /// The turns of the selected trajectory, as far as the cursor has come.
    fn text(&mut self, ui: &mut Ui, world: &mut World) {
        let Some(run) = world.run() else { return };
        let id = world.selection.id;
        let Some(of) = run.view.trajectories.get(&id) else {
            ui.label("No trajectory is selected.");
            return;
        };
        let colours = world.theme.of(ui.ctx()).clone();
        let standing = run.timeline.standing(id, world.cursor.event());
        let live = world.live.as_ref().and_then(|live| live.lane(id));
        let selected = world.selection.turn;
        // The selected turn comes into view once, and the user may scroll away from it.
        let bring = self.shown != Some((id, selected));
        self.shown = Some((id, selected));
        let mut chosen = None;
        ScrollArea::vertical()
            .id_salt("text")
            .auto_shrink(false)
            .show(ui, |ui| {
                for (number, turn) in of.turns.iter().take(standing.turns).enumerate() {
                    let number = number as u32;
                    let fill = if number == selected {
                        colours.selected
                    } else {
                        Color32::TRANSPARENT
                    };
                    let frame = eframe::egui::Frame::new().fill(fill).inner_margin(4);
                    let shown = frame.show(ui, |ui| {
                        ui.set_width(ui.available_width());
                        let head = format!("turn {}", turn.wrote.turn);
                        if ui.selectable_label(number == selected, head).clicked() {
                            chosen = Some(number);
                        }
                        ui.label(RichText::new(&turn.wrote.text).monospace());
                        if let Some(rule) = turn.wrote.broken {
                            let rule = crate::record::names::format_rule(rule);
                            ui.label(
                                RichText::new(format!("broke the rule {rule}"))
                                    .color(colours.warning),
                            );
                        }
                        let answered = number as usize + 1 < standing.turns || standing.answered;
                        if let Some((text, _)) = turn.tool.as_ref().filter(|_| answered) {
                            ui.label(RichText::new(text).monospace().color(colours.masked));
                        }
                    });
                    if bring && number == selected {
                        shown.response.scroll_to_me(None);
                    }
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
                if let Some(forks) = world.live.as_ref().map(|live| live.forks_of(id)) {
                    for fork in forks {
                        ui.separator();
                        ui.label(RichText::new(fork.heading()).color(colours.warning));
                        for turn in &fork.turns {
                            ui.label(RichText::new(turn).monospace());
                        }
                        ui.strong(fork.verdict());
                    }
                }
            });
        if let Some(turn) = chosen {
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

/// One row: number, a bar for every turn and tool result, and how it ended.
struct Lane<'a> {
    of: &'a TrajectoryView,
    standing: Standing,
    longest: u32,
    selected: bool,
    turn: u32,
    note: Option<&'a str>,
}

impl Lane<'_> {
    /// Draws it; gives the turn that was clicked, or none of it if the row was.
    fn show(&self, ui: &mut Ui, colours: &Colours) -> Option<Option<u32>> {
        let (rect, response) =
            ui.allocate_exact_size(vec2(ui.available_width(), LANE), Sense::click());
        response.widget_info(|| {
            WidgetInfo::selected(Role::ListItem, true, self.selected, self.sentence())
        });
        let painter = ui.painter_at(rect.expand(2.0));
        if self.selected {
            painter.rect_filled(rect, 2.0, colours.selected);
        }
        if response.has_focus() {
            painter.rect_stroke(rect, 2.0, (1.5, colours.focus), StrokeKind::Inside);
        }
        let font = FontId::proportional(12.5);
        let write = |x: f32, anchor, text: String, colour| {
            painter.text(pos2(x, rect.center().y), anchor, text, font.clone(), colour)
        };
        write(
            rect.left() + 6.0,
            Align2::LEFT_CENTER,
            format!("#{}", self.of.id.member),
            colours.text,
        );
        let end = self.ending();
        let right = write(rect.right() - 6.0, Align2::RIGHT_CENTER, end, colours.text).left();
        let bars = Rect::from_min_max(
            pos2(rect.left() + 38.0, rect.top() + 4.0),
            pos2(
                (rect.right() - 210.0)
                    .max(rect.left() + 60.0)
                    .min(right - 8.0),
                rect.bottom() - 4.0,
            ),
        );
        let pointer = response
            .interact_pointer_pos()
            .filter(|_| response.clicked());
        let mut clicked = None;
        let per = bars.width() / self.longest as f32;
        let mut x = bars.left();
        for (number, turn) in self.of.turns.iter().take(self.standing.turns).enumerate() {
            let number = number as u32;
            let wrote = Rect::from_min_size(
                pos2(x, bars.top()),
                vec2(
                    (turn.wrote.tokens as f32 * per - 1.0).max(1.0),
                    bars.height(),
                ),
            );
            self.bar(
                &painter,
                wrote,
                number,
                turn.wrote.broken.is_some(),
                colours,
            );
            if pointer.is_some_and(|at| wrote.expand2(vec2(1.0, 4.0)).contains(at)) {
                clicked = Some(number);
            }
            x += turn.wrote.tokens as f32 * per;
            let answered = number as usize + 1 < self.standing.turns || self.standing.answered;
            if let Some((_, tokens)) = turn.tool.as_ref().filter(|_| answered) {
                let tool = Rect::from_min_size(
                    pos2(x, bars.center().y - 2.0),
                    vec2((*tokens as f32 * per - 1.0).max(1.0), 4.0),
                );
                painter.rect_filled(tool, 0.0, colours.line);
                x += *tokens as f32 * per;
            }
        }
        response.clicked().then_some(clicked)
    }

    fn bar(
        &self,
        painter: &eframe::egui::Painter,
        rect: Rect,
        turn: u32,
        broken: bool,
        colours: &Colours,
    ) {
        let fill = if broken {
            colours.warning
        } else {
            colours.weak
        };
        painter.rect_filled(rect, 1.0, fill.gamma_multiply(0.45));
        if self.selected && turn == self.turn {
            let stroke = Stroke::new(2.0, colours.focus);
            painter.rect_stroke(rect, 1.0, stroke, StrokeKind::Outside);
        }
        if rect.width() > 12.0 {
            let font = FontId::proportional(12.0);
            painter.text(
                rect.center(),
                Align2::CENTER_CENTER,
                turn,
                font,
                colours.text,
            );
        }
    }

    /// What stands at the right: how it ended, or what it is doing.
    fn ending(&self) -> String {
        if !self.standing.ended {
            return self.note.map_or_else(|| self.doing(), str::to_owned);
        }
        let credit = self.of.outcome_advantage.filter(|_| self.standing.credited);
        let credit = credit.map_or(String::new(), |a| format!("  adv {}", signed(a, 2)));
        format!("{}{credit}", verdict(self.of))
    }

    fn doing(&self) -> String {
        let last = self
            .standing
            .turns
            .checked_sub(1)
            .and_then(|at| self.of.turns.get(at));
        match last.and_then(|turn| turn.wrote.action.as_ref()) {
            Some(Action::Search(query)) if !self.standing.answered => {
                format!("searches {}", query.trim())
            }
            Some(Action::Access(page)) if !self.standing.answered => {
                format!("opens {}", page.trim())
            }
            Some(Action::Answer(_)) => "waits to be judged".into(),
            _ => "writes".into(),
        }
    }

    fn sentence(&self) -> String {
        format!(
            "rollout {}, {} turns, {}",
            self.of.id.member,
            self.standing.turns,
            self.ending()
        )
    }
}

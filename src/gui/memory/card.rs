//! The card of one turn: its notes as a change of those before, its reward, its facts.

use eframe::egui::text::LayoutJob;
use eframe::egui::{
    Button, FontId, Frame, Rect, RichText, Role, Sense, Stroke, TextFormat, TextStyle, Ui,
    WidgetInfo,
};

use super::facts::Fact;
use crate::gui::Command;
use crate::gui::theme::Colours;
use crate::gui::words::signed;
use crate::gui::world::World;
use crate::record::report::diff::Piece;
use crate::record::{MemoryCredit, TrajectoryView};
use crate::trajectory::Action;

/// Width of the card of one turn, points.
const CARD: f32 = 230.0;

/// The notes of a turn; nothing if it wrote none.
pub fn notes(of: &TrajectoryView, turn: usize) -> &str {
    let turn = of.turns.get(turn);
    turn.and_then(|turn| turn.wrote.notes.as_deref())
        .unwrap_or_default()
}

fn round(of: &TrajectoryView, turn: usize) -> Option<&MemoryCredit> {
    let number = of.turns.get(turn)?.wrote.turn;
    of.memory.iter().find(|round| round.turn == number)
}

/// What a card shows.
pub struct Card<'a> {
    /// The rollout.
    pub of: &'a TrajectoryView,
    /// The turn, by its place.
    pub turn: usize,
    /// Its notes as a change of those before.
    pub pieces: &'a [Piece],
    /// The facts of the question.
    pub facts: &'a [Fact],
    /// Whether it is the selected turn.
    pub selected: bool,
}

impl Card<'_> {
    /// Draws it; gives its place, and whether its turn was chosen.
    pub fn show(&self, ui: &mut Ui, world: &mut World, colours: &Colours) -> (Rect, bool) {
        let edge = if self.selected {
            colours.focus
        } else {
            colours.line
        };
        let width = if self.selected { 2.0 } else { 1.0 };
        let frame = Frame::group(ui.style()).stroke(Stroke::new(width, edge));
        let mut chosen = false;
        let shown = frame.show(ui, |ui| {
            ui.set_width(CARD);
            ui.vertical(|ui| chosen = self.inside(ui, world, colours));
        });
        let rect = shown.response.rect;
        let region = ui.interact(
            rect,
            ui.scope_id().with(("card", self.turn)),
            Sense::hover(),
        );
        region.widget_info(|| WidgetInfo::labeled(Role::Group, true, self.sentence()));
        (rect, chosen)
    }

    fn inside(&self, ui: &mut Ui, world: &mut World, colours: &Colours) -> bool {
        let turn = self.of.turns.get(self.turn);
        let answer = turn.is_some_and(|turn| matches!(turn.wrote.action, Some(Action::Answer(_))));
        let head = if answer {
            format!("turn {} (answer)", self.turn)
        } else {
            format!("turn {}", self.turn)
        };
        let chosen = ui.selectable_label(self.selected, head).clicked();
        if self.pieces.iter().all(|piece| piece.text.trim().is_empty()) {
            ui.weak("(no notes)");
        } else {
            ui.label(inline(self.pieces, ui, colours));
        }
        for fact in self.facts {
            let chip = fact.chip(self.turn);
            if chip == "not read yet" {
                continue;
            }
            let text = RichText::new(format!("{}: {chip}", fact.value)).size(12.0);
            let colour = if chip == "in the notes" {
                colours.text
            } else {
                colours.warning
            };
            ui.label(text.color(colour));
        }
        if let Some(round) = round(self.of, self.turn) {
            amounts(ui, self.of, round, colours);
        }
        if turn.is_some_and(|turn| turn.wrote.notes.is_some()) {
            self.ask(ui, world);
        }
        chosen
    }

    /// The question what if. Only the engine can answer it, and only for rollouts that it has.
    fn ask(&self, ui: &mut Ui, world: &mut World) {
        let recorded = round(self.of, self.turn).and_then(|round| round.p_empty);
        let reach = match &world.live {
            Some(live) => live.within_reach(self.of.id),
            None => Err("This needs an engine: train with --gui, and ask while the run is paused in its rollouts".into()),
        };
        let command = Command::WithoutNotes;
        let button = ui.add_enabled(reach.is_ok(), Button::new(command.text()).wrap());
        let why = match (&reach, recorded) {
            (_, Some(p)) => format!("Recorded: P(answer | empty notes) is {p:.3}"),
            (Err(why), None) => why.clone(),
            (Ok(()), None) => String::new(),
        };
        let button = button
            .on_hover_text(format!("{} ({})", command.tooltip(), command.keys()))
            .on_disabled_hover_text(&why);
        if let Err(why) = &reach {
            button.widget_info(|| {
                WidgetInfo::labeled(Role::Button, false, format!("{} {why}", command.text()))
            });
        }
        if button.clicked() {
            world.selection.turn = self.turn as u32;
            world.todo.push(command);
        }
    }

    fn sentence(&self) -> String {
        let what: Vec<String> = self
            .pieces
            .iter()
            .map(|piece| format!("{} '{}'", piece.kind, piece.text.trim()))
            .collect();
        let reward = round(self.of, self.turn).map_or(String::new(), |round| {
            format!(
                ", reward {}, advantage {}",
                signed(round.reward, 2),
                signed(round.advantage, 2)
            )
        });
        let selected = if self.selected { ", selected" } else { "" };
        format!(
            "notes of turn {}: {}{reward}{selected}",
            self.turn,
            what.join(", ")
        )
    }
}

/// Reward and advantage of a round on the signed scale.
fn amounts(ui: &mut Ui, of: &TrajectoryView, round: &MemoryCredit, colours: &Colours) {
    // One scale for reward and advantage of the whole trajectory.
    let limit = of
        .memory
        .iter()
        .flat_map(|round| [round.reward.abs(), round.advantage.abs()])
        .fold(1e-6, f32::max);
    ui.horizontal(|ui| {
        for (name, value) in [("reward", round.reward), ("advantage", round.advantage)] {
            let (fill, text) = colours.signed(value / limit);
            let text = RichText::new(format!("{name} {}", signed(value, 2))).color(text);
            ui.label(text.background_color(fill));
        }
    });
}

/// Added text underlined, removed text struck through, kept text plain.
fn inline(pieces: &[Piece], ui: &Ui, colours: &Colours) -> LayoutJob {
    let mut job = LayoutJob::default();
    job.wrap.max_width = CARD;
    let font = FontId::monospace(TextStyle::Monospace.resolve(ui.style()).size);
    for piece in pieces {
        let mut format = TextFormat {
            font_id: font.clone(),
            color: colours.text,
            ..TextFormat::default()
        };
        match piece.kind {
            "added" => format.underline = Stroke::new(1.5, colours.text),
            "removed" => {
                format.strikethrough = Stroke::new(1.5, colours.weak);
                format.color = colours.weak;
            }
            _ => {}
        }
        job.append(&piece.text, 0.0, format);
    }
    job
}

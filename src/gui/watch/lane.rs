//! One rollout as a lane: a bar for every turn, its state at the end, and how it ended.

use eframe::egui::{
    Align2, FontId, Rect, Role, Sense, Stroke, StrokeKind, Ui, WidgetInfo, pos2, vec2,
};

use crate::gui::theme::Colours;
use crate::gui::timeline::Standing;
use crate::gui::words::{signed, verdict};
use crate::record::TrajectoryView;
use crate::trajectory::Action;

/// Height of a lane, points.
pub const LANE: f32 = 24.0;

/// One row: number, a bar for every turn and tool result, and how it ended.
pub struct Lane<'a> {
    /// The rollout.
    pub of: &'a TrajectoryView,
    /// How it stood at the cursor.
    pub standing: Standing,
    /// Tokens that fill the whole width.
    pub longest: u32,
    /// Whether it is the selected one.
    pub selected: bool,
    /// The selected turn.
    pub turn: u32,
    /// Its state in a live run, with what it waits for.
    pub note: Option<&'a str>,
    /// What it may still spend, in a live run.
    pub budget: Option<&'a str>,
}

impl Lane<'_> {
    /// Draws it; gives the turn that was clicked, or none of it if the row was.
    pub fn show(&self, ui: &mut Ui, colours: &Colours) -> Option<Option<u32>> {
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
        // A long query ends in dots, and leaves the bars their half.
        let room = (rect.width() * 0.45).max(120.0);
        let end = short(&self.ending(), (room / 6.5) as usize);
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
        self.state(&painter, bars, x, colours);
        response.clicked().then_some(clicked)
    }

    /// The state at the end of the lane: an open end while it writes, dots while it waits for a tool, a
    /// line across where it is over.
    fn state(&self, painter: &eframe::egui::Painter, bars: Rect, x: f32, colours: &Colours) {
        let x = x.min(bars.right());
        if self.standing.ended {
            let ends = [pos2(x, bars.top() - 1.0), pos2(x, bars.bottom() + 1.0)];
            painter.line_segment(ends, Stroke::new(2.0, colours.text));
            return;
        }
        let waits = matches!(self.phase(), Phase::Tool | Phase::Engine);
        let to = (x + 26.0).min(bars.right());
        if waits {
            for at in 0..4u8 {
                let at = pos2(x + 4.0 + 6.0 * f32::from(at), bars.center().y);
                if at.x < to {
                    painter.circle_filled(at, 1.5, colours.weak);
                }
            }
        } else {
            let open = Rect::from_min_max(pos2(x, bars.top()), pos2(to, bars.bottom()));
            painter.rect_stroke(open, 1.0, (1.0, colours.focus), StrokeKind::Inside);
        }
    }

    fn phase(&self) -> Phase {
        if self.standing.ended {
            return Phase::Over;
        }
        let last = self.last();
        match last.and_then(|turn| turn.wrote.action.as_ref()) {
            _ if self.note.is_some_and(|note| note.contains("engine")) => Phase::Engine,
            Some(Action::Answer(_)) => Phase::Judged,
            Some(Action::Search(_) | Action::Access(_)) if !self.standing.answered => Phase::Tool,
            _ => Phase::Writes,
        }
    }

    fn last(&self) -> Option<&crate::record::TurnView> {
        let last = self.standing.turns.checked_sub(1)?;
        self.of.turns.get(last)
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
            let doing = self.note.map_or_else(|| self.doing(), str::to_owned);
            return match self.budget {
                Some(budget) => format!("{doing} - {budget}"),
                None => doing,
            };
        }
        let credit = self.of.outcome_advantage.filter(|_| self.standing.credited);
        let credit = credit.map_or(String::new(), |a| format!("  adv {}", signed(a, 2)));
        format!("{}{credit}", verdict(self.of))
    }

    fn doing(&self) -> String {
        let action = self.last().and_then(|turn| turn.wrote.action.as_ref());
        match (self.phase(), action) {
            (Phase::Tool, Some(Action::Search(query))) => format!("searches {}", query.trim()),
            (Phase::Tool, Some(Action::Access(page))) => format!("opens {}", page.trim()),
            (Phase::Judged, _) => "waits to be judged".into(),
            _ => format!("writes turn {}", self.standing.turns),
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

/// What a rollout that is not over waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A place in the engine's batch.
    Engine,
    /// Its own next token.
    Writes,
    /// A tool.
    Tool,
    /// The judge.
    Judged,
    /// Nothing.
    Over,
}

/// A text of at most so many letters; what is longer ends in dots.
fn short(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(3)).collect();
    format!("{kept}...")
}

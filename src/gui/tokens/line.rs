//! One line of the Tokens panel: its margin, its tokens, the pointer and the keys.

use eframe::egui::{Align2, EventFilter, FontId, Key, Pos2, Rect, Sense, Ui, pos2, vec2};

use super::paint::{Painting, ROW};
use crate::gui::words::signed;

/// Width of the margin that names stretches, points.
pub const MARGIN: f32 = 150.0;

/// What the user did with a line.
pub struct Found {
    /// The token under the pointer.
    pub hovered: Option<usize>,
    /// The token that was clicked, or reached by an arrow.
    pub clicked: Option<usize>,
}

/// Margin, tokens, and what the pointer and the keys do to them.
pub fn one_line(ui: &Ui, painting: &Painting<'_>, line: usize, at: Pos2, room: f32) -> Found {
    let nothing = Found {
        hovered: None,
        clicked: None,
    };
    let Some(of) = painting.layout.lines.get(line) else {
        return nothing;
    };
    let start = pos2(at.x + MARGIN, at.y);
    let rect = Rect::from_min_size(start, vec2(room, ROW));
    let id = ui.scope_id().with(("line", painting.document.id, line));
    let response = ui.interact(rect, id, Sense::click());
    painting.label(&response, of);
    let painter = ui.painter();
    if of.first
        && let Some(segment) = painting.document.segments.get(of.segment)
    {
        painter.text(
            pos2(at.x, at.y + ROW / 2.0),
            Align2::LEFT_CENTER,
            margin_text(painting, segment.turn, of.segment),
            FontId::proportional(12.0),
            painting.colours.weak,
        );
    }
    painting.line(painter, of, start);
    let under = |position: Pos2| painting.layout.token_at(line, position.x - start.x);
    let mut found = Found {
        hovered: response.hover_pos().and_then(under),
        clicked: response
            .clicked()
            .then(|| response.interact_pointer_pos().and_then(under))
            .flatten(),
    };
    if response.has_focus() {
        ui.memory_mut(|memory| {
            let arrows = EventFilter {
                horizontal_arrows: true,
                ..EventFilter::default()
            };
            memory.set_focus_lock_filter(id, arrows);
        });
        painter.rect_stroke(
            rect,
            2.0,
            (1.5, painting.colours.focus),
            eframe::egui::StrokeKind::Inside,
        );
        let pinned = painting.marked.1.filter(|token| of.tokens.contains(token));
        let moved = ui.input(|input| {
            i32::from(input.key_pressed(Key::ArrowRight))
                - i32::from(input.key_pressed(Key::ArrowLeft))
        });
        let next = match (pinned, moved) {
            (None, 1 | -1) => Some(of.tokens.start),
            (Some(token), 1) => Some(token + 1),
            (Some(token), -1) => token.checked_sub(1),
            _ => None,
        };
        found.clicked = found
            .clicked
            .or(next.filter(|token| of.tokens.contains(token)));
    }
    found
}

/// `turn 2 notes +0.71`: what a stretch is, and the mean of its shown values.
fn margin_text(painting: &Painting<'_>, turn: u32, segment: usize) -> String {
    let Some(of) = painting.document.segments.get(segment) else {
        return String::new();
    };
    let trained = || {
        of.tokens
            .clone()
            .filter(|&at| painting.document.mask.get(at) == Some(&true))
    };
    let count = trained().count();
    if count == 0 {
        return format!("turn {turn}  {}", of.kind.text());
    }
    let sum: f32 = trained().filter_map(|at| painting.values.get(at)).sum();
    format!(
        "turn {turn}  {}  {}",
        of.kind.text(),
        signed(sum / count as f32, 2)
    )
}

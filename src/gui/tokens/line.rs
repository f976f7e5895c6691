//! One line of the Tokens panel: its margin, its tokens, the pointer and the keys.

use eframe::egui::{
    Align2, EventFilter, FontId, Key, Pos2, Rect, Role, Sense, Ui, WidgetInfo, pos2, vec2,
};

use super::paint::{Painting, ROW};
use crate::gui::keys::keeps_arrows;

/// Text of the margin.
pub fn margin_font() -> FontId {
    FontId::proportional(12.0)
}

/// Where a line stands, and what the panel knows of it.
pub struct Place<'a> {
    /// Its upper left corner, margin included.
    pub at: Pos2,
    /// Width of the margin, points.
    pub margin: f32,
    /// Width of the tokens, points.
    pub room: f32,
    /// What the margin says of its stretch.
    pub heading: &'a str,
    /// Whether it belongs to the selected turn.
    pub selected: bool,
    /// Whether it is to take the focus.
    pub focus: bool,
}

/// What the user did with a line.
#[derive(Default)]
pub struct Found {
    /// The token under the pointer.
    pub hovered: Option<usize>,
    /// The token that was clicked.
    pub clicked: Option<usize>,
    /// The token that an arrow leads to, in this line or another.
    pub moved: Option<usize>,
}

/// Margin, tokens, and what the pointer and the keys do to them.
pub fn one_line(ui: &Ui, painting: &Painting<'_>, line: usize, place: &Place<'_>) -> Found {
    let Some(of) = painting.layout.lines.get(line) else {
        return Found::default();
    };
    let at = place.at;
    let start = pos2(at.x + place.margin, at.y);
    let rect = Rect::from_min_size(start, vec2(place.room, ROW));
    let id = ui.scope_id().with(("line", painting.document.id, line));
    let response = ui.interact(rect, id, Sense::click());
    response.widget_info(|| {
        let mut text = painting.sentence(of);
        if let Some((_, difference)) = place.heading.split_once("diff ") {
            text.push_str(&format!(", difference to the sibling {difference}"));
        }
        if place.selected {
            text.push_str(", selected turn");
        }
        WidgetInfo::labeled(Role::ListItem, true, text)
    });
    if place.focus {
        response.request_focus();
    }
    let painter = ui.painter();
    if place.selected {
        let bar = Rect::from_min_size(at, vec2(2.5, ROW));
        painter.rect_filled(bar, 0.0, painting.colours.focus);
    }
    if of.first {
        let room = Rect::from_min_size(at, vec2(place.margin - 4.0, ROW));
        painter.with_clip_rect(room.intersect(ui.clip_rect())).text(
            pos2(at.x + 6.0, at.y + ROW / 2.0),
            Align2::LEFT_CENTER,
            place.heading,
            margin_font(),
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
        moved: None,
    };
    if response.has_focus() {
        keeps_arrows(ui, &response);
        ui.memory_mut(|memory| {
            let arrows = EventFilter {
                horizontal_arrows: true,
                vertical_arrows: true,
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
        found.moved = moved(ui, painting, line, pinned);
    }
    found
}

/// Where the arrows lead: along the line and on into the next one, or to the line above or below.
fn moved(ui: &Ui, painting: &Painting<'_>, line: usize, pinned: Option<usize>) -> Option<usize> {
    let of = painting.layout.lines.get(line)?;
    let pressed = |key| ui.input(|input| input.key_pressed(key) && input.modifiers.is_none());
    let x = pinned
        .and_then(|token| painting.layout.left.get(token))
        .copied()
        .unwrap_or(0.0);
    if pressed(Key::ArrowDown) {
        return painting.layout.nearest(line + 1, x);
    }
    if pressed(Key::ArrowUp) {
        return painting.layout.nearest(line.checked_sub(1)?, x);
    }
    let steps = (pressed(Key::ArrowRight), pressed(Key::ArrowLeft));
    match (pinned, steps) {
        (None, (true, false) | (false, true)) => Some(of.tokens.start),
        (Some(token), (true, false)) => {
            Some(token + 1).filter(|token| *token < painting.document.len())
        }
        (Some(token), (false, true)) => token.checked_sub(1),
        _ => None,
    }
}

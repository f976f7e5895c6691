//! Draws lines of tokens. Only what is on the screen is touched.

use eframe::egui::text::LayoutJob;
use eframe::egui::{
    Color32, FontId, Painter, Pos2, Rect, Response, Role, Shape, Stroke, StrokeKind, TextFormat,
    WidgetInfo, pos2, vec2,
};

use super::document::Document;
use super::layout::{Layout, Line, visible};
use super::value::Value;
use crate::gui::theme::Colours;
use crate::gui::words::signed;

/// Height of a line, points.
pub const ROW: f32 = 23.0;

/// What is drawn, and how.
pub struct Painting<'a> {
    /// The tokens.
    pub document: &'a Document,
    /// Their lines.
    pub layout: &'a Layout,
    /// The shown values.
    pub values: &'a [f32],
    /// What they are.
    pub value: Value,
    /// The end of the scale.
    pub limit: f32,
    /// Colours.
    pub colours: &'a Colours,
    /// Signs as patterns alone.
    pub patterns: bool,
    /// The font of tokens.
    pub font: FontId,
    /// Ratios outside 1 - low and 1 + high are clipped.
    pub clip: (f32, f32),
    /// The token under the pointer, and the pinned one.
    pub marked: (Option<usize>, Option<usize>),
}

impl Painting<'_> {
    /// Draws one line from `at`.
    pub fn line(&self, painter: &Painter, line: &Line, at: Pos2) {
        for token in line.tokens.clone() {
            self.token(painter, token, at);
        }
    }

    fn token(&self, painter: &Painter, token: usize, at: Pos2) {
        let get = |column: &[f32]| column.get(token).copied().unwrap_or(0.0);
        let (left, width) = (get(&self.layout.left), get(&self.layout.width));
        let rect = Rect::from_min_size(at + vec2(left, 3.0), vec2(width, ROW - 6.0));
        let on = self.document.mask.get(token) == Some(&true);
        let value = get(self.values);
        let mut text_colour = self.colours.masked;
        if on {
            text_colour = self.colours.text;
            if !self.patterns {
                let (fill, text) = self.colours.signed(value / self.limit);
                painter.rect_filled(rect, 1.0, fill);
                text_colour = text;
            }
            self.sign(painter, rect, value);
            if self.clipped(token) {
                self.cut_corner(painter, rect);
            }
        }
        self.frame(painter, token, rect);
        let format = TextFormat {
            font_id: self.font.clone(),
            color: text_colour,
            italics: !on,
            ..TextFormat::default()
        };
        let text = visible(self.document.text(token));
        let galley = painter.layout_job(LayoutJob::single_section(text.into_owned(), format));
        painter.galley(pos2(rect.left(), rect.top() + 1.0), galley, text_colour);
    }

    /// A solid bar above what is positive, a dotted bar below what is negative.
    fn sign(&self, painter: &Painter, rect: Rect, value: f32) {
        // What would print as nothing has no sign.
        if value.abs() < self.limit * 0.01 {
            return;
        }
        let stroke = Stroke::new(1.5, self.colours.text);
        let (from, to) = (rect.left() + 1.0, rect.right() - 1.0);
        if value > 0.0 {
            let y = rect.top() - 1.0;
            painter.line_segment([pos2(from, y), pos2(to, y)], stroke);
        } else {
            let y = rect.bottom() + 1.0;
            let ends = [pos2(from, y), pos2(to, y)];
            painter.extend(Shape::dotted_line(&ends, self.colours.text, 3.5, 0.9));
        }
    }

    /// Whether the update's ratio left its bounds in the direction of the weight.
    #[must_use]
    pub fn clipped(&self, token: usize) -> bool {
        let ratio = 1.0 + Value::Ratio.at(self.document, token);
        let weight = Value::Weight.at(self.document, token);
        weight > 0.0 && ratio > 1.0 + self.clip.1 || weight < 0.0 && ratio < 1.0 - self.clip.0
    }

    fn cut_corner(&self, painter: &Painter, rect: Rect) {
        let corner = rect.right_top();
        let points = vec![corner, corner - vec2(6.0, 0.0), corner + vec2(0.0, 6.0)];
        painter.add(Shape::convex_polygon(
            points,
            self.colours.ground,
            Stroke::new(1.0, self.colours.text),
        ));
    }

    fn frame(&self, painter: &Painter, token: usize, rect: Rect) {
        let (hovered, pinned) = self.marked;
        let colour: Option<Color32> = if pinned == Some(token) {
            Some(self.colours.focus)
        } else {
            (hovered == Some(token)).then_some(self.colours.weak)
        };
        if let Some(colour) = colour {
            painter.rect_stroke(
                rect.expand(1.0),
                1.0,
                Stroke::new(2.0, colour),
                StrokeKind::Outside,
            );
        }
    }

    /// Tells a screen reader what a line holds.
    pub fn label(&self, response: &Response, line: &Line) {
        response.widget_info(|| WidgetInfo::labeled(Role::ListItem, true, self.sentence(line)));
    }

    /// `turn 3, answer, tokens 41 to 60, mean weight +0.12, strongest 'Paris' +0.40`.
    #[must_use]
    pub fn sentence(&self, line: &Line) -> String {
        let segment = self.document.segments.get(line.segment);
        let (turn, kind) = segment.map_or((0, ""), |of| (of.turn, of.kind.text()));
        let place = format!(
            "turn {turn}, {kind}, tokens {} to {}",
            line.tokens.start + 1,
            line.tokens.end
        );
        let trained = || {
            line.tokens
                .clone()
                .filter(|&at| self.document.mask.get(at) == Some(&true))
        };
        let count = trained().count();
        if count == 0 {
            let text: String = line
                .tokens
                .clone()
                .map(|at| self.document.text(at))
                .collect();
            return format!("{place}, not trained: {}", text.trim());
        }
        let value = |at: usize| self.values.get(at).copied().unwrap_or(0.0);
        let mean = trained().map(value).sum::<f32>() / count as f32;
        let strongest = trained().max_by(|a, b| value(*a).abs().total_cmp(&value(*b).abs()));
        let strongest = strongest.map_or(String::new(), |at| {
            format!(
                ", strongest '{}' {}",
                self.document.text(at).trim(),
                signed(value(at), 2)
            )
        });
        format!(
            "{place}, mean {} {}{strongest}",
            self.value.text(),
            signed(mean, 2)
        )
    }
}

//! A short stretch of tokens inside another panel: laid out every frame, so only for what a person can
//! read at a time.

use eframe::egui::{Align2, FontId, Sense, Ui, pos2, vec2};

use super::Granularity;
use super::document::{Document, SegmentKind};
use super::layout::Layout;
use super::paint::{Painting, ROW};
use super::value::{Value, shown_values};
use crate::gui::theme::Colours;

/// Margin that names the stretches, points.
const MARGIN: f32 = 110.0;
/// Most lines that are drawn.
const LINES: usize = 120;

/// Tokens of one document, coloured by a number.
pub struct Strip<'a> {
    /// The tokens.
    pub document: &'a Document,
    /// The number.
    pub value: Value,
    /// The end of the scale.
    pub limit: f32,
    /// Signs as patterns alone.
    pub patterns: bool,
    /// Leave out what the policy did not write.
    pub written_only: bool,
}

impl Strip<'_> {
    /// Draws it; gives the token under the pointer.
    pub fn show(&self, ui: &mut Ui, name: &str, colours: &Colours) -> Option<usize> {
        let font = eframe::egui::TextStyle::Monospace.resolve(ui.style());
        let room = (ui.available_width() - MARGIN - 12.0).max(80.0);
        let layout = Layout::new(self.document, room, |letter| {
            ui.fonts_mut(|fonts| fonts.glyph_width(&font, letter))
        });
        let values = shown_values(self.document, self.value, Granularity::Token);
        let painting = Painting {
            document: self.document,
            layout: &layout,
            values: &values,
            value: self.value,
            limit: self.limit,
            colours,
            patterns: self.patterns,
            font,
            clip: (f32::INFINITY, f32::INFINITY),
            marked: (None, None),
        };
        let mut hovered = None;
        let shown = |segment: usize| {
            let kind = self.document.segments.get(segment).map(|of| of.kind);
            !self.written_only || kind != Some(SegmentKind::Context)
        };
        let lines = layout
            .lines
            .iter()
            .enumerate()
            .filter(|(_, line)| shown(line.segment));
        for (number, line) in lines.take(LINES) {
            let size = vec2(ui.available_width(), ROW);
            let (rect, response) = ui.allocate_exact_size(size, Sense::hover());
            painting.label(&response, line);
            if let Some(segment) = self
                .document
                .segments
                .get(line.segment)
                .filter(|_| line.first)
            {
                let text = format!("turn {}  {}", segment.turn, segment.kind.text());
                let at = pos2(rect.left(), rect.center().y);
                let small = FontId::proportional(12.0);
                ui.painter()
                    .text(at, Align2::LEFT_CENTER, text, small, colours.weak);
            }
            let start = rect.left() + MARGIN;
            painting.line(ui.painter(), line, pos2(start, rect.top()));
            if let Some(pointer) = response.hover_pos() {
                hovered = layout.token_at(number, pointer.x - start).or(hovered);
            }
        }
        if self.document.is_empty() {
            ui.weak(format!("{name}: no tokens"));
        }
        hovered
    }
}

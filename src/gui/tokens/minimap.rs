//! The strip beside the tokens: the whole document at once, made into a texture once.

use eframe::egui::{
    self, Color32, ColorImage, Rect, Response, Role, Sense, TextureHandle, TextureOptions, Ui,
    WidgetInfo, pos2,
};

use super::document::{Document, SegmentKind};
use super::layout::Layout;
use crate::gui::theme::Colours;
use crate::trajectory::Tag;

/// Width of the strip, points.
pub const WIDTH: f32 = 22.0;
/// Most rows of the texture.
const ROWS: usize = 1024;

/// The texture and what it was made from.
#[derive(Default)]
pub struct Minimap {
    made: Option<(u64, TextureHandle)>,
}

/// What is painted into the strip.
pub struct Source<'a> {
    /// The document.
    pub document: &'a Document,
    /// The rows of the view; the first of each is a line of the document.
    pub lines: &'a [[Option<usize>; 2]],
    /// The lines.
    pub layout: &'a Layout,
    /// Shown values.
    pub values: &'a [f32],
    /// The end of the scale.
    pub limit: f32,
    /// Changes when any of these does.
    pub key: u64,
}

impl Minimap {
    /// Draws the strip into `rect`; gives where in 0..1 the user points, if at all.
    pub fn show(
        &mut self,
        ui: &mut Ui,
        rect: Rect,
        source: &Source<'_>,
        colours: &Colours,
        view: (f32, f32),
    ) -> Option<f32> {
        if self.made.as_ref().is_none_or(|(key, _)| *key != source.key) {
            let image = picture(source, colours);
            let texture = ui
                .ctx()
                .load_texture("minimap", image, TextureOptions::NEAREST);
            self.made = Some((source.key, texture));
        }
        let response = ui.interact(rect, ui.scope_id().with("minimap"), Sense::click_and_drag());
        if let Some((_, texture)) = &self.made {
            let whole = Rect::from_min_max(pos2(0.0, 0.0), pos2(1.0, 1.0));
            ui.painter()
                .image(texture.id(), rect, whole, Color32::WHITE);
        }
        let height = |share: f32| rect.top() + share.clamp(0.0, 1.0) * rect.height();
        let seen = Rect::from_min_max(
            pos2(rect.left(), height(view.0)),
            pos2(rect.right(), height(view.1).max(height(view.0) + 3.0)),
        );
        let stroke = egui::Stroke::new(1.5, colours.focus);
        ui.painter()
            .rect_stroke(seen, 1.0, stroke, egui::StrokeKind::Inside);
        label(&response);
        let pointer = response.interact_pointer_pos()?;
        Some(((pointer.y - rect.top()) / rect.height().max(1.0)).clamp(0.0, 1.0))
    }
}

fn label(response: &Response) {
    response.widget_info(|| {
        WidgetInfo::labeled(
            Role::ScrollBar,
            true,
            "Overview of all tokens: strongest value of every line, ticks at notes and tool calls",
        )
    });
}

/// One pixel row for several lines: the strongest value; ticks at the left for notes and tool calls.
fn picture(source: &Source<'_>, colours: &Colours) -> ColorImage {
    let rows = source.lines.len().clamp(1, ROWS);
    let width = 4;
    let mut pixels = vec![colours.ground; rows * width];
    for row in 0..rows {
        let from = row * source.lines.len() / rows;
        let to = ((row + 1) * source.lines.len() / rows).max(from + 1);
        let mut strongest = 0.0f32;
        let mut tick = None;
        for line in source.lines.get(from..to).unwrap_or_default() {
            let Some(line) = line[0].and_then(|line| source.layout.lines.get(line)) else {
                continue;
            };
            for token in line.tokens.clone() {
                let value = source.values.get(token).copied().unwrap_or(0.0);
                if value.abs() > strongest.abs() {
                    strongest = value;
                }
            }
            let kind = source.document.segments.get(line.segment).map(|of| of.kind);
            match kind {
                Some(SegmentKind::Block(Tag::Mem)) => tick = Some(colours.focus),
                Some(SegmentKind::Block(Tag::Search | Tag::Access)) if tick.is_none() => {
                    tick = Some(colours.weak);
                }
                _ => {}
            }
        }
        let fill = colours.signed(strongest / source.limit).0;
        for column in 0..width {
            if let Some(pixel) = pixels.get_mut(row * width + column) {
                *pixel = match tick {
                    Some(tick) if column == 0 => tick,
                    _ => fill,
                };
            }
        }
    }
    let size = [width, rows];
    ColorImage::new(size, pixels)
}

//! The scale of colours, and the audit that stands beside it.

use eframe::egui::{Align2, FontId, Rect, Role, Sense, Ui, WidgetInfo, pos2, vec2};

use super::document::Document;
use crate::gui::theme::Colours;
use crate::gui::words::signed;

/// The scale from one end to the other.
pub fn legend(ui: &mut Ui, colours: &Colours, limit: f32) {
    let (rect, response) = ui.allocate_exact_size(vec2(150.0, 18.0), Sense::hover());
    let inner = rect.shrink2(vec2(0.0, 3.0));
    let painter = ui.painter();
    for step in 0..30u8 {
        let share = f32::from(step) / 30.0;
        let left = inner.left() + share * inner.width();
        let piece = Rect::from_min_size(
            pos2(left, inner.top()),
            vec2(inner.width() / 30.0 + 1.0, inner.height()),
        );
        painter.rect_filled(piece, 0.0, colours.signed(share * 2.0 - 1.0 + 1.0 / 30.0).0);
    }
    let font = FontId::proportional(12.0);
    let ends = [
        (
            inner.left_center(),
            Align2::LEFT_CENTER,
            -limit,
            colours.signed(-1.0).1,
        ),
        (inner.center(), Align2::CENTER_CENTER, 0.0, colours.text),
        (
            inner.right_center(),
            Align2::RIGHT_CENTER,
            limit,
            colours.signed(1.0).1,
        ),
    ];
    for (at, anchor, value, colour) in ends {
        painter.text(at, anchor, signed(value, 2), font.clone(), colour);
    }
    let text = format!("Scale from {} to {}", signed(-limit, 2), signed(limit, 2));
    response.widget_info(|| WidgetInfo::labeled(Role::Image, true, &text));
    response.on_hover_text("A bar above a token: positive. A dotted bar below: negative. Grey italics: not trained on. A cut corner: clipped.");
}

/// Whether the weights are the sum of their parts and fall on sampled tokens alone, as a sentence.
#[must_use]
pub fn audit(of: &Document) -> String {
    let sum = |column: &[f32]| column.iter().map(|&value| f64::from(value)).sum::<f64>();
    let trained = of.mask.iter().filter(|on| **on).count();
    let (mut masked, mut empty, mut apart) = (0, 0, 0);
    for token in 0..of.len() {
        let get = |column: &[f32]| column.get(token).copied().unwrap_or(0.0);
        let on = of.mask.get(token) == Some(&true);
        let weight = get(&of.weight);
        masked += u32::from(!on && weight != 0.0);
        empty += u32::from(on && weight == 0.0);
        // The learner adds in this order, so the sum is the same to the last bit.
        let parts = get(&of.outcome) + get(&of.kl) + get(&of.memory);
        apart += u32::from(parts.to_bits() != weight.to_bits() && parts != weight);
    }
    let verdict = if masked + apart == 0 { "ok" } else { "FAULT" };
    format!(
        "weights {:+.2} = outcome {:+.2} + memory {:+.2} + KL {:+.2} ({verdict}) - {trained} sampled tokens, {masked} trained but not sampled, {empty} sampled with weight 0, {apart} not the sum of their parts",
        sum(&of.weight),
        sum(&of.outcome),
        sum(&of.memory),
        sum(&of.kl),
    )
}

//! The histogram of rewards, which is a filter too.

use eframe::egui::{Align2, FontId, Rect, Role, Sense, StrokeKind, Ui, WidgetInfo, pos2, vec2};

use crate::gui::world::World;

/// Bars of the histogram.
const BARS: usize = 12;

/// How many rollouts of the step got which reward; a click keeps only those.
pub fn histogram(ui: &mut Ui, world: &mut World) {
    let Some(run) = world.run() else { return };
    let id = world.selection.id;
    let rewards: Vec<f32> = run
        .members(id.purpose, id.step, None)
        .iter()
        .filter_map(|id| run.reward_at(*id, world.cursor))
        .collect();
    let low = rewards.iter().copied().fold(0.0f32, f32::min);
    let high = rewards.iter().copied().fold(1.0f32, f32::max);
    let width = (high - low) / BARS as f32;
    let mut counts = [0usize; BARS];
    for reward in &rewards {
        let at = (((reward - low) / width) as usize).min(BARS - 1);
        if let Some(count) = counts.get_mut(at) {
            *count += 1;
        }
    }
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let colours = world.theme.of(ui.ctx()).clone();
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), 54.0), Sense::hover());
    let bar = rect.width() / BARS as f32;
    let mut chosen = world.filter;
    for (at, &count) in counts.iter().enumerate() {
        let from = low + at as f32 * width;
        // The last bar holds its upper end too; a hair more keeps rounding out of the way.
        let range = (
            from - 1e-4,
            from + width - if at + 1 == BARS { -1e-4 } else { 1e-4 },
        );
        let whole = Rect::from_min_size(
            pos2(rect.left() + at as f32 * bar, rect.top()),
            vec2(bar, rect.height()),
        );
        let response = ui.interact(whole, ui.scope_id().with(("bar", at)), Sense::click());
        let on = world.filter == Some(range);
        response.widget_info(|| {
            let text = format!("reward {from:.2} to {:.2}: {count} rollouts", from + width);
            WidgetInfo::selected(Role::Button, true, on, text)
        });
        let height = (count as f32 / most as f32 * 38.0).max(1.0);
        let filled = Rect::from_min_max(
            pos2(whole.left() + 1.0, whole.bottom() - 12.0 - height),
            pos2(whole.right() - 1.0, whole.bottom() - 12.0),
        );
        let fill = if on { colours.focus } else { colours.weak };
        ui.painter().rect_filled(filled, 1.0, fill);
        if response.has_focus() {
            ui.painter()
                .rect_stroke(whole, 1.0, (1.5, colours.focus), StrokeKind::Inside);
        }
        if count > 0 && response.clicked() {
            chosen = if on { None } else { Some(range) };
        }
        response.on_hover_text(format!("{from:.2} to {:.2}: {count}", from + width));
    }
    let ends = [
        (rect.left_bottom(), Align2::LEFT_BOTTOM, low),
        (rect.right_bottom(), Align2::RIGHT_BOTTOM, high),
    ];
    for (at, anchor, value) in ends {
        let font = FontId::proportional(12.0);
        ui.painter()
            .text(at, anchor, format!("{value:.1}"), font, colours.weak);
    }
    if chosen != world.filter {
        world.set_filter(chosen);
    }
    if world.filter.is_some() && ui.button("Show all rewards (F)").clicked() {
        world.filter = None;
    }
}

//! A line chart with a sentence for screen readers, over egui_plot.

use eframe::egui::{
    Color32, FontId, Id, Response, RichText, Role, Sense, Shape, Stroke, Ui, WidgetInfo, pos2, vec2,
};
use egui_plot::{
    AxisHints, FilledArea, GridMark, Line, LineStyle, Plot, PlotPoints, Points, VLine,
};

/// A line of a chart.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// (step, value) in order.
    pub points: Vec<(f64, f64)>,
    /// Lowest and highest value at each point, if it stands for several runs.
    pub band: Option<Vec<(f64, f64)>>,
    /// Its colour.
    pub colour: Color32,
    /// Whether it is drawn dashed: a second kind of line of one run.
    pub dashed: bool,
}

/// How a chart is drawn.
pub struct Chart<'a> {
    /// What it shows; also its identity.
    pub title: &'a str,
    /// What the horizontal axis counts.
    pub across: &'a str,
    /// Its lines.
    pub curves: &'a [Curve],
    /// The cursor.
    pub at: Option<f64>,
    /// Height, points.
    pub height: f32,
    /// The vertical axis shows powers of ten.
    pub log: bool,
    /// What the vertical axis shows at least: all of 0 to 1 for shares.
    pub span: Option<(f64, f64)>,
    /// Charts of one group share a cursor.
    pub group: Option<Id>,
    /// Colour of the cursor.
    pub cursor: Color32,
    /// Colour of the grid: weaker than anything that is read.
    pub grid: Color32,
}

impl Chart<'_> {
    /// Draws it; gives the place on the horizontal axis that was clicked.
    pub fn show(&self, ui: &mut Ui) -> Option<f64> {
        let mut plot = Plot::new(self.title)
            .height(self.height)
            .allow_scroll(false)
            .allow_zoom(false)
            .allow_drag(false)
            .allow_boxed_zoom(false)
            .grid_color(self.grid)
            .grid_fade(0.0)
            .x_grid_spacer(|input| marks(input.bounds, 8.0, 1.0))
            .y_grid_spacer(|input| marks(input.bounds, 5.0, f64::MIN_POSITIVE))
            .custom_y_axes(vec![self.upright()])
            .custom_x_axes(vec![
                AxisHints::new_x()
                    .label(self.across.to_owned())
                    .label_spacing(6.0..=12.0)
                    .formatter(|mark, _| format!("{:.0}", mark.value)),
            ]);
        for end in self.ends() {
            plot = plot.include_y(end);
        }
        if self.curves.len() > 1 {
            self.legend(ui);
        }
        if let Some(group) = self.group {
            plot = plot.link_cursor(group, [true, false]);
        }
        let scaled = |value: f64| {
            if self.log {
                value.max(1e-12).log10()
            } else {
                value
            }
        };
        let response = plot.show(ui, |plot| {
            for curve in self.curves {
                if let Some(band) = &curve.band {
                    let xs: Vec<f64> = curve.points.iter().map(|point| point.0).collect();
                    let low: Vec<f64> = band.iter().map(|ends| scaled(ends.0)).collect();
                    let high: Vec<f64> = band.iter().map(|ends| scaled(ends.1)).collect();
                    let area = FilledArea::new(curve.name.clone(), &xs, &low, &high)
                        .fill_color(curve.colour.gamma_multiply(0.25))
                        .allow_hover(false);
                    plot.add(area);
                }
                let points = || -> PlotPoints<'_> {
                    curve.points.iter().map(|&(x, y)| [x, scaled(y)]).collect()
                };
                let style = if curve.dashed {
                    LineStyle::dashed_loose()
                } else {
                    LineStyle::Solid
                };
                plot.line(
                    Line::new(curve.name.clone(), points())
                        .color(curve.colour)
                        .width(1.8)
                        .style(style),
                );
                if curve.points.len() < 40 {
                    plot.points(
                        Points::new(curve.name.clone(), points())
                            .color(curve.colour)
                            .radius(2.2),
                    );
                }
            }
            if let Some(at) = self.at {
                // Without a name: the cursor needs no entry of its own.
                plot.vline(VLine::new("", at).color(self.cursor).width(1.0));
            }
        });
        self.label(&response.response);
        let clicked = response.response.clicked();
        let pointer = response
            .response
            .interact_pointer_pos()
            .filter(|_| clicked)?;
        Some(response.transform.value_from_position(pointer).x)
    }

    /// The vertical axis: a number for every few lines of the grid, however low the chart is.
    fn upright(&self) -> AxisHints<'static> {
        let axis = AxisHints::new_y()
            .label_spacing(8.0..=12.0)
            .min_thickness(36.0);
        if self.log {
            axis.formatter(|mark, _| format!("{:.0e}", 10f64.powf(mark.value)))
        } else {
            axis.formatter(|mark, _| number(mark.value, mark.step_size))
        }
    }

    /// What has to be in view: the span, and room around a line that is level.
    fn ends(&self) -> Vec<f64> {
        if self.log {
            return Vec::new();
        }
        let mut ends: Vec<f64> = self.span.into_iter().flat_map(|(a, b)| [a, b]).collect();
        let values = || self.curves.iter().flat_map(|curve| &curve.points);
        let low = values().map(|point| point.1).fold(f64::INFINITY, f64::min);
        let high = values()
            .map(|point| point.1)
            .fold(f64::NEG_INFINITY, f64::max);
        if ends.is_empty() && low.is_finite() && high - low < 1e-9 * high.abs().max(1e-9) {
            let room = (0.1 * high.abs()).max(0.1);
            ends.extend([low - room, high + room]);
        }
        ends
    }

    /// Names and colours above the chart, where they cover no line.
    fn legend(&self, ui: &mut Ui) {
        ui.horizontal_wrapped(|ui| {
            for curve in self.curves {
                // A name stays with its line: what does not fit goes to the next row together.
                let name = RichText::new(&curve.name).size(12.0);
                let width = ui.fonts_mut(|fonts| {
                    let font = FontId::proportional(12.0);
                    let letters = curve.name.chars();
                    letters.map(|c| fonts.glyph_width(&font, c)).sum::<f32>()
                });
                if ui.available_size_before_wrap().x
                    < width + 14.0 + 3.0 * ui.spacing().item_spacing.x
                {
                    ui.end_row();
                }
                let (rect, _) = ui.allocate_exact_size(vec2(14.0, 12.0), Sense::hover());
                let middle = rect.center().y;
                let ends = [pos2(rect.left(), middle), pos2(rect.right(), middle)];
                let stroke = Stroke::new(2.5, curve.colour);
                if curve.dashed {
                    let dashes = Shape::dashed_line(&ends, stroke, 4.0, 3.0);
                    ui.painter().extend(dashes);
                } else {
                    ui.painter().line_segment(ends, stroke);
                }
                ui.label(name);
            }
        });
    }

    fn label(&self, response: &Response) {
        response.widget_info(|| WidgetInfo::labeled(Role::Image, true, self.sentence()));
    }

    /// `Reward: run-1 last 0.55 at step 18, rising`.
    #[must_use]
    pub fn sentence(&self) -> String {
        let told: Vec<String> = self.curves.iter().map(tell).collect();
        if told.is_empty() {
            return format!("{}: no values", self.title);
        }
        format!("{}: {}", self.title, told.join("; "))
    }
}

/// Lines of the grid at 1, 2 or 5 times a power of ten, at most about so many, and not closer than
/// `least`: steps and turns are whole numbers.
fn marks((from, to): (f64, f64), most: f64, least: f64) -> Vec<GridMark> {
    let width = to - from;
    if !width.is_finite() || width <= 0.0 {
        return Vec::new();
    }
    let raw = width / most;
    let power = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|times| times * power)
        .find(|step| *step >= raw)
        .unwrap_or(10.0 * power)
        .max(least);
    let first = (from / step).ceil() as i64;
    let last = (to / step).floor() as i64;
    (first..=last)
        .take(64)
        .map(|at| GridMark {
            value: at as f64 * step,
            step_size: step,
        })
        .collect()
}

/// A number of the vertical axis, as fine as the lines of the grid are.
fn number(value: f64, step: f64) -> String {
    let decimals = (-step.log10().floor()).clamp(0.0, 6.0) as usize;
    let value = if value.abs() < step * 1e-6 {
        0.0
    } else {
        value
    };
    if value.abs() >= 1e5 {
        return format!("{value:.1e}");
    }
    format!("{value:.decimals$}")
}

fn tell(curve: &Curve) -> String {
    let Some(&(step, last)) = curve.points.last() else {
        return format!("{} has no values", curve.name);
    };
    // The mean of the first and of the last third: what the eye would call a trend.
    let third = curve.points.len().div_ceil(3);
    let mean = |points: &[(f64, f64)]| {
        points.iter().map(|point| point.1).sum::<f64>() / points.len().max(1) as f64
    };
    let first = mean(curve.points.get(..third).unwrap_or_default());
    let end = mean(
        curve
            .points
            .get(curve.points.len() - third..)
            .unwrap_or_default(),
    );
    let scale = curve
        .points
        .iter()
        .map(|point| point.1.abs())
        .fold(0.0, f64::max)
        .max(1e-12);
    let trend = match (end - first) / scale {
        change if change > 0.05 => "rising",
        change if change < -0.05 => "falling",
        _ => "level",
    };
    let band = curve.band.as_ref().and_then(|band| band.last());
    let band = band.map_or(String::new(), |(low, high)| {
        format!(", band {low:.4} to {high:.4}")
    });
    format!("{} last {last:.4} at {step:.0}, {trend}{band}", curve.name)
}

/// An exponential moving average with the weight of what came before; starts at the first value.
#[must_use]
pub fn smoothed(points: &[(f64, f64)], weight: f64) -> Vec<(f64, f64)> {
    let mut kept: Option<f64> = None;
    points
        .iter()
        .map(|&(x, y)| {
            let value = kept.map_or(y, |before| weight * before + (1.0 - weight) * y);
            kept = Some(value);
            (x, value)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smoothing_keeps_the_first_value_and_nothing_smooths_nothing() {
        let points = [(1.0, 4.0), (2.0, 0.0), (3.0, 2.0)];
        assert_eq!(smoothed(&points, 0.0), points);
        assert_eq!(smoothed(&points, 0.5), [(1.0, 4.0), (2.0, 2.0), (3.0, 2.0)]);
    }

    #[test]
    fn eight_steps_have_a_mark_each_and_five_hundred_have_a_few() {
        let at = |bounds, most, least| -> Vec<f64> {
            let marks = marks(bounds, most, least);
            marks.iter().map(|mark| mark.value).collect()
        };
        assert_eq!(
            at((0.6, 8.4), 8.0, 1.0),
            [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
        );
        assert_eq!(at((1.0, 3.0), 8.0, 1.0), [1.0, 2.0, 3.0]);
        assert_eq!(
            at((-20.0, 520.0), 8.0, 1.0),
            [0.0, 100.0, 200.0, 300.0, 400.0, 500.0]
        );
        assert_eq!(at((0.0, 1.0), 4.0, f64::MIN_POSITIVE), [0.0, 0.5, 1.0]);
        assert!(at((1.0, 1.0), 4.0, 1.0).is_empty());
        assert_eq!(number(0.5, 0.5), "0.5");
        assert_eq!(number(0.02, 0.02), "0.02");
        assert_eq!(number(-0.0, 1.0), "0");
    }

    #[test]
    fn a_chart_tells_its_last_value_and_its_trend() {
        let curve = |values: &[f64]| Curve {
            name: "a".into(),
            points: values
                .iter()
                .enumerate()
                .map(|(x, y)| (x as f64, *y))
                .collect(),
            band: None,
            colour: Color32::WHITE,
            dashed: false,
        };
        assert_eq!(tell(&curve(&[1.0, 2.0, 3.0])), "a last 3.0000 at 2, rising");
        assert_eq!(tell(&curve(&[1.0, 1.0, 1.0])), "a last 1.0000 at 2, level");
        assert_eq!(tell(&curve(&[])), "a has no values");
    }
}

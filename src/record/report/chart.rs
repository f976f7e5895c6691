//! Line charts: numbers to places in a picture. The page's template draws them.

use serde::Serialize;

use super::numbers::{round_range, short, tick_label, tick_steps};

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 222.0;
const LEFT: f64 = 54.0;
const RIGHT: f64 = 102.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;
/// Longer lines are thinned to this many places.
const MOST_PLACES: usize = 240;
/// Lines with more places get no dots.
const MOST_DOTS: usize = 40;
/// Labels at the ends of lines keep this distance.
const LABEL_GAP: f64 = 13.0;

/// A line to draw: label, colour class, (step, value).
pub(crate) struct Line {
    pub label: String,
    pub class: &'static str,
    pub points: Vec<(u32, f64)>,
    /// Around the points, where the true value lies: (step, low, high). Empty: no band.
    pub band: Vec<(u32, f64, f64)>,
}

/// A chart to draw.
pub(crate) struct Plan {
    pub title: String,
    pub caption: String,
    pub unit: &'static str,
    pub steps: &'static str,
    /// Shares and probabilities keep the whole range from 0 to 1.
    pub share: bool,
    pub lines: Vec<Line>,
}

/// A chart with everything in its place.
#[derive(Debug, Serialize)]
pub(crate) struct Chart {
    title: String,
    caption: String,
    unit: &'static str,
    steps: &'static str,
    /// What the picture shows, in words.
    summary: String,
    width: f64,
    height: f64,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x_ticks: Vec<Tick>,
    y_ticks: Vec<Tick>,
    lines: Vec<Placed>,
}

#[derive(Debug, Serialize)]
struct Tick {
    at: f64,
    label: String,
}

#[derive(Debug, Serialize)]
struct Placed {
    label: String,
    class: &'static str,
    path: String,
    /// A closed path, empty without a band.
    band: String,
    dots: Vec<Dot>,
    end_x: f64,
    end_y: f64,
    label_y: f64,
}

#[derive(Debug, Serialize)]
struct Dot {
    x: f64,
    y: f64,
    title: String,
}

impl Plan {
    /// Lays the chart out; none if there is nothing to draw.
    pub(crate) fn place(self) -> Option<Chart> {
        let lines: Vec<Line> = self.lines.into_iter().filter_map(Line::finite).collect();
        let all = || lines.iter().flat_map(|line| line.points.iter());
        let first_step = f64::from(all().map(|p| p.0).min()?);
        let last_step = f64::from(all().map(|p| p.0).max()?);
        let ends = || {
            let bands = lines.iter().flat_map(|line| line.band.iter());
            all().map(|p| p.1).chain(bands.flat_map(|b| [b.1, b.2]))
        };
        let low = ends().fold(f64::INFINITY, f64::min);
        let high = ends().fold(f64::NEG_INFINITY, f64::max);
        let (low, high, gap) = if self.share && low >= 0.0 && high <= 1.0 {
            (0.0, 1.0, 0.25)
        } else {
            round_range(low, high)
        };
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        let step_span = (last_step - first_step).max(1.0);
        let x =
            |step: u32| round(LEFT + (f64::from(step) - first_step) / step_span * (right - LEFT));
        let y = |value: f64| round(bottom - (value - low) / (high - low) * (bottom - TOP));

        let y_count = ((high - low) / gap).round() as u32;
        let y_ticks = (0..=y_count).map(|i| {
            let value = low + f64::from(i) * gap;
            Tick {
                at: y(value),
                label: tick_label(value, gap),
            }
        });
        let x_ticks = tick_steps(first_step as u32, last_step as u32);
        let summary = lines.iter().map(Line::in_words).collect::<Vec<_>>();
        let mut placed: Vec<Placed> = lines.iter().map(|l| l.place(x, y)).collect();
        part_labels(&mut placed, TOP + 4.0, bottom);
        let summary = format!("{}: {}", self.title, summary.join("; "));
        Some(Chart {
            title: self.title,
            caption: self.caption,
            unit: self.unit,
            steps: self.steps,
            summary,
            width: WIDTH,
            height: HEIGHT,
            left: LEFT,
            right,
            top: TOP,
            bottom,
            x_ticks: x_ticks
                .map(|step| Tick {
                    at: x(step),
                    label: step.to_string(),
                })
                .collect(),
            y_ticks: y_ticks.collect(),
            lines: placed,
        })
    }
}

impl Line {
    /// Leaves out what cannot be drawn; thins a long line to means of neighbours.
    fn finite(mut self) -> Option<Self> {
        self.points.retain(|p| p.1.is_finite());
        self.band.retain(|b| b.1.is_finite() && b.2.is_finite());
        let bucket = self.points.len().div_ceil(MOST_PLACES).max(1);
        if bucket > 1 {
            let mean = |chunk: &[(u32, f64)]| {
                let value = chunk.iter().map(|p| p.1).sum::<f64>() / chunk.len() as f64;
                Some((chunk.last()?.0, value))
            };
            let ends = (self.points.first().copied(), self.points.last().copied());
            self.points = self.points.chunks(bucket).filter_map(mean).collect();
            // The ends are named in words, so they stay exact.
            if let (Some(place), Some(end)) = (self.points.first_mut(), ends.0) {
                *place = end;
            }
            if let (Some(place), Some(end)) = (self.points.last_mut(), ends.1) {
                *place = end;
            }
        }
        (!self.points.is_empty()).then_some(self)
    }

    fn in_words(&self) -> String {
        let Self { label, points, .. } = self;
        match (points.first(), points.last()) {
            (Some(first), Some(last)) if points.len() > 1 => format!(
                "{label} {} at step {}, {} at step {}",
                short(first.1),
                first.0,
                short(last.1),
                last.0
            ),
            (Some(only), _) => format!("{label} {} at step {}", short(only.1), only.0),
            _ => label.clone(),
        }
    }

    /// Forth along the upper edge, back along the lower one.
    fn place_band(&self, x: impl Fn(u32) -> f64, y: impl Fn(f64) -> f64) -> String {
        if self.band.len() < 2 {
            return String::new();
        }
        let upper = self.band.iter().map(|b| (x(b.0), y(b.2)));
        let lower = self.band.iter().rev().map(|b| (x(b.0), y(b.1)));
        let places: Vec<String> = upper
            .chain(lower)
            .map(|(x, y)| format!("{x} {y}"))
            .collect();
        format!("M{} Z", places.join(" L"))
    }

    fn place(&self, x: impl Fn(u32) -> f64, y: impl Fn(f64) -> f64) -> Placed {
        let places: Vec<(f64, f64)> = self.points.iter().map(|p| (x(p.0), y(p.1))).collect();
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x} {y}")).collect();
        let (end_x, end_y) = places.last().copied().unwrap_or_default();
        let dots = if places.len() > MOST_DOTS {
            Vec::new()
        } else {
            let dot = |(&(step, value), &(x, y)): (&(u32, f64), &(f64, f64))| Dot {
                x,
                y,
                title: format!("{}: {} at step {step}", self.label, short(value)),
            };
            self.points.iter().zip(&places).map(dot).collect()
        };
        Placed {
            label: format!(
                "{} {}",
                self.label,
                short(self.points.last().map_or(0.0, |p| p.1))
            ),
            class: self.class,
            path: format!("M{}", path.join(" L")),
            band: self.place_band(&x, &y),
            dots,
            end_x,
            end_y,
            label_y: end_y,
        }
    }
}

/// Moves labels at the ends of lines apart, and keeps them inside the picture.
fn part_labels(lines: &mut [Placed], top: f64, bottom: f64) {
    let mut order: Vec<&mut Placed> = lines.iter_mut().collect();
    order.sort_by(|a, b| a.end_y.total_cmp(&b.end_y));
    let mut free = top;
    for line in &mut order {
        line.label_y = round(line.end_y.max(free));
        free = line.label_y + LABEL_GAP;
    }
    let mut limit = bottom;
    for line in order.iter_mut().rev() {
        line.label_y = round(line.label_y.min(limit));
        limit = line.label_y - LABEL_GAP;
    }
}

fn round(v: f64) -> f64 {
    (v * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(points: Vec<(u32, f64)>, share: bool) -> Option<Chart> {
        let line = Line {
            label: "full".into(),
            class: "a",
            points,
            band: Vec::new(),
        };
        Plan {
            title: "Reward".into(),
            caption: String::new(),
            unit: "reward",
            steps: "step",
            share,
            lines: vec![line],
        }
        .place()
    }

    #[test]
    fn nothing_is_drawn_without_a_finite_number() {
        assert!(plan(vec![], false).is_none());
        assert!(plan(vec![(1, f64::NAN)], true).is_none());
    }

    #[test]
    fn a_single_point_and_a_flat_line_stay_inside_the_picture() {
        for points in [vec![(0, 0.0)], vec![(3, 5.0), (4, 5.0)], vec![(7, 1e-9)]] {
            let chart = plan(points, false).unwrap();
            assert!((chart.top..=chart.bottom).contains(&chart.lines[0].end_y));
            assert!((chart.left..=chart.right).contains(&chart.lines[0].end_x));
            assert!(chart.y_ticks.len() >= 2 && !chart.x_ticks.is_empty());
        }
    }

    #[test]
    fn a_long_line_is_thinned_and_has_no_dots() {
        let chart = plan((0..5000).map(|i| (i, f64::from(i))).collect(), false).unwrap();
        assert!(chart.lines[0].dots.is_empty());
        assert!(chart.lines[0].path.matches('L').count() < MOST_PLACES);
        assert_eq!(chart.summary, "Reward: full 0 at step 0, 4999 at step 4999");
    }
}

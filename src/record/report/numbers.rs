//! Numbers as a reader wants them: round ticks, few digits, a sign that shows.

/// A range that begins and ends at round numbers, and the gap between its ticks.
pub(super) fn round_range(low: f64, high: f64) -> (f64, f64, f64) {
    let span = if high - low > 1e-12 {
        high - low
    } else {
        // A flat line stands in the middle.
        low.abs().max(1e-3)
    };
    let rough = span / 4.0;
    let power = 10f64.powf(rough.log10().floor());
    let gap = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|gap| *gap >= rough)
        .unwrap_or(10.0 * power);
    let (from, mut to) = ((low / gap).floor() * gap, (high / gap).ceil() * gap);
    if to - from < gap / 2.0 {
        to = from + gap;
    }
    (from, to, gap)
}

/// At most six steps with a round distance; the first and the last are among them when few.
pub(super) fn tick_steps(first: u32, last: u32) -> impl Iterator<Item = u32> {
    let rough = (last - first).div_ceil(5).max(1);
    let power = 10u32.pow(rough.ilog10());
    let gap = [1, 2, 5, 10]
        .into_iter()
        .map(|m| m * power)
        .find(|gap| *gap >= rough)
        .unwrap_or(rough);
    (first.div_ceil(gap)..=last / gap).map(move |i| i * gap)
}

/// The label of a tick, with as many digits as the gap needs.
pub(super) fn tick_label(value: f64, gap: f64) -> String {
    let digits = (-gap.log10()).ceil().clamp(0.0, 8.0) as usize;
    let exact = (gap * 10f64.powi(digits as i32)).fract() < 1e-6;
    let text = format!("{value:.*}", digits + usize::from(!exact));
    if gap < 1e-4 {
        format!("{value:.1e}")
    } else {
        text
    }
}

/// A number with three digits that matter.
pub(crate) fn short(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => value.to_string(),
        0.0 => "0".into(),
        _ if size >= 100.0 => format!("{value:.0}"),
        _ if size >= 10.0 => format!("{value:.1}"),
        _ if size >= 0.01 => format!("{value:.2}"),
        _ if size >= 1e-4 => format!("{value:.4}"),
        _ => format!("{value:.1e}"),
    }
}

/// A number with its sign; a true minus, since pages can show one.
pub(crate) fn signed(value: f64) -> String {
    let sign = match value {
        v if v > 0.0 => "+",
        v if v < 0.0 => "\u{2212}",
        _ => "\u{b1}",
    };
    format!("{sign}{}", short(value.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(round_range(0.3, 3.7), (0.0, 4.0, 1.0));
        assert_eq!(tick_steps(0, 10).collect::<Vec<_>>(), [0, 2, 4, 6, 8, 10]);
        assert_eq!(tick_label(0.25, 0.25), "0.25");
        assert_eq!(tick_label(1.0, 0.5), "1.0");
    }

    #[test]
    fn signs_stand_before_numbers() {
        assert_eq!(signed(0.25), "+0.25");
        assert_eq!(signed(-0.25), "\u{2212}0.25");
        assert_eq!(signed(0.0), "\u{b1}0");
    }
}

//! Which trajectories the report tells: from the first step and the last, right and wrong.

use std::cmp::Reverse;

use crate::record::{RunView, TrajectoryView};
use crate::trajectory::Purpose;

/// At most four. Training trajectories whose tokens are kept come first; a run without any shows
/// evaluated ones.
pub(super) fn telling(view: &RunView) -> Vec<&TrajectoryView> {
    let of = |purpose: Purpose, with_tokens: bool| -> Vec<&TrajectoryView> {
        view.trajectories
            .values()
            .filter(|t| t.id.purpose == purpose && !t.turns.is_empty() && t.outcome.is_some())
            .filter(|t| !with_tokens || !t.tokens.is_empty())
            .collect()
    };
    let candidates = [
        of(Purpose::Train, true),
        of(Purpose::Train, false),
        of(Purpose::Evaluate, false),
    ];
    let Some(candidates) = candidates.iter().find(|c| !c.is_empty()) else {
        return Vec::new();
    };
    let steps = candidates.iter().map(|t| t.id.step);
    let (first, last) = (steps.clone().min(), steps.max());
    let mut steps = vec![first, last];
    steps.dedup();
    let mut chosen = Vec::new();
    for step in steps {
        for right in [true, false] {
            let fits = |t: &&&TrajectoryView| {
                Some(t.id.step) == step && t.outcome.is_some_and(|o| (o.em > 0.5) == right)
            };
            // The strongest memory credit tells most; then the most turns; then the first.
            chosen.extend(
                candidates
                    .iter()
                    .filter(fits)
                    .min_by_key(|t| (Reverse(strength(t)), Reverse(t.turns.len()), t.id)),
            );
        }
    }
    chosen
}

/// The largest memory advantage in thousandths: whole numbers have an order.
fn strength(trajectory: &TrajectoryView) -> i64 {
    let sizes = trajectory
        .memory
        .iter()
        .map(|m| (m.advantage.abs() * 1000.0) as i64);
    sizes.max().unwrap_or(0)
}

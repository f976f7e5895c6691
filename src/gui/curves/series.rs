//! Lines of charts out of the metrics of runs.

use std::collections::BTreeMap;

use super::charts::ChartOf;
use crate::gui::Cursor;
use crate::gui::chart::{Curve, smoothed};
use crate::gui::run::Run;
use crate::gui::theme::Colours;
use crate::trajectory::Purpose;

/// What lines are made with.
pub struct How {
    /// Weight of what came before, 0 to 1.
    pub smoothing: f64,
    /// Runs of one name become one line.
    pub bands: bool,
    /// The count of objectives that evaluations are shown for; none: the one measured most often.
    pub objectives: Option<u32>,
}

/// The lines of a chart: every metric of every run that is compared. Runs come with their numbers.
pub fn curves(
    runs: &[(usize, &Run)],
    chart: &ChartOf<'_>,
    how: &How,
    colours: &Colours,
) -> Vec<Curve> {
    let several = runs.len() > 1;
    let mut by_name: BTreeMap<(String, usize, String), Vec<(usize, Vec<(f64, f64)>)>> =
        BTreeMap::new();
    for (number, run) in runs {
        for (metric, points) in series_of(run, chart.metrics, how.objectives) {
            // Two folders may have one name; only bands put runs together by it.
            let (name, place) = match how.bands {
                true => (run.view.name.clone(), 0),
                false => (run.name(), *number),
            };
            let line = by_name.entry((metric, place, name)).or_default();
            line.push((*number, points));
        }
    }
    let mut metrics_seen: Vec<String> = Vec::new();
    let mut curves = Vec::new();
    for ((metric, _, run), members) in by_name {
        if !metrics_seen.contains(&metric) {
            metrics_seen.push(metric.clone());
        }
        let kind = metrics_seen
            .iter()
            .position(|seen| *seen == metric)
            .unwrap_or(0);
        let first = members.first().map_or(0, |(number, _)| *number);
        let (points, band) = banded(&members);
        let alone = runs.first().filter(|_| !several);
        let alone = alone.filter(|_| chart.groups);
        let spread = alone.and_then(|(_, run)| spread_of(run, &points));
        let tail = short(&metric);
        curves.push(Curve {
            name: if several {
                format!("{run} {tail}")
            } else {
                tail
            },
            points: smoothed(&points, how.smoothing),
            band: band.or(spread),
            // With one run the metrics have colours; with several the runs have, always the same.
            colour: colours.run(if several { first } else { kind }),
            dashed: several && kind % 2 == 1,
        });
    }
    curves
}

/// The lowest and the highest mean reward of a group at every point, where the record keeps whole
/// groups of every step.
fn spread_of(run: &Run, points: &[(f64, f64)]) -> Option<Vec<(f64, f64)>> {
    let size = run.experiment.as_ref()?.rollout.group_size as usize;
    points
        .iter()
        .map(|(step, _)| {
            // Steps of metrics count from 1; the rollouts of the first have the number 0.
            let step = (*step as u32).checked_sub(1)?;
            let members = run.members(Purpose::Train, step, None);
            let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
            for group in members.chunk_by(|a, b| a.group == b.group) {
                let rewards: Option<Vec<f64>> = group
                    .iter()
                    .map(|id| Some(f64::from(run.reward_at(*id, Cursor::Live)?)))
                    .collect();
                let rewards = rewards.filter(|of| of.len() == size)?;
                let mean = rewards.iter().sum::<f64>() / rewards.len().max(1) as f64;
                (low, high) = (low.min(mean), high.max(mean));
            }
            (low <= high).then_some((low, high))
        })
        .collect()
}

/// Mean of runs at each step that all of them have, and the ends; one run is its own mean.
fn banded(members: &[(usize, Vec<(f64, f64)>)]) -> (Vec<(f64, f64)>, Option<Vec<(f64, f64)>>) {
    if let [(_, alone)] = members {
        return (alone.clone(), None);
    }
    let mut at: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for &(step, value) in members.iter().flat_map(|(_, points)| points) {
        at.entry(step as u64).or_default().push(value);
    }
    at.retain(|_, values| values.len() == members.len());
    let mean = |values: &Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
    let points = at
        .iter()
        .map(|(step, values)| (*step as f64, mean(values)))
        .collect();
    let ends = |values: &Vec<f64>| {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        (
            low,
            values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        )
    };
    (points, Some(at.values().map(ends).collect()))
}

/// The series that a list of names asks for. A `*` stands for one or more parts of a name. Of
/// evaluations those of one count of objectives: the wanted one, or the one measured most often.
fn series_of(
    run: &Run,
    metrics: &[&str],
    objectives: Option<u32>,
) -> Vec<(String, Vec<(f64, f64)>)> {
    let mut found = Vec::new();
    for name in metrics {
        let Some((beginning, end)) = name.split_once('*') else {
            found.push(((*name).to_owned(), wide(run.view.metric(name))));
            continue;
        };
        let long = beginning.len() + end.len();
        let all: Vec<&String> = run
            .view
            .series
            .keys()
            .filter(|name| name.len() > long && name.starts_with(beginning) && name.ends_with(end))
            .collect();
        let wanted = objectives.or_else(|| most_measured(run));
        for name in all {
            let of = counted(name);
            if of.is_none() || of == wanted {
                found.push((name.clone(), wide(run.view.metric(name))));
            }
        }
    }
    found
}

/// The count of objectives at the end of an evaluation's name.
fn counted(name: &str) -> Option<u32> {
    let tail = name.strip_prefix("val-core/")?.rsplit('/').next()?;
    tail.parse().ok()
}

/// The counts of objectives that a run was measured with.
pub fn objectives_of(run: &Run) -> Vec<u32> {
    let mut counts: Vec<u32> = run
        .view
        .series
        .keys()
        .filter_map(|name| counted(name))
        .collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// The count of objectives with the most measurements; of several the largest, which asks the most.
pub fn most_measured(run: &Run) -> Option<u32> {
    let named = run
        .view
        .series
        .iter()
        .filter_map(|(name, points)| Some((points.len(), counted(name)?)));
    named.max().map(|(_, count)| count)
}

fn wide(points: &[(u32, f64)]) -> Vec<(f64, f64)> {
    points
        .iter()
        .map(|&(step, value)| (f64::from(step), value))
        .collect()
}

/// The end of a name, which tells lines of one chart apart.
fn short(metric: &str) -> String {
    let parts: Vec<&str> = metric.split('/').collect();
    parts
        .get(parts.len().saturating_sub(2)..)
        .unwrap_or_default()
        .join("/")
}

/// Metrics of all open runs whose names hold these letters.
pub fn names(runs: &[Run], search: &str) -> Vec<String> {
    let mut names: Vec<String> = runs
        .iter()
        .flat_map(|run| run.view.series.keys())
        .filter(|name| name.to_lowercase().contains(search))
        .cloned()
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::record::Metrics;

    fn run(lines: &[(u32, &[(&str, f64)])]) -> Run {
        let mut run = Run::empty(Path::new("run"));
        for (step, values) in lines {
            let mut metrics = Metrics::default();
            for (name, value) in *values {
                metrics.set(*name, *value);
            }
            run.view.apply_metrics(*step, &metrics);
        }
        run
    }

    #[test]
    fn a_band_holds_the_steps_that_every_run_has() {
        let members = [
            (0, vec![(1.0, 1.0), (2.0, 4.0)]),
            (1, vec![(1.0, 3.0), (2.0, 0.0), (3.0, 9.0)]),
        ];
        let (points, band) = banded(&members);
        assert_eq!(points, [(1.0, 2.0), (2.0, 2.0)]);
        assert_eq!(band.unwrap(), [(1.0, 3.0), (0.0, 4.0)]);
    }

    #[test]
    fn evaluations_are_shown_for_the_count_that_was_measured_most_often() {
        let (three, six) = ("val-core/lookup/em/full/3", "val-core/lookup/em/full/6");
        let run = run(&[
            (0, &[(three, 0.1), (six, 0.0)]),
            (4, &[(three, 0.3)]),
            (8, &[(three, 0.6), (six, 0.2)]),
        ]);
        assert_eq!(objectives_of(&run), [3, 6]);
        let shown = |wanted| series_of(&run, &["val-core/*"], wanted);
        let [(name, points)] = &shown(None)[..] else {
            panic!("{:?}", shown(None))
        };
        assert_eq!((name.as_str(), points.len()), (three, 3));
        assert_eq!(shown(Some(6))[0].0, six);
    }

    #[test]
    fn a_star_stands_for_parts_in_the_middle_too() {
        let run = run(&[(
            1,
            &[
                ("cold_start/full/loss", 1.0),
                ("cold_start/aid_loss", 2.0),
                ("cold_start/lr", 3.0),
            ],
        )]);
        let found = series_of(&run, &["cold_start/*/loss"], None);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, "cold_start/full/loss");
    }
}

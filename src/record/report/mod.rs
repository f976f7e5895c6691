//! `report.html`: one self-contained page that tells a run.
//!
//! Reads a run folder (events, metrics, tokens, vocabulary, summary), lays numbers and words out,
//! and fills the template `assets/report/report.html`, which escapes every text.

pub(crate) mod chart;
mod choose;
mod curves;
pub(crate) mod diff;
pub(crate) mod numbers;
mod silence;
mod story;
mod table;
mod tokens;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment};
use serde::Serialize;

use self::story::Story;
use self::tokens::{LEVELS, Scale};
use super::append::write_atomic;
use super::progress::span;
use super::{
    Palette, RecordError, RunFolder, RunRecord, RunView, SignedScale, Summary, TokenBlock,
    TokenReader, TrajectoryView, names,
};

/// Everything on the page.
#[derive(Serialize)]
struct Page<'a> {
    view: Head<'a>,
    headlines: Vec<table::Headline>,
    objectives: Option<u32>,
    wall: Vec<(String, String)>,
    columns: Vec<&'static str>,
    table: Vec<table::TableRow>,
    sections: Vec<curves::Section>,
    stories: Vec<Story>,
    coloured: bool,
    limit: String,
    levels: Vec<Level>,
    endings: Vec<Ending>,
    silent: Vec<silence::SilentRow>,
    kl_paid: bool,
    notices: Vec<String>,
    troubles: Vec<(String, String)>,
    experiment: String,
}

/// What the page's head says.
#[derive(Serialize)]
struct Head<'a> {
    name: &'a str,
    folder: String,
    seed: u64,
    version: &'a str,
    fingerprint: &'a str,
    status: &'static str,
    steps: u32,
    cold_start_steps: u32,
    resumes: u32,
}

/// A colour of the signed scale, with the text colour on it, for light and dark pages.
#[derive(Serialize)]
struct Level {
    /// `p1` to `p10`, `n1` to `n10`, `0`.
    name: String,
    light: [String; 2],
    dark: [String; 2],
}

/// How trajectories ended, or which rule they broke, at the first step and at the last.
#[derive(Serialize)]
struct Ending {
    label: String,
    first: String,
    last: String,
    share: f64,
}

/// Makes `report.html` from what the run folder holds, finished or not.
///
/// # Errors
/// [`RecordError`] if the folder cannot be read or the page cannot be written. Damaged tokens and
/// torn lines are told on the page instead.
pub fn write_report(folder: &RunFolder) -> Result<PathBuf, RecordError> {
    let record = RunRecord::read(folder)?;
    let view = record.view();
    let experiment = read_text(folder, "experiment.ron")?;
    let vocabulary: Vec<String> =
        serde_json::from_str(&read_text(folder, "vocab.json")?).unwrap_or_default();
    let wall = Summary::read(folder)
        .ok()
        .flatten()
        .map(|s| s.wall_seconds)
        .unwrap_or_default();

    let chosen = choose::telling(&view);
    let blocks: Vec<_> = chosen.iter().map(|t| read_blocks(folder, t)).collect();
    let scale = Scale::over(blocks.iter().flatten().flatten());
    let stories: Vec<Story> = chosen
        .iter()
        .zip(&blocks)
        .map(|(trajectory, blocks)| story::story(&view, trajectory, blocks, &vocabulary, scale))
        .collect();
    let objectives = curves::main_objectives(&view);
    let page = Page {
        view: head(folder, &view),
        headlines: table::headlines(&view, objectives),
        objectives,
        wall: wall.into_iter().map(in_words).collect(),
        columns: table::columns(),
        table: table::rows(&view),
        sections: curves::sections(&view),
        coloured: blocks.iter().flatten().any(|b| !b.is_empty()),
        stories,
        limit: numbers::short(scale.limit.into()),
        levels: levels(Palette::shipped()?),
        endings: endings(&view),
        silent: silence::rows(&view),
        kl_paid: blocks
            .iter()
            .flatten()
            .flatten()
            .any(|block| block.kl.iter().any(|kl| *kl != 0.0)),
        notices: record.notices.iter().map(ToString::to_string).collect(),
        troubles: troubles(&view),
        experiment,
    };
    let path = folder.file("report.html");
    write_atomic(&path, render(&page)?.as_bytes())?;
    Ok(path)
}

fn render(page: &Page<'_>) -> Result<String, RecordError> {
    let mut pages = Environment::new();
    pages.set_auto_escape_callback(|_| AutoEscape::Html);
    let wrong = |e: minijinja::Error| RecordError::Layout {
        what: "report.html",
        why: format!("{e:#}"),
    };
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .map_err(wrong)?;
    pages.set_syntax(syntax);
    pages
        .render_str(
            include_str!("../../../assets/report/report.html"),
            Serde(page),
        )
        .map_err(wrong)
}

fn head<'a>(folder: &RunFolder, view: &'a RunView) -> Head<'a> {
    let name = folder.path().file_name().unwrap_or_default();
    Head {
        name: &view.name,
        folder: name.to_string_lossy().into_owned(),
        seed: view.seed,
        version: &view.version,
        fingerprint: &view.experiment,
        status: view.status.as_str(),
        steps: view.steps,
        cold_start_steps: view.cold_start_steps,
        resumes: view.resumes,
    }
}

fn in_words((stage, seconds): (String, f64)) -> (String, String) {
    let time = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    (stage.replace('_', " "), span(time))
}

/// A missing file reads as nothing: the page is made from what is there.
fn read_text(folder: &RunFolder, name: &str) -> Result<String, RecordError> {
    let path = folder.file(name);
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(e) => Err(RecordError::io("read", &path, e)),
    }
}

fn read_blocks(folder: &RunFolder, trajectory: &TrajectoryView) -> Result<Vec<TokenBlock>, String> {
    if trajectory.tokens.is_empty() {
        return Ok(Vec::new());
    }
    let mut reader = TokenReader::open(folder.path()).map_err(|e| e.to_string())?;
    let read = |&at| reader.read(at).map_err(|e| e.to_string());
    trajectory.tokens.iter().map(read).collect()
}

fn levels(palette: Palette) -> Vec<Level> {
    let colours = |scale: SignedScale, level: i32| {
        let colour = scale.at(f64::from(level) / f64::from(LEVELS));
        [colour.hex(), colour.text().hex()]
    };
    (-LEVELS..=LEVELS)
        .map(|level| Level {
            name: match level {
                0 => "0".into(),
                1.. => format!("p{level}"),
                _ => format!("n{}", -level),
            },
            light: colours(palette.light, level),
            dark: colours(palette.dark, level),
        })
        .collect()
}

fn endings(view: &RunView) -> Vec<Ending> {
    let reasons = names::STOP_REASONS.map(|r| {
        (
            format!("stop/{}", names::stop_reason(r)),
            names::stop_reason(r),
        )
    });
    let rules = names::FORMAT_RULES.map(|r| {
        (
            format!("format/{}", names::format_rule(r)),
            names::format_rule(r),
        )
    });
    let as_percent = |share: f64| format!("{:.0} %", share * 100.0);
    reasons
        .iter()
        .map(|(name, word)| (name, word.replace('_', " ")))
        .chain(
            rules
                .iter()
                .map(|(name, word)| (name, format!("broke the rule {word}"))),
        )
        .filter_map(|(name, label)| {
            let series = view.metric(name);
            let (first, last) = (series.first()?.1, series.last()?.1);
            series.iter().any(|p| p.1 > 0.0).then(|| Ending {
                label,
                first: as_percent(first),
                last: as_percent(last),
                share: (last * 100.0).clamp(0.0, 100.0),
            })
        })
        .collect()
}

/// Troubles that say the same are told once, with their number and their first place.
fn troubles(view: &RunView) -> Vec<(String, String)> {
    let mut told = BTreeMap::<&str, (u32, String)>::new();
    for trouble in &view.troubles {
        let place = trouble.id.map_or_else(String::new, story::place_name);
        told.entry(&trouble.what).or_insert((0, place)).0 += 1;
    }
    let mut lines: Vec<_> = told.into_iter().collect();
    lines.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    lines
        .into_iter()
        .map(|(what, (count, place))| {
            let times = match (count, place.as_str()) {
                (1, "") => "once".into(),
                (1, place) => format!("once: {place}"),
                (count, "") => format!("{count} times"),
                (count, place) => format!("{count} times, first: {place}"),
            };
            (what.to_owned(), times)
        })
        .collect()
}

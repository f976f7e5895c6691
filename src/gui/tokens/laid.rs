//! What the Tokens panel works out once, and not once a frame: rows, margins, the scale, the audit.

use std::sync::Arc;

use eframe::egui::{FontId, Ui};

use super::document::Document;
use super::layout::{Layout, beside, rows};
use super::legend::audit;
use super::line::margin_font;
use super::value::{Granularity, Value, shown_values, token_limit};
use crate::gui::run::Run;
use crate::gui::words::signed;
use crate::trajectory::TrajectoryId;

/// What is shown, and how: when it changes, everything is laid out anew.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wanted {
    /// The run, by its place.
    pub run: usize,
    /// Changes with the credit or the tokens of the group.
    pub stamp: u64,
    /// The rollout.
    pub id: TrajectoryId,
    /// The rollout beside it.
    pub sibling: Option<TrajectoryId>,
    /// The number that is shown.
    pub value: Value,
    /// Over what it is averaged.
    pub granularity: Granularity,
    /// Width of the panel, points.
    pub width: f32,
    /// Width of a letter, points.
    pub glyph: f32,
    /// The end of the scale, if it is locked.
    pub locked: Option<f32>,
}

/// A document that is laid out and has its values.
pub struct Laid {
    /// The tokens.
    pub document: Arc<Document>,
    /// Their lines.
    pub layout: Layout,
    /// Their values as shown.
    pub values: Vec<f32>,
    /// What the margin says, by stretch.
    pub headings: Vec<String>,
}

/// Everything that a frame draws from.
pub struct Cache {
    /// What it was made for.
    pub made: Wanted,
    /// The selected rollout.
    pub left: Laid,
    /// The one beside it.
    pub right: Option<Laid>,
    /// Lines that stand beside each other.
    pub rows: Vec<[Option<usize>; 2]>,
    /// Width of the margin, points.
    pub margin: f32,
    /// Width of the tokens of one rollout, points.
    pub room: f32,
    /// The end of the scale.
    pub limit: f32,
    /// Whether the weights are what they should be.
    pub audit: String,
}

/// The end of the scale of a group, with what it was made from.
pub type Limit = ((u64, Value), f32);

/// Lays out what is wanted.
///
/// # Errors
/// Why it cannot be shown, for the user.
pub fn lay(
    ui: &Ui,
    run: &mut Run,
    wanted: Wanted,
    known: &mut Option<Limit>,
    font: &FontId,
) -> Result<Cache, String> {
    let document = run.document(wanted.id)?;
    if !wanted.value.known(&document) {
        return Err(format!(
            "This run does not record the {} of its tokens: it was written by an earlier version. Choose another value.",
            wanted.value.text()
        ));
    }
    let sibling = wanted.sibling.and_then(|id| run.document(id).ok());
    let limit = match wanted.locked {
        Some(limit) => limit,
        None => group_limit(run, &wanted, known)?,
    };
    let values = |of: &Document| shown_values(of, wanted.value, wanted.granularity);
    let ours = values(&document);
    let theirs = sibling.as_ref().map(|of| values(of));
    let mut headings = headings(&document, &ours);
    if let (Some(other), Some(theirs)) = (&sibling, &theirs) {
        for (at, found) in beside(&document, other).into_iter().enumerate() {
            let pair = mean(&document, &ours, at).zip(found.and_then(|at| mean(other, theirs, at)));
            if let (Some((ours, theirs)), Some(heading)) = (pair, headings.get_mut(at)) {
                heading.push_str(&format!("  diff {}", signed(ours - theirs, 2)));
            }
        }
    }
    let small = margin_font();
    let length = |text: &String| -> f32 {
        ui.fonts_mut(|fonts| text.chars().map(|c| fonts.glyph_width(&small, c)).sum())
    };
    let columns = if sibling.is_some() { 2.0 } else { 1.0 };
    let longest = headings.iter().map(length).fold(0.0, f32::max);
    // All of the margin is read, unless it would leave no room for the tokens.
    let margin = (longest + 16.0).min(0.45 * wanted.width / columns).floor();
    let room = (wanted.width / columns - margin).max(80.0).floor();
    let lines = |of: &Document| {
        Layout::new(of, room, |letter| {
            ui.fonts_mut(|fonts| fonts.glyph_width(font, letter))
        })
    };
    let left = Laid {
        layout: lines(&document),
        document,
        values: ours,
        headings,
    };
    let right = sibling.zip(theirs).map(|(document, values)| Laid {
        layout: lines(&document),
        headings: self::headings(&document, &values),
        document,
        values,
    });
    let other = right
        .as_ref()
        .map(|laid| (laid.document.as_ref(), &laid.layout));
    Ok(Cache {
        rows: rows((&left.document, &left.layout), other),
        audit: audit(&left.document),
        made: wanted,
        left,
        right,
        margin,
        room,
        limit,
    })
}

/// One scale for the whole group, so that its rollouts can be compared.
fn group_limit(run: &mut Run, of: &Wanted, known: &mut Option<Limit>) -> Result<f32, String> {
    let key = (of.stamp, of.value);
    if let Some((_, limit)) = known.filter(|(made, _)| *made == key) {
        return Ok(limit);
    }
    let vocabulary = Arc::clone(&run.vocabulary);
    let mut documents = Vec::new();
    for id in run.members(of.id.purpose, of.id.step, Some(of.id.group)) {
        let refs = run.view.trajectories.get(&id).map(|of| of.tokens.clone());
        let blocks = run.blocks(&refs.unwrap_or_default())?;
        documents.push(Document::numbers(id, &blocks, &vocabulary));
    }
    let limit = token_limit(&documents, of.value);
    *known = Some((key, limit));
    Ok(limit)
}

/// `turn 2  notes  +0.71` for every stretch: what it is, and the mean of its shown values.
fn headings(of: &Document, values: &[f32]) -> Vec<String> {
    of.segments
        .iter()
        .enumerate()
        .map(|(at, segment)| {
            let name = format!("turn {}  {}", segment.turn, segment.kind.text());
            match mean(of, values, at) {
                Some(mean) => format!("{name}  {}", signed(mean, 2)),
                None => name,
            }
        })
        .collect()
}

/// The mean over the sampled tokens of a stretch; none if nothing was sampled.
fn mean(of: &Document, values: &[f32], segment: usize) -> Option<f32> {
    let tokens = of.segments.get(segment)?.tokens.clone();
    let sampled = || tokens.clone().filter(|&at| of.mask.get(at) == Some(&true));
    let count = sampled().count();
    let sum: f32 = sampled().filter_map(|at| values.get(at)).sum();
    (count > 0).then(|| sum / count as f32)
}

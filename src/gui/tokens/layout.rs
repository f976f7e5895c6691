//! Lines of one height. A document is broken into lines once a width, by summed glyph widths and
//! without laying text out, so that a frame only has to look at the lines on the screen.

use std::collections::BTreeMap;
use std::ops::Range;

use super::document::{Document, Segment, SegmentKind};

/// One visual line: tokens of one stretch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The tokens.
    pub tokens: Range<usize>,
    /// The stretch, by its place among the stretches.
    pub segment: usize,
    /// Whether it is the first line of its stretch: the margin names the stretch there.
    pub first: bool,
}

/// A document broken into lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layout {
    /// The lines, from the top.
    pub lines: Vec<Line>,
    /// Left edge of every token inside its line, points.
    pub left: Vec<f32>,
    /// Width of every token, points.
    pub width: Vec<f32>,
}

/// A token as it is drawn: what cannot be seen is written out.
#[must_use]
pub fn visible(text: &str) -> std::borrow::Cow<'_, str> {
    if text.is_empty() {
        return "<>".into();
    }
    if text.contains(['\n', '\t', '\r']) {
        let out = text
            .replace('\n', "\\n")
            .replace('\t', "\\t")
            .replace('\r', "\\r");
        return out.into();
    }
    text.into()
}

impl Layout {
    /// Breaks a document into lines of `room` points; `advance` gives the width of a letter.
    #[must_use]
    pub fn new(of: &Document, room: f32, mut advance: impl FnMut(char) -> f32) -> Self {
        let mut known: BTreeMap<u32, f32> = BTreeMap::new();
        let mut layout = Self {
            lines: Vec::new(),
            left: Vec::with_capacity(of.len()),
            width: Vec::with_capacity(of.len()),
        };
        for (segment, stretch) in of.segments.iter().enumerate() {
            let mut from = stretch.tokens.start;
            let mut x = 0.0;
            let mut first = true;
            for token in stretch.tokens.clone() {
                let id = of.ids.get(token).copied().unwrap_or(0);
                let width = *known
                    .entry(id)
                    .or_insert_with(|| visible(of.text(token)).chars().map(&mut advance).sum());
                if x + width > room && token > from {
                    layout.lines.push(Line {
                        tokens: from..token,
                        segment,
                        first,
                    });
                    (from, x, first) = (token, 0.0, false);
                }
                layout.left.push(x);
                layout.width.push(width);
                x += width;
            }
            layout.lines.push(Line {
                tokens: from..stretch.tokens.end,
                segment,
                first,
            });
        }
        layout
    }

    /// The line that a token stands in.
    #[must_use]
    pub fn line_of(&self, token: usize) -> Option<usize> {
        let after = self
            .lines
            .partition_point(|line| line.tokens.start <= token);
        after.checked_sub(1)
    }

    /// The token of a line that begins nearest before `x` points from its left edge.
    #[must_use]
    pub fn nearest(&self, line: usize, x: f32) -> Option<usize> {
        let tokens = self.lines.get(line)?.tokens.clone();
        let start = tokens.start;
        let lefts = self.left.get(tokens)?;
        let before = lefts.partition_point(|left| *left <= x).saturating_sub(1);
        (!lefts.is_empty()).then_some(start + before)
    }

    /// The token of a line that lies `x` points from its left edge.
    #[must_use]
    pub fn token_at(&self, line: usize, x: f32) -> Option<usize> {
        let tokens = self.lines.get(line)?.tokens.clone();
        let (start, end) = (tokens.start, tokens.end);
        let lefts = self.left.get(tokens)?;
        let token = start + lefts.partition_point(|left| *left <= x).checked_sub(1)?;
        let inside = x <= self.left.get(token)? + self.width.get(token)?;
        (token < end && inside).then_some(token)
    }
}

/// Rows of two documents side by side: stretches of the same turn and kind begin in the same row.
/// With one document every line is a row.
#[must_use]
pub fn rows(
    left: (&Document, &Layout),
    right: Option<(&Document, &Layout)>,
) -> Vec<[Option<usize>; 2]> {
    let Some(right) = right else {
        return (0..left.1.lines.len())
            .map(|line| [Some(line), None])
            .collect();
    };
    let (ours, theirs) = (stretches(left), stretches(right));
    let mut rows = Vec::new();
    let mut theirs_from = 0;
    for (key, lines) in &ours {
        let found = theirs
            .iter()
            .skip(theirs_from)
            .position(|(other, _)| other == key);
        let mut beside = 0..0;
        if let Some(found) = found {
            // What only they have comes first, beside nothing.
            for (_, only) in theirs.iter().skip(theirs_from).take(found) {
                rows.extend(only.clone().map(|line| [None, Some(line)]));
            }
            if let Some((_, lines)) = theirs.get(theirs_from + found) {
                beside = lines.clone();
            }
            theirs_from += found + 1;
        }
        for at in 0..lines.len().max(beside.len()) {
            let of =
                |range: &Range<usize>| Some(range.start + at).filter(|line| range.contains(line));
            rows.push([of(lines), of(&beside)]);
        }
    }
    for (_, only) in theirs.iter().skip(theirs_from) {
        rows.extend(only.clone().map(|line| [None, Some(line)]));
    }
    rows
}

/// For every stretch of the left document, the stretch of the right one that stands beside it.
#[must_use]
pub fn beside(left: &Document, right: &Document) -> Vec<Option<usize>> {
    let mut from = 0;
    left.segments
        .iter()
        .map(|ours| {
            let rest = right.segments.get(from..).unwrap_or_default();
            let same = |theirs: &Segment| {
                (theirs.row, theirs.turn, theirs.kind) == (ours.row, ours.turn, ours.kind)
            };
            let found = from + rest.iter().position(same)?;
            from = found + 1;
            Some(found)
        })
        .collect()
}

/// What stretches of two documents are matched by.
type Key = (u32, u32, SegmentKind);

/// The lines of every stretch.
fn stretches((document, layout): (&Document, &Layout)) -> Vec<(Key, Range<usize>)> {
    let mut found: Vec<(Key, Range<usize>)> = Vec::new();
    for (at, line) in layout.lines.iter().enumerate() {
        if line.first
            && let Some(segment) = document.segments.get(line.segment)
        {
            found.push(((segment.row, segment.turn, segment.kind), at..at));
        }
        if let Some((_, lines)) = found.last_mut() {
            lines.end = at + 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trajectory::Tag;
    use std::sync::Arc;

    fn document(lengths: &[(usize, SegmentKind)]) -> Document {
        let total = lengths.iter().map(|(length, _)| length).sum();
        let mut at = 0;
        let segments = lengths
            .iter()
            .map(|&(length, kind)| {
                at += length;
                Segment {
                    tokens: at - length..at,
                    turn: 0,
                    row: 0,
                    kind,
                }
            })
            .collect();
        Document {
            ids: vec![0; total],
            vocabulary: Arc::new(vec!["abc".into()]),
            segments,
            ..Document::default()
        }
    }

    #[test]
    fn lines_break_at_the_width_and_at_stretches() {
        let of = document(&[(5, SegmentKind::Context), (1, SegmentKind::Block(Tag::Mem))]);
        let layout = Layout::new(&of, 65.0, |_| 10.0);
        let lines: Vec<_> = layout
            .lines
            .iter()
            .map(|line| line.tokens.clone())
            .collect();
        assert_eq!(lines, [0..2, 2..4, 4..5, 5..6]);
        assert_eq!(layout.line_of(3), Some(1));
        assert_eq!(layout.token_at(1, 31.0), Some(3));
        assert_eq!(layout.token_at(1, 61.0), None);
        assert_eq!(layout.nearest(1, 500.0), Some(3));
        assert_eq!(layout.nearest(3, 31.0), Some(5));
        // A token wider than the room stands alone, and nothing loops.
        let narrow = Layout::new(&of, 1.0, |_| 10.0);
        assert_eq!(narrow.lines.len(), 6);
    }

    #[test]
    fn siblings_stand_side_by_side_by_turn_and_kind() {
        let notes = SegmentKind::Block(Tag::Mem);
        let answer = SegmentKind::Block(Tag::Answer);
        let left = document(&[(4, SegmentKind::Context), (2, answer)]);
        let right = document(&[(2, SegmentKind::Context), (2, notes), (4, answer)]);
        assert_eq!(beside(&left, &right), [Some(0), Some(2)]);
        let (a, b) = (
            Layout::new(&left, 65.0, |_| 10.0),
            Layout::new(&right, 65.0, |_| 10.0),
        );
        let rows = rows((&left, &a), Some((&right, &b)));
        assert_eq!(
            rows,
            [
                [Some(0), Some(0)],
                [Some(1), None],
                [None, Some(1)],
                [Some(2), Some(2)],
                [None, Some(3)],
            ]
        );
    }

    #[test]
    fn what_cannot_be_seen_is_written_out() {
        assert_eq!(visible("a\nb"), "a\\nb");
        assert_eq!(visible(""), "<>");
        assert_eq!(visible(" a"), " a");
    }
}

//! Tokens with their credit as classes of colour.

use serde::Serialize;

use super::numbers::signed;
use crate::record::TokenBlock;

/// Colours on each side of zero.
pub(super) const LEVELS: i32 = 10;

/// The number that gets the strongest colour; the same for everything on the page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub limit: f32,
}

/// A training row.
#[derive(Debug, Serialize)]
pub(super) struct TokenRow {
    label: String,
    /// How many tokens were trained, and what their weights add up to.
    audit: String,
    segments: Vec<Segment>,
}

/// Neighbouring tokens of one turn that were all sampled, or all not.
#[derive(Debug, Serialize)]
struct Segment {
    /// `context`, `wrote` or `given`.
    kind: &'static str,
    label: String,
    tokens: Vec<Token>,
}

#[derive(Debug, Serialize)]
struct Token {
    text: String,
    class: String,
    title: String,
}

impl Scale {
    /// The 98th percentile of all parts of all sampled tokens: a few strong tokens do not wash out
    /// the rest.
    pub(super) fn over<'a>(blocks: impl Iterator<Item = &'a TokenBlock>) -> Self {
        let mut sizes: Vec<f32> = blocks
            .flat_map(|b| {
                let parts = b.outcome.iter().zip(&b.memory).zip(&b.kl).zip(&b.weight);
                parts.zip(&b.mask).filter(|(_, mask)| **mask)
            })
            .flat_map(|((((o, m), k), w), _)| [o.abs(), m.abs(), k.abs(), w.abs()])
            .filter(|size| size.is_finite() && *size > 0.0)
            .collect();
        sizes.sort_by(f32::total_cmp);
        let at = sizes.len().saturating_mul(98) / 100;
        let limit = sizes.get(at).or(sizes.last()).copied().unwrap_or(1.0);
        Self { limit }
    }

    /// `op3`: prefix, sign and level; the prefix and `0` for what is near zero.
    pub(super) fn class(self, prefix: char, value: f32) -> String {
        let level = (value / self.limit * LEVELS as f32).round();
        let level = (level as i32).clamp(-LEVELS, LEVELS);
        match level {
            0 => format!("{prefix}0"),
            1.. => format!("{prefix}p{level}"),
            _ => format!("{prefix}n{}", -level),
        }
    }
}

/// Lays a row out. `of_many`: the trajectory has one row a turn.
pub(super) fn token_row(
    block: &TokenBlock,
    vocabulary: &[String],
    scale: Scale,
    of_many: bool,
) -> TokenRow {
    let mut segments: Vec<Segment> = Vec::new();
    let mut key = None;
    for (i, &mask) in block.mask.iter().enumerate() {
        let turn = at(&block.turn, i);
        if key != Some((mask, turn)) {
            let first = segments.is_empty();
            key = Some((mask, turn));
            segments.push(Segment::new(mask, turn, first));
        }
        if let Some(segment) = segments.last_mut() {
            segment.tokens.push(token(block, i, vocabulary, scale));
        }
    }
    let trained = block.mask.iter().filter(|m| **m).count();
    let sum = block.weight.iter().map(|&w| f64::from(w)).sum();
    TokenRow {
        label: if of_many {
            format!("Row {}", block.row + 1)
        } else {
            "One row holds the whole trajectory".into()
        },
        audit: format!(
            "{trained} trained tokens, weights add up to {}",
            signed(sum)
        ),
        segments,
    }
}

impl Segment {
    fn new(mask: bool, turn: u32, first: bool) -> Self {
        let (kind, label) = match (mask, first) {
            (true, _) => ("wrote", format!("turn {}", turn + 1)),
            (false, true) => ("context", "context".to_owned()),
            (false, false) => ("given", "tool result".to_owned()),
        };
        Self {
            kind,
            label,
            tokens: Vec::new(),
        }
    }
}

fn token(block: &TokenBlock, i: usize, vocabulary: &[String], scale: Scale) -> Token {
    let id = at(&block.ids, i);
    let text = match vocabulary.get(id as usize) {
        Some(text) if !text.is_empty() => text.replace('\n', "\u{21b5}\n"),
        _ => format!("\u{27e8}{id}\u{27e9}"),
    };
    if !at(&block.mask, i) {
        return Token {
            text,
            class: "x".into(),
            title: format!("token {id}: not sampled, not trained"),
        };
    }
    let (outcome, memory, kl, weight) = (
        at(&block.outcome, i),
        at(&block.memory, i),
        at(&block.kl, i),
        at(&block.weight, i),
    );
    let paid = match kl {
        0.0 => String::new(),
        kl => format!(" + KL {}", signed(kl.into())),
    };
    let sampled = at(&block.sampled, i);
    Token {
        text,
        class: [
            scale.class('o', outcome),
            scale.class('m', memory),
            scale.class('k', kl),
            scale.class('t', weight),
        ]
        .join(" "),
        title: format!(
            "token {id}\nprobability {:.3}, log-prob {sampled:.3}, learner {:.3}\noutcome {} + memory {}{paid} = weight {}",
            sampled.exp(),
            at(&block.learner, i),
            signed(outcome.into()),
            signed(memory.into()),
            signed(weight.into()),
        ),
    }
}

/// A column's entry; every column of a block has one for each token.
fn at<T: Copy + Default>(column: &[T], i: usize) -> T {
    column.get(i).copied().unwrap_or_default()
}

//! The numbers that tokens are coloured by.

use super::document::Document;

/// A number that every trained token has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Value {
    /// What the learner multiplied the token's gradient by.
    #[default]
    Weight,
    /// Its outcome part.
    Outcome,
    /// Its memory part.
    Memory,
    /// Its KL part.
    Kl,
    /// Weight x (1 - p): how hard the update pushes.
    Push,
    /// Log-prob when it was sampled.
    Sampled,
    /// How undecided the policy was there.
    Entropy,
    /// Learner's probability over the engine's, less 1.
    Ratio,
    /// Learner's log-prob less the engine's.
    Gap,
}

impl Value {
    /// Every value, in the order of the menu.
    pub const ALL: [Self; 9] = [
        Self::Weight,
        Self::Outcome,
        Self::Memory,
        Self::Kl,
        Self::Push,
        Self::Sampled,
        Self::Entropy,
        Self::Ratio,
        Self::Gap,
    ];

    /// Its name.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Weight => "weight",
            Self::Outcome => "outcome part",
            Self::Memory => "memory part",
            Self::Kl => "KL part",
            Self::Push => "push",
            Self::Sampled => "log-prob",
            Self::Entropy => "entropy",
            Self::Ratio => "ratio - 1",
            Self::Gap => "log-prob gap",
        }
    }

    /// What it means.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Weight => {
                "What the learner multiplied the token's gradient by: outcome + memory + KL part"
            }
            Self::Outcome => "The advantage of the answer, spread over every sampled token",
            Self::Memory => "The advantage of the notes, on the tokens of the notes",
            Self::Kl => "What leaving the reference policy cost",
            Self::Push => "Weight x (1 - p): a token that is nearly certain hardly moves",
            Self::Sampled => "Log-prob of the token when the engine sampled it",
            Self::Entropy => {
                "Entropy of the policy where the token was sampled, in nats: 0 where it was certain"
            }
            Self::Ratio => "Learner's probability over the engine's, less 1; clipping acts on it",
            Self::Gap => {
                "Learner's log-prob less the engine's; near 0 while both use the same weights"
            }
        }
    }

    /// Whether the record tells it: runs of before recorded no entropies.
    #[must_use]
    pub fn known(self, of: &Document) -> bool {
        self != Self::Entropy || of.entropy.len() == of.len()
    }

    /// The number of one token; 0 where it was not sampled.
    #[must_use]
    pub fn at(self, of: &Document, token: usize) -> f32 {
        if of.mask.get(token) != Some(&true) {
            return 0.0;
        }
        let get = |column: &[f32]| column.get(token).copied().unwrap_or(0.0);
        match self {
            Self::Weight => get(&of.weight),
            Self::Outcome => get(&of.outcome),
            Self::Memory => get(&of.memory),
            Self::Kl => get(&of.kl),
            Self::Push => get(&of.weight) * (1.0 - get(&of.learner).exp()),
            Self::Sampled => get(&of.sampled),
            Self::Entropy => get(&of.entropy),
            Self::Ratio => (get(&of.learner) - get(&of.sampled)).exp_m1(),
            Self::Gap => get(&of.learner) - get(&of.sampled),
        }
    }

    /// The next in the menu.
    #[must_use]
    pub fn next(self) -> Self {
        let at = Self::ALL
            .iter()
            .position(|value| *value == self)
            .unwrap_or(0);
        Self::ALL.get(at + 1).copied().unwrap_or_default()
    }
}

/// Over what a value is averaged before it is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Granularity {
    /// Nothing.
    #[default]
    Token,
    /// The block of the protocol.
    Tag,
    /// The turn.
    Turn,
}

impl Granularity {
    /// Every granularity.
    pub const ALL: [Self; 3] = [Self::Token, Self::Tag, Self::Turn];

    /// Its name.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Tag => "tag",
            Self::Turn => "turn",
        }
    }

    /// The next one.
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Self::Token => Self::Tag,
            Self::Tag => Self::Turn,
            Self::Turn => Self::Token,
        }
    }
}

/// The value of every token as it is shown: 0 where nothing was sampled, else its own or the mean
/// over the sampled tokens of its tag or turn.
#[must_use]
pub fn shown_values(of: &Document, value: Value, granularity: Granularity) -> Vec<f32> {
    let mut shown: Vec<f32> = (0..of.len()).map(|token| value.at(of, token)).collect();
    if granularity == Granularity::Token {
        return shown;
    }
    let mut from = 0;
    while from < of.segments.len() {
        let mut to = from + 1;
        if granularity == Granularity::Turn {
            let key = |at: usize| {
                of.segments
                    .get(at)
                    .map(|segment| (segment.row, segment.turn))
            };
            while to < of.segments.len() && key(to) == key(from) {
                to += 1;
            }
        }
        let first = of
            .segments
            .get(from)
            .map_or(0, |segment| segment.tokens.start);
        let last = of
            .segments
            .get(to - 1)
            .map_or(first, |segment| segment.tokens.end);
        let on = of.mask.get(first..last).unwrap_or_default();
        let Some(values) = shown.get_mut(first..last) else {
            break;
        };
        let (mut sum, mut count) = (0.0f64, 0u32);
        for (value, _) in values.iter().zip(on).filter(|(_, on)| **on) {
            sum += f64::from(*value);
            count += 1;
        }
        let mean = (sum / f64::from(count.max(1))) as f32;
        for (value, _) in values.iter_mut().zip(on).filter(|(_, on)| **on) {
            *value = mean;
        }
        from = to;
    }
    shown
}

/// The end of the scale: the 98th percentile of the absolute values of sampled tokens, so that one
/// outlier does not wash out the rest. At least a tiny number, so that it can be divided by.
#[must_use]
pub fn token_limit<'a>(documents: impl IntoIterator<Item = &'a Document>, value: Value) -> f32 {
    let mut sizes: Vec<f32> = Vec::new();
    for of in documents {
        let sampled = (0..of.len()).filter(|&token| of.mask.get(token) == Some(&true));
        sizes.extend(
            sampled
                .map(|token| value.at(of, token).abs())
                .filter(|size| size.is_finite()),
        );
    }
    if sizes.is_empty() {
        return 1.0;
    }
    let at = (sizes.len() * 98 / 100).min(sizes.len() - 1);
    let (_, limit, _) = sizes.select_nth_unstable_by(at, f32::total_cmp);
    let limit = *limit;
    let largest = sizes.iter().copied().fold(0.0, f32::max);
    // A few strong tokens among many of 0 must not leave a scale of nothing.
    if limit > 0.0 {
        limit
    } else {
        largest.max(1e-6)
    }
}

#[cfg(test)]
mod tests {
    use super::super::document::{Segment, SegmentKind};
    use super::*;

    fn document() -> Document {
        let segment = |tokens, turn| Segment {
            tokens,
            turn,
            row: 0,
            kind: SegmentKind::Loose,
        };
        Document {
            ids: vec![0; 5],
            mask: vec![false, true, true, true, true],
            weight: vec![9.0, 1.0, 3.0, -1.0, -3.0],
            learner: vec![0.0, -0.5, 0.0, -1.0, -2.0],
            sampled: vec![0.0, -0.5, -0.5, -1.0, -2.0],
            segments: vec![segment(0..3, 0), segment(3..4, 1), segment(4..5, 1)],
            ..Document::default()
        }
    }

    #[test]
    fn values_are_averaged_over_sampled_tokens_alone() {
        let of = document();
        let shown = |granularity| shown_values(&of, Value::Weight, granularity);
        assert_eq!(shown(Granularity::Token), [0.0, 1.0, 3.0, -1.0, -3.0]);
        assert_eq!(shown(Granularity::Tag), [0.0, 2.0, 2.0, -1.0, -3.0]);
        assert_eq!(shown(Granularity::Turn), [0.0, 2.0, 2.0, -2.0, -2.0]);
    }

    #[test]
    fn a_certain_token_is_pushed_by_nothing_and_gaps_come_from_both_log_probs() {
        let of = document();
        assert_eq!(Value::Push.at(&of, 2), 0.0);
        assert_eq!(Value::Gap.at(&of, 2), 0.5);
        assert_eq!(Value::Ratio.at(&of, 1), 0.0);
        assert_eq!(Value::Weight.at(&of, 0), 0.0);
        assert_eq!(token_limit([&of], Value::Weight), 3.0);
    }
}

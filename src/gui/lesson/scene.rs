//! The tokens of a station: one rollout, or two settings side by side with their difference, all on one
//! scale.

use eframe::egui::{TextWrapMode, Ui};

use crate::gui::theme::Colours;
use crate::gui::tokens::{Document, Strip, Value, legend};
use crate::gui::words::signed;

/// What a station draws with, and the table that it leaves behind.
pub struct Scene {
    /// Colours.
    pub colours: Colours,
    /// The table, as CSV.
    pub csv: String,
}

/// Controls in a row. One that does not fit goes to the next row as a whole.
pub fn row(ui: &mut Ui, add: impl FnOnce(&mut Ui)) {
    ui.horizontal_wrapped(|ui| {
        ui.style_mut().wrap_mode = Some(TextWrapMode::Extend);
        add(ui);
    });
}

/// Tokens that are shown.
#[derive(Clone, Debug)]
pub struct Exhibit {
    /// What they show.
    pub title: String,
    /// The tokens, with the weights to be shown.
    pub document: Document,
    /// The number that they are coloured by.
    pub value: Value,
    /// Whether what the policy did not write is shown too.
    pub context: bool,
}

impl Exhibit {
    /// Weights of what the policy wrote.
    #[must_use]
    pub fn weights(title: impl Into<String>, document: Document) -> Self {
        Self {
            title: title.into(),
            document,
            value: Value::Weight,
            context: false,
        }
    }

    /// This less another; nothing if they are not of the same tokens.
    #[must_use]
    pub fn less(&self, other: &Self) -> Option<Self> {
        if self.document.ids != other.document.ids {
            return None;
        }
        let mut document = self.document.clone();
        let from = &other.document;
        for (column, less) in [
            (&mut document.weight, &from.weight),
            (&mut document.outcome, &from.outcome),
            (&mut document.memory, &from.memory),
            (&mut document.kl, &from.kl),
        ] {
            for (value, less) in column.iter_mut().zip(less) {
                *value -= less;
            }
        }
        for (on, other) in document.mask.iter_mut().zip(&from.mask) {
            *on |= other;
        }
        Some(Self {
            title: "A less B".into(),
            document,
            value: self.value,
            context: self.context || other.context,
        })
    }
}

/// Tokens, their scale, and the numbers of the one under the pointer.
#[derive(Default)]
pub struct Strips {
    pointed: Option<String>,
}

impl Strips {
    /// Draws them, all on a scale that ends at `limit`.
    pub fn show(
        &mut self,
        ui: &mut Ui,
        shown: &[Exhibit],
        limit: f32,
        (colours, patterns): (&Colours, bool),
    ) {
        let Some(first) = shown.first() else { return };
        ui.horizontal_wrapped(|ui| {
            ui.label(format!("{} of every token", first.value.text()));
            legend(ui, colours, limit);
            ui.weak("one scale for the whole group, as it was recorded");
        });
        // What was under the pointer when the tokens were drawn last.
        let numbers = self.pointed.take();
        ui.label(numbers.unwrap_or_else(|| "Point at a token for its numbers.".into()));
        for exhibit in shown {
            ui.add_space(4.0);
            ui.strong(&exhibit.title);
            let strip = Strip {
                document: &exhibit.document,
                value: exhibit.value,
                limit,
                patterns,
                written_only: !exhibit.context,
            };
            if let Some(token) = strip.show(ui, &exhibit.title, colours) {
                self.pointed = Some(numbers_of(&exhibit.document, token));
            }
        }
    }
}

/// The numbers of one token in a sentence.
#[must_use]
pub fn numbers_of(of: &Document, token: usize) -> String {
    let text = of.text(token).trim();
    let turn = of.segment_of(token).and_then(|at| of.segments.get(at));
    let turn = turn.map_or(0, |segment| segment.turn);
    if of.mask.get(token) != Some(&true) {
        return format!("turn {turn}, '{text}': not written by the policy, no weight");
    }
    let at = |value: Value| signed(value.at(of, token), 3);
    let p = of.learner.get(token).copied().unwrap_or(0.0).exp();
    format!(
        "turn {turn}, '{text}': weight {} = outcome {} + memory {} + KL {}; p {p:.3}, push {}",
        at(Value::Weight),
        at(Value::Outcome),
        at(Value::Memory),
        at(Value::Kl),
        at(Value::Push),
    )
}

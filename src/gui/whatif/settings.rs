//! The form of the credit settings. Every control stands for one line of the grammar.

use eframe::egui::{ComboBox, Response, Slider, Ui};

use crate::experiment::{
    Answers, Baseline, CreditSettings, CreditTokens, Estimator, First, Gate, Length,
    LinearSettings, PriceSettings, Scale, Space, Support, Target, Threshold, Weight,
};
use crate::gui::keys::keeps_arrows;

/// A choice among named values.
fn choice<T: PartialEq + Copy>(
    ui: &mut Ui,
    label: &str,
    value: &mut T,
    all: &[(T, &str)],
) -> Response {
    let shown = all
        .iter()
        .find(|(of, _)| of == value)
        .map_or("as recorded", |(_, name)| *name);
    ComboBox::from_label(label)
        .selected_text(shown)
        .show_ui(ui, |ui| {
            for (of, name) in all {
                ui.selectable_value(value, *of, *name);
            }
        })
        .response
}

/// A choice among values that may hold numbers of their own: what was chosen, by its place.
fn kind(ui: &mut Ui, label: &str, now: usize, names: &[&str]) -> usize {
    let mut chosen = now;
    let all: Vec<(usize, &str)> = names.iter().copied().enumerate().collect();
    choice(ui, label, &mut chosen, &all);
    chosen
}

/// A slider with which the arrows stay.
fn slide(ui: &mut Ui, value: &mut f32, range: std::ops::RangeInclusive<f32>, text: &str) {
    let slider = ui.add(Slider::new(value, range).text(text));
    keeps_arrows(ui, &slider);
}

/// Draws the form. What a record cannot tell is offered too: it is refused with the reason.
pub fn form(ui: &mut Ui, settings: &mut CreditSettings) {
    estimator(ui, settings);
    ui.checkbox(&mut settings.memory, "memory credit");
    if !settings.memory {
        return;
    }
    weight(ui, settings);
    slide(ui, &mut settings.discount, 0.0..=1.0, "discount over turns");
    threshold(ui, settings);
    reward(ui, settings);
    baseline(ui, settings);
    choice(
        ui,
        "memory scale",
        &mut settings.scale,
        &[
            (Scale::Std, "the spread"),
            (Scale::StdFloor(0.1), "the spread, at least 0.1"),
            (Scale::Off, "nothing"),
        ],
    )
    .on_hover_text("What centred memory rewards are divided by");
    choice(
        ui,
        "memory advantage counts",
        &mut settings.gate,
        &[
            (Gate::Off, "always"),
            (Gate::Sign, "where the outcome advantage is not negative"),
            (Gate::Success, "where the answer was right"),
            (Gate::GroupSpread, "where outcomes of the group differ"),
        ],
    )
    .on_hover_text("The gate: elsewhere the memory advantage is 0");
    choice(
        ui,
        "and falls on",
        &mut settings.tokens,
        &[
            (CreditTokens::Notes, "the notes of its turn"),
            (CreditTokens::Turn, "all that the turn wrote"),
        ],
    )
    .on_hover_text("The tokens that answer for the memory advantage of a turn");
    length(ui, settings);
}

fn estimator(ui: &mut Ui, settings: &mut CreditSettings) {
    let gamma = match settings.estimator {
        Estimator::ReinforcePlusPlus(gamma) => gamma,
        _ => 1.0,
    };
    choice(
        ui,
        "outcome estimator",
        &mut settings.estimator,
        &[
            (Estimator::Grpo, "GRPO: divided by the spread"),
            (Estimator::DrGrpo, "Dr. GRPO: not divided"),
            (Estimator::Rloo, "leave one out"),
            (Estimator::Opo, "OPO: by length"),
            (Estimator::Gpg, "GPG"),
            (Estimator::ReinforcePlusPlus(gamma), "REINFORCE++"),
            (
                Estimator::ReinforcePlusPlusBaseline,
                "REINFORCE++ with baseline",
            ),
            (Estimator::Passk, "pass at k"),
        ],
    )
    .on_hover_text("How the advantage of an answer is made from the rewards of its group");
    if let Estimator::ReinforcePlusPlus(gamma) = &mut settings.estimator {
        slide(ui, gamma, 0.0..=1.0, "discount over tokens");
    }
}

/// The factor of the memory advantage: the same in every step, or moving with them.
fn weight(ui: &mut Ui, settings: &mut CreditSettings) {
    let (now, mut factor, mut schedule) = match settings.weight {
        Weight::Constant(factor) => (0, factor, LinearSettings::default()),
        Weight::Linear(schedule) => (1, 1.0, schedule),
    };
    let names = [
        "the same in every step",
        "from one to another over the steps",
    ];
    settings.weight = if kind(ui, "memory weight is", now, &names) == 0 {
        slide(ui, &mut factor, 0.0..=2.0, "memory weight");
        Weight::Constant(factor)
    } else {
        slide(ui, &mut schedule.from, 0.0..=2.0, "weight at first");
        slide(ui, &mut schedule.to, 0.0..=2.0, "weight at the end");
        let steps = ui.add(Slider::new(&mut schedule.steps, 1..=500).text("steps until then"));
        keeps_arrows(ui, &steps);
        Weight::Linear(schedule)
    };
}

/// What a memory reward is made of.
fn reward(ui: &mut Ui, settings: &mut CreditSettings) {
    choice(
        ui,
        "notes are compared with",
        &mut settings.target,
        &[
            (Target::MinusFull, "the full history"),
            (Target::MinusPrevious, "the notes before"),
            (Target::MinusEmpty, "empty notes"),
            (Target::Absolute, "nothing"),
        ],
    );
    choice(
        ui,
        "first notes",
        &mut settings.first,
        &[
            (First::Skip, "earn nothing"),
            (First::MinusEmpty, "against empty notes"),
        ],
    );
    choice(
        ui,
        "the difference is taken in",
        &mut settings.space,
        &[
            (Space::Prob, "probability"),
            (Space::Log(5.0), "log-prob, clipped at 5"),
        ],
    )
    .on_hover_text("Log-probs pay gains on unlikely answers more than probabilities do");
    choice(
        ui,
        "several answers are scored",
        &mut settings.answers,
        &[
            (Answers::JoinedFirstAlias, "as one text"),
            (Answers::PerAnswer, "each by itself, then the mean"),
        ],
    )
    .on_hover_text(
        "A question may ask for several things; in one text a lost one pulls the others down",
    );
    choice(
        ui,
        "gains need support",
        &mut settings.support,
        &[
            (Support::Off, "no"),
            (Support::On, "yes: the answer must have been shown"),
        ],
    )
    .on_hover_text("With it, notes that guess the answer earn nothing for it");
}

fn baseline(ui: &mut Ui, settings: &mut CreditSettings) {
    let decay = match settings.baseline {
        Baseline::PositionAverage(decay) => decay,
        _ => 0.9,
    };
    choice(
        ui,
        "memory baseline",
        &mut settings.baseline,
        &[
            (Baseline::Pooled, "all rounds of the group"),
            (Baseline::PerRound, "the same round"),
            (Baseline::LeaveOneOut, "the other rollouts"),
            (Baseline::Absorbing, "the same round, 0 after the end"),
            (
                Baseline::PositionAverage(decay),
                "the same round in the steps before",
            ),
        ],
    )
    .on_hover_text("What memory rewards are compared with");
    if let Baseline::PositionAverage(decay) = &mut settings.baseline {
        slide(ui, decay, 0.0..=0.99, "decay of the average");
    }
}

/// What notes cost by length.
fn length(ui: &mut Ui, settings: &mut CreditSettings) {
    let (now, mut price, mut tokens) = match settings.length {
        Length::Off => (0, PriceSettings::default(), 60.0),
        Length::Price(price) => (1, price, price.budget),
        Length::Budget(tokens) => (2, PriceSettings::default(), tokens),
    };
    let names = [
        "nothing",
        "a fixed price",
        "what keeps their mean at a budget",
    ];
    settings.length = match kind(ui, "length of notes costs", now, &names) {
        1 => {
            slide(ui, &mut price.beta, 0.01..=1.0, "price of a full budget");
            slide(ui, &mut price.budget, 1.0..=500.0, "budget, tokens");
            Length::Price(price)
        }
        2 => {
            slide(ui, &mut tokens, 1.0..=500.0, "budget, tokens");
            Length::Budget(tokens)
        }
        _ => Length::Off,
    };
}

/// The control of the threshold: which answer tokens count, and from which probability on.
pub fn threshold(ui: &mut Ui, settings: &mut CreditSettings) {
    let (mut kind, mut p) = match settings.threshold {
        Threshold::Off => (0, 0.5),
        Threshold::Own(p) => (1, p),
        Threshold::Union(p) => (2, p),
    };
    choice(
        ui,
        "answer tokens",
        &mut kind,
        &[
            (0, "all"),
            (1, "above a threshold in their own context"),
            (2, "above it in either context"),
        ],
    );
    if kind > 0 {
        slide(ui, &mut p, 0.0..=0.99, "threshold");
    }
    settings.threshold = match kind {
        1 => Threshold::Own(p),
        2 => Threshold::Union(p),
        _ => Threshold::Off,
    };
}

//! The form of the credit settings. Every control stands for one line of the grammar.

use eframe::egui::{ComboBox, Slider, Ui};

use crate::experiment::{
    Answers, Baseline, CreditSettings, CreditTokens, Estimator, First, Gate, Scale, Space, Target,
    Threshold, Weight,
};

/// A choice among named values.
fn choice<T: PartialEq + Copy>(ui: &mut Ui, label: &str, value: &mut T, all: &[(T, &str)]) {
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
        });
}

/// Draws the form. Says whether something was changed.
pub fn form(ui: &mut Ui, settings: &mut CreditSettings) -> bool {
    let before = *settings;
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
            (
                Estimator::ReinforcePlusPlusBaseline,
                "REINFORCE++ with baseline",
            ),
            (Estimator::Passk, "pass at k"),
        ],
    );
    ui.checkbox(&mut settings.memory, "memory credit");
    if !settings.memory {
        return *settings != before;
    }
    let mut weight = match settings.weight {
        Weight::Constant(factor) => factor,
        Weight::Linear(_) => 1.0,
    };
    if ui
        .add(Slider::new(&mut weight, 0.0..=2.0).text("memory weight"))
        .changed()
    {
        settings.weight = Weight::Constant(weight);
    }
    ui.add(Slider::new(&mut settings.discount, 0.0..=1.0).text("discount over turns"));
    threshold(ui, settings);
    choice(
        ui,
        "compared with",
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
        "space",
        &mut settings.space,
        &[
            (Space::Prob, "probability"),
            (Space::Log(5.0), "log-prob, clipped at 5"),
        ],
    );
    choice(
        ui,
        "answers",
        &mut settings.answers,
        &[
            (Answers::JoinedFirstAlias, "joined"),
            (Answers::PerAnswer, "each by itself"),
        ],
    );
    choice(
        ui,
        "memory baseline",
        &mut settings.baseline,
        &[
            (Baseline::Pooled, "all rounds of the group"),
            (Baseline::PerRound, "the same round"),
            (Baseline::LeaveOneOut, "the other rollouts"),
            (Baseline::Absorbing, "the same round, 0 after the end"),
        ],
    );
    choice(
        ui,
        "memory scale",
        &mut settings.scale,
        &[
            (Scale::Std, "the spread"),
            (Scale::StdFloor(0.1), "the spread, at least 0.1"),
            (Scale::Off, "nothing"),
        ],
    );
    choice(
        ui,
        "gate",
        &mut settings.gate,
        &[
            (Gate::Off, "always open"),
            (Gate::Sign, "where the outcome advantage is not negative"),
            (Gate::Success, "where the answer was right"),
            (Gate::GroupSpread, "where outcomes differ"),
        ],
    );
    choice(
        ui,
        "falls on",
        &mut settings.tokens,
        &[
            (CreditTokens::Notes, "the notes"),
            (CreditTokens::Turn, "the whole turn"),
        ],
    );
    *settings != before
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
        ui.add(Slider::new(&mut p, 0.0..=0.99).text("threshold"));
    }
    settings.threshold = match kind {
        1 => Threshold::Own(p),
        2 => Threshold::Union(p),
        _ => Threshold::Off,
    };
}

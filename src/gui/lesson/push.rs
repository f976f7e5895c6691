//! Station 7: from weight to push: 1 - p, the clip, and how losses are added up.

use eframe::egui::{Grid, Slider, Ui};

use super::bench::Bench;
use super::moved::{At, Moved, Place};
use super::scene::{Exhibit, Scene};
use super::station::Question;
use crate::experiment::CreditSettings;
use crate::gui::GuiError;
use crate::gui::tokens::{Document, Value};
use crate::gui::words::signed;

/// More probable than this is nearly certain.
const CERTAIN: f32 = 0.9;

/// As recorded: nothing of this depends on the settings of credit.
pub fn start(recorded: &CreditSettings) -> CreditSettings {
    *recorded
}

/// What the weights of some tokens come to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// Tokens that the policy wrote.
    pub tokens: u32,
    /// Those more probable than [`CERTAIN`].
    pub certain: u32,
    /// Sum of |weight|.
    pub weight: f64,
    /// Sum of |weight x (1 - p)|.
    pub push: f64,
}

impl Sums {
    /// Over the sampled tokens of a document that pass.
    #[must_use]
    pub fn of(document: &Document, passes: impl Fn(usize) -> bool) -> Self {
        let mut sums = Self::default();
        for token in sampled(document).filter(|token| passes(*token)) {
            sums.tokens += 1;
            sums.certain += u32::from(p(document, token) > CERTAIN);
            sums.weight += f64::from(Value::Weight.at(document, token).abs());
            sums.push += f64::from(Value::Push.at(document, token).abs());
        }
        sums
    }

    /// What 1 - p leaves of the weight.
    #[must_use]
    pub fn left(&self) -> f64 {
        if self.weight > 0.0 {
            self.push / self.weight
        } else {
            0.0
        }
    }
}

fn sampled(of: &Document) -> impl Iterator<Item = usize> + '_ {
    (0..of.len()).filter(move |token| of.mask.get(*token) == Some(&true))
}

fn p(of: &Document, token: usize) -> f32 {
    of.learner.get(token).copied().unwrap_or(0.0).exp()
}

/// The rollout with the most weight.
pub fn worth(bench: &Bench, at: At) -> f64 {
    let document = bench.as_recorded(at.place);
    document.map_or(0.0, |document| Sums::of(&document, |_| true).weight)
}

/// The rollout, if the learner computed it.
fn trained(bench: &Bench, place: Place) -> Result<Document, GuiError> {
    let document = bench.as_recorded(place)?;
    if document.learner.iter().all(|logprob| *logprob == 0.0) {
        return Err(GuiError::NotRecorded(format!(
            "the learner did not train on rollout {}, so it has no log-probs of it; choose another rollout",
            document.id.member
        )));
    }
    Ok(document)
}

/// How much of the weight is left after the factor 1 - p.
pub fn question(bench: &Bench, at: At) -> Result<Question, GuiError> {
    let document = trained(bench, at.place)?;
    let sums = Sums::of(&document, |_| true);
    let number = document.id.member;
    if sums.weight == 0.0 {
        return Err(GuiError::NotRecorded(format!(
            "all weights of rollout {number} are 0, so nothing is pushed; choose another rollout"
        )));
    }
    let left = sums.left();
    Ok(Question {
        text: format!(
            "The {} tokens of rollout {number} have weights of {:.1} in all, signs aside. A token moves by weight x (1 - p). How much is left after that factor?",
            sums.tokens, sums.weight
        ),
        options: vec![
            "less than a tenth".into(),
            "between a tenth and a half".into(),
            "more than half".into(),
        ],
        right: match left {
            left if left < 0.1 => 0,
            left if left <= 0.5 => 1,
            _ => 2,
        },
        because: format!(
            "{:.2} of {:.1}, {:.0} %: {} of {} tokens were more probable than {CERTAIN} when they were trained on.",
            sums.push,
            sums.weight,
            100.0 * left,
            sums.certain,
            sums.tokens
        ),
    })
}

/// The tokens that it shows.
pub fn exhibit(bench: &Bench, moved: &Moved) -> Result<Exhibit, GuiError> {
    Ok(Exhibit {
        value: Value::Push,
        ..Exhibit::weights("Weight x (1 - p)", trained(bench, moved.at.place)?)
    })
}

/// Draws the station.
pub fn show(
    ui: &mut Ui,
    bench: &Bench,
    moved: &mut Moved,
    scene: &mut Scene,
) -> Result<String, GuiError> {
    let document = trained(bench, moved.at.place)?;
    by_kind(ui, &document);
    ui.add_space(6.0);
    ui.strong("What each rollout counts in the update, by how losses are added up");
    by_rollout(ui, bench, moved, scene);
    ui.add_space(6.0);
    ui.add(Slider::new(&mut moved.clip, 0.0..=0.5).text("clip eps"));
    let all = Sums::of(&document, |_| true);
    let (cut, furthest) = clipped(&document, moved.clip);
    Ok(format!(
        "1 - p leaves {:.0} % of the weights of rollout {}: {} of its {} tokens were more probable than {CERTAIN}. The ratio furthest from 1 is {:.4} away from it, so at eps {:.3} the clip cuts {cut} tokens off.",
        100.0 * all.left(),
        document.id.member,
        all.certain,
        all.tokens,
        furthest,
        moved.clip
    ))
}

/// Tokens whose ratio left its bounds in the direction of the weight, and the largest |ratio - 1|.
#[must_use]
pub fn clipped(of: &Document, eps: f32) -> (u32, f32) {
    let mut found = (0, 0.0f32);
    for token in sampled(of) {
        let (away, weight) = (Value::Ratio.at(of, token), Value::Weight.at(of, token));
        let cut = weight > 0.0 && away > eps || weight < 0.0 && away < -eps;
        found.0 += u32::from(cut);
        found.1 = found.1.max(away.abs());
    }
    found
}

/// Notes, thoughts, calls and answers of the shown rollout.
fn by_kind(ui: &mut Ui, document: &Document) {
    let mut kinds: Vec<&'static str> = Vec::new();
    let kind_of = |token: usize| {
        let segment = document.segment_of(token);
        let segment = segment.and_then(|at| document.segments.get(at));
        segment.map_or("", |segment| segment.kind.text())
    };
    for kind in sampled(document).map(kind_of) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let grid = Grid::new("kinds").num_columns(5).striped(true);
    grid.show(ui, |ui| {
        for head in [
            "the policy wrote",
            "tokens",
            "mean |weight|",
            "mean |weight x (1 - p)|",
            "left",
        ] {
            ui.strong(head);
        }
        ui.end_row();
        for kind in kinds {
            let sums = Sums::of(document, |token| kind_of(token) == kind);
            let count = f64::from(sums.tokens.max(1));
            ui.label(kind);
            ui.label(sums.tokens.to_string());
            ui.label(format!("{:.3}", sums.weight / count));
            ui.label(format!("{:.4}", sums.push / count));
            ui.label(format!("{:.0} %", 100.0 * sums.left()));
            ui.end_row();
        }
    });
}

/// The rollouts of the group: their shares of all the push, each token counting alike (token_mean) or
/// each rollout (seq_mean_token_mean).
fn by_rollout(ui: &mut Ui, bench: &Bench, moved: &Moved, scene: &mut Scene) {
    let group = moved.at.place.group;
    let of = |member: usize| {
        let document = bench.as_recorded(Place { group, member }).ok()?;
        Some((document.id.member, Sums::of(&document, |_| true)))
    };
    let members: Vec<(u32, Sums)> = (0..bench.members(group).len()).filter_map(of).collect();
    let mean = |sums: &Sums| sums.push / f64::from(sums.tokens.max(1));
    let tokens: f64 = members.iter().map(|(_, sums)| sums.push).sum();
    let rollouts: f64 = members.iter().map(|(_, sums)| mean(sums)).sum();
    let share = |value: f64, of: f64| if of > 0.0 { 100.0 * value / of } else { 0.0 };
    scene.csv = String::from("rollout,tokens,push,token_mean,seq_mean_token_mean\n");
    let grid = Grid::new("reduce").num_columns(5).striped(true);
    grid.show(ui, |ui| {
        for head in [
            "rollout",
            "tokens",
            "|push| in all",
            "mean over tokens",
            "mean over rollouts of their means",
        ] {
            ui.strong(head);
        }
        ui.end_row();
        for (number, sums) in &members {
            let (a, b) = (share(sums.push, tokens), share(mean(sums), rollouts));
            ui.label(format!("#{number}"));
            ui.label(sums.tokens.to_string());
            ui.label(signed(sums.push as f32, 3).trim_start_matches('+'));
            ui.label(format!("{a:.0} %"));
            ui.label(format!("{b:.0} %"));
            ui.end_row();
            scene.csv.push_str(&format!(
                "{number},{},{},{},{}\n",
                sums.tokens,
                sums.push,
                a / 100.0,
                b / 100.0
            ));
        }
    });
}

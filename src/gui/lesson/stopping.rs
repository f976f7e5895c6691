//! Station 5: the baseline that depends on when you stop.

use eframe::egui::{Grid, Slider, Ui};

use super::bench::Bench;
use super::moved::{At, Moved};
use super::scene::{Exhibit, Scene, row};
use super::station::Question;
use crate::experiment::{Baseline, CreditSettings, Scale};
use crate::gui::GuiError;
use crate::gui::whatif::MemberResult;
use crate::gui::words::signed;

/// Notes of other rollouts that the table shows.
const OTHERS: usize = 8;

/// MemPO's baseline. Without a discount: later rewards are no part of what an earlier note earned.
pub fn start(recorded: &CreditSettings) -> CreditSettings {
    CreditSettings {
        memory: true,
        baseline: Baseline::Pooled,
        discount: 0.0,
        ..*recorded
    }
}

/// The group as if the shown rollout had stopped after so many scored notes.
fn stopped(
    bench: &Bench,
    at: At,
    settings: &CreditSettings,
    kept: usize,
) -> Result<Vec<MemberResult>, GuiError> {
    bench.changed(at.place.group, settings, |group| {
        if let Some(member) = group.get_mut(at.place.member) {
            member.scores.truncate(kept);
            member.memory.truncate(kept);
        }
    })
}

/// What becomes of one note when the shown rollout stops earlier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// The rollout that wrote it.
    pub member: u32,
    /// Whether that is the one that stops.
    pub own: bool,
    /// Its turn.
    pub turn: u32,
    /// Its memory part as recorded.
    pub recorded: Option<f32>,
    /// Its memory part under the settings.
    pub before: f32,
    /// The same after the stop; none if it is not written then.
    pub after: Option<f32>,
    /// Rollouts whose notes of this turn are scored, before and after.
    pub among: (usize, usize),
}

impl Drift {
    /// How far it moves; 0 if it is not written.
    fn size(&self) -> f32 {
        self.after.map_or(0.0, |after| after - self.before)
    }

    /// Whether that can be seen in the table.
    fn seen(&self) -> bool {
        signed(self.size(), 3) != "0.000"
    }
}

/// What becomes of every note of the group.
pub fn drifts(
    bench: &Bench,
    at: At,
    settings: &CreditSettings,
    kept: usize,
) -> Result<Vec<Drift>, GuiError> {
    let before = bench.under(at.place.group, settings)?;
    let after = stopped(bench, at, settings, kept)?;
    let among = |results: &[MemberResult], turn: u32| {
        let has = |of: &&MemberResult| of.memory.iter().any(|round| round.turn == turn);
        results.iter().filter(has).count()
    };
    let mut drifts = Vec::new();
    let results = before.iter().zip(&after);
    for (number, (member, (was, now))) in bench
        .members(at.place.group)
        .iter()
        .zip(results)
        .enumerate()
    {
        for &(turn, value) in &was.advantages.memory {
            let then = now.advantages.memory.iter().find(|(of, _)| *of == turn);
            let recorded = member.memory.iter().find(|of| of.turn == turn);
            drifts.push(Drift {
                member: member.id.member,
                own: number == at.place.member,
                turn,
                recorded: recorded.map(|of| of.advantage),
                before: value,
                after: then.map(|(_, then)| *then),
                among: (among(&before, turn), among(&after, turn)),
            });
        }
    }
    Ok(drifts)
}

/// The note that moves most, of those of the rollout that stops or of the others.
fn largest(drifts: &[Drift], own: bool) -> Option<Drift> {
    let of = drifts.iter().filter(|drift| drift.own == own);
    let by = |a: &&Drift, b: &&Drift| a.size().abs().total_cmp(&b.size().abs());
    of.max_by(by).copied()
}

fn rounds(bench: &Bench, at: At) -> usize {
    let member = bench.member(at.place);
    member.map_or(0, |member| member.memory.len())
}

/// A rollout whose later notes pull at the mean.
pub fn worth(bench: &Bench, at: At) -> f64 {
    let all = bench
        .members(at.place.group)
        .iter()
        .flat_map(|of| &of.memory);
    let rewards: Vec<f64> = all.map(|of| f64::from(of.reward)).collect();
    let mean = rewards.iter().sum::<f64>() / rewards.len().max(1) as f64;
    let member = bench.member(at.place);
    let later = member.map(|member| {
        let later = member.memory.iter().skip(1);
        later.map(|of| f64::from(of.reward) - mean).sum::<f64>()
    });
    later.map_or(0.0, f64::abs)
}

/// Whether stopping earlier changes what an earlier note is worth.
pub fn question(bench: &Bench, at: At) -> Result<Question, GuiError> {
    let settings = start(&bench.recorded);
    let drifts = drifts(bench, at, &settings, 1)?;
    let member = bench.member(at.place)?;
    let (number, rounds) = (member.id.member, rounds(bench, at));
    if rounds < 2 {
        return Err(GuiError::NotRecorded(format!(
            "rollout {number} has {rounds} scored notes and cannot stop earlier; choose another rollout"
        )));
    }
    let own = drifts.iter().find(|drift| drift.own);
    let moves = own.is_some_and(Drift::seen);
    let by = signed(own.map_or(0.0, Drift::size), 3);
    Ok(Question {
        text: format!(
            "Nothing about the first scored notes of rollout {number} changes; but later it stops after these, and not after {rounds}. Does the credit of the first ones change, with MemPO's pooled baseline?"
        ),
        options: vec!["no: they were written before".into(), "yes".into()],
        right: usize::from(moves),
        because: if moves {
            format!(
                "Their memory part moves by {by}. Mean and spread run over all rounds of the group, and stopping takes some out: a baseline that depends on what the rollout does later biases the gradient."
            )
        } else {
            format!(
                "Their memory part moves by {by}. Mean and spread run over all rounds of the group, and those that are gone happened to lie where the others do."
            )
        },
    })
}

/// The tokens that it shows.
pub fn exhibit(bench: &Bench, moved: &Moved) -> Result<Exhibit, GuiError> {
    let made = stopped(bench, moved.at, &moved.settings, moved.kept)?;
    let document = bench.document(moved.at.place, &made)?;
    let title = "The rollout that stops: notes after the stop have no memory part";
    Ok(Exhibit::weights(title, document))
}

/// Draws the station.
pub fn show(
    ui: &mut Ui,
    bench: &Bench,
    moved: &mut Moved,
    scene: &mut Scene,
) -> Result<String, GuiError> {
    let all = rounds(bench, moved.at);
    let number = bench.member(moved.at.place)?.id.member;
    row(ui, |ui| {
        for (baseline, name) in [
            (Baseline::Pooled, "mean of all rounds"),
            (Baseline::PerRound, "mean of the same round"),
            (Baseline::LeaveOneOut, "mean of the other rollouts"),
            (Baseline::Absorbing, "same round, 0 after the end"),
        ] {
            ui.radio_value(&mut moved.settings.baseline, baseline, name);
        }
    });
    let text = format!("rollout {number} stops after so many scored notes");
    ui.add(Slider::new(&mut moved.kept, 1..=all.max(1)).text(text));
    let drifts = drifts(bench, moved.at, &moved.settings, moved.kept)?;
    table(ui, &drifts, scene);
    said(bench, moved, &drifts, (number, all))
}

/// The notes of the rollout that stops, and of the others those that move most.
fn table(ui: &mut Ui, drifts: &[Drift], scene: &mut Scene) {
    scene.csv = String::from("rollout,turn,recorded,before,after\n");
    for of in drifts {
        let cell = |value: Option<f32>| value.map_or(String::new(), |value| value.to_string());
        scene.csv.push_str(&format!(
            "{},{},{},{},{}\n",
            of.member,
            of.turn,
            cell(of.recorded),
            of.before,
            cell(of.after)
        ));
    }
    let others = || drifts.iter().filter(|of| !of.own);
    let mut moving: Vec<&Drift> = others().filter(|of| of.seen()).collect();
    moving.sort_by(|a, b| b.size().abs().total_cmp(&a.size().abs()));
    let still = others().count() - moving.len();
    let more = moving.len().saturating_sub(OTHERS);
    let grid = Grid::new("stopping").num_columns(6).striped(true);
    grid.show(ui, |ui| {
        for head in [
            "rollout",
            "notes of turn",
            "as recorded",
            "with this baseline",
            "after the stop",
            "drift",
        ] {
            ui.strong(head);
        }
        ui.end_row();
        let own = drifts.iter().filter(|of| of.own);
        for of in own.chain(moving.into_iter().take(OTHERS)) {
            let stops = if of.own { " (stops)" } else { "" };
            ui.label(format!("#{}{stops}", of.member));
            ui.label(of.turn.to_string());
            ui.label(of.recorded.map_or("none".into(), |value| signed(value, 3)));
            ui.label(signed(of.before, 3));
            let after = of.after.map(|value| signed(value, 3));
            ui.label(after.unwrap_or_else(|| "not written".into()));
            let drift = of.after.map(|_| signed(of.size(), 3));
            ui.label(drift.unwrap_or_default());
            ui.end_row();
        }
    });
    ui.weak(format!(
        "Of other rollouts {more} more notes move, none further, and {still} do not move. The copied table has all."
    ));
}

fn said(
    bench: &Bench,
    moved: &Moved,
    drifts: &[Drift],
    (number, all): (u32, usize),
) -> Result<String, GuiError> {
    if moved.kept >= all {
        return Ok("Move the slider: let the rollout stop earlier, and watch notes that were written before.".into());
    }
    let own = largest(drifts, true).filter(Drift::seen);
    let others = largest(drifts, false).filter(Drift::seen);
    let mut text = match own {
        None => format!("The notes that rollout {number} keeps stay as they are."),
        Some(of) => {
            let by = signed(of.size(), 3);
            let undivided = CreditSettings {
                scale: Scale::Off,
                ..moved.settings
            };
            let undivided = self::drifts(bench, moved.at, &undivided, moved.kept)?;
            let mean = largest(&undivided, true).is_some_and(|of| of.seen());
            let why = if mean {
                "what they are compared with depends on what their rollout did later, and that biases the gradient"
            } else {
                "the mean that they are compared with stays, but the spread that all are divided by does not (credit.scale)"
            };
            format!(
                "The notes that rollout {number} keeps move by up to {by} (turn {}), though nothing about them changed: {why}.",
                of.turn
            )
        }
    };
    let Some(of) = others else {
        text.push_str(" No note of another rollout moves.");
        return Ok(text);
    };
    let (before, after) = of.among;
    let rollouts = bench.members(moved.at.place.group).len();
    let why = match moved.settings.baseline {
        Baseline::PerRound if after == 1 => {
            "It stands alone at its turn now, and is compared with nothing: what a late note is compared with depends on who is still there (verl #7244)".to_owned()
        }
        Baseline::PerRound if after < before => format!(
            "{after} rollouts reach that turn instead of {before}, and each stands in the mean that it is compared with: of its own reward 1 - 1/{after} is left, not 1 - 1/{before}. Notes of turns that few reach are pushed less, and that biases the gradient too (verl #7244)"
        ),
        Baseline::Absorbing => format!(
            "The rounds that are gone count as 0 there, and the mean still runs over all {rollouts}: every turn loses the same share of itself, which leaves the direction of the gradient as it is"
        ),
        Baseline::LeaveOneOut => {
            "They are compared with the rounds of others, of which some are gone; that is chance for them, not their own doing".to_owned()
        }
        _ => "They are compared with the rounds of all, of which some are gone".to_owned(),
    };
    text.push_str(&format!(
        " Notes of other rollouts move by up to {} (rollout {}, turn {}). {why}.",
        signed(of.size(), 3),
        of.member,
        of.turn
    ));
    Ok(text)
}

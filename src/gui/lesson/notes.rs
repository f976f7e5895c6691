//! Station 2: two notes of one rollout, different credit.

use std::cmp::Ordering;

use eframe::egui::{Grid, Slider, Ui};

use super::bench::{Bench, credited_tokens};
use super::moved::{At, Moved};
use super::scene::{Exhibit, Scene};
use super::station::Question;
use crate::experiment::{Baseline, CreditSettings, Gate, Length, Weight};
use crate::gui::GuiError;
use crate::gui::whatif::MemberResult;
use crate::gui::words::signed;
use crate::trajectory::MemoryReward;

/// As the run was, with memory credit.
pub fn start(recorded: &CreditSettings) -> CreditSettings {
    CreditSettings {
        memory: true,
        ..*recorded
    }
}

/// The notes of a turn: what they tell, what that is compared with, what they are paid.
#[derive(Clone, Copy, Debug)]
struct Paid {
    turn: u32,
    p: f32,
    against: Option<(&'static str, f32)>,
    reward: f32,
    part: f32,
}

/// What notes are compared with, and what that tells.
pub fn against(of: &MemoryReward) -> Option<(&'static str, f32)> {
    let full = of.p_full.map(|p| ("the full history", p));
    let previous = of.p_previous.map(|p| ("the notes before", p));
    let empty = of.p_empty.map(|p| ("empty notes", p));
    full.or(previous).or(empty)
}

/// The memory part of a turn.
pub fn part_of(result: &MemberResult, turn: u32) -> f32 {
    let parts = &result.advantages.memory;
    let found = parts.iter().find(|(of, _)| *of == turn);
    found.map_or(0.0, |(_, part)| *part)
}

fn paid(result: &MemberResult) -> Vec<Paid> {
    let of = |reward: &MemoryReward| Paid {
        turn: reward.turn,
        p: reward.p_memory,
        against: against(reward),
        reward: reward.reward,
        part: part_of(result, reward.turn),
    };
    result.memory.iter().map(of).collect()
}

/// A number as the table shows it, in thousandths: what looks equal is equal.
fn shown(value: f32) -> i64 {
    (f64::from(value) * 1000.0).round() as i64
}

/// Of all pairs (paid more, paid less) in which what they tell compares as wished, the one whose pay
/// lies furthest apart.
fn pair(paid: &[Paid], wished: Ordering) -> Option<(Paid, Paid)> {
    let pairs = paid
        .iter()
        .flat_map(|more| paid.iter().map(move |less| (*more, *less)));
    pairs
        .filter(|(more, less)| shown(more.part) > shown(less.part))
        .filter(|(more, less)| shown(more.p).cmp(&shown(less.p)) == wished)
        .max_by(|a, b| (a.0.part - a.1.part).total_cmp(&(b.0.part - b.1.part)))
}

/// The two notes that are asked about: the better one paid more, if there are such.
fn asked(paid: &[Paid]) -> Option<(Paid, Paid)> {
    [Ordering::Greater, Ordering::Less, Ordering::Equal]
        .into_iter()
        .find_map(|wished| pair(paid, wished))
}

/// How a reward came about: `0.089 - 0.414 = -0.326 for turn 3`, if it is a difference of what is shown.
fn made(of: &Paid, decimals: usize) -> String {
    let reward = signed(of.reward, decimals);
    match of.against {
        Some((name, p)) if (of.p - p - of.reward).abs() < 1e-6 => format!(
            "{:.decimals$} - {p:.decimals$} = {reward} for turn {} ({name})",
            of.p, of.turn
        ),
        _ => format!("{reward} for turn {}", of.turn),
    }
}

/// Why one of two notes is paid more.
fn why(more: &Paid, less: &Paid, settings: &CreditSettings) -> String {
    // As many decimals as it takes to see a difference.
    let differ =
        |decimals: &usize| signed(more.reward, *decimals) != signed(less.reward, *decimals);
    let decimals = (3..=6).find(differ).unwrap_or(3);
    let rewards = format!("{}, {}", made(more, decimals), made(less, decimals));
    if more.reward > less.reward {
        return format!("What counts is the reward: {rewards}.");
    }
    let mut also = Vec::new();
    if settings.discount > 0.0 {
        also.push("rewards of later turns are added");
    }
    if settings.length != Length::Off {
        also.push("length has a price");
    }
    if !matches!(settings.baseline, Baseline::Pooled | Baseline::LeaveOneOut) {
        also.push("every turn is compared with a mean of its own");
    }
    match also[..] {
        [] => format!("The rewards are {rewards}."),
        _ => format!("The rewards are {rewards}; but {}.", also.join(", ")),
    }
}

/// A rollout whose better notes are paid more by the widest margin, best if that turns the sign.
pub fn worth(bench: &Bench, at: At) -> f64 {
    let Ok(member) = bench.member(at.place) else {
        return 0.0;
    };
    let of = |round: &crate::record::MemoryCredit| Paid {
        turn: round.turn,
        p: round.p_memory,
        against: None,
        reward: round.reward,
        part: round.advantage,
    };
    let paid: Vec<Paid> = member.memory.iter().map(of).collect();
    let Some((more, less)) = pair(&paid, Ordering::Greater) else {
        return 0.0;
    };
    let outcomes = member
        .blocks
        .iter()
        .flat_map(|of| of.mask.iter().zip(&of.outcome));
    let outcome = outcomes
        .filter(|(on, _)| **on)
        .map(|(_, outcome)| *outcome)
        .next();
    let outcome = outcome.unwrap_or(0.0);
    let turns = (outcome + more.part) * (outcome + less.part) < 0.0;
    let margin = (more.part - less.part) * (more.p - less.p);
    f64::from(margin) * if turns { 2.0 } else { 1.0 }
}

/// Which of two notes gets less.
pub fn question(bench: &Bench, at: At) -> Result<Question, GuiError> {
    let member = bench.member(at.place)?;
    let settings = start(&bench.recorded);
    let results = bench.under(at.place.group, &settings)?;
    let paid = results.get(at.place.member).map(paid).unwrap_or_default();
    let [first, .., last] = paid[..] else {
        return Err(GuiError::NotRecorded(format!(
            "{} of rollout {} were scored, and it takes the notes of two turns to compare; choose another rollout",
            match paid.len() {
                0 => "no notes",
                _ => "the notes of one turn",
            },
            member.id.member
        )));
    };
    let in_order = match first.part >= last.part {
        true => (first, last),
        false => (last, first),
    };
    let (more, less) = asked(&paid).unwrap_or(in_order);
    let same = shown(more.part) == shown(less.part);
    let [early, late] = if more.turn < less.turn {
        [more, less]
    } else {
        [less, more]
    };
    Ok(Question {
        text: format!(
            "From the notes that rollout {} wrote in turn {} the right answer has probability {:.3}, from those of turn {} {:.3}. With memory credit, which of the two get less?",
            member.id.member, early.turn, early.p, late.turn, late.p
        ),
        options: vec![
            format!("those of turn {}", early.turn),
            format!("those of turn {}", late.turn),
            "both get the same".into(),
        ],
        right: match same {
            true => 2,
            false => usize::from(late.turn == less.turn),
        },
        because: match same {
            true => format!("Both have the memory part {}.", signed(more.part, 3)),
            false => format!(
                "Turn {} gets the memory part {}, turn {} {}. {}",
                more.turn,
                signed(more.part, 3),
                less.turn,
                signed(less.part, 3),
                why(&more, &less, &settings)
            ),
        },
    })
}

/// The tokens that it shows.
pub fn exhibit(bench: &Bench, moved: &Moved) -> Result<Exhibit, GuiError> {
    let made = bench.under(moved.at.place.group, &moved.settings)?;
    let document = bench.document(moved.at.place, &made)?;
    Ok(Exhibit::weights("One rollout, note by note", document))
}

/// Draws the station.
pub fn show(
    ui: &mut Ui,
    bench: &Bench,
    moved: &mut Moved,
    scene: &mut Scene,
) -> Result<String, GuiError> {
    ui.horizontal_wrapped(|ui| {
        let mut weight = match moved.settings.weight {
            Weight::Constant(factor) => factor,
            Weight::Linear(_) => moved.settings.weight_at(bench.inputs.step),
        };
        if ui
            .add(Slider::new(&mut weight, 0.0..=2.0).text("memory weight"))
            .changed()
        {
            moved.settings.weight = Weight::Constant(weight);
        }
        ui.add(Slider::new(&mut moved.settings.discount, 0.0..=1.0).text("discount over turns"));
    });
    let place = moved.at.place;
    let made = bench.under(place.group, &moved.settings)?;
    let member = bench.member(place)?;
    let Some(result) = made.get(place.member) else {
        return Ok(String::new());
    };
    let paid = paid(result);
    let outcome = result.advantages.outcome.mean();
    scene.csv = String::from("turn,p_notes,against,p_against,reward,outcome,memory,total,tokens\n");
    let grid = Grid::new("notes").num_columns(7).striped(true);
    grid.show(ui, |ui| {
        for head in [
            "notes of turn",
            "P(answer | notes)",
            "compared with",
            "reward",
            "outcome",
            "memory part",
            "each token gets",
        ] {
            ui.strong(head);
        }
        ui.end_row();
        for of in &paid {
            let tokens = credited_tokens(member, &moved.settings, of.turn);
            let total = outcome + of.part;
            ui.label(of.turn.to_string());
            ui.label(format!("{:.3}", of.p));
            ui.label(
                of.against
                    .map_or("nothing".into(), |(name, p)| format!("{p:.3} from {name}")),
            );
            ui.label(signed(of.reward, 3));
            ui.label(signed(outcome, 3));
            ui.label(signed(of.part, 3));
            ui.label(format!("{} over {tokens} tokens", signed(total, 3)));
            ui.end_row();
            let (name, p) = of.against.map_or(("nothing", String::new()), |(name, p)| {
                (name, p.to_string())
            });
            scene.csv.push_str(&format!(
                "{},{},{name},{p},{},{outcome},{},{total},{tokens}\n",
                of.turn, of.p, of.reward, of.part
            ));
        }
    });
    Ok(said(bench, moved, &paid))
}

fn said(bench: &Bench, moved: &Moved, paid: &[Paid]) -> String {
    let settings = &moved.settings;
    if paid.iter().all(|of| shown(of.part) == 0) {
        let why = if settings.weight_at(bench.inputs.step) == 0.0 {
            "The memory weight is 0, so this is GRPO again"
        } else if settings.gate != Gate::Off {
            "Every memory part is 0 here (the run has a gate, credit.gate)"
        } else {
            "Every memory part is 0 here"
        };
        return format!("{why}: the notes get what every other token of the rollout gets.");
    }
    let names = |of: &Paid| format!("the notes of turn {} (P {:.3})", of.turn, of.p);
    let mut text = Vec::new();
    if let Some((more, less)) = pair(paid, Ordering::Greater) {
        text.push(format!(
            "{} get {} more a token than {}: of these two, those that tell more are paid more.",
            capital(&names(&more)),
            signed(more.part - less.part, 3).trim_start_matches('+'),
            names(&less),
        ));
    }
    if let Some((more, less)) = pair(paid, Ordering::Less) {
        text.push(format!(
            "{} get less than {}, though they tell more. {}",
            capital(&names(&less)),
            names(&more),
            why(&more, &less, settings)
        ));
    }
    if text.is_empty() {
        return match asked(paid) {
            Some((more, less)) => format!(
                "{} get more than {}, which tell as much. {}",
                capital(&names(&more)),
                names(&less),
                why(&more, &less, settings)
            ),
            None => "All notes of this rollout are paid the same.".into(),
        };
    }
    text.join(" ")
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

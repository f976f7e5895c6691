//! Station 4: credit for inherited notes, and the difference reward.

use eframe::egui::{Grid, RadioButton, Slider, Ui};

use super::bench::{Bench, probabilities};
use super::moved::{At, Moved};
use super::notes::{against, part_of};
use super::scene::{Exhibit, Scene, row};
use super::station::Question;
use crate::experiment::{CreditSettings, Space, Support, Target, Threshold};
use crate::gui::GuiError;
use crate::gui::whatif::{Member, MemberResult};
use crate::gui::words::signed;
use crate::trajectory::{Compared, MemoryReward, RoundScores};

const TARGETS: [(Target, &str); 4] = [
    (Target::Absolute, "pay P(answer | notes)"),
    (
        Target::MinusPrevious,
        "pay the difference to the notes before",
    ),
    (Target::MinusFull, "pay the difference to the full history"),
    (Target::MinusEmpty, "pay the difference to empty notes"),
];

/// P itself: every answer token counts, and nothing but the notes before is taken off.
pub fn start(recorded: &CreditSettings) -> CreditSettings {
    CreditSettings {
        memory: true,
        target: Target::Absolute,
        space: Space::Prob,
        threshold: Threshold::Off,
        support: Support::Off,
        ..*recorded
    }
}

/// The round that was handed most: (turn, P before, P after).
fn handed(member: &Member, recorded: &CreditSettings) -> Option<(u32, f32, f32)> {
    let rounds = probabilities(member, recorded);
    let pairs = rounds
        .array_windows()
        .map(|[(_, before), (turn, now)]| (*turn, *before, *now));
    pairs.max_by(|a, b| a.1.total_cmp(&b.1))
}

/// A rollout that was handed much.
pub fn worth(bench: &Bench, at: At) -> f64 {
    let member = bench.member(at.place).ok();
    let handed = member.and_then(|member| handed(member, &bench.recorded));
    handed.map_or(0.0, |(_, before, _)| f64::from(before))
}

/// Whether what was inherited is paid.
pub fn question(bench: &Bench, at: At) -> Result<Question, GuiError> {
    let member = bench.member(at.place)?;
    let number = member.id.member;
    // The settings of the station must be possible at all.
    bench.under(at.place.group, &start(&bench.recorded))?;
    let (turn, before, now) = handed(member, &bench.recorded).ok_or_else(|| {
        GuiError::NotRecorded(format!(
            "no two notes of rollout {number} were scored, so none has a known forerunner; choose another rollout"
        ))
    })?;
    let (all, gain) = (format!("{now:.2}"), signed(now - before, 2));
    if format!("{before:.2}") == "0.00" {
        return Err(GuiError::NotRecorded(format!(
            "the notes of rollout {number} never handed anything on, P(answer | notes before) is 0.00 in every turn; choose another rollout"
        )));
    }
    Ok(Question {
        text: format!(
            "Before turn {turn} of rollout {number} the right answer had probability {before:.2} from the notes, after it {all}. Paid by P(answer | notes), the turn earns {all}. How much of that did the turn itself bring?"
        ),
        options: vec![
            format!("all of it, {all}"),
            format!("the difference, {gain}"),
            "nothing can be said".into(),
        ],
        right: 1,
        because: format!(
            "{before:.2} stood in the notes it was handed. What this turn changed is {gain}, and that is what the difference reward pays."
        ),
    })
}

/// Every round compared with the notes that were scored before it. A first one that has no such is left
/// out, unless it is the first turn, which is compared with empty notes.
fn with_notes_before(group: &mut [Member]) {
    for member in group {
        let scores = std::mem::take(&mut member.scores);
        let round = |(at, round): (usize, &RoundScores)| {
            if round.turn == 0 || round.compared == Some(Compared::Previous) {
                return Some(round.clone());
            }
            let before = scores.get(at.checked_sub(1)?)?;
            Some(RoundScores {
                compared: Some(Compared::Previous),
                against: before.notes.clone(),
                ..round.clone()
            })
        };
        member.scores = scores.iter().enumerate().filter_map(round).collect();
    }
}

fn results(
    bench: &Bench,
    group: usize,
    settings: &CreditSettings,
) -> Result<Vec<MemberResult>, GuiError> {
    // Records without log-probs know what they were asked for and nothing else.
    let known = |member: &Member| !member.scores.is_empty();
    if settings.target == Target::MinusPrevious && bench.members(group).iter().any(known) {
        return bench.changed(group, settings, |members| with_notes_before(members));
    }
    bench.under(group, settings)
}

/// The tokens that it shows.
pub fn exhibit(bench: &Bench, moved: &Moved) -> Result<Exhibit, GuiError> {
    let made = results(bench, moved.at.place.group, &moved.settings)?;
    let document = bench.document(moved.at.place, &made)?;
    Ok(Exhibit::weights(
        "What each turn's notes are paid",
        document,
    ))
}

/// Draws the station.
pub fn show(
    ui: &mut Ui,
    bench: &Bench,
    moved: &mut Moved,
    scene: &mut Scene,
) -> Result<String, GuiError> {
    let place = moved.at.place;
    let known = TARGETS.map(|(target, _)| {
        let settings = CreditSettings {
            target,
            ..moved.settings
        };
        results(bench, place.group, &settings).is_ok()
    });
    row(ui, |ui| {
        for ((target, name), known) in TARGETS.into_iter().zip(known) {
            let chosen = moved.settings.target == target;
            if ui
                .add_enabled(known, RadioButton::new(chosen, name))
                .clicked()
            {
                moved.settings.target = target;
            }
        }
    });
    if known.contains(&false) {
        ui.weak("What is off was not scored in this run: credit.first: minus_empty scores empty notes, credit.target: minus_full the full history.");
    }
    ui.add(Slider::new(&mut moved.settings.discount, 0.0..=1.0).text("discount over turns"));
    let made = results(bench, place.group, &moved.settings)?;
    let member = bench.member(place)?;
    let Some(result) = made.get(place.member) else {
        return Ok(String::new());
    };
    let left_out = member
        .scores
        .iter()
        .find(|round| result.memory.iter().all(|of| of.turn != round.turn));
    if let Some(round) = left_out {
        ui.weak(format!(
            "The notes of turn {} are left out: those before them were not scored (credit.first: minus_empty scores them).",
            round.turn
        ));
    }
    scene.csv = String::from("turn,p_notes,against,p_against,reward,memory\n");
    let grid = Grid::new("inherited").num_columns(5).striped(true);
    grid.show(ui, |ui| {
        for head in [
            "notes of turn",
            "P(answer | notes)",
            "compared with",
            "reward",
            "memory part",
        ] {
            ui.strong(head);
        }
        ui.end_row();
        for reward in &result.memory {
            let part = part_of(result, reward.turn);
            let other = against(reward);
            ui.label(reward.turn.to_string());
            ui.label(format!("{:.3}", reward.p_memory));
            ui.label(other.map_or("nothing".into(), |(name, p)| format!("{p:.3} from {name}")));
            ui.label(signed(reward.reward, 3));
            ui.label(signed(part, 3));
            ui.end_row();
            let (name, p) = other.map_or(("nothing", String::new()), |(n, p)| (n, p.to_string()));
            scene.csv.push_str(&format!(
                "{},{},{name},{p},{},{part}\n",
                reward.turn, reward.p_memory, reward.reward
            ));
        }
    });
    Ok(said(&result.memory, moved.settings.target))
}

/// What the rewards add up to.
fn said(rounds: &[MemoryReward], target: Target) -> String {
    let (Some(first), Some(last)) = (rounds.first(), rounds.last()) else {
        return "No notes of this rollout are paid here.".into();
    };
    let sum: f32 = rounds.iter().map(|of| of.reward).sum();
    let all = format!("The rewards add up to {}", signed(sum, 2));
    let knows = last.p_memory;
    let start = against(first);
    match (target, start) {
        (Target::MinusPrevious, Some((name, from))) if (knows - from - sum).abs() < 5e-3 => {
            format!(
                "{all}: what the last notes tell ({knows:.2}) less what was there before turn {} ({from:.2}, {name}). Nothing is paid twice.",
                first.turn
            )
        }
        (Target::Absolute, _) if sum > knows + 5e-3 => format!(
            "{all}, though the last notes tell only {knows:.2}: what is carried along is paid in every turn."
        ),
        _ => format!("{all}; the last notes tell {knows:.2}."),
    }
}

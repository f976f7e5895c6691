//! Station 3: the threshold that kills the signal.

use eframe::egui::{Align2, FontId, Grid, Rect, Role, Sense, Ui, WidgetInfo, pos2, vec2};

use super::bench::Bench;
use super::moved::{At, Moved};
use super::notes::{against, part_of};
use super::scene::{Exhibit, Scene};
use super::station::Question;
use crate::credit::group::mean_std;
use crate::credit::memory::value::{floor, passing, wide};
use crate::experiment::{Answers, CreditSettings, Scale, Threshold};
use crate::gui::GuiError;
use crate::gui::theme::Colours;
use crate::gui::whatif::{Member, MemberResult};
use crate::gui::words::signed;
use crate::trajectory::RoundScores;

/// As the run was, with MemPO's threshold.
pub fn start(recorded: &CreditSettings) -> CreditSettings {
    CreditSettings {
        memory: true,
        threshold: Threshold::Own(0.5),
        ..*recorded
    }
}

fn every_token(settings: &CreditSettings) -> CreditSettings {
    CreditSettings {
        threshold: Threshold::Off,
        ..*settings
    }
}

/// What a threshold leaves of the memory rewards of a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Signal {
    /// Scored notes.
    pub rounds: usize,
    /// Rewards that are exactly 0.
    pub zero: usize,
    /// Mean of their absolute values.
    pub size: f64,
    /// Their standard deviation.
    pub spread: f64,
    /// Mean absolute memory part.
    pub pay: f64,
    /// Mean value of the answer given the notes.
    pub notes: f64,
    /// The same given what they are compared with; none if with nothing.
    pub against: Option<f64>,
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0u32);
    for value in values {
        sum += value;
        count += 1;
    }
    sum / f64::from(count.max(1))
}

/// The signal of a group; none if nothing was scored.
pub fn signal(results: &[MemberResult]) -> Option<Signal> {
    let rewards = || results.iter().flat_map(|of| &of.memory);
    let values: Vec<f64> = rewards().map(|of| f64::from(of.reward)).collect();
    let parts = results.iter().flat_map(|of| &of.advantages.memory);
    let compared = rewards().filter_map(against).map(|(_, p)| f64::from(p));
    let compares = compared.clone().next().is_some();
    (!values.is_empty()).then(|| Signal {
        rounds: values.len(),
        zero: values.iter().filter(|reward| **reward == 0.0).count(),
        size: mean(values.iter().map(|reward| reward.abs())),
        spread: mean_std(&values).1,
        pay: mean(parts.map(|(_, part)| f64::from(part.abs()))),
        notes: mean(rewards().map(|of| f64::from(of.p_memory))),
        against: compares.then(|| mean(compared)),
    })
}

/// The tokens of a round that count: given the notes, and given what they are compared with.
fn counted(round: &RoundScores, threshold: Threshold) -> [Vec<bool>; 2] {
    let floor = floor(threshold);
    let of = |texts: &[Vec<f32>]| {
        let text = texts.first().map(Vec::as_slice).unwrap_or_default();
        passing(&wide(text), floor)
    };
    let (mut notes, mut other) = (of(&round.notes), of(&round.against));
    if matches!(threshold, Threshold::Union(_)) {
        for (notes, other) in notes.iter_mut().zip(&mut other) {
            *notes |= *other;
            *other = *notes;
        }
    }
    [notes, other]
}

/// Answer tokens of a group: those dropped given the notes, those dropped given what they are compared
/// with, and all. None where several texts of the answer were scored.
fn dropped(members: &[Member], settings: &CreditSettings) -> Option<[usize; 3]> {
    if settings.answers == Answers::JoinedMaxAlias {
        return None;
    }
    let mut sums = [0; 3];
    for round in members.iter().flat_map(|member| &member.scores) {
        let counts = counted(round, settings.threshold);
        for (sum, counts) in sums.iter_mut().zip(&counts) {
            *sum += counts.iter().filter(|counts| !**counts).count();
        }
        if let (Some(all), Some(first)) = (sums.get_mut(2), counts.first()) {
            *all += first.len();
        }
    }
    Some(sums)
}

/// A group with much to lose, and a rollout whose notes earn much.
pub fn worth(bench: &Bench, at: At) -> f64 {
    let of = |member: &Member| {
        mean(
            member
                .memory
                .iter()
                .map(|round| f64::from(round.reward.abs())),
        )
    };
    let group = mean(bench.members(at.place.group).iter().map(of));
    group + 0.01 * bench.member(at.place).map_or(0.0, of)
}

/// The signal before and after.
fn both(bench: &Bench, group: usize, settings: &CreditSettings) -> Result<[Signal; 2], GuiError> {
    let members = bench.members(group);
    if members.iter().all(|member| member.scores.is_empty()) {
        return Err(GuiError::NotRecorded(
            "it holds no log-probs of the answer's tokens, which a threshold chooses among; runs with memory credit of this version do".into(),
        ));
    }
    let none = || GuiError::NotRecorded("no notes of this group were scored".into());
    let all = signal(&bench.under(group, &every_token(settings))?).ok_or_else(none)?;
    let now = signal(&bench.under(group, settings)?).ok_or_else(none)?;
    Ok([all, now])
}

/// How much of the signal a threshold of 0.5 leaves.
pub fn question(bench: &Bench, at: At) -> Result<Question, GuiError> {
    let settings = start(&bench.recorded);
    let group = at.place.group;
    let [all, now] = both(bench, group, &settings)?;
    if all.size == 0.0 {
        return Err(GuiError::NotRecorded(
            "every memory reward of this group is 0 already; choose another group".into(),
        ));
    }
    let share = now.size / all.size;
    let right = match share {
        share if share > 2.0 => 2,
        share if share < 0.5 => 0,
        _ => 1,
    };
    Ok(Question {
        text: format!(
            "The {} notes of this group have memory rewards of {:.4} on average, signs aside, when every answer token counts. What does MemPO's threshold of 0.5 do to that?",
            all.rounds, all.size
        ),
        options: vec![
            "it falls to less than half".into(),
            "it stays between half and twice of it".into(),
            "it more than doubles".into(),
        ],
        right,
        because: format!(
            "It goes from {:.4} to {:.4}. {}",
            all.size,
            now.size,
            mechanism(bench, group, &settings, &now)
        ),
    })
}

/// What the threshold did, in the numbers of the group.
fn mechanism(bench: &Bench, group: usize, settings: &CreditSettings, now: &Signal) -> String {
    let mut text = String::new();
    if let Some([notes, against, all]) = dropped(bench.members(group), settings) {
        text = format!(
            "Of {all} answer tokens {notes} are dropped given the notes, those that the notes leave improbable"
        );
        if now.against.is_some() {
            text.push_str(&format!(
                ", and {against} given what the notes are compared with"
            ));
        }
        text.push_str(". ");
    }
    match now.against {
        Some(other) => text.push_str(&format!(
            "Over what stays the values are {:.3} and {other:.3} on average.",
            now.notes
        )),
        None => text.push_str(&format!(
            "Over what stays the value is {:.3} on average.",
            now.notes
        )),
    }
    text
}

/// The tokens that it shows.
pub fn exhibit(bench: &Bench, moved: &Moved) -> Result<Exhibit, GuiError> {
    let made = bench.under(moved.at.place.group, &moved.settings)?;
    let document = bench.document(moved.at.place, &made)?;
    Ok(Exhibit::weights("What its tokens get", document))
}

/// Draws the station.
pub fn show(
    ui: &mut Ui,
    bench: &Bench,
    moved: &mut Moved,
    scene: &mut Scene,
) -> Result<String, GuiError> {
    crate::gui::whatif::threshold(ui, &mut moved.settings);
    let place = moved.at.place;
    let [all, now] = both(bench, place.group, &moved.settings)?;
    let before = bench.under(place.group, &every_token(&moved.settings))?;
    let after = bench.under(place.group, &moved.settings)?;
    signals(ui, &all, &now);
    ui.add_space(6.0);
    if let (Some(before), Some(after)) = (before.get(place.member), after.get(place.member)) {
        rounds(ui, bench.member(place)?, moved, (before, after), scene);
    }
    let signs = |results: &[MemberResult]| -> Vec<i8> {
        let parts = results.iter().flat_map(|of| &of.advantages.memory);
        parts
            .map(|(_, part)| i8::from(*part > 0.0) - i8::from(*part < 0.0))
            .collect()
    };
    let pairs = signs(&before).into_iter().zip(signs(&after));
    let turned = pairs.filter(|(was, is)| was * is < 0).count();
    Ok(said(bench, moved, (&all, &now), turned))
}

/// The group as a whole, before and after.
fn signals(ui: &mut Ui, all: &Signal, now: &Signal) {
    let grid = Grid::new("signal").num_columns(6).striped(true);
    grid.show(ui, |ui| {
        for head in [
            "all notes of the group",
            "mean |reward|",
            "spread of rewards",
            "value given the notes",
            "given the other",
            "mean |memory part|",
        ] {
            ui.strong(head);
        }
        ui.end_row();
        for (name, of) in [("every answer token", all), ("as chosen above", now)] {
            ui.label(name);
            ui.label(format!("{:.4}", of.size));
            ui.label(format!("{:.4}", of.spread));
            ui.label(format!("{:.3}", of.notes));
            ui.label(of.against.map_or("-".into(), |of| format!("{of:.3}")));
            ui.label(format!("{:.3}", of.pay));
            ui.end_row();
        }
    });
}

/// The notes of the shown rollout.
fn rounds(
    ui: &mut Ui,
    member: &Member,
    moved: &Moved,
    (before, after): (&MemberResult, &MemberResult),
    scene: &mut Scene,
) {
    scene.csv = String::from("turn,reward_all_tokens,v_notes,v_against,reward,memory\n");
    let grid = Grid::new("threshold").num_columns(6).striped(true);
    grid.show(ui, |ui| {
        for head in [
            "notes of turn",
            "reward, every token",
            "answer tokens given the notes",
            "given what they are compared with",
            "reward",
            "memory part",
        ] {
            ui.strong(head);
        }
        ui.end_row();
        for round in &member.scores {
            let find = |result: &MemberResult| {
                let found = result.memory.iter().find(|of| of.turn == round.turn);
                found.copied()
            };
            let (Some(was), Some(is)) = (find(before), find(after)) else {
                continue;
            };
            let other = against(&is).map(|(_, p)| p);
            ui.label(round.turn.to_string());
            ui.label(signed(was.reward, 4));
            let counts = counted(round, moved.settings.threshold);
            for ((texts, value), counts) in
                [(&round.notes, Some(is.p_memory)), (&round.against, other)]
                    .into_iter()
                    .zip(&counts)
            {
                let logprobs = texts.first().map(Vec::as_slice).unwrap_or_default();
                let floor = floor(moved.settings.threshold);
                bars(ui, logprobs, counts, (floor, value), &scene.colours);
            }
            let part = part_of(after, round.turn);
            ui.label(signed(is.reward, 4));
            ui.label(signed(part, 3));
            ui.end_row();
            scene.csv.push_str(&format!(
                "{},{},{},{},{},{part}\n",
                round.turn,
                was.reward,
                is.p_memory,
                other.map_or(String::new(), |p| p.to_string()),
                is.reward
            ));
        }
    });
}

fn said(bench: &Bench, moved: &Moved, (all, now): (&Signal, &Signal), turned: usize) -> String {
    if moved.settings.threshold == Threshold::Off {
        return "Every answer token counts, so both rows are the same. Choose a threshold to see what it leaves.".into();
    }
    let mut text = format!(
        "With the threshold the mean |reward| is {:.4} where it was {:.4}. {}",
        now.size,
        all.size,
        mechanism(bench, moved.at.place.group, &moved.settings, now)
    );
    let divided = matches!(moved.settings.scale, Scale::Std);
    if now.size < 0.5 * all.size && divided && now.pay > 0.5 * all.pay && now.pay > 0.0 {
        text.push_str(&format!(
            " The z-score then divides by the spread, {:.4} instead of {:.4}: the memory parts are {:.3} on average where they were {:.3}, so what little is left is blown up to full scale. {turned} of {} have another sign.",
            now.spread, all.spread, now.pay, all.pay, now.rounds
        ));
    } else {
        text.push_str(&format!(
            " The memory parts are {:.3} on average, signs aside, where they were {:.3}; {turned} of {} have another sign.",
            now.pay, all.pay, now.rounds
        ));
    }
    text
}

/// One bar a token of the answer; those that count are filled, the line is the threshold.
fn bars(
    ui: &mut Ui,
    logprobs: &[f32],
    counts: &[bool],
    (floor, value): (Option<f64>, Option<f32>),
    colours: &Colours,
) {
    let (rect, response) = ui.allocate_exact_size(vec2(190.0, 36.0), Sense::hover());
    let room = Rect::from_min_max(rect.min, pos2(rect.right() - 56.0, rect.bottom()));
    let width = room.width() / logprobs.len().max(1) as f32;
    for (at, (logprob, counts)) in logprobs.iter().zip(counts).enumerate() {
        let height = logprob.exp() * (room.height() - 2.0);
        let left = room.left() + at as f32 * width;
        let bar = Rect::from_min_max(
            pos2(left, room.bottom() - height.max(1.0)),
            pos2(left + width - 1.0, room.bottom()),
        );
        let fill = if *counts { colours.focus } else { colours.line };
        ui.painter().rect_filled(bar, 0.0, fill);
    }
    if let Some(floor) = floor {
        let y = room.bottom() - (floor.exp() as f32) * (room.height() - 2.0);
        ui.painter()
            .hline(room.x_range(), y, (1.0, colours.warning));
    }
    let text = value.map_or(String::new(), |value| format!("V {value:.3}"));
    let font = FontId::proportional(12.0);
    ui.painter().text(
        rect.right_center(),
        Align2::RIGHT_CENTER,
        &text,
        font,
        colours.text,
    );
    let count = counts.iter().filter(|counts| **counts).count();
    let of = logprobs.len();
    response.widget_info(|| {
        let label = format!("{count} of {of} answer tokens count, {text}");
        WidgetInfo::labeled(Role::Image, true, label)
    });
}

//! Station 1: one reward for everybody.

use eframe::egui::{Grid, Slider, SliderClamping, Ui};

use super::bench::{Bench, probabilities};
use super::moved::{At, Moved};
use super::scene::{Exhibit, Scene, row};
use super::station::Question;
use crate::experiment::{CreditSettings, Estimator};
use crate::gui::GuiError;
use crate::gui::whatif::{Member, MemberResult};
use crate::gui::words::signed;

/// Memory credit off, and an estimator that gives a rollout one number: the recorded one if it does.
pub fn start(recorded: &CreditSettings) -> CreditSettings {
    let estimator = match recorded.estimator {
        of @ (Estimator::Grpo | Estimator::DrGrpo | Estimator::Rloo) => of,
        _ => Estimator::Grpo,
    };
    CreditSettings {
        memory: false,
        estimator,
        ..*recorded
    }
}

/// The two notes of a rollout that differ most in what they tell: turn and P, the earlier first.
fn apart(member: &Member, recorded: &CreditSettings) -> Option<[(u32, f32); 2]> {
    let rounds = probabilities(member, recorded);
    let by = |a: &&(u32, f32), b: &&(u32, f32)| a.1.total_cmp(&b.1);
    let (low, high) = (*rounds.iter().min_by(by)?, *rounds.iter().max_by(by)?);
    let mut pair = [low, high];
    pair.sort_by_key(|(turn, _)| *turn);
    (high.1 - low.1 >= 0.01).then_some(pair)
}

/// A rollout whose notes differ most.
pub fn worth(bench: &Bench, at: At) -> f64 {
    let member = bench.member(at.place).ok();
    let pair = member.and_then(|member| apart(member, &bench.recorded));
    let notes = pair.map_or(0.0, |[a, b]| f64::from((a.1 - b.1).abs()));
    let rewards = bench.rewards(at.place.group);
    let spread = rewards
        .windows(2)
        .any(|pair| matches!(pair, [a, b] if a != b));
    notes + f64::from(u8::from(spread))
}

/// Which part of one rollout gets less when one number is broadcast.
pub fn question(bench: &Bench, at: At) -> Result<Question, GuiError> {
    let member = bench.member(at.place)?;
    let number = member.id.member;
    if bench.members(at.place.group).len() < 2 {
        return Err(GuiError::NotRecorded(
            "this question has one rollout, and there is nothing to compare it with".into(),
        ));
    }
    let (text, parts) = match apart(member, &bench.recorded) {
        Some([(first, p), (second, q)]) => (
            format!(
                "From the notes that rollout {number} wrote in turn {first} the right answer has probability {p:.2}, from those of turn {second} {q:.2}. Under GRPO, which tokens get less?"
            ),
            [
                format!("the notes of turn {first}"),
                format!("the notes of turn {second}"),
            ],
        ),
        None => (
            format!(
                "Rollout {number} wrote {} tokens. Under GRPO, which of them get less?",
                member.rewards.sampled.iter().sum::<u32>()
            ),
            ["the first ones".into(), "the last ones".into()],
        ),
    };
    let [first, second] = parts;
    Ok(Question {
        text,
        options: vec![first, second, "none: all get the same".into()],
        right: 2,
        because: "GRPO makes one number of a rollout's answer and gives it to every token that the rollout wrote.".into(),
    })
}

fn results(bench: &Bench, moved: &Moved) -> Result<Vec<MemberResult>, GuiError> {
    bench.changed(moved.at.place.group, &moved.settings, |group| {
        for (member, reward) in group.iter_mut().zip(&moved.rewards) {
            member.rewards.outcome = *reward;
        }
    })
}

/// The tokens that it shows.
pub fn exhibit(bench: &Bench, moved: &Moved) -> Result<Exhibit, GuiError> {
    let document = bench.document(moved.at.place, &results(bench, moved)?)?;
    Ok(Exhibit::weights("One rollout, one number", document))
}

/// Draws the station.
pub fn show(
    ui: &mut Ui,
    bench: &Bench,
    moved: &mut Moved,
    scene: &mut Scene,
) -> Result<String, GuiError> {
    row(ui, |ui| {
        for (estimator, name) in [
            (
                Estimator::Grpo,
                "against the mean, divided by the spread (GRPO)",
            ),
            (
                Estimator::DrGrpo,
                "against the mean, not divided (Dr. GRPO)",
            ),
            (
                Estimator::Rloo,
                "against the mean of the other rollouts (RLOO)",
            ),
        ] {
            ui.radio_value(&mut moved.settings.estimator, estimator, name);
        }
        if ui.button("Make all rewards equal").clicked() {
            let mean = moved.rewards.iter().sum::<f64>() / moved.rewards.len().max(1) as f64;
            moved.rewards.fill(mean);
        }
    });
    if start(&bench.recorded).estimator != bench.recorded.estimator {
        ui.weak("The run itself used another estimator, which this station does not show.");
    }
    let made = results(bench, moved)?;
    let advantages: Vec<f32> = made.iter().map(|of| of.advantages.outcome.mean()).collect();
    table(ui, bench, moved, &advantages, scene);
    Ok(said(bench, moved, &advantages))
}

fn table(ui: &mut Ui, bench: &Bench, moved: &mut Moved, advantages: &[f32], scene: &mut Scene) {
    let group = moved.at.place.group;
    let recorded = bench.rewards(group);
    let low = recorded.iter().copied().fold(0.0, f64::min);
    let high = recorded.iter().copied().fold(1.2, f64::max);
    scene.csv = String::from("rollout,reward,advantage\n");
    let grid = Grid::new("rewards").num_columns(3).striped(true);
    grid.show(ui, |ui| {
        for head in ["rollout", "reward (drag it)", "advantage of every token"] {
            ui.strong(head);
        }
        ui.end_row();
        let rows = bench.members(group).iter().zip(advantages);
        for (at, (member, advantage)) in rows.enumerate() {
            let number = member.id.member;
            ui.label(format!("#{number}"));
            if let Some(reward) = moved.rewards.get_mut(at) {
                let slider = Slider::new(reward, low..=high)
                    .clamping(SliderClamping::Never)
                    .text(format!("reward of rollout {number}"));
                ui.add(slider);
                ui.label(signed(*advantage, 3));
                let line = format!("{number},{reward},{advantage}\n");
                scene.csv.push_str(&line);
            }
            ui.end_row();
        }
    });
}

fn said(bench: &Bench, moved: &Moved, advantages: &[f32]) -> String {
    let nothing = |advantage: &f32| signed(*advantage, 3) == "0.000";
    if advantages.iter().all(nothing) {
        let equal = moved
            .rewards
            .windows(2)
            .all(|pair| matches!(pair, [a, b] if a == b));
        let why = if equal {
            "No spread, no signal: all rewards are equal, so every"
        } else {
            "Every"
        };
        return format!("{why} advantage is 0 and nothing is learned from this question.");
    }
    let place = moved.at.place;
    let mean = moved.rewards.iter().sum::<f64>() / moved.rewards.len().max(1) as f64;
    let gets = signed(advantages.get(place.member).copied().unwrap_or(0.0), 2);
    let Ok(member) = bench.member(place) else {
        return String::new();
    };
    let notes = match apart(member, &bench.recorded) {
        Some([(first, p), (second, q)]) => format!(
            " on every token it wrote: on the notes of turn {first}, from which the right answer has probability {p:.2}, and on those of turn {second}, from which it has {q:.2}."
        ),
        None => " on every token it wrote.".into(),
    };
    let kl = if member.kl.is_nothing() {
        ""
    } else {
        " What leaving the reference cost (KL) differs from token to token and comes on top."
    };
    format!(
        "The mean reward is {mean:.2}. Rollout {} gets {gets}{notes}{kl}",
        member.id.member
    )
}

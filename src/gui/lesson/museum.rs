//! Station 6: bugs that were found in published training code, each with a switch.

use eframe::egui::Ui;

use super::bench::Bench;
use super::panel::{Said, Scene};
use super::station::Question;
use crate::credit::group::{TokenRow, reinforce_plus_plus, verl};
use crate::experiment::{Baseline, CreditSettings};
use crate::gui::GuiError;
use crate::gui::tokens::Document;
use crate::gui::whatif::Member;

/// A piece of the museum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Piece {
    /// SkyRL #1492.
    #[default]
    LastTurnMask,
    /// verl #7278.
    LostReward,
    /// Search-R1 #108.
    TrainedTools,
    /// verl #7244.
    TurnIndex,
}

impl Piece {
    const ALL: [Self; 4] = [
        Self::LastTurnMask,
        Self::LostReward,
        Self::TrainedTools,
        Self::TurnIndex,
    ];

    fn title(self) -> &'static str {
        match self {
            Self::LastTurnMask => "Only the last turn learns (SkyRL #1492)",
            Self::LostReward => "The reward stops at the tool (verl #7278)",
            Self::TrainedTools => "The tool's words are trained on (Search-R1 #108)",
            Self::TurnIndex => "Normalised by the number of the turn (verl #7244)",
        }
    }

    fn story(self) -> &'static str {
        match self {
            Self::LastTurnMask => {
                "The advantages of the last turn, already masked, were copied to the earlier ones: nearly all tokens before the last turn trained with weight 0."
            }
            Self::LostReward => {
                "REINFORCE++ sums rewards from the end to the front and started anew at every masked token. In a rollout with tools the outcome never reached the turns before the last call."
            }
            Self::TrainedTools => {
                "The mask did not fit the retrieved text, so the policy was trained to write what the search engine says."
            }
            Self::TurnIndex => {
                "Turns of the same number were compared with each other. Who is still there in a late turn depends on the policy, and so does the baseline."
            }
        }
    }
}

/// How many trained tokens lose their signal when only the last turn learns.
pub fn question(bench: &Bench) -> Option<Question> {
    let member = bench.shown()?;
    let last = member.rows.iter().flat_map(|row| &row.turn).max()?;
    let sampled = |turn: Option<u32>| {
        let tokens = member
            .rows
            .iter()
            .flat_map(|row| row.mask.iter().zip(&row.turn));
        tokens
            .filter(|(on, of)| **on && turn.is_none_or(|turn| turn == **of))
            .count()
    };
    let (all, left) = (sampled(None), sampled(Some(*last)));
    let share = 100 * (all - left) / all.max(1);
    let options = ["about a tenth", "about half", "most of them"];
    let right = match share {
        0..=30 => 0,
        31..=60 => 1,
        _ => 2,
    };
    Some(Question {
        text: format!(
            "Rollout {} wrote {all} tokens. In SkyRL #1492 only those of its last turn were trained, and the loss looked as ever. How many tokens lose their signal?",
            member.id.member
        ),
        options: options.map(str::to_owned).to_vec(),
        right,
        because: format!(
            "{} of {all} tokens, {share} %, train with weight 0.",
            all - left
        ),
    })
}

/// Draws the station.
pub fn show(ui: &mut Ui, bench: &mut Bench, scene: &mut Scene) -> Result<Said, GuiError> {
    for piece in Piece::ALL {
        ui.radio_value(&mut scene.piece, piece, piece.title());
    }
    ui.label(scene.piece.story());
    ui.checkbox(&mut scene.broken, "as it was published");
    scene.members(ui, bench);
    let settings = CreditSettings {
        memory: true,
        ..bench.settings
    };
    let right = match scene.piece {
        Piece::LostReward => whitened(bench, false)?,
        _ => shown(bench, &settings)?,
    };
    let wrong = match scene.piece {
        Piece::LastTurnMask => last_turn_only(right.clone()),
        Piece::LostReward => whitened(bench, true)?,
        Piece::TrainedTools => trained_tools(right.clone()),
        Piece::TurnIndex => shown(
            bench,
            &CreditSettings {
                baseline: Baseline::PerRound,
                ..settings
            },
        )?,
    };
    let (mut silenced, mut changed, mut taught) = (0, 0, 0);
    for ((&was, &is), (&on, &trained)) in right
        .weight
        .iter()
        .zip(&wrong.weight)
        .zip(right.mask.iter().zip(&wrong.mask))
    {
        silenced += u32::from(on && was != 0.0 && is == 0.0);
        changed += u32::from(on && was.to_bits() != is.to_bits());
        taught += u32::from(trained && !on);
    }
    scene.csv = String::from("token,right,published\n");
    for (at, (was, is)) in right.weight.iter().zip(&wrong.weight).enumerate() {
        scene.csv.push_str(&format!("{at},{was},{is}\n"));
    }
    let document = if scene.broken { wrong } else { right };
    let title = if scene.broken {
        "As it was published"
    } else {
        "As it should be"
    };
    scene.strip(ui, title, Some(document.into()));
    Ok(Said(format!(
        "Against the right weights: {changed} tokens differ, {silenced} of them lose their signal, {taught} are trained that the policy never wrote."
    )))
}

/// The shown rollout under settings.
fn shown(bench: &Bench, settings: &CreditSettings) -> Result<Document, GuiError> {
    let made = bench.under(settings)?;
    Ok(bench
        .document(&made)
        .map(|document| document.as_ref().clone())
        .unwrap_or_default())
}

fn last_turn_only(mut of: Document) -> Document {
    let last = of
        .segments
        .iter()
        .map(|segment| segment.turn)
        .max()
        .unwrap_or(0);
    for segment in of.segments.clone() {
        if segment.turn < last {
            for token in segment.tokens {
                for column in [&mut of.weight, &mut of.outcome, &mut of.memory] {
                    if let Some(value) = column.get_mut(token) {
                        *value = 0.0;
                    }
                }
            }
        }
    }
    of
}

fn trained_tools(mut of: Document) -> Document {
    // The prompt was masked in any case: training began with the first token that was written.
    let first = of.mask.iter().position(|on| *on).unwrap_or(of.mask.len());
    let outcome = of.outcome.get(first).copied().unwrap_or(0.0);
    let columns = of
        .mask
        .iter_mut()
        .zip(of.outcome.iter_mut().zip(&mut of.weight));
    for (on, (part, weight)) in columns.skip(first).filter(|(on, _)| !**on) {
        *on = true;
        *part = outcome;
        *weight = outcome;
    }
    of
}

/// REINFORCE++ over the rows of the group, as it is or as verl had it before its PR #7300.
fn whitened(bench: &Bench, published: bool) -> Result<Document, GuiError> {
    let rows: Vec<(Vec<f64>, &[bool])> = bench
        .members()
        .iter()
        .zip(&bench.rewards)
        .filter_map(|(member, reward)| whole_row(member, *reward))
        .collect();
    let token_rows: Vec<TokenRow<'_>> = rows
        .iter()
        .map(|(rewards, mask)| TokenRow { rewards, mask })
        .collect();
    let advantages = if published {
        verl::reinforce_plus_plus(&token_rows, 1.0).1
    } else {
        reinforce_plus_plus(&token_rows, 1.0)?.advantages
    };
    let Some((member, weights)) = bench.shown().zip(advantages.get(bench.member)) else {
        return Ok(Document::default());
    };
    let mut block = member.blocks.first().cloned().unwrap_or_default();
    block.weight = weights.iter().map(|weight| *weight as f32).collect();
    block.outcome.clone_from(&block.weight);
    block.memory.fill(0.0);
    block.kl.fill(0.0);
    Ok(Document::new(member.id, &[block], &bench.inputs.vocabulary))
}

/// The first row of a rollout with its reward on the last sampled token.
fn whole_row(member: &Member, reward: f64) -> Option<(Vec<f64>, &[bool])> {
    let row = member.rows.first()?;
    let mut rewards = vec![0.0; row.mask.len()];
    let last = row.mask.iter().rposition(|on| *on)?;
    if let Some(value) = rewards.get_mut(last) {
        *value = reward;
    }
    Some((rewards, &row.mask))
}

//! What came of the settings: how many weights change, the rollouts of the group before and after, and
//! the tokens of the selected one.

use eframe::egui::{Grid, Ui};

use super::inputs::{Member, StepInputs};
use super::recompute::{MemberResult, Recomputed, document_of};
use crate::gui::Value;
use crate::gui::tokens::{Document, Strip, token_limit};
use crate::gui::words::signed;
use crate::gui::world::World;
use crate::trajectory::TrajectoryId;

/// How far two weights may lie apart and still be the same: machines differ in their last bits.
const SAME: f32 = 1e-5;

/// Token weights of a step, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All that are trained.
    pub trained: u32,
    /// Those that are others than the recorded ones.
    pub moved: u32,
    /// Those that have another sign.
    pub turned: u32,
}

/// Counts what changes.
#[must_use]
pub fn counts(inputs: &StepInputs, made: &Recomputed) -> Counts {
    let mut counts = Counts::default();
    let members = inputs.groups.iter().flatten();
    for (member, result) in members.zip(made.groups.iter().flatten()) {
        for (block, credit) in member.blocks.iter().zip(&result.credit) {
            for ((&on, &was), &now) in block.mask.iter().zip(&block.weight).zip(&credit.weight) {
                let apart = (was - now).abs() > SAME * was.abs().max(1.0);
                counts.trained += u32::from(on);
                counts.moved += u32::from(on && (apart || now.is_nan()));
                counts.turned += u32::from(on && was * now < 0.0);
            }
        }
    }
    counts
}

/// A row of the table.
struct Row {
    member: TrajectoryId,
    part: String,
    was: Option<f32>,
    now: f32,
}

/// The results for one rollout and its group, worked out once.
pub struct Shown {
    /// The rollout.
    pub id: TrajectoryId,
    /// The table as CSV.
    pub csv: String,
    rows: Vec<Row>,
    strips: Option<(Document, Document, f32)>,
}

impl Shown {
    /// Takes the group of a rollout out of a step.
    #[must_use]
    pub fn new(id: TrajectoryId, inputs: &StepInputs, made: &Recomputed) -> Self {
        let mut shown = Self {
            id,
            csv: String::from("group,rollout,part,turn,recorded,now\n"),
            rows: Vec::new(),
            strips: None,
        };
        let members = inputs.groups.iter().flatten();
        for (member, result) in members.zip(made.groups.iter().flatten()) {
            if member.id.group == id.group {
                shown.member(member, result);
            }
            if member.id == id {
                let before = Document::new(id, &member.blocks, &inputs.vocabulary);
                let after = document_of(member, result, &inputs.vocabulary);
                let limit = token_limit([&before, &after], Value::Weight);
                shown.strips = Some((before, after, limit));
            }
        }
        shown
    }

    fn member(&mut self, member: &Member, result: &MemberResult) {
        let recorded = member.blocks.iter().flat_map(|block| {
            block
                .mask
                .iter()
                .zip(&block.outcome)
                .filter(|(on, _)| **on)
                .map(|(_, outcome)| *outcome)
        });
        let was: Vec<f32> = recorded.collect();
        // Some estimators give every token an advantage of its own.
        let mean = was.iter().sum::<f32>() / was.len().max(1) as f32;
        self.row(
            member.id,
            "outcome",
            None,
            Some(mean),
            result.advantages.outcome.mean(),
        );
        for &(turn, now) in &result.advantages.memory {
            let was = member.memory.iter().find(|of| of.turn == turn);
            let was = was.map(|of| of.advantage);
            self.row(member.id, "notes of turn", Some(turn), was, now);
        }
    }

    fn row(
        &mut self,
        member: TrajectoryId,
        part: &str,
        turn: Option<u32>,
        was: Option<f32>,
        now: f32,
    ) {
        let turn = turn.map_or(String::new(), |turn| turn.to_string());
        let cell = was.map_or(String::new(), |was| was.to_string());
        self.csv.push_str(&format!(
            "{},{},{part},{turn},{cell},{now}\n",
            member.group, member.member
        ));
        self.rows.push(Row {
            member,
            part: format!("{part} {turn}").trim().to_owned(),
            was,
            now,
        });
    }

    /// The tokens of the rollout, as recorded and now.
    pub fn strips(&self, ui: &mut Ui, world: &World) {
        let Some((before, after, limit)) = &self.strips else {
            return;
        };
        let colours = world.theme.of(ui.ctx()).clone();
        for (title, document) in [("Now", after), ("Recorded", before)] {
            ui.strong(format!("{title}: weights of rollout {}", self.id.member));
            let strip = Strip {
                document,
                value: Value::Weight,
                limit: *limit,
                patterns: world.patterns,
                written_only: true,
            };
            strip.show(ui, title, &colours);
        }
    }

    /// The advantages of every rollout of the group, as recorded and now.
    pub fn table(&self, ui: &mut Ui, world: &mut World) {
        ui.strong(format!("Advantages of group {}", self.id.group));
        Grid::new("members")
            .num_columns(4)
            .striped(true)
            .show(ui, |ui| {
                for name in ["rollout", "part", "recorded", "now"] {
                    ui.strong(name);
                }
                ui.end_row();
                for row in &self.rows {
                    let name = format!("#{}", row.member.member);
                    if ui.selectable_label(row.member == self.id, name).clicked() {
                        world.selection = crate::gui::Selection::of(row.member);
                    }
                    ui.label(&row.part);
                    ui.label(row.was.map_or("none".into(), |was| signed(was, 3)));
                    ui.label(signed(row.now, 3));
                    ui.end_row();
                }
            });
    }
}

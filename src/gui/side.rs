//! The panels left and right of the tabs: the list of groups with the histogram of rewards and the
//! list of troubles, and the details of what is selected.

use eframe::egui::{
    Align2, Button, FontId, Rect, RichText, Role, ScrollArea, Sense, StrokeKind, Ui, WidgetInfo,
    pos2, vec2,
};

use super::tokens::{Document, Value};
use super::trouble::{Jump, Troubles};
use super::words::{place, signed, step_name, verdict};
use super::world::{Tab, World};
use super::{Command, Selection};
use crate::trajectory::{Purpose, TrajectoryId};

/// Bars of the histogram.
const BARS: usize = 12;

/// The list at the left.
#[derive(Default)]
pub struct Side {
    troubles: Troubles,
}

impl Side {
    /// Draws the left panel.
    pub fn left(&mut self, ui: &mut Ui, world: &mut World) {
        steps(ui, world);
        ui.add_space(4.0);
        ui.strong("Rewards");
        histogram(ui, world);
        ui.separator();
        let troubles = 0.32 * ui.available_height();
        let height = (ui.available_height() - troubles - 34.0).max(60.0);
        ui.strong("Groups");
        groups(ui, world, height);
        ui.separator();
        self.troubles(ui, world);
    }

    fn troubles(&mut self, ui: &mut Ui, world: &mut World) {
        let Some(run) = world.runs.get(world.current) else {
            return;
        };
        let entries = self.troubles.of(world.current, run, ui.ctx());
        ui.strong(format!("Trouble ({})", entries.len()));
        let warning = world.theme.of(ui.ctx()).warning;
        let mut jump = None;
        // A line each, so that a thousand entries cost what a dozen cost; the tooltip has the rest.
        let height = ui.text_style_height(&eframe::egui::TextStyle::Body) + 6.0;
        let area = ScrollArea::vertical()
            .id_salt("troubles")
            .auto_shrink(false);
        area.show_rows(ui, height, entries.len(), |ui, range| {
            for entry in entries.get(range).unwrap_or_default() {
                let text = RichText::new(&entry.text).color(warning);
                let response = ui.add(Button::new(text).frame(false).truncate());
                if response.on_hover_text(&entry.text).clicked() {
                    jump = Some(entry.clone());
                }
            }
        });
        let Some(entry) = jump else { return };
        match entry.jump {
            Jump::Trajectory(id) => {
                world.selection = Selection::of(id);
                world.tab = Tab::Watch;
            }
            Jump::Group(step, group) => {
                let id = TrajectoryId {
                    step,
                    purpose: Purpose::Train,
                    group,
                    member: 0,
                };
                world.selection = Selection::of(id);
                world.tab = Tab::Watch;
            }
            Jump::Step(step) => {
                if let Some(run) = world.runs.get(world.current) {
                    world.selection.go_to_step(run, step.saturating_sub(1));
                }
                world.tab = Tab::Curves;
            }
            Jump::Nowhere => {
                ui.ctx().copy_text(entry.text.clone());
                world.say(format!("{} (copied)", entry.text));
            }
        }
    }
}

/// Which step is shown, and the ones beside it.
fn steps(ui: &mut Ui, world: &mut World) {
    let Some(run) = world.run() else { return };
    let id = world.selection.id;
    let steps = run.steps();
    let shown = step_name(id.purpose, id.step);
    let mut chosen = None;
    ui.horizontal(|ui| {
        if ui
            .button("<")
            .on_hover_text("Previous step (Ctrl+Left)")
            .clicked()
        {
            world.todo.push(Command::PreviousStep);
        }
        let width = ui.available_width() - 40.0;
        let combo = eframe::egui::ComboBox::from_id_salt("steps")
            .width(width)
            .selected_text(&shown);
        let height = ui.spacing().interact_size.y;
        let response = combo.show_ui(ui, |ui| {
            // Long runs have thousands of steps: only those in view are made.
            ScrollArea::vertical().max_height(300.0).show_rows(
                ui,
                height,
                steps.len(),
                |ui, range| {
                    for &(purpose, step) in steps.get(range).unwrap_or_default() {
                        let here = (purpose, step) == (id.purpose, id.step);
                        if ui
                            .selectable_label(here, step_name(purpose, step))
                            .clicked()
                        {
                            chosen = Some((purpose, step));
                        }
                    }
                },
            );
        });
        response.response.widget_info(|| {
            WidgetInfo::labeled(Role::ComboBox, true, format!("Step shown: {shown}"))
        });
        if ui
            .button(">")
            .on_hover_text("Next step (Ctrl+Right)")
            .clicked()
        {
            world.todo.push(Command::NextStep);
        }
    });
    let first = chosen
        .and_then(|(purpose, step)| world.run()?.members(purpose, step, None).first().copied());
    if let Some(first) = first {
        world.selection = Selection::of(first);
    }
}

/// How many rollouts of the step got which reward; a click keeps only those.
fn histogram(ui: &mut Ui, world: &mut World) {
    let Some(run) = world.run() else { return };
    let id = world.selection.id;
    let rewards: Vec<f32> = run
        .members(id.purpose, id.step, None)
        .iter()
        .filter_map(|id| {
            run.view
                .trajectories
                .get(id)?
                .outcome
                .map(|outcome| outcome.reward)
        })
        .collect();
    let low = rewards.iter().copied().fold(0.0f32, f32::min);
    let high = rewards.iter().copied().fold(1.0f32, f32::max);
    let width = (high - low) / BARS as f32;
    let mut counts = [0usize; BARS];
    for reward in &rewards {
        let at = (((reward - low) / width) as usize).min(BARS - 1);
        if let Some(count) = counts.get_mut(at) {
            *count += 1;
        }
    }
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let colours = world.theme.of(ui.ctx()).clone();
    let (rect, _) = ui.allocate_exact_size(vec2(ui.available_width(), 54.0), Sense::hover());
    let bar = rect.width() / BARS as f32;
    let mut chosen = world.filter;
    for (at, &count) in counts.iter().enumerate() {
        let from = low + at as f32 * width;
        // The last bar holds its upper end too; a hair more keeps rounding out of the way.
        let range = (
            from - 1e-4,
            from + width - if at + 1 == BARS { -1e-4 } else { 1e-4 },
        );
        let whole = Rect::from_min_size(
            pos2(rect.left() + at as f32 * bar, rect.top()),
            vec2(bar, rect.height()),
        );
        let response = ui.interact(whole, ui.scope_id().with(("bar", at)), Sense::click());
        let on = world.filter == Some(range);
        response.widget_info(|| {
            let text = format!("reward {from:.2} to {:.2}: {count} rollouts", from + width);
            WidgetInfo::selected(Role::Button, true, on, text)
        });
        let height = (count as f32 / most as f32 * 38.0).max(1.0);
        let filled = Rect::from_min_max(
            pos2(whole.left() + 1.0, whole.bottom() - 12.0 - height),
            pos2(whole.right() - 1.0, whole.bottom() - 12.0),
        );
        let fill = if on { colours.focus } else { colours.weak };
        ui.painter().rect_filled(filled, 1.0, fill);
        if response.has_focus() {
            ui.painter()
                .rect_stroke(whole, 1.0, (1.5, colours.focus), StrokeKind::Inside);
        }
        if count > 0 && response.clicked() {
            chosen = if on { None } else { Some(range) };
        }
        response.on_hover_text(format!("{from:.2} to {:.2}: {count}", from + width));
    }
    let ends = [
        (rect.left_bottom(), Align2::LEFT_BOTTOM, low),
        (rect.right_bottom(), Align2::RIGHT_BOTTOM, high),
    ];
    for (at, anchor, value) in ends {
        let font = FontId::proportional(12.0);
        ui.painter()
            .text(at, anchor, format!("{value:.1}"), font, colours.weak);
    }
    world.filter = chosen;
    if world.filter.is_some() && ui.button("Show all rewards (F)").clicked() {
        world.filter = None;
    }
}

/// The groups of the step: how many are done, and their mean reward.
fn groups(ui: &mut Ui, world: &mut World, height: f32) {
    let Some(run) = world.run() else { return };
    let id = world.selection.id;
    let members = run.members(id.purpose, id.step, None);
    // Members of a group stand together: remember where each group begins.
    let mut starts: Vec<usize> = Vec::new();
    for (at, member) in members.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| members.get(at));
        if before.is_none_or(|before| before.group != member.group) {
            starts.push(at);
        }
    }
    let row = ui.spacing().interact_size.y;
    let mut chosen = None;
    let area = ScrollArea::vertical()
        .id_salt("groups")
        .max_height(height)
        .auto_shrink(false);
    area.show_rows(ui, row, starts.len(), |ui, range| {
        for number in range {
            let Some(&from) = starts.get(number) else {
                continue;
            };
            let to = starts.get(number + 1).copied().unwrap_or(members.len());
            let of = members.get(from..to).unwrap_or_default();
            let Some(first) = of.first() else { continue };
            let outcomes: Vec<f32> = of
                .iter()
                .filter_map(|id| run.view.trajectories.get(id)?.outcome.map(|of| of.reward))
                .collect();
            let mean = outcomes.iter().sum::<f32>() / outcomes.len().max(1) as f32;
            let spread = outcomes
                .windows(2)
                .any(|pair| matches!(pair, [a, b] if a != b));
            let state = if outcomes.len() < of.len() {
                format!("{}/{} done", outcomes.len(), of.len())
            } else {
                let dead = !spread && of.len() > 1;
                format!("mean {mean:.2}{}", if dead { "  no spread" } else { "" })
            };
            let text = format!("group {}   {state}", first.group);
            let here = first.group == id.group;
            if ui.add(Button::selectable(here, text).truncate()).clicked() {
                chosen = Some(*first);
            }
        }
    });
    if let Some(first) = chosen {
        world.selection = Selection::of(first);
    }
}

/// Draws the right panel: the selected trajectory, turn and token.
pub fn right(ui: &mut Ui, world: &mut World) {
    ui.heading("Details");
    // First, where it is seen without scrolling.
    token(ui, world);
    let id = world.selection.id;
    ScrollArea::vertical()
        .id_salt("details")
        .auto_shrink(false)
        .show(ui, |ui| {
            let Some(of) = world.trajectory() else {
                ui.label("Nothing is selected.");
                return;
            };
            ui.label(place(id));
            ui.label(verdict(of));
            pair(ui, "turns", of.turns.len().to_string());
            if let Some(outcome) = of.outcome {
                pair(ui, "reward", format!("{:.2}", outcome.reward));
                pair(
                    ui,
                    "exact match, F1",
                    format!("{:.0}, {:.2}", outcome.em, outcome.f1),
                );
                pair(
                    ui,
                    "facts kept in notes",
                    format!("{:.0} %", outcome.notes_recall * 100.0),
                );
                pair(
                    ui,
                    "longest context",
                    format!("{} tokens", outcome.peak_tokens),
                );
            }
            if let Some(advantage) = of.outcome_advantage {
                pair(ui, "outcome advantage", signed(advantage, 3));
            }
            if of.kl_advantage != 0.0 {
                pair(ui, "KL part", signed(of.kl_advantage, 3));
            }
            if let Some(turn) = of.turns.get(world.selection.turn as usize) {
                ui.separator();
                ui.strong(format!("Turn {}", turn.wrote.turn));
                pair(ui, "written", format!("{} tokens", turn.wrote.tokens));
                pair(
                    ui,
                    "context before",
                    format!("{} tokens", turn.wrote.context_tokens),
                );
                if let Some(round) = of.memory.iter().find(|round| round.turn == turn.wrote.turn) {
                    pair(ui, "P(answer | notes)", format!("{:.3}", round.p_memory));
                    let beside = [
                        ("P(answer | full)", round.p_full),
                        ("P(answer | notes before)", round.p_previous),
                        ("P(answer | empty notes)", round.p_empty),
                    ];
                    for (name, value) in beside {
                        if let Some(value) = value {
                            pair(ui, name, format!("{value:.3}"));
                        }
                    }
                    pair(ui, "memory reward", signed(round.reward, 3));
                    pair(ui, "memory advantage", signed(round.advantage, 3));
                }
            }
            if let Some(live) = &world.live
                && let Some(budget) = live.budget(id)
            {
                ui.separator();
                ui.label(budget);
            }
        });
}

/// The pinned token, or the one under the pointer.
fn token(ui: &mut Ui, world: &mut World) {
    let token = world.selection.token.or(world.hovered);
    let (Some(token), Tab::Tokens) = (token, world.tab) else {
        return;
    };
    let id = world.selection.id;
    let pinned = world.selection.token.is_some();
    if let Some(Ok(document)) = world.run_mut().map(|run| run.document(id)) {
        token_details(ui, &document, token, pinned);
        ui.separator();
    }
}

/// Every number of one token.
fn token_details(ui: &mut Ui, of: &Document, token: usize, pinned: bool) {
    let state = if pinned {
        "pinned"
    } else {
        "under the pointer"
    };
    ui.strong(format!("Token {} '{}'", token + 1, of.text(token).trim()));
    ui.weak(state);
    if of.mask.get(token) != Some(&true) {
        ui.label("not sampled by the policy: never trained on");
        return;
    }
    for value in Value::ALL.into_iter().filter(|value| value.known(of)) {
        pair(ui, value.text(), signed(value.at(of, token), 4));
    }
    let p = of.learner.get(token).copied().unwrap_or(0.0).exp();
    pair(ui, "p for the learner", format!("{p:.3}"));
}

/// A name and its value on one line.
pub fn pair(ui: &mut Ui, name: &str, value: impl Into<String>) {
    ui.horizontal_wrapped(|ui| {
        ui.weak(name);
        ui.label(value.into());
    });
}

//! The right panel: the numbers of the selected trajectory, turn and token, as they stood at the cursor.

use eframe::egui::{ScrollArea, Ui};

use crate::gui::tokens::{Document, Value};
use crate::gui::words::{signed, verdict};
use crate::gui::world::{Tab, World};
use crate::record::{TrajectoryView, TurnView};

/// Draws the right panel.
pub fn right(ui: &mut Ui, world: &mut World) {
    ui.heading("Details");
    // First, where it is seen without scrolling.
    token(ui, world);
    ScrollArea::vertical()
        .id_salt("details")
        .auto_shrink(false)
        .show(ui, |ui| {
            let Some((run, of)) = world.run().zip(world.seen()) else {
                ui.label("Nothing is selected.");
                return;
            };
            ui.label(run.place(of.id));
            if let Some(event) = world.cursor.event() {
                ui.weak(format!("at event {event}"));
            }
            ui.label(verdict(&of));
            rollout(ui, &of);
            if let Some(turn) = of.turns.get(world.selection.turn as usize) {
                ui.separator();
                one_turn(ui, &of, turn);
            }
            if let Some(live) = &world.live
                && let Some(budget) = live.budget(of.id)
            {
                ui.separator();
                ui.label(budget);
            }
        });
}

fn rollout(ui: &mut Ui, of: &TrajectoryView) {
    let written: u32 = of.turns.iter().map(|turn| turn.wrote.tokens).sum();
    pair(ui, "turns", of.turns.len().to_string());
    pair(ui, "written", format!("{written} tokens"));
    if let Some(outcome) = of.outcome {
        pair(ui, "reward", format!("{:.2}", outcome.reward));
        let exact = format!("{:.0}, {:.2}", outcome.em, outcome.f1);
        pair(ui, "exact match, F1", exact);
        let kept = format!("{:.0} %", outcome.notes_recall * 100.0);
        pair(ui, "facts kept in notes", kept);
        let longest = format!("{} tokens", outcome.peak_tokens);
        pair(ui, "longest context", longest);
    }
    if let Some(advantage) = of.outcome_advantage {
        pair(ui, "outcome advantage", signed(advantage, 3));
    }
    if of.kl_advantage != 0.0 {
        pair(ui, "KL part", signed(of.kl_advantage, 3));
    }
}

fn one_turn(ui: &mut Ui, of: &TrajectoryView, turn: &TurnView) {
    ui.strong(format!("Turn {}", turn.wrote.turn));
    pair(ui, "written", format!("{} tokens", turn.wrote.tokens));
    let before = format!("{} tokens", turn.wrote.context_tokens);
    pair(ui, "context before", before);
    let Some(round) = of.memory.iter().find(|round| round.turn == turn.wrote.turn) else {
        return;
    };
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

/// The pinned token, or the one under the pointer.
fn token(ui: &mut Ui, world: &mut World) {
    let token = world.selection.token.or(world.hovered);
    let (Some(token), Tab::Tokens, false) = (token, world.tab, world.before_credit()) else {
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

/// All numbers of the pinned token, or of the one under the pointer, on one line: for windows without
/// room for the details.
pub fn token_line(of: &Document, token: usize) -> String {
    let head = format!("token {} '{}'", token + 1, of.text(token).trim());
    if of.mask.get(token) != Some(&true) {
        return format!("{head}: not sampled by the policy, never trained on");
    }
    let known = Value::ALL.into_iter().filter(|value| value.known(of));
    let numbers: Vec<String> = known
        .map(|value| format!("{} {}", value.text(), signed(value.at(of, token), 3)))
        .collect();
    let p = of.learner.get(token).copied().unwrap_or(0.0).exp();
    format!("{head}: {}, p for the learner {p:.3}", numbers.join(", "))
}

/// A name and its value on one line.
fn pair(ui: &mut Ui, name: &str, value: impl Into<String>) {
    ui.horizontal_wrapped(|ui| {
        ui.weak(name);
        ui.label(value.into());
    });
}

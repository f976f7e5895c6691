//! The Tokens panel: controls, the rows on the screen, the minimap.

use eframe::egui::{ComboBox, FontId, Label, Rect, RichText, ScrollArea, Ui, UiBuilder, pos2};

use super::document::{Document, SegmentKind};
use super::laid::{Cache, Limit, Wanted, lay};
use super::legend::legend;
use super::line::{Place, one_line};
use super::minimap::{Minimap, Source, WIDTH};
use super::paint::{Painting, ROW};
use super::value::{Granularity, Value};
use crate::gui::Command;
use crate::gui::side::token_line;
use crate::gui::world::World;
use crate::trajectory::TrajectoryId;

/// Below this height, points, controls and audit take a row each.
const SMALL: f32 = 260.0;
/// Height of the numbers of a token, where no details are shown.
const NUMBERS: f32 = 50.0;

/// The Tokens panel.
#[derive(Default)]
pub struct TokensPanel {
    /// The number that is shown.
    pub value: Value,
    /// Over what it is averaged.
    pub granularity: Granularity,
    /// The end of the scale, if it is locked.
    pub locked: Option<f32>,
    /// The rollout that stands beside the selected one.
    pub sibling: Option<u32>,
    cache: Option<Cache>,
    limit: Option<Limit>,
    made: u64,
    minimap: Minimap,
    scroll_to: Option<f32>,
    /// Where the rows stood in the last frame: from where, and how much of them.
    view: (f32, f32),
    pinned: Option<usize>,
    turn: Option<(TrajectoryId, u32)>,
    /// The line that is to take the focus.
    focus: Option<usize>,
}

impl TokensPanel {
    /// Does what a command asks of this panel.
    pub fn command(&mut self, command: Command, world: &mut World) {
        match command {
            Command::CycleValue => self.value = self.value.next(),
            Command::CycleGranularity => self.granularity = self.granularity.next(),
            Command::LockRange => {
                let limit = self.cache.as_ref().map(|cache| cache.limit);
                self.locked = if self.locked.is_some() { None } else { limit };
            }
            Command::ToggleDifference => {
                let shown = world.shown_members();
                let other = shown.iter().find(|id| **id != world.selection.id);
                self.sibling = match self.sibling {
                    Some(_) => None,
                    None => other.map(|id| id.member),
                };
            }
            Command::NextExtreme => self.extreme(world, true),
            Command::PreviousExtreme => self.extreme(world, false),
            _ => {}
        }
    }

    /// Pins the next token whose value is near the end of the scale.
    fn extreme(&mut self, world: &mut World, forward: bool) {
        let Some(cache) = &self.cache else { return };
        let values = &cache.left.values;
        let top = values.iter().map(|value| value.abs()).fold(0.0, f32::max);
        let strong = |at: &usize| {
            let value = values.get(*at).map_or(0.0, |value| value.abs());
            value > 0.0 && value >= 0.8 * top
        };
        let found = match (world.selection.token, forward) {
            (Some(at), true) => (at + 1..values.len()).find(strong),
            (Some(at), false) => (0..at.min(values.len())).rev().find(strong),
            (None, true) => (0..values.len()).find(strong),
            (None, false) => (0..values.len()).rev().find(strong),
        };
        if let Some(at) = found {
            pin(world, &cache.left.document, Some(at));
        }
    }

    /// Draws the panel.
    pub fn ui(&mut self, ui: &mut Ui, world: &mut World) {
        let small = ui.available_height() < SMALL;
        self.controls(ui, world);
        if let Err(why) = self.prepare(ui, world) {
            self.cache = None;
            ui.add_space(20.0);
            ui.vertical_centered(|ui| ui.label(why));
            return;
        }
        let Some(cache) = &self.cache else { return };
        if let Some(run) = world.run().filter(|run| run.vocabulary.is_empty()) {
            let warning = world.theme.of(ui.ctx()).warning;
            ui.label(RichText::new(&run.vocabulary_error).color(warning));
        }
        if small {
            ui.add(Label::new(&cache.audit).truncate());
        } else {
            ui.label(&cache.audit);
        }
        ui.separator();
        self.follow(world);
        self.rows(ui, world);
    }

    /// Scrolls to what another panel, a key or a command selected.
    fn follow(&mut self, world: &mut World) {
        let Some(cache) = &self.cache else { return };
        let document = &cache.left.document;
        let selection = &world.selection;
        let turn = (selection.id, selection.turn);
        let mut token = None;
        if selection.token != self.pinned {
            self.pinned = selection.token;
            token = self.pinned;
        } else if self.turn != Some(turn) {
            let fresh = self.turn.is_none_or(|(id, _)| id != selection.id);
            if !fresh || selection.turn > 0 {
                token = first_of(document, selection.turn);
            }
        }
        self.turn = Some(turn);
        let line = token.and_then(|token| cache.left.layout.line_of(token));
        let row = line.and_then(|line| cache.rows.iter().position(|row| row[0] == Some(line)));
        if let Some(row) = row {
            self.scroll_to = Some(row as f32 * ROW - self.view.1 / 3.0);
        }
        let pages = std::mem::take(&mut world.pages);
        if pages != 0 {
            self.scroll_to = Some(self.view.0 + pages as f32 * 0.9 * self.view.1);
        }
    }

    fn controls(&mut self, ui: &mut Ui, world: &mut World) {
        // Where there is little height, the controls take one row and scroll in it.
        if ui.available_height() < SMALL {
            ScrollArea::horizontal()
                .id_salt("controls")
                .show(ui, |ui| ui.horizontal(|ui| self.choices(ui, world)));
        } else {
            ui.horizontal_wrapped(|ui| self.choices(ui, world));
        }
    }

    fn choices(&mut self, ui: &mut Ui, world: &mut World) {
        ComboBox::from_label("value")
            .selected_text(self.value.text())
            .show_ui(ui, |ui| {
                for value in Value::ALL {
                    ui.selectable_value(&mut self.value, value, value.text())
                        .on_hover_text(value.meaning());
                }
            });
        ComboBox::from_label("by")
            .selected_text(self.granularity.text())
            .show_ui(ui, |ui| {
                for granularity in Granularity::ALL {
                    ui.selectable_value(&mut self.granularity, granularity, granularity.text());
                }
            });
        let beside = self
            .sibling
            .map_or("nothing".into(), |member| format!("rollout {member}"));
        ComboBox::from_label("beside it")
            .selected_text(beside)
            .show_ui(ui, |ui| {
                ui.selectable_value(&mut self.sibling, None, "nothing");
                for id in world
                    .shown_members()
                    .iter()
                    .filter(|id| **id != world.selection.id)
                {
                    let text = format!("rollout {}", id.member);
                    ui.selectable_value(&mut self.sibling, Some(id.member), text);
                }
            });
        let mut locked = self.locked.is_some();
        if ui.checkbox(&mut locked, "lock range").changed() {
            world.todo.push(Command::LockRange);
        }
        ui.checkbox(&mut world.patterns, "patterns only");
        if let Some(cache) = &self.cache {
            legend(ui, world.theme.of(ui.ctx()), cache.limit);
        }
    }

    /// Lays out what is selected, if that has changed.
    fn prepare(&mut self, ui: &Ui, world: &mut World) -> Result<(), String> {
        let id = world.selection.id;
        if world.before_credit() {
            return Err("At this event the credit of this rollout was not known yet. End goes to the end of the record.".into());
        }
        let sibling = self
            .sibling
            .filter(|member| *member != id.member)
            .map(|member| TrajectoryId { member, ..id });
        let font = font(ui);
        let current = world.current;
        let Some(run) = world.run_mut() else {
            return Err("No run is open.".into());
        };
        let wanted = Wanted {
            run: current,
            stamp: run.stamp(id.purpose, id.step, Some(id.group)),
            id,
            sibling,
            value: self.value,
            granularity: self.granularity,
            width: (ui.available_width() - WIDTH - 30.0).floor(),
            glyph: ui.fonts_mut(|fonts| fonts.glyph_width(&font, 'm')),
            locked: self.locked,
        };
        if self
            .cache
            .as_ref()
            .is_some_and(|cache| cache.made == wanted)
        {
            return Ok(());
        }
        self.cache = Some(lay(ui, run, wanted, &mut self.limit, &font)?);
        self.made += 1;
        Ok(())
    }

    fn rows(&mut self, ui: &mut Ui, world: &mut World) {
        let Some(cache) = &self.cache else { return };
        let colours = world.theme.of(ui.ctx()).clone();
        let mut area = ui.available_rect_before_wrap();
        let token = world.selection.token.or(world.hovered);
        if !world.details_shown {
            // Room of its own, so that nothing moves when the pointer comes upon a token.
            let numbers = area.with_min_y((area.bottom() - NUMBERS).max(area.top()));
            area.max.y = numbers.top();
            ui.scope_builder(UiBuilder::new().max_rect(numbers), |ui| {
                ScrollArea::vertical().id_salt("numbers").show(ui, |ui| {
                    let text = token.map_or_else(
                        || {
                            "Numbers of a token: point at it, or pin it with ] and the arrows."
                                .into()
                        },
                        |token| token_line(&cache.left.document, token),
                    );
                    ui.label(RichText::new(text).size(12.0));
                });
            });
        }
        // No taller than the lines it stands for.
        let end = area
            .bottom()
            .min(area.top() + cache.rows.len() as f32 * ROW);
        let corner = pos2(area.right() - WIDTH, area.top());
        let strip = Rect::from_min_max(corner, pos2(area.right(), end));
        let body = Rect::from_min_max(area.min, pos2(strip.left() - 4.0, area.bottom()));
        let height = cache.rows.len() as f32 * ROW;
        let mut scroll = ScrollArea::vertical().id_salt("tokens").auto_shrink(false);
        if let Some(y) = self.scroll_to.take() {
            scroll = scroll.vertical_scroll_offset(y.clamp(0.0, (height - body.height()).max(0.0)));
        }
        let mut chosen: Option<(TrajectoryId, usize)> = None;
        let mut moved = None;
        let mut hovered = None;
        let clip = world
            .run()
            .and_then(|run| run.experiment.as_ref())
            .map_or((0.2, 0.2), |of| (of.learner.clip_low, of.learner.clip_high));
        let marked = (world.hovered, world.selection.token);
        let (patterns, turn) = (world.patterns, world.selection.turn);
        let focus = self.focus.take();
        let builder = UiBuilder::new().max_rect(body);
        let output = ui.scope_builder(builder, |ui| {
            scroll.show_viewport(ui, |ui, seen| {
                ui.set_height(height);
                ui.set_width(ui.available_width());
                let origin = ui.max_rect().min;
                let from = (seen.top() / ROW).floor().max(0.0) as usize;
                let to = ((seen.bottom() / ROW).ceil() as usize).min(cache.rows.len());
                for row in from..to {
                    let y = origin.y + row as f32 * ROW;
                    for (column, laid) in
                        [Some(&cache.left), cache.right.as_ref()].iter().enumerate()
                    {
                        let (Some(laid), Some(line)) =
                            (laid, cache.rows.get(row).and_then(|lines| lines[column]))
                        else {
                            continue;
                        };
                        let painting = Painting {
                            document: &laid.document,
                            layout: &laid.layout,
                            values: &laid.values,
                            value: self.value,
                            limit: cache.limit,
                            colours: &colours,
                            patterns,
                            font: font(ui),
                            clip,
                            marked: if column == 0 { marked } else { (None, None) },
                        };
                        let segment = laid.layout.lines.get(line).map_or(0, |line| line.segment);
                        let of = laid.document.segments.get(segment);
                        let x = origin.x + column as f32 * (cache.margin + cache.room + 8.0);
                        let place = Place {
                            at: pos2(x, y),
                            margin: cache.margin,
                            room: cache.room,
                            heading: laid.headings.get(segment).map_or("", String::as_str),
                            selected: column == 0 && of.is_some_and(|of| of.turn == turn),
                            focus: column == 0 && focus == Some(line),
                        };
                        let found = one_line(ui, &painting, line, &place);
                        if column == 0 {
                            hovered = found.hovered.or(hovered);
                            moved = found.moved.or(moved);
                        }
                        if let Some(token) = found.clicked {
                            chosen = Some((laid.document.id, token));
                        }
                    }
                }
            })
        });
        let offset = output.inner.state.clamped_offset().y;
        self.view = (offset, body.height());
        let source = Source {
            document: &cache.left.document,
            lines: &cache.rows,
            layout: &cache.left.layout,
            values: &cache.left.values,
            limit: cache.limit,
            key: self.made * 2 + u64::from(ui.visuals().dark_mode),
        };
        let total = height.max(1.0);
        let view = (offset / total, (offset + body.height()) / total);
        if let Some(share) = self.minimap.show(ui, strip, &source, &colours, view) {
            self.scroll_to = Some(share * total - body.height() / 6.0);
            ui.ctx().request_repaint();
        }
        world.hovered = hovered;
        if let Some((id, token)) = chosen {
            if id != world.selection.id {
                world.selection.id = id;
            }
            pin(world, &cache.left.document, Some(token));
        }
        if let Some(token) = moved {
            pin(world, &cache.left.document, Some(token));
            let line = cache.left.layout.line_of(token);
            self.focus = line;
            let row = cache.rows.iter().position(|row| row[0] == line);
            let top = row.map_or(offset, |row| row as f32 * ROW);
            if top < offset {
                self.scroll_to = Some(top);
            } else if top + ROW > offset + body.height() {
                self.scroll_to = Some(top + ROW - body.height());
            }
            ui.ctx().request_repaint();
        }
        if chosen.is_some() || moved.is_some() {
            // What was reached in this panel is in view already.
            self.pinned = world.selection.token;
            self.turn = Some((world.selection.id, world.selection.turn));
        }
    }
}

/// The first token that a turn wrote; of a turn that wrote none, its first.
fn first_of(document: &Document, turn: u32) -> Option<usize> {
    let of = || document.segments.iter().filter(|of| of.turn == turn);
    let wrote = of().find(|of| of.kind != SegmentKind::Context);
    wrote.or(of().next()).map(|of| of.tokens.start)
}

/// Pins a token, and with it its turn; a pinned one is let go.
fn pin(world: &mut World, document: &Document, token: Option<usize>) {
    if token.is_some() && world.selection.token == token {
        world.selection.token = None;
        return;
    }
    world.selection.token = token;
    let segment = token.and_then(|token| document.segment_of(token));
    if let Some(segment) = segment.and_then(|at| document.segments.get(at)) {
        world.selection.turn = segment.turn;
    }
}

fn font(ui: &Ui) -> FontId {
    eframe::egui::TextStyle::Monospace.resolve(ui.style())
}

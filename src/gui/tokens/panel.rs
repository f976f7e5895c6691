//! The Tokens panel: controls, the rows on the screen, the minimap.

use std::sync::Arc;

use eframe::egui::{ComboBox, FontId, Rect, ScrollArea, Ui, pos2};

use super::document::Document;
use super::layout::{Layout, rows};
use super::legend::{audit, legend};
use super::line::{MARGIN, one_line};
use super::minimap::{Minimap, Source, WIDTH};
use super::paint::{Painting, ROW};
use super::value::{Granularity, Value, shown_values, token_limit};
use crate::gui::Command;
use crate::gui::world::World;
use crate::trajectory::TrajectoryId;

/// A document that is laid out and has its values.
struct Laid {
    document: Arc<Document>,
    layout: Layout,
    values: Vec<f32>,
}

/// What the laid out documents were made from.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Made {
    run: usize,
    revision: u64,
    id: TrajectoryId,
    sibling: Option<TrajectoryId>,
    value: Value,
    granularity: Granularity,
    room: f32,
    glyph: f32,
    locked: Option<f32>,
}

/// Everything that is worked out once, and not once a frame.
struct Cache {
    made: Made,
    left: Laid,
    right: Option<Laid>,
    rows: Vec<[Option<usize>; 2]>,
    limit: f32,
    audit: String,
    key: u64,
}

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
    made: u64,
    minimap: Minimap,
    scroll_to: Option<f32>,
    pinned: Option<usize>,
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
        self.controls(ui, world);
        if let Err(why) = self.prepare(ui, world) {
            self.cache = None;
            ui.add_space(20.0);
            ui.vertical_centered(|ui| ui.label(why));
            return;
        }
        let Some(cache) = &self.cache else { return };
        ui.label(&cache.audit);
        ui.separator();
        if world.selection.token != self.pinned {
            self.pinned = world.selection.token;
            let line = self
                .pinned
                .and_then(|token| cache.left.layout.line_of(token));
            let row = line.and_then(|line| cache.rows.iter().position(|row| row[0] == Some(line)));
            self.scroll_to = row.map(|row| row as f32 * ROW);
        }
        self.rows(ui, world);
    }

    fn controls(&mut self, ui: &mut Ui, world: &mut World) {
        ui.horizontal_wrapped(|ui| {
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
        });
    }

    /// Lays out what is selected, if that has changed.
    fn prepare(&mut self, ui: &Ui, world: &mut World) -> Result<(), String> {
        let id = world.selection.id;
        let sibling = self
            .sibling
            .filter(|member| *member != id.member)
            .map(|member| TrajectoryId { member, ..id });
        let font = font(ui);
        let glyph = ui.fonts_mut(|fonts| fonts.glyph_width(&font, 'm'));
        let columns = if sibling.is_some() { 2.0 } else { 1.0 };
        let room = ((ui.available_width() - WIDTH - 30.0) / columns - MARGIN)
            .max(80.0)
            .floor();
        let current = world.current;
        let Some(run) = world.run_mut() else {
            return Err("No run is open.".into());
        };
        let made = Made {
            run: current,
            revision: run.revision,
            id,
            sibling,
            value: self.value,
            granularity: self.granularity,
            room,
            glyph,
            locked: self.locked,
        };
        if self.cache.as_ref().is_some_and(|cache| cache.made == made) {
            return Ok(());
        }
        let document = run.document(id)?;
        if !self.value.known(&document) {
            return Err(format!(
                "This run does not record the {} of its tokens: it was written by an earlier version. Choose another value.",
                self.value.text()
            ));
        }
        let right = sibling.and_then(|id| run.document(id).ok());
        // One scale for the whole group, so that its rollouts can be compared.
        let limit = match self.locked {
            Some(limit) => limit,
            None => {
                let group = run.members(id.purpose, id.step, Some(id.group));
                let of: Vec<Arc<Document>> = group
                    .iter()
                    .take(16)
                    .filter_map(|id| run.document(*id).ok())
                    .collect();
                token_limit(of.iter().map(Arc::as_ref), self.value)
            }
        };
        let lay = |document: Arc<Document>| {
            let layout = Layout::new(&document, room, |letter| {
                ui.fonts_mut(|fonts| fonts.glyph_width(&font, letter))
            });
            let values = shown_values(&document, self.value, self.granularity);
            Laid {
                document,
                layout,
                values,
            }
        };
        let left = lay(document);
        let right = right.map(lay);
        let beside = right
            .as_ref()
            .map(|laid| (laid.document.as_ref(), &laid.layout));
        let rows = rows((&left.document, &left.layout), beside);
        self.made += 1;
        self.cache = Some(Cache {
            audit: audit(&left.document),
            made,
            left,
            right,
            rows,
            limit,
            key: self.made,
        });
        Ok(())
    }

    fn rows(&mut self, ui: &mut Ui, world: &mut World) {
        let Some(cache) = &self.cache else { return };
        let colours = world.theme.of(ui.ctx()).clone();
        let area = ui.available_rect_before_wrap();
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
            scroll = scroll.vertical_scroll_offset((y - body.height() / 3.0).max(0.0));
        }
        let mut chosen: Option<(TrajectoryId, Option<usize>)> = None;
        let mut hovered = None;
        let builder = eframe::egui::UiBuilder::new().max_rect(body);
        let clip = world
            .run()
            .and_then(|run| run.experiment.as_ref())
            .map_or((0.2, 0.2), |of| (of.learner.clip_low, of.learner.clip_high));
        let marked = (world.hovered, world.selection.token);
        let patterns = world.patterns;
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
                        let x = origin.x + column as f32 * (MARGIN + cache.made.room + 8.0);
                        let found = one_line(ui, &painting, line, pos2(x, y), cache.made.room);
                        if column == 0 {
                            hovered = found.hovered.or(hovered);
                        }
                        if let Some(token) = found.clicked {
                            chosen = Some((laid.document.id, Some(token)));
                        }
                    }
                }
            })
        });
        let state = output.inner.state;
        let source = Source {
            document: &cache.left.document,
            lines: &cache.rows,
            layout: &cache.left.layout,
            values: &cache.left.values,
            limit: cache.limit,
            key: cache.key * 2 + u64::from(ui.visuals().dark_mode),
        };
        let total = height.max(1.0);
        let view = (
            state.clamped_offset().y / total,
            (state.clamped_offset().y + body.height()) / total,
        );
        if let Some(share) = self.minimap.show(ui, strip, &source, &colours, view) {
            self.scroll_to = Some(share * total - body.height() / 6.0);
            ui.ctx().request_repaint();
        }
        world.hovered = hovered;
        if let Some((id, token)) = chosen {
            if id != world.selection.id {
                world.selection.id = id;
            }
            pin(world, &cache.left.document, token);
            self.pinned = world.selection.token;
        }
    }
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

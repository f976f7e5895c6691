//! The window as a whole: takes news in, does commands, and draws bars, sides and the shown panel.

use std::time::Duration;

use eframe::egui::{CentralPanel, Context, Panel, ThemePreference, Ui};

use super::curves::CurvesPanel;
use super::dialogs::Dialogs;
use super::keys::Reach;
use super::lesson::LessonPanel;
use super::memory::MemoryPanel;
use super::run::{Health, Run};
use super::side::{self, Side};
use super::tokens::TokensPanel;
use super::watch::WatchPanel;
use super::whatif::WhatIfPanel;
use super::world::{Tab, World};
use super::{Command, Cursor, GuiError, bars};

/// Below this width, points, the details make room for the panel.
pub(super) const WIDE: f32 = 1000.0;
/// Below this width the list of groups does, too.
const NARROW: f32 = 620.0;
/// Between two events of a record that is played.
const PLAY: Duration = Duration::from_millis(120);

/// The panels, each with what it alone remembers.
#[derive(Default)]
pub struct Panels {
    pub(super) watch: WatchPanel,
    pub(super) tokens: TokensPanel,
    pub(super) memory: MemoryPanel,
    pub(super) curves: CurvesPanel,
    pub(super) lesson: LessonPanel,
    pub(super) whatif: WhatIfPanel,
    pub(super) side: Side,
    pub(super) dialogs: Dialogs,
}

/// The window.
pub struct Window {
    /// What all panels share.
    pub world: World,
    /// The panels.
    pub panels: Panels,
    pub(super) preference: ThemePreference,
    pub(super) full_screen: bool,
    /// Width of the last frame, points.
    pub(super) width: f32,
    played_at: f64,
}

impl Window {
    /// An empty window.
    ///
    /// # Errors
    /// A file inside the program is wrong.
    pub fn new(context: &Context, preference: ThemePreference) -> Result<Self, GuiError> {
        let world = World::new(context)?;
        world.theme.apply(context, preference);
        // Larger and smaller are commands of ours, so that they stand in the palette.
        context.options_mut(|options| options.zoom_with_keyboard = false);
        Ok(Self {
            world,
            panels: Panels::default(),
            preference,
            full_screen: false,
            width: WIDE,
            played_at: 0.0,
        })
    }

    /// Takes in what is new. Called before every frame, also while nothing is drawn.
    pub fn take_news(&mut self, context: &Context) {
        let new = self.world.take_news();
        // A long record arrives in parts: go on with it in the next frame.
        if new
            || self
                .world
                .runs
                .iter()
                .any(|run| run.health == Health::Loading)
        {
            context.request_repaint_after(Duration::from_millis(30));
        }
        let vocabulary = self
            .world
            .run()
            .map(|run| run.vocabulary.clone())
            .unwrap_or_default();
        let said = self
            .world
            .live
            .as_mut()
            .map(|live| live.update(&vocabulary));
        for text in said.unwrap_or_default() {
            self.world.say(text);
        }
        if !self.world.toasts.is_empty() {
            context.request_repaint_after(Duration::from_secs(1));
        }
        if self
            .world
            .live
            .as_ref()
            .is_some_and(|live| !live.over() && !live.paused())
        {
            // What is being written is looked at a few times a second: training needs the processor.
            context.request_repaint_after(Duration::from_millis(250));
        }
    }

    /// Draws a frame.
    pub fn show(&mut self, ui: &mut Ui) {
        let context = ui.ctx().clone();
        let step = |world: &World| (world.selection.id.purpose, world.selection.id.step);
        let before = (self.world.current, step(&self.world));
        self.width = ui.available_width();
        let reach = Reach {
            dialog: self.panels.dialogs.open_now(),
            lesson: self.world.tab == Tab::Lesson,
        };
        self.world.todo.extend(Command::pressed(&context, reach));
        self.play(&context);
        for command in std::mem::take(&mut self.world.todo) {
            self.run_command(command, &context);
        }
        let sides = self.sides();
        Panel::top("top").show(ui, |ui| bars::top(ui, &mut self.world, sides));
        Panel::bottom("timeline").show(ui, |ui| bars::timeline(ui, &mut self.world));
        let has_run = self.world.run().is_some() && self.world.tab != Tab::Lesson;
        let (groups, details) = sides;
        self.world.details_shown = details;
        if has_run && groups {
            Panel::left("groups")
                .default_size(215.0)
                .min_size(150.0)
                .show(ui, |ui| self.panels.side.left(ui, &mut self.world));
        }
        if has_run && details {
            Panel::right("details")
                .default_size(235.0)
                .min_size(160.0)
                .show(ui, |ui| side::right(ui, &mut self.world));
        }
        CentralPanel::default().show(ui, |ui| self.centre(ui));
        self.panels.dialogs.show(&context, &mut self.world);
        bars::toasts(&context, &self.world);
        // What no panel took is not to move the next one.
        self.world.pages = 0;
        // Whoever looks at another step does not want to be taken away from it.
        if self.world.current == before.0 {
            self.world.follow &= step(&self.world) == before.1;
        }
    }

    /// Whether the groups and the details are shown at the sides.
    pub(super) fn sides(&self) -> (bool, bool) {
        let sides = self.world.sides;
        (
            sides.groups.unwrap_or(self.width >= NARROW),
            sides.details.unwrap_or(self.width >= WIDE),
        )
    }

    fn centre(&mut self, ui: &mut Ui) {
        let world = &mut self.world;
        let panels = &mut self.panels;
        if world.tab == Tab::Lesson {
            panels.lesson.ui(ui, world);
            return;
        }
        let Some(run) = world.run() else {
            welcome(ui, world);
            return;
        };
        if let Health::Refused(why) = &run.health {
            let why = why.clone();
            refused(ui, world, &why);
            return;
        }
        if run.view.trajectories.is_empty() && world.tab != Tab::Curves {
            waiting(ui, run);
            return;
        }
        match world.tab {
            Tab::Watch => panels.watch.ui(ui, world),
            Tab::Tokens => panels.tokens.ui(ui, world),
            Tab::Memory => panels.memory.ui(ui, world),
            Tab::Curves => panels.curves.ui(ui, world),
            Tab::WhatIf => panels.whatif.ui(ui, world),
            Tab::Lesson => {}
        }
    }

    /// Moves the cursor on while the record is played.
    fn play(&mut self, context: &Context) {
        if !self.world.playing {
            return;
        }
        let now = context.input(|input| input.time);
        if now - self.played_at >= PLAY.as_secs_f64() {
            self.played_at = now;
            self.move_cursor(true);
            self.world.playing = self.world.cursor != Cursor::Live;
        }
        context.request_repaint_after(PLAY);
    }
}

/// What stands where no run is open.
fn welcome(ui: &mut Ui, world: &mut World) {
    ui.add_space(ui.available_height() / 5.0);
    ui.vertical_centered(|ui| {
        ui.heading("palimpsest");
        ui.label("No run is open.");
        ui.add_space(12.0);
        for command in [Command::OpenRun, Command::OpenLesson] {
            let text = format!("{}  ({})", command.text(), command.keys());
            if ui.button(text).on_hover_text(command.tooltip()).clicked() {
                world.todo.push(command);
            }
        }
        ui.add_space(12.0);
        ui.label(
            "Start one with a window: palimpsest --experiment experiments/quickstart.ron --gui",
        );
        ui.label("Drop a run folder here to open it.");
    });
    let dropped = ui.ctx().input(|input| input.raw.dropped_files.clone());
    for file in dropped {
        world.open(file.path());
    }
}

/// What stands where a folder could not be opened.
fn refused(ui: &mut Ui, world: &mut World, why: &str) {
    ui.add_space(ui.available_height() / 5.0);
    ui.vertical_centered(|ui| {
        ui.heading("This run cannot be opened");
        ui.label(why);
        ui.add_space(12.0);
        if ui.button("Copy the message").clicked() {
            ui.ctx().copy_text(why.to_owned());
        }
        let command = Command::OpenRun;
        if ui.button(command.text()).clicked() {
            world.todo.push(command);
        }
    });
}

/// What stands where a run has written nothing to show yet.
fn waiting(ui: &mut Ui, run: &Run) {
    ui.add_space(ui.available_height() / 5.0);
    ui.vertical_centered(|ui| {
        if run.health == Health::Loading {
            ui.heading("Loading");
            ui.label(format!("{:?}", run.path));
        } else {
            ui.heading("Nothing to show yet");
            let cold = run.view.cold_start_steps;
            if cold > 0 {
                ui.label(format!(
                    "{cold} steps of cold start, and no rollout so far: there are none before the first evaluation or the first step of RL. Curves (4) shows how the cold start went."
                ));
            } else {
                ui.label("The run has begun, and has written no trajectory yet. This fills as soon as it does.");
            }
        }
    });
}

impl eframe::App for Window {
    fn logic(&mut self, context: &Context, _frame: &mut eframe::Frame) {
        self.take_news(context);
    }

    fn ui(&mut self, ui: &mut Ui, _frame: &mut eframe::Frame) {
        self.show(ui);
    }
}

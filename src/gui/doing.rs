//! What every command does.

use eframe::egui::{self, Context, ThemePreference};

use super::app::Window;
use super::selection::edits_notes;
use super::world::{Tab, World};
use super::{Command, Cursor};

impl Window {
    /// Moves the cursor to the next event of a trajectory, or to the one before.
    pub(super) fn move_cursor(&mut self, forward: bool) {
        let world = &mut self.world;
        let Some(run) = world.runs.get(world.current) else {
            return;
        };
        let here = world.cursor.event().unwrap_or(run.timeline.last + 1);
        match run.timeline.neighbour(here, forward) {
            Some((seq, id)) => {
                world.cursor = Cursor::At(seq);
                // The cursor takes the eye along to where something happened.
                if id.step != world.selection.id.step
                    || id.purpose != world.selection.id.purpose
                    || id.group != world.selection.id.group
                {
                    world.selection = super::Selection::of(id);
                }
            }
            None if forward => world.cursor = Cursor::Live,
            None => {}
        }
    }

    /// Does a command.
    pub(super) fn run_command(&mut self, command: Command, context: &Context) {
        let world = &mut self.world;
        if world.tab == Tab::Lesson {
            // In a lesson the arrows walk its stations.
            match command {
                Command::PreviousEvent | Command::PreviousTrajectory => {
                    return self.panels.lesson.walk(false);
                }
                Command::NextEvent | Command::NextTrajectory => {
                    return self.panels.lesson.walk(true);
                }
                _ => {}
            }
        }
        match command {
            Command::Show(tab) => world.tab = tab,
            Command::PreviousEvent => self.move_cursor(false),
            Command::NextEvent => self.move_cursor(true),
            Command::PlayPause => self.play_pause(),
            Command::StepOnce => match &world.live {
                Some(live) if !live.over() => live.step(world.selection.id),
                _ => self.move_cursor(true),
            },
            Command::StopRun => match &world.live {
                Some(live) if !live.over() => {
                    live.interrupts.request();
                    world.say("The run ends at its next safe point; go on later with --resume");
                }
                _ => {
                    world
                        .say("No run is being trained by this window, so there is nothing to stop");
                }
            },
            Command::First | Command::Follow => self.ends(command == Command::First),
            Command::TogglePatterns => world.patterns = !world.patterns,
            Command::ClearFilter => world.filter = None,
            Command::NextRun => world.show_run((world.current + 1) % world.runs.len().max(1)),
            Command::ScrollBack => world.pages -= 1,
            Command::ScrollOn => world.pages += 1,
            Command::ToggleGroups | Command::ToggleDetails => self.toggle_side(command),
            Command::NextTrouble => self.panels.side.next_trouble(world, context),
            Command::WithoutNotes => without_notes(world),
            Command::ToggleBands | Command::ToggleLog => self.panels.curves.command(command),
            Command::CloseRun => world.close_run(),
            Command::ToggleTheme => {
                self.preference = match context.theme() {
                    egui::Theme::Dark => ThemePreference::Light,
                    egui::Theme::Light => ThemePreference::Dark,
                };
                context.set_theme(self.preference);
            }
            Command::ZoomIn | Command::ZoomOut | Command::ZoomReset => zoom(context, command),
            Command::FullScreen => {
                self.full_screen = !self.full_screen;
                context.send_viewport_cmd(egui::ViewportCommand::Fullscreen(self.full_screen));
            }
            Command::Quit => context.send_viewport_cmd(egui::ViewportCommand::Close),
            Command::Palette
            | Command::Keys
            | Command::OpenRun
            | Command::OpenLesson
            | Command::Fork => {
                self.panels.dialogs.open(command, world);
            }
            Command::Export => super::export::panel(&mut self.panels, world, context),
            Command::CopyTable => match super::export::table(&mut self.panels, world) {
                Ok((_, csv)) => {
                    context.copy_text(csv);
                    world.say("Copied as CSV");
                }
                Err(why) => world.say(why),
            },
            Command::ResetLesson => {
                self.panels.lesson.reset();
                self.panels.whatif.reset();
            }
            Command::AnotherGroup | Command::KeepBeside | Command::SwapBeside
                if world.tab != Tab::Lesson =>
            {
                world.say("That is for the Lesson panel");
            }
            Command::AnotherGroup => self.panels.lesson.next_group(),
            Command::SwapBeside => self.panels.lesson.swap(),
            Command::KeepBeside => {
                if let Err(why) = self.panels.lesson.keep() {
                    world.say(why);
                }
            }
            Command::PreviousStep
            | Command::NextStep
            | Command::PreviousTurn
            | Command::NextTurn
            | Command::PreviousTrajectory
            | Command::NextTrajectory
            | Command::PreviousGroup
            | Command::NextGroup
            | Command::PreviousNoteEdit
            | Command::NextNoteEdit
            | Command::NextToolCall => self.select(command),
            Command::PreviousExtreme
            | Command::NextExtreme
            | Command::CycleValue
            | Command::CycleGranularity
            | Command::ToggleDifference
            | Command::LockRange => self.panels.tokens.command(command, world),
        }
    }

    /// Opens what is closed and closes what is open. Where there is room for one, the other closes.
    fn toggle_side(&mut self, command: Command) {
        let (groups, details) = self.sides();
        let narrow = self.width < super::app::WIDE;
        let sides = &mut self.world.sides;
        if command == Command::ToggleGroups {
            sides.groups = Some(!groups);
            sides.details = sides.details.filter(|_| groups || !narrow);
        } else {
            sides.details = Some(!details);
            if narrow {
                sides.groups = if details { None } else { Some(false) };
            }
        }
    }

    fn play_pause(&mut self) {
        let world = &mut self.world;
        if let Some(live) = world.live.as_ref().filter(|live| !live.over()) {
            live.toggle();
            return;
        }
        world.playing = !world.playing;
        if world.playing && world.cursor == Cursor::Live {
            self.ends(true);
        }
    }

    /// The cursor to the first event of the step, or to the end.
    fn ends(&mut self, first: bool) {
        let world = &mut self.world;
        world.cursor = Cursor::Live;
        world.follow = !first;
        let id = world.selection.id;
        if first
            && let Some(run) = world.runs.get(world.current)
            && let Some(seq) = run.timeline.first_of(id.purpose, id.step)
        {
            world.cursor = Cursor::At(seq);
        }
    }

    fn select(&mut self, command: Command) {
        let world = &mut self.world;
        let shown = world.shown_members();
        let passing = world.passing(None);
        let Some(run) = world.runs.get(world.current) else {
            return;
        };
        let selection = &mut world.selection;
        let before = selection.turn;
        match command {
            Command::PreviousStep => selection.step_by(run, false),
            Command::NextStep => selection.step_by(run, true),
            Command::PreviousTrajectory => selection.move_in(&shown, false),
            Command::NextTrajectory => selection.move_in(&shown, true),
            Command::PreviousGroup => selection.group_by(&passing, false),
            Command::NextGroup => selection.group_by(&passing, true),
            Command::PreviousTurn => selection.turn_by(run, false, |_, _| true),
            Command::NextTurn => selection.turn_by(run, true, |_, _| true),
            Command::PreviousNoteEdit => selection.turn_by(run, false, edits_notes),
            Command::NextNoteEdit => selection.turn_by(run, true, edits_notes),
            Command::NextToolCall => selection.turn_by(run, true, |of, turn| {
                of.turns.get(turn).is_some_and(|turn| turn.tool.is_some())
            }),
            _ => {}
        }
        // A turn that the cursor has not reached yet takes the cursor along.
        if selection.turn != before
            && let Cursor::At(seq) = world.cursor
            && let Some(at) = run.timeline.turn_at(selection.id, selection.turn as usize)
        {
            world.cursor = Cursor::At(seq.max(at));
        }
    }
}

/// Has the engine score the answer after the notes of the selected turn, and after none.
fn without_notes(world: &mut World) {
    let asked = match (&world.live, world.trajectory()) {
        (None, _) => Err("This needs an engine: start the run with --gui, and pause it".into()),
        (_, None) => Err("Select a rollout first".into()),
        (Some(live), Some(of)) => live.ask_without_notes(of, world.selection.turn),
    };
    match asked {
        Ok(()) => world.say("The engine scores the answer without these notes"),
        Err(why) => world.say(why),
    }
}

fn zoom(context: &Context, command: Command) {
    let now = context.zoom_factor();
    let then = match command {
        Command::ZoomIn => now + 0.1,
        Command::ZoomOut => now - 0.1,
        _ => 1.0,
    };
    context.set_zoom_factor(then.clamp(0.5, 3.0));
}

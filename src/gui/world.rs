//! What all panels share: the open runs, the one selection, the one cursor, and what is to be done.

use std::borrow::Cow;
use std::path::Path;
use std::time::{Duration, Instant};

use eframe::egui::Context;

use super::live::Live;
use super::run::{Health, Run};
use super::theme::Theme;
use super::{Command, Cursor, GuiError, Selection};
use crate::record::TrajectoryView;
use crate::trajectory::TrajectoryId;

/// How long a short message stays.
const TOAST: Duration = Duration::from_secs(8);

/// The panels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tab {
    /// Groups and trajectories.
    #[default]
    Watch,
    /// Tokens and their weights.
    Tokens,
    /// Notes turn by turn.
    Memory,
    /// Metrics.
    Curves,
    /// Credit assignment step by step.
    Lesson,
    /// The run under other credit settings.
    WhatIf,
}

impl Tab {
    /// Every tab, from the left.
    pub const ALL: [Self; 6] = [
        Self::Watch,
        Self::Tokens,
        Self::Memory,
        Self::Curves,
        Self::Lesson,
        Self::WhatIf,
    ];

    /// Its name.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Watch => "Watch",
            Self::Tokens => "Tokens",
            Self::Memory => "Memory",
            Self::Curves => "Curves",
            Self::Lesson => "Lesson",
            Self::WhatIf => "What-if",
        }
    }

    /// The tab of a name on the command line.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let plain = |text: &str| text.to_lowercase().replace('-', "");
        Self::ALL
            .into_iter()
            .find(|tab| plain(tab.text()) == plain(name))
    }
}

/// A short message.
#[derive(Clone, Debug)]
pub struct Toast {
    /// What it says.
    pub text: String,
    /// When it came.
    pub at: Instant,
}

/// The panels at the sides: open or not by what was chosen, else by the width of the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sides {
    /// Groups, histogram and Trouble, at the left.
    pub groups: Option<bool>,
    /// Details, at the right.
    pub details: Option<bool>,
}

/// What all panels share.
pub struct World {
    /// The open runs; runs to compare follow the first.
    pub runs: Vec<Run>,
    /// The run that is shown.
    pub current: usize,
    /// What is looked at.
    pub selection: Selection,
    /// Up to which event.
    pub cursor: Cursor,
    /// Whether a run that goes on takes the selection along to its newest step.
    pub follow: bool,
    /// Whether the record is being played.
    pub playing: bool,
    /// The tab that is shown.
    pub tab: Tab,
    /// Only trajectories whose reward lies in this range are listed.
    pub filter: Option<(f32, f32)>,
    /// Signs as patterns, without colours.
    pub patterns: bool,
    /// The token under the pointer.
    pub hovered: Option<usize>,
    /// Colours.
    pub theme: Theme,
    /// Commands that panels asked for.
    pub todo: Vec<Command>,
    /// Which of the panels at the sides are open, where somebody chose.
    pub sides: Sides,
    /// Whether the details are on the screen, so that a panel need not say what they say.
    pub details_shown: bool,
    /// Screens that the shown panel is to scroll, down if positive.
    pub pages: i32,
    /// Short messages.
    pub toasts: Vec<Toast>,
    /// A rollout to select as soon as the record holds it.
    pub wanted: Option<TrajectoryId>,
    /// The lesson to open: its name, or empty for the run that is shown.
    pub lesson: Option<String>,
    /// The run that this process trains, if it does.
    pub live: Option<Live>,
    context: Context,
}

impl World {
    /// A world without runs.
    ///
    /// # Errors
    /// A file inside the program is wrong.
    pub fn new(context: &Context) -> Result<Self, GuiError> {
        Ok(Self {
            runs: Vec::new(),
            current: 0,
            selection: Selection::default(),
            cursor: Cursor::Live,
            follow: true,
            playing: false,
            tab: Tab::Watch,
            filter: None,
            patterns: false,
            hovered: None,
            theme: Theme::shipped()?,
            todo: Vec::new(),
            sides: Sides::default(),
            details_shown: true,
            pages: 0,
            toasts: Vec::new(),
            wanted: None,
            lesson: None,
            live: None,
            context: context.clone(),
        })
    }

    /// Opens a run folder and shows it; one that is open already is only shown.
    pub fn open(&mut self, path: &Path) {
        let known = self.runs.iter().position(|run| run.path == path);
        let number = known.unwrap_or_else(|| {
            self.runs.push(Run::open(path, &self.context));
            self.runs.len() - 1
        });
        self.show_run(number);
    }

    /// Shows another of the open runs. Events and rollouts of the one before mean nothing in it.
    pub fn show_run(&mut self, number: usize) {
        self.current = number;
        self.selection = Selection::default();
        self.cursor = Cursor::Live;
        self.playing = false;
        self.follow = true;
        self.filter = None;
    }

    /// Closes the run that is shown.
    pub fn close_run(&mut self) {
        if self.current < self.runs.len() {
            self.runs.remove(self.current);
            self.show_run(self.current.min(self.runs.len().saturating_sub(1)));
        }
    }

    /// The run that is shown.
    #[must_use]
    pub fn run(&self) -> Option<&Run> {
        self.runs.get(self.current)
    }

    /// The run that is shown, to read more of it.
    pub fn run_mut(&mut self) -> Option<&mut Run> {
        self.runs.get_mut(self.current)
    }

    /// The selected trajectory, whole.
    #[must_use]
    pub fn trajectory(&self) -> Option<&TrajectoryView> {
        self.selection.trajectory(self.run()?)
    }

    /// The selected trajectory as it stood at the cursor.
    #[must_use]
    pub fn seen(&self) -> Option<Cow<'_, TrajectoryView>> {
        self.run()?.seen(self.selection.id, self.cursor)
    }

    /// Whether the credit of the selected trajectory lies after the cursor.
    #[must_use]
    pub fn before_credit(&self) -> bool {
        let whole = self
            .trajectory()
            .is_some_and(|of| of.outcome_advantage.is_some());
        whole && self.seen().is_some_and(|of| of.outcome_advantage.is_none())
    }

    /// Takes news of all runs in, and drops old messages. Says whether something was new.
    pub fn take_news(&mut self) -> bool {
        let mut any = false;
        let mut lost = Vec::new();
        let mut said = Vec::new();
        for (number, run) in self.runs.iter_mut().enumerate() {
            let before = run.health.clone();
            any |= run.take_news();
            said.append(&mut run.said);
            // What was chosen from a part of the record need not be the best of all of it.
            let loaded = before == Health::Loading && run.health == Health::UpToDate;
            if loaded && number == self.current && self.follow {
                self.selection = Selection::default();
            }
            if run.health != before
                && let Health::Lost(why) | Health::Refused(why) = &run.health
            {
                lost.push(why.clone());
            }
        }
        for text in lost.into_iter().chain(said) {
            self.say(text);
        }
        self.toasts.retain(|toast| toast.at.elapsed() < TOAST);
        // While a record is read, also anew, what was chosen may be still to come.
        let reading = self.run().is_some_and(|run| run.health == Health::Loading);
        if reading && self.selection.is_chosen() {
            return any;
        }
        if let Some(run) = self.runs.get(self.current) {
            if any && self.follow && self.cursor == Cursor::Live {
                self.selection.go_along(run);
            }
            if let Some(at) = self
                .wanted
                .filter(|at| run.view.trajectories.contains_key(at))
            {
                self.selection = Selection::of(at);
                self.follow = false;
                self.wanted = None;
            }
            self.selection.settle(run);
        }
        any
    }

    /// Shows a short message.
    pub fn say(&mut self, text: impl Into<String>) {
        self.toasts.push(Toast {
            text: text.into(),
            at: Instant::now(),
        });
    }

    /// The rollouts of the selected step and group that pass the filter.
    #[must_use]
    pub fn shown_members(&self) -> Vec<TrajectoryId> {
        self.passing(Some(self.selection.id.group))
    }

    /// The rollouts of the selected step, or of a group of it, that pass the filter. What has no reward
    /// yet passes.
    #[must_use]
    pub fn passing(&self, group: Option<u32>) -> Vec<TrajectoryId> {
        let Some(run) = self.run() else {
            return Vec::new();
        };
        let id = self.selection.id;
        let mut shown = run.members(id.purpose, id.step, group);
        if let Some((from, to)) = self.filter {
            shown.retain(|id| {
                let reward = run.reward_at(*id, self.cursor);
                reward.is_none_or(|reward| from <= reward && reward <= to)
            });
        }
        shown
    }

    /// Sets the filter, and goes to a rollout that passes it if the selected one does not.
    pub fn set_filter(&mut self, filter: Option<(f32, f32)>) {
        self.filter = filter;
        let passing = self.passing(None);
        if !passing.contains(&self.selection.id)
            && let Some(first) = passing.first()
        {
            self.selection = Selection::of(*first);
        }
    }
}

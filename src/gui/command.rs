//! Everything that can be done, in one enum: menus, palette, keys and help are made from it.

use eframe::egui::{Key, KeyboardShortcut, ModifierNames, Modifiers};

use super::Tab;

/// Something that the user can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Command {
    /// Pause or go on: a live run, or the playing of a record.
    PlayPause,
    /// Do one step of what is paused.
    StepOnce,
    /// End a live run at the next safe point.
    StopRun,
    /// Cursor one event back.
    PreviousEvent,
    /// Cursor one event on.
    NextEvent,
    /// Cursor to the turn before.
    PreviousTurn,
    /// Cursor to the turn after.
    NextTurn,
    /// To the step before.
    PreviousStep,
    /// To the step after.
    NextStep,
    /// Cursor to the first event of the step.
    First,
    /// Cursor to the end, and stay there.
    Follow,
    /// The trajectory above.
    PreviousTrajectory,
    /// The trajectory below.
    NextTrajectory,
    /// The group before.
    PreviousGroup,
    /// The group after.
    NextGroup,
    /// Show a tab.
    Show(Tab),
    /// The next strongest token to the left.
    PreviousExtreme,
    /// The next strongest token to the right.
    NextExtreme,
    /// The next turn whose notes changed.
    NextNoteEdit,
    /// The last turn before whose notes changed.
    PreviousNoteEdit,
    /// The next tool call.
    NextToolCall,
    /// The next value to colour tokens by.
    CycleValue,
    /// Token, tag, turn.
    CycleGranularity,
    /// Show a sibling beside it, and how far the two differ.
    ToggleDifference,
    /// Keep the range of colours as it is.
    LockRange,
    /// Signs as patterns, without colours.
    TogglePatterns,
    /// Take the filter of rewards away.
    ClearFilter,
    /// A screen up in the shown panel.
    ScrollBack,
    /// A screen down in the shown panel.
    ScrollOn,
    /// Open or close the list of groups.
    ToggleGroups,
    /// Open or close the details.
    ToggleDetails,
    /// To the next thing that went wrong.
    NextTrouble,
    /// Have the engine score the selected turn's answer without its notes.
    WithoutNotes,
    /// Runs of one name as one line.
    ToggleBands,
    /// The vertical axes in powers of ten.
    ToggleLog,
    /// Fork the selected trajectory from a turn.
    Fork,
    /// Sliders back to the recorded settings.
    ResetLesson,
    /// The next group of a lesson.
    AnotherGroup,
    /// Keep the settings of a lesson beside what is moved next.
    KeepBeside,
    /// Change a lesson's settings and those that were kept.
    SwapBeside,
    /// Copy the table that is shown.
    CopyTable,
    /// The next run.
    NextRun,
    /// Open a run.
    OpenRun,
    /// Open a lesson.
    OpenLesson,
    /// Close the run that is shown.
    CloseRun,
    /// Save the shown panel as PNG and CSV.
    Export,
    /// All commands, by name.
    Palette,
    /// Keys on the screen.
    Keys,
    /// Light or dark.
    ToggleTheme,
    /// Larger.
    ZoomIn,
    /// Smaller.
    ZoomOut,
    /// Normal size.
    ZoomReset,
    /// Full screen.
    FullScreen,
    /// Close the window.
    Quit,
}

impl Command {
    /// Every command, in the order of the help.
    pub const ALL: [Self; 59] = [
        Self::PlayPause,
        Self::StepOnce,
        Self::StopRun,
        Self::PreviousEvent,
        Self::NextEvent,
        Self::PreviousTurn,
        Self::NextTurn,
        Self::PreviousStep,
        Self::NextStep,
        Self::First,
        Self::Follow,
        Self::PreviousTrajectory,
        Self::NextTrajectory,
        Self::PreviousGroup,
        Self::NextGroup,
        Self::Show(Tab::Watch),
        Self::Show(Tab::Tokens),
        Self::Show(Tab::Memory),
        Self::Show(Tab::Curves),
        Self::Show(Tab::Lesson),
        Self::PreviousExtreme,
        Self::NextExtreme,
        Self::PreviousNoteEdit,
        Self::NextNoteEdit,
        Self::NextToolCall,
        Self::CycleValue,
        Self::CycleGranularity,
        Self::ToggleDifference,
        Self::LockRange,
        Self::TogglePatterns,
        Self::ClearFilter,
        Self::ScrollBack,
        Self::ScrollOn,
        Self::ToggleGroups,
        Self::ToggleDetails,
        Self::NextTrouble,
        Self::WithoutNotes,
        Self::ToggleBands,
        Self::ToggleLog,
        Self::Fork,
        Self::ResetLesson,
        Self::AnotherGroup,
        Self::KeepBeside,
        Self::SwapBeside,
        Self::CopyTable,
        Self::NextRun,
        Self::OpenRun,
        Self::OpenLesson,
        Self::CloseRun,
        Self::Export,
        Self::Palette,
        Self::Keys,
        Self::ToggleTheme,
        Self::ZoomIn,
        Self::ZoomOut,
        Self::ZoomReset,
        Self::FullScreen,
        Self::Quit,
        Self::Show(Tab::WhatIf),
    ];

    /// Its name, what it does, and its keys.
    #[rustfmt::skip]
    fn entry(self) -> (&'static str, &'static str, Option<(Modifiers, Key)>) {
        const PLAIN: Modifiers = Modifiers::NONE;
        const SHIFT: Modifiers = Modifiers::SHIFT;
        const COMMAND: Modifiers = Modifiers::COMMAND;
        match self {
            Self::PlayPause => ("Pause or go on", "Pauses a live run at the end of its tick, or plays the record", Some((PLAIN, Key::Space))),
            Self::StepOnce => ("One step", "One tick; with a trajectory selected, until its state changes", Some((PLAIN, Key::Period))),
            Self::StopRun => ("Stop the run", "Ends the live run at the next safe point; it can be resumed", Some((COMMAND.plus(SHIFT), Key::S))),
            Self::PreviousEvent => ("Previous event", "Moves the cursor one event back", Some((PLAIN, Key::ArrowLeft))),
            Self::NextEvent => ("Next event", "Moves the cursor one event on", Some((PLAIN, Key::ArrowRight))),
            Self::PreviousTurn => ("Previous turn", "Selects the turn before", Some((SHIFT, Key::ArrowLeft))),
            Self::NextTurn => ("Next turn", "Selects the turn after", Some((SHIFT, Key::ArrowRight))),
            Self::PreviousStep => ("Previous step", "Shows the training step before", Some((COMMAND, Key::ArrowLeft))),
            Self::NextStep => ("Next step", "Shows the training step after", Some((COMMAND, Key::ArrowRight))),
            Self::First => ("First event", "Moves the cursor to the first event of the step", Some((PLAIN, Key::Home))),
            Self::Follow => ("Follow", "Moves the cursor to the end, and stays there", Some((PLAIN, Key::End))),
            Self::PreviousTrajectory => ("Previous trajectory", "Selects the rollout above", Some((PLAIN, Key::ArrowUp))),
            Self::NextTrajectory => ("Next trajectory", "Selects the rollout below", Some((PLAIN, Key::ArrowDown))),
            Self::PreviousGroup => ("Previous group", "Selects the question before", Some((PLAIN, Key::PageUp))),
            Self::NextGroup => ("Next group", "Selects the question after", Some((PLAIN, Key::PageDown))),
            Self::Show(Tab::Watch) => ("Show Watch", "Groups and trajectories", Some((PLAIN, Key::Num1))),
            Self::Show(Tab::Tokens) => ("Show Tokens", "What the learner gave every token", Some((PLAIN, Key::Num2))),
            Self::Show(Tab::Memory) => ("Show Memory", "The notes, turn by turn", Some((PLAIN, Key::Num3))),
            Self::Show(Tab::Curves) => ("Show Curves", "The metrics of the run", Some((PLAIN, Key::Num4))),
            Self::Show(Tab::Lesson) => ("Show Lesson", "Credit assignment, to be moved", Some((PLAIN, Key::Num5))),
            Self::Show(Tab::WhatIf) => ("Show What-if", "This run under other credit settings", Some((PLAIN, Key::Num6))),
            Self::PreviousExtreme => ("Previous extreme token", "Selects the next strongest token to the left", Some((PLAIN, Key::OpenBracket))),
            Self::NextExtreme => ("Next extreme token", "Selects the next strongest token to the right", Some((PLAIN, Key::CloseBracket))),
            Self::PreviousNoteEdit => ("Previous note edit", "Selects the last turn before that changed the notes", Some((SHIFT, Key::N))),
            Self::NextNoteEdit => ("Next note edit", "Selects the next turn that changed the notes", Some((PLAIN, Key::N))),
            Self::NextToolCall => ("Next tool call", "Selects the next turn that called a tool", Some((PLAIN, Key::T))),
            Self::CycleValue => ("Next value", "Colours the tokens by another number", Some((PLAIN, Key::V))),
            Self::CycleGranularity => ("Granularity", "Shows values by token, by tag or by turn", Some((PLAIN, Key::G))),
            Self::ToggleDifference => ("Difference to the sibling", "Shows a sibling beside this rollout, and how far their turns differ", Some((PLAIN, Key::D))),
            Self::LockRange => ("Lock the range", "Keeps the range of colours while you look at others", Some((PLAIN, Key::L))),
            Self::TogglePatterns => ("Patterns only", "Shows signs without colours", Some((PLAIN, Key::B))),
            Self::ClearFilter => ("Clear the filter", "Shows all trajectories again", Some((PLAIN, Key::F))),
            Self::ScrollBack => ("Scroll back", "Moves the panel one screen up", Some((SHIFT, Key::PageUp))),
            Self::ScrollOn => ("Scroll on", "Moves the panel one screen down", Some((SHIFT, Key::PageDown))),
            Self::ToggleGroups => ("Groups and Trouble", "Opens or closes the list of groups, rewards and troubles", Some((PLAIN, Key::Q))),
            Self::ToggleDetails => ("Details", "Opens or closes the numbers of what is selected", Some((PLAIN, Key::I))),
            Self::NextTrouble => ("Next trouble", "Goes to the next thing that went wrong in this run", Some((PLAIN, Key::X))),
            Self::WithoutNotes => ("What if these notes were empty?", "The engine scores the answer after the selected turn's notes, and after none", Some((PLAIN, Key::E))),
            Self::ToggleBands => ("Bands over seeds", "Runs of one name become one line: mean, lowest and highest", Some((SHIFT, Key::B))),
            Self::ToggleLog => ("Powers of ten", "Changes the vertical axes of the curves", Some((PLAIN, Key::P))),
            Self::Fork => ("Fork here...", "Goes on from the selected turn with notes or a tool result that you edit; never trained on", Some((PLAIN, Key::K))),
            Self::ResetLesson => ("Reset the sliders", "Back to the settings of the record", Some((PLAIN, Key::R))),
            Self::AnotherGroup => ("Another group", "Puts the next group of the step on the table of the lesson", Some((PLAIN, Key::M))),
            Self::KeepBeside => ("Keep this as B", "Keeps the settings of the lesson beside what you move next, or forgets those that were kept", Some((PLAIN, Key::A))),
            Self::SwapBeside => ("Change A and B", "Changes the settings of the lesson and those that were kept", Some((SHIFT, Key::A))),
            Self::CopyTable => ("Copy the table", "Copies what the panel shows as CSV", Some((PLAIN, Key::C))),
            Self::NextRun => ("Next run", "Shows the next of the open runs", Some((COMMAND, Key::E))),
            Self::OpenRun => ("Open a run...", "Opens a run folder", Some((COMMAND, Key::O))),
            Self::OpenLesson => ("Open a lesson...", "Opens a recorded lesson", Some((COMMAND, Key::L))),
            Self::CloseRun => ("Close the run", "Closes the run that is shown", Some((COMMAND, Key::W))),
            Self::Export => ("Export...", "Saves the panel as a picture and as CSV", Some((COMMAND, Key::S))),
            Self::Palette => ("Commands...", "All commands by name", Some((COMMAND, Key::P))),
            Self::Keys => ("Keys", "All keys on the screen", Some((PLAIN, Key::F1))),
            Self::ToggleTheme => ("Light or dark", "Changes the ground", Some((COMMAND, Key::T))),
            Self::ZoomIn => ("Larger", "Makes everything larger", Some((COMMAND, Key::Plus))),
            Self::ZoomOut => ("Smaller", "Makes everything smaller", Some((COMMAND, Key::Minus))),
            Self::ZoomReset => ("Normal size", "Makes everything as large as it was", Some((COMMAND, Key::Num0))),
            Self::FullScreen => ("Full screen", "Fills the screen, or leaves it", Some((PLAIN, Key::F11))),
            Self::Quit => ("Close the window", "A live run goes on to its end", Some((COMMAND, Key::Q))),
        }
    }

    /// Its name in menus.
    #[must_use]
    pub fn text(self) -> &'static str {
        self.entry().0
    }

    /// What it does, in a sentence.
    #[must_use]
    pub fn tooltip(self) -> &'static str {
        self.entry().1
    }

    /// Its keys.
    #[must_use]
    pub fn shortcut(self) -> Option<KeyboardShortcut> {
        let (modifiers, key) = self.entry().2?;
        Some(KeyboardShortcut::new(modifiers, key))
    }

    /// Its keys as text; empty if it has none.
    #[must_use]
    pub fn keys(self) -> String {
        let format = |shortcut: KeyboardShortcut| {
            shortcut.format(&ModifierNames::NAMES, cfg!(target_os = "macos"))
        };
        self.shortcut().map(format).unwrap_or_default()
    }

    /// Other words that people look for it by.
    fn also_called(self) -> &'static str {
        match self {
            Self::ToggleTheme => "theme dark mode light mode colours contrast",
            Self::ZoomIn => "zoom in bigger",
            Self::ZoomOut => "zoom out smaller",
            Self::ZoomReset => "zoom reset 100 %",
            Self::TogglePatterns => "colour blind",
            Self::Keys => "help shortcuts keyboard",
            Self::Export => "screenshot picture save",
            Self::PlayPause => "resume continue",
            Self::ToggleGroups | Self::ToggleDetails => "side panel",
            Self::ToggleLog => "logarithm log axis",
            _ => "",
        }
    }

    /// Whether every word of a search stands in its name, its tooltip, or what else it is called.
    #[must_use]
    pub fn matches(self, search: &str) -> bool {
        let hay = format!("{} {} {}", self.text(), self.tooltip(), self.also_called());
        let hay = hay.to_lowercase();
        search
            .to_lowercase()
            .split_whitespace()
            .all(|word| hay.contains(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_command_has_a_name_a_sentence_and_keys_of_its_own() {
        let mut names = BTreeSet::new();
        let mut keys = BTreeSet::new();
        for command in Command::ALL {
            assert!(names.insert(command.text()), "{command:?}");
            assert!(command.tooltip().len() > 8, "{command:?}");
            let shortcut = command.shortcut().unwrap();
            assert!(keys.insert(format!("{shortcut:?}")), "{command:?}");
        }
    }

    #[test]
    fn a_search_finds_words_in_any_order() {
        assert!(Command::NextToolCall.matches("call TOOL"));
        assert!(!Command::NextToolCall.matches("call zebra"));
        for (search, command) in [
            ("theme", Command::ToggleTheme),
            ("dark mode", Command::ToggleTheme),
            ("zoom in", Command::ZoomIn),
        ] {
            assert!(command.matches(search), "{search}");
        }
    }
}

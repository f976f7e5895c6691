//! The stations and their questions.

use eframe::egui::Ui;

use super::bench::Bench;
use super::moved::{At, Moved};
use super::scene::{Exhibit, Scene};
use super::{broadcast, inherited, museum, notes, push, stopping, threshold};
use crate::experiment::CreditSettings;
use crate::gui::GuiError;

/// A station of the lesson.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Station {
    /// One reward for everybody.
    #[default]
    Broadcast,
    /// Two notes of one rollout, different credit.
    Notes,
    /// The threshold that kills the signal.
    Threshold,
    /// Credit for inherited notes.
    Inherited,
    /// The baseline that depends on when you stop.
    Stopping,
    /// Published silent bugs, each with a switch.
    Museum,
    /// What a weight does to a token.
    Push,
}

/// A question to be answered before the numbers are shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// What is asked.
    pub text: String,
    /// What can be answered.
    pub options: Vec<String>,
    /// Which of them is right, worked out from the record.
    pub right: usize,
    /// Why.
    pub because: String,
}

/// What a station is made of. All but `show` are functions of the record and of what was moved.
pub struct Parts {
    /// The settings that it starts from, out of the recorded ones.
    pub start: fn(&CreditSettings) -> CreditSettings,
    /// How well a rollout shows its point; only compared.
    pub worth: fn(&Bench, At) -> f64,
    /// Its question, or why the record has no answer to it.
    pub question: fn(&Bench, At) -> Result<Question, GuiError>,
    /// Draws controls and numbers; says in plain words what they show.
    pub show: fn(&mut Ui, &Bench, &mut Moved, &mut Scene) -> Result<String, GuiError>,
    /// The tokens that it shows.
    pub exhibit: fn(&Bench, &Moved) -> Result<Exhibit, GuiError>,
}

macro_rules! parts {
    ($module:ident) => {
        Parts {
            start: $module::start,
            worth: $module::worth,
            question: $module::question,
            show: $module::show,
            exhibit: $module::exhibit,
        }
    };
}

impl Station {
    /// Every station, in order.
    pub const ALL: [Self; 7] = [
        Self::Broadcast,
        Self::Notes,
        Self::Threshold,
        Self::Inherited,
        Self::Stopping,
        Self::Museum,
        Self::Push,
    ];

    /// What it is made of.
    #[must_use]
    pub fn parts(self) -> Parts {
        match self {
            Self::Broadcast => parts!(broadcast),
            Self::Notes => parts!(notes),
            Self::Threshold => parts!(threshold),
            Self::Inherited => parts!(inherited),
            Self::Stopping => parts!(stopping),
            Self::Museum => parts!(museum),
            Self::Push => parts!(push),
        }
    }

    /// Its title.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Broadcast => "1 One reward for everybody",
            Self::Notes => "2 Two notes, different credit",
            Self::Threshold => "3 The threshold that kills the signal",
            Self::Inherited => "4 Credit for inherited notes",
            Self::Stopping => "5 The baseline that depends on when you stop",
            Self::Museum => "6 Bug museum",
            Self::Push => "7 From weight to push",
        }
    }

    /// What it is about, in a few sentences that hold for every record.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Self::Broadcast => {
                "GRPO compares the answers of a question with each other. Every token of a rollout gets that one number, whatever the notes in it were worth."
            }
            Self::Notes => {
                "MemPO asks after every turn how probable the right answer is from the notes alone, and takes off how probable it is from the full history of that moment. That difference is the reward of the notes. It is compared with the other notes of the group, and what comes out is added to their tokens."
            }
            Self::Threshold => {
                "MemPO counts only the answer tokens that are more probable than 0.5. What the notes lack is not, so it is dropped instead of held against them, and both values are taken over tokens that are probable anyway."
            }
            Self::Inherited => {
                "Much of a note was handed down by the turn before. Paying P(answer | notes) pays for what was inherited; the difference to the notes before pays for what this turn did."
            }
            Self::Stopping => {
                "A mean over all rounds of a group moves when a rollout stops earlier. Then what a note is compared with depends on what its own rollout did later, and the gradient is biased. A mean over the same round has a bias of its own: few are left in late rounds."
            }
            Self::Museum => {
                "Bugs that were found in published training code. None of them stops a run; the tokens show them."
            }
            Self::Push => {
                "A weight is not yet a step. The gradient of a token's log-prob towards its own logit is 1 - p, so a token that was nearly certain hardly moves; the clip cuts off ratios that have gone far enough, and how losses are added up decides what a long rollout counts."
            }
        }
    }
}

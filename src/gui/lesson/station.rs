//! The stations and their questions.

use super::bench::Bench;
use super::{broadcast, inherited, museum, notes, stopping, threshold};

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

impl Station {
    /// Every station, in order.
    pub const ALL: [Self; 6] = [
        Self::Broadcast,
        Self::Notes,
        Self::Threshold,
        Self::Inherited,
        Self::Stopping,
        Self::Museum,
    ];

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
        }
    }

    /// What it is about, in two sentences.
    #[must_use]
    pub fn about(self) -> &'static str {
        match self {
            Self::Broadcast => {
                "GRPO compares the answers of a question with each other. Every token of a rollout gets that one number: the good note, the bad note and the answer alike."
            }
            Self::Notes => {
                "MemPO asks after every turn: how probable is the right answer from these notes alone? That number differs from note to note, so their tokens get different credit."
            }
            Self::Threshold => {
                "MemPO counts only answer tokens that are more probable than 0.5. A token that rises from 0.1 to 0.4 counts as nothing, and a group in which none passes has no signal at all."
            }
            Self::Inherited => {
                "Most of a note was written by the turn before. Paying P(answer | notes) pays for what was inherited; the difference to the notes before pays for what this turn did."
            }
            Self::Stopping => {
                "A mean over all rounds of a group moves when a rollout stops earlier. Then what a note is compared with depends on what its own rollout did later, and the gradient is biased."
            }
            Self::Museum => {
                "Bugs that were found in published training code. None of them stops a run, and the loss looks as ever; the tokens show it at once."
            }
        }
    }

    /// Its question. None if the record cannot answer it.
    #[must_use]
    pub fn question(self, bench: &Bench) -> Option<Question> {
        match self {
            Self::Broadcast => broadcast::question(bench),
            Self::Notes => notes::question(bench),
            Self::Threshold => threshold::question(bench),
            Self::Inherited => inherited::question(bench),
            Self::Stopping => stopping::question(bench),
            Self::Museum => museum::question(bench),
        }
    }
}

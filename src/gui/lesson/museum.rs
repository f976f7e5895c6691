//! Station 6: bugs that were found in published training code, each with a switch and a question of its
//! own. `exhibits.rs` makes the weights.

use eframe::egui::Ui;

use super::bench::Bench;
use super::exhibits::{by_turn, heard, right, wrong};
use super::moved::{At, Moved};
use super::scene::{Exhibit, Scene};
use super::station::Question;
use crate::experiment::CreditSettings;
use crate::gui::GuiError;
use crate::gui::tokens::Document;
use crate::gui::whatif::Member;

/// A piece of the museum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Piece {
    /// SkyRL #1492.
    #[default]
    LastTurnMask,
    /// verl #7278.
    LostReward,
    /// Search-R1 #108.
    TrainedTools,
    /// verl #7244.
    TurnIndex,
}

impl Piece {
    /// Every piece.
    pub const ALL: [Self; 4] = [
        Self::LastTurnMask,
        Self::LostReward,
        Self::TrainedTools,
        Self::TurnIndex,
    ];

    fn title(self) -> &'static str {
        match self {
            Self::LastTurnMask => "Only the last turn learns (SkyRL #1492)",
            Self::LostReward => "The reward stops at the tool (verl #7278)",
            Self::TrainedTools => "The tool's words are trained on (Search-R1 #108)",
            Self::TurnIndex => "Normalised by the number of the turn (verl #7244)",
        }
    }

    fn story(self) -> &'static str {
        match self {
            Self::LastTurnMask => {
                "The advantages of the last turn, masked already, were copied to the turns before it: where that mask was 0, earlier tokens trained with weight 0. Shown as if it was 0 for all of them."
            }
            Self::LostReward => {
                "REINFORCE++ sums rewards from the last token to the first. It started anew at every masked token, and the words of a tool are masked. Shown with the rollouts of this question alone."
            }
            Self::TrainedTools => {
                "The mask did not fit the retrieved text, so the policy was trained to write what the search engine says. Shown with the weight of the answer on those words."
            }
            Self::TurnIndex => {
                "Notes of the same turn were compared with each other. Who is still there in a late turn depends on the policy, and so does the baseline. As it should be: who has ended counts as 0, and the mean runs over all rollouts in every turn."
            }
        }
    }
}

/// As recorded; the pieces change what they are about.
pub fn start(recorded: &CreditSettings) -> CreditSettings {
    *recorded
}

/// A rollout in which a piece shows.
pub fn worth(bench: &Bench, at: At) -> f64 {
    let Ok(member) = bench.member(at.place) else {
        return 0.0;
    };
    let trained = |member: &Member| member.rewards.sampled.iter().sum::<u32>();
    match at.piece {
        Piece::LastTurnMask => {
            let last = member.rewards.sampled.last().copied().unwrap_or(0);
            let weights = member.blocks.iter().flat_map(|of| &of.weight);
            let any = weights.clone().any(|weight| *weight != 0.0);
            f64::from(u8::from(any)) * f64::from(trained(member) - last)
        }
        Piece::LostReward => member.rewards.outcome.abs() * f64::from(trained(member)),
        Piece::TrainedTools => {
            let tokens: usize = member.rows.iter().map(|row| row.mask.len()).sum();
            tokens as f64 - f64::from(trained(member))
        }
        Piece::TurnIndex => {
            let members = bench.members(at.place.group);
            let reached = |turn: u32| {
                let has = |of: &&Member| of.memory.iter().any(|round| round.turn == turn);
                members.iter().filter(has).count()
            };
            let late = member
                .memory
                .iter()
                .filter(|round| reached(round.turn) < members.len() && round.reward != 0.0);
            late.map(|round| f64::from(round.reward.abs())).sum()
        }
    }
}

/// Which piece is looked at.
pub fn pieces(ui: &mut Ui, piece: &mut Piece) {
    for of in Piece::ALL {
        ui.radio_value(piece, of, of.title());
    }
    ui.label(piece.story());
}

/// A share of three that can be guessed.
fn thirds(share: f64) -> (Vec<String>, usize) {
    let options = [
        "less than a third",
        "between a third and two thirds",
        "more than two thirds",
    ];
    let right = match share {
        share if share < 1.0 / 3.0 => 0,
        share if share <= 2.0 / 3.0 => 1,
        _ => 2,
    };
    (options.map(str::to_owned).to_vec(), right)
}

/// What a piece asks.
pub fn question(bench: &Bench, at: At) -> Result<Question, GuiError> {
    let member = bench.member(at.place)?;
    let number = member.id.member;
    let missing = |what: String| Err(GuiError::NotRecorded(what));
    let difference = Difference::of(&right(bench, at)?, &wrong(bench, at)?);
    let trained = difference.trained;
    match at.piece {
        Piece::LastTurnMask => {
            if difference.with_weight == 0 {
                return missing(format!(
                    "all weights of rollout {number} are 0, so it has no signal to lose; choose another rollout"
                ));
            }
            let (lost, of) = (difference.silenced, difference.with_weight);
            let share = f64::from(lost) / f64::from(of);
            let (options, right) = thirds(share);
            Ok(Question {
                text: format!(
                    "Rollout {number} wrote {trained} tokens, and {of} of them have a weight. How many of these lose it if only the last turn learns?"
                ),
                options,
                right,
                because: format!("{lost} of {of}, {:.0} %.", share * 100.0),
            })
        }
        Piece::LostReward => {
            if member.rewards.outcome == 0.0 {
                return missing(format!(
                    "the reward of rollout {number} is 0, so there is none to be lost; choose another rollout"
                ));
            }
            let heard = heard(bench, at)?;
            Ok(Question {
                text: format!(
                    "The reward of rollout {number}, {:.2}, stands at the last of its {trained} tokens. How many of them have it in their return if the sum starts anew at every masked token?",
                    member.rewards.outcome
                ),
                options: vec![
                    "all of them".into(),
                    "those after the last masked token".into(),
                    "none of them".into(),
                ],
                right: usize::from(heard < trained) + usize::from(heard == 0),
                because: if heard < trained {
                    format!("{heard} of {trained}. The return of all others is 0.")
                } else {
                    format!("{heard} of {trained}: nothing masked stands between them.")
                },
            })
        }
        Piece::TrainedTools => {
            if difference.taught == 0 {
                return missing(format!(
                    "nothing stands between the tokens that rollout {number} wrote in a row; choose another rollout, or a run with the full history as context"
                ));
            }
            let all = trained + difference.taught;
            let share = f64::from(difference.taught) / f64::from(all);
            let (options, right) = thirds(share);
            Ok(Question {
                text: format!(
                    "Rollout {number} wrote {trained} tokens, and read what the tools answered. If training goes on through those answers, what share of the trained tokens did the policy never write?"
                ),
                options,
                right,
                because: format!("{} of {all}, {:.0} %.", difference.taught, share * 100.0),
            })
        }
        Piece::TurnIndex => {
            let turns = by_turn(bench, at)?;
            let rollouts = bench.members(at.place.group).len();
            let changed: u32 = turns.iter().map(|of| of.changed).sum();
            let early = turns
                .iter()
                .any(|of| of.changed > 0 && of.reached == rollouts);
            let reached: Vec<String> = turns
                .iter()
                .map(|of| format!("turn {}: {}", of.turn, of.reached))
                .collect();
            let notes: u32 = turns.iter().map(|of| of.reached as u32).sum();
            let who: Vec<String> = turns
                .iter()
                .filter(|of| of.changed > 0)
                .map(|of| format!("turn {} (reached by {})", of.turn, of.reached))
                .collect();
            Ok(Question {
                text: format!(
                    "{rollouts} rollouts; scored notes by turn: {}. Whose credit changes if only those who are there are compared, and who has ended does not count as 0?",
                    reached.join(", ")
                ),
                options: vec![
                    "nobody's".into(),
                    "that of notes in turns that not all reach".into(),
                    "that of all notes".into(),
                ],
                right: match (changed, early) {
                    (0, _) => 0,
                    (_, false) => 1,
                    (_, true) => 2,
                },
                because: match changed {
                    0 => "No memory part changes.".into(),
                    _ => format!(
                        "{changed} of {notes} memory parts change: {}.",
                        who.join(", ")
                    ),
                },
            })
        }
    }
}

/// What the published weights of a rollout are against the right ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Tokens that the policy wrote.
    pub trained: u32,
    /// Those of them with a weight.
    pub with_weight: u32,
    /// Those whose weight is another.
    pub changed: u32,
    /// Those whose weight has another sign.
    pub turned: u32,
    /// Those that lose their weight.
    pub silenced: u32,
    /// Tokens that get a weight and were not written by the policy.
    pub taught: u32,
}

impl Difference {
    /// Counts.
    #[must_use]
    pub fn of(right: &Document, wrong: &Document) -> Self {
        let mut made = Self::default();
        let weights = right.weight.iter().zip(&wrong.weight);
        let masks = right.mask.iter().zip(&wrong.mask);
        for ((&was, &is), (&on, &trained)) in weights.zip(masks) {
            made.trained += u32::from(on);
            made.with_weight += u32::from(on && was != 0.0);
            made.changed += u32::from(on && was.to_bits() != is.to_bits());
            made.turned += u32::from(on && was * is < 0.0);
            made.silenced += u32::from(on && was != 0.0 && is == 0.0);
            made.taught += u32::from(trained && !on);
        }
        made
    }
}

/// The tokens that it shows.
pub fn exhibit(bench: &Bench, moved: &Moved) -> Result<Exhibit, GuiError> {
    let (title, document) = if moved.published {
        ("As it was published", wrong(bench, moved.at)?)
    } else {
        ("As it should be", right(bench, moved.at)?)
    };
    Ok(Exhibit {
        // The words of the tools are what this piece is about.
        context: moved.at.piece == Piece::TrainedTools,
        ..Exhibit::weights(title, document)
    })
}

/// Draws the station.
pub fn show(
    ui: &mut Ui,
    bench: &Bench,
    moved: &mut Moved,
    scene: &mut Scene,
) -> Result<String, GuiError> {
    ui.checkbox(&mut moved.published, "as it was published");
    let (right, wrong) = (right(bench, moved.at)?, wrong(bench, moved.at)?);
    scene.csv = String::from("token,right,published\n");
    for (at, (was, is)) in right.weight.iter().zip(&wrong.weight).enumerate() {
        scene.csv.push_str(&format!("{at},{was},{is}\n"));
    }
    let of = Difference::of(&right, &wrong);
    Ok(format!(
        "As it was published, {} of the {} tokens that this rollout wrote have another weight than they should, {} of them none and {} one of the other sign; {} are trained on that it never wrote.",
        of.changed, of.trained, of.silenced, of.turned, of.taught
    ))
}

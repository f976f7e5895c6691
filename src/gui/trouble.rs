//! What went wrong in a run, as a list whose entries lead to the cause.

use std::time::{Duration, Instant};

use eframe::egui::Context;

use super::run::{Health, Run};
use super::words;
use crate::trajectory::{Purpose, StopReason, TrajectoryId};

/// Above this share of clipped tokens an update goes too far.
const CLIPPED: f64 = 0.3;
/// Sampled and learner's probabilities of one token differ by more than this.
const APART: f64 = 0.01;

/// An entry of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// What is wrong, in a sentence.
    pub text: String,
    /// Where to look.
    pub jump: Jump,
}

/// Where an entry leads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Jump {
    /// A trajectory in the Watch panel.
    Trajectory(TrajectoryId),
    /// The first rollout of a group.
    Group(u32, u32),
    /// A step in the Curves panel.
    Step(u32),
    /// Nowhere: the entry says all there is.
    Nowhere,
}

/// How long a list stands while a record grows: it is made from the whole record.
const STANDS: Duration = Duration::from_secs(2);

/// The list, worked out anew when the record has grown, and not more often than a reader could read.
#[derive(Default)]
pub struct Troubles {
    made: Option<Made>,
    entries: Vec<Entry>,
}

/// What a list was made from.
#[derive(PartialEq)]
struct Made {
    number: usize,
    health: Health,
    torn: Option<&'static str>,
    revision: u64,
    at: Instant,
}

impl Troubles {
    /// The entries of a run, the newest first.
    pub fn of(&mut self, number: usize, run: &Run, context: &Context) -> &[Entry] {
        let stands = self.made.as_ref().is_some_and(|made| {
            let same = made.number == number && made.health == run.health && made.torn == run.torn;
            let fresh = made.revision == run.revision;
            if same && !fresh {
                context.request_repaint_after(STANDS);
            }
            same && (fresh || made.at.elapsed() < STANDS)
        });
        if !stands {
            self.made = Some(Made {
                number,
                health: run.health.clone(),
                torn: run.torn,
                revision: run.revision,
                at: Instant::now(),
            });
            self.entries = find(run);
        }
        &self.entries
    }
}

/// Everything that went wrong.
#[must_use]
pub fn find(run: &Run) -> Vec<Entry> {
    let mut found: Vec<(u32, Entry)> = Vec::new();
    let view = &run.view;
    for trouble in &view.troubles {
        let (step, jump) = match trouble.id {
            Some(id) => (id.step, Jump::Trajectory(id)),
            None => (view.steps, Jump::Nowhere),
        };
        found.push((
            step,
            Entry {
                text: trouble.what.clone(),
                jump,
            },
        ));
    }
    for (&step, silent) in &view.silent {
        for dead in &silent.dead {
            let text = format!(
                "step {step}, group {}: no gradient - {}; {}",
                dead.group,
                words::outcome_silence(dead.outcome),
                words::memory_silence(dead.memory)
            );
            let jump = Jump::Group(step.saturating_sub(1), dead.group);
            found.push((step, Entry { text, jump }));
        }
    }
    for (&step, updates) in &view.updates {
        let count = updates.len().max(1) as f64;
        let clipped = updates.iter().map(|of| of.pg_clipfrac).sum::<f64>() / count;
        if clipped > CLIPPED {
            let text = format!(
                "step {step}: {:.0} % of the tokens were clipped; the update goes too far",
                clipped * 100.0
            );
            found.push((
                step,
                Entry {
                    text,
                    jump: Jump::Step(step),
                },
            ));
        }
    }
    for &(step, gap) in view.metric("training/rollout_probs_diff_max") {
        if gap > APART {
            let text = format!(
                "step {step}: engine and learner differ by {gap:.3} in the probability of a token"
            );
            found.push((
                step,
                Entry {
                    text,
                    jump: Jump::Step(step),
                },
            ));
        }
    }
    for (purpose, step) in run.steps() {
        if purpose == Purpose::Evaluate {
            continue;
        }
        let broken: Vec<TrajectoryId> = run
            .members(purpose, step, None)
            .into_iter()
            .filter(|id| {
                let of = view.trajectories.get(id);
                of.is_some_and(|of| of.reason == Some(StopReason::Malformed))
            })
            .collect();
        if let Some(first) = broken.first() {
            let text = format!(
                "step {}: {} rollouts broke the protocol",
                step + 1,
                broken.len()
            );
            found.push((
                step + 1,
                Entry {
                    text,
                    jump: Jump::Trajectory(*first),
                },
            ));
        }
    }
    found.sort_by_key(|(step, _)| std::cmp::Reverse(*step));
    let nowhere = |text: String| Entry {
        text,
        jump: Jump::Nowhere,
    };
    let mut entries: Vec<Entry> = Vec::new();
    match &run.health {
        Health::Lost(why) => entries.push(nowhere(format!(
            "The folder can no longer be read; what was read stays: {why}"
        ))),
        Health::Refused(why) => entries.push(nowhere(why.clone())),
        Health::Loading | Health::UpToDate => {}
    }
    if let Some(file) = run.torn {
        entries.push(nowhere(format!("The last line of {file} has no end: it is being written, or was torn; everything before it is shown")));
    }
    if !run.vocabulary_error.is_empty() && !view.trajectories.is_empty() {
        entries.push(nowhere(run.vocabulary_error.clone()));
    }
    for (from, to) in &run.void {
        entries.push(nowhere(format!(
            "The run was resumed: events {from} to {to} became void ({} of them), and what they told was done again",
            to - from + 1
        )));
    }
    entries.extend(run.notices.iter().cloned().map(nowhere));
    if run.more_notices > 0 {
        entries.push(nowhere(format!(
            "{} more lines were skipped",
            run.more_notices
        )));
    }
    entries.extend(found.into_iter().map(|(_, entry)| entry));
    entries
}

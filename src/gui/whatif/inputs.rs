//! What a step's credit is made from, out of the record.

use std::sync::Arc;

use crate::credit::assign::Rewards;
use crate::experiment::CreditSettings;
use crate::gui::GuiError;
use crate::gui::run::Run;
use crate::gui::tokens::row_of;
use crate::gui::words::place;
use crate::record::{MemoryCredit, TokenBlock};
use crate::trajectory::{Part, Purpose, RoundScores, Row, TrajectoryId};

/// One rollout.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Which.
    pub id: TrajectoryId,
    /// Its outcome and the lengths of its turns; memory rewards come with the settings.
    pub rewards: Rewards,
    /// What memory rewards are made of; empty in older records.
    pub scores: Vec<RoundScores>,
    /// Memory rewards as they were recorded.
    pub memory: Vec<MemoryCredit>,
    /// What the KL in the reward changed, as recorded.
    pub kl: Part,
    /// Its training rows.
    pub rows: Vec<Row>,
    /// Its rows as they stand in the record.
    pub blocks: Vec<TokenBlock>,
}

/// All groups of a step. Some estimators compare across groups, so a step is the unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepInputs {
    /// RL step, from 0.
    pub step: u32,
    /// The rollouts of every group.
    pub groups: Vec<Vec<Member>>,
    /// The text of every token id.
    pub vocabulary: Arc<Vec<String>>,
}

impl StepInputs {
    /// The same step without its groups.
    #[must_use]
    pub fn empty(&self) -> Self {
        Self {
            step: self.step,
            groups: Vec::new(),
            vocabulary: Arc::clone(&self.vocabulary),
        }
    }
}

/// The credit settings that a run used.
///
/// # Errors
/// Its experiment cannot be read.
pub fn recorded_settings(run: &Run) -> Result<CreditSettings, GuiError> {
    let experiment = run.experiment.as_ref();
    let settings = experiment.map(|experiment| experiment.credit);
    settings.ok_or_else(|| {
        let why = run.settings_error.trim();
        let of = match run.view.version.as_str() {
            "" => String::new(),
            version => format!(", which palimpsest {version} wrote"),
        };
        // The reader's verdict on a run that was to begin says nothing here.
        let first = why.lines().find(|line| !line.trim().is_empty()).unwrap_or("");
        GuiError::NotRecorded(format!(
            "experiment.ron of this run{of}, holds settings that this program ({}) does not know, so nothing can be worked out under others: {}",
            env!("CARGO_PKG_VERSION"),
            first.trim()
        ))
    })
}

/// Takes a step out of a record.
///
/// # Errors
/// [`GuiError::NotRecorded`] if credit has not been assigned yet, or not all rollouts were kept.
pub fn inputs(run: &mut Run, step: u32) -> Result<StepInputs, GuiError> {
    let missing = |what: String| Err(GuiError::NotRecorded(what));
    let ids = run.members(Purpose::Train, step, None);
    if ids.is_empty() {
        return missing(format!(
            "step {} has no training rollouts in the record",
            step + 1
        ));
    }
    let size = run
        .experiment
        .as_ref()
        .map_or(0, |of| of.rollout.group_size as usize);
    if run.vocabulary.is_empty() {
        return missing(run.vocabulary_error.clone());
    }
    let vocabulary = Arc::clone(&run.vocabulary);
    let mut groups: Vec<Vec<Member>> = Vec::new();
    let mut last = None;
    for id in ids {
        let Some(of) = run.view.trajectories.get(&id).cloned() else {
            continue;
        };
        let (Some(outcome), Some(_)) = (of.outcome, of.outcome_advantage) else {
            return missing(format!(
                "{} has no credit yet; wait for the end of the step",
                place(id)
            ));
        };
        let blocks = run.blocks(&of.tokens).map_err(GuiError::NotRecorded)?;
        let rows: Vec<Row> = blocks
            .iter()
            .map(|block| row_of(block, &vocabulary))
            .collect();
        let member = Member {
            id,
            rewards: Rewards {
                outcome: f64::from(outcome.reward),
                memory: Vec::new(),
                sampled: sampled(&rows, of.turns.len()),
                kl: Vec::new(),
            },
            scores: of.scores,
            memory: of.memory,
            kl: kl_part(&blocks, of.turns.len()),
            rows,
            blocks,
        };
        if last != Some(id.group) {
            groups.push(Vec::new());
            last = Some(id.group);
        }
        if let Some(group) = groups.last_mut() {
            group.push(member);
        }
    }
    if let Some(group) = groups.iter().find(|group| size > 0 && group.len() != size) {
        let number = group.first().map_or(0, |member| member.id.group);
        return missing(format!(
            "group {number} holds {} of {size} rollouts; credit compares all of them (record.trajectories: 0 keeps all)",
            group.len()
        ));
    }
    Ok(StepInputs {
        step,
        groups,
        vocabulary,
    })
}

/// Sampled tokens of every turn.
fn sampled(rows: &[Row], turns: usize) -> Vec<u32> {
    let mut counts = vec![0; turns];
    for row in rows {
        for (&on, &turn) in row.mask.iter().zip(&row.turn) {
            if on && let Some(count) = counts.get_mut(turn as usize) {
                *count += 1;
            }
        }
    }
    counts
}

/// The KL part of every sampled token by turn; nothing if it cost nothing.
fn kl_part(blocks: &[TokenBlock], turns: usize) -> Part {
    if blocks
        .iter()
        .all(|block| block.kl.iter().all(|kl| *kl == 0.0))
    {
        return Part::default();
    }
    let mut by_turn = vec![Vec::new(); turns];
    for block in blocks {
        for ((&on, &turn), &kl) in block.mask.iter().zip(&block.turn).zip(&block.kl) {
            if on && let Some(of) = by_turn.get_mut(turn as usize) {
                of.push(kl);
            }
        }
    }
    Part::Each(by_turn)
}

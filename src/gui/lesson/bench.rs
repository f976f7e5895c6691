//! What lies on the table of a lesson: a step of a record, which is only read, and the credit of one of
//! its groups under whatever a station asks for.

use std::cell::RefCell;

use super::moved::Place;
use crate::credit::memory::{MemoryCreditState, probability};
use crate::experiment::{CreditSettings, CreditTokens, Estimator, Threshold};
use crate::gui::GuiError;
use crate::gui::run::Run;
use crate::gui::tokens::{Document, Value, token_limit};
use crate::gui::whatif::{
    Member, MemberResult, Scope, StepInputs, document_of, inputs, recompute, recorded_settings,
    state_before,
};

/// Weights smaller than this are not blown up to full colour.
const LEAST_LIMIT: f32 = 0.25;

/// See the module.
pub struct Bench {
    /// The step as recorded.
    pub inputs: StepInputs,
    /// The settings of the run.
    pub recorded: CreditSettings,
    /// The question of every group, and its right answer.
    pub questions: Vec<(String, String)>,
    /// Ratios outside 1 - low and 1 + high are clipped: what the settings of the run say.
    pub clip: (f32, f32),
    state: MemoryCreditState,
    /// The ends of the scales of a group, by value.
    limits: RefCell<Vec<((usize, Value), f32)>>,
}

impl Bench {
    /// Lays a step of a run on the table.
    ///
    /// # Errors
    /// The record lacks what credit is made from.
    pub fn new(run: &mut Run, step: u32) -> Result<Self, GuiError> {
        let recorded = recorded_settings(run)?;
        let inputs = inputs(run, step)?;
        let state = state_before(run, step, &recorded, &recorded)?;
        let question = |group: &Vec<Member>| {
            let id = group.first().map(|member| member.id);
            let question = id
                .and_then(|id| run.view.question_of(id))
                .cloned()
                .unwrap_or_default();
            (question.text, question.gold)
        };
        let questions = inputs.groups.iter().map(question).collect();
        let clip = run
            .experiment
            .as_ref()
            .map_or((0.2, 0.2), |of| (of.learner.clip_low, of.learner.clip_high));
        Ok(Self {
            inputs,
            recorded,
            questions,
            clip,
            state,
            limits: RefCell::default(),
        })
    }

    /// The rollouts of a group.
    #[must_use]
    pub fn members(&self, group: usize) -> &[Member] {
        let found = self.inputs.groups.get(group);
        found.map(Vec::as_slice).unwrap_or_default()
    }

    /// A rollout.
    ///
    /// # Errors
    /// There is none in this place.
    pub fn member(&self, place: Place) -> Result<&Member, GuiError> {
        let found = self.members(place.group).get(place.member);
        found.ok_or_else(|| GuiError::NotRecorded("the step has no rollouts".into()))
    }

    /// The outcome rewards of a group, as recorded.
    #[must_use]
    pub fn rewards(&self, group: usize) -> Vec<f64> {
        let members = self.members(group).iter();
        members.map(|member| member.rewards.outcome).collect()
    }

    /// A group under settings.
    ///
    /// # Errors
    /// As [`recompute`].
    pub fn under(
        &self,
        group: usize,
        settings: &CreditSettings,
    ) -> Result<Vec<MemberResult>, GuiError> {
        self.changed(group, settings, |_| {})
    }

    /// A group under settings, changed first.
    ///
    /// # Errors
    /// As [`recompute`].
    pub fn changed(
        &self,
        group: usize,
        settings: &CreditSettings,
        change: impl FnOnce(&mut Vec<Member>),
    ) -> Result<Vec<MemberResult>, GuiError> {
        let mut members = self.members(group).to_vec();
        change(&mut members);
        let scope = Scope {
            recorded: &self.recorded,
            state: &self.state,
        };
        let mut step = self.inputs.empty();
        let mut at = 0;
        if compares_groups(settings.estimator) {
            step.groups.clone_from(&self.inputs.groups);
            at = group;
            if let Some(place) = step.groups.get_mut(at) {
                *place = members;
            }
        } else {
            // Nothing compares across groups, so the others need not be worked out.
            step.groups.push(members);
        }
        let mut made = recompute(&step, settings, &scope)?;
        Ok(made
            .groups
            .get_mut(at)
            .map(std::mem::take)
            .unwrap_or_default())
    }

    /// The tokens of a rollout with the weights of a result.
    ///
    /// # Errors
    /// There is no such rollout.
    pub fn document(&self, place: Place, made: &[MemberResult]) -> Result<Document, GuiError> {
        let member = self.member(place)?;
        let result = made.get(place.member);
        Ok(result.map_or_else(Document::default, |result| {
            document_of(member, result, &self.inputs.vocabulary)
        }))
    }

    /// The tokens of a rollout as they were recorded.
    ///
    /// # Errors
    /// There is no such rollout.
    pub fn as_recorded(&self, place: Place) -> Result<Document, GuiError> {
        let member = self.member(place)?;
        let vocabulary = &self.inputs.vocabulary;
        Ok(Document::new(member.id, &member.blocks, vocabulary))
    }

    /// The end of the scale: that of the group as it was recorded, so that colours mean the same under
    /// all settings and for all its rollouts.
    #[must_use]
    pub fn limit(&self, group: usize, value: Value) -> f32 {
        let mut limits = self.limits.borrow_mut();
        if let Some((_, limit)) = limits.iter().find(|(of, _)| *of == (group, value)) {
            return *limit;
        }
        let members = 0..self.members(group).len();
        let documents: Vec<Document> = members
            .filter_map(|member| self.as_recorded(Place { group, member }).ok())
            .collect();
        let limit = token_limit(&documents, value).max(LEAST_LIMIT);
        limits.push(((group, value), limit));
        limit
    }
}

/// P(right answer | notes) of every scored round, over all answer tokens: turn and probability. Empty if
/// the record cannot tell.
#[must_use]
pub fn probabilities(member: &Member, recorded: &CreditSettings) -> Vec<(u32, f32)> {
    let of = |round: &crate::trajectory::RoundScores| {
        let text = round.notes.first()?;
        let p = probability(text, Threshold::Off).ok()?;
        Some((round.turn, p as f32))
    };
    if !member.scores.is_empty() {
        return member.scores.iter().filter_map(of).collect();
    }
    if recorded.threshold != Threshold::Off {
        return Vec::new();
    }
    let rounds = member.memory.iter();
    rounds.map(|round| (round.turn, round.p_memory)).collect()
}

/// Sampled tokens that the memory part of a turn falls on: those of its notes, or of the whole turn.
#[must_use]
pub fn credited_tokens(member: &Member, settings: &CreditSettings, turn: u32) -> usize {
    let on = |mask: &[bool]| mask.iter().filter(|on| **on).count();
    let mut notes = 0;
    let mut whole = 0;
    for row in &member.rows {
        for (_, start, end) in row.notes.iter().filter(|(of, ..)| *of == turn) {
            let span = row.mask.get(*start as usize..*end as usize);
            notes += on(span.unwrap_or_default());
        }
        let tokens = row.mask.iter().zip(&row.turn);
        whole += tokens.filter(|(on, of)| **on && **of == turn).count();
    }
    if settings.tokens == CreditTokens::Turn || notes == 0 {
        whole
    } else {
        notes
    }
}

/// Whether an estimator looks at all groups of a step.
fn compares_groups(estimator: Estimator) -> bool {
    matches!(
        estimator,
        Estimator::Gpg | Estimator::ReinforcePlusPlus(_) | Estimator::ReinforcePlusPlusBaseline
    )
}

//! What lies on the table of a lesson: a step of a record, one of its groups, and settings to move.

use std::sync::Arc;

use crate::credit::memory::MemoryCreditState;
use crate::experiment::{CreditSettings, Estimator};
use crate::gui::GuiError;
use crate::gui::run::Run;
use crate::gui::tokens::Document;
use crate::gui::whatif::{
    Member, MemberResult, Recomputed, Scope, StepInputs, document_of, inputs, recompute,
    recorded_settings, state_before,
};
use crate::trajectory::TrajectoryId;

/// See the module.
pub struct Bench {
    /// The step as recorded.
    pub inputs: StepInputs,
    /// The settings of the run.
    pub recorded: CreditSettings,
    /// The settings as they were moved.
    pub settings: CreditSettings,
    /// Place of the group on the table among the groups of the step.
    pub group: usize,
    /// Place of the rollout that is looked at inside the group.
    pub member: usize,
    /// Rewards as they were dragged, by member; those of the record if none.
    pub rewards: Vec<f64>,
    /// The question of every group.
    pub questions: Vec<(String, String)>,
    state: MemoryCreditState,
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
        let mut bench = Self {
            group: telling(&inputs),
            member: 0,
            rewards: Vec::new(),
            settings: recorded,
            recorded,
            inputs,
            questions,
            state,
        };
        bench.choose(bench.group);
        Ok(bench)
    }

    /// Puts another group on the table, with the rollout whose notes differ most in front.
    pub fn choose(&mut self, group: usize) {
        self.group = group.min(self.inputs.groups.len().saturating_sub(1));
        let spread = |member: &Member| {
            let values = || member.memory.iter().map(|round| round.advantage);
            values().fold(f32::NEG_INFINITY, f32::max) - values().fold(f32::INFINITY, f32::min)
        };
        let members = self.members();
        let best = (0..members.len()).max_by(|a, b| {
            let of = |at: &usize| members.get(*at).map_or(0.0, spread);
            of(a).total_cmp(&of(b))
        });
        self.member = best.unwrap_or(0);
        self.rewards = self
            .members()
            .iter()
            .map(|member| member.rewards.outcome)
            .collect();
    }

    /// Settings and rewards as recorded.
    pub fn reset(&mut self) {
        self.settings = self.recorded;
        self.rewards = self
            .members()
            .iter()
            .map(|member| member.rewards.outcome)
            .collect();
    }

    /// The rollouts of the group on the table.
    #[must_use]
    pub fn members(&self) -> &[Member] {
        self.inputs
            .groups
            .get(self.group)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// The rollout that is looked at.
    #[must_use]
    pub fn shown(&self) -> Option<&Member> {
        self.members().get(self.member)
    }

    /// The name of the rollout that is looked at.
    #[must_use]
    pub fn id(&self) -> TrajectoryId {
        self.shown().map(|member| member.id).unwrap_or_default()
    }

    /// The step under settings, with the dragged rewards.
    ///
    /// # Errors
    /// As [`recompute`].
    pub fn under(&self, settings: &CreditSettings) -> Result<Recomputed, GuiError> {
        self.changed(settings, |_| {})
    }

    /// The step under settings, with the group on the table changed first.
    ///
    /// # Errors
    /// As [`recompute`].
    pub fn changed(
        &self,
        settings: &CreditSettings,
        change: impl FnOnce(&mut Vec<Member>),
    ) -> Result<Recomputed, GuiError> {
        let mut group = self.members().to_vec();
        for (member, reward) in group.iter_mut().zip(&self.rewards) {
            member.rewards.outcome = *reward;
        }
        change(&mut group);
        let scope = Scope {
            recorded: &self.recorded,
            state: &self.state,
        };
        let mut step = self.inputs.empty();
        if compares_groups(settings.estimator) {
            step.groups.clone_from(&self.inputs.groups);
            if let Some(place) = step.groups.get_mut(self.group) {
                *place = group;
            }
            return recompute(&step, settings, &scope);
        }
        // Nothing compares across groups, so the others need not be worked out.
        step.groups.push(group);
        let mut alone = recompute(&step, settings, &scope)?;
        let mut groups = vec![Vec::new(); self.inputs.groups.len()];
        if let (Some(place), Some(made)) = (groups.get_mut(self.group), alone.groups.pop()) {
            *place = made;
        }
        Ok(Recomputed { groups })
    }

    /// The results of the group on the table.
    #[must_use]
    pub fn of<'a>(&self, made: &'a Recomputed) -> &'a [MemberResult] {
        made.groups
            .get(self.group)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }

    /// The tokens of the rollout that is looked at, with the weights of a result.
    #[must_use]
    pub fn document(&self, made: &Recomputed) -> Option<Arc<Document>> {
        let result = self.of(made).get(self.member)?;
        Some(Arc::new(document_of(
            self.shown()?,
            result,
            &self.inputs.vocabulary,
        )))
    }

    /// Sampled tokens of a round's notes.
    #[must_use]
    pub fn note_tokens(member: &Member, turn: u32) -> usize {
        member
            .rows
            .iter()
            .flat_map(|row| {
                let spans = row.notes.iter().filter(move |(of, ..)| *of == turn);
                spans.map(|(_, start, end)| {
                    let mask = row.mask.get(*start as usize..*end as usize);
                    mask.unwrap_or_default().iter().filter(|on| **on).count()
                })
            })
            .sum()
    }
}

/// Whether an estimator looks at all groups of a step.
fn compares_groups(estimator: Estimator) -> bool {
    matches!(
        estimator,
        Estimator::Gpg | Estimator::ReinforcePlusPlus(_) | Estimator::ReinforcePlusPlusBaseline
    )
}

/// The group that teaches most: outcomes and memory advantages both differ, the more the better.
fn telling(inputs: &StepInputs) -> usize {
    let score = |group: &Vec<Member>| {
        let spread = |values: Vec<f64>| {
            let low = values.iter().copied().fold(f64::INFINITY, f64::min);
            values.iter().copied().fold(f64::NEG_INFINITY, f64::max) - low
        };
        let outcomes = spread(group.iter().map(|member| member.rewards.outcome).collect());
        let within = group
            .iter()
            .map(|member| {
                spread(
                    member
                        .memory
                        .iter()
                        .map(|of| f64::from(of.advantage))
                        .collect(),
                )
            })
            .filter(|spread| spread.is_finite())
            .fold(0.0, f64::max);
        outcomes.min(1.0) + within.min(2.0)
    };
    let best = inputs
        .groups
        .iter()
        .enumerate()
        .max_by(|a, b| score(a.1).total_cmp(&score(b.1)));
    best.map_or(0, |(at, _)| at)
}

//! What a trajectory is asked.

use std::sync::Arc;

use bevy_ecs::prelude::*;
use serde::{Deserialize, Serialize};

use super::TokenId;

/// One thing that a question asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Objective {
    /// What is asked, as it stands in the question: `capital of Peru`.
    pub key: String,
    /// The right answers, the preferred alias first.
    pub gold: Vec<String>,
}

/// A question with everything its tools and its judge need. Shared by the rollouts of a group.
#[derive(Component, Clone, Debug)]
pub struct Question(pub Arc<QuestionData>);

/// One way to write a sub-answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoldAlias {
    /// Its part of the joined gold answer.
    pub ids: Vec<TokenId>,
    /// What of it has to be found out, without the words that the question gives.
    pub value_ids: Vec<TokenId>,
}

/// The content of a [`Question`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QuestionData {
    /// What is asked, in order.
    pub objectives: Vec<Objective>,
    /// The prompt as text.
    pub text: String,
    /// The prompt as ids: every context begins with them.
    pub prompt_ids: Vec<TokenId>,
    /// The gold answer as it would be written between the answer tags; its ids are what
    /// P(gold | context) is taken over.
    pub gold_text: String,
    /// Ids of `gold_text`.
    pub gold_ids: Vec<TokenId>,
    /// For every objective its aliases, the preferred one first; the parts of the preferred ones make
    /// up `gold_ids`. Empty: the gold answer has no parts.
    #[serde(default)]
    pub gold_answers: Vec<Vec<GoldAlias>>,
    /// What stands between the closing memory tag and the first gold token when the gold answer is
    /// scored, e.g. `<think> done</think><answer>`.
    pub answer_prefix_ids: Vec<TokenId>,
    /// The documents that the embedded search tool can find: (exact query, result text).
    pub documents: Vec<(String, String)>,
    /// The parts of the document that the context `chunks` reads, as the policy sees them; empty in
    /// every other context.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chunks: Vec<Vec<TokenId>>,
}

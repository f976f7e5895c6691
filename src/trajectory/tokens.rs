//! Token arithmetic: ids, spans of tags, and rows. Token-in token-out: text is derived from ids,
//! never the reverse.

use serde::{Deserialize, Serialize};

/// A token of the policy's vocabulary.
pub type TokenId = u32;

/// The blocks of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tag {
    /// `<mem>..</mem>`: the notes.
    Mem,
    /// `<think>..</think>`
    Think,
    /// `<search>..</search>`
    Search,
    /// `<access>..</access>`
    Access,
    /// `<answer>..</answer>`
    Answer,
}

impl Tag {
    /// Every tag of the protocol.
    pub const ALL: [Self; 5] = [
        Self::Mem,
        Self::Think,
        Self::Search,
        Self::Access,
        Self::Answer,
    ];

    /// The opening tag.
    #[must_use]
    pub fn open(self) -> &'static str {
        match self {
            Self::Mem => "<mem>",
            Self::Think => "<think>",
            Self::Search => "<search>",
            Self::Access => "<access>",
            Self::Answer => "<answer>",
        }
    }

    /// The closing tag.
    #[must_use]
    pub fn close(self) -> &'static str {
        match self {
            Self::Mem => "</mem>",
            Self::Think => "</think>",
            Self::Search => "</search>",
            Self::Access => "</access>",
            Self::Answer => "</answer>",
        }
    }
}

/// Where a block stands in a list of ids. A token that holds part of a tag and part of the content
/// belongs to both ranges' outer side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Which block.
    pub tag: Tag,
    /// First token, that of the opening tag.
    pub start: u32,
    /// One past the last token, that of the closing tag.
    pub end: u32,
    /// First token of the content.
    pub inner_start: u32,
    /// One past the last token of the content.
    pub inner_end: u32,
}

/// One training row: a context and what was sampled in it. The full context gives one row a
/// trajectory, the deployed context one row a turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Prompt, turns and tool results.
    pub ids: Vec<TokenId>,
    /// Response mask: true where the policy sampled the id. Length of `ids`.
    pub mask: Vec<bool>,
    /// Sampled log-probs, 0 where the mask is false. Length of `ids`.
    pub logprobs: Vec<f32>,
    /// The turn each id was sampled in or belongs to; prompt ids carry 0. Length of `ids`.
    pub turn: Vec<u32>,
    /// Notes written in this row: (turn, first token of `<mem>`, one past `</mem>`).
    pub notes: Vec<(u32, u32, u32)>,
}

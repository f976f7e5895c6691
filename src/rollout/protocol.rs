//! The protocol of a turn: `<mem>..</mem><think>..</think>` and then exactly one of
//! `<search>..</search>`, `<access>..</access>`, `<answer>..</answer>`.
//!
//! A turn is parsed on the decoded bytes of its ids, and every span is given back as token ranges, so
//! that a tag may be one special token or cross several ordinary ones. Where a context has no notes
//! (ReAct, MEM1) a turn is a thought and an action; where it reads a document it is notes alone, and a
//! thought and the answer after the last part. The rules have names; they are described for users in
//! `docs/protocol.md`.

use super::TurnForm;
use crate::trajectory::{Action, FormatRule, Span, Tag, TokenId};

/// Tags that may stand in a context but never inside a block that the policy writes.
const RESERVED: [&str; 4] = ["<tool>", "</tool>", "<q>", "</q>"];

/// Stop strings of a turn: the closing tag of every action. They stay in the ids.
#[must_use]
pub fn stop_strings() -> Vec<String> {
    [Tag::Search, Tag::Access, Tag::Answer]
        .iter()
        .map(|tag| tag.close().to_owned())
        .collect()
}

/// Stop strings of a turn that only reads.
#[must_use]
pub fn reading_stop_strings() -> Vec<String> {
    vec![Tag::Mem.close().to_owned()]
}

/// What a turn turned out to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedTurn {
    /// The blocks found before the first broken rule, in order.
    pub spans: Vec<Span>,
    /// What the turn asks for; none if a rule was broken, or the turn only reads.
    pub action: Option<Action>,
    /// The first rule that was broken.
    pub broken: Option<FormatRule>,
}

/// Parses the ids of one turn, forced ids included. `bytes_of` gives the bytes that an id adds to
/// the text.
#[must_use]
pub fn parse_turn<'a>(
    ids: &[TokenId],
    form: TurnForm,
    bytes_of: impl Fn(TokenId) -> &'a [u8],
) -> ParsedTurn {
    let mut text = Vec::new();
    // starts[i] is the first byte of token i; one more entry for the end.
    let mut starts = Vec::with_capacity(ids.len() + 1);
    for &id in ids {
        starts.push(text.len());
        text.extend_from_slice(bytes_of(id));
    }
    starts.push(text.len());
    let mut parser = Parser {
        text: &text,
        starts: &starts,
        at: 0,
        spans: Vec::new(),
    };
    let outcome = parser.turn(form);
    let spans = parser.spans;
    match outcome {
        Ok(action) => ParsedTurn {
            spans,
            action,
            broken: None,
        },
        Err(rule) => ParsedTurn {
            spans,
            action: None,
            broken: Some(rule),
        },
    }
}

struct Parser<'a> {
    text: &'a [u8],
    starts: &'a [usize],
    at: usize,
    spans: Vec<Span>,
}

impl Parser<'_> {
    fn turn(&mut self, form: TurnForm) -> Result<Option<Action>, FormatRule> {
        self.skip_white();
        if matches!(form, TurnForm::Noted | TurnForm::Reading) {
            if !self.at_tag(Tag::Mem.open()) {
                return Err(FormatRule::MemoryFirst);
            }
            self.block(Tag::Mem, FormatRule::MemoryClosed)?;
            self.skip_white();
        }
        if form == TurnForm::Reading {
            return if self.ended() {
                Ok(None)
            } else {
                Err(FormatRule::NothingBetween)
            };
        }
        if !self.at_tag(Tag::Think.open()) {
            return Err(self.missing(&[Tag::Think], FormatRule::ThinkSecond));
        }
        self.block(Tag::Think, FormatRule::ThinkClosed)?;
        self.skip_white();
        let actions = [Tag::Search, Tag::Access, Tag::Answer];
        let allowed = match form {
            TurnForm::Answering => &actions[2..],
            _ => &actions[..],
        };
        let Some(&tag) = allowed.iter().find(|tag| self.at_tag(tag.open())) else {
            return Err(self.missing(allowed, FormatRule::OneAction));
        };
        let content = self.block(tag, FormatRule::ActionClosed)?;
        if !self.ended() {
            let another = actions
                .iter()
                .any(|tag| find(&self.text[self.at..], tag.open()).is_some());
            return Err(if another {
                FormatRule::OneAction
            } else {
                FormatRule::ActionClosed
            });
        }
        let content = String::from_utf8_lossy(&content).into_owned();
        Ok(Some(match tag {
            Tag::Search => Action::Search(content),
            Tag::Access => Action::Access(content),
            _ => Action::Answer(content),
        }))
    }

    /// Which rule is broken when none of `wanted` stands here: text in between, or no such block.
    fn missing(&self, wanted: &[Tag], rule: FormatRule) -> FormatRule {
        let rest = &self.text[self.at..];
        let next_tag = Tag::ALL
            .iter()
            .filter_map(|tag| find(rest, tag.open()).map(|at| (at, *tag)))
            .min();
        match next_tag {
            Some((_, tag)) if wanted.contains(&tag) => FormatRule::NothingBetween,
            _ => rule,
        }
    }

    /// Reads one block whose opening tag stands here and keeps its span.
    fn block(&mut self, tag: Tag, unclosed: FormatRule) -> Result<Vec<u8>, FormatRule> {
        let outer = self.at;
        let inner = outer + tag.open().len();
        let Some(length) = find(&self.text[inner..], tag.close()) else {
            return Err(if nested(&self.text[inner..]) {
                FormatRule::NoNestedTags
            } else {
                unclosed
            });
        };
        let inner_end = inner + length;
        if nested(&self.text[inner..inner_end]) {
            return Err(FormatRule::NoNestedTags);
        }
        self.at = inner_end + tag.close().len();
        self.spans.push(Span {
            tag,
            start: self.token_holding(outer),
            end: self.token_holding(self.at - 1) + 1,
            inner_start: self.first_token_from(inner),
            inner_end: self
                .first_token_from(inner_end + 1)
                .saturating_sub(1)
                .max(self.first_token_from(inner)),
        });
        Ok(self.text[inner..inner_end].to_vec())
    }

    fn at_tag(&self, tag: &str) -> bool {
        self.text[self.at..].starts_with(tag.as_bytes())
    }

    fn skip_white(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    /// Whether nothing follows. Generation stops with the token that completes the last tag, and that
    /// token may hold a piece of what would have come next (`><`): such a rest is no text of the turn.
    fn ended(&mut self) -> bool {
        let closed_by = self.token_holding(self.at.saturating_sub(1)) as usize;
        self.skip_white();
        self.at == self.text.len() || closed_by + 2 == self.starts.len()
    }

    /// The token that holds byte `at`.
    fn token_holding(&self, at: usize) -> u32 {
        (self
            .starts
            .partition_point(|&start| start <= at)
            .saturating_sub(1)) as u32
    }

    /// The first token that begins at byte `at` or later.
    fn first_token_from(&self, at: usize) -> u32 {
        (self
            .starts
            .partition_point(|&start| start < at)
            .min(self.starts.len() - 1)) as u32
    }
}

fn nested(content: &[u8]) -> bool {
    let tags = Tag::ALL.iter().flat_map(|tag| [tag.open(), tag.close()]);
    tags.chain(RESERVED).any(|tag| find(content, tag).is_some())
}

fn find(haystack: &[u8], needle: &str) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle.as_bytes())
}

#[cfg(test)]
mod tests;

//! How facts are put into words. Everything is composed of ids and cut at word boundaries, so that
//! a text has the same ids whether a script, a tool or the policy wrote it.

use crate::tokenizer::TextTokenizer;
use crate::trajectory::TokenId;

/// A few ids: a name, a relation, a value, a phrase.
pub(super) type Ids = Vec<TokenId>;

/// One fact about one entity. Every part begins with a space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fact {
    pub(super) relation: Ids,
    pub(super) entity: Ids,
    pub(super) value: Ids,
}

/// The fixed phrases.
#[derive(Debug)]
pub(super) struct Phrases {
    /// `<q>`
    pub(super) question: Ids,
    /// `</q>`
    pub(super) question_end: Ids,
    /// `<mem>`
    pub(super) notes: Ids,
    /// `</mem>`
    pub(super) notes_end: Ids,
    /// `<think> next</think><search>`
    pub(super) search: Ids,
    /// `</search>`
    pub(super) search_end: Ids,
    /// `<think> done</think>`
    pub(super) done: Ids,
    /// `<think> done</think><answer>`
    pub(super) answer: Ids,
    /// `</answer>`
    pub(super) answer_end: Ids,
    /// `<tool>`
    pub(super) tool: Ids,
    /// `</tool>`
    pub(super) tool_end: Ids,
    /// ` The`
    pub(super) the: Ids,
    /// ` of`
    of: Ids,
    /// ` is`
    is: Ids,
    /// ` =`
    equals: Ids,
    /// `.`
    stop: Ids,
    /// `;`
    pub(super) semicolon: Ids,
}

impl Phrases {
    pub(super) fn new(tokenizer: &TextTokenizer) -> Self {
        let ids = |text: &str| tokenizer.encode(text);
        Self {
            question: ids("<q>"),
            question_end: ids("</q>"),
            notes: ids("<mem>"),
            notes_end: ids("</mem>"),
            search: ids("<think> next</think><search>"),
            search_end: ids("</search>"),
            done: ids("<think> done</think>"),
            answer: ids("<think> done</think><answer>"),
            answer_end: ids("</answer>"),
            tool: ids("<tool>"),
            tool_end: ids("</tool>"),
            the: ids(" The"),
            of: ids(" of"),
            is: ids(" is"),
            equals: ids(" ="),
            stop: ids("."),
            semicolon: ids(";"),
        }
    }

    /// ` capital of Peru`
    pub(super) fn key(&self, fact: &Fact) -> Ids {
        [&fact.relation[..], &self.of, &fact.entity].concat()
    }

    /// ` The capital of Peru is Lima.`
    pub(super) fn sentence(&self, fact: &Fact) -> Ids {
        [
            &self.the[..],
            &self.key(fact),
            &self.is,
            &fact.value,
            &self.stop,
        ]
        .concat()
    }

    /// ` capital of Peru =`: what of a note can be known from the question alone.
    pub(super) fn note_key(&self, fact: &Fact) -> Ids {
        [&self.key(fact)[..], &self.equals].concat()
    }

    /// ` capital of Peru = Lima;`
    pub(super) fn note(&self, fact: &Fact) -> Ids {
        [&self.note_key(fact)[..], &fact.value, &self.semicolon].concat()
    }

    /// Whether ` name` keeps its ids between all the neighbours it can have.
    pub(super) fn keeps_its_ids(
        &self,
        tokenizer: &TextTokenizer,
        name: &str,
        ids: &[TokenId],
    ) -> bool {
        let text = format!(" of {name} is {name}. = {name}; of {name}</q>");
        let pieces: [&[TokenId]; 11] = [
            &self.of,
            ids,
            &self.is,
            ids,
            &self.stop,
            &self.equals,
            ids,
            &self.semicolon,
            &self.of,
            ids,
            &self.question_end,
        ];
        tokenizer.encode(&text) == pieces.concat()
    }
}

//! From drawn facts to a question: prompt, gold answer and the documents its tools can find.

use crate::tokenizer::TextTokenizer;
use crate::trajectory::{GoldAlias, Objective, QuestionData};

use super::draft::Asked;
use super::phrases::{Fact, Ids, Phrases};

/// The page of an entity has this before the entity's name among the documents of a question.
pub const PAGE_PREFIX: &str = "page:";

/// `<q> capital of Peru; symbol of iron</q>`
pub(super) fn prompt(phrases: &Phrases, asked: &[Asked]) -> Ids {
    let keys: Vec<Ids> = asked.iter().map(|a| phrases.key(&a.fact)).collect();
    let list = keys.join(&phrases.semicolon[..]);
    [&phrases.question[..], &list, &phrases.question_end].concat()
}

/// ` capital of Peru = Lima; symbol of iron = Fe;`
pub(super) fn gold(phrases: &Phrases, asked: &[Asked]) -> Ids {
    asked.iter().flat_map(|a| phrases.note(&a.fact)).collect()
}

/// What the search for one objective brings: its fact and the distractor, in the drawn order.
pub(super) fn result(phrases: &Phrases, asked: &Asked) -> Ids {
    let fact = phrases.sentence(&asked.fact);
    let Some(distractor) = &asked.distractor else {
        return fact;
    };
    let distractor = phrases.sentence(distractor);
    if asked.fact_first {
        [fact, distractor].concat()
    } else {
        [distractor, fact].concat()
    }
}

/// The question in the words and ids that all other folders see.
pub(super) fn compose(
    phrases: &Phrases,
    tokenizer: &TextTokenizer,
    asked: &[Asked],
) -> QuestionData {
    let words = |ids: &[u32]| tokenizer.decode(ids).trim().to_owned();
    let objectives = asked
        .iter()
        .map(|a| Objective {
            key: words(&phrases.key(&a.fact)),
            gold: vec![words(&a.fact.value)],
        })
        .collect();
    let prompt_ids = prompt(phrases, asked);
    let gold_ids = gold(phrases, asked);
    let searches = asked
        .iter()
        .map(|a| (words(&phrases.key(&a.fact)), words(&result(phrases, a))));
    let page = |fact: &Fact| {
        let name = words(&fact.entity);
        (
            format!("{PAGE_PREFIX}{name}"),
            words(&phrases.sentence(fact)),
        )
    };
    let facts = asked
        .iter()
        .map(|a| &a.fact)
        .chain(asked.iter().filter_map(|a| a.distractor.as_ref()));
    QuestionData {
        objectives,
        text: tokenizer.decode(&prompt_ids),
        prompt_ids,
        gold_text: tokenizer.decode(&gold_ids),
        gold_ids,
        gold_answers: asked
            .iter()
            .map(|a| {
                vec![GoldAlias {
                    ids: phrases.note(&a.fact),
                    value_ids: a.fact.value.clone(),
                }]
            })
            .collect(),
        answer_prefix_ids: phrases.answer.clone(),
        // Every entity of a question, distractors too, is drawn once: a page has one sentence.
        documents: searches.chain(facts.map(page)).collect(),
        chunks: Vec::new(),
    }
}

//! What the policy is told before a question: the protocol in words, and a worked example.

use crate::experiment::ContextKind;

/// What the policy is told before the question, if it is told.
const NOTED: &str = "Answer the question. In every turn write all that you know so far between \
<mem> and </mem>, then what to do next between <think> and </think>, then exactly one of: a search \
between <search> and </search>, the address of a page to read between <access> and </access>, or the \
answer between <answer> and </answer>. You may not see earlier turns again: what is not in your notes \
is lost. Several questions are parted by \";\": answer all of them in order, parted by \";\".\n";

/// The same for turns without notes, of which all stay in view (ReAct).
const BARE: &str = "Answer the question. In every turn write what to do next between <think> and \
</think>, then exactly one of: a search between <search> and </search>, the address of a page to read \
between <access> and </access>, or the answer between <answer> and </answer>. Several questions are \
parted by \";\": answer all of them in order, parted by \";\".\n";

/// The same for turns whose thought is the only memory (MEM1).
const ONE_STATE: &str = "Answer the question. In every turn write all that you know so far and what to \
do next between <think> and </think>, then exactly one of: a search between <search> and </search>, the \
address of a page to read between <access> and </access>, or the answer between <answer> and </answer>. \
You will see only your last turn and its result again: what is not in your last thought is lost. \
Several questions are parted by \";\": answer all of them in order, parted by \";\".\n";

/// The same for reading a document in parts (MemAgent).
const READING: &str = "Answer the question from a text that you read in parts. After every part write \
between <mem> and </mem> all that you know so far that helps to answer: only these notes are kept. When \
no part follows, think between <think> and </think>, then write the answer between <answer> and \
</answer>. Several questions are parted by \";\": answer all of them in order, parted by \";\".\n";

/// What the policy is told in a context.
pub(super) fn instructions(context: ContextKind) -> &'static str {
    match context {
        ContextKind::NoNotes => BARE,
        ContextKind::Mem1 => ONE_STATE,
        ContextKind::Chunks => READING,
        _ => NOTED,
    }
}

/// Whether a context is told something else than most.
pub(super) fn has_its_own_words(context: ContextKind) -> bool {
    instructions(context) != NOTED
}

/// A worked question: what a turn writes, and what comes back.
const EXAMPLE: [(&str, &str, &str); 3] = [
    (
        " nothing yet",
        " I need the composer of Fidelio.</think><search>composer of Fidelio born</search>",
        "<tool> Doc 1(Title: \"Fidelio\") Fidelio is an opera by Beethoven, who was born in Bonn.</tool>",
    ),
    (
        " Fidelio is by Beethoven, born in Bonn",
        " Which river is in Bonn?</think><search>river in Bonn</search>",
        "<tool> Doc 1(Title: \"Bonn\") Bonn is a city on the Rhine.</tool>",
    ),
    (
        " Fidelio is by Beethoven, born in Bonn; Bonn is on the Rhine",
        " That is all.</think><answer>the Rhine</answer>",
        "",
    ),
];

/// The example in the form of a context; none for reading, whose turns differ.
pub(super) fn example(context: ContextKind) -> String {
    if context == ContextKind::Chunks {
        return String::new();
    }
    let turn = |(notes, rest, result): (&str, &str, &str)| {
        if context.has_notes() {
            format!("<mem>{notes}</mem><think>{rest}{result}")
        } else {
            // The thought has to say what the notes would.
            format!("<think>{notes};{rest}{result}")
        }
    };
    let turns: String = EXAMPLE.into_iter().map(turn).collect();
    format!(
        "For example: <q> Which river flows through the city where the composer of Fidelio was born?</q>{turns}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_keeps_the_form_of_its_context() {
        let noted = example(ContextKind::Deployed);
        assert_eq!(noted.matches("<mem>").count(), 3);
        assert_eq!(noted.matches("</think><search>").count(), 2);
        let bare = example(ContextKind::NoNotes);
        assert!(!bare.contains("mem>") && bare.contains("<think> nothing yet; I need"));
        assert_eq!(example(ContextKind::Chunks), "");
    }
}

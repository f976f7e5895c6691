//! Cutting a tool result to a number of characters, or of tokens.

use crate::experiment::KeptSide;
use crate::tokenizer::TextTokenizer;

/// Cuts a tool result to `limit` characters and says so, in verl's words. 0 = no limit. verl names
/// the sides by where it cuts last: its `left` keeps the head, its `right` the tail.
#[must_use]
pub fn limit_text(text: &str, limit: usize, kept: KeptSide) -> String {
    let length = text.chars().count();
    if limit == 0 || length <= limit {
        return text.to_owned();
    }
    let head = |count: usize| -> String { text.chars().take(count).collect() };
    let tail = |count: usize| -> String { text.chars().skip(length - count).collect() };
    match kept {
        KeptSide::Head => format!("{}...(truncated)", head(limit)),
        KeptSide::Tail => format!("(truncated)...{}", tail(limit)),
        KeptSide::Ends => format!("{}...(truncated)...{}", head(limit / 2), tail(limit / 2)),
    }
}

/// Cuts a tool result to `limit` tokens, its mark included, and says so as [`limit_text`] does.
/// 0 = no limit. Nothing is left where not even the mark fits.
#[must_use]
pub fn limit_tokens(tokenizer: &TextTokenizer, text: &str, limit: usize, kept: KeptSide) -> String {
    let ids = tokenizer.encode(text);
    if limit == 0 || ids.len() <= limit {
        return text.to_owned();
    }
    // A cut may fall inside a letter.
    let text_of = |from: usize, to: usize| -> String {
        let text = tokenizer.decode(ids.get(from..to).unwrap_or(&[]));
        text.trim_matches('\u{fffd}').to_owned()
    };
    let (all, mark) = (ids.len(), "...(truncated)...");
    // The mark takes tokens too, and cut words may take others than before: as many are kept as fit.
    (0..=limit)
        .rev()
        .map(|keep| match kept {
            KeptSide::Head => format!("{}...(truncated)", text_of(0, keep)),
            KeptSide::Tail => format!("(truncated)...{}", text_of(all - keep, all)),
            KeptSide::Ends => {
                let half = keep / 2;
                [text_of(0, half), mark.to_owned(), text_of(all - half, all)].concat()
            }
        })
        .find(|cut| tokenizer.encode(cut).len() <= limit)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Task as _;
    use crate::task::lookup::LookupTask;

    #[test]
    fn tokens_are_never_more_than_the_limit_and_the_named_side_is_kept() {
        let task = LookupTask::shipped().unwrap();
        let tokenizer = task.tokenizer();
        let text = "The capital of Peru is Lima. Zürich! ".repeat(20);
        let length = tokenizer.encode(&text).len();
        assert_eq!(limit_tokens(tokenizer, &text, length, KeptSide::Head), text);
        assert_eq!(limit_tokens(tokenizer, &text, 0, KeptSide::Head), text);
        for limit in [1, 12, 40, length - 1] {
            for kept in [KeptSide::Head, KeptSide::Tail, KeptSide::Ends] {
                let cut = limit_tokens(tokenizer, &text, limit, kept);
                assert!(tokenizer.encode(&cut).len() <= limit, "{limit} {kept:?}");
            }
        }
        let head = limit_tokens(tokenizer, &text, 60, KeptSide::Head);
        assert!(head.starts_with("The capital of Peru is") && head.ends_with("...(truncated)"));
        let tail = limit_tokens(tokenizer, &text, 60, KeptSide::Tail);
        assert!(tail.starts_with("(truncated)...") && tail.ends_with("Zürich! "));
    }

    #[test]
    fn a_long_result_keeps_the_side_that_is_named() {
        for (text, limit, kept, expected) in [
            ("abcdef", 4, KeptSide::Head, "abcd...(truncated)"),
            ("abcdef", 4, KeptSide::Tail, "(truncated)...cdef"),
            ("abcdef", 5, KeptSide::Ends, "ab...(truncated)...ef"),
            ("äöü", 2, KeptSide::Tail, "(truncated)...öü"),
            ("abcd", 4, KeptSide::Head, "abcd"),
            ("abcd", 0, KeptSide::Tail, "abcd"),
        ] {
            assert_eq!(limit_text(text, limit, kept), expected, "{text} {limit}");
        }
    }
}

//! Cutting a tool result to a number of characters.

use crate::experiment::KeptSide;

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

#[cfg(test)]
mod tests {
    use super::*;

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

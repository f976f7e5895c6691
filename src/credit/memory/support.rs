//! Whether what the notes say was seen (W6): writing down a guess scores well, because the policy
//! scores itself. A gain is unsupported if the tokens of the answer stand in the notes and in no
//! observation so far (the question and the tool results of earlier rounds). Such a gain is withheld;
//! a loss is not. Our derivation; MGPO and InfoMem name the leak.

use crate::trajectory::TokenId;

/// Whether `wanted` stands in `text`, one token after the other. Nothing stands everywhere.
#[must_use]
pub fn stands_in(wanted: &[TokenId], text: &[TokenId]) -> bool {
    wanted.is_empty() || text.windows(wanted.len()).any(|window| window == wanted)
}

/// Whether an answer that the notes hold was shown by some observation. True if they do not hold it,
/// and for an answer without tokens.
#[must_use]
pub fn supported(answer: &[TokenId], notes: &[TokenId], observations: &[&[TokenId]]) -> bool {
    answer.is_empty()
        || !stands_in(answer, notes)
        || observations.iter().any(|seen| stands_in(answer, seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_that_was_written_and_never_shown_is_unsupported() {
        let (shown, hidden): (&[TokenId], &[TokenId]) = (&[1, 7, 8, 2], &[1, 7, 2, 8]);
        for (notes, seen, expected) in [
            (&[4, 7, 8, 5][..], shown, true),
            (&[4, 7, 8, 5], hidden, false),
            (&[4, 7, 5, 8], hidden, true),
            (&[], hidden, true),
        ] {
            assert_eq!(
                supported(&[7, 8], notes, &[&[9], seen]),
                expected,
                "{notes:?}"
            );
        }
        assert!(supported(&[], &[1], &[]));
        assert!(!supported(&[1], &[1], &[]));
    }
}

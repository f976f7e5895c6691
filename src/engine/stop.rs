//! Stop strings, matched on the decoded bytes as they arrive, also where they cross tokens.

use std::sync::Arc;

/// Watches the bytes of one turn for the first of several strings. Keeps only as many bytes as the
/// longest string needs.
#[derive(Clone, Debug)]
pub struct StopMatcher {
    stops: Arc<[String]>,
    longest: usize,
    tail: Vec<u8>,
}

impl StopMatcher {
    /// Watches for `stops`; empty strings never match.
    #[must_use]
    pub fn new(stops: &Arc<[String]>) -> Self {
        Self {
            stops: Arc::clone(stops),
            longest: stops.iter().map(String::len).max().unwrap_or(0),
            tail: Vec::new(),
        }
    }

    /// Adds the bytes of one token; says whether a stop string is now complete.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        self.tail.extend_from_slice(bytes);
        // A string is complete only now if its last byte is new; few tokens hold one.
        let found = self.stops.iter().any(|stop| {
            let last = stop.as_bytes().last();
            last.is_some_and(|last| bytes.contains(last))
                && self.tail.windows(stop.len()).any(|w| w == stop.as_bytes())
        });
        let surplus = self
            .tail
            .len()
            .saturating_sub(self.longest.saturating_sub(1));
        self.tail.drain(..surplus);
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The bytes of a text cut at random places, also inside characters; some pieces are empty.
    fn pieces() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let letters = prop::sample::select(vec!["<", "/", "a", "b", ">", "é", "☃", "\u{1F980}"]);
        let text = prop::collection::vec(letters, 0..40);
        (text, prop::collection::vec(0usize..5, 1..30)).prop_map(|(text, sizes)| {
            let bytes = text.concat().into_bytes();
            let (mut rest, mut pieces) = (&bytes[..], Vec::new());
            for size in sizes.iter().cycle().take(400) {
                let (piece, after) = rest.split_at((*size).min(rest.len()));
                pieces.push(piece.to_vec());
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            pieces
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]
        #[test]
        fn tokens_end_a_turn_exactly_where_the_decoded_text_first_holds_a_stop_string(
            pieces in pieces(),
            stops in prop::collection::vec("[</ab>é☃]{0,4}", 0..4),
        ) {
            let mut matcher = StopMatcher::new(&stops.clone().into());
            let found = pieces.iter().position(|piece| matcher.push(piece));
            let mut whole = Vec::new();
            let expected = pieces.iter().position(|piece| {
                whole.extend_from_slice(piece);
                // Bytes, as a piece may end inside a character.
                stops.iter().any(|stop| {
                    !stop.is_empty() && whole.windows(stop.len()).any(|w| w == stop.as_bytes())
                })
            });
            prop_assert_eq!(found, expected, "{:?} in {:?}", stops, pieces);
        }
    }

    /// Number of the token that completes a stop string.
    fn stops_at(stops: &[&str], tokens: &[&str]) -> Option<usize> {
        let stops: Arc<[String]> = stops.iter().map(|&s| s.to_owned()).collect();
        let mut matcher = StopMatcher::new(&stops);
        tokens
            .iter()
            .position(|token| matcher.push(token.as_bytes()))
    }

    #[test]
    fn a_stop_string_is_found_where_it_is_complete() {
        for (stops, tokens, expected) in [
            (&["</a>"][..], &["x", "</a>", "y"][..], Some(1)),
            (&["</a>"], &["x<", "/", "a", "> y"], Some(3)),
            (&["</a>"], &["in </a> side"], Some(0)),
            (&["</a>", "</b>"], &["<", "/b", ">"], Some(2)),
            (&["aab"], &["a", "a", "a", "b"], Some(3)),
            (
                &["long stop", "x"],
                &["lo", "ng", " ", "st", "o", "p"],
                Some(5),
            ),
            (&["</a>"], &["<", "", "/a", ">"], Some(3)),
            (&["</a>"], &["</a", "a>"], None),
            (&[""], &["", "a"], None),
            (&[], &["a"], None),
        ] {
            assert_eq!(stops_at(stops, tokens), expected, "{stops:?} in {tokens:?}");
        }
    }

    #[test]
    fn a_match_is_not_reported_twice() {
        let stops = Arc::from(["ab".to_owned()]);
        let mut matcher = StopMatcher::new(&stops);
        assert!(matcher.push(b"ab"));
        assert!(!matcher.push(b"c"));
    }

    #[test]
    fn halves_of_a_character_are_matched_as_bytes() {
        let stops = Arc::from(["é".to_owned()]);
        let mut matcher = StopMatcher::new(&stops);
        assert!(!matcher.push(&[0xc3]));
        assert!(matcher.push(&[0xa9]));
    }
}

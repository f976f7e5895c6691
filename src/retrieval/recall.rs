//! How much of what supports an answer is found.

use std::collections::BTreeSet;

use tokenizers::NormalizedString;

/// A title as titles are compared: letters with their accents as one character where there is one
/// (Unicode's NFC), as some files have them and others do not.
#[must_use]
pub fn same_title(title: &str) -> String {
    if title.is_ascii() {
        return title.to_owned();
    }
    NormalizedString::from(title).nfc().get().to_owned()
}

/// Share of the `wanted` titles among the first `count` found ones; none if nothing is wanted.
#[must_use]
pub fn recall_at(count: usize, found: &[String], wanted: &[String]) -> Option<f64> {
    let wanted: BTreeSet<String> = wanted.iter().map(|title| same_title(title)).collect();
    let found = found.iter().take(count).map(|title| same_title(title));
    let found: BTreeSet<String> = found.collect();
    (!wanted.is_empty()).then(|| wanted.intersection(&found).count() as f64 / wanted.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recall_counts_each_wanted_title_once_and_only_among_the_first() {
        let texts = |list: &[&str]| {
            list.iter()
                .map(|text| (*text).to_owned())
                .collect::<Vec<_>>()
        };
        let found = texts(&["a", "a", "x", "b"]);
        assert_eq!(recall_at(2, &found, &texts(&["a", "b"])), Some(0.5));
        assert_eq!(recall_at(4, &found, &texts(&["a", "b", "b"])), Some(1.0));
        assert_eq!(recall_at(4, &found, &[]), None);
        let zurich = texts(&["Zu\u{308}rich"]);
        assert_eq!(recall_at(1, &zurich, &texts(&["Z\u{fc}rich"])), Some(1.0));
        assert_eq!(recall_at(1, &zurich, &texts(&["Zurich"])), Some(0.0));
    }
}

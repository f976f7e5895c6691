//! How much of what supports an answer is found.

use std::collections::BTreeSet;

/// Share of the `wanted` titles among the first `count` found ones; none if nothing is wanted.
#[must_use]
pub fn recall_at(count: usize, found: &[String], wanted: &[String]) -> Option<f64> {
    let wanted: BTreeSet<&str> = wanted.iter().map(String::as_str).collect();
    let found: BTreeSet<&str> = found.iter().take(count).map(String::as_str).collect();
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
    }
}

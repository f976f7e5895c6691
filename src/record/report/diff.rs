//! What changed between two notes: word by word, or fact by fact where they are lists of facts.

use serde::Serialize;

/// More words than this are shown without comparing.
const MOST_WORDS: usize = 600;

/// A stretch of text that was kept, added or removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Piece {
    /// `kept`, `added` or `removed`.
    pub kind: &'static str,
    pub text: String,
}

/// The pieces that turn `old` into `new`, by the longest common run of words.
pub(crate) fn diff(old: &str, new: &str) -> Vec<Piece> {
    compare(&words(old), &words(new))
}

/// The same in whole parts, `key = value;` or a line each: a part is kept or it is not. Notes without
/// such parts are compared by words.
#[cfg(any(feature = "gui", test))]
pub(crate) fn diff_parts(old: &str, new: &str) -> Vec<Piece> {
    let lists = |text: &str| text.contains([';', '\n']);
    if !lists(old) && !lists(new) {
        return diff(old, new);
    }
    compare(&parts(old), &parts(new))
}

fn compare(old: &[&str], new: &[&str]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    if old.is_empty() || old.len().max(new.len()) > MOST_WORDS {
        let kind = if old.is_empty() { "added" } else { "kept" };
        push(&mut pieces, kind, &new.concat());
        return pieces;
    }
    let common = common_lengths(old, new);
    let length = |i: usize, j: usize| common.get(i).and_then(|row| row.get(j)).copied();
    let (mut i, mut j) = (0, 0);
    loop {
        match (old.get(i), new.get(j)) {
            (Some(a), Some(b)) if same(a, b) => {
                push(&mut pieces, "kept", b);
                i += 1;
                j += 1;
            }
            (Some(a), other) if other.is_none() || length(i + 1, j) >= length(i, j + 1) => {
                push(&mut pieces, "removed", a);
                i += 1;
            }
            (_, Some(b)) => {
                push(&mut pieces, "added", b);
                j += 1;
            }
            (_, None) => return pieces,
        }
    }
}

/// `[i][j]` is the length of the longest common run of `old[i..]` and `new[j..]`.
fn common_lengths(old: &[&str], new: &[&str]) -> Vec<Vec<usize>> {
    let mut below = vec![0; new.len() + 1];
    let mut rows = vec![below.clone()];
    for a in old.iter().rev() {
        let mut row = vec![0; new.len() + 1];
        let mut right = 0;
        for (j, b) in new.iter().enumerate().rev() {
            let down = below.get(j).copied().unwrap_or(0);
            let across = below.get(j + 1).copied().unwrap_or(0);
            right = if same(a, b) {
                across + 1
            } else {
                down.max(right)
            };
            if let Some(cell) = row.get_mut(j) {
                *cell = right;
            }
        }
        below.clone_from(&row);
        rows.push(row);
    }
    rows.reverse();
    rows
}

/// Words with the white space that follows them.
fn words(text: &str) -> Vec<&str> {
    text.split_inclusive(char::is_whitespace).collect()
}

/// Parts with what ends them.
#[cfg(any(feature = "gui", test))]
fn parts(text: &str) -> Vec<&str> {
    text.split_inclusive([';', '\n']).collect()
}

/// Whether two words or parts say the same: white space, and the mark that ends a part, do not count.
fn same(a: &str, b: &str) -> bool {
    bare(a) == bare(b)
}

fn bare(text: &str) -> &str {
    text.trim().trim_end_matches(';').trim_end()
}

fn push(pieces: &mut Vec<Piece>, kind: &'static str, text: &str) {
    match pieces.last_mut() {
        Some(last) if last.kind == kind => last.text.push_str(text),
        _ if text.is_empty() => {}
        _ => pieces.push(Piece {
            kind,
            text: text.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(old: &str, new: &str) -> String {
        let mark = |p: &Piece| match p.kind {
            "added" => format!("[+{}]", p.text),
            "removed" => format!("[-{}]", p.text),
            _ => p.text.clone(),
        };
        diff(old, new).iter().map(mark).collect()
    }

    #[test]
    fn words_that_stay_are_kept_and_the_rest_is_told_apart() {
        assert_eq!(show("", "a b"), "[+a b]");
        assert_eq!(show("a b", ""), "[-a b]");
        assert_eq!(show("a b c", "a x c d"), "a [-b ][+x ]c [+d]");
        assert_eq!(show("same words", "same words"), "same words");
    }

    #[test]
    fn facts_are_kept_or_lost_as_a_whole() {
        let kinds = |old: &str, new: &str| -> Vec<(&'static str, String)> {
            let pieces = diff_parts(old, new);
            pieces.into_iter().map(|p| (p.kind, p.text)).collect()
        };
        let old = "capital of Peru = Lima; region of Costa Rica = Limon;";
        let new = "capital of Peru = Lima; region of Chad = Limon";
        assert_eq!(
            kinds(old, new),
            [
                ("kept", "capital of Peru = Lima;".to_owned()),
                ("removed", " region of Costa Rica = Limon;".to_owned()),
                ("added", " region of Chad = Limon".to_owned()),
            ]
        );
        // The last part may lack its mark, and is the same part.
        assert_eq!(kinds("a = 1;", "a = 1")[0].0, "kept");
        assert_eq!(diff_parts("a b c", "a x c"), diff("a b c", "a x c"));
    }
}

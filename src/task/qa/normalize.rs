//! Text as the question-answering metrics see it. The peers are written in Python, so white space,
//! word boundaries and lower case are Python's.

/// Python's white space: Unicode's, and the separators U+001C to U+001F.
#[must_use]
pub fn is_space(letter: char) -> bool {
    letter.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&letter)
}

/// SQuAD's normalisation, as Search-R1, verl and ASearcher use it for EM: lower case; ASCII
/// punctuation deleted; the whole words `a`, `an`, `the` deleted; white space collapsed.
#[must_use]
pub fn normalize_answer(text: &str) -> String {
    let bare: String = text
        .to_lowercase()
        .chars()
        .filter(|letter| !letter.is_ascii_punctuation())
        .collect();
    collapse(&without_articles(&bare))
}

/// The normalisation of ASearcher's and MEM1's F1: lower case, ASCII punctuation becomes a space,
/// white space collapsed. Articles stay.
#[must_use]
pub fn spaced_words(text: &str) -> String {
    let spaced: String = text
        .to_lowercase()
        .chars()
        .map(|letter| {
            if letter.is_ascii_punctuation() {
                ' '
            } else {
                letter
            }
        })
        .collect();
    collapse(&spaced)
}

/// ASearcher's reading of truth values: exactly `True` is `yes`, exactly `False` is `no`.
#[must_use]
pub fn truth_as_yes_no(text: &str) -> &str {
    match text {
        "True" => "yes",
        "False" => "no",
        _ => text,
    }
}

fn collapse(text: &str) -> String {
    let words: Vec<&str> = text
        .split(is_space)
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ")
}

/// Each whole word `a`, `an` or `the` becomes a space. A word is a longest run of letters, digits
/// and underscores.
fn without_articles(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let word = rest.find(|letter| !in_word(letter)).unwrap_or(rest.len());
        let (head, tail) = rest.split_at(word);
        match head {
            "a" | "an" | "the" => kept.push(' '),
            _ => kept.push_str(head),
        }
        let gap = tail.find(in_word).unwrap_or(tail.len());
        let (between, next) = tail.split_at(gap);
        kept.push_str(between);
        rest = next;
    }
    kept
}

fn in_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

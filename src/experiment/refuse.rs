//! The ways in which a piece of an experiment file can be refused.

use super::finding::nearest;
use super::reader::{self, Reader};
use super::setting::{Setting, Shape, join};

/// The value is of the wrong kind.
pub(super) fn value<T: Setting>(
    current: &T,
    path: &str,
    raw: &str,
    rule: &str,
    reader: &mut Reader<'_>,
) {
    let mut kept = String::new();
    current.write(&mut kept, "");
    reader.refuse(
        path,
        raw,
        format!("{path} {}", excerpt(raw)),
        None,
        rule,
        format!("passed over, it would stay at {}", excerpt(&kept)),
    );
}

/// Settings in round brackets were expected.
pub(super) fn structure<T: Setting>(
    current: &T,
    path: &str,
    raw: &str,
    presets: &[&str],
    reader: &mut Reader<'_>,
) {
    let rule = if presets.is_empty() {
        "settings in round brackets, as ( name: value, ... )".to_owned()
    } else {
        format!(
            "settings in round brackets, as ( name: value, ... ), or a preset, alone or before the brackets: {}",
            presets.join(", ")
        )
    };
    value(current, path, raw, &rule, reader);
}

/// Settings of earlier versions, which old files and run folders name, and what took their place.
const RENAMED: [(&str, &str); 1] = [(
    "learner.micro_batch",
    "learner.micro_tokens (tokens at once, where micro_batch counted rows; without it a run is the same up to rounding)",
)];

/// A name that is no setting.
pub(super) fn name(path: &str, name: &str, part: &str, names: &[&str], reader: &mut Reader<'_>) {
    let group = if path.is_empty() {
        "an experiment"
    } else {
        path
    };
    let whole = join(path, name);
    let renamed = RENAMED.iter().find(|(old, _)| *old == whole);
    reader.refuse(
        &whole,
        part,
        format!("{whole} is no setting"),
        renamed
            .map(|(_, new)| (*new).to_owned())
            .or_else(|| nearest(name, names.iter().copied())),
        format!("{group} has {}", names.join(", ")),
        "it would have no effect",
    );
}

/// A setting that is given twice in the same brackets.
pub(super) fn second(path: &str, name: &str, reader: &mut Reader<'_>) {
    let path = join(path, name);
    reader.refuse(
        &path,
        name,
        format!("{path} is given twice"),
        None,
        "each setting once",
        "which of the two counts would depend on their order",
    );
}

/// A word that is none of the choices.
pub(super) fn word<T: Setting>(
    current: &T,
    path: &str,
    raw: &str,
    word: &str,
    words: &[&str],
    planned: &[(&str, &str)],
    reader: &mut Reader<'_>,
) {
    let available = available(&T::shape());
    if let Some((_, why)) = planned.iter().find(|(planned, _)| *planned == word) {
        return reader.refuse(
            path,
            raw,
            format!("{path} {word} is planned and not built yet"),
            None,
            format!("available: {available}"),
            *why,
        );
    }
    let mut kept = String::new();
    current.write(&mut kept, "");
    reader.refuse(
        path,
        raw,
        format!("{path} {}", excerpt(raw)),
        nearest(word, words.iter().copied()),
        format!("one of {available}"),
        format!("passed over, it would stay at {}", excerpt(&kept)),
    );
}

/// The words of a choice with their arguments.
fn available(shape: &Shape) -> String {
    let Shape::Choice(_, _, words, _) = shape else {
        return String::new();
    };
    let spelled: Vec<String> = words
        .iter()
        .map(|info| match &info.argument {
            Some((argument, ..)) => format!("{}({argument})", info.word),
            None => info.word.to_owned(),
        })
        .collect();
    spelled.join(", ")
}

/// A word with an argument that it does not take.
pub(super) fn extra_argument(path: &str, raw: &str, rest: &str, reader: &mut Reader<'_>) {
    let word = raw.strip_suffix(rest).unwrap_or(raw).trim();
    reader.refuse(
        path,
        raw,
        format!("{path} {}", excerpt(raw)),
        Some(word.to_owned()),
        format!("{word} stands alone"),
        format!("{} would have no effect", excerpt(rest)),
    );
}

/// The text of the argument in `word(argument)`.
pub(super) fn argument<'t, T: Setting>(
    path: &str,
    raw: &'t str,
    rest: &'t str,
    name: &str,
    reader: &mut Reader<'_>,
) -> Option<&'t str> {
    let is_struct = matches!(T::shape(), Shape::Struct(..));
    match reader::tuple(rest).as_deref() {
        Ok([only]) => return Some(only),
        _ if is_struct && rest.starts_with('(') => return Some(rest),
        _ => {}
    }
    if reader.bare_words() {
        let inner = rest
            .strip_prefix('(')
            .and_then(|rest| rest.strip_suffix(')'));
        if let Some(inner) = inner.map(str::trim).filter(|inner| !inner.is_empty()) {
            return Some(inner);
        }
    }
    let word = raw.strip_suffix(rest).unwrap_or(raw).trim();
    reader.refuse(
        path,
        raw,
        format!("{path} {}", excerpt(raw)),
        None,
        format!("{word} takes one argument in round brackets: {word}({name})"),
        format!("{name} would be unknown"),
    );
    None
}

/// An override of a part of a value that has none.
pub(super) fn no_parts(path: &str, rest: &str, example: &str, reader: &mut Reader<'_>) {
    reader.refuse(
        &format!("{path}.{rest}"),
        "",
        format!("{path}.{rest} is no setting"),
        None,
        format!("{path} is one value and has no parts here: --set {path}={example}"),
        "it would have no effect",
    );
}

/// A value short enough for a message.
pub(super) fn excerpt(raw: &str) -> String {
    let line: String = raw.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= 60 {
        return line;
    }
    let head: String = line.chars().take(57).collect();
    format!("{head}...")
}

//! Reads RON piece by piece and keeps the place of every piece.
//!
//! The `ron` crate checks the grammar and cuts a value into the raw texts of its parts. Every part
//! is a slice of the file, so its address inside the file gives line and column, and every part is
//! read on its own, so one wrong value hides no other.

use ron::value::RawValue;
use serde::de::{Deserializer as _, MapAccess, SeqAccess, Visitor};

use super::finding::{Finding, Log, Place, Severity};
use super::refuse::excerpt;

/// Reads one file or one override.
pub(super) struct Reader<'a> {
    /// The file's name, or the override.
    label: &'a str,
    /// The whole text; none for an override.
    text: Option<&'a str>,
    pub(super) log: &'a mut Log,
}

impl<'a> Reader<'a> {
    pub(super) fn file(label: &'a str, text: &'a str, log: &'a mut Log) -> Self {
        Self {
            label,
            text: Some(text),
            log,
        }
    }

    pub(super) fn set(argument: &'a str, log: &'a mut Log) -> Self {
        Self {
            label: argument,
            text: None,
            log,
        }
    }

    /// Whether strings may stand without quotes.
    pub(super) fn bare_words(&self) -> bool {
        self.text.is_none()
    }

    /// Where a slice of the text stands.
    pub(super) fn place(&self, part: &str) -> Place {
        let Some(text) = self.text else {
            return Place::Override(self.label.to_owned());
        };
        let offset = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
        let before = text.get(..offset).unwrap_or(text);
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Place::File {
            file: self.label.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before.get(start..).unwrap_or_default().chars().count() + 1,
        }
    }

    /// Remembers that `path` is given here.
    pub(super) fn note(&mut self, path: &str, part: &str) {
        let place = self.place(part);
        self.log.places.insert(path.to_owned(), place);
    }

    /// A problem at `part`, which leaves the setting `path` unread.
    pub(super) fn refuse(
        &mut self,
        path: &str,
        part: &str,
        what: String,
        nearest: Option<String>,
        rule: impl Into<String>,
        consequence: impl Into<String>,
    ) {
        let place = self.place(part);
        self.log.failed.insert(path.to_owned());
        self.log.findings.push(Finding {
            severity: Severity::Error,
            place,
            what,
            nearest,
            rule: rule.into(),
            consequence: consequence.into(),
        });
    }

    /// Reports what `ron` says about `raw`, at the place where it says it.
    pub(super) fn refuse_syntax(
        &mut self,
        path: &str,
        raw: &str,
        error: &ron::error::SpannedError,
    ) {
        let at = position_in(raw, error.span.start);
        let part = raw.get(at..).unwrap_or(raw);
        let name = if path.is_empty() { "the file" } else { path };
        let line = part.lines().next().unwrap_or_default().trim();
        let here = if line.is_empty() {
            "at the end".to_owned()
        } else {
            format!("before `{}`", excerpt(line))
        };
        self.refuse(
            path,
            part,
            format!("{name} cannot be read {here} ({})", error.code),
            None,
            "a file is one RON value, ( name: value, ... ): brackets closed, commas between the parts, text in \"quotes\"",
            "nothing after this place was read",
        );
    }
}

/// Byte offset of a line and column that `ron` reports.
fn position_in(raw: &str, position: ron::error::Position) -> usize {
    let line_start: usize = raw
        .split_inclusive('\n')
        .take(position.line.saturating_sub(1))
        .map(str::len)
        .sum();
    let rest = raw.get(line_start..).unwrap_or_default();
    line_start
        + rest
            .chars()
            .take(position.col.saturating_sub(1))
            .map(char::len_utf8)
            .sum::<usize>()
}

type RonResult<T> = Result<T, ron::error::SpannedError>;

/// One name and the raw text of its value.
pub(super) type Field<'t> = (&'t str, &'t str);

/// Cuts `( a: 1, b: 2 )` into its fields.
pub(super) fn fields(raw: &str) -> RonResult<Vec<Field<'_>>> {
    struct Fields;
    impl<'de> Visitor<'de> for Fields {
        type Value = Vec<Field<'de>>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("settings in round brackets")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut fields = Vec::new();
            while let Some(name) = map.next_key::<&'de str>()? {
                let value: &'de RawValue = map.next_value()?;
                fields.push((name, value.trim().get_ron()));
            }
            Ok(fields)
        }
    }
    let mut ron = ron::Deserializer::from_str(raw)?;
    let fields = ron
        .deserialize_struct("", &[], Fields)
        .map_err(|code| ron.span_error(code))?;
    ron.end().map_err(|code| ron.span_error(code))?;
    Ok(fields)
}

/// Cuts a whole file into its fields; the struct's name may stand before the brackets.
pub(super) fn file_fields(text: &str) -> RonResult<Vec<Field<'_>>> {
    fields(text).or_else(|error| {
        let value = RawValue::from_ron(text).map_err(|_| error.clone())?;
        match word_and_rest(value.trim().get_ron()) {
            ("Experiment", rest) => fields(rest),
            _ => Err(error),
        }
    })
}

struct Parts;
impl<'de> Visitor<'de> for Parts {
    type Value = Vec<&'de str>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut parts = Vec::new();
        while let Some(value) = seq.next_element::<&'de RawValue>()? {
            parts.push(value.trim().get_ron());
        }
        Ok(parts)
    }
}

/// Cuts `[a, b]` into its elements.
pub(super) fn elements(raw: &str) -> RonResult<Vec<&str>> {
    let mut ron = ron::Deserializer::from_str(raw)?;
    let parts = ron
        .deserialize_seq(Parts)
        .map_err(|code| ron.span_error(code))?;
    ron.end().map_err(|code| ron.span_error(code))?;
    Ok(parts)
}

/// Cuts `(a, b)` into its elements.
pub(super) fn tuple(raw: &str) -> RonResult<Vec<&str>> {
    let mut ron = ron::Deserializer::from_str(raw)?;
    let parts = ron
        .deserialize_tuple(0, Parts)
        .map_err(|code| ron.span_error(code))?;
    ron.end().map_err(|code| ron.span_error(code))?;
    Ok(parts)
}

/// Takes `(a, b)` as the fields `names` in their order. Only for two or three: longer lists want names.
pub(super) fn in_order<'t>(raw: &'t str, names: &[&'static str]) -> Option<Vec<Field<'t>>> {
    let values = tuple(raw).ok()?;
    let fits = (2..=3).contains(&names.len()) && values.len() == names.len();
    fits.then(|| names.iter().copied().zip(values).collect())
}

/// Splits `word(rest)` or `word` into the word and what follows it.
pub(super) fn word_and_rest(raw: &str) -> (&str, &str) {
    let end = raw
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(raw.len());
    let (word, rest) = raw.split_at(end);
    (word, rest.trim())
}

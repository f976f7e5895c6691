//! What every setting can do: be read, be overridden, be written, be checked and be described.

use std::fmt;

use super::finding::{Log, Severity};
use super::reader::Reader;
use super::refuse;

/// A value that can stand in an experiment file.
pub(super) trait Setting: Sized {
    /// What it is, for the reference.
    fn shape() -> Shape;

    /// Takes the value from `raw`. What `raw` leaves out stays as it is.
    fn read(&mut self, raw: &str, path: &str, reader: &mut Reader<'_>);

    /// Writes the value as RON; lines after the first begin with `indent`.
    fn write(&self, out: &mut String, indent: &str);

    /// Takes an override of one of its parts: `rest` is the path below this value.
    fn set(&mut self, rest: &str, raw: &str, path: &str, reader: &mut Reader<'_>) {
        let _ = raw;
        refuse::no_parts(path, rest, "VALUE", reader);
    }

    /// The numbers in it, for its rule.
    fn numbers(&self) -> Vec<f64> {
        Vec::new()
    }

    /// Checks its parts against their rules.
    fn check(&self, path: &str, log: &mut Log) {
        let _ = (path, log);
    }
}

/// What a setting is.
pub(super) enum Shape {
    /// One value of this kind.
    Value(&'static str),
    /// Settings in round brackets: name, sentence and parts.
    Struct(&'static str, &'static str, Vec<FieldInfo>),
    /// One of several words: name, sentence, words, and planned words with why they wait.
    Choice(
        &'static str,
        &'static str,
        Vec<WordInfo>,
        &'static [(&'static str, &'static str)],
    ),
    /// A list.
    List(Box<Shape>),
}

impl Shape {
    /// Its name in the reference.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Value(name) | Self::Struct(name, ..) | Self::Choice(name, ..) => {
                (*name).to_owned()
            }
            Self::List(inner) => format!("list of {}", inner.name()),
        }
    }
}

/// One field of a struct, for the reference.
pub(super) struct FieldInfo {
    pub(super) name: &'static str,
    pub(super) sentence: &'static str,
    pub(super) unit: &'static str,
    pub(super) rule: Rule,
    pub(super) consequence: &'static str,
    pub(super) default: String,
    pub(super) shape: Shape,
}

/// One word of a choice, for the reference.
pub(super) struct WordInfo {
    pub(super) word: &'static str,
    pub(super) argument: Option<(&'static str, Rule, Shape)>,
    pub(super) sentence: &'static str,
}

/// The range of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rule {
    low: Option<(f64, bool)>,
    high: Option<(f64, bool)>,
    infinite: bool,
}

impl Rule {
    pub(super) fn any() -> Self {
        Self::default()
    }
    pub(super) fn at_least(low: f64) -> Self {
        Self {
            low: Some((low, true)),
            ..Self::default()
        }
    }
    pub(super) fn above(low: f64) -> Self {
        Self {
            low: Some((low, false)),
            ..Self::default()
        }
    }
    pub(super) fn above_or_inf(low: f64) -> Self {
        Self {
            infinite: true,
            ..Self::above(low)
        }
    }
    pub(super) fn from_to(low: f64, high: f64) -> Self {
        Self {
            low: Some((low, true)),
            high: Some((high, true)),
            ..Self::default()
        }
    }
    pub(super) fn from_below(low: f64, high: f64) -> Self {
        Self {
            high: Some((high, false)),
            ..Self::at_least(low)
        }
    }
    pub(super) fn above_to(low: f64, high: f64) -> Self {
        Self {
            high: Some((high, true)),
            ..Self::above(low)
        }
    }
    pub(super) fn between(low: f64, high: f64) -> Self {
        Self {
            high: Some((high, false)),
            ..Self::above(low)
        }
    }

    /// Whether `number` keeps the rule.
    pub(super) fn allows(&self, number: f64) -> bool {
        if number.is_nan() || (number.is_infinite() && !self.infinite) {
            return false;
        }
        self.low
            .is_none_or(|(low, closed)| number > low || (closed && number == low))
            && self
                .high
                .is_none_or(|(high, closed)| number < high || (closed && number == high))
    }

    /// Reports each number of `value` that breaks the rule.
    pub(super) fn check<T: Setting>(
        &self,
        value: &T,
        path: &str,
        consequence: &str,
        log: &mut Log,
    ) {
        for number in value.numbers() {
            if !self.allows(number) {
                log.report(
                    Severity::Error,
                    &[path],
                    format!("{path} {}", short(number)),
                    self.to_string(),
                    consequence,
                );
                return;
            }
        }
    }
}

/// A number as a person would write it (an f32 does not show the digits of an f64).
fn short(number: f64) -> String {
    let single = number as f32;
    if f64::from(single) == number {
        format!("{single}")
    } else {
        format!("{number}")
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let low = self.low.map(|(low, closed)| {
            let word = if closed { "at least" } else { "above" };
            format!("{word} {}", short(low))
        });
        let high = self.high.map(|(high, closed)| {
            let word = if closed { "at most" } else { "below" };
            format!("{word} {}", short(high))
        });
        match (self.low, self.high) {
            (Some((low, true)), Some((high, true))) if low == high => {
                return write!(f, "exactly {}", short(low));
            }
            (Some((low, true)), Some((high, true))) => {
                return write!(f, "from {} to {}", short(low), short(high));
            }
            _ => {}
        }
        match (low, high) {
            (Some(low), None) if self.infinite => write!(f, "{low}, or inf"),
            (Some(low), Some(high)) => write!(f, "{low} and {high}"),
            (Some(only), None) | (None, Some(only)) => f.write_str(&only),
            (None, None) => f.write_str("a finite number"),
        }
    }
}

/// `a.b.c` is `a` and `b.c`.
pub(super) fn split_path(path: &str) -> (&str, &str) {
    path.split_once('.').unwrap_or((path, ""))
}

/// Sets the part `head` of `path`, or what lies below it.
pub(super) fn set_part<T: Setting>(
    part: &mut T,
    head: &str,
    below: &str,
    raw: &str,
    path: &str,
    reader: &mut Reader<'_>,
) {
    let path = join(path, head);
    if below.is_empty() {
        part.read(raw, &path, reader);
    } else {
        part.set(below, raw, &path, reader);
    }
}

/// The path of a part.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// Writes the argument of a word: settings bring their own brackets.
pub(super) fn write_argument<T: Setting>(inner: &T, out: &mut String, indent: &str) {
    if matches!(T::shape(), Shape::Struct(..)) {
        inner.write(out, indent);
    } else {
        out.push('(');
        inner.write(out, indent);
        out.push(')');
    }
}

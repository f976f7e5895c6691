//! What is wrong with an experiment file, or worth knowing about it: where, what, the rule it
//! breaks and what would happen.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Where a value was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: it is the default.
    #[default]
    Default,
    /// In a file.
    File {
        /// The file, as it was named.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
    },
    /// In an override on the command line.
    Override(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("defaults"),
            Self::File { file, line, column } => write!(f, "{file}:{line}:{column}"),
            Self::Override(text) => write!(f, "--set {text}"),
        }
    }
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file is well-formed, but something must be there before it can run.
    Missing,
    /// It runs; the consequence should be known.
    Note,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// Where the value was given.
    pub place: Place,
    /// What was found, with the value.
    pub what: String,
    /// The valid name that is nearest, if a name was wrong.
    pub nearest: Option<String>,
    /// The rule.
    pub rule: String,
    /// What would happen.
    pub consequence: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = match self.severity {
            Severity::Error => "",
            Severity::Missing => "missing: ",
            Severity::Note => "note: ",
        };
        write!(
            f,
            "{}: {label}{}: {}",
            self.place, self.what, self.consequence
        )?;
        if let Some(nearest) = &self.nearest {
            write!(f, "\n    did you mean: {nearest}")?;
        }
        write!(f, "\n    rule: {}", self.rule)
    }
}

/// Everything that is wrong with an experiment, in the order in which it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExperimentErrors(pub Vec<Finding>);

impl fmt::Display for ExperimentErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.0 {
            writeln!(f, "{finding}")?;
        }
        let count = self.0.len();
        let plural = if count == 1 { "" } else { "s" };
        write!(f, "{count} problem{plural}; nothing was run")
    }
}

impl std::error::Error for ExperimentErrors {}

/// Collects findings while files are read, and remembers where every value came from.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) findings: Vec<Finding>,
    pub(super) places: BTreeMap<String, Place>,
    /// Settings whose text could not be read: rules about them would only confuse.
    pub(super) failed: BTreeSet<String>,
}

impl Log {
    /// Where a setting, or the nearest setting around it, was given.
    pub(super) fn place(&self, path: &str) -> Place {
        let mut path = path;
        loop {
            if let Some(place) = self.places.get(path) {
                return place.clone();
            }
            match path.rfind('.') {
                Some(dot) => path = path.get(..dot).unwrap_or_default(),
                None => return Place::Default,
            }
        }
    }

    /// Whether this setting, or one around it or inside it, could not be read.
    pub(super) fn is_failed(&self, path: &str) -> bool {
        self.failed.iter().any(|failed| {
            let inside = |outer: &str, inner: &str| {
                outer.is_empty()
                    || inner
                        .strip_prefix(outer)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            inside(failed, path) || inside(path, failed)
        })
    }

    /// Forgets where the parts of a value came from, because the whole value is replaced.
    pub(super) fn forget_inside(&mut self, path: &str) {
        let prefix = format!("{path}.");
        self.places.retain(|known, _| !known.starts_with(&prefix));
        self.failed
            .retain(|known| known != path && !known.starts_with(&prefix));
    }

    /// Puts the findings of each file into the order of its lines; files stay in the order in which
    /// they were met, overrides come last.
    pub(super) fn sort(&mut self) {
        let mut files: Vec<String> = Vec::new();
        for finding in &self.findings {
            if let Place::File { file, .. } = &finding.place
                && !files.contains(file)
            {
                files.push(file.clone());
            }
        }
        self.findings.sort_by_key(|finding| match &finding.place {
            Place::Default => (0, 0, 0),
            Place::File { file, line, column } => {
                let number = files.iter().position(|known| known == file);
                (1 + number.unwrap_or_default(), *line, *column)
            }
            Place::Override(_) => (usize::MAX, 0, 0),
        });
    }

    /// Adds a finding about the given settings; where one of them could not be read, it is dropped.
    pub(super) fn report(
        &mut self,
        severity: Severity,
        paths: &[&str],
        what: impl Into<String>,
        rule: impl Into<String>,
        consequence: impl Into<String>,
    ) {
        if paths.iter().any(|path| self.is_failed(path)) {
            return;
        }
        let place = paths
            .iter()
            .map(|path| self.place(path))
            .find(|place| *place != Place::Default)
            .unwrap_or_default();
        self.findings.push(Finding {
            severity,
            place,
            what: what.into(),
            nearest: None,
            rule: rule.into(),
            consequence: consequence.into(),
        });
    }
}

/// The name nearest to `word`, if one is near enough to be meant.
pub(super) fn nearest<'a>(word: &str, names: impl Iterator<Item = &'a str>) -> Option<String> {
    let lower = word.to_lowercase();
    names
        .map(|name| {
            (
                strsim::damerau_levenshtein(&lower, &name.to_lowercase()),
                name,
            )
        })
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, name)| *distance <= 1 + name.len().max(word.len()) / 3)
        .map(|(_, name)| name.to_owned())
}

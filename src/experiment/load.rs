//! From a file and overrides to a resolved experiment.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::check;
use super::finding::{ExperimentErrors, Finding, Log, Place, Severity};
use super::paths::neighbour;
use super::reader::{self, Reader};
use super::setting::{Setting, join};
use super::sizes;
use super::spec::{Experiment, PolicySettings, Retrieval};

/// A resolved experiment: its base files, the file itself and the overrides, laid over the defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// The settings.
    pub experiment: Experiment,
    /// The files that were read: the furthest base first, the file itself last.
    pub sources: Vec<PathBuf>,
    /// Where each setting that is not a default was given, by its path (`rollout.group_size`).
    pub places: BTreeMap<String, Place>,
    /// What is missing and what should be known.
    pub notes: Vec<Finding>,
}

impl Resolved {
    /// What `--check` prints: the resolved file, and as comments under it what follows from it and
    /// what should be known. The whole is an experiment file again.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut text = self.experiment.to_ron();
        for line in sizes::sizes(&self.experiment) {
            text.push_str(&format!("// {line}\n"));
        }
        for note in &self.notes {
            for line in note.to_string().lines() {
                text.push_str(&format!("// {line}\n"));
            }
        }
        text
    }

    /// Refuses an experiment that can be checked but not run yet.
    ///
    /// # Errors
    /// Everything that is missing.
    pub fn ready(&self) -> Result<(), ExperimentErrors> {
        let missing: Vec<Finding> = self
            .notes
            .iter()
            .filter(|finding| finding.severity == Severity::Missing)
            .cloned()
            .collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(ExperimentErrors(missing))
        }
    }
}

impl Experiment {
    /// Reads an experiment file with its bases, and lays overrides (`a.b=value`) over it.
    ///
    /// # Errors
    /// Every problem of all files and overrides.
    pub fn load(path: &Path, overrides: &[String]) -> Result<Resolved, ExperimentErrors> {
        let mut loader = Loader::default();
        loader.file(path, &Place::Default);
        loader.finish(overrides)
    }

    /// Reads an experiment from text; `label` stands for the file's name. Bases and paths are
    /// relative to the current folder.
    ///
    /// # Errors
    /// As [`Experiment::load`].
    pub fn from_ron(
        label: &str,
        text: &str,
        overrides: &[String],
    ) -> Result<Resolved, ExperimentErrors> {
        let mut loader = Loader::default();
        loader.chain.push(PathBuf::from(label));
        loader.text(Path::new(label), text);
        loader.finish(overrides)
    }

    /// The experiment as a RON file that reads back as an equal experiment.
    #[must_use]
    pub fn to_ron(&self) -> String {
        let mut text = String::new();
        self.write(&mut text, "");
        text.push('\n');
        text
    }
}

/// The state of reading a chain of files.
#[derive(Default)]
struct Loader {
    experiment: Experiment,
    log: Log,
    sources: Vec<PathBuf>,
    /// Files that are being read, the outermost first.
    chain: Vec<PathBuf>,
}

impl Loader {
    fn refuse(&mut self, place: &Place, what: String, rule: &str, consequence: &str) {
        self.log.failed.insert(String::new());
        self.log.findings.push(Finding {
            severity: Severity::Error,
            place: place.clone(),
            what,
            nearest: None,
            rule: rule.to_owned(),
            consequence: consequence.to_owned(),
        });
    }

    /// Reads a file that was named at `place`.
    fn file(&mut self, path: &Path, place: &Place) {
        let start = || Place::File {
            file: path.display().to_string(),
            line: 1,
            column: 1,
        };
        let place = if *place == Place::Default {
            start()
        } else {
            place.clone()
        };
        let identity = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if let Some(first) = self.chain.iter().position(|known| *known == identity) {
            let names: Vec<String> = self
                .chain
                .iter()
                .skip(first)
                .chain([&identity])
                .filter_map(|path| path.file_name())
                .map(|name| name.to_string_lossy().into_owned())
                .collect();
            return self.refuse(
                &place,
                format!("base goes in a circle: {}", names.join(" -> ")),
                "a chain of bases ends in a file without base",
                "the experiment would never be complete",
            );
        }
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                let named = path.display().to_string();
                let what = match error.kind() {
                    ErrorKind::NotFound => format!("{named:?} is not there"),
                    ErrorKind::InvalidData => format!("{named:?} is no text in UTF-8"),
                    _ => format!("{named:?} cannot be read ({error})"),
                };
                self.refuse(
                    &place,
                    what,
                    "an experiment is a text file; base is relative to the file that names it",
                    "there is nothing to run",
                );
                if let Some(finding) = self.log.findings.last_mut() {
                    finding.nearest = neighbour(path);
                }
                return;
            }
        };
        self.chain.push(identity);
        self.text(path, &text);
        self.chain.pop();
    }

    /// Reads the text of a file: first its base, then itself over it.
    fn text(&mut self, path: &Path, text: &str) {
        let label = path.display().to_string();
        let fields = {
            let mut reader = Reader::file(&label, text, &mut self.log);
            match reader::file_fields(text) {
                Ok(fields) => fields,
                Err(error) => return reader.refuse_syntax("", text, &error),
            }
        };
        let (bases, fields): (Vec<_>, Vec<_>) =
            fields.into_iter().partition(|(name, _)| *name == "base");
        for (index, (name, raw)) in bases.into_iter().enumerate() {
            let mut reader = Reader::file(&label, text, &mut self.log);
            if index > 0 {
                super::refuse::second("", name, &mut reader);
                continue;
            }
            let mut base = String::new();
            base.read(raw, "base", &mut reader);
            let place = reader.place(raw);
            self.log.places.remove("base");
            if !self.log.is_failed("base") {
                let folder = path.parent().unwrap_or(Path::new(""));
                self.file(&folder.join(base), &place);
            }
        }
        let mut reader = Reader::file(&label, text, &mut self.log);
        self.experiment.read_fields(fields, "", &mut reader);
        self.sources.push(path.to_owned());
        self.anchor_paths(path);
    }

    /// Paths that exist beside the file that names them are made absolute, so that the resolved file
    /// works from any folder.
    fn anchor_paths(&mut self, path: &Path) {
        let folder = path.parent().unwrap_or(Path::new(""));
        if folder.as_os_str().is_empty() {
            return;
        }
        let label = path.display().to_string();
        let places = &self.log.places;
        let anchor = |setting: &str, text: &mut String| {
            let here =
                matches!(places.get(setting), Some(Place::File { file, .. }) if *file == label);
            if !here {
                return;
            }
            let beside = folder.join(text.as_str());
            let relative = !text.is_empty() && Path::new(text.as_str()).is_relative();
            if relative
                && beside.exists()
                && let Ok(absolute) = std::path::absolute(&beside)
            {
                *text = absolute.display().to_string();
            }
        };
        let task = &mut self.experiment.task;
        anchor("task.facts", &mut task.facts);
        anchor("task.corpus", &mut task.corpus);
        anchor("task.questions", &mut task.questions);
        anchor("task.test_questions", &mut task.test_questions);
        if let Retrieval::Dense(folder) | Retrieval::Hybrid(folder) = &mut task.retrieval {
            anchor("task.retrieval", folder);
        }
        if let PolicySettings::Folder(folder) = &mut self.experiment.policy {
            anchor("policy", folder);
        }
    }

    fn finish(mut self, overrides: &[String]) -> Result<Resolved, ExperimentErrors> {
        for argument in overrides {
            self.set(argument);
        }
        if self.experiment.name.is_empty() {
            let stem = self.sources.last().and_then(|path| path.file_stem());
            self.experiment.name = stem.map_or_else(
                || "experiment".to_owned(),
                |stem| stem.to_string_lossy().into_owned(),
            );
        }
        self.experiment.check("", &mut self.log);
        check::check(&self.experiment, &mut self.log);
        self.log.sort();
        let (errors, notes): (Vec<_>, Vec<_>) = self
            .log
            .findings
            .into_iter()
            .partition(|finding| finding.severity == Severity::Error);
        if !errors.is_empty() {
            return Err(ExperimentErrors(errors));
        }
        Ok(Resolved {
            experiment: self.experiment,
            sources: self.sources,
            places: self.log.places,
            notes,
        })
    }

    /// Takes one override.
    fn set(&mut self, argument: &str) {
        let mut reader = Reader::set(argument, &mut self.log);
        match argument.split_once('=') {
            Some((path, value)) if !path.trim().is_empty() => {
                self.experiment
                    .set(path.trim(), value.trim(), "", &mut reader);
            }
            _ => reader.refuse(
                &join("--set", argument),
                "",
                format!("{argument:?} is no override"),
                None,
                "an override is PATH=VALUE, as rollout.groups=4",
                "it would have no effect",
            ),
        }
    }
}

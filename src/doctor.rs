//! `palimpsest doctor`: what this machine has, what palimpsest wants, and how to mend the difference.
//!
//! [`Probe::take`] looks around (programs, files, variables), [`examine`] judges what it found and is pure.
//! Reads: the environment, the project folder, `/proc/meminfo`. Writes: nothing that stays.

mod libtorch;
mod machine;
mod probe;
#[cfg(test)]
mod tests;

use std::fmt;

use libtorch::{cuda, libtorch, link};
use machine::{compiler, disk, feature, memory, pip, python, runs, rust, threads, wait_policy};

pub use probe::{Folder, Probe};

/// The libtorch that the `tch` of Cargo.toml is written for; `scripts/setup.py` lays out the same one.
pub const TORCH_VERSION: &str = "2.11.0";

/// How one thing stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As wanted.
    Ok,
    /// It works, but could be better.
    Note,
    /// It is not there.
    Missing,
    /// It is there, and not as wanted.
    Wrong,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Missing => "MISSING",
            Self::Wrong => "WRONG",
        })
    }
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it stands.
    pub verdict: Verdict,
    /// Whether palimpsest cannot do without it here.
    pub required: bool,
    /// What is there.
    pub found: String,
    /// What should be there.
    pub wanted: String,
    /// What to do about it; empty when there is nothing to do.
    pub mend: String,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>, wanted: impl Into<String>) -> Self {
        Self {
            name,
            verdict: Verdict::Ok,
            required: false,
            found: found.into(),
            wanted: wanted.into(),
            mend: String::new(),
        }
    }

    fn but(self, verdict: Verdict, mend: impl Into<String>) -> Self {
        Self {
            verdict,
            mend: mend.into(),
            ..self
        }
    }

    fn required_if(self, required: bool) -> Self {
        Self { required, ..self }
    }

    /// Whether this alone makes the doctor's exit code 1.
    pub fn is_fatal(&self) -> bool {
        self.required && matches!(self.verdict, Verdict::Missing | Verdict::Wrong)
    }
}

/// All checks, in the order a person would mend them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorReport {
    /// The lines of the table.
    pub checks: Vec<Check>,
}

impl DoctorReport {
    /// 1 when something required is missing or wrong, else 0.
    pub fn exit_code(&self) -> u8 {
        u8::from(self.checks.iter().any(Check::is_fatal))
    }
}

impl fmt::Display for DoctorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width =
            |of: fn(&Check) -> &str| self.checks.iter().map(|c| of(c).chars().count()).max();
        let name = width(|c| c.name).unwrap_or(0);
        let found = width(|c| &c.found).unwrap_or(0).min(60);
        for c in &self.checks {
            writeln!(
                f,
                "{:<7}  {:<name$}  {:<found$}  wanted: {}",
                c.verdict, c.name, c.found, c.wanted
            )?;
            if !c.mend.is_empty() {
                writeln!(f, "{:<7}  {:<name$}  -> {}", "", "", c.mend)?;
            }
        }
        let fatal = self.checks.iter().filter(|c| c.is_fatal()).count();
        match fatal {
            0 => writeln!(f, "\nEverything required is there."),
            1 => writeln!(f, "\n1 required thing is missing or wrong."),
            n => writeln!(f, "\n{n} required things are missing or wrong."),
        }
    }
}

/// Looks around and judges. `cuda_devices` is what libtorch counts, `None` when it cannot be asked.
pub fn run(cuda_devices: Option<i64>) -> DoctorReport {
    examine(&Probe::take(cuda_devices))
}

/// Judges what a probe found.
pub fn examine(p: &Probe) -> DoctorReport {
    DoctorReport {
        checks: vec![
            rust(p),
            compiler(p),
            python(p),
            pip(p),
            feature(p),
            libtorch(p),
            link(p),
            cuda(p),
            wait_policy(p),
            threads(p),
            memory(p),
            disk(p),
            runs(p),
        ],
    }
}

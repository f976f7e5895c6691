//! `palimpsest doctor`: what this machine has, what palimpsest wants, and how to mend the difference.
//!
//! [`Probe::take`] looks around (programs, files, variables), [`examine`] judges what it found and is pure.
//! Reads: the environment, the project folder, `/proc/meminfo`. Writes: nothing that stays.

mod probe;
#[cfg(test)]
mod tests;

use std::fmt;

pub use probe::{Folder, Probe};

/// The libtorch that the `tch` of Cargo.toml is written for; `scripts/setup.py` lays out the same one.
pub const TORCH_VERSION: &str = "2.11.0";
const RUST_VERSION: &str = env!("CARGO_PKG_RUST_VERSION");
const WANTED_MEMORY_MB: u64 = 4_000;
const WANTED_DISK_MB: u64 = 5_000;

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

/// Which libtorch a build takes. torch-sys asks in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    PyTorch,
    Parts,
    Variable,
    Link,
}

fn source(p: &Probe) -> Source {
    let set = |name: &str| p.variables.contains_key(name);
    if set("LIBTORCH_USE_PYTORCH") {
        Source::PyTorch
    } else if set("LIBTORCH_LIB") && set("LIBTORCH_INCLUDE") {
        Source::Parts
    } else if p.stated.is_some() {
        Source::Variable
    } else {
        Source::Link
    }
}

/// Build tools matter where there is something to build.
fn builds(p: &Probe) -> bool {
    p.project.is_some()
}

fn rust(p: &Probe) -> Check {
    let wanted = format!("{RUST_VERSION} or newer");
    let mend = "install or update Rust: rustup update stable";
    let check = match &p.rustc {
        None => Check::ok("Rust", "no rustc", wanted).but(Verdict::Missing, mend),
        Some(text) if numbers(text) >= numbers(RUST_VERSION) => Check::ok("Rust", text, wanted),
        Some(text) => Check::ok("Rust", text, wanted).but(Verdict::Wrong, mend),
    };
    check.required_if(builds(p))
}

fn compiler(p: &Probe) -> Check {
    let wanted = "g++ or clang++ with C++17";
    let check = match &p.compiler {
        Some(text) => Check::ok("C++ compiler", text, wanted),
        None => Check::ok("C++ compiler", "neither $CXX nor c++ runs", wanted).but(
            Verdict::Missing,
            "Debian: apt-get install g++; macOS: xcode-select --install",
        ),
    };
    check.required_if(builds(p) && p.built_with_torch)
}

/// Python only brings libtorch: it is needed until there is one.
fn needs_setup(p: &Probe) -> bool {
    builds(p)
        && p.built_with_torch
        && source(p) == Source::Link
        && !p.link.as_ref().is_some_and(Folder::is_whole)
}

fn python(p: &Probe) -> Check {
    let wanted = "3.8 or newer, for `make setup`";
    let mend = "Debian: apt-get install python3; or set LIBTORCH to a libtorch of your own";
    let check = match &p.python {
        None => Check::ok("Python", "no python3", wanted).but(Verdict::Missing, mend),
        Some(text) if numbers(text) >= vec![3, 8] => Check::ok("Python", text, wanted),
        Some(text) => Check::ok("Python", text, wanted).but(Verdict::Wrong, mend),
    };
    check.required_if(needs_setup(p))
}

fn pip(p: &Probe) -> Check {
    let wanted = "any, for `make setup`";
    let check = match &p.pip {
        Some(text) => Check::ok("pip", text, wanted),
        None => Check::ok("pip", "`python3 -m pip` does not run", wanted).but(
            Verdict::Missing,
            "Debian: apt-get install python3-pip; elsewhere: python3 -m ensurepip",
        ),
    };
    check.required_if(needs_setup(p))
}

fn feature(p: &Probe) -> Check {
    let wanted = "feature `torch`, to train and to generate";
    if p.built_with_torch {
        Check::ok("This binary", "built with libtorch", wanted)
    } else {
        Check::ok("This binary", "built without libtorch", wanted).but(
            Verdict::Note,
            "it can view runs; to train, build it with the default features: cargo run",
        )
    }
}

fn libtorch(p: &Probe) -> Check {
    const NAME: &str = "libtorch in use";
    let wanted = format!("version {TORCH_VERSION}");
    let value = |name: &str| p.variables.get(name).map_or("", String::as_str);
    let check = match source(p) {
        Source::PyTorch => {
            let set = format!(
                "LIBTORCH_USE_PYTORCH=\"{}\" (any value counts, also 0)",
                value("LIBTORCH_USE_PYTORCH")
            );
            match &p.pytorch {
                None => Check::ok(NAME, format!("{set}, but Python imports no torch"), wanted).but(
                    Verdict::Missing,
                    format!("install torch {TORCH_VERSION} for that Python, or unset LIBTORCH_USE_PYTORCH and run: make setup"),
                ),
                Some(v) => version(p, Check::ok(NAME, format!("torch {v} of Python, by {set}"), wanted), Some(v)),
            }
        }
        Source::Parts => Check::ok(
            NAME,
            format!("\"{}\", by LIBTORCH_LIB", value("LIBTORCH_LIB")),
            wanted,
        ),
        Source::Variable => folder(
            p,
            p.stated.as_ref(),
            "by LIBTORCH",
            wanted,
            "correct LIBTORCH, or unset it and run: make setup",
        ),
        Source::Link if !builds(p) => Check::ok(NAME, "no project folder here to build", wanted),
        Source::Link => folder(p, p.link.as_ref(), "by .libtorch", wanted, "make setup"),
    };
    check.required_if(builds(p) && p.built_with_torch)
}

fn folder(p: &Probe, folder: Option<&Folder>, by: &str, wanted: String, mend: &str) -> Check {
    const NAME: &str = "libtorch in use";
    let Some(folder) = folder else {
        return Check::ok(NAME, "none", wanted).but(Verdict::Missing, mend);
    };
    let path = folder.path.display();
    let found = match &folder.version {
        Some(v) => format!("{v} in \"{path}\", {by}"),
        None => format!("\"{path}\", {by}"),
    };
    if !folder.exists {
        return Check::ok(NAME, format!("{found}: no such folder"), wanted)
            .but(Verdict::Missing, mend);
    }
    if !folder.has_libraries {
        return Check::ok(
            NAME,
            format!("{found}: no lib/libtorch.so and lib/libtorch_cpu.so"),
            wanted,
        )
        .but(Verdict::Wrong, mend);
    }
    if !folder.has_headers {
        return Check::ok(NAME, format!("{found}: no include/torch"), wanted)
            .but(Verdict::Wrong, mend);
    }
    version(p, Check::ok(NAME, found, wanted), folder.version.as_deref())
}

fn version(p: &Probe, check: Check, found: Option<&str>) -> Check {
    let plain = found.map(|v| v.split('+').next().unwrap_or(v).trim());
    match plain {
        Some(TORCH_VERSION) => check,
        _ if p.variables.contains_key("LIBTORCH_BYPASS_VERSION_CHECK") => check.but(
            Verdict::Note,
            "LIBTORCH_BYPASS_VERSION_CHECK is set, so the version goes unchecked",
        ),
        None => check.but(
            Verdict::Note,
            "it has no file build-version, so its version goes unchecked",
        ),
        Some(_) => check.but(
            Verdict::Wrong,
            format!("take libtorch {TORCH_VERSION}; unset LIBTORCH and LIBTORCH_USE_PYTORCH and run: make setup"),
        ),
    }
}

fn link(p: &Probe) -> Check {
    const NAME: &str = "Link .libtorch";
    let wanted = "leads to a libtorch, unless a variable names one";
    match (&p.project, &p.link) {
        (None, _) => Check::ok(NAME, "no project folder here", wanted),
        (Some(_), Some(f)) if f.exists => {
            Check::ok(NAME, format!("leads to \"{}\"", f.target.display()), wanted)
        }
        (Some(_), Some(f)) => Check::ok(
            NAME,
            format!("leads to \"{}\", which is gone", f.target.display()),
            wanted,
        )
        .but(dead_link(p), "make setup"),
        (Some(_), None) => Check::ok(NAME, "none", wanted).but(dead_link(p), "make setup"),
    }
}

fn dead_link(p: &Probe) -> Verdict {
    if source(p) == Source::Link && p.built_with_torch {
        Verdict::Missing
    } else {
        Verdict::Ok
    }
}

fn cuda(p: &Probe) -> Check {
    const NAME: &str = "CUDA";
    let wanted = "a device, if there is one; the CPU will do";
    let used = match source(p) {
        Source::Variable => p.stated.as_ref(),
        Source::Link => p.link.as_ref(),
        Source::PyTorch | Source::Parts => None,
    };
    match (p.cuda_devices, used.map(|f| f.has_cuda)) {
        (Some(n), _) if n > 0 => Check::ok(NAME, format!("{n} visible to libtorch"), wanted),
        (_, Some(false)) if p.has_nvidia => {
            Check::ok(NAME, "a driver is here, libtorch is a CPU build", wanted)
                .but(Verdict::Note, "PALIMPSEST_CUDA=1 make setup")
        }
        (_, Some(false)) => Check::ok(NAME, "libtorch is a CPU build", wanted),
        (Some(_), Some(true)) => {
            Check::ok(NAME, "libtorch is a CUDA build and sees no device", wanted).but(
                Verdict::Note,
                "see that nvidia-smi runs and CUDA_VISIBLE_DEVICES is right; or go back: PALIMPSEST_CUDA=0 make setup",
            )
        }
        (Some(_), None) => Check::ok(NAME, "none visible to libtorch", wanted),
        (None, _) => Check::ok(NAME, "not asked", wanted),
    }
}

fn wait_policy(p: &Probe) -> Check {
    const NAME: &str = "OMP_WAIT_POLICY";
    match p.variables.get(NAME) {
        Some(v) if v.eq_ignore_ascii_case("passive") => Check::ok(NAME, v, "passive"),
        found => {
            let found = found.map_or("not set".to_owned(), |v| format!("\"{v}\""));
            Check::ok(NAME, found, "passive").but(
                Verdict::Note,
                "on a busy machine waiting threads spin and cost a factor of ten; start by `cargo run`, or with OMP_WAIT_POLICY=passive",
            )
        }
    }
}

fn threads(p: &Probe) -> Check {
    const NAME: &str = "OMP_NUM_THREADS";
    let wanted = format!("1 to {} (cores), or not set", p.cores);
    match p.variables.get(NAME) {
        None => Check::ok(NAME, format!("not set, {} cores", p.cores), wanted),
        Some(v) => match v.split(',').next().unwrap_or("").trim().parse::<usize>() {
            Ok(n) if (1..=p.cores).contains(&n) => {
                Check::ok(NAME, format!("{n}, {} cores", p.cores), wanted)
            }
            _ => Check::ok(NAME, format!("\"{v}\", {} cores", p.cores), wanted).but(
                Verdict::Note,
                "more threads than cores get in each other's way; unset it",
            ),
        },
    }
}

fn memory(p: &Probe) -> Check {
    let wanted = format!("{WANTED_MEMORY_MB} MB to build and to train the small model");
    match p.memory_mb {
        None => Check::ok("Free memory", "unknown", wanted),
        Some(mb) if mb >= WANTED_MEMORY_MB => Check::ok("Free memory", format!("{mb} MB"), wanted),
        Some(mb) => Check::ok("Free memory", format!("{mb} MB"), wanted).but(
            Verdict::Note,
            "close other programs; build with fewer jobs: cargo build --jobs 1",
        ),
    }
}

fn disk(p: &Probe) -> Check {
    let wanted = format!("{WANTED_DISK_MB} MB for builds and runs");
    match p.disk_mb {
        None => Check::ok("Free disk", "unknown", wanted),
        Some(mb) if mb >= WANTED_DISK_MB => Check::ok("Free disk", format!("{mb} MB"), wanted),
        Some(mb) => Check::ok("Free disk", format!("{mb} MB"), wanted).but(
            Verdict::Note,
            "make room: old folders under runs/, or cargo clean",
        ),
    }
}

fn runs(p: &Probe) -> Check {
    let wanted = "a folder that can be written";
    let path = p.runs.display();
    match &p.runs_fault {
        None => Check::ok("Runs folder", format!("\"{path}\""), wanted),
        Some(fault) => Check::ok("Runs folder", format!("\"{path}\": {fault}"), wanted).but(
            Verdict::Wrong,
            "change the permissions of that folder, or start palimpsest in a folder of your own",
        ),
    }
    .required_if(true)
}

/// The first dotted number in a text, as numbers: "rustc 1.95.0 (59807616e)" is [1, 95, 0].
fn numbers(text: &str) -> Vec<u32> {
    text.split(|c: char| !(c.is_ascii_digit() || c == '.'))
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))
        .unwrap_or("")
        .split('.')
        .map_while(|part| part.parse().ok())
        .collect()
}

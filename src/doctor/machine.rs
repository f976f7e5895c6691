//! The tools, the threads and the room that building and training want. Pure.

use super::libtorch::{Source, builds, source};
use super::{Check, Folder, Probe, Verdict};

const RUST_VERSION: &str = env!("CARGO_PKG_RUST_VERSION");
const WANTED_MEMORY_MB: u64 = 4_000;
const WANTED_DISK_MB: u64 = 5_000;

pub(super) fn rust(p: &Probe) -> Check {
    let wanted = format!("{RUST_VERSION} or newer");
    let mend = "install or update Rust: rustup update stable";
    let check = match &p.rustc {
        None => Check::ok("Rust", "no rustc", wanted).but(Verdict::Missing, mend),
        Some(text) if numbers(text) >= numbers(RUST_VERSION) => Check::ok("Rust", text, wanted),
        Some(text) => Check::ok("Rust", text, wanted).but(Verdict::Wrong, mend),
    };
    check.required_if(builds(p))
}

pub(super) fn compiler(p: &Probe) -> Check {
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

pub(super) fn python(p: &Probe) -> Check {
    let wanted = "3.8 or newer, for `make setup`";
    let mend = "Debian: apt-get install python3; or set LIBTORCH to a libtorch of your own";
    let check = match &p.python {
        None => Check::ok("Python", "no python3", wanted).but(Verdict::Missing, mend),
        Some(text) if numbers(text) >= vec![3, 8] => Check::ok("Python", text, wanted),
        Some(text) => Check::ok("Python", text, wanted).but(Verdict::Wrong, mend),
    };
    check.required_if(needs_setup(p))
}

pub(super) fn pip(p: &Probe) -> Check {
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

pub(super) fn feature(p: &Probe) -> Check {
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

pub(super) fn wait_policy(p: &Probe) -> Check {
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

pub(super) fn threads(p: &Probe) -> Check {
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

pub(super) fn memory(p: &Probe) -> Check {
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

pub(super) fn disk(p: &Probe) -> Check {
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

pub(super) fn runs(p: &Probe) -> Check {
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
pub(super) fn numbers(text: &str) -> Vec<u32> {
    text.split(|c: char| !(c.is_ascii_digit() || c == '.'))
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))
        .unwrap_or("")
        .split('.')
        .map_while(|part| part.parse().ok())
        .collect()
}

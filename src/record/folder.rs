//! The run folder: its name and its lock.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use super::{Event, RecordError, Recorded, SCHEMA};

/// A run folder. Opened for writing it holds the lock until it is dropped; looked at, it holds none.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// Locked while the run is written.
    lock: Option<File>,
}

impl RunFolder {
    /// Makes a new folder under `runs`, named after the experiment with the next free number
    /// (`quickstart-0001`), and locks it.
    ///
    /// # Errors
    /// [`RecordError::Io`], or [`RecordError::DiskFull`].
    pub fn create(runs: &Path, name: &str) -> Result<Self, RecordError> {
        fs::create_dir_all(runs).map_err(|e| RecordError::io("create", runs, e))?;
        let name = folder_name(name);
        let mut number = highest_number(runs, &name)? + 1;
        loop {
            let path = runs.join(format!("{name}-{number:04}"));
            match fs::create_dir(&path) {
                Ok(()) => {
                    let lock = Some(lock(&path)?);
                    fs::create_dir(path.join("checkpoints"))
                        .map_err(|e| RecordError::io("create", &path, e))?;
                    return Ok(Self { path, lock });
                }
                // Another run took the number since we looked.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(e) => return Err(RecordError::io("create", &path, e)),
            }
        }
    }

    /// Makes the run folder exactly at `path`, which must be missing or empty, and locks it.
    ///
    /// # Errors
    /// [`RecordError::Taken`] if something lies there, [`RecordError::Locked`], [`RecordError::Io`]
    /// or [`RecordError::DiskFull`].
    pub fn create_at(path: &Path) -> Result<Self, RecordError> {
        fs::create_dir_all(path).map_err(|e| RecordError::io("create", path, e))?;
        let lock = Some(lock(path)?);
        let names = names_in(path)?;
        if names.iter().any(|name| name != "lock") && !is_stillborn(path, &names) {
            return Err(RecordError::Taken {
                path: path.to_path_buf(),
            });
        }
        let checkpoints = path.join("checkpoints");
        fs::create_dir_all(&checkpoints).map_err(|e| RecordError::io("create", &checkpoints, e))?;
        Ok(Self {
            path: path.to_path_buf(),
            lock,
        })
    }

    /// Opens a run folder to go on with the run, and locks it. Drafts of checkpoints that were
    /// never finished are removed.
    ///
    /// # Errors
    /// [`RecordError::NotARun`], [`RecordError::NewerSchema`], [`RecordError::Locked`] or
    /// [`RecordError::Io`].
    pub fn open(path: &Path) -> Result<Self, RecordError> {
        check_is_run(path)?;
        let folder = Self {
            path: path.to_path_buf(),
            lock: Some(lock(path)?),
        };
        folder.remove_drafts()?;
        Ok(folder)
    }

    /// Opens a run folder to read it. Another process may be writing into it.
    ///
    /// # Errors
    /// [`RecordError::NotARun`], [`RecordError::NewerSchema`] or [`RecordError::Io`].
    pub fn look(path: &Path) -> Result<Self, RecordError> {
        check_is_run(path)?;
        Ok(Self {
            path: path.to_path_buf(),
            lock: None,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where one of its files is.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Whether this process may write into it.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.lock.is_some()
    }

    fn remove_drafts(&self) -> Result<(), RecordError> {
        let folder = self.file("checkpoints");
        for name in names_in(&folder)? {
            if name.starts_with(".draft-") {
                let path = folder.join(name);
                let removed = if path.is_dir() {
                    fs::remove_dir_all(&path)
                } else {
                    fs::remove_file(&path)
                };
                removed.map_err(|e| RecordError::io("remove", &path, e))?;
            }
        }
        Ok(())
    }
}

/// Whether a folder holds the beginning of a run that was killed before its first event: nothing in
/// it is worth keeping, and a new run may begin here.
fn is_stillborn(path: &Path, names: &[String]) -> bool {
    const BEGINNING: [&str; 8] = [
        "lock",
        "checkpoints",
        "experiment.ron",
        "vocab.json",
        "tokens.bin",
        "metrics.jsonl",
        "events.jsonl",
        "tensorboard",
    ];
    let empty = |name: &str| fs::metadata(path.join(name)).is_ok_and(|file| file.len() == 0);
    let no_event = !names.iter().any(|name| name == "events.jsonl") || empty("events.jsonl");
    let no_checkpoint = names_in(&path.join("checkpoints")).is_ok_and(|held| held.is_empty());
    names.iter().all(|name| BEGINNING.contains(&name.as_str())) && no_event && no_checkpoint
}

/// Says why a folder is no run, or that a newer program wrote it.
fn check_is_run(path: &Path) -> Result<(), RecordError> {
    let not = |missing: &str| RecordError::NotARun {
        path: path.to_path_buf(),
        missing: missing.into(),
    };
    if !path.exists() {
        return Err(not("it does not exist"));
    }
    if !path.is_dir() {
        return Err(not("it is a file"));
    }
    let events = path.join("events.jsonl");
    let file = match File::open(&events) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(not("events.jsonl is missing"));
        }
        Err(e) => return Err(RecordError::io("read", &events, e)),
    };
    let mut first = Vec::new();
    BufReader::new(file)
        .read_until(b'\n', &mut first)
        .map_err(|e| RecordError::io("read", &events, e))?;
    let first: serde_json::Value = serde_json::from_slice(&first)
        .map_err(|_| not("events.jsonl does not begin with an event"))?;
    if first["kind"] != "run_started" {
        return Err(not("events.jsonl does not begin with run_started"));
    }
    let schema = first["schema"].as_u64().unwrap_or(0);
    if schema > SCHEMA.into() {
        return Err(RecordError::NewerSchema {
            path: path.to_path_buf(),
            found: u32::try_from(schema).unwrap_or(u32::MAX),
            known: SCHEMA,
            version: first["version"].as_str().unwrap_or("unknown").into(),
        });
    }
    match serde_json::from_value(first) {
        Ok(Recorded {
            seq: 0,
            event: Event::RunStarted { .. },
        }) => Ok(()),
        _ => Err(not("run_started in events.jsonl is not readable")),
    }
}

fn lock(run: &Path) -> Result<File, RecordError> {
    let path = run.join("lock");
    let refused = |e| RecordError::io("lock", &path, e);
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(refused)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(RecordError::Locked {
            path: run.to_path_buf(),
            lock: path,
        }),
        Err(TryLockError::Error(e)) => Err(refused(e)),
    }
}

/// A name that is safe as a folder on every system.
pub(super) fn folder_name(name: &str) -> String {
    let safe: String = name
        .chars()
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' | '.' => c,
            _ => '-',
        })
        .collect();
    match safe.trim_start_matches('.') {
        "" => "run".into(),
        safe => safe.into(),
    }
}

fn highest_number(runs: &Path, name: &str) -> Result<u32, RecordError> {
    let number = |folder: &String| folder.strip_prefix(name)?.strip_prefix('-')?.parse().ok();
    Ok(names_in(runs)?.iter().filter_map(number).max().unwrap_or(0))
}

pub(super) fn names_in(folder: &Path) -> Result<Vec<String>, RecordError> {
    let refused = |e| RecordError::io("list", folder, e);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(refused)? {
        names.push(
            entry
                .map_err(refused)?
                .file_name()
                .to_string_lossy()
                .into_owned(),
        );
    }
    names.sort();
    Ok(names)
}

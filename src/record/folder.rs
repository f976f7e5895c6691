//! The run folder: its name, its lock, its checkpoints.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use super::append::{sync_folder, write_atomic};
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
        if names_in(path)?.iter().any(|name| name != "lock") {
            return Err(RecordError::Taken {
                path: path.to_path_buf(),
            });
        }
        let checkpoints = path.join("checkpoints");
        fs::create_dir(&checkpoints).map_err(|e| RecordError::io("create", &checkpoints, e))?;
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

    /// Begins a checkpoint under a temporary name. Write its files into [`CheckpointDraft::path`],
    /// then [`CheckpointDraft::commit`].
    ///
    /// # Errors
    /// [`RecordError::Io`], or [`RecordError::DiskFull`].
    pub fn begin_checkpoint(&self, name: &str) -> Result<CheckpointDraft, RecordError> {
        let name = folder_name(name);
        let path = self.file("checkpoints").join(format!(".draft-{name}"));
        if path.exists() {
            fs::remove_dir_all(&path).map_err(|e| RecordError::io("remove", &path, e))?;
        }
        fs::create_dir_all(&path).map_err(|e| RecordError::io("create", &path, e))?;
        Ok(CheckpointDraft { path, name })
    }

    /// The newest complete checkpoint, as the file `checkpoints/latest` names it.
    ///
    /// # Errors
    /// [`RecordError::NoCheckpoint`], or [`RecordError::Io`].
    pub fn latest_checkpoint(&self) -> Result<PathBuf, RecordError> {
        let pointer = self.file("checkpoints").join("latest");
        let none = |why| RecordError::NoCheckpoint {
            path: self.path.clone(),
            why,
        };
        let name = match fs::read_to_string(&pointer) {
            Ok(name) => name.trim().to_owned(),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(none("checkpoints/latest is missing".into()));
            }
            Err(e) => return Err(RecordError::io("read", &pointer, e)),
        };
        let path = self.file("checkpoints").join(&name);
        if path.is_dir() {
            Ok(path)
        } else {
            Err(none(format!(
                "checkpoints/latest names {name:?}, which is missing"
            )))
        }
    }

    /// Removes numbered checkpoints but the newest `keep` (0 keeps all). `final`, and the one that
    /// `latest` names, always stay.
    ///
    /// # Errors
    /// [`RecordError::Io`].
    pub fn keep_newest_checkpoints(&self, keep: usize) -> Result<(), RecordError> {
        if keep == 0 {
            return Ok(());
        }
        let folder = self.file("checkpoints");
        let latest = self.latest_checkpoint()?;
        let mut numbered: Vec<(bool, String)> = names_in(&folder)?
            .into_iter()
            .filter(|name| name.starts_with("step-") || name.starts_with("cold-start-"))
            .map(|name| (name.starts_with("step-"), name))
            .collect();
        numbered.sort();
        let surplus = numbered.len().saturating_sub(keep);
        for (_, name) in numbered.into_iter().take(surplus) {
            let path = folder.join(name);
            if path != latest {
                fs::remove_dir_all(&path).map_err(|e| RecordError::io("remove", &path, e))?;
            }
        }
        Ok(())
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

/// A checkpoint that is being written. Dropped without a commit it stays a draft, which the next
/// [`RunFolder::open`] removes.
#[derive(Debug)]
#[must_use = "a draft counts only after `commit`"]
pub struct CheckpointDraft {
    path: PathBuf,
    name: String,
}

impl CheckpointDraft {
    /// Where its files go.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its name once it is complete: what [`Event::CheckpointSaved`] names.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Syncs the files, gives the folder its name, and points `latest` at it. A checkpoint of the
    /// same name (left by a run that was resumed from before it) is replaced.
    ///
    /// # Errors
    /// [`RecordError::Io`], or [`RecordError::DiskFull`].
    pub fn commit(self) -> Result<PathBuf, RecordError> {
        let name = self.name.clone();
        let path = self.commit_beside()?;
        let pointer = path.with_file_name("latest");
        write_atomic(&pointer, format!("{name}\n").as_bytes())?;
        Ok(path)
    }

    /// As [`Self::commit`], but `latest` stays: for the final policy, which nothing resumes from.
    ///
    /// # Errors
    /// [`RecordError::Io`], or [`RecordError::DiskFull`].
    pub fn commit_beside(self) -> Result<PathBuf, RecordError> {
        let Self { path: draft, name } = self;
        for file in names_in(&draft)? {
            let file = draft.join(file);
            File::open(&file)
                .and_then(|f| f.sync_all())
                .map_err(|e| RecordError::io("sync", &file, e))?;
        }
        let folder = draft.parent().unwrap_or(&draft).to_path_buf();
        let path = folder.join(&name);
        let old = folder.join(format!(".draft-old-{name}"));
        if path.exists() {
            fs::rename(&path, &old).map_err(|e| RecordError::io("rename", &path, e))?;
        }
        fs::rename(&draft, &path).map_err(|e| RecordError::io("rename", &draft, e))?;
        sync_folder(&folder)?;
        if old.exists() {
            fs::remove_dir_all(&old).map_err(|e| RecordError::io("remove", &old, e))?;
        }
        Ok(path)
    }
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
fn folder_name(name: &str) -> String {
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

fn names_in(folder: &Path) -> Result<Vec<String>, RecordError> {
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

//! Checkpoints of a run folder: each appears whole, or not at all.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::append::{sync_folder, write_atomic};
use super::folder::{folder_name, names_in};
use super::{RecordError, RunFolder};

impl RunFolder {
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

    /// The checkpoint that the file `checkpoints/latest` names; the newest one if that file is
    /// missing or names none. Every folder under `checkpoints/` that is no draft is complete.
    ///
    /// # Errors
    /// [`RecordError::NoCheckpoint`] if there is none at all, or [`RecordError::Io`].
    pub fn latest_checkpoint(&self) -> Result<PathBuf, RecordError> {
        let folder = self.file("checkpoints");
        let pointer = folder.join("latest");
        let named = match fs::read_to_string(&pointer) {
            Ok(name) => Some(name.trim().to_owned()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(RecordError::io("read", &pointer, e)),
        };
        let numbered = self.numbered_checkpoints()?;
        let found = match &named {
            Some(name) if numbered.contains(name) => Some(name),
            _ => numbered.last(),
        };
        let Some(found) = found else {
            return Err(RecordError::NoCheckpoint {
                path: self.path().to_path_buf(),
                why: "checkpoints/ holds none".into(),
            });
        };
        if named.as_ref() != Some(found) {
            tracing::warn!(
                "checkpoints/latest names {named:?}, which is no checkpoint; using the newest, {found:?}"
            );
        }
        Ok(folder.join(found))
    }

    /// Names of the complete checkpoints that a run can go on from, the oldest first.
    fn numbered_checkpoints(&self) -> Result<Vec<String>, RecordError> {
        let folder = self.file("checkpoints");
        if !folder.exists() {
            return Ok(Vec::new());
        }
        let mut numbered: Vec<(bool, String)> = names_in(&folder)?
            .into_iter()
            .filter(|name| name.starts_with("step-") || name.starts_with("cold-start-"))
            .map(|name| (name.starts_with("step-"), name))
            .collect();
        numbered.sort();
        Ok(numbered.into_iter().map(|(_, name)| name).collect())
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
        let numbered = self.numbered_checkpoints()?;
        let surplus = numbered.len().saturating_sub(keep);
        for name in numbered.into_iter().take(surplus) {
            let path = folder.join(name);
            if path != latest {
                fs::remove_dir_all(&path).map_err(|e| RecordError::io("remove", &path, e))?;
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

    /// Its name once it is complete: what [`super::Event::CheckpointSaved`] names.
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

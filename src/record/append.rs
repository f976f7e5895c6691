//! Two ways to write a file: at once, or only ever at its end.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::RecordError;

/// More than this in memory is handed to the system without waiting for a flush.
const BUFFER_BYTES: usize = 1 << 20;

/// Writes a file so that a reader sees the old content or the new, never a part: a temporary file
/// in the same folder, synced, then renamed.
///
/// # Errors
/// [`RecordError::Io`], or [`RecordError::DiskFull`].
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), RecordError> {
    let refused = |source| RecordError::io("write", path, source);
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".draft-");
    // A temporary file is private unless told otherwise; ours becomes an ordinary one.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644));
    let mut draft = builder.tempfile_in(folder).map_err(refused)?;
    draft.write_all(bytes).map_err(refused)?;
    draft.as_file().sync_all().map_err(refused)?;
    draft.persist(path).map_err(|e| refused(e.error))?;
    sync_folder(folder)
}

/// Asks the system to keep the names in a folder, so that a rename outlives a power cut.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), RecordError> {
    if cfg!(unix) {
        File::open(folder)
            .and_then(|f| f.sync_all())
            .map_err(|e| RecordError::io("sync", folder, e))?;
    }
    Ok(())
}

/// A file that only grows. Bytes wait in memory until a flush; what the system did not take stays
/// there, so that a later flush goes on exactly where the earlier one stopped.
pub(crate) struct AppendFile<F = File> {
    path: PathBuf,
    file: F,
    buffer: Vec<u8>,
    /// Bytes in the file and in the buffer together: where the next byte will stand.
    length: u64,
}

impl AppendFile {
    /// Makes a new file; one that exists is refused.
    pub(crate) fn create(path: &Path) -> Result<Self, RecordError> {
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .open(path)
            .map_err(|e| RecordError::io("create", path, e))?;
        Ok(Self::over(path, file, 0))
    }

    /// Opens a file to go on at its end.
    pub(crate) fn reopen(path: &Path) -> Result<Self, RecordError> {
        let refused = |e| RecordError::io("open", path, e);
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map_err(refused)?;
        let length = file.metadata().map_err(refused)?.len();
        Ok(Self::over(path, file, length))
    }

    /// Opens a file of lines. A torn last line is ended, never removed: readers skip it and say so.
    pub(crate) fn reopen_lines(path: &Path) -> Result<Self, RecordError> {
        let mut lines = Self::reopen(path)?;
        if lines.length > 0 && last_byte(path)? != b'\n' {
            lines.push(b"\n")?;
        }
        Ok(lines)
    }

    /// Flushes, and waits until the bytes are on the disk.
    pub(crate) fn sync(&mut self) -> Result<(), RecordError> {
        self.flush()?;
        self.file
            .sync_data()
            .map_err(|e| RecordError::io("sync", &self.path, e))
    }
}

impl<F: Write> AppendFile<F> {
    pub(crate) fn over(path: &Path, file: F, length: u64) -> Self {
        Self {
            path: path.to_path_buf(),
            file,
            buffer: Vec::new(),
            length,
        }
    }

    /// Where the next byte will stand.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Takes bytes in; a whole line or a whole block each time, since a flush may follow any push.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), RecordError> {
        self.buffer.extend_from_slice(bytes);
        self.length += bytes.len() as u64;
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Hands everything to the system.
    pub(crate) fn flush(&mut self) -> Result<(), RecordError> {
        let mut taken = 0;
        let mut outcome = Ok(());
        while let Some(rest) = self.buffer.get(taken..).filter(|rest| !rest.is_empty()) {
            match self.file.write(rest) {
                Ok(0) => outcome = Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => taken += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => outcome = Err(e),
            }
            if outcome.is_err() {
                break;
            }
        }
        self.buffer.drain(..taken);
        outcome.map_err(|e| RecordError::io("write", &self.path, e))
    }
}

fn last_byte(path: &Path) -> Result<u8, RecordError> {
    let read = || {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::End(-1))?;
        let mut byte = [0];
        file.read_exact(&mut byte)?;
        Ok(byte[0])
    };
    read().map_err(|e| RecordError::io("read", path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many bytes, then says that the disk is full.
    struct Small<'a>(&'a mut Vec<u8>, usize);

    impl Write for Small<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = self.1.saturating_sub(self.0.len()).min(bytes.len());
            self.0.extend(&bytes[..room]);
            if room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            Ok(room)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_write_that_found_no_room_goes_on_where_it_stopped() {
        let mut disk = Vec::new();
        let path = Path::new("runs/a/events.jsonl");
        let mut lines = AppendFile::over(path, Small(&mut disk, 9), 0);
        lines.push(b"line one\nline two\n").unwrap();
        let refused = lines.flush().unwrap_err();
        assert!(refused.is_disk_full());
        assert!(
            refused.to_string().contains("--resume \"runs/a\""),
            "{refused}"
        );
        lines.file.1 = 1000;
        lines.flush().unwrap();
        assert_eq!(disk, b"line one\nline two\n");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_systems_word_for_a_full_disk_is_understood() {
        let path = Path::new("/dev/full");
        let mut lines = AppendFile::reopen(path).unwrap();
        lines.push(b"line\n").unwrap();
        assert!(lines.flush().unwrap_err().is_disk_full());
    }

    #[test]
    fn a_file_is_replaced_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("summary.json");
        write_atomic(&path, b"old").unwrap();
        write_atomic(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

//! Where the files of an experiment lie.

use std::path::{Path, PathBuf};

use super::finding::nearest;

/// The file in the same folder whose name is nearest.
pub(super) fn neighbour(path: &Path) -> Option<String> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".ron"))
        .collect();
    names.sort();
    nearest(
        path.file_name()?.to_str()?,
        names.iter().map(String::as_str),
    )
}

/// Finds a file or folder of an experiment: as it is (absolute, or relative to the current folder),
/// or in the folder of the program or one around it.
#[must_use]
pub fn find_path(path: &str) -> Option<PathBuf> {
    let path = Path::new(path);
    if path.exists() {
        return Some(path.to_owned());
    }
    let program = std::env::current_exe().ok()?;
    program
        .ancestors()
        .skip(1)
        .map(|folder| folder.join(path))
        .find(|candidate| candidate.exists())
}

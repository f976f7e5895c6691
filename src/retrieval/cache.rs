//! Indexes on disk: one folder for each corpus and recipe, beside the corpus or in the user's cache.
//!
//! An index is built in a folder of another name and renamed when it is whole, so that a kill leaves
//! no half index. Builders of the same index wait for each other.

use std::fs::File;
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_128;

use super::{Corpus, RetrievalError};

/// What an index is made by, beside the corpus. A change of any part is another index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Its kind, part of the folder's name: `bm25`, `dense`.
    pub kind: &'static str,
    /// Settings and versions in words.
    pub settings: String,
}

/// The index of a corpus by a recipe.
#[derive(Debug)]
pub struct IndexCache {
    folder: PathBuf,
    note: String,
}

/// What an index was built from; written last.
const NOTE: &str = "index.txt";

impl IndexCache {
    /// Finds the place of an index: `CORPUS.index/KIND-HASH` beside the corpus, or the same in the
    /// user's cache if that cannot be written. An index that is already there is found in both.
    ///
    /// # Errors
    /// [`RetrievalError::NoPlace`].
    pub fn new(corpus: &Corpus, recipe: &Recipe) -> Result<Self, RetrievalError> {
        let note = format!(
            "{}\n{}\ncorpus {:032x}\n",
            recipe.kind,
            recipe.settings,
            corpus.hash()
        );
        let hash = XxHash3_128::oneshot(note.as_bytes());
        let name = format!("{}-{:016x}", recipe.kind, hash >> 64);
        let file = corpus.path().file_name().unwrap_or_default();
        let mut with_ending = file.to_owned();
        with_ending.push(".index");
        let beside = corpus.path().with_file_name(with_ending);
        let cache = user_cache().join(file);
        for place in [&beside, &cache] {
            if place.join(&name).join(NOTE).exists() {
                let folder = place.join(&name);
                return Ok(Self { folder, note });
            }
        }
        let place = match writable(&beside) {
            Ok(()) => &beside,
            Err(_) => {
                writable(&cache).map_err(|source| RetrievalError::NoPlace {
                    beside: beside.clone(),
                    cache: cache.clone(),
                    source,
                })?;
                &cache
            }
        };
        let folder = place.join(&name);
        Ok(Self { folder, note })
    }

    /// The folder of the whole index; `build` fills a new folder if there is none yet.
    ///
    /// # Errors
    /// What `build` gives, and [`RetrievalError::Io`].
    pub fn folder(
        &self,
        build: impl FnOnce(&Path) -> Result<(), RetrievalError>,
    ) -> Result<&Path, RetrievalError> {
        let whole = || self.folder.join(NOTE).exists();
        if whole() {
            return Ok(&self.folder);
        }
        let writing = |path: &Path| {
            let path = path.to_owned();
            move |source| RetrievalError::writing(&path, source)
        };
        let lock_path = self.folder.with_extension("lock");
        let lock = File::create(&lock_path).map_err(writing(&lock_path))?;
        // The system lets go of it when this process ends, however it ends.
        lock.lock().map_err(writing(&lock_path))?;
        if whole() {
            return Ok(&self.folder);
        }
        let partial = self.folder.with_extension("partial");
        for left_over in [&partial, &self.folder] {
            if left_over.exists() {
                std::fs::remove_dir_all(left_over).map_err(writing(left_over))?;
            }
        }
        std::fs::create_dir_all(&partial).map_err(writing(&partial))?;
        build(&partial)?;
        let note = partial.join(NOTE);
        std::fs::write(&note, &self.note).map_err(writing(&note))?;
        File::open(&note)
            .and_then(|file| file.sync_all())
            .map_err(writing(&note))?;
        std::fs::rename(&partial, &self.folder).map_err(writing(&self.folder))?;
        Ok(&self.folder)
    }
}

/// Whether a file can be made in a folder, which is made if it is missing.
fn writable(folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    tempfile::tempfile_in(folder).map(|_| ())
}

/// Where the user's programs keep what they can make anew.
fn user_cache() -> PathBuf {
    let base = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
        .unwrap_or_else(std::env::temp_dir);
    base.join("palimpsest").join("indexes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus(folder: &Path, text: &str) -> Corpus {
        let path = folder.join("c.jsonl");
        std::fs::write(&path, text).unwrap();
        Corpus::open(&path, &mut |_, _, _| {}).unwrap()
    }

    fn recipe(settings: &str) -> Recipe {
        Recipe {
            kind: "test",
            settings: settings.into(),
        }
    }

    /// Builds, and counts how often something was built.
    fn build(corpus: &Corpus, settings: &str, built: &mut u32) -> PathBuf {
        let cache = IndexCache::new(corpus, &recipe(settings)).unwrap();
        let folder = cache
            .folder(|folder| {
                *built += 1;
                std::fs::write(folder.join("data"), settings)
                    .map_err(|source| RetrievalError::writing(folder, source))
            })
            .unwrap();
        folder.to_owned()
    }

    #[test]
    fn an_index_is_built_once_and_again_when_corpus_or_settings_change() {
        let folder = tempfile::tempdir().unwrap();
        let mut built = 0;
        let first = corpus(folder.path(), "{\"contents\": \"a\"}\n");
        let one = build(&first, "x", &mut built);
        assert_eq!(build(&first, "x", &mut built), one);
        assert_eq!(built, 1);
        assert_ne!(build(&first, "y", &mut built), one);
        let second = corpus(folder.path(), "{\"contents\": \"b\"}\n");
        assert_ne!(build(&second, "x", &mut built), one);
        assert_eq!(built, 3);
        assert!(one.starts_with(folder.path().join("c.jsonl.index")));
    }

    #[test]
    fn a_build_that_ends_half_way_leaves_no_index() {
        let folder = tempfile::tempdir().unwrap();
        let corpus = corpus(folder.path(), "{\"contents\": \"a\"}\n");
        let cache = IndexCache::new(&corpus, &recipe("x")).unwrap();
        let failed = cache.folder(|folder| {
            std::fs::write(folder.join("half"), "x").unwrap();
            Err(RetrievalError::index(folder, "killed"))
        });
        assert!(failed.is_err());
        let mut built = 0;
        let whole = build(&corpus, "x", &mut built);
        assert_eq!(built, 1);
        assert!(whole.join("data").exists() && !whole.join("half").exists());
    }
}

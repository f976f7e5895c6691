//! A corpus: one JSON row a line, as Search-R1 has it, plus the address of the passage's page:
//!
//! ```text
//! {"id": "0", "contents": "\"Title\"\nText", "url": "https://en.wikipedia.org/wiki/Title"}
//! ```
//!
//! Only places of rows are kept in memory, so that a corpus may be larger than it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};
use twox_hash::XxHash3_128;

use super::{OnProgress, RetrievalError};

/// What some programs of Windows begin a text with.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// How many rows pass between two words on progress.
const TOLD_EVERY: u64 = 1_000;

/// One row of a corpus.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// Title, line break, text.
    pub contents: String,
    /// Address of its page; empty if it has none.
    pub url: String,
}

impl Passage {
    /// The first line without the quotes around it.
    #[must_use]
    pub fn title(&self) -> &str {
        let line = self.contents.lines().next().unwrap_or("").trim();
        line.strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
            .unwrap_or(line)
    }

    /// All after the first line.
    #[must_use]
    pub fn body(&self) -> &str {
        self.contents.split_once('\n').map_or("", |(_, body)| body)
    }
}

/// Where a row lies in the file.
#[derive(Clone, Copy, Debug)]
struct RowPlace {
    start: u64,
    length: u32,
}

/// The passages of a file.
#[derive(Debug)]
pub struct Corpus {
    path: PathBuf,
    file: Mutex<File>,
    rows: Vec<RowPlace>,
    /// (hash of the page's address, row), sorted.
    pages: Vec<(u64, u32)>,
    hash: u128,
}

impl Corpus {
    /// Reads through a file once, checks every row, and keeps where rows and pages are. Empty lines
    /// and a byte order mark are passed over.
    ///
    /// # Errors
    /// [`RetrievalError::BadRow`] naming file, line and what is wrong; [`RetrievalError::Empty`].
    pub fn open(path: &Path, progress: OnProgress<'_>) -> Result<Self, RetrievalError> {
        let reading = |source| RetrievalError::reading(path, source);
        let file = File::open(path).map_err(reading)?;
        let size = file.metadata().map_err(reading)?.len();
        let mut lines = BufReader::with_capacity(1 << 20, &file);
        let mut hash = XxHash3_128::new();
        let (mut rows, mut pages) = (Vec::new(), Vec::new());
        let (mut start, mut number, mut line) = (0u64, 0u64, Vec::new());
        progress("reading the corpus", 0, size);
        loop {
            line.clear();
            let length = lines.read_until(b'\n', &mut line).map_err(reading)?;
            if length == 0 {
                break;
            }
            number += 1;
            hash.write(&line);
            let row_begins = match number {
                1 if line.starts_with(BYTE_ORDER_MARK) => BYTE_ORDER_MARK.len(),
                _ => 0,
            };
            let text = line.get(row_begins..).unwrap_or(&[]);
            if !text.trim_ascii().is_empty() {
                let passage = parse(path, number, text)?;
                let row = u32::try_from(rows.len()).unwrap_or(u32::MAX);
                if !passage.url.is_empty() {
                    pages.push((page_hash(&passage.url), row));
                }
                let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
                let start = start + row_begins as u64;
                rows.push(RowPlace { start, length });
            }
            start += length as u64;
            if number.is_multiple_of(TOLD_EVERY) {
                progress("reading the corpus", start, size);
            }
        }
        progress("reading the corpus", size, size);
        if rows.is_empty() {
            return Err(RetrievalError::Empty(path.to_owned()));
        }
        pages.sort_unstable();
        Ok(Self {
            path: path.to_owned(),
            file: Mutex::new(file),
            rows,
            pages,
            hash: hash.finish_128(),
        })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of passages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Never: an empty corpus is refused.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// A hash of every byte of the file.
    #[must_use]
    pub fn hash(&self) -> u128 {
        self.hash
    }

    /// The passage at a position.
    ///
    /// # Errors
    /// [`RetrievalError`] if there is no such row, or the file has changed since it was opened.
    pub fn passage(&self, row: u32) -> Result<Passage, RetrievalError> {
        parse(&self.path, u64::from(row) + 1, &self.line(row)?)
    }

    /// The row at a position, with every field it has.
    ///
    /// # Errors
    /// As [`Corpus::passage`].
    pub fn row(&self, row: u32) -> Result<Map<String, Value>, RetrievalError> {
        object(&self.path, u64::from(row) + 1, &self.line(row)?)
    }

    /// The bytes of a row.
    fn line(&self, row: u32) -> Result<Vec<u8>, RetrievalError> {
        let Some(place) = self.rows.get(row as usize) else {
            let problem = format!("there is no row {row}, only {}", self.rows.len());
            return Err(RetrievalError::index(&self.path, problem));
        };
        let mut line = vec![0; place.length as usize];
        {
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            file.seek(SeekFrom::Start(place.start))
                .and_then(|_| file.read_exact(&mut line))
                .map_err(|source| RetrievalError::reading(&self.path, source))?;
        }
        Ok(line)
    }

    /// The page at an address: its passages in corpus order, joined by line breaks; none if the
    /// corpus has no such page.
    ///
    /// # Errors
    /// As [`Corpus::passage`].
    pub fn page(&self, url: &str) -> Result<Option<String>, RetrievalError> {
        Ok(self.page_rows(url)?.map(|(_, text)| text))
    }

    /// The page at an address as a row: the first of its passages, with the contents of all.
    ///
    /// # Errors
    /// As [`Corpus::passage`].
    pub fn page_row(&self, url: &str) -> Result<Option<Map<String, Value>>, RetrievalError> {
        let Some((first, text)) = self.page_rows(url)? else {
            return Ok(None);
        };
        let mut row = self.row(first)?;
        row.insert("contents".to_owned(), Value::String(text));
        Ok(Some(row))
    }

    /// The first row of a page, and the text of all its rows.
    fn page_rows(&self, url: &str) -> Result<Option<(u32, String)>, RetrievalError> {
        let wanted = page_url(url);
        let hash = page_hash(url);
        let first = self.pages.partition_point(|(known, _)| *known < hash);
        let (mut first_row, mut texts) = (None, Vec::new());
        for (_, row) in self.pages[first..]
            .iter()
            .take_while(|(known, _)| *known == hash)
        {
            let passage = self.passage(*row)?;
            // Another address may have the same hash.
            if page_url(&passage.url) == wanted {
                first_row.get_or_insert(*row);
                texts.push(passage.contents);
            }
        }
        Ok(first_row.map(|row| (row, texts.join("\n"))))
    }

    /// Every passage in order.
    ///
    /// # Errors
    /// As [`Corpus::passage`].
    pub fn iter(&self) -> impl Iterator<Item = Result<Passage, RetrievalError>> + '_ {
        (0..self.rows.len() as u32).map(|row| self.passage(row))
    }
}

/// One spelling for each page, as ASearcher's server has it: MediaWiki's `index.php/Title` is
/// `index.php?title=Title`. Spaces around it do not matter.
fn page_url(url: &str) -> String {
    url.trim().replace("index.php/", "index.php?title=")
}

fn page_hash(url: &str) -> u64 {
    // Its first half.
    (XxHash3_128::oneshot(page_url(url).as_bytes()) >> 64) as u64
}

/// A row as an object.
fn object(path: &Path, line: u64, bytes: &[u8]) -> Result<Map<String, Value>, RetrievalError> {
    let bad = |problem: String, remedy| RetrievalError::BadRow {
        path: path.to_owned(),
        line,
        problem,
        remedy,
    };
    let row: Value = serde_json::from_slice(bytes).map_err(|error| {
        bad(
            format!("it is no JSON ({error})"),
            "write one JSON object a line",
        )
    })?;
    match row {
        Value::Object(row) => Ok(row),
        other => Err(bad(
            format!("it is {}, but a row must be an object", shown(&other)),
            "write {\"id\": .., \"contents\": ..}",
        )),
    }
}

fn parse(path: &Path, line: u64, bytes: &[u8]) -> Result<Passage, RetrievalError> {
    let bad = |problem: String, remedy| RetrievalError::BadRow {
        path: path.to_owned(),
        line,
        problem,
        remedy,
    };
    let mut row = object(path, line, bytes)?;
    let contents = match row.remove("contents") {
        Some(Value::String(text)) if !text.trim().is_empty() => text,
        Some(other) => {
            return Err(bad(
                format!(
                    "\"contents\" is {}, but must be a text with something in it",
                    shown(&other)
                ),
                "write title, line break and text there",
            ));
        }
        None => {
            let has: Vec<&str> = row.keys().map(String::as_str).collect();
            return Err(bad(
                format!("\"contents\" is missing; the row has {}", has.join(", ")),
                "write title, line break and text there",
            ));
        }
    };
    let url = match row.remove("url") {
        Some(Value::String(url)) => url,
        None | Some(Value::Null) => String::new(),
        Some(other) => {
            return Err(bad(
                format!("\"url\" is {}, but must be a text", shown(&other)),
                "write the page's address, or leave \"url\" out",
            ));
        }
    };
    Ok(Passage { contents, url })
}

/// A value in a message: not more of it than fits a line.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus(text: &str) -> (tempfile::TempDir, Result<Corpus, RetrievalError>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("corpus.jsonl");
        std::fs::write(&path, text).unwrap();
        let opened = Corpus::open(&path, &mut |_, _, _| {});
        (folder, opened)
    }

    #[test]
    fn rows_are_read_by_position_and_pages_by_address() {
        let (_folder, opened) = corpus(concat!(
            "{\"id\": \"7\", \"contents\": \"\\\"Ulm\\\"\\nA city.\", \"url\": \"http://w/index.php/Ulm\"}\n",
            "\n",
            "{\"contents\": \"Rome\\nA town.\"}\n",
            "{\"contents\": \"Ulm\\nIts history.\", \"url\": \"http://w/index.php?title=Ulm\", \"more\": 1}",
        ));
        let corpus = opened.unwrap();
        assert_eq!(corpus.len(), 3);
        let first = corpus.passage(0).unwrap();
        assert_eq!((first.title(), first.body()), ("Ulm", "A city."));
        assert_eq!(corpus.passage(1).unwrap().title(), "Rome");
        let page = corpus.page(" http://w/index.php/Ulm").unwrap();
        assert_eq!(page.as_deref(), Some("\"Ulm\"\nA city.\nUlm\nIts history."));
        assert_eq!(corpus.page("http://elsewhere").unwrap(), None);
        assert!(corpus.passage(3).is_err());
        assert_eq!(corpus.iter().count(), 3);
    }

    #[test]
    fn a_byte_order_mark_is_passed_over() {
        let (_folder, opened) =
            corpus("\u{feff}{\"contents\": \"Ulm\"}\n{\"contents\": \"Rome\"}\n");
        let corpus = opened.unwrap();
        let titles: Vec<String> = corpus
            .iter()
            .map(|passage| passage.unwrap().title().to_owned())
            .collect();
        assert_eq!(titles, ["Ulm", "Rome"]);
        assert_eq!(corpus.row(0).unwrap()["contents"], "Ulm");
    }

    #[test]
    fn a_wrong_row_names_its_line_and_what_is_wrong() {
        let good = "{\"contents\": \"a\"}\n";
        for (row, said) in [
            ("{\"contents\": ", "no JSON"),
            ("[1]", "must be an object"),
            (
                "{\"text\": \"a\"}",
                "\"contents\" is missing; the row has text",
            ),
            ("{\"contents\": \" \"}", "must be a text with something"),
            ("{\"contents\": 3}", "\"contents\" is 3"),
            ("{\"contents\": \"a\", \"url\": []}", "\"url\" is []"),
        ] {
            let (_folder, opened) = corpus(&format!("{good}\n{row}\n"));
            let error = opened.unwrap_err().to_string();
            assert!(error.contains("corpus.jsonl\", line 3:"), "{error}");
            assert!(error.contains(said), "{error}");
        }
        let (_folder, opened) = corpus("\n\n");
        assert!(matches!(opened, Err(RetrievalError::Empty(_))));
    }

    #[test]
    fn the_hash_knows_every_byte() {
        let hash = |text| corpus(text).1.unwrap().hash();
        assert_eq!(hash("{\"contents\": \"a\"}"), hash("{\"contents\": \"a\"}"));
        assert_ne!(hash("{\"contents\": \"a\"}"), hash("{\"contents\": \"b\"}"));
        assert_ne!(
            hash("{\"contents\": \"a\"}"),
            hash("{\"contents\": \"a\"}\n")
        );
    }
}

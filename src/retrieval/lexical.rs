//! Finding passages by their words: BM25 in tantivy.
//!
//! Words are lower case without English stop words, stemmed by Porter's rules, as Lucene's English
//! analyzer has it. k1 and b are tantivy's fixed 1.2 and 0.75; Search-R1's Pyserini index has 0.9 and
//! 0.4, so scores and the order of close passages differ from it.

use std::path::{Path, PathBuf};

use tantivy::collector::TopDocs;
use tantivy::indexer::NoMergePolicy;
use tantivy::query::{BooleanQuery, Occur, Query, TermQuery};
use tantivy::schema::{FAST, Field, IndexRecordOption, Schema, TextFieldIndexing, TextOptions};
use tantivy::tokenizer::{
    Language, LowerCaser, RemoveLongFilter, SimpleTokenizer, Stemmer, StopWordFilter, TextAnalyzer,
};
use tantivy::{Index, IndexReader, IndexWriter, ReloadPolicy, TantivyDocument, Term};

use super::{Corpus, Hit, IndexCache, OnProgress, Recipe, RetrievalError, Retriever, sort_hits};

/// Names the words, the parameters and the layout of the index; a change of any builds anew.
const SETTINGS: &str = "tantivy 0.27, English, Porter, stop words, title and text in one field";
const ANALYZER: &str = "palimpsest_english";
const TEXT: &str = "text";
const ROW: &str = "row";
/// Longer words are no words.
const LONGEST_WORD: usize = 255;
/// Memory of the writer before it flushes a segment.
const WRITER_BYTES: usize = 256 << 20;
/// How many rows pass between two words on progress.
const TOLD_EVERY: u64 = 500;

/// A BM25 index over a corpus.
pub struct LexicalIndex {
    folder: PathBuf,
    reader: IndexReader,
    analyzer: TextAnalyzer,
    text: Field,
}

impl LexicalIndex {
    /// Opens the index of a corpus; builds it first if there is none.
    ///
    /// # Errors
    /// [`RetrievalError`] if it can neither be opened nor built.
    pub fn open(corpus: &Corpus, progress: OnProgress<'_>) -> Result<Self, RetrievalError> {
        let recipe = Recipe {
            kind: "bm25",
            settings: SETTINGS.to_owned(),
        };
        let cache = IndexCache::new(corpus, &recipe)?;
        let folder = cache.folder(|folder| build(corpus, folder, progress))?;
        let failed = |error: tantivy::TantivyError| RetrievalError::index(folder, error);
        let index = Index::open_in_dir(folder).map_err(failed)?;
        let text = index.schema().get_field(TEXT).map_err(failed)?;
        let reader = index
            .reader_builder()
            .reload_policy(ReloadPolicy::Manual)
            .try_into()
            .map_err(failed)?;
        Ok(Self {
            folder: folder.to_owned(),
            reader,
            analyzer: analyzer(),
            text,
        })
    }

    fn failed(&self, error: impl std::fmt::Display) -> RetrievalError {
        RetrievalError::index(&self.folder, error)
    }

    /// Any word of the query counts; a word that stands there twice counts twice.
    fn query(&self, text: &str) -> BooleanQuery {
        let mut words: Vec<(Occur, Box<dyn Query>)> = Vec::new();
        let mut analyzer = self.analyzer.clone();
        let mut tokens = analyzer.token_stream(text);
        while let Some(token) = tokens.next() {
            let term = Term::from_field_text(self.text, &token.text);
            let query = TermQuery::new(term, IndexRecordOption::WithFreqs);
            words.push((Occur::Should, Box::new(query)));
        }
        BooleanQuery::new(words)
    }
}

impl Retriever for LexicalIndex {
    fn search(&self, queries: &[String], count: usize) -> Result<Vec<Vec<Hit>>, RetrievalError> {
        let searcher = self.reader.searcher();
        // There is room for as many as are asked for, so there are no more than there can be.
        let count = count.min(searcher.num_docs() as usize);
        let rows = searcher
            .segment_readers()
            .iter()
            .map(|segment| segment.fast_fields().u64(ROW))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| self.failed(error))?;
        let mut all = Vec::with_capacity(queries.len());
        for text in queries {
            let best = TopDocs::with_limit(count.max(1)).order_by_score();
            let found = searcher
                .search(&self.query(text), &best)
                .map_err(|error| self.failed(error))?;
            let mut hits = found
                .into_iter()
                .filter_map(|(score, at)| {
                    let row = rows.get(at.segment_ord as usize)?.first(at.doc_id)?;
                    let passage = u32::try_from(row).ok()?;
                    Some(Hit { passage, score })
                })
                .collect::<Vec<_>>();
            sort_hits(&mut hits);
            hits.truncate(count);
            all.push(hits);
        }
        Ok(all)
    }
}

fn analyzer() -> TextAnalyzer {
    let words = TextAnalyzer::builder(SimpleTokenizer::default())
        .filter(RemoveLongFilter::limit(LONGEST_WORD))
        .filter(LowerCaser);
    match StopWordFilter::new(Language::English) {
        Some(stop_words) => words
            .filter(stop_words)
            .filter(Stemmer::new(Language::English))
            .build(),
        None => words.filter(Stemmer::new(Language::English)).build(),
    }
}

/// Fills a folder with an index of one segment.
fn build(corpus: &Corpus, folder: &Path, progress: OnProgress<'_>) -> Result<(), RetrievalError> {
    let failed = |error: tantivy::TantivyError| RetrievalError::index(folder, error);
    let mut schema = Schema::builder();
    let indexing = TextFieldIndexing::default()
        .set_tokenizer(ANALYZER)
        .set_index_option(IndexRecordOption::WithFreqs);
    let text = schema.add_text_field(TEXT, TextOptions::default().set_indexing_options(indexing));
    let row = schema.add_u64_field(ROW, FAST);
    let index = Index::create_in_dir(folder, schema.build()).map_err(failed)?;
    index.tokenizers().register(ANALYZER, analyzer());
    // One thread and no merging on the side: the same corpus gives the same index.
    let mut writer: IndexWriter = index
        .writer_with_num_threads(1, WRITER_BYTES)
        .map_err(failed)?;
    writer.set_merge_policy(Box::new(NoMergePolicy));
    let total = corpus.len() as u64;
    progress("indexing words", 0, total);
    for (number, passage) in (0u64..).zip(corpus.iter()) {
        let mut document = TantivyDocument::default();
        document.add_text(text, passage?.contents);
        document.add_u64(row, number);
        writer.add_document(document).map_err(failed)?;
        if (number + 1).is_multiple_of(TOLD_EVERY) {
            progress("indexing words", number + 1, total);
        }
    }
    writer.commit().map_err(failed)?;
    let segments = index.searchable_segment_ids().map_err(failed)?;
    if segments.len() > 1 {
        writer.merge(&segments).wait().map_err(failed)?;
    }
    writer.wait_merging_threads().map_err(failed)?;
    progress("indexing words", total, total);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_find_their_passages_in_any_form_and_rare_ones_count_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.jsonl");
        let rows = [
            "Ulm\\nA city in Germany with a minster.",
            "Rome\\nA city in Italy.",
            "Minsters\\nThe minsters of Germany are old.",
            "Tea\\nA drink.",
        ];
        let text: String = rows
            .iter()
            .map(|row| format!("{{\"contents\": \"{row}\"}}\n"))
            .collect();
        std::fs::write(&path, text).unwrap();
        let corpus = Corpus::open(&path, &mut |_, _, _| {}).unwrap();
        let mut told = Vec::new();
        let index =
            LexicalIndex::open(&corpus, &mut |what, done, _| told.push((what, done))).unwrap();
        assert_eq!(told, [("indexing words", 0), ("indexing words", 4)]);
        let again = LexicalIndex::open(&corpus, &mut |_, _, _| panic!("it is there")).unwrap();
        let find = |query: &str, count| -> Vec<u32> {
            let queries = [query.to_owned()];
            let found = index.search(&queries, count).unwrap();
            assert_eq!(again.search(&queries, count).unwrap(), found);
            found[0].iter().map(|hit| hit.passage).collect()
        };
        assert_eq!(find("Which minster?", 10), [2, 0]);
        assert_eq!(find("Which minster?", usize::MAX), [2, 0]);
        assert_eq!(find("italian cities in Italy", 1), [1]);
        assert_eq!(find("the of a", 10), [0u32; 0]);
        assert_eq!(find("", 10), [0u32; 0]);
        // No query language: signs are no commands.
        assert_eq!(find("tea +(\"AND", 10), [3]);
    }
}

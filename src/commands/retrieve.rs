//! `palimpsest retrieve`: the passages of questions, and how many of the supporting ones are there.

use std::io::Write as _;
use std::process::ExitCode;

use palimpsest::retrieval::{Library, recall_at, same_title};
use palimpsest::task::search::{SearchQuestion, read_queries};
use serde_json::{Map, Value, json};

use super::library::{Bar, open_library};
use crate::arguments::Retrieve;

/// Questions that are looked up at a time.
const BATCH: usize = 64;
/// Depths at which recall is told.
const DEPTHS: [usize; 2] = [5, 10];

/// Runs the command.
pub fn retrieve(arguments: &Retrieve) -> anyhow::Result<ExitCode> {
    let questions = read_queries(&arguments.questions)?;
    let mut bar = Bar::default();
    let Library { corpus, retriever } = open_library(&arguments.finding, &mut bar)?;
    bar.end();
    let count = arguments.topk.get();
    let mut recall = Recall::new(count);
    let mut out = std::io::stdout().lock();
    for batch in questions.chunks(BATCH) {
        let texts: Vec<String> = batch.iter().map(SearchQuestion::text).collect();
        for (question, hits) in batch.iter().zip(retriever.search(&texts, count)?) {
            let mut titles = Vec::with_capacity(hits.len());
            for hit in &hits {
                titles.push(corpus.passage(hit.passage)?.title().to_owned());
            }
            recall.count(&titles, &question.supporting_titles);
            if arguments.json {
                let line = json!({
                    "id": question.id,
                    "question": question.text(),
                    "passages": hits.iter().map(|hit| hit.passage).collect::<Vec<_>>(),
                    "titles": titles,
                    "scores": hits.iter().map(|hit| hit.score).collect::<Vec<_>>(),
                    "supporting_titles": question.supporting_titles,
                });
                writeln!(out, "{line}")?;
            } else {
                writeln!(out, "{}", question.text())?;
                let wanted = &question.supporting_titles;
                let wanted: Vec<String> = wanted.iter().map(|title| same_title(title)).collect();
                for (title, hit) in titles.iter().zip(&hits) {
                    let supports = wanted.contains(&same_title(title));
                    let mark = if supports { '*' } else { ' ' };
                    writeln!(out, "  {mark} {:9.3}  {title}", hit.score)?;
                }
            }
        }
    }
    if arguments.json {
        writeln!(out, "{}", recall.to_json())?;
    } else {
        writeln!(out, "{}", recall.to_text())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Recall of supporting titles, over the questions that name some.
struct Recall {
    /// Passages that were asked for.
    count: usize,
    depths: Vec<usize>,
    sums: Vec<f64>,
    n: u32,
}

impl Recall {
    fn new(count: usize) -> Self {
        let mut depths = DEPTHS.to_vec();
        if !depths.contains(&count) {
            depths.push(count);
            depths.sort_unstable();
        }
        Self {
            sums: vec![0.0; depths.len()],
            depths,
            count,
            n: 0,
        }
    }

    fn count(&mut self, titles: &[String], wanted: &[String]) {
        if wanted.is_empty() {
            return;
        }
        self.n += 1;
        for (sum, depth) in self.sums.iter_mut().zip(&self.depths) {
            *sum += recall_at(*depth, titles, wanted).unwrap_or(0.0);
        }
    }

    /// (name, mean); no mean without a question that names titles, nor of more than was asked for.
    fn means(&self) -> Vec<(String, Option<f64>)> {
        let mean = |sum: &f64| (self.n > 0).then(|| sum / f64::from(self.n));
        self.depths
            .iter()
            .zip(&self.sums)
            .map(|(depth, sum)| {
                let known = *depth <= self.count;
                (format!("recall@{depth}"), mean(sum).filter(|_| known))
            })
            .collect()
    }

    fn to_json(&self) -> Value {
        let mut fields: Map<String, Value> = self
            .means()
            .into_iter()
            .map(|(name, mean)| (name, json!(mean)))
            .collect();
        fields.insert("n".to_owned(), json!(self.n));
        Value::Object(fields)
    }

    fn to_text(&self) -> String {
        if self.n == 0 {
            return "no question names supporting titles, so there is no recall".to_owned();
        }
        let means: Vec<String> = self
            .means()
            .into_iter()
            .filter_map(|(name, mean)| Some(format!("{name} {:.3}", mean?)))
            .collect();
        format!("{} over {} questions", means.join("  "), self.n)
    }
}

//! `<search>` over a corpus.

use super::shape::{Shown, asearcher_text, search_r1_text, verl_json, verl_text};
use super::{Tool, ToolCall, ToolError, ToolFuture};
use crate::experiment::ResultShape;
use crate::retrieval::{Library, Passage, RetrievalError};
use crate::trajectory::Action;

/// What verl says where nothing was found.
const NOTHING: &str = "No search results found.";

/// Finds the passages that fit a query best.
pub struct CorpusSearch {
    /// Where.
    pub library: Library,
    /// How many.
    pub passages: usize,
    /// How they are told.
    pub shape: ResultShape,
}

impl Tool for CorpusSearch {
    fn name(&self) -> &'static str {
        "search"
    }

    fn serves(&self, action: &Action) -> bool {
        matches!(action, Action::Search(_))
    }

    fn call(&self, call: ToolCall) -> ToolFuture {
        let (library, count, shape) = (self.library.clone(), self.passages, self.shape);
        Box::pin(async move {
            let query = match call.action {
                Action::Search(query) => query.trim().to_owned(),
                other => return Err(ToolError::Unknown(other)),
            };
            let found = tokio::task::spawn_blocking(move || text_of(&library, query, count, shape));
            let failed = |problem: String| ToolError::Failed {
                name: "search".into(),
                problem,
            };
            found
                .await
                .map_err(|error| failed(error.to_string()))?
                .map_err(|error| failed(error.to_string()))
        })
    }
}

/// What a search tells. An index works for milliseconds, so it has a thread of its own.
fn text_of(
    library: &Library,
    query: String,
    count: usize,
    shape: ResultShape,
) -> Result<String, RetrievalError> {
    let hits = library.retriever.search(&[query], count)?;
    let passages = hits
        .iter()
        .flatten()
        .map(|hit| library.corpus.passage(hit.passage))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(told(&passages, shape))
}

/// Passages as the policy sees them.
pub(super) fn told(passages: &[Passage], shape: ResultShape) -> String {
    let shown: Vec<Shown<'_>> = passages
        .iter()
        .map(|passage| Shown {
            contents: &passage.contents,
            url: &passage.url,
        })
        .collect();
    match shape {
        // Search-R1's servers always find something; an empty result would tell nothing.
        ResultShape::SearchR1 if shown.is_empty() => NOTHING.to_owned(),
        ResultShape::SearchR1 => search_r1_text(&shown),
        ResultShape::Asearcher => asearcher_text(&shown),
        ResultShape::Verl if shown.is_empty() => verl_json(NOTHING),
        ResultShape::Verl => verl_json(&verl_text(&shown)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Split;
    use crate::task::search::tests::task;
    use crate::tools::{ToolLink, of};
    use crate::trajectory::TrajectoryId;

    #[test]
    fn the_tools_search_and_read_the_corpus_in_the_chosen_shape() {
        let folder = tempfile::tempdir().unwrap();
        for (shape, said) in [
            (ResultShape::SearchR1, "Doc 1(Title: \"Ulm\") Ulm is a city"),
            (
                ResultShape::Asearcher,
                "[Doc 1](http://w/Ulm):\n\"Ulm\"\nUlm is",
            ),
            (
                ResultShape::Verl,
                r#"{"result": "Doc 1 (Title: \"Ulm\")\nUlm is"#,
            ),
        ] {
            let (experiment, task) = task(folder.path(), |experiment| {
                experiment.task.result_shape = shape;
            });
            let mut link =
                ToolLink::start(of(task.as_ref(), &experiment.task).unwrap(), 10.0, 120).unwrap();
            let question = std::sync::Arc::new(task.question(1, 0, 0, 1, Split::Test, false));
            let mut call = |action| {
                link.call(ToolCall {
                    id: TrajectoryId::default(),
                    turn: 0,
                    action,
                    question: question.clone(),
                });
                link.wait_for_all().unwrap();
                link.take_replies().remove(0).result.unwrap()
            };
            let found = call(Action::Search(" mayor of Ulm ".into()));
            assert!(found.starts_with(said), "{found}");
            let page = call(Action::Access("http://w/Ulm".into()));
            assert!(page.ends_with("Its mayor is Ann Lee."), "{page}");
            let none = call(Action::Access("http://127.0.0.1/".into()));
            assert_eq!(none, "No More Information is Found for this URL.");
            let nothing = call(Action::Search("zzz".into()));
            assert!(nothing.contains("No search results"), "{nothing}");
            let tea = call(Action::Search("tea".into()));
            assert!(
                !task.render_tool(&tea).0.contains("<mem>"),
                "a passage opens no block"
            );
        }
    }
}

//! What a search brought, as text for the policy, in the shapes of the peers.

use serde_json::Value;

/// A passage as it is shown: first line of a corpus row, the rest, and its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown<'a> {
    /// The row's text: title, line break, body.
    pub contents: &'a str,
    /// Where its page is; empty if it has none.
    pub url: &'a str,
}

impl<'a> Shown<'a> {
    /// The first line as it stands, quotes included.
    #[must_use]
    pub fn title(&self) -> &'a str {
        self.contents
            .split_once('\n')
            .map_or(self.contents, |(title, _)| title)
    }

    /// All after the first line.
    #[must_use]
    pub fn body(&self) -> &'a str {
        self.contents.split_once('\n').map_or("", |(_, body)| body)
    }
}

/// Search-R1's: `Doc 1(Title: T) BODY` and a line break, for every passage.
#[must_use]
pub fn search_r1_text(passages: &[Shown<'_>]) -> String {
    passages
        .iter()
        .zip(1..)
        .map(|(passage, number)| {
            format!(
                "Doc {number}(Title: {}) {}\n",
                passage.title(),
                passage.body()
            )
        })
        .collect()
}

/// Search-R1's result between its tags and line breaks, as it is appended to the context.
#[must_use]
pub fn search_r1_block(passages: &[Shown<'_>]) -> String {
    format!(
        "\n\n<information>{}</information>\n\n",
        search_r1_text(passages).trim()
    )
}

/// verl's for one query: `Doc 1 (Title: T)`, the body, an empty line between passages.
#[must_use]
pub fn verl_text(passages: &[Shown<'_>]) -> String {
    let joined: String = passages
        .iter()
        .zip(1..)
        .map(|(passage, number)| {
            format!(
                "Doc {number} (Title: {})\n{}\n\n",
                passage.title(),
                passage.body()
            )
        })
        .collect();
    joined.trim().to_owned()
}

/// Most characters of a passage that ASearcher shows.
const ASEARCHER_PASSAGE: usize = 5_000;

/// ASearcher's between its tags.
#[must_use]
pub fn asearcher_block(passages: &[Shown<'_>]) -> String {
    information(&asearcher_text(passages))
}

/// ASearcher's: `[Doc 1](url):` and the passage, cut to 5000 characters.
#[must_use]
pub fn asearcher_text(passages: &[Shown<'_>]) -> String {
    if passages.is_empty() {
        return "No search results are found.".to_owned();
    }
    let shown: Vec<String> = passages
        .iter()
        .zip(1..)
        .map(|(passage, number)| {
            let head = head(passage.contents, ASEARCHER_PASSAGE);
            format!("[Doc {number}]({}):\n{head}", passage.url)
        })
        .collect();
    shown.join("\n\n")
}

/// ASearcher's frame around what a tool brought.
#[must_use]
pub fn information(text: &str) -> String {
    format!("<information>\n{text}\n</information>")
}

/// The first `limit` characters.
#[must_use]
pub fn head(text: &str, limit: usize) -> &str {
    match text.char_indices().nth(limit) {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

/// What came of a call of verl's search tool, in verl's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerlStatus {
    /// Passages were found.
    Success,
    /// The server answered with nothing.
    NoResults,
    /// The server failed.
    ApiError,
    /// The server's answer has another shape.
    ProcessingError,
    /// Neither an answer nor an error.
    UnknownApiState,
}

impl VerlStatus {
    /// verl's word in its metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::NoResults => "no_results",
            Self::ApiError => "api_error",
            Self::ProcessingError => "processing_error",
            Self::UnknownApiState => "unknown_api_state",
        }
    }
}

/// verl's search tool, from a server's answer (or its error) to the JSON text that the policy
/// sees: the status, and how many passages there were.
#[must_use]
pub fn verl_tool_text(response: &Value, error: Option<&str>) -> (String, VerlStatus, usize) {
    let reply = |text: &str, status, total| (verl_json(text), status, total);
    if let Some(error) = error {
        return reply(&format!("Search error: {error}"), VerlStatus::ApiError, 0);
    }
    let Some(response) = response.as_object().filter(|response| !response.is_empty()) else {
        return reply(
            "Unknown API state (no response and no error message).",
            VerlStatus::UnknownApiState,
            0,
        );
    };
    let queries = match response.get("result") {
        Some(Value::Array(queries)) if !queries.is_empty() => queries,
        _ => return reply("No search results found.", VerlStatus::NoResults, 0),
    };
    let mut texts = Vec::with_capacity(queries.len());
    let mut total = 0;
    for query in queries {
        match verl_passages(query) {
            Ok(passages) => {
                total += passages.len();
                texts.push(verl_text(&passages));
            }
            Err(missing) => {
                let problem = format!("Error processing search results: {missing}");
                return reply(&problem, VerlStatus::ProcessingError, 0);
            }
        }
    }
    reply(&texts.join("\n---\n"), VerlStatus::Success, total)
}

/// verl's JSON around a result, as Python's json.dumps writes it: a space after the colon.
#[must_use]
pub fn verl_json(text: &str) -> String {
    format!("{{\"result\": {}}}", Value::from(text))
}

/// The passages of one query, or what is missing, as Python names a missing key.
fn verl_passages(query: &Value) -> Result<Vec<Shown<'_>>, String> {
    let rows = query.as_array().ok_or("not a list of passages")?;
    rows.iter()
        .map(|row| {
            let document = row.get("document").ok_or("'document'")?;
            let contents = document.get("contents").and_then(Value::as_str);
            Ok(Shown {
                contents: contents.ok_or("'contents'")?,
                url: document.get("url").and_then(Value::as_str).unwrap_or(""),
            })
        })
        .collect()
}

/// Search-R1's cut of a response: after the first `</search>`, else after the first `</answer>`.
#[must_use]
pub fn search_r1_cut(response: &str) -> &str {
    ["</search>", "</answer>"]
        .iter()
        .find_map(|close| response.find(close).map(|at| &response[..at + close.len()]))
        .unwrap_or(response)
}

/// Search-R1's reading of a cut response: the first block `search` or `answer` that is closed, its
/// name, and its content without spaces around it.
#[must_use]
pub fn search_r1_action(response: &str) -> Option<(&'static str, &str)> {
    ["search", "answer"]
        .into_iter()
        .filter_map(|tag| {
            let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
            let start = response.find(&open)?;
            let inside = &response[start + open.len()..];
            let content = &inside[..inside.find(&close)?];
            Some((start, tag, content.trim()))
        })
        .min_by_key(|(start, ..)| *start)
        .map(|(_, tag, content)| (tag, content))
}

//! One row of questions, from JSON. Rows come in two shapes:
//!
//! - plain: `question` and `golden_answers` (or `answer`, `answers`, `gt`), as Search-R1's and
//!   ASearcher's files have them, with `id`, `source` and `supporting_titles` where there are some;
//! - verl's: `prompt` (messages), `reward_model.ground_truth` (perhaps in a `target`),
//!   `data_source`, `extra_info`. The question itself is `extra_info.question`, else `question`,
//!   else what stands after the last `Question:` of the user's message, else the whole message.
//!
//! Right answers are a text, a list of aliases, or a list of such lists, one an objective; then the
//! question is `q1; q2; ...`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;

use serde_json::{Map, Value};

use super::question::{Asked, SearchQuestion};
use crate::task::TaskError;
use crate::task::qa::{is_space, split_questions};

/// Fields that may hold the right answers, in order of preference.
const GOLD_FIELDS: [&str; 4] = ["golden_answers", "answers", "answer", "gt"];

/// What some programs of Windows begin a text with.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Makes a question of a row, whose number names it if it has no id.
pub(super) type Make = fn(Value, usize) -> Result<SearchQuestion, Fault>;

/// Reads JSON lines; empty lines and a byte order mark are passed over.
pub(super) fn read_lines(path: &Path, make: Make) -> Result<Vec<SearchQuestion>, TaskError> {
    let unreadable = |source| TaskError::UnreadableQuestions {
        path: path.to_owned(),
        source,
    };
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut questions = Vec::new();
    for (line, number) in BufReader::new(file).split(b'\n').zip(1..) {
        let line = line.map_err(unreadable)?;
        let line = match line.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) if number == 1 => rest,
            _ => &line,
        };
        if line.trim_ascii().is_empty() {
            continue;
        }
        let fault = |(problem, remedy): Fault| bad_row(path, "line", number, problem, remedy);
        let row = serde_json::from_slice(line).map_err(|error| {
            fault((
                format!("it is no JSON ({error})"),
                "write one JSON object a line, in UTF-8",
            ))
        })?;
        questions.push(make(row, number).map_err(fault)?);
    }
    Ok(questions)
}

/// A row that breaks a rule.
pub(super) fn bad_row(
    path: &Path,
    unit: &'static str,
    number: usize,
    problem: String,
    remedy: &'static str,
) -> TaskError {
    TaskError::BadQuestion {
        path: path.to_owned(),
        unit,
        number,
        problem,
        remedy,
    }
}

/// What is wrong with a row, and what to do.
pub(super) type Fault = (String, &'static str);

/// The question of a row as it is asked and judged.
pub(super) fn question(row: Value, number: usize) -> Result<SearchQuestion, Fault> {
    let row = object(row)?;
    let (field, gold) = gold_of(&row)?;
    let golds = alias_lists(&field, gold)?;
    let text = text_of(&row)?;
    let parts = split_questions(&text, golds.len()).ok_or_else(|| {
        (
            format!(
                "{field:?} has right answers for {} questions, but the question {text:?} does not fall into as many parts, neither at \";\", \"; \" nor after \"?\"",
                golds.len()
            ),
            "write the questions as q1; q2; ...",
        )
    })?;
    let objectives = parts
        .into_iter()
        .zip(golds)
        .map(|(question, gold)| Asked {
            question: question.to_owned(),
            gold,
        })
        .collect();
    Ok(SearchQuestion {
        id: id_of(&row, number),
        source: string_at(&row, &["source", "data_source"]).unwrap_or_default(),
        objectives,
        supporting_titles: titles_of(&row)?,
    })
}

/// The question of a row as it is looked up: whole, without right answers.
pub(super) fn query(row: Value, number: usize) -> Result<SearchQuestion, Fault> {
    let row = object(row)?;
    Ok(SearchQuestion {
        id: id_of(&row, number),
        source: string_at(&row, &["source", "data_source"]).unwrap_or_default(),
        objectives: vec![Asked {
            question: text_of(&row)?,
            gold: Vec::new(),
        }],
        supporting_titles: titles_of(&row)?,
    })
}

fn object(row: Value) -> Result<Map<String, Value>, Fault> {
    match row {
        Value::Object(row) => Ok(row),
        other => Err((
            format!("it is {}, but a row must be an object", shown(&other)),
            "write {\"question\": .., \"golden_answers\": [..]}",
        )),
    }
}

fn string_at(row: &Map<String, Value>, names: &[&str]) -> Option<String> {
    names
        .iter()
        .find_map(|name| row.get(*name)?.as_str().map(str::to_owned))
}

fn id_of(row: &Map<String, Value>, number: usize) -> String {
    let extra = row.get("extra_info").and_then(|extra| extra.get("index"));
    match row.get("id").filter(|id| !id.is_null()).or(extra) {
        Some(Value::String(id)) => id.clone(),
        Some(Value::Null) | None => (number - 1).to_string(),
        Some(other) => other.to_string(),
    }
}

fn titles_of(row: &Map<String, Value>) -> Result<Vec<String>, Fault> {
    match row.get("supporting_titles") {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(value) => texts(value).filter(|_| value.is_array()).ok_or_else(|| {
            (
                format!(
                    "\"supporting_titles\" is {}, but must be a list of texts",
                    shown(value)
                ),
                "list the titles, or leave the field out",
            )
        }),
    }
}

/// The question of a row as one text.
fn text_of(row: &Map<String, Value>) -> Result<String, Fault> {
    let extra = row
        .get("extra_info")
        .and_then(|extra| extra.get("question"))
        .and_then(Value::as_str);
    let plain = row.get("question").and_then(Value::as_str);
    let blank = |text: &str| text.trim_matches(is_space).is_empty();
    let mut written = [extra, plain].into_iter().flatten();
    let text = match (written.find(|text| !blank(text)), row.get("prompt")) {
        (Some(text), _) => text,
        (None, Some(prompt)) if !prompt.is_null() => asked_in(prompt).ok_or_else(|| {
            (
                format!(
                    "\"prompt\" is {}, but must be messages of which one is the user's",
                    shown(prompt)
                ),
                "write [{\"role\": \"user\", \"content\": ..}]",
            )
        })?,
        _ if extra.is_some() || plain.is_some() => "",
        _ => {
            return Err((
                format!(
                    "neither \"question\" nor \"prompt\" is a text; the row has {}",
                    names(row)
                ),
                "write the question there",
            ));
        }
    };
    let text = text.trim_matches(is_space);
    if text.is_empty() {
        return Err(("the question is empty".to_owned(), "write one"));
    }
    Ok(text.to_owned())
}

/// What the user's last message asks.
fn asked_in(prompt: &Value) -> Option<&str> {
    let content = match prompt {
        Value::String(text) => text.as_str(),
        messages => messages
            .as_array()?
            .iter()
            .rev()
            .find(|message| message.get("role").and_then(Value::as_str) == Some("user"))?
            .get("content")?
            .as_str()?,
    };
    Some(match content.rsplit_once("Question:") {
        Some((_, question)) => question,
        None => content,
    })
}

/// The right answers, and the name of the field they stand in: the first field that holds some. One
/// that is there and holds none is given only where no other is there, to be refused by its name.
fn gold_of(row: &Map<String, Value>) -> Result<(String, &Value), Fault> {
    let truth = row
        .get("reward_model")
        .and_then(|model| model.get("ground_truth"))
        .map(|truth| match truth.get("target") {
            Some(target) => ("reward_model.ground_truth.target", target),
            None => ("reward_model.ground_truth", truth),
        });
    let plain = GOLD_FIELDS
        .iter()
        .filter_map(|name| row.get(*name).map(|gold| (*name, gold)));
    let there: Vec<(&str, &Value)> = truth.into_iter().chain(plain).collect();
    let none = |gold: &Value| match gold {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    };
    there
        .iter()
        .find(|(_, gold)| !none(gold))
        .or(there.first())
        .map(|(name, gold)| ((*name).to_owned(), *gold))
        .ok_or_else(|| {
            (
                format!(
                    "no right answer: none of {}, reward_model.ground_truth is there; the row has {}",
                    GOLD_FIELDS.join(", "),
                    names(row)
                ),
                "write the right answers as \"golden_answers\": [..]",
            )
        })
}

/// One list of aliases an objective.
fn alias_lists(field: &str, gold: &Value) -> Result<Vec<Vec<String>>, Fault> {
    let lists = match gold {
        Value::Array(list) if list.iter().any(Value::is_array) => {
            list.iter().map(texts).collect::<Option<Vec<_>>>()
        }
        one => texts(one).map(|aliases| vec![aliases]),
    };
    let lists = lists.ok_or_else(|| {
        (
            format!(
                "{field:?} is {}, but must be a text, a list of texts, or a list of such lists",
                shown(gold)
            ),
            "write the right answers as [..]",
        )
    })?;
    let empty = |aliases: &Vec<String>| {
        aliases.is_empty() || aliases.iter().any(|gold| gold.trim().is_empty())
    };
    if lists.is_empty() || lists.iter().any(empty) {
        return Err((
            format!(
                "{field:?} is {}, but every objective needs a right answer that is not empty",
                shown(gold)
            ),
            "write at least one, or take the row out",
        ));
    }
    Ok(lists)
}

/// A text, or a list of texts; numbers and truth values are taken as they are written.
fn texts(value: &Value) -> Option<Vec<String>> {
    let one = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(true) => Some("True".to_owned()),
        Value::Bool(false) => Some("False".to_owned()),
        _ => None,
    };
    match value {
        Value::Array(list) => list.iter().map(one).collect(),
        single => one(single).map(|text| vec![text]),
    }
}

fn names(row: &Map<String, Value>) -> String {
    let names: Vec<&str> = row.keys().map(String::as_str).collect();
    names.join(", ")
}

/// A value in a message: not more of it than fits a line.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

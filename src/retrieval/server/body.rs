//! The body of a request, read as FastAPI reads it: an object, with numbers and truth values also as
//! texts, and with unknown fields passed over.

use serde_json::{Map, Value};

use super::answer::Refusal;

/// An object.
pub(super) struct Body(Map<String, Value>);

impl Body {
    /// Reads a body.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| {
            Refusal::rule(
                "json_invalid",
                &["body"],
                format!("JSON decode error: {error}"),
            )
        })?;
        match value {
            Value::Object(fields) => Ok(Self(fields)),
            _ => Err(Refusal::rule(
                "model_attributes_type",
                &["body"],
                "Input should be a valid dictionary or object to extract fields from",
            )),
        }
    }

    /// A list of texts, which must be there.
    pub(super) fn texts(&self, name: &str) -> Result<Vec<String>, Refusal> {
        let refuse = |kind, problem: &str| Refusal::rule(kind, &["body", name], problem);
        let list = self
            .0
            .get(name)
            .ok_or_else(|| refuse("missing", "Field required"))?
            .as_array()
            .ok_or_else(|| refuse("list_type", "Input should be a valid list"))?;
        let text = |value: &Value| {
            let text = value.as_str().map(str::to_owned);
            text.ok_or_else(|| refuse("string_type", "Input should be a valid string"))
        };
        list.iter().map(text).collect()
    }

    /// A whole number from 0; none if it is missing or null.
    pub(super) fn count(&self, name: &str) -> Result<Option<usize>, Refusal> {
        let read = match self.0.get(name) {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::Bool(on)) => Some(usize::from(*on)),
            Some(Value::Number(number)) => whole(number.as_f64()).or(number
                .as_u64()
                .and_then(|number| usize::try_from(number).ok())),
            Some(Value::String(text)) => {
                let text = text.trim();
                text.parse().ok().or_else(|| whole(text.parse().ok()))
            }
            Some(_) => None,
        };
        match read {
            Some(number) => Ok(Some(number)),
            None => Err(Refusal::rule(
                "int_parsing",
                &["body", name],
                "Input should be a valid integer from 0",
            )),
        }
    }

    /// A truth value; false if it is missing.
    pub(super) fn truth(&self, name: &str) -> Result<bool, Refusal> {
        let read = match self.0.get(name) {
            None => return Ok(false),
            Some(Value::Bool(on)) => Some(*on),
            Some(Value::Number(number)) => match whole(number.as_f64()) {
                Some(0) => Some(false),
                Some(1) => Some(true),
                _ => None,
            },
            Some(Value::String(text)) => match text.to_lowercase().as_str() {
                "true" | "t" | "yes" | "y" | "on" | "1" => Some(true),
                "false" | "f" | "no" | "n" | "off" | "0" => Some(false),
                _ => None,
            },
            Some(_) => None,
        };
        read.ok_or_else(|| {
            Refusal::rule(
                "bool_parsing",
                &["body", name],
                "Input should be a valid boolean",
            )
        })
    }
}

/// A number without a fraction, as `3.0`, from 0 to what a float counts exactly.
fn whole(number: Option<f64>) -> Option<usize> {
    let exact = 0.0..=9_007_199_254_740_992.0;
    number
        .filter(|number| number.fract() == 0.0 && exact.contains(number))
        .map(|number| number as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> Body {
        Body::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn numbers_and_truth_values_are_read_as_pydantic_reads_them() {
        for (text, count) in [
            ("{}", Some(None)),
            ("{\"n\": null}", Some(None)),
            ("{\"n\": 3}", Some(Some(3))),
            ("{\"n\": 3.0}", Some(Some(3))),
            ("{\"n\": \"3\"}", Some(Some(3))),
            ("{\"n\": \" 3.0 \"}", Some(Some(3))),
            ("{\"n\": true}", Some(Some(1))),
            ("{\"n\": 3.5}", None),
            ("{\"n\": -1}", None),
            ("{\"n\": \"three\"}", None),
            ("{\"n\": [3]}", None),
        ] {
            assert_eq!(body(text).count("n").ok(), count, "{text}");
        }
        for (text, truth) in [
            ("{}", Some(false)),
            ("{\"n\": true}", Some(true)),
            ("{\"n\": \"TRUE\"}", Some(true)),
            ("{\"n\": \"off\"}", Some(false)),
            ("{\"n\": 1}", Some(true)),
            ("{\"n\": 0.0}", Some(false)),
            ("{\"n\": 2}", None),
            ("{\"n\": \"\"}", None),
            ("{\"n\": null}", None),
        ] {
            assert_eq!(body(text).truth("n").ok(), truth, "{text}");
        }
    }

    #[test]
    fn a_body_is_an_object_and_nothing_else() {
        for text in ["", "[[\"demon\"], 3, true]", "\"queries\"", "{\"n\": "] {
            assert!(Body::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(body("{\"q\": [\"a\"]}").texts("q").unwrap(), ["a"]);
        for text in ["{}", "{\"q\": \"a\"}", "{\"q\": [1]}", "{\"q\": null}"] {
            assert!(body(text).texts("q").is_err(), "{text}");
        }
    }
}

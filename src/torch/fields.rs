//! Fields of a JSON file, read with every defect named.

use std::path::Path;

use serde_json::{Map, Value};

use crate::engine::EngineError;

use super::tensor_file::{bad_file, read};

/// What to do about a config that does not fit.
pub(super) const REMEDY: &str =
    "use a Llama, Qwen2 or Qwen3 folder, such as SmolLM2-135M-Instruct or Qwen2.5-0.5B";

/// Reads a file that holds one JSON object.
///
/// # Errors
/// [`EngineError::BadFile`].
pub(super) fn parse(path: &Path) -> Result<Map<String, Value>, EngineError> {
    serde_json::from_slice(&read(path)?).map_err(|error| {
        bad_file(
            path,
            format!("it is no JSON object ({error})"),
            "copy it again from the model",
        )
    })
}

/// The fields of a file, or of an object in it. A field that is `null` counts as absent.
pub(super) struct Fields<'a> {
    path: &'a Path,
    fields: &'a Map<String, Value>,
    /// The object's own field, with a dot behind it.
    inside: String,
}

impl<'a> Fields<'a> {
    /// The fields of the whole file at `path`.
    pub fn new(path: &'a Path, fields: &'a Map<String, Value>) -> Self {
        Self {
            path,
            fields,
            inside: String::new(),
        }
    }

    /// The first of these fields that holds an object with something in it.
    ///
    /// # Errors
    /// [`EngineError::BadFile`] if one is there and is no object.
    pub fn first_object(&self, names: &[&str]) -> Result<Option<Fields<'a>>, EngineError> {
        for name in names {
            match self.fields.get(*name).filter(|value| !value.is_null()) {
                None => {}
                Some(Value::Object(fields)) if fields.is_empty() => {}
                Some(Value::Object(fields)) => {
                    return Ok(Some(Fields {
                        path: self.path,
                        fields,
                        inside: format!("{name}."),
                    }));
                }
                Some(other) => return Err(self.refusal(name, other, "must be an object")),
            }
        }
        Ok(None)
    }

    /// A field that is there.
    pub fn get(&self, field: &str) -> Option<&'a Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    /// The error that names a field, its value and the rule that it breaks.
    pub fn refusal(&self, field: &str, value: &Value, rule: &str) -> EngineError {
        let inside = &self.inside;
        bad_file(
            self.path,
            format!("{inside}{field} is {value}, but {rule}"),
            REMEDY,
        )
    }

    /// A whole number.
    ///
    /// # Errors
    /// [`EngineError::BadFile`] if it is something else.
    pub fn count(&self, field: &str, default: i64) -> Result<i64, EngineError> {
        let Some(value) = self.get(field) else {
            return Ok(default);
        };
        let rule = "must be a whole number";
        value
            .as_i64()
            .ok_or_else(|| self.refusal(field, value, rule))
    }

    /// A number.
    ///
    /// # Errors
    /// As [`Fields::count`].
    pub fn number(&self, field: &str, default: f64) -> Result<f64, EngineError> {
        let Some(value) = self.get(field) else {
            return Ok(default);
        };
        value
            .as_f64()
            .ok_or_else(|| self.refusal(field, value, "must be a number"))
    }

    /// A number above 0 that must be there.
    ///
    /// # Errors
    /// As [`Fields::count`].
    pub fn positive(&self, field: &str) -> Result<f64, EngineError> {
        let number = self.number(field, 0.0)?;
        if number > 0.0 {
            return Ok(number);
        }
        let value = self.get(field).unwrap_or(&Value::Null);
        Err(self.refusal(field, value, "must be a number above 0"))
    }

    /// Yes or no.
    ///
    /// # Errors
    /// As [`Fields::count`].
    pub fn flag(&self, field: &str, default: bool) -> Result<bool, EngineError> {
        let Some(value) = self.get(field) else {
            return Ok(default);
        };
        value
            .as_bool()
            .ok_or_else(|| self.refusal(field, value, "must be true or false"))
    }
}

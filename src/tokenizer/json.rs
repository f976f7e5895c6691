//! JSON values in the order in which they were written, as Python's dicts keep it: chat templates
//! write tool calls with `tojson`, and the order of the keys becomes tokens.

use std::fmt::Write as _;
use std::sync::Arc;

use minijinja::value::{Enumerator, Object, ValueKind};
use minijinja::{Error, ErrorKind, Value};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

/// One message of a conversation: an object with `role`, `content` and what the template knows
/// beside them.
#[derive(Clone, Debug)]
pub struct ChatMessage(pub(super) Value);

impl ChatMessage {
    /// A message of text.
    #[must_use]
    pub fn new(role: &str, content: &str) -> Self {
        let pairs = [("role", role), ("content", content)];
        let pairs = pairs.map(|(key, value)| (key.to_owned(), Value::from(value)));
        Self(Value::from_object(Ordered(pairs.to_vec())))
    }
}

impl<'de> Deserialize<'de> for ChatMessage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Any(value) = Any::deserialize(deserializer)?;
        match value.downcast_object_ref::<Ordered>() {
            // As transformers does: a field that is null counts as absent.
            Some(fields) => {
                let mut fields = fields.clone();
                fields.0.retain(|(_, value)| !value.is_none());
                Ok(Self(Value::from_object(fields)))
            }
            None => Err(serde::de::Error::custom("a message must be an object")),
        }
    }
}

/// An object whose keys keep their order.
#[derive(Clone, Debug)]
struct Ordered(Vec<(String, Value)>);

impl Object for Ordered {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let key = key.as_str()?;
        let pair = self.0.iter().find(|(name, _)| name == key)?;
        Some(pair.1.clone())
    }
    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let keys = self.0.iter().map(|(name, _)| Value::from(name.as_str()));
        Enumerator::Values(keys.collect())
    }
}

/// Any JSON value.
pub(super) struct Any(pub Value);

impl<'de> Deserialize<'de> for Any {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyVisitor).map(Self)
    }
}

struct AnyVisitor;

impl<'de> Visitor<'de> for AnyVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::from(()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Any(value)) = seq.next_element()? {
            values.push(value);
        }
        Ok(Value::from(values))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut pairs: Vec<(String, Value)> = Vec::new();
        while let Some((key, Any(value))) = map.next_entry::<String, Any>()? {
            pairs.retain(|(name, _)| *name != key);
            pairs.push((key, value));
        }
        Ok(Value::from_object(Ordered(pairs)))
    }
}

/// `json.dumps(value, ensure_ascii=False, indent=indent)` of Python.
pub(super) fn dumps(value: &Value, indent: Option<usize>) -> Result<String, Error> {
    let mut text = String::new();
    write(value, indent, 0, &mut text)?;
    Ok(text)
}

fn write(
    value: &Value,
    indent: Option<usize>,
    depth: usize,
    text: &mut String,
) -> Result<(), Error> {
    let between = if indent.is_some() { "," } else { ", " };
    let line = |depth: usize, text: &mut String| {
        if let Some(width) = indent {
            let _ = write!(text, "\n{:1$}", "", width * depth);
        }
    };
    match value.kind() {
        ValueKind::None => text.push_str("null"),
        ValueKind::Bool => text.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => *text += &value.to_string(),
        ValueKind::String => *text += &quoted(value.as_str().unwrap_or_default())?,
        ValueKind::Map => {
            text.push('{');
            let mut any = false;
            for key in value.try_iter()? {
                text.push_str(if any { between } else { "" });
                any = true;
                line(depth + 1, text);
                *text += &quoted(&key.to_string())?;
                text.push_str(": ");
                write(&value.get_item(&key)?, indent, depth + 1, text)?;
            }
            if any {
                line(depth, text);
            }
            text.push('}');
        }
        ValueKind::Seq | ValueKind::Iterable => {
            text.push('[');
            let mut any = false;
            for item in value.try_iter()? {
                text.push_str(if any { between } else { "" });
                any = true;
                line(depth + 1, text);
                write(&item, indent, depth + 1, text)?;
            }
            if any {
                line(depth, text);
            }
            text.push(']');
        }
        other => {
            let problem = format!("tojson: {other} is not JSON");
            return Err(Error::new(ErrorKind::InvalidOperation, problem));
        }
    }
    Ok(())
}

fn quoted(text: &str) -> Result<String, Error> {
    serde_json::to_string(text)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_written_as_python_writes_it_in_the_order_it_came() {
        let text = r#"{"z": 1, "a": {"y": [1.5, true, null, "é\n\"<"], "b": {}}, "c": []}"#;
        let Any(value) = serde_json::from_str(text).unwrap();
        assert_eq!(dumps(&value, None).unwrap(), text);
        let Any(small) = serde_json::from_str(r#"{"z": 1, "a": [2]}"#).unwrap();
        let expected = "{\n    \"z\": 1,\n    \"a\": [\n        2\n    ]\n}";
        assert_eq!(dumps(&small, Some(4)).unwrap(), expected);
    }
}

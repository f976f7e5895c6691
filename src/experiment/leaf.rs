//! Single values and lists as settings.

use super::finding::Log;
use super::reader::{self, Reader};
use super::refuse;
use super::setting::{Setting, Shape, set_part, split_path};

macro_rules! number_setting {
    ($($type:ty, $name:literal, $rule:expr;)+) => {$(
        impl Setting for $type {
            fn shape() -> Shape {
                Shape::Value($name)
            }
            fn read(&mut self, raw: &str, path: &str, reader: &mut Reader<'_>) {
                match ron::from_str(raw) {
                    Ok(value) => {
                        reader.note(path, raw);
                        *self = value;
                    }
                    Err(_) => refuse::value(self, path, raw, $rule, reader),
                }
            }
            fn write(&self, out: &mut String, _indent: &str) {
                out.push_str(&format!("{self:?}"));
            }
            fn numbers(&self) -> Vec<f64> {
                vec![*self as f64]
            }
        }
    )+};
}

number_setting! {
    u32, "whole number", "a whole number from 0 to 4294967295";
    u64, "whole number", "a whole number from 0 to 18446744073709551615";
    i64, "whole number", "a whole number";
    f32, "number", "a number, as 0.5 or 3e-4";
    f64, "number", "a number, as 0.5 or 3e-4";
}

impl Setting for bool {
    fn shape() -> Shape {
        Shape::Value("true or false")
    }
    fn read(&mut self, raw: &str, path: &str, reader: &mut Reader<'_>) {
        match ron::from_str(raw) {
            Ok(value) => {
                reader.note(path, raw);
                *self = value;
            }
            Err(_) => refuse::value(self, path, raw, "true or false", reader),
        }
    }
    fn write(&self, out: &mut String, _indent: &str) {
        out.push_str(if *self { "true" } else { "false" });
    }
}

impl Setting for String {
    fn shape() -> Shape {
        Shape::Value("text")
    }
    fn read(&mut self, raw: &str, path: &str, reader: &mut Reader<'_>) {
        match ron::from_str(raw) {
            Ok(value) => {
                reader.note(path, raw);
                *self = value;
            }
            Err(_) if reader.bare_words() && !raw.starts_with('"') => {
                reader.note(path, raw);
                *self = raw.to_owned();
            }
            Err(_) => refuse::value(self, path, raw, "text in \"quotes\"", reader),
        }
    }
    fn write(&self, out: &mut String, _indent: &str) {
        // RON and Rust escape text alike but for \u{..}; the crate knows its own spelling.
        match ron::to_string(self) {
            Ok(text) => out.push_str(&text),
            Err(_) => out.push_str(&format!("{self:?}")),
        }
    }
}

impl<T: Setting + Default> Setting for Vec<T> {
    fn shape() -> Shape {
        Shape::List(Box::new(T::shape()))
    }
    fn read(&mut self, raw: &str, path: &str, reader: &mut Reader<'_>) {
        reader.log.forget_inside(path);
        match reader::elements(raw) {
            Ok(parts) => {
                reader.note(path, raw);
                self.clear();
                for (index, part) in parts.into_iter().enumerate() {
                    let mut value = T::default();
                    value.read(part, &format!("{path}.{index}"), reader);
                    self.push(value);
                }
            }
            Err(_) if !raw.starts_with('[') => {
                let rule = format!("a {} in square brackets, as [a, b]", Self::shape().name());
                refuse::value(self, path, raw, &rule, reader);
            }
            Err(error) => reader.refuse_syntax(path, raw, &error),
        }
    }
    fn write(&self, out: &mut String, indent: &str) {
        let lines = matches!(T::shape(), Shape::Struct(..)) && !self.is_empty();
        let inner = format!("{indent}    ");
        out.push('[');
        for (index, value) in self.iter().enumerate() {
            if lines {
                out.push('\n');
                out.push_str(&inner);
            } else if index > 0 {
                out.push_str(", ");
            }
            value.write(out, &inner);
            if lines {
                out.push(',');
            }
        }
        if lines {
            out.push('\n');
            out.push_str(indent);
        }
        out.push(']');
    }
    fn set(&mut self, rest: &str, raw: &str, path: &str, reader: &mut Reader<'_>) {
        let (head, below) = split_path(rest);
        let count = self.len();
        let element = head
            .parse::<usize>()
            .ok()
            .and_then(|index| self.get_mut(index));
        match element {
            Some(value) => set_part(value, head, below, raw, path, reader),
            None => reader.refuse(
                path,
                "",
                format!("{path} has no element {head:?}"),
                None,
                format!("{path} is a list of length {count}; elements are counted from 0"),
                "the override would change nothing",
            ),
        }
    }
    fn numbers(&self) -> Vec<f64> {
        self.iter().flat_map(Setting::numbers).collect()
    }
    fn check(&self, path: &str, log: &mut Log) {
        for (index, value) in self.iter().enumerate() {
            value.check(&format!("{path}.{index}"), log);
        }
    }
}

impl Setting for (f32, f32) {
    fn shape() -> Shape {
        Shape::Value("two numbers")
    }
    fn read(&mut self, raw: &str, path: &str, reader: &mut Reader<'_>) {
        match ron::from_str(raw) {
            Ok(value) => {
                reader.note(path, raw);
                *self = value;
            }
            Err(_) => {
                refuse::value(
                    self,
                    path,
                    raw,
                    "two numbers in round brackets, as (0.9, 0.95)",
                    reader,
                );
            }
        }
    }
    fn write(&self, out: &mut String, _indent: &str) {
        out.push_str(&format!("{self:?}"));
    }
    fn numbers(&self) -> Vec<f64> {
        vec![f64::from(self.0), f64::from(self.1)]
    }
}

//! The macro that makes everything about a group of settings from one definition: the type with its
//! docs, the defaults, the reader, the writer, the rules and the entry in the reference.

/// Settings in round brackets.
///
/// ```text
/// settings! {
///     /// What it is.
///     Name: Copy {
///         /// A sentence.
///         field: Type = default, unit "tokens", where at_least(1.0) or "what happens otherwise";
///     }
/// }
/// ```
macro_rules! settings {
    (
        $(#[doc = $about:literal])+
        $name:ident $(: $extra:ident)? {
            $(
                $(#[doc = $doc:literal])+
                $field:ident : $type:ty = $default:expr
                $(, unit $unit:literal)?
                $(, where $rule:ident($($bound:expr),*) or $consequence:literal)?;
            )+
        }
        $(presets { $($preset:literal => $value:expr,)+ })?
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize $(, $extra)?)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[doc = $doc])+ pub $field: $type,)+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $default,)+ }
            }
        }

        impl $name {
            const FIELDS: &[&str] = &[$(stringify!($field)),+];

            /// Takes fields one by one, so that every problem is found.
            pub(in $crate::experiment) fn read_fields(
                &mut self,
                fields: Vec<$crate::experiment::reader::Field<'_>>,
                path: &str,
                reader: &mut $crate::experiment::reader::Reader<'_>,
            ) {
                use $crate::experiment::setting::{Setting, join};
                let mut seen = std::collections::BTreeSet::new();
                for (name, raw) in fields {
                    if !seen.insert(name) {
                        $crate::experiment::refuse::second(path, name, reader);
                        continue;
                    }
                    match name {
                        $(stringify!($field) => {
                            Setting::read(&mut self.$field, raw, &join(path, name), reader);
                        })+
                        _ => $crate::experiment::refuse::name(
                            path, name, name, Self::FIELDS, reader,
                        ),
                    }
                }
            }
        }

        impl $crate::experiment::setting::Setting for $name {
            fn shape() -> $crate::experiment::setting::Shape {
                use $crate::experiment::setting::{FieldInfo, Setting, Shape};
                let default = Self::default();
                Shape::Struct(
                    stringify!($name),
                    concat!($($about),+),
                    vec![$(FieldInfo {
                        name: stringify!($field),
                        sentence: concat!($($doc),+),
                        unit: concat!($($unit)?),
                        rule: settings!(@rule $($rule($($bound),*))?),
                        consequence: concat!($($consequence)?),
                        default: {
                            let mut text = String::new();
                            Setting::write(&default.$field, &mut text, "");
                            text
                        },
                        shape: <$type as Setting>::shape(),
                    },)+],
                )
            }

            fn read(
                &mut self,
                raw: &str,
                path: &str,
                reader: &mut $crate::experiment::reader::Reader<'_>,
            ) {
                use $crate::experiment::{reader, refuse};
                let (word, rest) = reader::word_and_rest(raw);
                let mut presets: Vec<&str> = Vec::new();
                presets.extend_from_slice(&[$($($preset),+)?]);
                match word {
                    "" => {}
                    stringify!($name) => {}
                    $($($preset => {
                        reader.log.forget_inside(path);
                        *self = $value;
                    })+)?
                    _ => return refuse::structure(self, path, raw, &presets, reader),
                }
                reader.note(path, raw);
                if rest.is_empty() && !word.is_empty() {
                    return;
                }
                match reader::fields(rest) {
                    Ok(fields) => self.read_fields(fields, path, reader),
                    Err(_) if reader::in_order(rest, Self::FIELDS).is_some() => {
                        let fields = reader::in_order(rest, Self::FIELDS).unwrap_or_default();
                        self.read_fields(fields, path, reader);
                    }
                    Err(_) if !rest.starts_with('(') => {
                        refuse::structure(self, path, raw, &presets, reader);
                    }
                    Err(error) => reader.refuse_syntax(path, rest, &error),
                }
            }

            fn write(&self, out: &mut String, indent: &str) {
                out.push_str("(\n");
                let inner = format!("{indent}    ");
                $(
                    out.push_str(&inner);
                    out.push_str(concat!(stringify!($field), ": "));
                    $crate::experiment::setting::Setting::write(&self.$field, out, &inner);
                    out.push_str(",\n");
                )+
                out.push_str(indent);
                out.push(')');
            }

            fn set(
                &mut self,
                rest: &str,
                raw: &str,
                path: &str,
                reader: &mut $crate::experiment::reader::Reader<'_>,
            ) {
                use $crate::experiment::{refuse, setting};
                let (head, below) = setting::split_path(rest);
                match head {
                    $(stringify!($field) => {
                        setting::set_part(&mut self.$field, head, below, raw, path, reader);
                    })+
                    _ => refuse::name(path, head, "", Self::FIELDS, reader),
                }
            }

            fn check(&self, path: &str, log: &mut $crate::experiment::finding::Log) {
                use $crate::experiment::setting::{Setting, join};
                $({
                    let path = join(path, stringify!($field));
                    settings!(@rule $($rule($($bound),*))?)
                        .check(&self.$field, &path, concat!($($consequence)?), log);
                    Setting::check(&self.$field, &path, log);
                })+
            }
        }
    };
    (@rule) => { $crate::experiment::setting::Rule::any() };
    (@rule $rule:ident($($bound:expr),*)) => {
        $crate::experiment::setting::Rule::$rule($($bound),*)
    };
}

//! Two macros that make everything about a group of settings from one definition: the type with its
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

/// One of several words, some with an argument. Planned words are known and refused.
///
/// ```text
/// choice! {
///     /// What it is.
///     Name: Copy {
///         /// A sentence.
///         "word" => Variant,
///         /// A sentence.
///         "other" => Other(argument: Type, where at_least(1.0) or "what happens otherwise"),
///     }
///     planned { "later" }
/// }
/// ```
macro_rules! choice {
    (
        $(#[doc = $about:literal])+
        $name:ident $(: $($extra:ident)+)? {
            $(
                $(#[doc = $doc:literal])+
                $word:literal => $variant:ident $(
                    ($arg:ident : $type:ty $(, where $rule:ident($($bound:expr),*) or $consequence:literal)?)
                )?,
            )+
        }
        $(planned { $($planned:literal),+ })?
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize $($(, $extra)+)?)]
        pub enum $name {
            $(
                $(#[doc = $doc])+
                #[serde(rename = $word)]
                $variant $(($type))?,
            )+
        }

        impl $name {
            const WORDS: &[&str] = &[$($word),+];
            const PLANNED: &[&str] = &[$($($planned),+)?];
        }

        impl $crate::experiment::setting::Setting for $name {
            fn shape() -> $crate::experiment::setting::Shape {
                use $crate::experiment::setting::{Shape, WordInfo};
                Shape::Choice(
                    stringify!($name),
                    concat!($($about),+),
                    vec![$(WordInfo {
                        word: $word,
                        argument: choice!(@info $(
                            $arg, $type, settings!(@rule $($rule($($bound),*))?)
                        )?),
                        sentence: concat!($($doc),+),
                    },)+],
                    Self::PLANNED,
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
                match word {
                    $($word => {
                        choice!(@read self, $variant, rest, raw, path, reader $(, $arg, $type)?);
                    })+
                    _ => refuse::word(
                        self, path, raw, word, Self::WORDS, Self::PLANNED, reader,
                    ),
                }
            }

            fn write(&self, out: &mut String, indent: &str) {
                let _ = indent;
                match self {
                    $(choice!(@pattern inner, $variant $(, $arg)?) => {
                        out.push_str($word);
                        choice!(@write inner, out, indent $(, $arg)?);
                    })+
                }
            }

            fn set(
                &mut self,
                rest: &str,
                raw: &str,
                path: &str,
                reader: &mut $crate::experiment::reader::Reader<'_>,
            ) {
                match self {
                    $(choice!(@pattern inner, $variant $(, $arg)?) => {
                        choice!(@set inner, $word, rest, raw, path, reader $(, $arg)?);
                    })+
                }
            }

            fn check(&self, path: &str, log: &mut $crate::experiment::finding::Log) {
                let _ = (path, &log);
                match self {
                    $(choice!(@pattern inner, $variant $(, $arg)?) => {
                        choice!(@check inner, path, log $(
                            , $arg, settings!(@rule $($rule($($bound),*))?), concat!($($consequence)?)
                        )?);
                    })+
                }
            }
        }
    };
    (@info) => { None };
    (@info $arg:ident, $type:ty, $rule:expr) => {
        Some((
            stringify!($arg),
            $rule,
            <$type as $crate::experiment::setting::Setting>::shape(),
        ))
    };
    (@read $self:ident, $variant:ident, $rest:ident, $raw:ident, $path:ident, $reader:ident) => {
        if $rest.is_empty() {
            $reader.note($path, $raw);
            *$self = Self::$variant;
        } else {
            refuse::extra_argument($path, $raw, $rest, $reader);
        }
    };
    (@read $self:ident, $variant:ident, $rest:ident, $raw:ident, $path:ident, $reader:ident,
        $arg:ident, $type:ty) => {
        if let Some(text) =
            refuse::argument::<$type>($path, $raw, $rest, stringify!($arg), $reader)
        {
            let mut inner: $type = match $self {
                Self::$variant(inner) => inner.clone(),
                #[allow(unreachable_patterns)]
                _ => Default::default(),
            };
            $crate::experiment::setting::Setting::read(&mut inner, text, $path, $reader);
            *$self = Self::$variant(inner);
        }
    };
    (@pattern $inner:ident, $variant:ident) => { Self::$variant };
    (@pattern $inner:ident, $variant:ident, $arg:ident) => { Self::$variant($inner) };
    (@write $inner:ident, $out:ident, $indent:ident) => {};
    (@write $inner:ident, $out:ident, $indent:ident, $arg:ident) => {
        $crate::experiment::setting::write_argument($inner, $out, $indent);
    };
    (@set $inner:ident, $word:literal, $rest:ident, $raw:ident, $path:ident, $reader:ident) => {
        let _ = $raw;
        $crate::experiment::refuse::no_parts($path, $rest, $word, $reader);
    };
    (@set $inner:ident, $word:literal, $rest:ident, $raw:ident, $path:ident, $reader:ident,
        $arg:ident) => {
        $crate::experiment::setting::Setting::set($inner, $rest, $raw, $path, $reader);
    };
    (@check $inner:ident, $path:ident, $log:ident) => {};
    (@check $inner:ident, $path:ident, $log:ident, $arg:ident, $rule:expr, $consequence:expr) => {
        $rule.check($inner, $path, $consequence, $log);
        $crate::experiment::setting::Setting::check($inner, $path, $log);
    };
}

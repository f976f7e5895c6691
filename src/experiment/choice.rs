//! The macro that makes everything about a choice of words from one definition, as `define.rs` does
//! for groups of settings.

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
///     planned { "later" because "it needs what is not there" }
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
        $(planned { $($planned:literal because $why:literal),+ })?
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
            const PLANNED: &[(&str, &str)] = &[$($(($planned, $why)),+)?];
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

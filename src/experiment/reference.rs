//! `docs/experiment.md`: every setting, described from the same definition that reads it.

use std::fmt::Write as _;

use super::setting::{FieldInfo, Rule, Setting, Shape, WordInfo};
use super::spec::Experiment;

const INTRODUCTION: &str = r#"# Experiment files

Made from the code (`UPDATE_DOCS=1 cargo test --test experiment_files`); a test fails when the two differ.

An experiment is one RON file: `( name: value, ... )`, text in "quotes", comments after `//`. Everything that is left out keeps its default, in every bracket. A setting that does not exist is refused, and all problems of a file are reported at once, each with its line and column, the rule and what would happen; the exit code is then 2.

```ron
(
    base: "quickstart.ron",             // start from this file, relative to this one
    credit: mempo(threshold: own(0.5)), // a preset with a change
    rollout: (groups: 4),
)
```

- `base: "other.ron"` reads the other file first; this one then changes only what it names. Bases may have bases. A list is replaced as a whole.
- `--set rollout.groups=4` overrides one setting; text may stand without quotes (`--set name=trial`), an element of a list is named by its number (`--set cold_start.stages.0.steps=10`).
- `--check` prints the resolved file and, as comments under it, the sizes that follow from it: parameters, rows and tokens per step, memory, questions in all. What it prints is an experiment file again.
- A path in `policy` or `task.facts` is relative to the file that names it, to the current folder, or to the program, whichever exists first.

The range column says what is allowed, and what would happen otherwise. Rules that bind several settings are checked too.
"#;

/// The reference of all settings as Markdown.
#[must_use]
pub fn reference_markdown() -> String {
    let mut text = INTRODUCTION.to_owned();
    let mut words = Vec::new();
    text.push_str("\n## Settings\n");
    section(&Experiment::shape(), "", &mut text, &mut words);
    text.push_str("\n## Words\n");
    for (name, choice) in words {
        text.push_str(&format!("\n### {name}\n\n{choice}"));
    }
    text
}

/// One table of settings, then those of its parts.
fn section(shape: &Shape, path: &str, text: &mut String, words: &mut Vec<(String, String)>) {
    let Shape::Struct(_, about, fields) = shape else {
        return;
    };
    let title = if path.is_empty() { "the file" } else { path };
    let _ = write!(text, "\n### `{title}`\n\n{}\n\n", about.trim());
    text.push_str("| setting | value | unit | default | range | meaning |\n");
    text.push_str("| --- | --- | --- | --- | --- | --- |\n");
    for field in fields {
        row(field, text);
    }
    for field in fields {
        let path = super::setting::join(path, field.name);
        below(&field.shape, &path, text, words);
    }
}

/// What lies below a field.
fn below(shape: &Shape, path: &str, text: &mut String, words: &mut Vec<(String, String)>) {
    match shape {
        Shape::Value(_) => {}
        Shape::Struct(..) => section(shape, path, text, words),
        Shape::List(inner) => match **inner {
            Shape::Struct(..) => section(inner, &format!("{path}[]"), text, words),
            _ => below(inner, path, text, words),
        },
        Shape::Choice(name, about, choices, planned) => {
            if !words.iter().any(|(known, _)| known == name) {
                let described = choice(about, choices, planned);
                words.push(((*name).to_owned(), described));
            }
            for info in choices {
                if let Some((_, _, inner @ Shape::Struct(..))) = &info.argument {
                    section(inner, &format!("{path}: {}", info.word), text, words);
                }
            }
        }
    }
}

fn row(field: &FieldInfo, text: &mut String) {
    let value = match &field.shape {
        Shape::Struct(..) => "settings".to_owned(),
        Shape::Choice(name, ..) => format!("[{name}](#{})", name.to_lowercase()),
        Shape::List(inner) => match &**inner {
            Shape::Struct(..) => "list of settings".to_owned(),
            Shape::Choice(name, ..) => format!("list of [{name}](#{})", name.to_lowercase()),
            inner => format!("list of {}s", inner.name()),
        },
        shape => shape.name(),
    };
    let default = match &field.shape {
        Shape::Struct(..) => "below".to_owned(),
        _ => format!("`{}`", field.default),
    };
    let range = if field.rule == Rule::any() {
        "any".to_owned()
    } else {
        format!("{}: else {}", field.rule, field.consequence)
    };
    let _ = writeln!(
        text,
        "| `{}` | {value} | {} | {default} | {range} | {} |",
        field.name,
        if field.unit.is_empty() {
            "-"
        } else {
            field.unit
        },
        field.sentence.trim(),
    );
}

fn choice(about: &str, choices: &[WordInfo], planned: &[(&str, &str)]) -> String {
    let mut text = format!("{}\n\n", about.trim());
    for info in choices {
        let spelled = match &info.argument {
            Some((argument, ..)) => format!("{}({argument})", info.word),
            None => info.word.to_owned(),
        };
        let _ = write!(text, "- `{spelled}`: {}", info.sentence.trim());
        if let Some((argument, rule, Shape::Value(kind))) = &info.argument {
            let _ = write!(text, " `{argument}`: {kind}");
            if *rule != Rule::any() {
                let _ = write!(text, ", {rule}");
            }
            text.push('.');
        }
        text.push('\n');
    }
    if !planned.is_empty() {
        let names: Vec<String> = planned
            .iter()
            .map(|(word, why)| format!("`{word}` ({why})"))
            .collect();
        let _ = writeln!(text, "- planned, refused for now: {}", names.join(", "));
    }
    text
}

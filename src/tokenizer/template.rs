//! The chat template of a model: a Jinja text that turns messages into the string it was trained on,
//! rendered as transformers does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value};
use minijinja::{Environment, Error, ErrorKind, context};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::Deserialize;

use crate::engine::EngineError;

use super::clock::strftime_now;
use super::json::{ChatMessage, dumps};

const CONFIG_FILE: &str = "tokenizer_config.json";
const TEMPLATE_FILE: &str = "chat_template.jinja";
/// Name of the template inside the environment.
const NAME: &str = "chat_template";

/// A model's chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    /// `bos_token`, `eos_token` and the like, as the template names them.
    special: BTreeMap<String, String>,
    path: PathBuf,
}

/// What tokenizer_config.json says about it.
#[derive(Default, Deserialize)]
struct Config {
    chat_template: Option<Spelled>,
    #[serde(flatten)]
    rest: BTreeMap<String, serde_json::Value>,
}

/// One template, or several by name.
#[derive(Deserialize)]
#[serde(untagged)]
enum Spelled {
    One(String),
    Several(Vec<Named>),
}

#[derive(Deserialize)]
struct Named {
    name: String,
    template: String,
}

impl ChatTemplate {
    /// Reads the template of a folder: chat_template.jinja, or `chat_template` of
    /// tokenizer_config.json. None if there is neither.
    ///
    /// # Errors
    /// [`EngineError::BadFile`] for files that cannot be read or parsed.
    pub fn load(folder: &Path) -> Result<Option<Self>, EngineError> {
        Self::find(folder, |name| std::fs::read(folder.join(name)).ok())
    }

    /// The template among files that `read` gives by name; `folder` stands in error messages. None if
    /// there is none.
    ///
    /// # Errors
    /// As [`ChatTemplate::load`].
    pub fn find(
        folder: &Path,
        read: impl Fn(&str) -> Option<Vec<u8>>,
    ) -> Result<Option<Self>, EngineError> {
        let path = folder.join(CONFIG_FILE);
        let config = match read(CONFIG_FILE) {
            None => Config::default(),
            Some(bytes) => {
                serde_json::from_slice(&bytes).map_err(|error| EngineError::BadFile {
                    path: path.clone(),
                    problem: format!("it is no tokenizer_config.json ({error})"),
                    remedy: "copy it again from the model".to_owned(),
                })?
            }
        };
        let apart = read(TEMPLATE_FILE).and_then(|bytes| String::from_utf8(bytes).ok());
        let (text, path) = match (apart, config.chat_template) {
            (Some(text), _) => (text, folder.join(TEMPLATE_FILE)),
            (None, Some(Spelled::One(text))) => (text, path),
            (None, Some(Spelled::Several(all))) => {
                match all.into_iter().find(|named| named.name == "default") {
                    Some(named) => (named.template, path),
                    None => return Ok(None),
                }
            }
            (None, None) => return Ok(None),
        };
        Self::parse(&text, special_tokens(&config.rest), &path).map(Some)
    }

    /// Reads a template from its text; `path` stands in error messages.
    ///
    /// # Errors
    /// [`EngineError::BadFile`] naming the line.
    pub fn parse(
        text: &str,
        special: BTreeMap<String, String>,
        path: &Path,
    ) -> Result<Self, EngineError> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build();
        environment.set_syntax(syntax.map_err(|error| EngineError::Backend(error.to_string()))?);
        environment.set_unknown_method_callback(unknown_method_callback);
        environment.add_function("raise_exception", |message: String| {
            Err::<Value, _>(Error::new(ErrorKind::InvalidOperation, message))
        });
        environment.add_function("strftime_now", |format: String| strftime_now(&format));
        environment.add_filter("tojson", |value: Value, options: Kwargs| {
            dumps(&value, options.get::<Option<usize>>("indent")?)
        });
        environment
            .add_template_owned(NAME, without_generation_marks(text))
            .map_err(|error| EngineError::BadFile {
                path: path.to_owned(),
                problem: format!("its chat template cannot be read ({error})"),
                remedy: "correct the template, or send input_ids instead of messages".to_owned(),
            })?;
        Ok(Self {
            environment,
            special,
            path: path.to_owned(),
        })
    }

    /// The text of a conversation; with `open_turn` up to where the assistant begins to write.
    ///
    /// # Errors
    /// [`EngineError::BadRequest`] with what the template says about messages that it refuses.
    pub fn render(&self, messages: &[ChatMessage], open_turn: bool) -> Result<String, EngineError> {
        let messages: Vec<Value> = messages.iter().map(|message| message.0.clone()).collect();
        let special = Value::from(self.special.clone());
        let context = context! {
            messages,
            add_generation_prompt => open_turn,
            tools => (),
            documents => (),
            ..special
        };
        self.environment
            .get_template(NAME)
            .and_then(|template| template.render(context))
            .map_err(|error| {
                EngineError::BadRequest(format!(
                    "the chat template of {:?} refuses the messages: {error}",
                    self.path
                ))
            })
    }
}

/// The special tokens that tokenizer_config.json names: strings, or objects with their `content`.
fn special_tokens(config: &BTreeMap<String, serde_json::Value>) -> BTreeMap<String, String> {
    config
        .iter()
        .filter(|(name, _)| name.ends_with("_token"))
        .filter_map(|(name, value)| {
            let text = value.as_str().or_else(|| value.get("content")?.as_str())?;
            Some((name.clone(), text.to_owned()))
        })
        .collect()
}

/// `{% generation %}` marks what the assistant wrote, for transformers' masks; here it becomes a block
/// that does nothing and trims as the mark did.
fn without_generation_marks(text: &str) -> String {
    let mut text = text.to_owned();
    for (mark, block) in [("generation", "if true"), ("endgeneration", "endif")] {
        for open in ["{%", "{%-", "{%+"] {
            for close in ["%}", "-%}", "+%}"] {
                for space in ["", " "] {
                    let marked = format!("{open}{space}{mark}{space}{close}");
                    text = text.replace(&marked, &format!("{open} {block} {close}"));
                }
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> ChatTemplate {
        let special = BTreeMap::from([("eos_token".to_owned(), "</s>".to_owned())]);
        ChatTemplate::parse(text, special, Path::new("folder/tokenizer_config.json")).unwrap()
    }

    fn messages(text: &str) -> Vec<ChatMessage> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_templates_of_published_models_use_is_there() {
        let text = "{%- set ns = namespace(last=0) %}
{%- for message in messages[::-1] %}
    {%- if message.role == 'user' and message.content is string %}
        {%- set ns.last = ns.last + 1 %}
    {%- endif %}
{%- endfor %}
{% for message in messages %}
{{ '<' + message['role'] + '>' }}{% generation %}{{ message.content.split('</think>')[-1].lstrip('\\n') | trim }}{% endgeneration %}{{ eos_token }}
    {%- if message.tool_calls is defined and message.tool_calls %}
{{ message.tool_calls | tojson }}
    {%- endif %}
{% endfor %}
{% if add_generation_prompt %}{{ '<assistant>' }}{{ ns.last }}{{ strftime_now('%%') }}{% endif %}";
        let said = messages(
            r#"[{"role": "user", "content": "<think>x</think>\nhi ", "tool_calls": null},
                {"role": "assistant", "content": "é", "tool_calls": [{"name": "f", "arguments": {"b": 1, "a": "<"}}]}]"#,
        );
        // As jinja2 renders it with the settings of transformers.
        let expected = "<user>hi</s><assistant>é</s>\
            [{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": \"<\"}}]<assistant>1%";
        assert_eq!(template(text).render(&said, true).unwrap(), expected);
    }

    #[test]
    fn a_template_that_refuses_or_does_not_parse_says_why() {
        let refusing = template("{{ raise_exception('roles must alternate') }}");
        let text = refusing.render(&[], false).unwrap_err().to_string();
        assert!(
            text.contains("roles must alternate") && text.contains("folder"),
            "{text}"
        );
        let broken = ChatTemplate::parse("{% if %}", BTreeMap::new(), Path::new("f/t.json"));
        let text = broken.unwrap_err().to_string();
        assert!(
            text.contains("f/t.json") && text.contains("chat_template:1"),
            "{text}"
        );
    }
}

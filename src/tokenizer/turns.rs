//! Where turns begin and end, found by comparing renderings of a chat template.
//!
//! What the policy sampled stays as it was sampled; only what stands between two sampled turns is
//! encoded. Per-turn rendering loses what a template writes between messages (verl issue 6501, mended
//! for one model in its pull request 6921), so the text between turns is cut out of whole
//! conversations, and a self-test compares both ways before anything is sampled.

use crate::engine::EngineError;
use crate::trajectory::TokenId;

use super::json::ChatMessage;
use super::template::ChatTemplate;
use super::text::TextTokenizer;

/// Who speaks between two turns of the assistant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// The user.
    User,
    /// A tool.
    Tool,
}

impl Speaker {
    fn role(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Tool => "tool",
        }
    }
}

/// What a template writes around a message.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wrap {
    before: String,
    after: String,
}

/// The texts between turns of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatTurns {
    /// Opens a turn of the assistant.
    open: String,
    /// Closes it; begins with what the model samples to end it.
    close: String,
    user: Wrap,
    /// None if the template knows no tools, or leaves their words out.
    tool: Option<Wrap>,
    /// How the template writes earlier turns anew, where it does.
    rewrites: Option<String>,
}

/// Words that no template writes of itself.
const QUESTION: &str = "Zwölf Boxkämpfer";
const THOUGHT: &str = "quer über den Deich";
const REPLY: &str = "jagen Viktor";
const WORD: &str = "ein Sylter Bistro";

impl ChatTurns {
    /// Finds the boundaries.
    ///
    /// # Errors
    /// [`EngineError::BadRequest`] if the template does not keep the words of the conversation in
    /// their order, or writes something else before a later turn of the assistant than before the
    /// first.
    pub fn find(template: &ChatTemplate) -> Result<Self, EngineError> {
        let says = |role, text| ChatMessage::new(role, text);
        let begun = [says("user", QUESTION)];
        let unopened = template.render(&begun, false)?;
        let prompt = template.render(&begun, true)?;
        let open = prompt
            .strip_prefix(&unopened)
            .ok_or_else(|| {
                odd(
                    "with add_generation_prompt it changes what stood before",
                    &prompt,
                )
            })?
            .to_owned();
        let answered = [says("user", QUESTION), says("assistant", REPLY)];
        let ended = template.render(&answered, false)?;
        let close = after(&ended, REPLY)?.to_owned();
        let wrap = |speaker: Speaker| -> Result<Wrap, EngineError> {
            let mut messages = answered.to_vec();
            messages.push(says(speaker.role(), WORD));
            let text = template.render(&messages, true)?;
            let (between, rest) = after(&text, REPLY)?
                .split_once(WORD)
                .ok_or_else(|| odd("it leaves out a message", &text))?;
            let before = between
                .strip_prefix(&close)
                .ok_or_else(|| odd("a turn that is not the last ends otherwise", &text))?;
            let after = rest
                .strip_suffix(&open)
                .ok_or_else(|| odd("a later turn opens otherwise than the first", &text))?;
            Ok(Wrap {
                before: before.to_owned(),
                after: after.to_owned(),
            })
        };
        Ok(Self {
            user: wrap(Speaker::User)?,
            tool: wrap(Speaker::Tool).ok(),
            rewrites: rewrites(template, &prompt)?,
            open,
            close,
        })
    }

    /// Says how the template writes earlier turns anew (as one that strips their thoughts does), if it
    /// does. Ids that were sampled and the ids of a rendering then differ: keep those that were
    /// sampled and append [`ChatTurns::between`], or refuse the model.
    #[must_use]
    pub fn rewrites(&self) -> Option<&str> {
        self.rewrites.as_deref()
    }

    /// Refuses a template that writes earlier turns anew.
    ///
    /// # Errors
    /// [`EngineError::BadRequest`] with what it does and the remedy.
    pub fn require_append_only(&self) -> Result<(), EngineError> {
        match &self.rewrites {
            None => Ok(()),
            Some(how) => Err(EngineError::BadRequest(format!(
                "the chat template rewrites history: {how}; keep the ids that were sampled and append \
                 only what stands between turns, or change the template"
            ))),
        }
    }

    /// Ids to append after the ids of a sampled turn: what is left of its end, one message, and the
    /// opening of the next turn. `sampled` is not touched; if its last ids begin the closing text,
    /// as an end-of-turn token does, they are not written twice.
    ///
    /// # Errors
    /// [`EngineError::BadRequest`] for a tool where the template knows none.
    pub fn between(
        &self,
        tokenizer: &TextTokenizer,
        sampled: &[TokenId],
        speaker: Speaker,
        text: &str,
    ) -> Result<Vec<TokenId>, EngineError> {
        let wrap = match speaker {
            Speaker::User => Some(&self.user),
            Speaker::Tool => self.tool.as_ref(),
        };
        let wrap = wrap.ok_or_else(|| {
            let rule = "the chat template knows no messages of tools; speak as the user";
            EngineError::BadRequest(rule.to_owned())
        })?;
        let close = tokenizer.encode(&self.close);
        let written = (0..=close.len().min(sampled.len()))
            .rev()
            .find(|&count| sampled.ends_with(&close[..count]))
            .unwrap_or(0);
        let Wrap { before, after } = wrap;
        let left = tokenizer.decode(&close[written..]);
        let open = &self.open;
        Ok(tokenizer.encode(&format!("{left}{before}{text}{after}{open}")))
    }

    /// Compares ids built turn by turn with those of one rendering, for a conversation with every
    /// speaker; says where they differ first. No difference is expected unless the template rewrites
    /// history, or the tokenizer merges over a boundary.
    ///
    /// # Errors
    /// As [`ChatTemplate::render`].
    pub fn compare(
        &self,
        template: &ChatTemplate,
        tokenizer: &TextTokenizer,
    ) -> Result<Option<String>, EngineError> {
        let mut messages = vec![ChatMessage::new("user", QUESTION)];
        let mut ids = tokenizer.encode(&template.render(&messages, true)?);
        let close = tokenizer.encode(&self.close);
        let tools = self.tool.as_ref().map(|_| Speaker::Tool);
        for speaker in [Speaker::User]
            .into_iter()
            .chain(tools)
            .chain([Speaker::User])
        {
            let mut sampled = tokenizer.encode(REPLY);
            sampled.extend(close.first());
            let between = self.between(tokenizer, &sampled, speaker, WORD)?;
            ids.extend(sampled);
            ids.extend(between);
            messages.push(ChatMessage::new("assistant", REPLY));
            messages.push(ChatMessage::new(speaker.role(), WORD));
        }
        let whole = tokenizer.encode(&template.render(&messages, true)?);
        if ids == whole {
            return Ok(None);
        }
        let same = ids.iter().zip(&whole).take_while(|(a, b)| a == b).count();
        let around = |ids: &[TokenId]| {
            let end = ids.len().min(same + 8);
            tokenizer.decode(&ids[same.saturating_sub(8).min(end)..end])
        };
        Ok(Some(format!(
            "ids built turn by turn leave those of one rendering at place {same}: {:?} against {:?}",
            around(&ids),
            around(&whole)
        )))
    }
}

/// What follows the last `word` in a rendering.
fn after<'a>(text: &'a str, word: &str) -> Result<&'a str, EngineError> {
    match text.rsplit_once(word) {
        Some((_, rest)) => Ok(rest),
        None => Err(odd("it leaves out a message", text)),
    }
}

fn odd(what: &str, text: &str) -> EngineError {
    EngineError::BadRequest(format!(
        "the chat template cannot be taken apart into turns: {what}, in {text:?}; send input_ids, or \
         change the template"
    ))
}

/// Whether a turn with a thought, once another message follows, is still what was written.
fn rewrites(template: &ChatTemplate, prompt: &str) -> Result<Option<String>, EngineError> {
    let written = [
        REPLY.to_owned(),
        format!("<think>\n{THOUGHT}\n</think>\n\n{REPLY}"),
    ];
    for turn in written {
        let mut messages = vec![
            ChatMessage::new("user", QUESTION),
            ChatMessage::new("assistant", &turn),
        ];
        let last = template.render(&messages, false)?;
        messages.push(ChatMessage::new("user", WORD));
        let earlier = template.render(&messages, false)?;
        let expected = format!("{prompt}{turn}");
        for (place, text) in [("the last turn", &last), ("an earlier turn", &earlier)] {
            if !text.starts_with(&expected) {
                return Ok(Some(format!(
                    "{place} was {expected:?}, but is written as {text:?}"
                )));
            }
        }
        if !earlier.starts_with(&last) {
            return Ok(Some(format!(
                "{last:?} is no beginning of {earlier:?} once a message follows"
            )));
        }
    }
    Ok(None)
}

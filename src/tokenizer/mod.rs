//! The tokenizer of a Hugging Face folder, its chat template, and where the turns of a conversation
//! begin and end.
//!
//! Token ids are the truth and text is derived from them, never the other way round. Reads
//! tokenizer.json, tokenizer_config.json and chat_template.jinja; what was read is saved unchanged.

mod bytes;
mod clock;
mod json;
mod template;
mod text;
mod turns;

pub use json::ChatMessage;
pub use template::ChatTemplate;
pub use text::{SPECIAL_TOKENS, TextTokenizer};
pub use turns::{ChatTurns, Speaker};

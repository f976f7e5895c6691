use crate::tokenizer::{SPECIAL_TOKENS, TextTokenizer};
use crate::trajectory::TokenId;

/// A tool result between its tags, as text and ids. A document cannot open or close blocks of the
/// protocol: their tags are taken out.
pub(super) fn render_tool(tokenizer: &TextTokenizer, text: &str) -> (String, Vec<TokenId>) {
    let mut words = text.trim().to_owned();
    while let Some(tag) = SPECIAL_TOKENS.iter().find(|tag| words.contains(*tag)) {
        words = words.replace(tag, "");
    }
    let ids = tokenizer.encode(&format!("<tool> {words}</tool>"));
    (tokenizer.decode(&ids), ids)
}

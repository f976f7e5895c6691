//! The bytes that every token adds to the decoded text.

use std::collections::{BTreeMap, HashSet};

use serde::Deserialize;
use serde_json::Value;
use tokenizers::Tokenizer;

use crate::trajectory::TokenId;

/// How tokens become text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Decoding {
    /// Every character stands for a byte, as in GPT-2, Qwen and Llama 3.
    ByteLevel,
    /// `▁` is a space and `<0x0A>` a byte, as in SentencePiece and Llama 2.
    Pieces,
    /// As the file's decoder says, token by token.
    Other,
}

#[derive(Deserialize)]
struct Decoder {
    decoder: Option<Value>,
}

impl Decoding {
    fn of(json: &str) -> Self {
        let parsed: Option<Decoder> = serde_json::from_str(json).ok();
        let decoder = parsed.and_then(|file| file.decoder).unwrap_or_default();
        let decoder = decoder.to_string();
        if decoder.contains("\"ByteLevel\"") {
            Self::ByteLevel
        } else if decoder.contains("\"ByteFallback\"") || decoder.contains("\"Metaspace\"") {
            Self::Pieces
        } else {
            Self::Other
        }
    }
}

/// Bytes of every id up to the largest; an id without a token has none.
pub(super) fn bytes_of_tokens(inner: &Tokenizer, json: &str) -> Vec<Vec<u8>> {
    let (decoding, byte_of) = (Decoding::of(json), byte_of_char());
    let added = inner.get_added_tokens_decoder();
    let vocabulary = inner.get_vocab(true);
    let size = vocabulary.values().max().map_or(0, |&id| id as usize + 1);
    let mut bytes = vec![Vec::new(); size];
    for (token, id) in vocabulary {
        let found = match added.get(&id) {
            Some(added) => added.content.as_bytes().to_vec(),
            None => match decoding {
                Decoding::ByteLevel => byte_level(&token, &byte_of),
                Decoding::Pieces => piece(&token),
                Decoding::Other => inner.decode(&[id], false).unwrap_or(token).into_bytes(),
            },
        };
        if let Some(slot) = bytes.get_mut(id as usize) {
            *slot = found;
        }
    }
    bytes
}

/// The bytes that a byte-level token stands for; a character that is none of the disguises stands
/// for itself, as in transformers.
fn byte_level(token: &str, byte_of: &BTreeMap<char, u8>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(token.len());
    for letter in token.chars() {
        match byte_of.get(&letter) {
            Some(&byte) => bytes.push(byte),
            None => bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

fn piece(token: &str) -> Vec<u8> {
    let hex = token
        .strip_prefix("<0x")
        .and_then(|rest| rest.strip_suffix('>'))
        .filter(|hex| hex.len() == 2);
    match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
        Some(byte) => vec![byte],
        None => token.replace('▁', " ").into_bytes(),
    }
}

/// The bytes of ordinary text: no control characters but tab and line breaks, and no letters beyond
/// the first four planes of Unicode, which are unused. Published vocabularies lack some of the others.
pub(super) fn is_ordinary(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~' | 0x80..=0xBF | 0xC2..=0xF0)
}

/// Whether text has ids, and ids text: a byte-level vocabulary without holes in which every `needed`
/// byte has a token. Says the broken rule.
pub(super) fn check_complete(inner: &Tokenizer, needed: fn(u8) -> bool) -> Result<(), String> {
    let byte_of = byte_of_char();
    let added = inner.get_added_tokens_decoder();
    let vocabulary = inner.get_vocab(true);
    let by_id: BTreeMap<TokenId, &String> =
        vocabulary.iter().map(|(token, &id)| (id, token)).collect();
    let mut single = HashSet::new();
    for (place, (&id, &token)) in (0..).zip(&by_id) {
        if id != place {
            return Err(format!(
                "\"model.vocab\" has no token for id {place}: ids must run from 0 without holes"
            ));
        }
        if added.contains_key(&id) {
            continue;
        }
        let found: Option<Vec<u8>> = token.chars().map(|c| byte_of.get(&c).copied()).collect();
        let found = found.ok_or_else(|| {
            format!("\"model.vocab\" holds {token:?} (id {id}), which is not byte-level text")
        })?;
        if let [byte] = found[..] {
            single.insert(byte);
        }
    }
    match (0..=u8::MAX).find(|byte| needed(*byte) && !single.contains(byte)) {
        Some(byte) => Err(format!(
            "\"model.vocab\" has no token for the byte {byte:#04x}: it must be there, or some text has no ids"
        )),
        None => Ok(()),
    }
}

/// GPT-2's disguise of bytes: printable ones stand for themselves, the others for the characters
/// from U+0100 on, in order.
fn byte_of_char() -> BTreeMap<char, u8> {
    let mut stand_in = (0x100..).filter_map(char::from_u32);
    (0..=u8::MAX)
        .filter_map(|byte| match byte {
            b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => Some((char::from(byte), byte)),
            _ => stand_in.next().map(|c| (c, byte)),
        })
        .collect()
}

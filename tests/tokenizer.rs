//! The tokenizer: the shipped file, round trips, agreement with transformers, damaged files.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use palimpsest::task::Task as _;
use palimpsest::task::lookup::LookupTask;
use palimpsest::tokenizer::{
    ChatMessage, ChatTemplate, ChatTurns, SPECIAL_TOKENS, Speaker, TextTokenizer,
};
use serde::Deserialize;
use serde_json::{Value, json};

fn assets() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/lookup")
}

fn shipped() -> TextTokenizer {
    TextTokenizer::load(&assets()).unwrap()
}

/// `BLESS=1 cargo test --test tokenizer` writes the file anew after a change of the facts.
#[test]
fn the_shipped_tokenizer_is_the_one_trained_on_the_shipped_facts() {
    let task = LookupTask::from_file(&assets().join("facts.json"), None).unwrap();
    let path = assets().join("tokenizer.json");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, task.tokenizer().to_json()).unwrap();
    }
    let shipped = std::fs::read_to_string(&path).unwrap();
    assert!(
        shipped == task.tokenizer().to_json(),
        "training gave another vocabulary"
    );
}

#[test]
fn every_tag_is_one_token_and_the_first_ids_are_the_tags() {
    let tokenizer = shipped();
    assert_eq!(tokenizer.vocab_size(), 1536);
    for (place, tag) in (0..).zip(SPECIAL_TOKENS) {
        assert_eq!(tokenizer.special_id(tag), Some(place), "{tag}");
        let ids = tokenizer.encode(&format!(" capital{tag} of"));
        assert_eq!(ids.len(), 3, "{tag}");
        assert_eq!(ids[1], place, "{tag}");
        assert!(tokenizer.is_special_id(place), "{tag}");
    }
    assert!(!tokenizer.is_special_id(15));
    assert_eq!(tokenizer.special_id(" of"), None);
}

#[test]
fn every_fact_survives_the_round_trip() {
    let tokenizer = shipped();
    let text = std::fs::read_to_string(assets().join("facts.json")).unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    let mut facts = 0;
    for entity in file["entities"].as_array().unwrap() {
        for (relation, value) in entity["facts"].as_object().unwrap() {
            let (name, value) = (entity["name"].as_str().unwrap(), value.as_str().unwrap());
            let text =
                format!("<mem> {relation} of {name} = {value};</mem><tool> Is {value}?</tool>");
            assert_eq!(tokenizer.decode(&tokenizer.encode(&text)), text);
            facts += 1;
        }
    }
    assert!(facts > 2000, "only {facts} facts");
}

#[test]
fn decoded_text_is_the_bytes_of_its_tokens() {
    let tokenizer = shipped();
    let text = "<mem> naïve ☃ \u{1F980}\n\ttwo  spaces</mem>";
    let ids = tokenizer.encode(text);
    let bytes: Vec<u8> = ids
        .iter()
        .flat_map(|&id| tokenizer.token_bytes(id).to_vec())
        .collect();
    assert_eq!(bytes, text.as_bytes());
    // A token may end inside a character: its text is then the replacement character.
    let snowman = tokenizer.encode("☃");
    assert!(snowman.len() > 1);
    assert_eq!(tokenizer.decode(&snowman[..1]), "\u{FFFD}");
    assert_eq!(tokenizer.decode(&snowman), "☃");
    assert!(tokenizer.token_bytes(1536).is_empty());
    assert_eq!(tokenizer.decode(&[1536, u32::MAX]), "");
}

#[derive(Deserialize)]
struct Golden {
    text: String,
    ids: Vec<u32>,
}

/// `fixtures/tokenizer_ids.json` was written by transformers 5.24.0 (`AutoTokenizer`, no added tokens).
#[test]
fn transformers_gives_the_same_ids() {
    let golden: Vec<Golden> =
        serde_json::from_str(include_str!("fixtures/tokenizer_ids.json")).unwrap();
    let tokenizer = shipped();
    for Golden { text, ids } in golden {
        assert_eq!(tokenizer.encode(&text), ids, "{text}");
        assert_eq!(tokenizer.decode(&ids), text);
    }
}

#[test]
fn saving_and_loading_changes_no_byte() {
    let folder = tempfile::tempdir().unwrap();
    shipped().save(folder.path()).unwrap();
    let again = TextTokenizer::load(folder.path()).unwrap();
    assert_eq!(again.to_json(), shipped().to_json());
    let config = std::fs::read_to_string(folder.path().join("tokenizer_config.json")).unwrap();
    let config: Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["tokenizer_class"], "PreTrainedTokenizerFast");
}

/// The shipped file with one thing spoilt, and what the error must name.
#[test]
fn damaged_files_are_refused_with_the_field_and_the_rule() {
    let sound: Value = serde_json::from_str(shipped().to_json()).unwrap();
    let spoil = |change: &dyn Fn(&mut Value)| {
        let mut file = sound.clone();
        change(&mut file);
        file.to_string()
    };
    let cut = shipped().to_json()[..5000].to_owned();
    let cases: [(&str, String, &[&str]); 5] = [
        ("cut off", cut, &["not a tokenizer.json", "line", "again"]),
        (
            "no tags",
            spoil(&|file| file["added_tokens"] = json!([])),
            &["added_tokens", "<pad>", "one token"],
        ),
        (
            "an ordinary tag",
            spoil(&|file| file["added_tokens"][3]["special"] = json!(false)),
            &["added_tokens", "<mem>", "one token"],
        ),
        (
            "a hole",
            spoil(&|file| file["model"]["vocab"]["nium"] = json!(9999)),
            &["model.vocab", "without holes"],
        ),
        (
            "not byte-level",
            spoil(&|file| {
                let vocab = file["model"]["vocab"].as_object_mut().unwrap();
                let id = vocab.remove("~").unwrap();
                vocab.insert("▁x".to_owned(), id);
            }),
            &["model.vocab", "▁x", "byte-level"],
        ),
    ];
    for (name, json, needles) in cases {
        let path = Path::new("folder/tokenizer.json");
        let error = TextTokenizer::from_json(&json, path)
            .and_then(|tokenizer| tokenizer.require_protocol(path))
            .err()
            .unwrap_or_else(|| panic!("{name} was accepted"))
            .to_string();
        for needle in needles.iter().chain(&["folder/tokenizer.json"]) {
            assert!(error.contains(needle), "{name}: {error}");
        }
    }
    let missing = TextTokenizer::load(Path::new("no/such/folder"))
        .err()
        .unwrap();
    assert!(missing.to_string().contains("no/such/folder"), "{missing}");
}

/// A small byte-level tokenizer with the special tokens of ChatML, and its template.
fn chatty() -> (TextTokenizer, ChatTemplate) {
    let folder = Path::new("tests/fixtures/models/llama_partial_config");
    let template = ChatTemplate::load(folder).unwrap().unwrap();
    (TextTokenizer::load(folder).unwrap(), template)
}

fn template(text: &str) -> ChatTemplate {
    ChatTemplate::parse(
        text,
        Default::default(),
        Path::new("folder/chat_template.jinja"),
    )
    .unwrap()
}

#[test]
fn what_stands_between_turns_is_what_one_rendering_has_there() {
    let (tokenizer, template) = chatty();
    let turns = ChatTurns::find(&template).unwrap();
    assert_eq!(turns.rewrites(), None);
    turns.require_append_only().unwrap();
    assert_eq!(turns.compare(&template, &tokenizer).unwrap(), None);
    // The newline behind <|im_end|> is what per-turn rendering loses.
    let sampled = tokenizer.encode("in the note<|im_end|>");
    for (speaker, role) in [(Speaker::User, "user"), (Speaker::Tool, "tool")] {
        let between = turns
            .between(&tokenizer, &sampled, speaker, "where?")
            .unwrap();
        let expected = format!("\n<|im_start|>{role}\nwhere?<|im_end|>\n<|im_start|>assistant\n");
        assert_eq!(tokenizer.decode(&between), expected);
        assert_eq!(between, tokenizer.encode(&expected));
    }
    // A turn that was cut off gets its end written for it.
    let between = turns.between(&tokenizer, &tokenizer.encode("in the"), Speaker::User, "?");
    let text = tokenizer.decode(&between.unwrap());
    assert!(text.starts_with("<|im_end|>\n<|im_start|>user"), "{text}");
}

#[test]
fn sampled_ids_are_kept_even_where_encoding_their_text_gives_others() {
    let (tokenizer, template) = chatty();
    let turns = ChatTurns::find(&template).unwrap();
    // "the" letter by letter: no encoding gives these ids.
    let mut sampled: Vec<u32> = ["t", "h", "e"]
        .iter()
        .flat_map(|l| tokenizer.encode(l))
        .collect();
    sampled.extend(tokenizer.encode("<|im_end|>"));
    assert_ne!(sampled, tokenizer.encode("the<|im_end|>"));
    let mut ledger = tokenizer.encode(
        &template
            .render(&[ChatMessage::new("user", "a")], true)
            .unwrap(),
    );
    let begins = ledger.len();
    ledger.extend(&sampled);
    ledger.extend(
        turns
            .between(&tokenizer, &sampled, Speaker::User, "b")
            .unwrap(),
    );
    assert_eq!(ledger[begins..][..sampled.len()], sampled);
    let messages = [("user", "a"), ("assistant", "the"), ("user", "b")];
    let messages = messages.map(|(role, text)| ChatMessage::new(role, text));
    assert_eq!(
        tokenizer.decode(&ledger),
        template.render(&messages, true).unwrap()
    );
}

/// As Qwen3's: thoughts of earlier turns are left out, and the last turn gets an empty one.
const FORGETFUL: &str = "{%- for m in messages %}
{%- set text = m.content %}
{%- if m.role == 'assistant' %}
{%- set text = text.split('</think>')[-1].lstrip('\\n') %}
{%- if loop.last %}{%- set text = '<think>\\n\\n</think>\\n\\n' + text %}{%- endif %}
{%- endif %}
{{- '<|im_start|>' + m.role + '\\n' + text + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";

#[test]
fn a_template_that_rewrites_history_is_refused_or_its_sampled_ids_are_kept() {
    let (tokenizer, _) = chatty();
    let forgetful = template(FORGETFUL);
    let turns = ChatTurns::find(&forgetful).unwrap();
    let text = turns.require_append_only().unwrap_err().to_string();
    assert!(
        text.contains("rewrites history") && text.contains("<think>"),
        "{text}"
    );
    // The texts between turns are found all the same.
    let sampled = tokenizer.encode("<think>\nhm\n</think>\n\nyes<|im_end|>");
    let between = turns
        .between(&tokenizer, &sampled, Speaker::User, "so?")
        .unwrap();
    assert_eq!(
        tokenizer.decode(&between),
        "\n<|im_start|>user\nso?<|im_end|>\n<|im_start|>assistant\n"
    );
}

#[test]
fn templates_of_other_families_are_taken_apart_too() {
    let (tokenizer, _) = chatty();
    // As Llama 2's: nothing opens a turn, the assistant's end is followed by a beginning.
    let llama2 = template(
        "{% for m in messages %}{% if m.role == 'user' %}<s>[INST] {{ m.content }} [/INST]{% elif m.role == 'assistant' %} {{ m.content }}</s>{% else %}{{ raise_exception('no ' + m.role) }}{% endif %}{% endfor %}",
    );
    // The space before the answer is the assistant's own there: no turn opens with it.
    let turns = ChatTurns::find(&llama2).unwrap();
    assert!(turns.rewrites().unwrap().contains("[/INST]"));
    let text = turns
        .between(
            &tokenizer,
            &tokenizer.encode(" yes</s>"),
            Speaker::Tool,
            "x",
        )
        .unwrap_err()
        .to_string();
    assert!(text.contains("no messages of tools"), "{text}");
    let between = turns.between(
        &tokenizer,
        &tokenizer.encode(" yes</s>"),
        Speaker::User,
        "so?",
    );
    assert_eq!(tokenizer.decode(&between.unwrap()), "<s>[INST] so? [/INST]");

    // A template that keeps only the last message.
    let deaf = template("{{ messages[-1].content }}");
    let text = ChatTurns::find(&deaf).unwrap_err().to_string();
    assert!(text.contains("leaves out a message"), "{text}");
}

/// SentencePiece as Llama 2 has it: `▁` is a space, bytes have tokens of their own.
#[test]
fn pieces_and_holes_decode_to_their_bytes() {
    let json = json!({
        "version": "1.0",
        "added_tokens": [{"id": 9, "content": "</s>", "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true}],
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "unk_token": null, "byte_fallback": true, "merges": [],
            "vocab": {"<0xE2>": 0, "<0x98>": 1, "<0x83>": 2, "▁a": 3, "b": 4, "</s>": 9}}
    });
    let path = Path::new("folder/tokenizer.json");
    let tokenizer = TextTokenizer::from_json(&json.to_string(), path).unwrap();
    assert_eq!(tokenizer.vocab_size(), 10);
    assert_eq!(tokenizer.decode(&[3, 0, 1, 2, 7, 4, 9]), " a☃b</s>");
    assert_eq!(tokenizer.token_bytes(7), b"");
    let text = tokenizer.require_protocol(path).unwrap_err().to_string();
    assert!(text.contains("not byte-level"), "{text}");
}

#[test]
fn ordinary_text_is_enough_where_tags_are_no_tokens() {
    let folder = tempfile::tempdir().unwrap();
    LookupTask::shipped()
        .unwrap()
        .tokenizer()
        .save(folder.path())
        .unwrap();
    let path = folder.path().join("tokenizer.json");
    let mut json: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    // The byte 0x04, as GPT-2 disguises it, under another name: one that no text has.
    let vocabulary = json["model"]["vocab"].as_object_mut().unwrap();
    let id = vocabulary.remove("\u{104}").unwrap();
    vocabulary.insert("\u{104}\u{104}".to_owned(), id);
    let without_control = TextTokenizer::from_json(&json.to_string(), &path).unwrap();
    without_control.require_text(&path).unwrap();
    let refused = without_control
        .require_protocol(&path)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("the byte 0x04"), "{refused}");
    let vocabulary = json["model"]["vocab"].as_object_mut().unwrap();
    let id = vocabulary.remove("\u{e4}").unwrap();
    vocabulary.insert("\u{105}\u{105}".to_owned(), id);
    let without_a_letter = TextTokenizer::from_json(&json.to_string(), &path).unwrap();
    let refused = without_a_letter
        .require_text(&path)
        .unwrap_err()
        .to_string();
    assert!(refused.contains("the byte 0xe4"), "{refused}");
}

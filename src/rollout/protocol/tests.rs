use super::*;

/// A tokenizer for tests: one token a byte.
fn parse(text: &str) -> ParsedTurn {
    parse_as(TurnForm::Noted, text)
}

fn parse_as(form: TurnForm, text: &str) -> ParsedTurn {
    let table: Vec<[u8; 1]> = (0..=255u8).map(|byte| [byte]).collect();
    let ids: Vec<TokenId> = text.bytes().map(TokenId::from).collect();
    parse_turn(&ids, form, |id| &table[id as usize][..])
}

#[test]
fn a_well_formed_turn_gives_its_action_and_spans() {
    let text = "<mem>a b</mem><think> next</think>\n<search> capital of Peru</search>";
    let turn = parse(text);
    assert_eq!(turn.broken, None);
    assert_eq!(turn.action, Some(Action::Search(" capital of Peru".into())));
    let mem = turn.spans[0];
    assert_eq!(
        &text[mem.start as usize..mem.end as usize],
        "<mem>a b</mem>"
    );
    assert_eq!(
        &text[mem.inner_start as usize..mem.inner_end as usize],
        "a b"
    );
    assert_eq!(turn.spans.len(), 3);
}

#[test]
fn every_rule_is_named_when_it_is_broken() {
    let cases = [
        ("", FormatRule::MemoryFirst),
        ("<think>x</think>", FormatRule::MemoryFirst),
        ("hello <mem></mem>", FormatRule::MemoryFirst),
        ("<mem>never closed", FormatRule::MemoryClosed),
        ("<mem>a<think>b</think>", FormatRule::NoNestedTags),
        ("<mem></mem><search>q</search>", FormatRule::ThinkSecond),
        (
            "<mem></mem> so <think>x</think><search>q</search>",
            FormatRule::NothingBetween,
        ),
        ("<mem></mem><think>x", FormatRule::ThinkClosed),
        ("<mem></mem><think>x</think>", FormatRule::OneAction),
        (
            "<mem></mem><think>x</think> well <answer>1</answer>",
            FormatRule::NothingBetween,
        ),
        (
            "<mem></mem><think>x</think><answer>1</answer><search>q</search>",
            FormatRule::OneAction,
        ),
        (
            "<mem></mem><think>x</think><answer>1</answer> bye",
            FormatRule::ActionClosed,
        ),
        (
            "<mem></mem><think>x</think><answer>1",
            FormatRule::ActionClosed,
        ),
        (
            "<mem></mem><think>x</think><search>a<tool>b</tool></search>",
            FormatRule::NoNestedTags,
        ),
    ];
    for (text, rule) in cases {
        let turn = parse(text);
        assert_eq!(turn.broken, Some(rule), "{text:?}");
        assert_eq!(turn.action, None, "{text:?}");
    }
}

#[test]
fn spans_count_whole_tokens_when_a_tag_crosses_them() {
    let pieces: Vec<&[u8]> = vec![
        b"<me",
        b"m>note",
        b"s",
        b"</me",
        b"m><think>",
        b"t</think><answer>4",
        b"</answer>",
    ];
    let ids: Vec<TokenId> = (0..pieces.len() as u32).collect();
    let turn = parse_turn(&ids, TurnForm::Noted, |id| pieces[id as usize]);
    assert_eq!(turn.action, Some(Action::Answer("4".into())));
    let mem = turn.spans[0];
    assert_eq!((mem.start, mem.end), (0, 5));
    // "m>note" holds part of the opening tag, so the content is the one token between the tags.
    assert_eq!((mem.inner_start, mem.inner_end), (2, 3));
}

#[test]
fn turns_without_notes_and_turns_that_only_read_keep_their_own_rules() {
    let bare = |text| parse_as(TurnForm::Bare, text);
    let reading = |text| parse_as(TurnForm::Reading, text);
    let turn = bare("<think>t</think><search>q</search>");
    assert_eq!(
        (turn.action, turn.broken),
        (Some(Action::Search("q".into())), None)
    );
    for (text, rule) in [
        (
            "<mem>n</mem><think>t</think><search>q</search>",
            FormatRule::ThinkSecond,
        ),
        ("<search>q</search>", FormatRule::ThinkSecond),
        ("<think>t</think>", FormatRule::OneAction),
        (
            "<think>a<mem></think><search>q</search>",
            FormatRule::NoNestedTags,
        ),
    ] {
        assert_eq!(bare(text).broken, Some(rule), "{text}");
    }
    let answering = |text| parse_as(TurnForm::Answering, text);
    let turn = answering("<think>t</think><answer>a</answer>");
    assert_eq!(turn.action, Some(Action::Answer("a".into())));
    for text in [
        "<think>t</think><search>q</search>",
        "<think>t</think><access>u</access>",
    ] {
        assert_eq!(
            answering(text).broken,
            Some(FormatRule::OneAction),
            "{text}"
        );
    }
    let turn = reading("<mem> what it says</mem> ");
    assert_eq!(
        (turn.action, turn.broken, turn.spans.len()),
        (None, None, 1)
    );
    for (text, rule) in [
        ("it says", FormatRule::MemoryFirst),
        ("<mem>it says", FormatRule::MemoryClosed),
        ("<mem>n</mem><think>t</think>", FormatRule::NothingBetween),
    ] {
        assert_eq!(reading(text).broken, Some(rule), "{text}");
    }
}

#[test]
fn a_rest_of_the_token_that_closes_a_turn_is_no_part_of_it() {
    let parse = |form, pieces: &[&'static [u8]]| {
        let ids: Vec<TokenId> = (0..pieces.len() as u32).collect();
        parse_turn(&ids, form, |id| pieces[id as usize])
    };
    let written: [&[u8]; 4] = [
        b"<mem></mem>",
        b"<think></think>",
        b"<search>q</search",
        b"><",
    ];
    let turn = parse(TurnForm::Noted, &written);
    assert_eq!(
        (turn.action, turn.broken),
        (Some(Action::Search("q".into())), None)
    );
    let more: [&[u8]; 5] = [written[0], written[1], written[2], b"><", b"b"];
    assert_eq!(
        parse(TurnForm::Noted, &more).broken,
        Some(FormatRule::ActionClosed)
    );
    assert_eq!(
        parse(TurnForm::Reading, &[b"<mem>n</mem", b"><th"]).broken,
        None
    );
}

#[test]
fn empty_notes_have_an_empty_range() {
    let turn = parse("<mem></mem><think></think><answer></answer>");
    let mem = turn.spans[0];
    assert_eq!(mem.inner_start, mem.inner_end);
}

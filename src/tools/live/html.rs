//! The text of an HTML page: what stands between tags, without scripts and styles.

/// Elements whose content is no text of the page.
const SILENT: [&str; 5] = ["script", "style", "noscript", "template", "svg"];
/// Elements after which a line ends.
const LINES: [&str; 18] = [
    "p", "br", "div", "li", "tr", "h1", "h2", "h3", "h4", "h5", "h6", "title", "section",
    "article", "table", "ul", "ol", "pre",
];

/// The text of a page, a line for each block, without empty lines.
pub(super) fn text_of_html(page: &str) -> String {
    let mut text = String::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        push_words(&mut text, &rest[..at]);
        rest = &rest[at..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            rest = comment.find("-->").map_or("", |end| &comment[end + 3..]);
            continue;
        }
        let Some(end) = rest.find('>') else { break };
        let tag = &rest[1..end];
        rest = &rest[end + 1..];
        let closes = tag.starts_with('/');
        let name: String = tag
            .trim_start_matches('/')
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .map(|letter| letter.to_ascii_lowercase())
            .collect();
        if LINES.contains(&name.as_str()) && !text.ends_with('\n') {
            text.push('\n');
        }
        if SILENT.contains(&name.as_str()) && !closes && !tag.ends_with('/') {
            rest = after_closing(rest, &name);
        }
    }
    if !rest.starts_with('<') {
        push_words(&mut text, rest);
    }
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    lines.join("\n")
}

/// What follows the closing tag of an element; nothing if it is never closed.
fn after_closing<'a>(rest: &'a str, name: &str) -> &'a str {
    let close = format!("</{name}");
    let found = rest
        .char_indices()
        .filter(|(_, letter)| *letter == '<')
        .find(|(at, _)| {
            let head = rest.as_bytes().get(*at..*at + close.len());
            head.is_some_and(|head| head.eq_ignore_ascii_case(close.as_bytes()))
        });
    found.map_or("", |(at, _)| {
        rest[at..].find('>').map_or("", |end| &rest[at + end + 1..])
    })
}

/// Appends words, white space collapsed, entities read.
fn push_words(text: &mut String, raw: &str) {
    if raw.starts_with(char::is_whitespace) && !text.ends_with(char::is_whitespace) {
        text.push(' ');
    }
    let words: Vec<&str> = raw.split_whitespace().collect();
    text.push_str(&unescaped(&words.join(" ")));
    if raw.ends_with(char::is_whitespace) && !text.ends_with(char::is_whitespace) {
        text.push(' ');
    }
}

/// The commonest entities, and those by number, as letters.
fn unescaped(text: &str) -> String {
    const LONGEST: usize = 10;
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        // No further than an entity reaches: a page may hold nothing but `&`.
        let end = rest.bytes().take(LONGEST + 1).position(|byte| byte == b';');
        let letter = end.and_then(|end| entity(&rest[1..end]));
        match (letter, end) {
            (Some(letter), Some(end)) => {
                out.push(letter);
                rest = &rest[end + 1..];
            }
            _ => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

fn entity(name: &str) -> Option<char> {
    if let Some(number) = name.strip_prefix("#x").or_else(|| name.strip_prefix("#X")) {
        return char::from_u32(u32::from_str_radix(number, 16).ok()?);
    }
    if let Some(number) = name.strip_prefix('#') {
        return char::from_u32(number.parse().ok()?);
    }
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        "ndash" => '\u{2013}',
        "mdash" => '\u{2014}',
        "hellip" => '\u{2026}',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_becomes_its_words_in_lines() {
        let page = "<html><head><title>Ulm</title><style>p {x}</style><script>if (a<b) {}</SCRIPT></head>\
            <body><!-- <p>no</p> --><h1>Ulm</h1><p>A <b>city</b> in\n  Germany &amp; more&#46; 1 &lt; 2</p>\
            <ul><li>one</li><li>t&#x77;o</li></ul>tail";
        assert_eq!(
            text_of_html(page),
            "Ulm\nUlm\nA city in Germany & more. 1 < 2\none\ntwo\ntail"
        );
    }

    #[test]
    fn a_page_of_signs_is_read_in_one_pass() {
        // Looking to its end for every sign would take minutes.
        let page = "&".repeat(4 << 20);
        assert_eq!(text_of_html(&page).len(), page.len());
    }

    #[test]
    fn broken_pages_end_somewhere() {
        for page in [
            "<",
            "<p",
            "a < b",
            "<script>x",
            "<!-- x",
            "&",
            "&#xffffffff;",
            "&#;é<é>",
        ] {
            let text = text_of_html(page);
            assert!(text.len() <= page.len(), "{page:?} gave {text:?}");
        }
    }
}

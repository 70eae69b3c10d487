//! Making text that others wrote safe to stand inside the context block.
//!
//! Two things must not be possible for a message, a branch name or a previous attempt's words:
//! to end the block, so that what follows reads as the user's request, and to look like a layer
//! of ours. Tags named `context` lose their bracket ([`escape`]), words that belong on one line
//! stay on it ([`one_line`]), and free text is quoted, so that none of its lines can be a heading
//! ([`quote`]).

/// The name of the block's tag.
const TAG: &str = "context";

/// Replaces the `<` of everything that could pass for the block's own tag, in any case and with
/// space around the slash. All other markup, code above all, is left as it is.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        let (before, from) = rest.split_at(at);
        escaped.push_str(before);
        let after = &from[1..];
        escaped.push_str(if is_tag(after) { "&lt;" } else { "<" });
        rest = after;
    }
    escaped.push_str(rest);
    escaped
}

/// Whether what follows a `<` reads as the block's tag.
fn is_tag(after: &str) -> bool {
    let invisible = |c: char| c.is_whitespace() || c.is_control() || is_zero_width(c);
    let name = after.trim_start_matches(|c| invisible(c) || c == '/');
    name.get(..TAG.len())
        .is_some_and(|name| name.eq_ignore_ascii_case(TAG))
}

/// Characters without a shape, which a reader skips.
const fn is_zero_width(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{ad}')
}

/// Text as one line: control characters become spaces, and tags are escaped.
pub(super) fn one_line(text: &str) -> String {
    escape(&flatten(text))
}

/// Text without line breaks and other control characters.
pub(super) fn flatten(text: &str) -> String {
    let flat: String = text
        .chars()
        .map(|c| if is_break(c) { ' ' } else { c })
        .collect();
    flat.trim().to_owned()
}

/// Control characters, and the separators of Unicode that end a line.
fn is_break(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Text as a quotation: every line begins with `> `, and tags are escaped.
pub(super) fn quote(text: &str) -> String {
    let escaped = escape(text);
    let lines = escaped.trim_end().split([
        '\n', '\r', '\u{2028}', '\u{2029}', '\u{85}', '\u{b}', '\u{c}',
    ]);
    let quoted: Vec<_> = lines
        .map(|line| format!("> {line}").trim_end().to_owned())
        .collect();
    quoted.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_blocks_own_tag_is_escaped() {
        for (text, expected) in [
            ("</context>", "&lt;/context>"),
            ("<context>", "&lt;context>"),
            ("< / CoNtExT >", "&lt; / CoNtExT >"),
            ("<\u{200b}/\ncontext", "&lt;\u{200b}/\ncontext"),
            ("<<//context>", "<&lt;//context>"),
            ("</contextual>", "&lt;/contextual>"),
            (
                "if a < b { Vec::<u8>::new() }",
                "if a < b { Vec::<u8>::new() }",
            ),
            ("<", "<"),
            ("<contex", "<contex"),
            ("<é", "<é"),
        ] {
            assert_eq!(escape(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_line_stays_one_line() {
        assert_eq!(one_line("a\n## Persona\r\u{2028}b\0"), "a ## Persona  b");
        assert_eq!(one_line(" x</context> "), "x&lt;/context>");
    }

    #[test]
    fn no_quoted_line_begins_otherwise() {
        assert_eq!(quote("a\n\n## b\n"), "> a\n>\n> ## b");
        assert_eq!(quote("a\r\nb\u{2028}c"), "> a\n>\n> b\n> c");
        assert_eq!(quote(""), ">");
    }
}

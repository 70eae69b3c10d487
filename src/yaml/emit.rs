//! Writing YAML: block style, text plain where that is safe, quoted or literal where not.

use std::borrow::Cow;

use serde_json::Value as Json;

use super::scalar;
use super::tree::Value;
use crate::diagnostic::is_unprintable;

/// JSON as a YAML document without a `---`, ending in a newline. [`parse`](super::parse()) reads back
/// the same value as far as it is within the parser's limits; the depth of `value` is the
/// recursion's.
pub fn emit(value: &Json) -> String {
    let mut out = String::new();
    match value {
        Json::Array(items) if !items.is_empty() => sequence(&mut out, items, 0),
        Json::Object(map) if !map.is_empty() => mapping(&mut out, map, 0),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {
            scalar_line(&mut out, value, 0);
        }
        Json::Array(_) | Json::Object(_) => scalar_line(&mut out, value, 0),
    }
    out
}

type Map = serde_json::Map<String, Json>;

fn mapping(out: &mut String, map: &Map, indent: usize) {
    for (at, (key, value)) in map.iter().enumerate() {
        // The first key stands where the caller left off: behind a dash, or at its indentation.
        if at > 0 {
            pad(out, indent);
        }
        let key = one_line(key);
        // The parser looks at most 1,024 characters ahead for the colon of a key.
        if key.chars().count() > 1_000 {
            out.push_str("? ");
            out.push_str(&key);
            out.push('\n');
            pad(out, indent);
        } else {
            out.push_str(&key);
        }
        out.push(':');
        child(out, value, indent);
    }
}

fn sequence(out: &mut String, items: &[Json], indent: usize) {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            pad(out, indent);
        }
        out.push('-');
        match item {
            Json::Object(map) if !map.is_empty() => {
                out.push(' ');
                mapping(out, map, indent + 2);
            }
            Json::Array(items) if !items.is_empty() => {
                out.push(' ');
                sequence(out, items, indent + 2);
            }
            Json::Null
            | Json::Bool(_)
            | Json::Number(_)
            | Json::String(_)
            | Json::Array(_)
            | Json::Object(_) => {
                out.push(' ');
                scalar_line(out, item, indent + 2);
            }
        }
    }
}

/// The value of a key: on the same line, or below it and further in.
fn child(out: &mut String, value: &Json, indent: usize) {
    match value {
        Json::Object(map) if !map.is_empty() => {
            out.push('\n');
            pad(out, indent + 2);
            mapping(out, map, indent + 2);
        }
        Json::Array(items) if !items.is_empty() => {
            out.push('\n');
            pad(out, indent + 2);
            sequence(out, items, indent + 2);
        }
        Json::Null
        | Json::Bool(_)
        | Json::Number(_)
        | Json::String(_)
        | Json::Array(_)
        | Json::Object(_) => {
            out.push(' ');
            scalar_line(out, value, indent + 2);
        }
    }
}

fn scalar_line(out: &mut String, value: &Json, indent: usize) {
    match value {
        Json::String(text) if is_literal(text) => literal(out, text, indent),
        Json::String(text) => {
            out.push_str(&one_line(text));
            out.push('\n');
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_) => {
            // Only empty collections come here, and JSON's spelling of all these is YAML's.
            out.push_str(&value.to_string());
            out.push('\n');
        }
    }
}

/// Whether text reads best, and reads back, as a literal block.
fn is_literal(text: &str) -> bool {
    text.trim_end_matches('\n').contains('\n')
        && text.chars().all(|c| c == '\n' || is_safe(c))
        && !text.starts_with([' ', '\n'])
}

fn literal(out: &mut String, text: &str, indent: usize) {
    let body = text.trim_end_matches('\n');
    out.push_str(match text.len() - body.len() {
        0 => "|-\n",
        1 => "|\n",
        _ => "|+\n",
    });
    for line in body.split('\n') {
        if !line.is_empty() {
            pad(out, indent.max(2));
            out.push_str(line);
        }
        out.push('\n');
    }
    for _blank in 1..text.len() - body.len() {
        out.push('\n');
    }
}

fn one_line(text: &str) -> Cow<'_, str> {
    if is_plain(text) {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(quoted(text))
    }
}

/// Whether text without quotes is that text to every reader of YAML.
fn is_plain(text: &str) -> bool {
    const FIRST: &str = "-?:,[]{}#&*!|>'\"%@`=<~.+0123456789 ";
    text.chars().all(is_safe)
        && !text.starts_with(|c| FIRST.contains(c) || c == '\t')
        && !text.ends_with([' ', '\t', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.contains(['[', ']', '{', '}', ',', '\t'])
        && !scalar::is_ambiguous(text)
        && matches!(scalar::resolve(Cow::Borrowed(text)), Value::String(_))
        && text.len() < 1_000
}

fn is_safe(c: char) -> bool {
    !is_unprintable(c) && !matches!(c, '\u{a0}' | '\u{fffe}' | '\u{ffff}')
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if is_safe(c) => out.push(c),
            c => match u32::from(c) {
                code @ 0..=0xffff => push_hex(&mut out, 'u', code, 4),
                code => push_hex(&mut out, 'U', code, 8),
            },
        }
    }
    out.push('"');
    out
}

fn push_hex(out: &mut String, letter: char, code: u32, digits: usize) {
    out.push('\\');
    out.push(letter);
    let nibbles = (0..digits).rev().map(|at| (code >> (4 * at)) & 0xf);
    out.extend(nibbles.filter_map(|nibble| char::from_digit(nibble, 16)));
}

fn pad(out: &mut String, indent: usize) {
    out.extend(std::iter::repeat_n(' ', indent));
}

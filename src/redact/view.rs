//! A text with its escapes undone, and where each byte of it came from.

use std::borrow::Cow;

/// One reading of a text.
#[derive(Debug)]
pub(super) struct View<'a> {
    /// What it reads; escapes may have made it anything but UTF-8.
    pub(super) bytes: Cow<'a, [u8]>,
    /// Where each byte's source begins, and where the last one's ends; the text as it stands has
    /// none.
    origins: Option<Vec<usize>>,
}

/// What stands at some place of a text.
enum Unit {
    /// One byte for itself.
    Plain,
    /// So many bytes for this one.
    Byte(usize, u8),
    /// So many bytes for this character.
    Character(usize, char),
    /// The beginning of an escape whose end isn't there yet.
    Unfinished,
}

type Rule = fn(&[u8]) -> Unit;

/// Every reading of `text`: as it stands, without percent escapes, without JSON escapes, and
/// without the JSON escapes of JSON escapes. With `is_end`, an escape that breaks off stands for
/// itself; else the view ends before it.
pub(super) fn of(text: &str, is_end: bool) -> Vec<View<'_>> {
    let raw = View {
        bytes: Cow::Borrowed(text.as_bytes()),
        origins: None,
    };
    let has = |byte: u8| text.as_bytes().contains(&byte);
    let percent = has(b'%').then(|| raw.without(percent_escape, is_end));
    let json = has(b'\\').then(|| raw.without(json_escape, is_end));
    let nested = json.as_ref().filter(|view| view.bytes.contains(&b'\\'));
    let nested = nested.map(|view| view.without(json_escape, is_end));
    [Some(raw), percent, json, nested]
        .into_iter()
        .flatten()
        .collect()
}

impl View<'_> {
    fn without(&self, rule: Rule, is_end: bool) -> View<'static> {
        let (mut bytes, mut origins) = (Vec::with_capacity(self.bytes.len()), Vec::new());
        let (mut at, mut buffer) = (0, [0; 4]);
        while at < self.bytes.len() {
            let (length, meaning) = match rule(&self.bytes[at..]) {
                Unit::Byte(length, byte) => {
                    buffer[0] = byte;
                    (length, &buffer[..1])
                }
                Unit::Character(length, character) => {
                    (length, character.encode_utf8(&mut buffer).as_bytes())
                }
                Unit::Unfinished if !is_end => break,
                Unit::Plain | Unit::Unfinished => (1, &self.bytes[at..=at]),
            };
            origins.extend(std::iter::repeat_n(self.origin(at), meaning.len()));
            bytes.extend_from_slice(meaning);
            at += length;
        }
        origins.push(self.origin(at));
        View {
            bytes: Cow::Owned(bytes),
            origins: Some(origins),
        }
    }

    /// Where in the text the byte at `at` begins; `at` may be the view's length.
    pub(super) fn origin(&self, at: usize) -> usize {
        self.origins.as_ref().map_or(at, |origins| origins[at])
    }

    /// Where in the text the view ends.
    pub(super) fn end(&self) -> usize {
        self.origin(self.bytes.len())
    }

    /// The first byte that begins at `place` of the text or after it.
    pub(super) fn index(&self, place: usize) -> usize {
        match &self.origins {
            None => place,
            Some(origins) => {
                let index = origins.partition_point(|&origin| origin < place);
                index.min(self.bytes.len())
            }
        }
    }

    /// The last place at or before `place` that isn't inside an escape.
    pub(super) fn boundary(&self, place: usize) -> usize {
        match &self.origins {
            None => place,
            Some(origins) => {
                let after = origins.partition_point(|&origin| origin <= place);
                after.checked_sub(1).map_or(0, |last| origins[last])
            }
        }
    }
}

fn percent_escape(rest: &[u8]) -> Unit {
    match rest {
        [b'%', high, low, ..] => match (nibble(*high), nibble(*low)) {
            (Some(high), Some(low)) => Unit::Byte(3, high << 4 | low),
            _ => Unit::Plain,
        },
        [b'%'] => Unit::Unfinished,
        [b'%', high] if nibble(*high).is_some() => Unit::Unfinished,
        _ => Unit::Plain,
    }
}

fn json_escape(rest: &[u8]) -> Unit {
    let simple = |byte: u8| Unit::Byte(2, byte);
    match rest {
        [b'\\'] => Unit::Unfinished,
        [b'\\', escape, ..] => match escape {
            b'"' | b'\\' | b'/' => simple(*escape),
            b'b' => simple(8),
            b't' => simple(b'\t'),
            b'n' => simple(b'\n'),
            b'f' => simple(12),
            b'r' => simple(b'\r'),
            b'u' => unicode_escape(rest),
            _ => Unit::Plain,
        },
        _ => Unit::Plain,
    }
}

/// `rest` begins with a backslash and a `u`.
fn unicode_escape(rest: &[u8]) -> Unit {
    let character = |length: usize, code: u32| {
        Unit::Character(
            length,
            char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER),
        )
    };
    let high = match code_unit(rest) {
        Ok(Some(code)) => code,
        Ok(None) => return Unit::Plain,
        Err(BreaksOff) => return Unit::Unfinished,
    };
    if !(0xD800..0xDC00).contains(&high) {
        return character(6, high);
    }
    match code_unit(&rest[6..]) {
        Ok(Some(low)) if (0xDC00..0xE000).contains(&low) => {
            character(12, 0x1_0000 + ((high - 0xD800) << 10) + (low - 0xDC00))
        }
        Ok(_) => character(6, high),
        Err(BreaksOff) => Unit::Unfinished,
    }
}

/// The text ends inside what may become an escape.
struct BreaksOff;

/// The four digits of an escape at the start of `rest`, if there is one.
fn code_unit(rest: &[u8]) -> Result<Option<u32>, BreaksOff> {
    let mut code = 0;
    for at in 0..6 {
        let Some(&byte) = rest.get(at) else {
            return Err(BreaksOff);
        };
        match (at, nibble(byte)) {
            (0, _) if byte == b'\\' => {}
            (1, _) if byte == b'u' => {}
            (2.., Some(digit)) => code = code << 4 | u32::from(digit),
            _ => return Ok(None),
        }
    }
    Ok(Some(code))
}

fn nibble(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::of;

    fn readings(text: &str, is_end: bool) -> Vec<String> {
        let views = of(text, is_end).into_iter();
        views
            .map(|view| String::from_utf8_lossy(&view.bytes).into_owned())
            .collect()
    }

    #[test]
    fn escapes_are_undone() {
        assert_eq!(readings("plain", true), ["plain"]);
        assert_eq!(readings("a%2Fb%zz%2", true)[1], "a/b%zz%2");
        assert_eq!(readings(r"a\/b\u0041\x\n", true)[1], "a/bA\\x\n");
        assert_eq!(
            readings(r"\ud83d\ude00 \ud83d.", true)[1],
            "\u{1F600} \u{FFFD}."
        );
        assert_eq!(
            readings(r"a\\/b\\u0041", true),
            [r"a\\/b\\u0041", r"a\/b\u0041", "a/bA"]
        );
    }

    #[test]
    fn an_escape_that_breaks_off_waits_for_its_end() {
        assert_eq!(readings("a%2", false)[1], "a");
        for text in [r"a\", r"a\u00", r"a\ud83d", r"a\ud83d\u"] {
            assert_eq!(readings(text, false)[1], "a", "{text}");
        }
        assert_eq!(readings(r"a\ud83dx", false)[1], "a\u{FFFD}x");
    }

    #[test]
    fn places_lead_back_to_the_text() {
        let views = of("x%41%42y", true);
        let view = &views[1];
        assert_eq!((view.origin(1), view.origin(3), view.end()), (1, 7, 8));
        assert_eq!((view.index(0), view.index(2), view.index(4)), (0, 2, 2));
        assert_eq!(
            (view.boundary(3), view.boundary(4), view.boundary(8)),
            (1, 4, 8)
        );
    }
}

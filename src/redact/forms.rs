//! The encodings of one value. Other escapes than those of addresses are not here: views undo them.

use super::redactor::VALUE_MIN;

/// Longer values are known by pieces of this many bytes, so that what a stream holds back stays
/// small.
const PIECE: usize = 4096;

/// A line of a value with several lines is known by itself from this length on.
const LINE_MIN: usize = 16;

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// What to look for so that no form of `value` survives; empty for a value too short to look for.
pub(super) fn of(value: &str) -> Vec<Vec<u8>> {
    let mut forms = Vec::new();
    if value.len() < VALUE_MIN {
        return forms;
    }
    for piece in pieces(value) {
        add(piece, &mut forms);
    }
    let lines = value.lines().map(str::trim);
    if value.trim().contains('\n') {
        for line in lines.filter(|line| line.len() >= LINE_MIN && !line.starts_with("-----")) {
            pieces(line).for_each(|piece| add(piece, &mut forms));
        }
    }
    forms
}

fn add(piece: &str, forms: &mut Vec<Vec<u8>>) {
    let bytes = piece.as_bytes();
    forms.push(bytes.to_vec());
    forms.push(piece.chars().rev().collect::<String>().into_bytes());
    for digits in [b"0123456789abcdef", b"0123456789ABCDEF"] {
        forms.push(hex(bytes, digits));
        // Some encoders keep these four as they are.
        forms.push(percent(bytes, digits, b"-._~"));
        forms.push(percent(bytes, digits, b""));
    }
    for offset in 0..3 {
        forms.push(base64_core(bytes, offset, STANDARD));
        forms.push(base64_core(bytes, offset, URL_SAFE));
    }
}

/// Cuts at characters, and never leaves a piece too short to look for.
fn pieces(value: &str) -> impl Iterator<Item = &str> {
    let mut rest = value;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let at = if rest.len() < PIECE + LINE_MIN {
            rest.len()
        } else {
            rest.floor_char_boundary(PIECE)
        };
        let (piece, after) = rest.split_at(at);
        rest = after;
        Some(piece)
    })
}

fn hex(bytes: &[u8], digits: &[u8; 16]) -> Vec<u8> {
    let pair = |byte: &u8| {
        [
            digits[usize::from(byte >> 4)],
            digits[usize::from(byte & 15)],
        ]
    };
    bytes.iter().flat_map(pair).collect()
}

/// As in an address, with `kept` besides letters and digits as they are. A view undoes this as well, but a stray `%` before a value that begins with two
/// hexadecimal digits is taken for an escape, and with it the value's beginning.
fn percent(bytes: &[u8], digits: &[u8; 16], kept: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || kept.contains(byte) {
            encoded.push(*byte);
        } else {
            encoded.push(b'%');
            encoded.extend(hex(&[*byte], digits));
        }
    }
    encoded
}

/// The characters of base64 that are the value's alone when it stands `offset` bytes (modulo 3)
/// into what was encoded; up to four bits at either end depend on the neighbours and are left.
fn base64_core(bytes: &[u8], offset: usize, alphabet: &[u8; 64]) -> Vec<u8> {
    let padded: Vec<u8> = std::iter::repeat_n(0, offset)
        .chain(bytes.iter().copied())
        .collect();
    let mut encoded = Vec::with_capacity(padded.len() * 4 / 3 + 4);
    for group in padded.chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..=group.len() {
            let index = word >> (18 - 6 * digit) & 63;
            encoded.push(alphabet[usize::try_from(index).expect("six bits")]);
        }
    }
    if !padded.len().is_multiple_of(3) {
        encoded.pop();
    }
    encoded.drain(..[0, 2, 3][offset].min(encoded.len()));
    encoded
}

#[cfg(test)]
mod tests {
    use super::{PIECE, of};

    fn texts(value: &str) -> Vec<String> {
        let forms = of(value).into_iter();
        forms.map(|form| String::from_utf8(form).unwrap()).collect()
    }

    #[test]
    fn a_value_is_known_in_every_encoding() {
        // "<<??>>~~" has both characters in which the alphabets differ.
        let forms = texts("<<??>>~~");
        for form in [
            "<<??>>~~",
            "~~>>??<<",
            "3c3c3f3f3e3e7e7e",
            "3C3C3F3F3E3E7E7E",
            "%3C%3C%3F%3F%3E%3E~~",
            "%3c%3c%3f%3f%3e%3e~~",
            "%3C%3C%3F%3F%3E%3E%7E%7E",
            "PDw/Pz4+fn",
            "PDw_Pz4-fn",
            "w8Pz8+Pn5+",
            "w8Pz8-Pn5-",
            "8PD8/Pj5+f",
        ] {
            assert!(
                forms.iter().any(|known| known == form),
                "{form} of {forms:?}"
            );
        }
    }

    #[test]
    fn short_values_are_not_looked_for() {
        assert_eq!(texts("hunter2"), [""; 0]);
    }

    #[test]
    fn long_values_and_lines_are_known_by_pieces() {
        let long = "0123456789".repeat(1000);
        assert!(of(&long).iter().all(|form| form.len() <= 2 * (PIECE + 16)));
        let key = "-----BEGIN X-----\nAAAABBBBCCCCDDDDEEEE\nshort\n-----END X-----\n";
        let forms = texts(key);
        assert!(forms.iter().any(|form| form == "AAAABBBBCCCCDDDDEEEE"));
        assert!(
            !forms
                .iter()
                .any(|form| form == "-----BEGIN X-----" || form == "short")
        );
    }
}

//! What looks random enough to be a secret of a kind that nobody named.

use std::ops::Range;

/// Shorter words are not judged.
const WORD_MIN: usize = 20;
/// Bits a character from which on a word is suspect: hexadecimal digits, thus hashes and UUIDs,
/// never reach it.
const BITS_MIN: f64 = 4.0;

/// The words of `text` that may be secrets: a flag for people, since a compressed or encoded word
/// looks the same. Bytes of `text`.
pub fn suspects(text: &str) -> Vec<Range<usize>> {
    let in_word = |byte: u8| byte.is_ascii_alphanumeric() || b"+/_-=".contains(&byte);
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut start = 0;
    while start < bytes.len() {
        let length = bytes[start..]
            .iter()
            .take_while(|byte| in_word(**byte))
            .count();
        if length >= WORD_MIN && is_suspect(&bytes[start..start + length]) {
            found.push(start..start + length);
        }
        start += length + 1;
    }
    found
}

fn is_suspect(word: &[u8]) -> bool {
    let has = |class: fn(&u8) -> bool| word.iter().any(class);
    let is_mixed =
        has(u8::is_ascii_lowercase) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_digit);
    is_mixed && bits(word) > BITS_MIN
}

/// Shannon's entropy, in bits a byte. Counts above four thousand million don't occur.
fn bits(word: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in word {
        counts[usize::from(*byte)] += 1;
    }
    let total: f64 = counts.iter().map(|&count| f64::from(count)).sum();
    let shares = counts
        .iter()
        .filter(|count| **count > 0)
        .map(|&count| f64::from(count) / total);
    shares.map(|share| -share * share.log2()).sum()
}

#[cfg(test)]
mod tests {
    use super::suspects;

    #[test]
    fn keys_are_suspect_and_hashes_are_not() {
        let key = concat!("x9Qzz71mVpe", "Rr0tokenVa8Lu3");
        let found = suspects(&format!("set KEY {key}."));
        assert_eq!(found, std::slice::from_ref(&(8..8 + key.len())));
        for innocent in [
            "9fceb02d0ae598e95dc970b74767f19372d61af8",
            "11111111-2222-3333-4444-555555555555",
            "a_long_name_of_a_function_that_does_a_thing",
            "AAAAAAAAAAAAAAAAAAAAAAAAAAa1",
            "short1A",
        ] {
            assert!(suspects(innocent).is_empty(), "{innocent}");
        }
    }
}

//! What a credential of a known kind looks like: a prefix, and a rule for what follows it.

use std::ops::Range;

/// One kind.
struct Shape {
    label: &'static str,
    prefix: &'static str,
    /// Whether the prefix counts in either case.
    any_case: bool,
    /// Whether it counts only where no letter or digit stands before it.
    at_word: bool,
    rule: Rule,
}

/// Which bytes after the prefix are the secret; none if this is no credential. A rule that hides
/// its prefix as well says so with [`Hit::Whole`].
type Rule = fn(&Rest<'_>) -> Result<Hit, Open>;

enum Hit {
    No,
    /// The prefix and so many bytes after it.
    Whole(usize),
    /// These bytes after the prefix.
    Part(Range<usize>),
}

/// The text ends before the rule can say.
struct Open;

/// A finding, as a range of the text that was scanned.
#[derive(Debug)]
pub(super) struct Found {
    /// Where that which makes it a finding begins.
    pub(super) anchor: usize,
    pub(super) range: Range<usize>,
    pub(super) label: &'static str,
}

/// What [`scan`] saw.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) found: Vec<Found>,
    /// Where the first credential begins that may not have ended yet.
    pub(super) open: Option<usize>,
}

const fn shape(label: &'static str, prefix: &'static str, rule: Rule) -> Shape {
    Shape {
        label,
        prefix,
        any_case: false,
        at_word: false,
        rule,
    }
}

impl Shape {
    const fn at_word(mut self) -> Self {
        self.at_word = true;
        self
    }

    const fn any_case(mut self) -> Self {
        self.any_case = true;
        self
    }
}

#[rustfmt::skip]
const SHAPES: &[Shape] = &[
    shape("github", "ghs_", |rest| rest.either(stateless, |rest| rest.whole(36, alphanumeric))),
    shape("github", "ghp_", |rest| rest.whole(36, alphanumeric)),
    shape("github", "gho_", |rest| rest.whole(36, alphanumeric)),
    shape("github", "ghu_", |rest| rest.whole(36, alphanumeric)),
    shape("github", "ghr_", |rest| rest.whole(36, alphanumeric)),
    shape("github", "github_pat_", |rest| rest.whole(60, word)),
    shape("gitlab", "glpat-", |rest| rest.whole(20, url_safe)),
    shape("anthropic", "sk-ant-", |rest| rest.whole(20, url_safe)),
    shape("openai", "sk-", |rest| rest.with_digit(32, url_safe)).at_word(),
    shape("google", "AIza", |rest| rest.whole(35, url_safe)).at_word(),
    shape("google", "GOCSPX-", |rest| rest.whole(20, url_safe)),
    shape("google", "ya29.", |rest| rest.whole(30, url_safe)).at_word(),
    shape("groq", "gsk_", |rest| rest.whole(40, alphanumeric)).at_word(),
    shape("xai", "xai-", |rest| rest.whole(60, alphanumeric)).at_word(),
    shape("huggingface", "hf_", |rest| rest.whole(30, alphanumeric)).at_word(),
    shape("perplexity", "pplx-", |rest| rest.whole(40, alphanumeric)).at_word(),
    shape("replicate", "r8_", |rest| rest.whole(37, alphanumeric)).at_word(),
    shape("aws", "AKIA", |rest| rest.exactly(16, upper)).at_word(),
    shape("aws", "ASIA", |rest| rest.exactly(16, upper)).at_word(),
    shape("aws", "secret_access_key", |rest| rest.assigned(40, base64)).any_case(),
    shape("aws", "secretaccesskey", |rest| rest.assigned(40, base64)).any_case(),
    shape("aws", "session_token", |rest| rest.assigned(100, base64)).any_case(),
    shape("azure", "accountkey", |rest| rest.assigned(60, base64)).any_case(),
    shape("npm", "npm_", |rest| rest.whole(36, alphanumeric)).at_word(),
    shape("pypi", "pypi-AgE", |rest| rest.whole(50, url_safe)).at_word(),
    shape("docker", "dckr_pat_", |rest| rest.whole(20, url_safe)),
    shape("digitalocean", "dop_v1_", |rest| rest.whole(64, alphanumeric)),
    shape("stripe", "sk_live_", |rest| rest.whole(20, alphanumeric)).at_word(),
    shape("stripe", "rk_live_", |rest| rest.whole(20, alphanumeric)).at_word(),
    shape("slack", "xapp-", |rest| rest.whole(20, dashed)).at_word(),
    shape("slack", "xoxa-", |rest| rest.whole(10, dashed)),
    shape("slack", "xoxb-", |rest| rest.whole(10, dashed)),
    shape("slack", "xoxe-", |rest| rest.whole(10, dashed)),
    shape("slack", "xoxp-", |rest| rest.whole(10, dashed)),
    shape("slack", "xoxr-", |rest| rest.whole(10, dashed)),
    shape("slack", "xoxs-", |rest| rest.whole(10, dashed)),
    shape("age", "AGE-SECRET-KEY-1", |rest| rest.whole(50, upper)),
    shape("jwt", "eyJ", jwt).at_word(),
    shape("pem", "-----BEGIN ", pem),
    shape("userinfo", "://", userinfo),
    shape("header", "authorization", authorization).any_case(),
    shape("header", "x-api-key", |rest| rest.assigned(16, token)).any_case(),
    shape("header", "x-goog-api-key", |rest| rest.assigned(16, token)).any_case(),
    shape("header", "private-token", |rest| rest.assigned(16, token)).any_case(),
];

/// A part of a token longer than this is none.
const PART_MAX: usize = 4096;
/// A token with digits has one in its first so many bytes.
const NEAR: usize = 64;
/// A private key without an end is taken to be this long.
const PEM_MAX: usize = 16 * 1024;
/// User names and passwords of URLs are no longer.
const USERINFO_MAX: usize = 1024;

/// Looks for credentials that begin at `from` or after it. Without `is_end`, more text may follow.
pub(super) fn scan(bytes: &[u8], from: usize, is_end: bool) -> Scan {
    let mut scan = Scan::default();
    let mut at = from;
    while at < bytes.len() {
        match best(bytes, at, is_end) {
            Ok(None) => at += 1,
            Ok(Some(found)) => {
                at = found.range.end.max(at + 1);
                scan.found.push(found);
            }
            Err(Open) => {
                scan.open = Some(at);
                break;
            }
        }
    }
    scan
}

/// What the first shape that fits at `at` finds.
fn best(bytes: &[u8], at: usize, is_end: bool) -> Result<Option<Found>, Open> {
    let here = &bytes[at..];
    let in_word = at
        .checked_sub(1)
        .is_some_and(|before| alphanumeric(bytes[before]));
    let first = here[0].to_ascii_lowercase();
    for shape in SHAPES {
        let prefix = shape.prefix.as_bytes();
        if first != prefix[0].to_ascii_lowercase() || (shape.at_word && in_word) {
            continue;
        }
        let seen = &here[..here.len().min(prefix.len())];
        let expected = &prefix[..seen.len()];
        let is_same = seen == expected || (shape.any_case && seen.eq_ignore_ascii_case(expected));
        if !is_same {
            continue;
        }
        if seen.len() < prefix.len() {
            if is_end {
                continue;
            }
            return Err(Open);
        }
        let start = at + prefix.len();
        let range = match (shape.rule)(&Rest {
            bytes: &bytes[start..],
            is_end,
        })? {
            Hit::No => continue,
            Hit::Whole(length) => at..start + length,
            Hit::Part(part) => start + part.start..start + part.end,
        };
        return Ok(Some(Found {
            anchor: at,
            range,
            label: shape.label,
        }));
    }
    Ok(None)
}

/// What follows a prefix.
struct Rest<'a> {
    bytes: &'a [u8],
    is_end: bool,
}

impl Rest<'_> {
    /// How many bytes from `at` on belong to `set`, at most `max`.
    fn run(&self, at: usize, max: usize, set: fn(u8) -> bool) -> Result<usize, Open> {
        let rest = self.bytes.get(at..).unwrap_or_default();
        let window = &rest[..rest.len().min(max)];
        match window.iter().position(|&byte| !set(byte)) {
            Some(length) => Ok(length),
            None if window.len() == max || self.is_end => Ok(window.len()),
            None => Err(Open),
        }
    }

    /// The byte at `at`; none at the end of the text.
    fn byte(&self, at: usize) -> Result<Option<u8>, Open> {
        match self.bytes.get(at) {
            None if !self.is_end => Err(Open),
            byte => Ok(byte.copied()),
        }
    }

    fn either(&self, first: Rule, second: Rule) -> Result<Hit, Open> {
        match first(self)? {
            Hit::No => second(self),
            hit @ (Hit::Whole(_) | Hit::Part(_)) => Ok(hit),
        }
    }

    /// A run of `set`, `min` or longer.
    fn whole(&self, min: usize, set: fn(u8) -> bool) -> Result<Hit, Open> {
        let length = self.run(0, usize::MAX, set)?;
        Ok(if length >= min {
            Hit::Whole(length)
        } else {
            Hit::No
        })
    }

    /// The same with a digit near its start, which words joined by dashes lack.
    fn with_digit(&self, min: usize, set: fn(u8) -> bool) -> Result<Hit, Open> {
        let near = self.run(0, NEAR, set)?;
        if !self.bytes[..near].iter().any(u8::is_ascii_digit) {
            return Ok(Hit::No);
        }
        self.whole(min, set)
    }

    /// A run of exactly `length`, and then no other letter or digit.
    fn exactly(&self, length: usize, set: fn(u8) -> bool) -> Result<Hit, Open> {
        let is_run = self.run(0, length, set)? == length;
        let goes_on = is_run && self.byte(length)?.is_some_and(word);
        Ok(if is_run && !goes_on {
            Hit::Whole(length)
        } else {
            Hit::No
        })
    }

    /// A run of `set` after `=` or `:`, with quotes and blanks around those. Sixteen bytes without
    /// a digit are a word.
    fn assigned(&self, min: usize, set: fn(u8) -> bool) -> Result<Hit, Open> {
        let Some(start) = self.after_sign()? else {
            return Ok(Hit::No);
        };
        let end = start + self.run(start, usize::MAX, set)?;
        let value = self.bytes.get(start..end).unwrap_or_default();
        let is_value = value.len() >= min && value.iter().any(u8::is_ascii_digit);
        Ok(if is_value {
            Hit::Part(start..end)
        } else {
            Hit::No
        })
    }

    /// Where a value begins, after a sign that gives it to a name.
    fn after_sign(&self) -> Result<Option<usize>, Open> {
        let length = self.run(0, 16, |byte| b" \t\"'`\\:=>".contains(&byte))?;
        let has_sign = self.bytes[..length].iter().any(|byte| b":=".contains(byte));
        Ok(has_sign.then_some(length))
    }
}

const fn alphanumeric(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

const fn word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

const fn dashed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

const fn url_safe(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

const fn base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'+' | b'=')
}

const fn token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'~' | b'+' | b'/' | b'=' | b'-')
}

const fn upper(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit()
}

/// Installation tokens of the newer form: the app's number and a signed token.
fn stateless(rest: &Rest<'_>) -> Result<Hit, Open> {
    let digits = rest.run(0, 13, |byte| byte.is_ascii_digit())?;
    if !(1..=12).contains(&digits) || rest.byte(digits)? != Some(b'_') {
        return Ok(Hit::No);
    }
    segments(rest, digits + 1)
}

fn jwt(rest: &Rest<'_>) -> Result<Hit, Open> {
    segments(rest, 0)
}

/// Three segments of ten or more, joined by dots, and what is joined to them by further dots.
fn segments(rest: &Rest<'_>, start: usize) -> Result<Hit, Open> {
    let mut at = start;
    for _ in 0..2 {
        let length = rest.run(at, PART_MAX, url_safe)?;
        if length < 10 || rest.byte(at + length)? != Some(b'.') {
            return Ok(Hit::No);
        }
        at += length + 1;
    }
    if rest.run(at, 10, url_safe)? < 10 {
        return Ok(Hit::No);
    }
    let end = at + rest.run(at, usize::MAX, |byte| url_safe(byte) || byte == b'.')?;
    let dots = rest.bytes[..end]
        .iter()
        .rev()
        .take_while(|byte| **byte == b'.')
        .count();
    Ok(Hit::Whole(end - dots))
}

/// A private key up to its end line. One whose end is missing goes as far as it looks like one.
fn pem(rest: &Rest<'_>) -> Result<Hit, Open> {
    let kind = rest.run(0, 64, |byte| byte.is_ascii_uppercase() || byte == b' ')?;
    let name = &rest.bytes[..kind];
    let is_key = name.ends_with(b"PRIVATE KEY") || name.ends_with(b"PRIVATE KEY BLOCK");
    if !is_key || rest.run(kind, 5, |byte| byte == b'-')? < 5 {
        return Ok(Hit::No);
    }
    let body = kind + 5;
    let window = &rest.bytes[..rest.bytes.len().min(PEM_MAX)];
    let end = b"-----END ";
    if let Some(at) = window.windows(end.len()).position(|seen| seen == end) {
        let name = at + end.len();
        let name_length = rest.run(name, 64, |byte| byte.is_ascii_uppercase() || byte == b' ')?;
        let dashes = rest.run(name + name_length, 5, |byte| byte == b'-')?;
        return Ok(Hit::Whole(name + name_length + dashes));
    }
    if window.len() < PEM_MAX && !rest.is_end {
        return Err(Open);
    }
    let in_key = |byte: &u8| base64(*byte) || b" \t\r\n\\:,-".contains(byte);
    let length = window[body..]
        .iter()
        .take_while(|byte| in_key(byte))
        .count();
    Ok(Hit::Whole(body + length))
}

/// `user:password` before the `@` of a URL.
fn userinfo(rest: &Rest<'_>) -> Result<Hit, Open> {
    let user = rest.run(0, USERINFO_MAX, |byte| {
        !byte.is_ascii_whitespace() && !b"/@\"'<>`:".contains(&byte)
    })?;
    if rest.byte(user)? != Some(b':') {
        return Ok(Hit::No);
    }
    let password = rest.run(user + 1, USERINFO_MAX, |byte| {
        !byte.is_ascii_whitespace() && !b"/@\"'<>`".contains(&byte)
    })?;
    let end = user + 1 + password;
    let is_secret = password > 0 && rest.byte(end)? == Some(b'@');
    Ok(if is_secret {
        Hit::Part(0..end)
    } else {
        Hit::No
    })
}

/// The credentials of an `Authorization` header, however its name and value are joined.
fn authorization(rest: &Rest<'_>) -> Result<Hit, Open> {
    let Some(scheme) = rest.after_sign()? else {
        return Ok(Hit::No);
    };
    let length = rest.run(scheme, 7, |byte| byte.is_ascii_alphabetic())?;
    let name = rest.bytes.get(scheme..scheme + length).unwrap_or_default();
    let known = ["basic", "bearer", "token"];
    if !known
        .iter()
        .any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
    {
        return Ok(Hit::No);
    }
    let blanks = rest.run(scheme + length, 16, |byte| byte == b' ')?;
    let start = scheme + length + blanks;
    let end = start + rest.run(start, usize::MAX, token)?;
    let value = rest.bytes.get(start..end).unwrap_or_default();
    // Eight letters may be a word of a sentence about the header.
    let is_value = value.len() >= 20 || (value.len() >= 8 && value.iter().any(u8::is_ascii_digit));
    Ok(if blanks > 0 && is_value {
        Hit::Part(start..end)
    } else {
        Hit::No
    })
}

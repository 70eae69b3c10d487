//! Rust text to tokens, far enough to find names: comments are dropped, string and character
//! literals are one token each. Text that no compiler would take gives some tokens, never a panic.

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Keywords too; a raw identifier without its `r#`.
    Ident,
    Lifetime,
    Number,
    /// Character and byte literals.
    Char,
    /// String literals of each form; the text is what stands between the quotes, escapes and all.
    Str,
    /// One character, except `::`.
    Punct,
}

/// A piece of Rust text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) text: String,
    /// Where it starts, counted from 1.
    pub(super) line: usize,
    /// Where it ends.
    pub(super) end: usize,
}

impl Token {
    pub(super) fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Ident | Kind::Punct) && self.text == text
    }

    pub(super) fn is_ident(&self) -> bool {
        self.kind == Kind::Ident
    }
}

/// The tokens of `text`.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut lexer = Lexer {
        rest: text,
        line: 1,
        tokens: Vec::new(),
    };
    while let Some(first) = lexer.rest.chars().next() {
        lexer.step(first);
    }
    lexer.tokens
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    tokens: Vec<Token>,
}

impl Lexer<'_> {
    fn step(&mut self, first: char) {
        if first.is_whitespace() {
            self.skip(first.len_utf8());
        } else if self.rest.starts_with("//") {
            self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.skip(block_comment(self.rest));
        } else if first == '"' {
            self.string(1);
        } else if first == '\'' {
            self.quote(0);
        } else if is_ident_start(first) {
            self.word();
        } else if first.is_ascii_digit() {
            let length = length_while(self.rest, is_ident_continue);
            self.push(Kind::Number, 0, length, length);
        } else if self.rest.starts_with("::") {
            self.push(Kind::Punct, 0, 2, 2);
        } else {
            self.push(Kind::Punct, 0, first.len_utf8(), first.len_utf8());
        }
    }

    /// An identifier, or a literal that a prefix such as `r`, `b` or `br` begins.
    fn word(&mut self) {
        let length = length_while(self.rest, is_ident_continue);
        let (word, after) = self.rest.split_at(length);
        let hashes = length_while(after, |c| c == '#');
        let quoted = after[hashes..].starts_with('"');
        match word {
            "r" | "br" | "cr" if quoted => self.raw_string(length, hashes),
            "b" | "c" if quoted && hashes == 0 => self.string(length + 1),
            "b" if after.starts_with('\'') => self.quote(1),
            "r" if hashes == 1 => {
                let name = length_while(&after[1..], is_ident_continue);
                self.push(Kind::Ident, 2, 2 + name, 2 + name);
            }
            _ => self.push(Kind::Ident, 0, length, length),
        }
    }

    /// A string with escapes whose text starts at `start`.
    fn string(&mut self, start: usize) {
        let mut escaped = false;
        for (at, c) in self.rest[start..].char_indices() {
            match c {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => return self.push(Kind::Str, start, start + at, start + at + 1),
                _ => {}
            }
        }
        self.push(Kind::Str, start, self.rest.len(), self.rest.len());
    }

    /// A raw string: `prefix` letters, then `hashes` hashes, then the quote.
    fn raw_string(&mut self, prefix: usize, hashes: usize) {
        let start = prefix + hashes + 1;
        let close = format!("\"{}", "#".repeat(hashes));
        match self.rest[start..].find(&close) {
            Some(at) => self.push(Kind::Str, start, start + at, start + at + close.len()),
            None => self.push(Kind::Str, start, self.rest.len(), self.rest.len()),
        }
    }

    /// A character literal or a lifetime; the `'` stands at `at`.
    fn quote(&mut self, at: usize) {
        let body = &self.rest[at + 1..];
        let mut chars = body.chars();
        let (first, second) = (chars.next(), chars.next());
        let length = match (first, second) {
            (Some('\\'), Some(escape)) => {
                let past = 1 + escape.len_utf8();
                body[past..].find('\'').map(|close| past + close)
            }
            (Some(c), Some('\'')) => Some(c.len_utf8()),
            _ => None,
        };
        match length {
            Some(length) => self.push(Kind::Char, at + 1, at + 1 + length, at + 2 + length),
            None => {
                let end = at + 1 + length_while(body, is_ident_continue);
                self.push(Kind::Lifetime, at, end, end);
            }
        }
    }

    /// Takes `length` bytes as a token whose text is `start..end`.
    fn push(&mut self, kind: Kind, start: usize, end: usize, length: usize) {
        let (text, line) = (self.rest[start..end].to_owned(), self.line);
        self.skip(length);
        self.tokens.push(Token {
            kind,
            text,
            line,
            end: self.line,
        });
    }

    fn skip(&mut self, length: usize) {
        let (taken, rest) = self.rest.split_at(length);
        self.line += taken.matches('\n').count();
        self.rest = rest;
    }
}

/// The length of the block comment that `text` begins with; they nest.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        if text[at..].starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if text[at..].starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

fn length_while(text: &str, accept: impl Fn(char) -> bool) -> usize {
    text.find(|c| !accept(c)).unwrap_or(text.len())
}

fn is_ident_start(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

fn is_ident_continue(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::{Kind, tokens};

    fn texts(text: &str) -> Vec<String> {
        tokens(text).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_vanish_and_literals_are_one_token() {
        let cases: &[(&str, &[&str])] = &[
            ("a // b\nc", &["a", "c"]),
            ("a /* b /* c */ d */ e", &["a", "e"]),
            ("crate::x", &["crate", "::", "x"]),
            (r#"f("a \" // b")"#, &["f", "(", r#"a \" // b"#, ")"]),
            (r##"r#"a " b"# c"##, &[r#"a " b"#, "c"]),
            (r#"br"x" b"y" c"z""#, &["x", "y", "z"]),
            ("r#type x", &["type", "x"]),
            ("'a' '\\'' '\"' b'x' 'é'", &["a", "\\'", "\"", "x", "é"]),
            (
                "'\\u{1F600}' &'a str 'outer: loop",
                &["\\u{1F600}", "&", "'a", "str", "'outer", ":", "loop"],
            ),
            ("1_000u64..2.5", &["1_000u64", ".", ".", "2", ".", "5"]),
            ("\"open", &["open"]),
            ("/* open", &[]),
            ("'", &["'"]),
        ];
        for (text, wanted) in cases {
            assert_eq!(texts(text), *wanted, "{text}");
        }
    }

    #[test]
    fn lines_count_through_strings_and_comments() {
        let found = tokens("a\n\"x\ny\" /* \n */ b");
        let lines: Vec<(Kind, usize, usize)> = found
            .iter()
            .map(|token| (token.kind, token.line, token.end))
            .collect();
        assert_eq!(
            lines,
            [(Kind::Ident, 1, 1), (Kind::Str, 2, 3), (Kind::Ident, 4, 4)]
        );
    }
}

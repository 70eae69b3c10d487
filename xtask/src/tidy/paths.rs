//! The paths that Rust text names, with `use` trees spelled out: `use a::{b, c::{self, d}}` gives
//! `a::b`, `a::c`, `a::c::d`. Paths in the strings of attributes (`with = "crate::x"`) count too.

use super::lex::{self, Kind, Token};

/// One path as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    /// At least one; a glob ends in `*`.
    pub(super) segments: Vec<String>,
    pub(super) line: usize,
    /// Index of its first token.
    pub(super) at: usize,
    /// Whether a `use` item brings it in.
    pub(super) import: bool,
    /// The modules written out in this file that it stands in, outermost first.
    pub(super) inside: Vec<String>,
}

impl Named {
    /// Whether this path reaches `target`: it names it or something in it, or it imports a module
    /// or a glob from which the target could then be named unseen.
    pub(super) fn reaches(&self, target: &[&str]) -> bool {
        let glob = self.segments.last().is_some_and(|last| last == "*");
        let named = &self.segments[..self.segments.len() - usize::from(glob)];
        // A lone word outside of a `use` is more likely a variable than a crate.
        let word = named.len() == 1 && !self.import;
        let agree = named.iter().zip(target).all(|(a, b)| a == b);
        agree && !word && (self.import || named.len() >= target.len())
    }
}

/// Every path of a file.
pub(super) fn paths(tokens: &[Token]) -> Vec<Named> {
    let mut finder = Finder {
        tokens,
        found: Vec::new(),
        open: Vec::new(),
        depth: 0,
    };
    let mut at = 0;
    while at < tokens.len() {
        at = finder.step(at);
    }
    finder.found
}

struct Finder<'a> {
    tokens: &'a [Token],
    found: Vec<Named>,
    /// Modules whose braces are open, with the depth inside.
    open: Vec<(String, usize)>,
    depth: usize,
}

impl Finder<'_> {
    fn is(&self, at: usize, text: &str) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is(text))
    }

    fn is_ident(&self, at: usize) -> bool {
        self.tokens.get(at).is_some_and(Token::is_ident)
    }

    /// Looks at the token `at` and returns the index of the next to look at.
    fn step(&mut self, at: usize) -> usize {
        let token = &self.tokens[at];
        match token.kind {
            Kind::Str => {
                self.quoted(at);
                at + 1
            }
            Kind::Ident => self.ident(at),
            Kind::Punct => {
                self.brace(at);
                at + 1
            }
            Kind::Lifetime | Kind::Number | Kind::Char => at + 1,
        }
    }

    fn brace(&mut self, at: usize) {
        if self.is(at, "{") {
            self.depth += 1;
            if at >= 2 && self.is(at - 2, "mod") {
                self.open
                    .push((self.tokens[at - 1].text.clone(), self.depth));
            }
        } else if self.is(at, "}") {
            if self
                .open
                .last()
                .is_some_and(|(_, depth)| *depth == self.depth)
            {
                self.open.pop();
            }
            self.depth = self.depth.saturating_sub(1);
        }
    }

    fn ident(&mut self, at: usize) -> usize {
        let field = at > 0 && self.is(at - 1, ".") && !(at > 1 && self.is(at - 2, "."));
        if field {
            return at + 1;
        }
        if self.is(at, "use") && !self.is(at + 1, "<") {
            return self.use_tree(at + 1, &[]);
        }
        let mut segments = vec![self.tokens[at].text.clone()];
        let mut next = at + 1;
        while self.is(next, "::") && self.is_ident(next + 1) {
            segments.push(self.tokens[next + 1].text.clone());
            next += 2;
        }
        self.push(segments, at, false);
        next
    }

    /// One branch of a `use` tree from the token `at` on; returns the index after it.
    /// `prefix` is the segments up to here.
    fn use_tree(&mut self, mut at: usize, prefix: &[String]) -> usize {
        let mut segments = prefix.to_vec();
        let from = at;
        loop {
            if self.is(at, "::") {
                at += 1;
            } else if self.is(at, "{") {
                at += 1;
                while at < self.tokens.len() && !self.is(at, "}") {
                    at = self.use_tree(at, &segments);
                    at += usize::from(self.is(at, ","));
                }
                return at + 1;
            } else if self.is(at, "*") {
                segments.push("*".to_owned());
                at += 1;
            } else if self.is(at, "as") {
                at += 2;
            } else if self.is_ident(at) {
                let name = &self.tokens[at].text;
                if name != "self" || prefix.is_empty() {
                    segments.push(name.clone());
                }
                at += 1;
            } else {
                break;
            }
        }
        if !segments.is_empty() {
            self.push(segments, from.min(self.tokens.len() - 1), true);
        }
        // A token that belongs to no `use` tree is passed over, so that each call goes on.
        at.max(from + usize::from(at == from && !self.is(at, ",") && !self.is(at, "}")))
    }

    fn quoted(&mut self, at: usize) {
        let token = &self.tokens[at];
        if token.text.starts_with("crate::") || token.text.starts_with("super::") {
            let inner = lex::tokens(&token.text);
            for mut path in paths(&inner) {
                path.line = token.line;
                path.at = at;
                path.inside = self.inside();
                self.found.push(path);
            }
        }
    }

    fn push(&mut self, segments: Vec<String>, at: usize, import: bool) {
        let line = self.tokens[at].line;
        self.found.push(Named {
            segments,
            line,
            at,
            import,
            inside: self.inside(),
        });
    }

    fn inside(&self) -> Vec<String> {
        self.open.iter().map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Named, lex, paths};

    fn named(text: &str) -> Vec<Named> {
        paths(&lex::tokens(text))
    }

    fn long(text: &str) -> Vec<String> {
        let all = named(text).into_iter().map(|path| path.segments.join("::"));
        all.filter(|path| path.contains("::")).collect()
    }

    #[test]
    fn use_trees_are_spelled_out() {
        let cases: &[(&str, &[&str])] = &[
            ("use crate::a;", &["crate::a"]),
            ("pub(crate) use crate::a as b;", &["crate::a"]),
            (
                "use crate::{a, b::{self, c as d}, e::*,};",
                &["crate::a", "crate::b", "crate::b::c", "crate::e::*"],
            ),
            ("use {crate::a, std::b};", &["crate::a", "std::b"]),
            ("use ::tokio::{spawn};", &["tokio::spawn"]),
            ("use super::super::x::{y};", &["super::super::x::y"]),
            (
                "fn f() -> impl T + use<'a> { crate::a::b() }",
                &["crate::a::b"],
            ),
            (
                "let x: Vec<crate::a::T> = Vec::<crate::b::T>::new();",
                &["crate::a::T", "crate::b::T"],
            ),
            ("x.crate_::y; S { ..crate::a::D }", &["crate::a::D"]),
            (
                "#[serde(with = \"crate::a::hex\")] \"see crate::b\" // crate::c",
                &["crate::a::hex"],
            ),
            ("$crate::task::spawn()", &["crate::task::spawn"]),
            ("use ;", &[]),
            ("use crate::{a", &["crate::a"]),
        ];
        for (text, wanted) in cases {
            assert_eq!(long(text), *wanted, "{text}");
        }
    }

    #[test]
    fn written_out_modules_are_known() {
        let found = named("mod a { mod b { fn f() { super::x() } } } super::y()");
        let inside = |name: &str| {
            let path = found
                .iter()
                .find(|path| path.segments.last().is_some_and(|s| s == name));
            path.map(|path| path.inside.join("::"))
        };
        assert_eq!(inside("x").as_deref(), Some("a::b"));
        assert_eq!(inside("y").as_deref(), Some(""));
    }

    #[test]
    fn a_path_reaches_what_it_names_or_brings_near() {
        let cases: &[(&str, &[&str], bool)] = &[
            ("use std::fs;", &["std", "fs"], true),
            ("use std::fs::File;", &["std", "fs"], true),
            ("use std::*;", &["std", "fs"], true),
            ("use std::time;", &["std", "time", "Instant"], true),
            ("use std::time::*;", &["std", "time", "Instant"], true),
            (
                "std::time::Instant::now()",
                &["std", "time", "Instant"],
                true,
            ),
            (
                "use std::time::Duration;",
                &["std", "time", "Instant"],
                false,
            ),
            (
                "std::time::Duration::ZERO",
                &["std", "time", "Instant"],
                false,
            ),
            ("use std::fmt;", &["std", "fs"], false),
            ("use std::fmt::*;", &["std", "fs"], false),
            ("#[tokio::test] fn f() {}", &["tokio"], true),
            ("use tokio;", &["tokio"], true),
            ("let rand = self.rand;", &["rand"], false),
            ("use tokio::task;", &["tokio", "task", "spawn"], true),
            ("use tokio;", &["tokio", "spawn"], true),
            ("use tokio::sync;", &["tokio", "task", "spawn"], false),
        ];
        for (text, target, wanted) in cases {
            let reached = named(text).iter().any(|path| path.reaches(target));
            assert_eq!(reached, *wanted, "{text} {target:?}");
        }
    }
}

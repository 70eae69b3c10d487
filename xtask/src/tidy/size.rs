//! Sizes may only shrink. What is above a limit stands in `ratchet.txt` with its size; anything
//! new above it, anything that grew, and any entry that is no longer true is a fault.

use std::collections::{BTreeMap, BTreeSet};

use super::Fault;
use super::lex::{Kind, Token};
use super::tree::{File, Tree, is_rust};

const LIST: &str = "xtask/src/tidy/ratchet.txt";
const RULE: &str = "size";
/// Lines of a file, those of its tests not counted; below `tests/` everything is a test.
const FILE_LIMIT: usize = 700;
/// Lines of a function's body that hold code, as clippy counts them.
const FUNCTION_LIMIT: usize = 80;

/// What is measured: `file PATH` or `fn PATH NAME`, as the list spells it.
type Subject = String;

/// Size and place of one subject.
struct Size {
    path: String,
    line: usize,
    size: usize,
}

pub(super) fn ratchet(tree: &Tree) -> Vec<Fault> {
    let text = tree.get(LIST).map_or("", |file| file.text.as_str());
    let (list, mut faults) = entries(text);
    let large = measure(tree);
    for (subject, size) in &large {
        let allowed = list.get(subject).map(|(allowed, _)| *allowed);
        let advice = match allowed {
            None => "split it".to_owned(),
            Some(allowed) if size.size > allowed => format!("grew from {allowed}: split it"),
            Some(allowed) if size.size < allowed => {
                format!("shrank from {allowed}: lower its entry in {LIST}")
            }
            Some(_) => continue,
        };
        let text = format!("`{subject}` has {} lines: {advice}", size.size);
        faults.push(Fault::new(&size.path, size.line, RULE, text));
    }
    for (subject, (_, line)) in list
        .iter()
        .filter(|(subject, _)| !large.contains_key(*subject))
    {
        let text = format!("`{subject}` is within the limit or gone: delete the entry");
        faults.push(Fault::new(LIST, *line, RULE, text));
    }
    faults
}

/// The list: size and line of each subject, and what can't be read.
fn entries(text: &str) -> (BTreeMap<Subject, (usize, usize)>, Vec<Fault>) {
    let (mut list, mut faults) = (BTreeMap::new(), Vec::new());
    let lines = text.lines().enumerate();
    for (index, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let entry = line
            .rsplit_once(' ')
            .and_then(|(subject, size)| Some((subject, size.parse().ok()?)));
        match entry {
            Some((subject, size)) => {
                list.insert(subject.to_owned(), (size, index + 1));
            }
            None => {
                let text = "not `file PATH LINES` or `fn PATH NAME LINES`: correct it";
                faults.push(Fault::new(LIST, index + 1, RULE, text));
            }
        }
    }
    (list, faults)
}

/// Everything above a limit.
fn measure(tree: &Tree) -> BTreeMap<Subject, Size> {
    let mut large = BTreeMap::new();
    for (path, file) in tree.all().filter(|(path, _)| is_rust(path)) {
        let lines = lines_without_tests(file);
        if lines > FILE_LIMIT && !path.starts_with("tests/") {
            let size = Size {
                path: path.to_owned(),
                line: 1,
                size: lines,
            };
            large.insert(format!("file {path}"), size);
        }
        for (name, line, lines) in functions(&file.tokens) {
            let subject = format!("fn {path} {name}");
            let largest = large.get(&subject).is_none_or(|known| known.size < lines);
            if lines > FUNCTION_LIMIT && largest {
                large.insert(
                    subject,
                    Size {
                        path: path.to_owned(),
                        line,
                        size: lines,
                    },
                );
            }
        }
    }
    large
}

fn lines_without_tests(file: &File) -> usize {
    let total = file.text.lines().count();
    let mut tests = 0;
    let mut run: Option<(usize, usize)> = None;
    for (token, in_test) in file.tokens.iter().zip(&file.in_test) {
        if *in_test {
            let start = run.map_or(token.line, |(start, _)| start);
            run = Some((start, token.end));
        } else if let Some((start, end)) = run.take() {
            tests += end - start + 1;
        }
    }
    tests += run.map_or(0, |(start, end)| end - start + 1);
    total.saturating_sub(tests)
}

/// Name, line and lines of code of each function with a body.
fn functions(tokens: &[Token]) -> Vec<(&str, usize, usize)> {
    let starts = tokens.windows(2).enumerate();
    let named = starts.filter(|(_, pair)| pair[0].is("fn") && pair[1].is_ident());
    named
        .filter_map(|(at, pair)| {
            let body = body(&tokens[at + 2..])?;
            Some((pair[1].text.as_str(), pair[0].line, code_lines(body)))
        })
        .collect()
}

/// What stands between the braces of the function whose parameters `tokens` begins with.
fn body(tokens: &[Token]) -> Option<&[Token]> {
    let mut depth = 0_usize;
    let mut start = None;
    for (at, token) in tokens
        .iter()
        .enumerate()
        .filter(|(_, token)| token.kind == Kind::Punct)
    {
        match token.text.as_str() {
            ";" if depth == 0 => return None,
            "{" if depth == 0 => {
                start = Some(at + 1);
                depth = 1;
            }
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => {
                depth = depth.saturating_sub(1);
                if depth == 0 && start.is_some() {
                    return tokens.get(start?..at);
                }
            }
            _ => {}
        }
    }
    None
}

/// As clippy counts: neither comments nor blank lines, those in strings included.
fn code_lines(tokens: &[Token]) -> usize {
    let lines: BTreeSet<usize> = tokens.iter().flat_map(token_lines).collect();
    lines.len()
}

fn token_lines(token: &Token) -> impl Iterator<Item = usize> {
    let lines = token.text.split('\n').enumerate();
    lines
        .filter(|(index, line)| *index == 0 || !line.trim().is_empty())
        .map(|(index, _)| token.line + index)
}

#[cfg(test)]
mod tests {
    use super::{LIST, Tree, functions, ratchet};
    use crate::tidy::lex;

    fn said(list: &str, path: &str, text: &str) -> Vec<String> {
        let faults = ratchet(&Tree::of(&[(LIST, list), (path, text)]));
        faults.into_iter().map(|fault| fault.text).collect()
    }

    #[test]
    fn files_may_only_shrink() {
        let code = |lines: usize| "x();\n".repeat(lines);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", code(500));
        let path = "src/a/b.rs";
        let large = code(701);
        let none: [&str; 0] = [];
        assert_eq!(said("", path, &(code(700) + &tests)), none);
        assert_eq!(
            said("", path, &(large.clone() + &tests)),
            ["`file src/a/b.rs` has 701 lines: split it"]
        );
        assert_eq!(said("", "tests/it/b.rs", &large), none);
        assert_eq!(said("# note\nfile src/a/b.rs 701\n", path, &large), none);
        assert_eq!(
            said("file src/a/b.rs 700", path, &large),
            ["`file src/a/b.rs` has 701 lines: grew from 700: split it"]
        );
        let lower =
            format!("`file src/a/b.rs` has 701 lines: shrank from 900: lower its entry in {LIST}");
        assert_eq!(said("file src/a/b.rs 900", path, &large), [lower]);
        assert_eq!(
            said("file src/a/b.rs 900", path, &code(3)),
            ["`file src/a/b.rs` is within the limit or gone: delete the entry"]
        );
        assert_eq!(
            said("file src/a/b.rs", path, ""),
            ["not `file PATH LINES` or `fn PATH NAME LINES`: correct it"]
        );
    }

    #[test]
    fn functions_may_only_shrink() {
        let function = |lines: usize| {
            format!(
                "fn f(x: [u8; 2]) -> u8 where u8: Copy {{\n// no\n\n{}}}\n",
                "x;\n".repeat(lines)
            )
        };
        let none: [&str; 0] = [];
        assert_eq!(said("", "src/a.rs", &function(80)), none);
        assert_eq!(
            said("", "src/a.rs", &function(81)),
            ["`fn src/a.rs f` has 81 lines: split it"]
        );
        assert_eq!(said("fn src/a.rs f 81", "src/a.rs", &function(81)), none);
        assert_eq!(
            said(
                "fn src/a.rs f 81",
                "src/a.rs",
                &(function(82) + &function(81))
            ),
            ["`fn src/a.rs f` has 82 lines: grew from 81: split it"]
        );
    }

    #[test]
    fn bodies_are_found() {
        let text =
            "trait T { fn a(); fn b() { \"x\n\ny\"; } } type F = fn(u8); fn c() { fn d() { 1; } }";
        let tokens = lex::tokens(text);
        assert_eq!(functions(&tokens), [("b", 1, 2), ("c", 3, 1), ("d", 3, 1)]);
    }
}

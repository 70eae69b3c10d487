//! Outside things that one place hides, and what pure modules may not reach.

use super::lex::Kind;
use super::paths::paths;
use super::tree::{File, Tree};
use super::{Fault, layers};

/// A path that only some files below `src` may name.
struct Reserved {
    name: &'static [&'static str],
    /// A folder with its final `/`, or one file.
    owner: &'static str,
    instead: &'static str,
}

const fn reserved(
    name: &'static [&'static str],
    owner: &'static str,
    instead: &'static str,
) -> Reserved {
    Reserved {
        name,
        owner,
        instead,
    }
}

const SPAWN: &str = "spawn through `task`, which names, tracks and cancels it";

/// Tests are bound too: a second place that knows is a second place to change.
#[rustfmt::skip]
const RESERVED: &[Reserved] = &[
    reserved(&["granit_parser"], "src/yaml/", "read YAML as the tree of `yaml`"),
    reserved(&["rusqlite"], "src/store/", "add a typed method to `store`"),
    reserved(&["genai_prices"], "src/price/builtin.rs", "ask `price`"),
    reserved(&["git2"], "src/git/", "add a function to `git`"),
    reserved(&["tokio", "spawn"], "src/task.rs", SPAWN),
    reserved(&["tokio", "task", "spawn"], "src/task.rs", SPAWN),
    reserved(&["tokio", "task", "spawn_blocking"], "src/task.rs", SPAWN),
    reserved(&["tokio", "task", "spawn_local"], "src/task.rs", SPAWN),
    reserved(&["tokio", "task", "JoinSet"], "src/task.rs", SPAWN),
    reserved(&["tokio", "runtime", "Handle"], "src/task.rs", SPAWN),
    reserved(&["tokio_util", "task", "TaskTracker"], "src/task.rs", SPAWN),
];

/// What would make the modules of ring 1, and those of ring 0 named in `PURE`, depend on anything
/// but their arguments, beside the calls that clippy.toml bans everywhere. Their tests are free.
const IMPURE: &[&[&str]] = &[
    &["axum"],
    &["getrandom"],
    &["hyper"],
    &["libc"],
    &["notify"],
    &["rand"],
    &["rustix"],
    &["tempfile"],
    &["tokio"],
    &["std", "env"],
    &["std", "fs"],
    &["std", "net"],
    &["std", "os"],
    &["std", "process"],
    &["std", "thread"],
    &["std", "time", "Instant"],
    &["std", "time", "SystemTime"],
];

/// Methods of paths that look at the disk.
const PATH_METHODS: &[&str] = &[
    "canonicalize",
    "exists",
    "is_dir",
    "is_file",
    "is_symlink",
    "metadata",
    "read_dir",
    "read_link",
    "symlink_metadata",
    "try_exists",
];

/// The modules of ring 0 without an edge to the outside; `clock` and `task` are such edges.
const PURE: &[&str] = &["model", "diagnostic", "yaml"];

pub(super) fn banned(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, file) in tree.rust_below("src/") {
        let pure = is_pure(path);
        for named in paths(&file.tokens) {
            let written = named.segments.join("::");
            for row in RESERVED {
                if !path.starts_with(row.owner) && named.reaches(row.name) {
                    let text = format!("`{written}` belongs to {}: {}", row.owner, row.instead);
                    faults.push(Fault::new(path, named.line, "names", text));
                    break;
                }
            }
            if pure && !file.in_test[named.at] && IMPURE.iter().any(|name| named.reaches(name)) {
                let text = format!("`{written}` in a pure module: take the value as an argument");
                faults.push(Fault::new(path, named.line, "purity", text));
            }
        }
        if pure {
            faults.extend(path_methods(path, file));
        }
        faults.extend(git_program(path, file));
    }
    faults
}

fn is_pure(path: &str) -> bool {
    let mut modules = layers::in_rings(&[1]).chain(PURE.iter().copied());
    modules.any(|module| {
        path.starts_with(&format!("src/{module}/")) || path == format!("src/{module}.rs")
    })
}

/// `.exists()` and the like in a pure module.
fn path_methods(path: &str, file: &File) -> Vec<Fault> {
    let windows = file.tokens.windows(3).zip(&file.in_test);
    let calls = windows.filter(|(w, in_test)| !**in_test && w[0].is(".") && w[2].is("("));
    calls
        .filter(|(w, _)| PATH_METHODS.contains(&w[1].text.as_str()))
        .map(|(w, _)| {
            let text = format!(
                "`.{}()` looks at the disk in a pure module: take the answer as an argument",
                w[1].text
            );
            Fault::new(path, w[1].line, "purity", text)
        })
        .collect()
}

/// `Command::new("git")` outside `git`.
fn git_program(path: &str, file: &File) -> Vec<Fault> {
    if path.starts_with("src/git/") {
        return Vec::new();
    }
    let windows = file.tokens.windows(3);
    let found = windows
        .filter(|w| w[0].is("new") && w[1].is("(") && w[2].kind == Kind::Str && is_git(&w[2].text));
    found
        .map(|w| {
            Fault::new(
                path,
                w[0].line,
                "names",
                "runs git: call a function of `git`",
            )
        })
        .collect()
}

fn is_git(program: &str) -> bool {
    program == "git" || program.ends_with("/git")
}

/// How the SQL that we write begins.
const SQL: &[&str] = &[
    "ALTER TABLE ",
    "ATTACH ",
    "BEGIN IMMEDIATE",
    "CREATE INDEX ",
    "CREATE TABLE ",
    "CREATE TRIGGER ",
    "CREATE UNIQUE ",
    "CREATE VIEW ",
    "DELETE FROM ",
    "DROP TABLE ",
    "INSERT INTO ",
    "INSERT OR ",
    "PRAGMA ",
    "REPLACE INTO ",
    "SAVEPOINT ",
    "SELECT ",
    "UPDATE ",
    "VACUUM",
    "WITH RECURSIVE ",
];

/// SQL outside of `store`.
pub(super) fn sql(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, file) in tree.rust_below("src/") {
        if path.starts_with("src/store/") {
            continue;
        }
        for token in file.tokens.iter().filter(|token| token.kind == Kind::Str) {
            let words = token.text.split_whitespace().collect::<Vec<_>>().join(" ") + " ";
            if SQL.iter().any(|start| words.starts_with(start)) {
                let text = "SQL outside of `store`: add a typed method there";
                faults.push(Fault::new(path, token.line, "names", text));
            }
        }
    }
    faults
}

/// One file of `yaml` names the parser.
pub(super) fn one_parser(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut first: Option<&str> = None;
    for (path, file) in tree.rust_below("src/yaml/") {
        let named = paths(&file.tokens);
        let Some(use_) = named.iter().find(|named| named.reaches(&["granit_parser"])) else {
            continue;
        };
        match first {
            None => first = Some(path),
            Some(owner) => {
                let text =
                    format!("names the YAML parser, and so does {owner}: keep it in one file");
                faults.push(Fault::new(path, use_.line, "names", text));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::{Fault, Tree, banned, one_parser, sql};

    fn rules(faults: &[Fault]) -> Vec<&'static str> {
        faults.iter().map(|fault| fault.rule).collect()
    }

    #[test]
    fn names_stay_with_their_owner() {
        let bad = [
            ("src/manifest/decode.rs", "use granit_parser::Parser;"),
            ("src/api/mod.rs", "fn f(c: &rusqlite::Connection) {}"),
            ("src/source/mod.rs", "use {git2::Repository};"),
            ("src/source/mod.rs", "Command::new(\"git\")"),
            (
                "src/source/mod.rs",
                "std::process::Command::new(\"/usr/bin/git\")",
            ),
            ("src/api/mod.rs", "tokio::spawn(f())"),
            ("src/api/mod.rs", "use tokio::{spawn, select};"),
            ("src/api/mod.rs", "use tokio::task;"),
            ("src/api/mod.rs", "tokio::task::spawn_blocking(f)"),
            ("src/api/mod.rs", "let set = tokio::task::JoinSet::new();"),
            (
                "src/api/mod.rs",
                "#[cfg(test)] mod tests { use rusqlite::params; }",
            ),
        ];
        for (path, text) in bad {
            assert_eq!(
                rules(&banned(&Tree::of(&[(path, text)]))),
                ["names"],
                "{text}"
            );
        }
        let good = [
            ("src/yaml/parse.rs", "use granit_parser::Parser;"),
            ("src/store/runs.rs", "use rusqlite::params;"),
            (
                "src/git/mod.rs",
                "use git2::Repository; fn f() { Command::new(\"git\"); }",
            ),
            ("src/task.rs", "tokio::spawn(f())"),
            (
                "src/api/mod.rs",
                "task::spawn(f()); let git2 = 1; std::thread::spawn(f); use tokio::sync;",
            ),
            ("tests/it/e2e.rs", "Command::new(\"git\")"),
        ];
        for (path, text) in good {
            assert_eq!(
                rules(&banned(&Tree::of(&[(path, text)]))),
                [""; 0],
                "{text}"
            );
        }
    }

    #[test]
    fn pure_modules_reach_nothing() {
        let bad = [
            "use std::fs;",
            "use std::{fmt, fs::File};",
            "std::env::current_dir()",
            "use std::time::{Duration, Instant};",
            "use std::time;",
            "let now = std::time::SystemTime::now();",
            "std::process::id()",
            "rand::random()",
            "path.exists()",
            "path\n.canonicalize()?",
            "rustix::fs::stat(p)",
            "use tokio::sync::mpsc;",
        ];
        for text in bad {
            for path in [
                "src/plan/mod.rs",
                "src/model/id.rs",
                "src/yaml/mod.rs",
                "src/redact.rs",
            ] {
                assert_eq!(
                    rules(&banned(&Tree::of(&[(path, text)]))),
                    ["purity"],
                    "{path} {text}"
                );
            }
            assert_eq!(
                rules(&banned(&Tree::of(&[("src/source/mod.rs", text)]))),
                [""; 0],
                "{text}"
            );
        }
        let good = "use std::time::Duration; use jiff::Timestamp; use std::fmt; #[cfg(test)] mod tests { use std::fs; } \
                    fn f(rand: u8, x: X) { x.tokio; rand; }";
        assert_eq!(
            rules(&banned(&Tree::of(&[("src/plan/mod.rs", good)]))),
            [""; 0]
        );
    }

    #[test]
    fn sql_stays_in_the_store() {
        for text in [
            "\"SELECT 1\"",
            "\"\n  INSERT INTO runs VALUES (?)\"",
            "r#\"PRAGMA user_version\"#",
            "\"VACUUM\"",
        ] {
            assert_eq!(
                rules(&sql(&Tree::of(&[("src/api/runs.rs", text)]))),
                ["names"],
                "{text}"
            );
            assert_eq!(
                rules(&sql(&Tree::of(&[("src/store/runs.rs", text)]))),
                [""; 0],
                "{text}"
            );
        }
        let prose = "\"Select an agent\" \"UPDATED\" // SELECT 1";
        assert_eq!(
            rules(&sql(&Tree::of(&[("src/api/runs.rs", prose)]))),
            [""; 0]
        );
    }

    #[test]
    fn one_file_names_the_parser() {
        let both = [
            ("src/yaml/a.rs", "use granit_parser::Event;"),
            ("src/yaml/b.rs", "granit_parser::x()"),
        ];
        assert_eq!(rules(&one_parser(&Tree::of(&both))), ["names"]);
        assert_eq!(rules(&one_parser(&Tree::of(&both[..1]))), [""; 0]);
    }
}

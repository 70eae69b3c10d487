//! Where files lie and how they begin.

use std::collections::BTreeSet;

use super::Fault;
use super::tree::{Tree, is_rust, module_folder};

/// Files that a reader meets first say what they are: `lib.rs`, `main.rs`, each `mod.rs`, each
/// top-level module of one file, each file of `tests/it` and each of this tool.
pub(super) fn module_docs(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, file) in tree.all().filter(|(path, _)| is_rust(path)) {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let first_met = matches!(folder, "src" | "tests/it") || folder.starts_with("xtask/src");
        if !first_met && !matches!(name, "mod.rs" | "lib.rs" | "main.rs") {
            continue;
        }
        let first = file.text.lines().next().unwrap_or_default();
        let said = first
            .strip_prefix("//!")
            .is_some_and(|words| !words.trim().is_empty());
        if !said {
            let text = "begins without `//!`: say in a sentence what it is and what not";
            faults.push(Fault::new(path, 1, "docs", text));
        }
    }
    faults
}

/// Every Rust file is reached from a root through `mod` items, and every `mod` has its file.
/// Code, or a test, that nobody compiles is worse than none.
pub(super) fn orphans(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut reached = BTreeSet::new();
    let mut open: Vec<String> = tree
        .all()
        .map(|(path, _)| path)
        .filter(|path| is_root(path))
        .map(str::to_owned)
        .collect();
    while let Some(path) = open.pop() {
        let Some(file) = tree.get(&path) else {
            continue;
        };
        let folder = module_folder(&path);
        for window in file.tokens.windows(3) {
            if !(window[0].is("mod") && window[1].is_ident() && window[2].is(";")) {
                continue;
            }
            let name = &window[1].text;
            let spellings = [
                format!("{folder}{name}.rs"),
                format!("{folder}{name}/mod.rs"),
            ];
            match spellings
                .into_iter()
                .find(|spelling| tree.get(spelling).is_some())
            {
                Some(found) => open.push(found),
                None => {
                    let text = format!("`mod {name}` has no file: add it or drop the line");
                    faults.push(Fault::new(&path, window[0].line, "orphans", text));
                }
            }
        }
        reached.insert(path);
    }
    for (path, _) in tree.all().filter(|(path, _)| is_rust(path)) {
        if !reached.contains(path) {
            let text = "no `mod` line leads here: list it in its parent or delete it";
            faults.push(Fault::new(path, 1, "orphans", text));
        }
    }
    faults
}

/// Where a crate or a program starts.
fn is_root(path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let program =
        name == "main.rs" && matches!(folder.split('/').next(), Some("src" | "tests" | "xtask"));
    program || path == "src/lib.rs"
}

/// What may lie where: the first row whose folder fits decides.
const PLACES: &[(&str, &[&str])] = &[
    (".cargo/", &["toml"]),
    (".ci/", &[""]),
    (".config/", &["toml"]),
    ("examples/", &["yaml", "md", "sh"]),
    ("policies/", &["yaml"]),
    ("schemas/", &["json"]),
    ("src/store/", &["rs", "sql"]),
    ("src/", &["rs"]),
    ("tests/data/", &["*"]),
    ("tests/", &["rs"]),
    ("xtask/Cargo.toml", &["toml"]),
    ("xtask/src/", &["rs", "txt"]),
];

/// The files of the root itself.
const TOP: &[&str] = &[
    ".gitattributes",
    ".gitignore",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "README.md",
    "clippy.toml",
    "rust-toolchain.toml",
    "rustfmt.toml",
];

pub(super) fn places(tree: &Tree) -> Vec<Fault> {
    let strange = tree
        .all()
        .map(|(path, _)| path)
        .filter(|path| !is_in_place(path));
    let text = "nothing like this lies here: move it, or add its place to tidy's table";
    strange
        .map(|path| Fault::new(path, 1, "places", text))
        .collect()
}

fn is_in_place(path: &str) -> bool {
    if TOP.contains(&path) {
        return true;
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let row = PLACES.iter().find(|(folder, _)| path.starts_with(folder));
    row.is_some_and(|(_, fit)| fit.contains(&"*") || fit.contains(&extension))
}

#[cfg(test)]
mod tests {
    use super::{Fault, Tree, module_docs, orphans, places};

    fn where_(faults: &[Fault]) -> Vec<&str> {
        faults.iter().map(|fault| fault.path.as_str()).collect()
    }

    #[test]
    fn first_met_files_say_what_they_are() {
        let tree = Tree::of(&[
            ("src/lib.rs", "//! Good."),
            ("src/clock.rs", "use x;\n//! Late."),
            ("src/plan/mod.rs", "//!\n"),
            ("src/plan/input.rs", "no need"),
            ("tests/it/e2e.rs", ""),
            ("xtask/src/tidy/x.rs", "// no"),
        ]);
        let wanted = [
            "src/clock.rs",
            "src/plan/mod.rs",
            "tests/it/e2e.rs",
            "xtask/src/tidy/x.rs",
        ];
        assert_eq!(where_(&module_docs(&tree)), wanted);
    }

    #[test]
    fn every_file_is_compiled_and_every_mod_has_its_file() {
        let tree = Tree::of(&[
            ("src/lib.rs", "pub mod a; mod b;"),
            ("src/a/mod.rs", "mod inner; // mod dead;"),
            ("src/a/inner.rs", "#[cfg(test)] mod tests;"),
            ("src/a/inner/tests.rs", ""),
            ("src/a/dead.rs", ""),
            ("tests/it/main.rs", "mod listed;"),
            ("tests/it/listed.rs", ""),
            ("tests/it/unlisted.rs", ""),
            ("tests/fake/main.rs", ""),
        ]);
        let faults = orphans(&tree);
        assert_eq!(
            where_(&faults),
            ["src/lib.rs", "src/a/dead.rs", "tests/it/unlisted.rs"]
        );
        assert_eq!(
            faults[0].text,
            "`mod b` has no file: add it or drop the line"
        );
    }

    #[test]
    fn files_lie_where_they_are_looked_for() {
        let good = [
            "Cargo.toml",
            ".gitignore",
            ".ci/run",
            ".config/nextest.toml",
            "src/plan/mod.rs",
            "src/store/migrations/0001_first.sql",
            "schemas/agent.json",
            "tests/data/plan/a.txt",
            "tests/data/validate/x/in.yaml",
            "tests/it/main.rs",
            "xtask/Cargo.toml",
            "LICENSE-MIT",
        ];
        let bad = [
            "notes.md",
            "src/plan/query.sql",
            "src/plan/notes.md",
            "schemas/agent.yaml",
            "docs/a.md",
            "tests/it/data.json",
            "xtask/build.sh",
            ".env",
            "scripts/x.sh",
            "Makefile",
        ];
        for path in good {
            assert_eq!(where_(&places(&Tree::of(&[(path, "")]))), [""; 0], "{path}");
        }
        for path in bad {
            assert_eq!(where_(&places(&Tree::of(&[(path, "")]))), [path]);
        }
    }
}

//! The files of the workspace, read once, and what every rule asks of a Rust file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context as _;

use super::lex::{self, Token};

/// Folders that hold nothing of ours.
const SKIPPED: &[&str] = &[".git", "target"];

/// The text files of the workspace by path from its root, in order.
#[derive(Debug)]
pub(super) struct Tree {
    files: BTreeMap<String, File>,
}

/// One file.
#[derive(Debug)]
pub(super) struct File {
    /// Empty when it is not UTF-8.
    pub(super) text: String,
    /// Of a Rust file; empty otherwise.
    pub(super) tokens: Vec<Token>,
    /// For each token, whether it is only compiled for tests.
    pub(super) in_test: Vec<bool>,
}

impl Tree {
    /// Reads every file below `root`.
    pub(super) fn read(root: &Path) -> anyhow::Result<Self> {
        let mut files = BTreeMap::new();
        collect(root, "", &mut files)?;
        Ok(Self::new(files))
    }

    /// A tree of snippets.
    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let owned = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        Self::new(owned.collect())
    }

    fn new(texts: BTreeMap<String, String>) -> Self {
        let mut files: BTreeMap<String, File> = BTreeMap::new();
        for (path, text) in texts {
            let tokens = if is_rust(&path) {
                lex::tokens(&text)
            } else {
                Vec::new()
            };
            let in_test = test_tokens(&tokens);
            files.insert(
                path,
                File {
                    text,
                    tokens,
                    in_test,
                },
            );
        }
        let only_tests: BTreeSet<String> = files
            .iter()
            .flat_map(|(path, file)| test_modules(path, file))
            .collect();
        for (path, file) in &mut files {
            if only_tests.contains(path) || only_tests.iter().any(|of| below(of, path)) {
                file.in_test.fill(true);
            }
        }
        Self { files }
    }

    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    pub(super) fn get(&self, path: &str) -> Option<&File> {
        self.files.get(path)
    }

    /// All files, by path.
    pub(super) fn all(&self) -> impl Iterator<Item = (&str, &File)> {
        self.files.iter().map(|(path, file)| (path.as_str(), file))
    }

    /// The Rust files below a folder, which is named with its final `/`.
    pub(super) fn rust_below(&self, folder: &str) -> impl Iterator<Item = (&str, &File)> {
        self.all()
            .filter(move |(path, _)| is_rust(path) && path.starts_with(folder))
    }
}

pub(super) fn is_rust(path: &str) -> bool {
    path.ends_with(".rs")
}

/// The folder in which the modules that `path` declares have their files, with its final `/`.
pub(super) fn module_folder(path: &str) -> String {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
    match name {
        "mod" | "lib" | "main" => format!("{folder}/"),
        _ => format!("{stem}/"),
    }
}

/// Whether `path` belongs to the module whose first file is `of`.
fn below(of: &str, path: &str) -> bool {
    path.starts_with(&module_folder(of))
}

fn collect(root: &Path, below: &str, into: &mut BTreeMap<String, String>) -> anyhow::Result<()> {
    let folder = root.join(below);
    let entries = folder
        .read_dir()
        .with_context(|| format!("listing {}", folder.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("listing {}", folder.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() {
            name.clone()
        } else {
            format!("{below}/{name}")
        };
        if entry.file_type()?.is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                collect(root, &path, into)?;
            }
            continue;
        }
        let bytes = std::fs::read(entry.path()).with_context(|| format!("reading {path}"))?;
        into.insert(path, String::from_utf8(bytes).unwrap_or_default());
    }
    Ok(())
}

/// For each token, whether it belongs to an item under `#[cfg(test)]` or `#[cfg(all(test, …))]`.
fn test_tokens(tokens: &[Token]) -> Vec<bool> {
    let mut marks = vec![false; tokens.len()];
    let mut at = 0;
    while at < tokens.len() {
        if !is_test_attribute(&tokens[at..]) {
            at += 1;
            continue;
        }
        let end = item_end(tokens, at);
        marks[at..end].fill(true);
        at = end;
    }
    marks
}

fn is_test_attribute(tokens: &[Token]) -> bool {
    let starts_with = |wanted: &[&str]| {
        wanted
            .iter()
            .enumerate()
            .all(|(i, text)| tokens.get(i).is_some_and(|t| t.is(text)))
    };
    starts_with(&["#", "[", "cfg", "(", "test", ")"])
        || starts_with(&["#", "[", "cfg", "(", "all", "(", "test"])
}

/// The index after the item whose attributes start at `start`.
fn item_end(tokens: &[Token], start: usize) -> usize {
    let mut depth = 0_usize;
    for (offset, token) in tokens[start..].iter().enumerate() {
        match token.text.as_str() {
            _ if token.kind != lex::Kind::Punct => {}
            "{" | "(" | "[" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return start + offset + 1;
                }
            }
            ";" if depth == 0 => return start + offset + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// The files of the modules that `file` declares for tests alone, by both spellings.
fn test_modules(path: &str, file: &File) -> Vec<String> {
    let folder = module_folder(path);
    let mut found = Vec::new();
    for (at, window) in file.tokens.windows(3).enumerate() {
        if file.in_test[at] && window[0].is("mod") && window[1].is_ident() && window[2].is(";") {
            found.push(format!("{folder}{}.rs", window[1].text));
            found.push(format!("{folder}{}/mod.rs", window[1].text));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Tree, module_folder};

    fn marked(tree: &Tree, path: &str) -> Vec<String> {
        let file = tree.get(path).expect("a file of this tree");
        let tokens = file.tokens.iter().zip(&file.in_test);
        tokens
            .filter(|(token, in_test)| token.is_ident() && !**in_test)
            .map(|(token, _)| token.text.clone())
            .collect()
    }

    #[test]
    fn code_for_tests_is_told_from_the_rest() {
        let tree = Tree::of(&[
            (
                "src/a.rs",
                "fn one() {} #[cfg(test)] #[rustfmt::skip] mod tests { fn no() { if x { y } } } \
                 #[cfg(test)] use no::No; #[cfg(test)] fn no(x: [u8; 2]) {} #[cfg(all(test, unix))] \
                 const NO: u8 = 1; fn two() {} #[cfg(any(test, feature = \"f\"))] fn three() {} \
                 #[cfg(test)] mod fixtures;",
            ),
            ("src/a/fixtures.rs", "fn no() {}"),
            ("src/a/fixtures/deep.rs", "fn no() {}"),
            ("src/a/other.rs", "four"),
        ]);
        assert_eq!(
            marked(&tree, "src/a.rs"),
            [
                "fn", "one", "fn", "two", "cfg", "any", "test", "feature", "fn", "three"
            ]
        );
        assert!(marked(&tree, "src/a/fixtures.rs").is_empty());
        assert!(marked(&tree, "src/a/fixtures/deep.rs").is_empty());
        assert_eq!(marked(&tree, "src/a/other.rs"), ["four"]);
    }

    #[test]
    fn modules_lie_in_the_folder_of_their_parent() {
        assert_eq!(module_folder("src/lib.rs"), "src/");
        assert_eq!(module_folder("src/a/mod.rs"), "src/a/");
        assert_eq!(module_folder("src/a/b.rs"), "src/a/b/");
    }
}

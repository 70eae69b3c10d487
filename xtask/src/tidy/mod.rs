//! `cargo xtask tidy`: what neither the compiler nor clippy can see. Each file here is one family
//! of rules and holds its tables as data; a rule takes a [`Tree`] and returns the [`Fault`]s, so
//! that its tests feed it snippets. The same check runs as a test of this crate.

mod closed;
mod layers;
mod lex;
mod names;
mod paths;
mod shape;
mod size;
mod tree;
mod words;

use std::fmt;

use anyhow::bail;

use crate::tool;
use tree::Tree;

/// One breach of one rule.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Fault {
    /// Path from the root of the workspace.
    path: String,
    /// Counted from 1.
    line: usize,
    rule: &'static str,
    /// What is wrong, and what to do.
    text: String,
}

impl Fault {
    fn new(path: &str, line: usize, rule: &'static str, text: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            rule,
            text: text.into(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}: {}",
            self.path, self.line, self.rule, self.text
        )
    }
}

const RULES: &[fn(&Tree) -> Vec<Fault>] = &[
    layers::table,
    layers::imports,
    names::banned,
    names::sql,
    names::one_parser,
    shape::module_docs,
    shape::orphans,
    shape::places,
    size::ratchet,
    closed::codes,
    closed::actions,
    closed::crash_points,
    words::banned,
];

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    if !arguments.is_empty() {
        bail!("takes no arguments");
    }
    let tree = Tree::read(tool::root())?;
    let faults = check(&tree);
    for fault in &faults {
        println!("{fault}");
    }
    match faults.len() {
        0 => {
            println!("tidy: {} files, nothing to say", tree.len());
            Ok(())
        }
        count => bail!("{count} faults"),
    }
}

/// All faults of all rules, by path and line.
fn check(tree: &Tree) -> Vec<Fault> {
    let mut faults: Vec<Fault> = RULES.iter().flat_map(|rule| rule(tree)).collect();
    faults.sort();
    faults
}

#[cfg(test)]
mod tests {
    use super::{Tree, check};
    use crate::tool;

    #[test]
    fn the_workspace_is_tidy() {
        let tree = Tree::read(tool::root()).expect("the workspace can be read");
        let faults: Vec<String> = check(&tree).iter().map(ToString::to_string).collect();
        assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    }
}

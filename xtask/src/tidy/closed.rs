//! Closed lists whose every member has a test: diagnostic codes, actions, crash points.

use std::collections::BTreeSet;

use super::Fault;
use super::lex::{Kind, Token};
use super::paths::paths;
use super::tree::Tree;

const ACTIONS: &str = "src/model/action.rs";
const CRASH_POINTS: &str = "src/model/crash.rs";
const CODES: &str = "src/diagnostic/";
const VALIDATE_CASES: &str = "tests/data/validate/";
const PLAN_SCRIPTS: &str = "tests/data/plan/";

/// Every diagnostic code, such as `H0301`, stands in the expected output of a validate case. What
/// a case reads (`.yaml`) doesn't count.
pub(super) fn codes(tree: &Tree) -> Vec<Fault> {
    let expected = words(tree, |path| {
        path.starts_with(VALIDATE_CASES) && !path.ends_with(".yaml") && !path.ends_with(".yml")
    });
    let mut faults = Vec::new();
    let mut known = BTreeSet::new();
    for (path, file) in tree.rust_below(CODES) {
        let tokens = file.tokens.iter().zip(&file.in_test);
        let literals = tokens.filter(|(token, in_test)| token.kind == Kind::Str && !**in_test);
        for (token, _) in literals.filter(|(token, _)| is_code(&token.text)) {
            if known.insert(token.text.clone()) && !expected.contains(&token.text) {
                let text = format!("{} is in no case of {VALIDATE_CASES}: add one", token.text);
                faults.push(Fault::new(path, token.line, "codes", text));
            }
        }
    }
    if known.is_empty() && tree.rust_below(CODES).next().is_some() {
        let text = "holds no code such as \"H0301\": if their form changed, tell tidy";
        faults.push(Fault::new(&format!("{CODES}mod.rs"), 1, "codes", text));
    }
    faults
}

/// A capital and four digits.
fn is_code(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_uppercase())
        && text.len() == 5
        && chars.all(|c| c.is_ascii_digit())
}

/// Every action stands in a plan script, by the name that plans print.
pub(super) fn actions(tree: &Tree) -> Vec<Fault> {
    let scripts = words(tree, |path| path.starts_with(PLAN_SCRIPTS));
    members(tree, ACTIONS, "Action", "actions", |name| {
        let missing = !scripts.contains(&camel_case(name));
        missing.then(|| {
            format!(
                "`{}` is in no script of {PLAN_SCRIPTS}: add one",
                camel_case(name)
            )
        })
    })
}

/// Every crash point is named by a test, as `CrashPoint::Name` or by the word that selects it.
pub(super) fn crash_points(tree: &Tree) -> Vec<Fault> {
    let mut named = BTreeSet::new();
    for (_, file) in tree.rust_below("tests/") {
        for path in paths(&file.tokens) {
            if let [.., owner, name] = path.segments.as_slice()
                && owner == "CrashPoint"
            {
                named.insert(camel_case(name));
            }
        }
        let literals = file.tokens.iter().filter(|token| token.kind == Kind::Str);
        named.extend(literals.flat_map(|token| split_words(&token.text)));
    }
    members(tree, CRASH_POINTS, "CrashPoint", "crash-points", |name| {
        let missing = !named.contains(&camel_case(name));
        missing.then(|| format!("no test below tests/ names `CrashPoint::{name}`: add one"))
    })
}

/// What `complain` says of each variant of an enum; that the enum is not where it should be, if
/// its file is there.
fn members(
    tree: &Tree,
    path: &str,
    name: &str,
    rule: &'static str,
    complain: impl Fn(&str) -> Option<String>,
) -> Vec<Fault> {
    let Some(file) = tree.get(path) else {
        return Vec::new();
    };
    let variants = variants(&file.tokens, name);
    if variants.is_empty() {
        let text = format!("no variant of `enum {name}` here: if it moved, tell tidy");
        return vec![Fault::new(path, 1, rule, text)];
    }
    let faults = variants.into_iter().filter_map(|(variant, line)| {
        complain(variant).map(|text| Fault::new(path, line, rule, text))
    });
    faults.collect()
}

/// Name and line of each variant of `enum NAME`; none when there is no such enum.
fn variants<'a>(tokens: &'a [Token], name: &str) -> Vec<(&'a str, usize)> {
    let start = tokens
        .windows(2)
        .position(|pair| pair[0].is("enum") && pair[1].is(name));
    let Some(start) = start else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let mut depth = 0_usize;
    let mut expected = false;
    for token in &tokens[start + 2..] {
        let variant = depth == 1 && expected && token.is_ident();
        if variant {
            found.push((token.text.as_str(), token.line));
            expected = false;
        }
        if token.kind != Kind::Punct {
            continue;
        }
        match token.text.as_str() {
            "{" | "(" | "[" => {
                depth += 1;
                expected |= depth == 1;
            }
            "}" | ")" | "]" => depth = depth.saturating_sub(1),
            "," if depth == 1 => expected = true,
            _ => {}
        }
        if depth == 0 && !found.is_empty() {
            break;
        }
    }
    found
}

/// `RunAdmitted` as `runAdmitted`.
fn camel_case(name: &str) -> String {
    let mut chars = name.chars();
    let first = chars.next().map(|c| c.to_ascii_lowercase());
    first.into_iter().chain(chars).collect()
}

/// All words of the files that `which` accepts.
fn words(tree: &Tree, which: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let files = tree.all().filter(|(path, _)| which(path));
    files
        .flat_map(|(_, file)| split_words(&file.text))
        .collect()
}

fn split_words(text: &str) -> impl Iterator<Item = String> {
    let words = text
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty());
    words.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::{Fault, Tree, actions, codes, crash_points, variants};
    use crate::tidy::lex;

    fn said(faults: &[Fault]) -> Vec<String> {
        faults
            .iter()
            .map(|fault| format!("{}:{} {}", fault.path, fault.line, fault.text))
            .collect()
    }

    #[test]
    fn variants_are_read_through_all_that_surrounds_them() {
        let text = "/// enum Action { No }\nenum Other { No }\n#[derive(Clone)] pub enum Action<T = u8> {\n\
                    /// No, No\n#[strum(serialize = \"no, No\")] One { no: No, other: [u8; 2] },\n\
                    Two(Box<No>, No), Three = 3,\n// No,\nFour }\nenum Later { No }";
        let tokens = lex::tokens(text);
        let names: Vec<&str> = variants(&tokens, "Action")
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["One", "Two", "Three", "Four"]);
        assert!(variants(&tokens, "Missing").is_empty());
    }

    #[test]
    fn a_code_without_a_case_is_a_fault() {
        let source = (
            "src/diagnostic/code.rs",
            "codes! { A \"H0101\" \"slug\" B \"H0102\" }\n#[cfg(test)] const X: &str = \"H0999\";",
        );
        let read = ("tests/data/validate/a/in.yaml", "# H0102");
        let shown = ("tests/data/validate/a/out.txt", "error[H0101]: no");
        let faults = codes(&Tree::of(&[source, read, shown]));
        assert_eq!(
            said(&faults),
            ["src/diagnostic/code.rs:1 H0102 is in no case of tests/data/validate/: add one"]
        );
        let both = ("tests/data/validate/b/out.json", "\"code\":\"H0102\"");
        assert!(codes(&Tree::of(&[source, read, shown, both])).is_empty());
        assert_eq!(
            codes(&Tree::of(&[("src/diagnostic/mod.rs", "//! None.")])).len(),
            1
        );
        assert!(codes(&Tree::of(&[])).is_empty());
    }

    #[test]
    fn an_action_without_a_script_is_a_fault() {
        let source = (
            "src/model/action.rs",
            "enum Action { StartRun(Box<X>), StopRun { run: Id } }",
        );
        let script = (
            "tests/data/plan/one.txt",
            "  1. startRun writer\n  stopRunning",
        );
        let faults = actions(&Tree::of(&[source, script]));
        assert_eq!(
            said(&faults),
            ["src/model/action.rs:1 `stopRun` is in no script of tests/data/plan/: add one"]
        );
        let other = ("tests/data/plan/two.txt", "stopRun/1");
        assert!(actions(&Tree::of(&[source, script, other])).is_empty());
        assert_eq!(
            actions(&Tree::of(&[("src/model/action.rs", "enum Act { A }")])).len(),
            1
        );
        assert!(actions(&Tree::of(&[])).is_empty());
    }

    #[test]
    fn a_crash_point_that_no_test_names_is_a_fault() {
        let source = (
            "src/model/crash.rs",
            "enum CrashPoint { One, TwoWords, Three }",
        );
        let test = (
            "tests/it/crash.rs",
            "f(CrashPoint::One); env(\"at=twoWords\"); // CrashPoint::Three",
        );
        let faults = crash_points(&Tree::of(&[source, test]));
        assert_eq!(
            said(&faults),
            ["src/model/crash.rs:1 no test below tests/ names `CrashPoint::Three`: add one"]
        );
        let other = ("tests/it/more.rs", "model::crash::CrashPoint::Three");
        assert!(crash_points(&Tree::of(&[source, test, other])).is_empty());
        assert!(crash_points(&Tree::of(&[])).is_empty());
    }
}

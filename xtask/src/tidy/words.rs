//! Words that don't belong in the repository: notes to self, debris of debugging, and names of
//! the machine or the service that somebody happened to use. Patterns are put together here from
//! pieces, so that this file doesn't hold them.

use super::Fault;
use super::tree::{File, Tree};

const RULE: &str = "words";

/// Texts of others.
const EXEMPT: &[&str] = &["Cargo.lock", "LICENSE-APACHE", "LICENSE-MIT"];

/// Macros that mark unfinished work.
const MACROS: &[&str] = &["todo", "unimplemented", "dbg"];

/// Marks of unfinished work, as whole words.
const MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

/// Folders of one machine; an absolute path begins with them.
const FOLDERS: &[&str] = &[concat!("/ro", "ot/"), concat!("/wo", "rk/")];

/// Hosts of package registries.
const HOSTS: &[&str] = &[
    concat!("crates", ".io"),
    concat!("py", "pi.org"),
    concat!("python", "hosted.org"),
    concat!("npm", "js.org"),
    concat!("npm", "js.com"),
    concat!("deb.", "debian.org"),
    concat!("proxy.", "golang.org"),
];

pub(super) fn banned(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, file) in tree.all().filter(|(path, _)| !EXEMPT.contains(path)) {
        for (index, line) in file.text.lines().enumerate() {
            let found = complaint(line);
            faults.extend(found.map(|text| Fault::new(path, index + 1, RULE, text)));
        }
        faults.extend(macros(path, file));
    }
    faults
}

fn complaint(line: &str) -> Option<String> {
    let lower = line.to_lowercase();
    if let Some(mark) = MARKS.iter().find(|mark| has_word(line, mark)) {
        return Some(format!("{mark}: finish it or file it"));
    }
    if let Some(folder) = FOLDERS.iter().find(|folder| has_absolute(line, folder)) {
        return Some(format!(
            "a path below {folder} is of one machine: make it relative or a parameter"
        ));
    }
    let host = HOSTS.iter().find(|host| lower.contains(*host))?;
    Some(format!("names {host}: packages are named by name alone"))
}

fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        !before.ends_with(is_word) && !after.starts_with(is_word)
    })
}

/// Whether a path begins with `folder`: it is not the inside of a longer path.
fn has_absolute(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        !line[..at]
            .ends_with(|c: char| is_word(c) || matches!(c, '.' | '-' | '/' | '}' | '>' | '*' | '~'))
    })
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn macros(path: &str, file: &File) -> Vec<Fault> {
    let windows = file.tokens.windows(2);
    let found =
        windows.filter(|pair| pair[1].is("!") && MACROS.iter().any(|name| pair[0].is(name)));
    found
        .map(|pair| {
            let text = format!("`{}!`: finish it, or leave it out", pair[0].text);
            Fault::new(path, pair[0].line, RULE, text)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{FOLDERS, HOSTS, MARKS, Tree, banned};

    fn count(path: &str, text: &str) -> usize {
        banned(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn each_pattern_is_found() {
        for word in MARKS {
            assert_eq!(count("src/a.rs", &format!("// {word}: later")), 1, "{word}");
            assert_eq!(count("README.md", &format!("x{word}")), 0, "{word}");
        }
        for folder in FOLDERS {
            assert_eq!(
                count("src/a.rs", &format!("let x = \"{folder}x\";")),
                1,
                "{folder}"
            );
            assert_eq!(count(".ci/run", &format!("cd {folder}x")), 1, "{folder}");
            assert_eq!(
                count("src/a.rs", &format!("\"spec{folder}x\"")),
                0,
                "{folder}"
            );
        }
        for host in HOSTS {
            assert_eq!(
                count(".ci/run", &format!("curl https://{host}/x")),
                1,
                "{host}"
            );
            assert_eq!(count("Cargo.lock", host), 0, "{host}");
        }
        for name in ["todo", "unimplemented", "dbg"] {
            assert_eq!(
                count("src/a.rs", &format!("fn f() {{ {name}!() }}")),
                1,
                "{name}"
            );
        }
        assert_eq!(count("src/a.rs", "let todo = 1; // a to-do list"), 0);
    }
}

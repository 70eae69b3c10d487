//! Golden cases of `load`: every fault, its place, its words. `tests/data/validate/<case>/` holds
//! the files; `expected.txt` (and for some `expected.json`) what is said about them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use homeostat::diagnostic::render::{self, Colour};
use homeostat::diagnostic::{BESIDE, Code, Severity};
use homeostat::manifest::{self, Loaded, ManifestFile, is_manifest_path};
use strum::IntoEnumIterator;

/// A case, and the text of its one file.
type Generated = (&'static str, fn() -> String);

/// Files too large to keep.
const GENERATED: [Generated; 4] = [
    ("yaml-file-too-large", || "# filler\n".repeat(200_000)),
    ("yaml-too-deep", || format!("x: {}\n", "[".repeat(65))),
    ("yaml-too-many-documents", || "---\n".repeat(1_001)),
    ("yaml-too-many-nodes", || {
        format!("x: [{}]\n---\nkind: Agnet\n", "1, ".repeat(50_000))
    }),
];

fn cases() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/validate");
    let mut cases: Vec<PathBuf> = std::fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    cases.sort();
    cases
}

/// Manifest files under `root`, with paths relative to it.
fn files_under(root: &Path) -> Vec<ManifestFile> {
    let mut files = Vec::new();
    let mut pending = vec![root.to_path_buf()];
    while let Some(directory) = pending.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path
                .strip_prefix(root)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            if path.is_dir() {
                pending.push(path);
            } else if is_manifest_path(&name) {
                let bytes = std::fs::read(&path).unwrap();
                files.push(ManifestFile { path: name, bytes });
            }
        }
    }
    files
}

fn input_of(case: &Path) -> Vec<ManifestFile> {
    let name = case.file_name().unwrap().to_str().unwrap();
    let mut files = files_under(case);
    if let Some((_, text)) = GENERATED.iter().find(|(case, _)| *case == name) {
        files.push(ManifestFile {
            path: "generated.yaml".to_owned(),
            bytes: text().into_bytes(),
        });
    }
    files
}

fn text_of(loaded: &Loaded, files: &[ManifestFile]) -> String {
    let sources: BTreeMap<&str, &[u8]> = files
        .iter()
        .map(|file| (file.path.as_str(), file.bytes.as_slice()))
        .collect();
    render::text(&loaded.diagnostics, &sources, Colour::Never)
}

#[test]
fn every_case_says_what_is_expected() {
    let assert = snapbox::Assert::new().action_env(snapbox::assert::DEFAULT_ACTION_ENV);
    for case in cases() {
        let files = input_of(&case);
        let loaded = manifest::load(&files);
        let expected = case.join("expected.txt");
        let data = snapbox::Data::read_from(&expected, Some(snapbox::data::DataFormat::Text));
        assert.eq(text_of(&loaded, &files), data.raw());
        let expected = case.join("expected.json");
        if expected.exists() {
            let json = render::json(&loaded.diagnostics, loaded.checked);
            let data = snapbox::Data::read_from(&expected, Some(snapbox::data::DataFormat::Text));
            assert.eq(json, data.raw());
        }
    }
}

#[test]
fn the_order_of_files_changes_nothing() {
    for case in cases() {
        let mut files = input_of(&case);
        let before = manifest::load(&files);
        files.reverse();
        let after = manifest::load(&files);
        assert_eq!(before.diagnostics, after.diagnostics, "{}", case.display());
        assert_eq!(before.documents, after.documents, "{}", case.display());
    }
}

#[test]
fn every_code_has_a_case() {
    let texts: String = cases()
        .iter()
        .map(|case| std::fs::read_to_string(case.join("expected.txt")).unwrap())
        .collect();
    for code in Code::iter() {
        let level = match code.severity() {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let title = format!("{level}[{} {}]", code.id(), code.slug());
        assert!(texts.contains(&title), "no case shows {title}");
    }
}

/// The bytes that an example of an explanation stands for.
fn written_out(code: Code, text: &str) -> Vec<u8> {
    let long = match code {
        Code::FileTooLarge => "#".repeat(1 << 20),
        Code::TooDeep => format!("{}{}", "[".repeat(61), "]".repeat(61)),
        Code::TooManyNodes => "1, ".repeat(50_000),
        Code::TooManyDocuments => "\n---".repeat(1_001),
        _ => "…".to_owned(),
    };
    let text = text.replace('…', &long).replace("<NUL>", "\0");
    let mut bytes = Vec::new();
    for (index, part) in text.split("\\xe9").enumerate() {
        if index > 0 {
            bytes.push(0xe9);
        }
        bytes.extend_from_slice(part.as_bytes());
    }
    bytes
}

#[test]
fn every_explanation_shows_its_fault_alone_and_how_to_mend_it() {
    let codes_of = |code: Code, text: &str| {
        let file = |path: &str, bytes: Vec<u8>| ManifestFile {
            path: path.to_owned(),
            bytes,
        };
        let beside = file("beside.yaml", BESIDE.as_bytes().to_vec());
        let loaded = manifest::load(&[beside, file("example.yaml", written_out(code, text))]);
        let codes = loaded.diagnostics.iter().map(|it| it.code);
        codes.collect::<std::collections::BTreeSet<Code>>()
    };
    for code in Code::iter() {
        let page = code.page();
        let wrong: Vec<Code> = codes_of(code, page.wrong).into_iter().collect();
        assert_eq!(wrong, [code], "{}: wrong", code.id());
        let right: Vec<Code> = codes_of(code, page.right).into_iter().collect();
        assert_eq!(right, [], "{}: right", code.id());
    }
}

#[test]
fn every_example_is_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut seen = 0;
    for entry in std::fs::read_dir(root).unwrap() {
        let example = entry.unwrap().path();
        let files = files_under(&example);
        let loaded = manifest::load(&files);
        assert_eq!(text_of(&loaded, &files), "", "{}", example.display());
        assert!(!loaded.documents.is_empty(), "{}", example.display());
        seen += 1;
    }
    assert!(seen >= 2);
}

#[test]
fn stored_documents_are_the_same_catalog() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/team");
    let loaded = manifest::load(&files_under(&root));
    assert_eq!(
        manifest::catalog_of(&loaded.documents).unwrap(),
        loaded.catalog
    );
}

//! Golden cases of `load`: every fault, its place, its words. `tests/data/validate/<case>/` holds
//! the files; `expected.txt` (and for some `expected.json`) what is said about them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use homeostat::diagnostic::render::{self, Colour, Report};
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

/// What a case may keep beside the text, and how it is made.
type Rendered = (&'static str, fn(&Report<'_>) -> String);

const FORMATS: [Rendered; 5] = [
    ("expected.json", render::json),
    ("expected.sarif", |report| {
        let version = format!("\"{}\"", env!("CARGO_PKG_VERSION"));
        render::sarif(report).replace(&version, "\"VERSION\"")
    }),
    ("expected.github", render::github),
    ("expected.summary.md", |report| {
        render::github_rest(report).unwrap_or_default()
    }),
    ("expected.junit.xml", render::junit),
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
        for (name, render) in FORMATS {
            let expected = case.join(name);
            if expected.exists() {
                let format = Some(snapbox::data::DataFormat::Text);
                let data = snapbox::Data::read_from(&expected, format);
                assert.eq(render(&loaded.report()), data.raw());
            }
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

/// What SARIF 2.1.0 allows in the objects that we write, by hand from its schema: the name of
/// each, what it must have, and what else it may.
const SARIF: [(&str, &[&str], &[&str]); 11] = [
    ("log", &["version", "runs"], &["$schema"]),
    ("run", &["tool"], &["columnKind", "results"]),
    ("tool", &["driver"], &[]),
    ("driver", &["name"], &["semanticVersion", "rules"]),
    (
        "rule",
        &["id"],
        &[
            "name",
            "shortDescription",
            "fullDescription",
            "help",
            "defaultConfiguration",
        ],
    ),
    (
        "result",
        &["message"],
        &[
            "ruleId",
            "ruleIndex",
            "level",
            "locations",
            "relatedLocations",
            "partialFingerprints",
            "suppressions",
        ],
    ),
    (
        "location",
        &[],
        &["physicalLocation", "logicalLocations", "message"],
    ),
    ("physicalLocation", &["artifactLocation", "region"], &[]),
    ("artifactLocation", &["uri"], &[]),
    (
        "region",
        &["startLine", "startColumn", "endLine", "endColumn"],
        &["byteOffset", "byteLength"],
    ),
    ("suppression", &["kind"], &["justification"]),
];

/// Asserts that `value` is one of SARIF's objects of that name; the value.
fn sarif<'v>(name: &str, value: &'v serde_json::Value) -> &'v serde_json::Value {
    let (_, required, optional) = SARIF.iter().find(|row| row.0 == name).unwrap();
    let object = value.as_object().unwrap();
    for key in *required {
        assert!(object.contains_key(*key), "{name} without {key}");
    }
    for key in object.keys() {
        let known = required.contains(&key.as_str()) || optional.contains(&key.as_str());
        assert!(known, "{name} has no {key}");
    }
    value
}

fn sarif_place(location: &serde_json::Value) {
    let physical = sarif("location", location)["physicalLocation"].clone();
    let region = sarif("physicalLocation", &physical)["region"].clone();
    let uri = sarif("artifactLocation", &physical["artifactLocation"])["uri"].clone();
    let is_plain = |c: char| c.is_ascii_graphic() && !"<>\"{}|\\^`:#?[]".contains(c);
    assert!(uri.as_str().unwrap().chars().all(is_plain), "{uri}");
    let number = |key: &str| sarif("region", &region)[key].as_u64().unwrap();
    assert!(number("startLine") >= 1 && number("startColumn") >= 1);
    let start = (number("startLine"), number("startColumn"));
    assert!(
        start <= (number("endLine"), number("endColumn")),
        "{region}"
    );
}

#[test]
fn every_sarif_log_has_the_form_of_sarif() {
    for case in cases() {
        let loaded = manifest::load(&input_of(&case));
        let text = render::sarif(&loaded.report());
        let log: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(sarif("log", &log)["version"], "2.1.0");
        let run = sarif("run", &log["runs"][0]);
        assert_eq!(log["runs"].as_array().unwrap().len(), 1);
        let driver = sarif("driver", &sarif("tool", &run["tool"])["driver"]);
        let rules = driver["rules"].as_array().unwrap();
        for rule in rules {
            assert!(sarif("rule", rule)["help"]["text"].is_string());
        }
        let results = run["results"].as_array().unwrap();
        let found = loaded.diagnostics.len() + loaded.allowed.len();
        assert_eq!(results.len(), found, "{}", case.display());
        let mut fingerprints = std::collections::BTreeSet::new();
        for result in results {
            let index = sarif("result", result)["ruleIndex"].as_u64().unwrap();
            let rule = &rules[usize::try_from(index).unwrap()];
            assert_eq!(result["ruleId"], rule["id"]);
            assert!(["error", "warning"].contains(&result["level"].as_str().unwrap()));
            let places = result["locations"].as_array().unwrap().iter();
            let related = result["relatedLocations"].as_array().unwrap().iter();
            places.chain(related).for_each(sarif_place);
            for suppression in result["suppressions"].as_array().unwrap() {
                assert_eq!(sarif("suppression", suppression)["kind"], "inSource");
            }
            let fingerprint = &result["partialFingerprints"]["homeostat/v1"];
            assert!(fingerprints.insert(fingerprint.as_str().unwrap().to_owned()));
        }
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

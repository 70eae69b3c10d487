use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::limits::{DEPTH_MAX, DOCUMENTS_MAX, NODES_MAX};
use super::{emit, parse};
use crate::diagnostic::Code;

/// The documents of a file as JSON, and the codes of its findings with their places.
fn read(text: &str) -> (Vec<Json>, Vec<(Code, u32, u32)>) {
    let parsed = parse("a.yaml", text.as_bytes());
    let documents = parsed.documents.iter().map(|it| it.root().to_json());
    let findings = parsed.diagnostics.iter().map(|it| {
        let start = it.span.range.start;
        (it.code, start.line, start.column)
    });
    (documents.collect(), findings.collect())
}

#[test]
fn documents_are_read_with_their_scalars_aliases_and_merges() {
    for (text, documents) in [
        (
            "a: 1\n---\nb: no\n",
            vec![json!({"a": 1}), json!({"b": "no"})],
        ),
        ("", vec![]),
        ("---\n# nothing\n---\n...\n", vec![]),
        (
            "a: \"3\"\nb: 3\nc: '~'\nd: ~\n",
            vec![json!({"a": "3", "b": 3, "c": "~", "d": null})],
        ),
        (
            "a: &x [1, 2]\nb: *x\n",
            vec![json!({"a": [1, 2], "b": [1, 2]})],
        ),
        (
            "&k key: 1\nother: *k\n",
            vec![json!({"key": 1, "other": "key"})],
        ),
        (
            "&k key: 1\nb: {*k : 2}\n",
            vec![json!({"key": 1, "b": {"key": 2}})],
        ),
        (
            "base: &b {x: 1, y: 2}\nmore: &m {y: 3, z: 4}\nhere:\n  <<: [*b, *m]\n  x: 0\n",
            vec![json!({
                "base": {"x": 1, "y": 2}, "more": {"y": 3, "z": 4},
                "here": {"x": 0, "y": 2, "z": 4},
            })],
        ),
        ("'<<': text\n", vec![json!({"<<": "text"})]),
        (
            "a: !!str 5\nb: !!int 5\nc: ! 5\n",
            vec![json!({"a": "5", "b": 5, "c": "5"})],
        ),
        ("\u{feff}a: 1\n", vec![json!({"a": 1})]),
        (
            "a: 1\r\nb: |\r\n  x\r\n  y\r\n",
            vec![json!({"a": 1, "b": "x\ny\n"})],
        ),
        ("{a: 1, b: [x]}", vec![json!({"a": 1, "b": ["x"]})]),
        ("text", vec![json!("text")]),
    ] {
        assert_eq!(read(text), (documents, vec![]), "{text:?}");
    }
}

#[test]
fn faults_are_found_at_their_place() {
    for (text, findings) in [
        ("a: 1\nb: 2\na: 3\n", vec![(Code::DuplicateKey, 3, 1)]),
        ("ä: 1\nb: {ö: 1, ö: 2}\n", vec![(Code::DuplicateKey, 2, 11)]),
        ("1: x\n", vec![(Code::KeyNotText, 1, 1)]),
        ("? [a]\n: x\nb: 1\n", vec![(Code::KeyNotText, 1, 3)]),
        ("a: *b\n", vec![(Code::BadAlias, 1, 4)]),
        ("a: &a {b: *a}\n", vec![(Code::BadAlias, 1, 11)]),
        ("a: &a 1\n---\nb: *a\n", vec![(Code::BadAlias, 3, 4)]),
        ("a:\n  <<: [{x: 1}, 5]\n", vec![(Code::BadMerge, 2, 3)]),
        ("a: !x 1\n", vec![(Code::UnknownTag, 1, 7)]),
        ("a: !!map [1]\n", vec![(Code::UnknownTag, 1, 10)]),
        ("a:\n\tb: 2\n", vec![(Code::Syntax, 2, 1)]),
        ("a: \"x\n", vec![(Code::Syntax, 1, 4)]),
        (
            "a: [1\n---\nb: 2\n---\nc: {\n",
            vec![(Code::Syntax, 1, 4), (Code::Syntax, 5, 4)],
        ),
        ("\u{feff}a: \u{7}\n", vec![(Code::ControlCharacter, 1, 4)]),
    ] {
        assert_eq!(read(text).1, findings, "{text:?}");
    }
}

#[test]
fn a_broken_document_keeps_what_came_before_and_the_next_ones_are_whole() {
    let parsed = parse(
        "a.yaml",
        b"kind: A\nx: [\n---\nkind: B\n---\nkind: C\ny: \"\n",
    );
    let shown: Vec<_> = parsed
        .documents
        .iter()
        .map(|it| (it.index, it.complete, it.root().to_json()["kind"].clone()))
        .collect();
    let expected = [
        (0, false, json!("A")),
        (1, true, json!("B")),
        (2, false, json!("C")),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn every_byte_range_is_the_text_of_its_place() {
    let text = "\u{feff}kéy: välue\nlist: [one, two]\nblock:\n  - {a: 1}\n";
    let parsed = parse("a.yaml", text.as_bytes());
    let slice = |range: crate::diagnostic::Range| {
        &text[range.start.offset as usize..range.end.offset as usize]
    };
    let root = parsed.documents[0].root();
    let shown: Vec<_> = root
        .entries()
        .map(|(_, key, value)| (slice(key), slice(value.range())))
        .collect();
    let expected = [("kéy", "välue"), ("list", "[one, two]"), ("block", "-")];
    assert_eq!(shown[..2], expected[..2]);
    assert_eq!(shown[2].0, expected[2].0);
    let block = root.get("block").map(|(_, value)| value.range().start);
    assert_eq!(block.map(|it| (it.line, it.column)), Some((4, 3)));
}

#[test]
fn hostile_input_is_a_finding() {
    let bomb: String = std::iter::once("a0: &a0 [x, x]\n".to_owned())
        .chain((1..60).map(|at| format!("a{at}: &a{at} [*a{}, *a{}]\n", at - 1, at - 1)))
        .collect();
    let merge_bomb: String = std::iter::once("a0: &a0 {x: [1, 1, 1, 1]}\n".to_owned())
        .chain(
            (1..60).map(|at| format!("a{at}: &a{at}\n  <<: *a{p}\n  k{at}: *a{p}\n", p = at - 1)),
        )
        .collect();
    for (what, text, code) in [
        ("dashes", "- ".repeat(100_000), Code::TooDeep),
        ("brackets", "[".repeat(100_000), Code::TooDeep),
        ("braces", "{a: ".repeat(100_000), Code::TooDeep),
        ("questions", "? ".repeat(100_000), Code::TooDeep),
        ("mixed", "- [".repeat(1_000), Code::Syntax),
        ("alias bomb", bomb, Code::TooManyAliases),
        ("merge bomb", merge_bomb, Code::TooManyAliases),
        (
            "items",
            format!("[{}]", "1,".repeat(NODES_MAX)),
            Code::TooManyNodes,
        ),
        ("keys", "a: 1\n".repeat(20_000), Code::DuplicateKey),
        ("anchors", "&a ".repeat(100_000), Code::Syntax),
        ("tags", "!a ".repeat(100_000), Code::UnknownTag),
        ("quotes", "\"".repeat(99_999), Code::Syntax),
        (
            "long key",
            format!("{}: 1", "k".repeat(200_000)),
            Code::Syntax,
        ),
        (
            "documents",
            "---\n".repeat(DOCUMENTS_MAX as usize + 1),
            Code::TooManyDocuments,
        ),
        ("directives", "%YAML 1.2\n".repeat(50_000), Code::Syntax),
    ] {
        let findings = read(&text).1;
        assert_eq!(findings.first().map(|it| it.0), Some(code), "{what}");
    }
}

#[test]
fn aliases_do_not_nest_past_the_depth_limit() {
    let deep = DEPTH_MAX - 2;
    let text = format!(
        "a: &a {}{}\nb: [[[*a]]]\n",
        "[".repeat(deep),
        "]".repeat(deep)
    );
    assert_eq!(read(&text).1, vec![(Code::TooDeep, 2, 7)]);
}

fn any_json() -> impl Strategy<Value = Json> {
    let text = prop_oneof![
        "[ -~]{0,12}",
        "\\PC{0,8}",
        "[a-c \n:#-]{0,12}",
        prop::sample::select(vec![
            "no", "null", "~", "1e3", "0x1f", "- a", "a: b", "", " ", "\n", "|", "<<"
        ])
        .prop_map(str::to_owned),
        any::<String>(),
        "k{1000,1100}",
    ];
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        any::<u64>().prop_map(Json::from),
        any::<f64>().prop_map(Json::from),
        text.clone().prop_map(Json::from),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Json::from),
            prop::collection::vec((text.clone(), inner), 0..6)
                .prop_map(|entries| entries.into_iter().collect::<Json>()),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(value in any_json()) {
        let text = emit(&value);
        let (documents, findings) = read(&text);
        prop_assert_eq!(findings, vec![], "{}", text);
        match documents.as_slice() {
            [] => prop_assert!(value.is_null(), "{}", text),
            [read] => prop_assert_eq!(read, &value, "{}", text),
            _ => prop_assert!(false, "several documents: {}", text),
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        parse("a.yaml", &bytes);
    }

    #[test]
    fn any_punctuation_is_read_without_panic(text in "[-\\[\\]{}:,?&*!|>'\"%@`# \n\tab<~0.]{0,80}") {
        let parsed = parse("a.yaml", text.as_bytes());
        for document in &parsed.documents {
            document.root().to_json();
        }
        for finding in &parsed.diagnostics {
            let range = finding.span.range;
            prop_assert!(range.end.offset as usize <= text.len());
            prop_assert!(range.start <= range.end);
        }
    }
}

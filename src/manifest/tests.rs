use proptest::prelude::*;
use proptest::string::string_regex;
use serde_json::{Map, Value as Json, json};

use super::shape::{Additional, Shape, Types};
use super::*;
use crate::diagnostic::Code;
use crate::model::kind::API_VERSION;

fn file(path: &str, text: &str) -> ManifestFile {
    ManifestFile {
        path: path.to_owned(),
        bytes: text.as_bytes().to_vec(),
    }
}

#[test]
fn manifests_are_yaml_files_that_are_not_hidden() {
    for (path, is_manifest) in [
        ("a.yaml", true),
        ("teams/a.yml", true),
        ("a.yaml.bak", false),
        ("README.md", false),
        (".github/workflows/ci.yml", false),
        ("teams/.draft.yaml", false),
        ("..data/a.yaml", false),
        (".yaml", false),
    ] {
        assert_eq!(is_manifest_path(path), is_manifest, "{path}");
    }
}

#[test]
fn the_canonical_form_has_defaults_and_a_hash_of_the_spec_alone() {
    let text = |name: &str, spec: &str| {
        format!(
            "apiVersion: {API_VERSION}\nkind: Workspace\nmetadata: {{name: {name}}}\nspec: {spec}\n"
        )
    };
    let one = |text: String| load(&[file("a.yaml", &text)]).documents.remove(0);
    let (plain, named, spelled) = (
        one(text("a", "{}")),
        one(text("b", "{}")),
        one(text("a", "{repos: [], owner: }")),
    );
    let expected = r#"{"apiVersion":"homeostat/v1alpha1","kind":"Workspace","metadata":{"name":"a"},"spec":{"repos":[]}}"#;
    assert_eq!(plain.json, expected);
    assert_eq!(plain.spec_hash, named.spec_hash);
    assert_eq!(plain, spelled);
    assert_ne!(plain.spec_hash, one(text("a", "{owner: x}")).spec_hash);
    assert_eq!(plain.spec_hash.len(), 64);
}

#[test]
fn an_object_with_a_fault_still_exists_for_references() {
    let loaded = load(&[file(
        "a.yaml",
        "apiVersion: homeostat/v1alpha1\nkind: Workspace\nmetadata: {name: w}\nspec: {nope: 1}\n---\n\
         apiVersion: homeostat/v1alpha1\nkind: Repo\nmetadata: {name: r, workspace: w}\nspec: {source: x}\n---\n\
         apiVersion: homeostat/v1alpha1\nkind: Workspace\nmetadata: {name: v}\nspec: [\n---\n\
         apiVersion: homeostat/v1alpha1\nkind: Repo\nmetadata: {name: r, workspace: v}\nspec: {source: x}\n",
    )]);
    let codes: Vec<Code> = loaded.diagnostics.iter().map(|it| it.code).collect();
    assert_eq!(codes, [Code::UnknownField, Code::Syntax]);
    assert_eq!(loaded.documents.len(), 2);
    assert!(!loaded.is_valid());
}

/// Values that a shape allows.
fn allowed(shape: &Shape) -> BoxedStrategy<Json> {
    let mut choices: Vec<BoxedStrategy<Json>> = Vec::new();
    if shape.types.contains(Types::NULL) {
        choices.push(Just(Json::Null).boxed());
    }
    if shape.types.contains(Types::BOOLEAN) {
        choices.push(any::<bool>().prop_map(Json::from).boxed());
    }
    if shape.types.contains(Types::INTEGER) {
        let bound = |limit: Option<i128>, default: i64| {
            limit.map_or(default, |it| i64::try_from(it).unwrap())
        };
        let (min, max) = (bound(shape.minimum, 0), bound(shape.maximum, 9));
        choices.push((min..=max).prop_map(Json::from).boxed());
    }
    if shape.types.contains(Types::STRING) {
        choices.push(allowed_text(shape));
    }
    if let (true, Some(items)) = (shape.types.contains(Types::ARRAY), &shape.items) {
        let items = prop::collection::vec(allowed(items), 0..4);
        choices.push(items.prop_map(Json::from).boxed());
    }
    if shape.types.contains(Types::OBJECT) {
        choices.push(allowed_mapping(shape));
    }
    prop::strategy::Union::new(choices).boxed()
}

fn allowed_text(shape: &Shape) -> BoxedStrategy<Json> {
    if !shape.choices.is_empty() {
        return prop::sample::select(shape.choices.clone())
            .prop_map(Json::from)
            .boxed();
    }
    let forbidden = shape.forbidden.clone();
    let text = match &shape.pattern {
        Some(pattern) => {
            let pattern = pattern.as_str().trim_start_matches('^');
            string_regex(pattern.trim_end_matches('$')).unwrap().boxed()
        }
        None => {
            let min = shape.min_length.unwrap_or(0);
            let max = shape.max_length.unwrap_or(20).min(20).max(min);
            string_regex(&format!("[ -~]{{{min},{max}}}"))
                .unwrap()
                .boxed()
        }
    };
    text.prop_filter("a forbidden form", move |text| {
        !forbidden.as_ref().is_some_and(|it| it.is_match(text))
    })
    .prop_map(Json::from)
    .boxed()
}

fn allowed_mapping(shape: &Shape) -> BoxedStrategy<Json> {
    let mut fields: BoxedStrategy<Map<String, Json>> = Just(Map::new()).boxed();
    for (name, property) in &shape.properties {
        let name = name.clone();
        let is_required = shape.required.contains(&name);
        let value = if is_required {
            allowed(property).prop_map(Some).boxed()
        } else {
            prop::option::of(allowed(property)).boxed()
        };
        fields = (fields, value)
            .prop_map(move |(mut fields, value)| {
                fields.extend(value.map(|value| (name.clone(), value)));
                fields
            })
            .boxed();
    }
    if let Additional::Shape(inner) = &shape.additional {
        let others = prop::collection::vec(("[A-Z_]{1,6}", allowed(inner)), 0..3);
        fields = (fields, others)
            .prop_map(|(mut fields, others)| {
                fields.extend(others);
                fields
            })
            .boxed();
    }
    fields.prop_map(Json::from).boxed()
}

/// One change to a value somewhere inside.
#[derive(Clone, Debug)]
enum Mutation {
    Remove,
    Replace(Json),
    Insert(String, Json),
}

fn any_mutation() -> impl Strategy<Value = (Vec<prop::sample::Index>, Mutation)> {
    let value = prop::sample::select(vec![
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(u64::MAX),
        json!(""),
        json!("5m"),
        json!("x"),
        json!("$1"),
        json!("A b"),
        json!([]),
        json!(["x"]),
        json!([1]),
        json!({}),
        json!({"kind": "fleet"}),
        json!({"name": "x"}),
    ]);
    let key = prop::sample::select(vec!["name", "zone", "extra", "uid", "workspace", "env"]);
    let mutation = prop_oneof![
        Just(Mutation::Remove),
        value.clone().prop_map(Mutation::Replace),
        (key, value).prop_map(|(key, value)| Mutation::Insert(key.to_owned(), value)),
    ];
    (
        prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        mutation,
    )
}

fn mutate(value: &mut Json, path: &[prop::sample::Index], mutation: &Mutation) {
    let Some((step, rest)) = path.split_first() else {
        match (mutation, value) {
            (Mutation::Replace(new), value) => *value = new.clone(),
            (Mutation::Insert(key, new), Json::Object(map)) => {
                map.insert(key.clone(), new.clone());
            }
            (Mutation::Remove, Json::Object(map)) => map.clear(),
            (Mutation::Remove, Json::Array(items)) => items.clear(),
            (Mutation::Remove | Mutation::Insert(..), _) => {}
        }
        return;
    };
    match value {
        Json::Object(map) if !map.is_empty() => {
            let key = map.keys().nth(step.index(map.len())).unwrap().clone();
            if rest.is_empty() && matches!(mutation, Mutation::Remove) {
                map.remove(&key);
            } else {
                mutate(&mut map[&key], rest, mutation);
            }
        }
        Json::Array(items) if !items.is_empty() => {
            let at = step.index(items.len());
            mutate(&mut items[at], rest, mutation);
        }
        _ => mutate(value, &[], mutation),
    }
}

fn any_kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(Kind::iter().collect::<Vec<_>>())
}

fn any_document() -> impl Strategy<Value = (Kind, Json)> {
    any_kind().prop_flat_map(|kind| allowed(shape_of(kind)).prop_map(move |json| (kind, json)))
}

/// Faults of the shape, and whether the decoder takes the document.
fn judge(kind: Kind, text: &str) -> (Vec<Fault>, Result<Option<Document>, String>) {
    let parsed = yaml::parse("a.yaml", text.as_bytes());
    assert_eq!(parsed.diagnostics, [], "{text}");
    let root = parsed.documents[0].root();
    let faults = walk::check(shape_of(kind), root);
    let reference = ObjectRef {
        kind,
        workspace: None,
        name: "x".parse().unwrap(),
    };
    let origin = Origin {
        path: "a.yaml".to_owned(),
        line: 1,
    };
    let decoded = decode::decode(&reference, root, origin, &mut Catalog::default());
    (faults, decoded.map_err(|error| error.to_string()))
}

/// Faults that only the schema knows: limits that the types do not carry, and the envelope.
fn is_schema_only(fault: &Fault) -> bool {
    let is_envelope = fault.path.first() != Some(&"spec".into());
    // Serde's derive reads a struct from a list of its fields in order, too.
    let is_struct_by_position = fault.message.ends_with("a mapping, not a list");
    is_envelope
        || is_struct_by_position
        || matches!(
            fault.code,
            Code::OutOfRange | Code::BadLength | Code::BadFormat | Code::AmbiguousText
        )
}

proptest! {
    #[test]
    fn what_the_schema_allows_is_decoded_and_round_trips((kind, document) in any_document()) {
        let (faults, decoded) = judge(kind, &yaml::emit(&document));
        prop_assert_eq!(faults, vec![]);
        let first = decoded.map_err(TestCaseError::fail)?.unwrap();
        let canonical: Json = serde_json::from_str(&first.json).unwrap();
        let (faults, decoded) = judge(kind, &yaml::emit(&canonical));
        prop_assert_eq!(faults, vec![]);
        prop_assert_eq!(decoded.map_err(TestCaseError::fail)?.unwrap(), first);
    }

    #[test]
    fn schema_and_decoder_agree_on_what_is_wrong(
        (kind, mut document) in any_document(),
        mutations in prop::collection::vec(any_mutation(), 1..3),
    ) {
        for (path, mutation) in &mutations {
            mutate(&mut document["spec"], path, mutation);
        }
        let text = yaml::emit(&document);
        let (faults, decoded) = judge(kind, &text);
        if !faults.iter().any(Fault::is_error) {
            prop_assert!(decoded.is_ok(), "{:?}\n{}", decoded, text);
        }
        if decoded.is_ok() {
            let unknown: Vec<_> = faults.iter().filter(|it| !is_schema_only(it)).collect();
            prop_assert!(unknown.is_empty(), "{:?}\n{}", unknown, text);
        }
    }

    #[test]
    fn damaged_files_are_loaded_without_panic(
        at in any::<prop::sample::Index>(),
        length in 0_usize..40,
        patch in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut bytes = include_bytes!("../../examples/minimal/fleet.yaml").to_vec();
        let start = at.index(bytes.len());
        let end = (start + length).min(bytes.len());
        bytes.splice(start..end, patch);
        let files = [ManifestFile { path: "a.yaml".to_owned(), bytes }];
        let loaded = load(&files);
        let sources = [("a.yaml", files[0].bytes.as_slice())].into_iter().collect();
        let colour = diagnostic::render::Colour::Always;
        diagnostic::render::text(&loaded.diagnostics, &sources, colour);
    }
}

//! JSON Schemas of the kinds, from the structs that decode them.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};
use strum::IntoEnumIterator;

use crate::model::kind::{API_VERSION, Kind, Placement};
use crate::model::units::Name;

/// The dialect of every schema.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// File name and text of each schema: one `<kind>.schema.json` for each kind, and
/// `homeostat.schema.json`, which tells the kinds apart and is what an editor uses for a file with
/// several.
pub fn files() -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = Kind::iter()
        .map(|kind| {
            let name = format!("{}.schema.json", kind.to_string().to_ascii_lowercase());
            (name, pretty(&of_kind(kind)))
        })
        .collect();
    files.push(("homeostat.schema.json".to_owned(), pretty(&bundle())));
    files
}

fn pretty(schema: &Value) -> String {
    let mut text = serde_json::to_string_pretty(schema).expect("JSON is printable");
    text.push('\n');
    text
}

/// The schema of one kind's whole document.
pub fn of_kind(kind: Kind) -> Value {
    let mut generator = generator();
    let mut schema = document(kind, &mut generator);
    let members = schema
        .as_object_mut()
        .expect("a document schema is an object");
    members.shift_insert(0, "$schema".to_owned(), DIALECT.into());
    members.insert("$defs".to_owned(), definitions(&mut generator));
    schema
}

/// One schema for all kinds. The kind decides which part applies, so that a fault is reported by
/// that part alone.
fn bundle() -> Value {
    let mut generator = generator();
    let documents: Vec<(Kind, Value)> = Kind::iter()
        .map(|kind| (kind, document(kind, &mut generator)))
        .collect();
    let names: Vec<String> = Kind::iter().map(|kind| kind.to_string()).collect();
    let choices: Vec<Value> = documents
        .into_iter()
        .map(|(kind, schema)| {
            json!({
                "if": { "properties": { "kind": { "const": kind.to_string() } }, "required": ["kind"] },
                "then": schema,
            })
        })
        .collect();
    json!({
        "$schema": DIALECT,
        "title": "homeostat",
        "description": "One object of a homeostat configuration.",
        "type": "object",
        "properties": {
            "apiVersion": { "const": API_VERSION },
            "kind": { "enum": names },
        },
        "required": ["apiVersion", "kind"],
        "allOf": choices,
        "$defs": definitions(&mut generator),
    })
}

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().into_generator()
}

fn definitions(generator: &mut SchemaGenerator) -> Value {
    let mut definitions: Vec<(String, Value)> =
        generator.take_definitions(true).into_iter().collect();
    definitions.sort_by(|a, b| a.0.cmp(&b.0));
    Value::Object(definitions.into_iter().collect())
}

fn document(kind: Kind, generator: &mut SchemaGenerator) -> Value {
    let spec = with_spec!(kind, Spec => generator.subschema_for::<Spec>());
    let definition = with_spec!(kind, Spec => Spec::json_schema(generator));
    let description = definition.get("description").cloned().unwrap_or_default();
    json!({
        "title": kind.to_string(),
        "description": description,
        "type": "object",
        "properties": {
            "apiVersion": {
                "description": "The version of this format.",
                "type": "string",
                "const": API_VERSION,
            },
            "kind": {
                "description": "What this document declares.",
                "type": "string",
                "const": kind.to_string(),
            },
            "metadata": metadata(kind, generator),
            "spec": spec.to_value(),
        },
        "patternProperties": {
            "^x-": { "description": "Yours: homeostat ignores it. A place for YAML anchors." },
        },
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "additionalProperties": false,
    })
}

fn metadata(kind: Kind, generator: &mut SchemaGenerator) -> Value {
    let name = generator.subschema_for::<Name>().to_value();
    let described = |schema: &Value, description: &str| {
        let mut schema = schema.clone();
        if let Some(members) = schema.as_object_mut() {
            members.insert("description".to_owned(), description.into());
        }
        schema
    };
    let texts = |description: &str, length: u32| {
        json!({
            "description": description,
            "type": "object",
            "additionalProperties": { "type": "string", "maxLength": length },
        })
    };
    let mut properties = Map::new();
    let unique = "Unique among the objects of its kind and workspace.";
    properties.insert("name".to_owned(), described(&name, unique));
    let mut required = vec!["name"];
    let placement = kind.placement();
    if placement != Placement::Fleet {
        let text = "The workspace that it belongs to.";
        properties.insert("workspace".to_owned(), described(&name, text));
    }
    if placement == Placement::Workspace {
        required.push("workspace");
    }
    let uid = json!({
        "description": "Pins the object's identity over a change of its name: a UUID, in lower case.",
        "type": "string",
        "pattern": r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
    });
    properties.insert("uid".to_owned(), uid);
    properties.insert("labels".to_owned(), texts("To find it by.", 63));
    let text = "Instructions to homeostat, and notes of other tools.";
    properties.insert("annotations".to_owned(), texts(text, 10_000));
    json!({
        "description": "Which object this is.",
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

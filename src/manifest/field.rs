//! A kind or one of its fields, for `explain`: what the JSON Schema says, in words.

use serde::Serialize;
use serde_json::{Map, Value};

use super::schema;
use crate::model::kind::Kind;

/// A field, or a whole kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Field {
    /// The kind, and the names of the fields on the way, with dots between.
    pub path: String,
    /// What kind of value it takes.
    #[serde(rename = "type")]
    pub type_name: String,
    /// Whether it must be there.
    pub is_required: bool,
    /// What it means.
    pub description: String,
    /// The value that an absent field has.
    pub default: Option<Value>,
    /// The only texts that it may be.
    pub choices: Vec<Choice>,
    /// What else bounds its values.
    pub limits: Vec<String>,
    /// The fields inside it.
    pub fields: Vec<Field>,
}

/// One of a fixed set of words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Choice {
    /// The word.
    pub value: String,
    /// What it means.
    pub description: String,
}

/// There is no such field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{within} has no field {name}")]
pub struct NoSuchField {
    /// The path to what was looked into.
    pub within: String,
    /// What it lacks.
    pub name: String,
    /// The fields that it has.
    pub fields: Vec<String>,
}

/// Nesting of what a reference leads to; our types are not recursive.
const REFERENCES_MAX: usize = 16;

/// The field of `kind` that `path` leads to; the kind itself when it is empty. The items of a list
/// are stepped into without a name, the entries of a mapping by any.
///
/// # Errors
/// When a name on the way is no field.
pub fn field(kind: Kind, path: &[&str]) -> Result<Field, NoSuchField> {
    let document = schema::of_kind(kind);
    let schemas = Schemas {
        definitions: document.get("$defs"),
    };
    let mut node = schemas.view(&document);
    let mut shown = kind.to_string();
    let mut is_required = true;
    for name in path {
        let inside = schemas.inside(node);
        let Some(next) = schemas.member(&inside, name) else {
            return Err(NoSuchField {
                within: shown,
                name: (*name).to_owned(),
                fields: names(&inside),
            });
        };
        is_required = is_among_required(&inside, name);
        shown = format!("{shown}.{name}");
        node = next;
    }
    let mut field = schemas.describe(shown, &node, is_required);
    let inside = schemas.inside(node);
    for name in names(&inside) {
        let Some(member) = schemas.member(&inside, &name) else {
            continue;
        };
        let is_required = is_among_required(&inside, &name);
        field
            .fields
            .push(schemas.describe(name, &member, is_required));
    }
    Ok(field)
}

fn names(node: &Map<String, Value>) -> Vec<String> {
    let properties = node.get("properties").and_then(Value::as_object);
    properties
        .map(|it| it.keys().cloned().collect())
        .unwrap_or_default()
}

fn is_among_required(node: &Map<String, Value>, name: &str) -> bool {
    let required = node.get("required").and_then(Value::as_array);
    required.is_some_and(|names| names.iter().any(|it| it == name))
}

struct Schemas<'s> {
    definitions: Option<&'s Value>,
}

impl Schemas<'_> {
    /// The keywords of a schema, those of what it refers to below its own.
    fn view(&self, schema: &Value) -> Map<String, Value> {
        self.view_at(schema, 0)
    }

    fn view_at(&self, schema: &Value, depth: usize) -> Map<String, Value> {
        let mut keywords = schema.as_object().cloned().unwrap_or_default();
        let target = keywords.shift_remove("$ref");
        let target = target.as_ref().and_then(Value::as_str);
        let referred = target
            .and_then(|it| it.strip_prefix("#/$defs/"))
            .and_then(|name| self.definitions?.get(name));
        let optional = keywords.shift_remove("anyOf");
        let below = referred.or_else(|| optional.as_ref()?.get(0));
        let Some(below) = below.filter(|_| depth < REFERENCES_MAX) else {
            return keywords;
        };
        let mut whole = self.view_at(below, depth + 1);
        if whole.contains_key("pattern")
            && let Some(form) = whole.get("description").cloned()
        {
            whole.insert("form".to_owned(), form);
        }
        whole.extend(keywords);
        whole
    }

    /// What holds the fields: of a list, or a list of lists, its items.
    fn inside(&self, mut node: Map<String, Value>) -> Map<String, Value> {
        for _ in 0..REFERENCES_MAX {
            match node.get("items") {
                Some(items) => node = self.view(items),
                None => break,
            }
        }
        node
    }

    fn member(&self, node: &Map<String, Value>, name: &str) -> Option<Map<String, Value>> {
        let named = node.get("properties").and_then(|it| it.get(name));
        let other = node.get("additionalProperties").filter(|it| it.is_object());
        named.or(other).map(|schema| self.view(schema))
    }

    fn describe(&self, path: String, node: &Map<String, Value>, is_required: bool) -> Field {
        let description = node.get("description").and_then(Value::as_str);
        Field {
            path,
            type_name: self.type_name(node),
            is_required,
            description: one_line(description.unwrap_or_default()),
            default: node.get("default").filter(|it| !it.is_null()).cloned(),
            choices: choices(node),
            limits: limits(node),
            fields: Vec::new(),
        }
    }

    fn type_name(&self, node: &Map<String, Value>) -> String {
        if let Some(items) = node.get("items") {
            return format!("a list, each {}", self.type_name(&self.view(items)));
        }
        let other = node.get("additionalProperties").filter(|it| it.is_object());
        if let (Some(values), None) = (other, node.get("properties")) {
            return format!("a mapping, each {}", self.type_name(&self.view(values)));
        }
        if !choices(node).is_empty() {
            return "one of a set of words".to_owned();
        }
        let types = match node.get("type") {
            Some(Value::Array(types)) => types.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(one)) => vec![one.as_str()],
            _ => Vec::new(),
        };
        let words: Vec<&str> = types.into_iter().filter_map(word).collect();
        match words.as_slice() {
            [] => "anything".to_owned(),
            words => words.join(" or "),
        }
    }
}

/// A type of JSON Schema; none for `null`, which nobody means to write.
fn word(type_name: &str) -> Option<&'static str> {
    match type_name {
        "string" => Some("text"),
        "integer" => Some("a whole number"),
        "boolean" => Some("true or false"),
        "array" => Some("a list"),
        "object" => Some("a mapping"),
        _ => None,
    }
}

fn choices(node: &Map<String, Value>) -> Vec<Choice> {
    let choice = |value: &Value, description: &str| {
        value.as_str().map(|value| Choice {
            value: value.to_owned(),
            description: one_line(description),
        })
    };
    let mut choices: Vec<Choice> = Vec::new();
    choices.extend(node.get("const").and_then(|it| choice(it, "")));
    let listed = |node: &Map<String, Value>, key: &str| {
        let list = node.get(key).and_then(Value::as_array);
        list.cloned().unwrap_or_default()
    };
    choices.extend(listed(node, "enum").iter().filter_map(|it| choice(it, "")));
    for alternative in listed(node, "oneOf") {
        let description = alternative.get("description").and_then(Value::as_str);
        let description = description.unwrap_or_default();
        let one = alternative.get("const").into_iter();
        let several = alternative.get("enum").and_then(Value::as_array);
        let values = one.chain(several.into_iter().flatten());
        choices.extend(values.filter_map(|it| choice(it, description)));
    }
    choices
}

fn limits(node: &Map<String, Value>) -> Vec<String> {
    let number = |key: &str| node.get(key).filter(|it| it.is_number());
    let between = |least: Option<&Value>, most: Option<&Value>, unit: &str| match (least, most) {
        (Some(least), Some(most)) => Some(format!("{least} to {most}{unit}")),
        (Some(least), None) => Some(format!("at least {least}{unit}")),
        (None, Some(most)) => Some(format!("at most {most}{unit}")),
        (None, None) => None,
    };
    let mut limits = Vec::new();
    limits.extend(between(number("minimum"), number("maximum"), ""));
    limits.extend(between(
        number("minLength"),
        number("maxLength"),
        " characters",
    ));
    match (node.get("form"), node.get("pattern")) {
        (Some(Value::String(form)), _) => limits.push(one_line(form)),
        (_, Some(Value::String(pattern))) => limits.push(format!("of the form {pattern}")),
        _ => {}
    }
    limits
}

/// Doc comments are wrapped where the source is.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<&str>>().join(" ")
}

#[cfg(test)]
mod tests {
    use strum::IntoEnumIterator;

    use super::*;

    /// Every field of every kind, with its path.
    fn every_field() -> Vec<Field> {
        let mut open: Vec<(Kind, Vec<String>)> = Kind::iter().map(|it| (it, vec![])).collect();
        let mut all = Vec::new();
        while let Some((kind, path)) = open.pop() {
            let names: Vec<&str> = path.iter().map(String::as_str).collect();
            let field = field(kind, &names).expect("the path comes from the schema");
            for inner in &field.fields {
                open.push((
                    kind,
                    [path.as_slice(), std::slice::from_ref(&inner.path)].concat(),
                ));
            }
            all.push(field);
        }
        all
    }

    #[test]
    fn every_field_says_what_it_means_and_takes() {
        let fields = every_field();
        assert!(fields.len() > 100);
        for field in fields {
            assert_ne!(field.description, "", "{}", field.path);
            assert_ne!(field.type_name, "anything", "{}", field.path);
        }
    }

    #[test]
    fn lists_and_mappings_are_stepped_into() {
        let prices = field(Kind::Adapter, &["spec", "prices"]).expect("a field");
        assert_eq!(prices.type_name, "a list, each a mapping");
        let model = field(Kind::Adapter, &["spec", "prices", "model"]).expect("a field");
        assert_eq!(
            (model.type_name.as_str(), model.is_required),
            ("text", true)
        );
        let env = field(Kind::Adapter, &["spec", "env", "ANY"]).expect("an entry");
        assert_eq!(env.type_name, "text");
    }

    #[test]
    fn a_name_that_is_no_field_is_an_error_that_lists_them() {
        let error = field(Kind::Agent, &["spec", "adpater"]).expect_err("no field");
        assert_eq!(error.to_string(), "Agent.spec has no field adpater");
        assert!(error.fields.contains(&"adapter".to_owned()));
    }
}

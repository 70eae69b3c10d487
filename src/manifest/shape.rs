//! A JSON Schema compiled for checking spanned trees. It knows the keywords that our own schemas
//! use, and [`compile`] refuses any other, so that no part of a schema is silently not checked.

use std::collections::BTreeMap;

use regex_lite::Regex;
use serde_json::Value;

/// Kinds of value, as a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    pub(super) const NULL: Self = Self(1);
    pub(super) const BOOLEAN: Self = Self(2);
    pub(super) const INTEGER: Self = Self(4);
    pub(super) const STRING: Self = Self(8);
    pub(super) const ARRAY: Self = Self(16);
    pub(super) const OBJECT: Self = Self(32);
    const ALL: Self = Self(63);

    pub(super) const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The kinds as words, `null` left out: nobody means to write it.
    pub(super) fn describe(self) -> String {
        let words = [
            (Self::STRING, "text"),
            (Self::INTEGER, "a whole number"),
            (Self::BOOLEAN, "true or false"),
            (Self::ARRAY, "a list"),
            (Self::OBJECT, "a mapping"),
        ];
        let words: Vec<&str> = words
            .iter()
            .filter(|(kind, _)| self.contains(*kind))
            .map(|(_, word)| *word)
            .collect();
        words.join(" or ")
    }
}

/// What a value may be.
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// Kinds of value that are allowed.
    pub(super) types: Types,
    /// The only texts that are allowed; empty for any.
    pub(super) choices: Vec<String>,
    /// The form of a text.
    pub(super) pattern: Option<Regex>,
    /// A form that a text must not have.
    pub(super) forbidden: Option<Regex>,
    /// What a text of this form is, for people.
    pub(super) form: Option<String>,
    /// Smallest and largest number.
    pub(super) minimum: Option<i128>,
    pub(super) maximum: Option<i128>,
    /// Fewest and most characters.
    pub(super) min_length: Option<usize>,
    pub(super) max_length: Option<usize>,
    /// Shape of every item of a list.
    pub(super) items: Option<Box<Shape>>,
    /// Shapes of the fields of a mapping.
    pub(super) properties: BTreeMap<String, Shape>,
    /// Fields that must be there.
    pub(super) required: Vec<String>,
    /// Fields by the form of their name.
    pub(super) pattern_properties: Vec<(Regex, Shape)>,
    /// Every other field.
    pub(super) additional: Additional,
}

/// What the fields that a shape does not name may be.
#[derive(Debug, Default)]
pub(super) enum Additional {
    /// Anything.
    #[default]
    Any,
    /// There are none.
    None,
    /// Each of this shape.
    Shape(Box<Shape>),
}

/// A schema that this module cannot check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the schema at {path} uses {what}")]
pub(super) struct CompileError {
    path: String,
    what: String,
}

/// Nesting of references; our types are not recursive.
const REFERENCES_MAX: usize = 16;

/// Compiles a whole schema document. References are to its own `$defs`.
pub(super) fn compile(schema: &Value) -> Result<Shape, CompileError> {
    let compiler = Compiler {
        definitions: schema.get("$defs"),
    };
    compiler.shape(schema, "#", 0)
}

struct Compiler<'s> {
    definitions: Option<&'s Value>,
}

impl Compiler<'_> {
    fn shape(&self, schema: &Value, path: &str, depth: usize) -> Result<Shape, CompileError> {
        let error = |what: &str| CompileError {
            path: path.to_owned(),
            what: what.to_owned(),
        };
        let members = schema.as_object().ok_or_else(|| error("no object"))?;
        let mut shape = Shape {
            types: Types::ALL,
            ..Shape::default()
        };
        // A reference or an alternative first: what stands beside it adds to it.
        if let Some(target) = members.get("$ref") {
            shape = self.reference(target, path, depth)?;
        } else if let Some(alternatives) = members.get("anyOf") {
            shape = self.optional(alternatives, path, depth)?;
        } else if let Some(alternatives) = members.get("oneOf") {
            shape.types = Types::STRING;
            shape.choices = choices_of(alternatives).ok_or_else(|| error("oneOf"))?;
        }
        for (keyword, value) in members {
            let known = self.keyword(&mut shape, keyword, value, path, depth)?;
            if !known {
                return Err(error(&format!("{keyword}: {value}")));
            }
        }
        Ok(shape)
    }

    /// Takes one keyword into the shape; whether it is known with this value.
    fn keyword(
        &self,
        shape: &mut Shape,
        keyword: &str,
        value: &Value,
        path: &str,
        depth: usize,
    ) -> Result<bool, CompileError> {
        let inner = |name: &str| format!("{path}/{keyword}/{name}");
        let known = match keyword {
            "$ref" | "anyOf" | "oneOf" | "$defs" | "$schema" | "title" | "description"
            | "default" | "format" => true,
            "type" => types_of(value).map(|types| shape.types = types).is_some(),
            "const" => text_of(value)
                .map(|text| shape.choices = vec![text])
                .is_some(),
            "enum" => texts_of(value).map(|texts| shape.choices = texts).is_some(),
            "pattern" => set(&mut shape.pattern, regex_of(value)),
            "not" => set(
                &mut shape.forbidden,
                value.get("pattern").and_then(regex_of),
            ),
            "minimum" => set(&mut shape.minimum, integer_of(value)),
            "maximum" => set(&mut shape.maximum, integer_of(value)),
            "minLength" => set(&mut shape.min_length, length_of(value)),
            "maxLength" => set(&mut shape.max_length, length_of(value)),
            "required" => texts_of(value)
                .map(|texts| shape.required = texts)
                .is_some(),
            "items" => {
                shape.items = Some(Box::new(self.shape(value, &inner(""), depth)?));
                true
            }
            "additionalProperties" => {
                shape.additional = match value {
                    Value::Bool(false) => Additional::None,
                    Value::Bool(true) => Additional::Any,
                    _ => Additional::Shape(Box::new(self.shape(value, &inner(""), depth)?)),
                };
                true
            }
            "properties" => {
                for (name, property) in value.as_object().into_iter().flatten() {
                    let property = self.shape(property, &inner(name), depth)?;
                    shape.properties.insert(name.clone(), property);
                }
                value.is_object()
            }
            "patternProperties" => {
                for (pattern, property) in value.as_object().into_iter().flatten() {
                    let Ok(regex) = Regex::new(pattern) else {
                        return Ok(false);
                    };
                    let property = self.shape(property, &inner(pattern), depth)?;
                    shape.pattern_properties.push((regex, property));
                }
                value.is_object()
            }
            _ => false,
        };
        Ok(known)
    }

    fn reference(&self, target: &Value, path: &str, depth: usize) -> Result<Shape, CompileError> {
        let error = |what: String| CompileError {
            path: path.to_owned(),
            what,
        };
        let name = target.as_str().and_then(|it| it.strip_prefix("#/$defs/"));
        let definition = name.and_then(|name| self.definitions?.get(name));
        match definition {
            Some(definition) if depth < REFERENCES_MAX => {
                let mut shape = self.shape(definition, path, depth + 1)?;
                if shape.pattern.is_some() {
                    let description = definition.get("description");
                    shape.form = description.and_then(Value::as_str).map(str::to_owned);
                }
                Ok(shape)
            }
            Some(_) => Err(error("a recursive reference".to_owned())),
            None => Err(error(format!("the unknown reference {target}"))),
        }
    }

    /// `anyOf` with `null`: how an optional field is written.
    fn optional(
        &self,
        alternatives: &Value,
        path: &str,
        depth: usize,
    ) -> Result<Shape, CompileError> {
        let is_null = |it: &Value| it.get("type").and_then(Value::as_str) == Some("null");
        match alternatives.as_array().map(Vec::as_slice) {
            Some([inner, null]) if is_null(null) => {
                let mut shape = self.shape(inner, path, depth)?;
                shape.types = shape.types.with(Types::NULL);
                Ok(shape)
            }
            _ => Err(CompileError {
                path: path.to_owned(),
                what: "anyOf".to_owned(),
            }),
        }
    }
}

fn set<T>(slot: &mut Option<T>, value: Option<T>) -> bool {
    *slot = value;
    slot.is_some()
}

fn types_of(value: &Value) -> Option<Types> {
    let one = |name: &Value| match name.as_str()? {
        "null" => Some(Types::NULL),
        "boolean" => Some(Types::BOOLEAN),
        "integer" => Some(Types::INTEGER),
        "string" => Some(Types::STRING),
        "array" => Some(Types::ARRAY),
        "object" => Some(Types::OBJECT),
        _ => None,
    };
    match value {
        Value::Array(names) => names
            .iter()
            .try_fold(Types::default(), |types, name| Some(types.with(one(name)?))),
        _ => one(value),
    }
}

/// The texts of a `oneOf` whose parts are constants: how a described enum is written.
fn choices_of(alternatives: &Value) -> Option<Vec<String>> {
    let mut choices = Vec::new();
    for alternative in alternatives.as_array()? {
        match (alternative.get("const"), alternative.get("enum")) {
            (Some(value), None) => choices.push(text_of(value)?),
            (None, Some(values)) => choices.extend(texts_of(values)?),
            _ => return None,
        }
    }
    Some(choices)
}

fn texts_of(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(text_of).collect()
}

fn text_of(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

fn regex_of(value: &Value) -> Option<Regex> {
    Regex::new(value.as_str()?).ok()
}

fn integer_of(value: &Value) -> Option<i128> {
    value.as_i64().map(i128::from)
}

fn length_of(value: &Value) -> Option<usize> {
    usize::try_from(value.as_u64()?).ok()
}

//! Checks a spanned tree against a shape and collects every fault. Recursion is as deep as the
//! tree, which the parser bounds.

use super::shape::{Additional, Shape, Types};
use crate::diagnostic::{Code, Range, did_you_mean, quote};
use crate::yaml::{NodeRef, Value, is_ambiguous};

/// A fault of one value. The manifest's own rules may still refine it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) code: Code,
    pub(super) range: Range,
    /// From the document's root; the last one is the field at fault, also when it is missing.
    pub(super) path: Vec<Step>,
    /// The key or text at fault.
    pub(super) subject: String,
    pub(super) message: String,
    pub(super) help: Option<String>,
}

/// One step from a value to a value inside it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// Of a mapping.
    Key(String),
    /// Of a list.
    Index(usize),
}

impl From<&str> for Step {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned())
    }
}

impl From<usize> for Step {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// The JSON Pointer of a path.
pub(super) fn pointer(path: &[Step]) -> String {
    let mut pointer = String::new();
    for step in path {
        pointer.push('/');
        match step {
            Step::Key(key) => pointer.push_str(&key.replace('~', "~0").replace('/', "~1")),
            Step::Index(index) => pointer.push_str(&index.to_string()),
        }
    }
    pointer
}

/// All faults of `node`, the root of a document, in the order of the file as far as it has one.
pub(super) fn check(shape: &Shape, node: NodeRef<'_>) -> Vec<Fault> {
    let mut walker = Walker {
        path: Vec::new(),
        faults: Vec::new(),
    };
    walker.value(shape, node, node.range());
    walker.faults
}

struct Walker<'t> {
    path: Vec<BorrowedStep<'t>>,
    faults: Vec<Fault>,
}

#[derive(Clone, Copy)]
enum BorrowedStep<'t> {
    Key(&'t str),
    Index(usize),
}

impl<'t> Walker<'t> {
    /// Checks one value; `owner` is the key that it belongs to.
    fn value(&mut self, shape: &'t Shape, node: NodeRef<'t>, owner: Range) {
        if node.is_broken() {
            return;
        }
        let is = match node.value() {
            Value::Null => Types::NULL,
            Value::Bool(_) => Types::BOOLEAN,
            Value::Integer(_) => Types::INTEGER,
            // No field takes a fraction: money is text or whole cents.
            Value::Float(_) => return self.wrong_type(shape, node, owner),
            Value::String(_) => Types::STRING,
            Value::Sequence(_) => Types::ARRAY,
            Value::Mapping(_) => Types::OBJECT,
        };
        if !shape.types.contains(is) {
            return self.wrong_type(shape, node, owner);
        }
        match node.value() {
            Value::String(text) => self.text(shape, text, node),
            Value::Integer(value) => self.number(shape, *value, node.range()),
            Value::Sequence(_) => self.list(shape, node),
            Value::Mapping(_) => self.mapping(shape, node, owner),
            Value::Null | Value::Bool(_) | Value::Float(_) => {}
        }
    }

    fn text(&mut self, shape: &Shape, text: &str, node: NodeRef<'_>) {
        let range = node.range();
        let field = self.field();
        if !shape.choices.is_empty() {
            if !shape.choices.iter().any(|choice| choice == text) {
                let message = format!("{field} has no choice {}", quote(text));
                let help = suggest(text, &shape.choices, "the choices are");
                self.fault(Code::UnknownValue, range, text, message, help);
            }
            return;
        }
        let length = text.chars().count();
        let fits = shape.min_length.is_none_or(|min| length >= min)
            && shape.max_length.is_none_or(|max| length <= max);
        if !fits {
            let message = format!(
                "{field} must have {}, not {length}",
                limits(shape.min_length, shape.max_length, "characters")
            );
            self.fault(Code::BadLength, range, text, message, None);
        }
        let matches = shape.pattern.as_ref().is_none_or(|it| it.is_match(text))
            && !shape.forbidden.as_ref().is_some_and(|it| it.is_match(text));
        if !matches {
            let message = format!("{field} does not have the right form: {}", quote(text));
            let help = shape.form.clone().or_else(|| {
                let pattern = shape.pattern.as_ref()?;
                Some(format!("it must match `{}`", pattern.as_str()))
            });
            self.fault(Code::BadFormat, range, text, message, help);
        }
        if fits && matches && node.is_plain() && is_ambiguous(text) {
            let message = format!("{} is text here, not true or false", quote(text));
            let help = Some(format!("write `\"{text}\"`"));
            self.fault(Code::AmbiguousText, range, text, message, help);
        }
    }

    fn number(&mut self, shape: &Shape, value: i128, range: Range) {
        let fits = shape.minimum.is_none_or(|min| value >= min)
            && shape.maximum.is_none_or(|max| value <= max);
        if !fits {
            let message = format!(
                "{} must be {}, not {value}",
                self.field(),
                limits(shape.minimum, shape.maximum, "")
            );
            let subject = value.to_string();
            self.fault(Code::OutOfRange, range, &subject, message, None);
        }
    }

    fn list(&mut self, shape: &'t Shape, node: NodeRef<'t>) {
        let Some(items) = &shape.items else {
            return;
        };
        for (index, item) in node.items().enumerate() {
            self.path.push(BorrowedStep::Index(index));
            self.value(items, item, item.range());
            self.path.pop();
        }
    }

    fn mapping(&mut self, shape: &'t Shape, node: NodeRef<'t>, owner: Range) {
        for (key, key_range, value) in node.entries() {
            self.path.push(BorrowedStep::Key(key));
            match member(shape, key) {
                Member::Any => {}
                Member::Shape(inner) => self.value(inner, value, key_range),
                Member::Unknown => {
                    let message = format!("unknown field {}", quote(key));
                    let fields: Vec<String> = shape.properties.keys().cloned().collect();
                    let help = suggest(key, &fields, "the fields here are");
                    self.fault(Code::UnknownField, key_range, key, message, help);
                }
            }
            self.path.pop();
        }
        for name in &shape.required {
            if node.get(name).is_none() {
                let place = match self.path.last() {
                    Some(BorrowedStep::Key(parent)) => format!(" in {}", quote(parent)),
                    Some(BorrowedStep::Index(_)) | None => String::new(),
                };
                let message = format!("the field {}{place} is missing", quote(name));
                self.path.push(BorrowedStep::Key(name));
                self.fault(Code::MissingField, owner, name, message, None);
                self.path.pop();
            }
        }
    }

    fn wrong_type(&mut self, shape: &Shape, node: NodeRef<'_>, owner: Range) {
        let found = match node.value() {
            Value::Null => "empty",
            Value::Bool(_) => "true or false",
            Value::Integer(_) => "a number",
            Value::Float(value) if value.abs() < 1e18 => "a number with a fraction",
            Value::Float(_) => "a number of that size",
            Value::String(_) => "text",
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a mapping",
        };
        let is_empty = node.range().start == node.range().end;
        let range = if is_empty { owner } else { node.range() };
        let message = format!(
            "{} must be {}, not {found}",
            self.field(),
            shape.types.describe()
        );
        let help = conversion(shape.types, node);
        self.fault(Code::WrongType, range, "", message, help);
    }

    /// The field that is checked, for a message.
    fn field(&self) -> String {
        let key = self.path.iter().rev().find_map(|step| match step {
            BorrowedStep::Key(key) => Some(*key),
            BorrowedStep::Index(_) => None,
        });
        match (key, self.path.last()) {
            (Some(key), Some(BorrowedStep::Index(_))) => format!("an entry of {}", quote(key)),
            (Some(key), _) => quote(key),
            (None, _) => "the document".to_owned(),
        }
    }

    fn fault(
        &mut self,
        code: Code,
        range: Range,
        subject: &str,
        message: String,
        help: Option<String>,
    ) {
        let path = self.path.iter().map(|step| match step {
            BorrowedStep::Key(key) => Step::from(*key),
            BorrowedStep::Index(index) => Step::Index(*index),
        });
        self.faults.push(Fault {
            code,
            range,
            path: path.collect(),
            subject: subject.to_owned(),
            message,
            help,
        });
    }
}

/// What a shape says about a field.
enum Member<'t> {
    Any,
    Shape(&'t Shape),
    Unknown,
}

fn member<'t>(shape: &'t Shape, key: &str) -> Member<'t> {
    if let Some(inner) = shape.properties.get(key) {
        return Member::Shape(inner);
    }
    let by_pattern = &shape.pattern_properties;
    if let Some((_, inner)) = by_pattern.iter().find(|(regex, _)| regex.is_match(key)) {
        return Member::Shape(inner);
    }
    match &shape.additional {
        Additional::Any => Member::Any,
        Additional::None => Member::Unknown,
        Additional::Shape(inner) => Member::Shape(inner),
    }
}

/// A likely correction, or all that there is to choose from if that is not much.
fn suggest(text: &str, candidates: &[String], otherwise: &str) -> Option<String> {
    const LISTED_MAX: usize = 16;
    if let Some(near) = did_you_mean(text, candidates.iter().map(String::as_str)) {
        return Some(format!("did you mean {}?", quote(near)));
    }
    if candidates.is_empty() || candidates.len() > LISTED_MAX {
        return None;
    }
    let listed: Vec<String> = candidates.iter().map(|it| quote(it)).collect();
    Some(format!("{otherwise} {}", listed.join(", ")))
}

/// How a value of the wrong type is turned into one of the right type.
fn conversion(wanted: Types, node: NodeRef<'_>) -> Option<String> {
    let help = match node.value() {
        Value::String(text) if wanted.contains(Types::BOOLEAN) => {
            match text.to_ascii_lowercase().as_str() {
                "yes" | "on" | "y" | "true" => "write `true`",
                "no" | "off" | "n" | "false" => "write `false`",
                _ => return None,
            }
        }
        Value::String(text) if wanted.contains(Types::INTEGER) && text.parse::<i64>().is_ok() => {
            "remove the quotes"
        }
        Value::Integer(_) | Value::Float(_) | Value::Bool(_) | Value::Null
            if wanted.contains(Types::STRING) =>
        {
            "put it in quotes if text was meant"
        }
        Value::Null if wanted.contains(Types::OBJECT) => "write `{}` for a mapping without fields",
        Value::Null if wanted.contains(Types::ARRAY) => "write `[]` for an empty list",
        Value::String(_) | Value::Integer(_) | Value::Bool(_) if wanted.contains(Types::ARRAY) => {
            "put it in `[` and `]`, or behind a `-` on a line of its own"
        }
        Value::Null
        | Value::Bool(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::String(_)
        | Value::Sequence(_)
        | Value::Mapping(_) => return None,
    };
    Some(help.to_owned())
}

/// "between 1 and 200 characters", or the half of it that applies.
fn limits<T: std::fmt::Display>(min: Option<T>, max: Option<T>, unit: &str) -> String {
    let text = match (min, max) {
        (Some(min), Some(max)) => format!("between {min} and {max} {unit}"),
        (Some(min), None) => format!("at least {min} {unit}"),
        (None, Some(max)) => format!("at most {max} {unit}"),
        (None, None) => return unit.to_owned(),
    };
    text.trim_end().to_owned()
}

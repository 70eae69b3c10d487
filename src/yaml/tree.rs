//! The tree: an arena of nodes for each document.

use std::borrow::Cow;

use serde_json::{Map, Number};

use crate::diagnostic::{Diagnostic, Range};

/// What one file holds.
#[derive(Debug)]
pub struct Parsed<'a> {
    /// Its documents that have content, also those that broke off.
    pub documents: Vec<Document<'a>>,
    /// What was wrong. Not sorted.
    pub diagnostics: Vec<Diagnostic>,
}

/// One document.
#[derive(Debug)]
pub struct Document<'a> {
    /// Its number in the file, from 0.
    pub index: u32,
    /// Whether it was read to its end without any fault. A document that broke off holds what came
    /// before.
    pub sound: bool,
    /// Whether it was read to its end.
    pub complete: bool,
    pub(super) nodes: Vec<Node<'a>>,
    pub(super) root: usize,
}

/// A value and its place. An aliased value has the place of its definition.
#[derive(Debug)]
pub struct Node<'a> {
    /// The value.
    pub value: Value<'a>,
    /// Its place. Of a block list or mapping: its first entry's dash or key.
    pub range: Range,
    /// Whether it is a scalar without quotes.
    pub plain: bool,
    /// Whether it stands in for a value that was reported and dropped.
    pub broken: bool,
    /// How many values it stands for, itself included.
    pub(super) weight: usize,
    /// How many levels of nesting it holds, itself included if it is a collection.
    pub(super) height: usize,
}

/// A value. Lists and mappings refer to nodes of the same document.
#[derive(Debug)]
pub enum Value<'a> {
    /// `null`, `~` or nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Integer(i128),
    /// Any other number.
    Float(f64),
    /// Text.
    String(Cow<'a, str>),
    /// A list.
    Sequence(Vec<usize>),
    /// A mapping, in the order of the file, each key once.
    Mapping(Vec<Entry<'a>>),
}

/// A key and its value.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// The key.
    pub key: Cow<'a, str>,
    /// The place of the key.
    pub key_range: Range,
    pub(super) value: usize,
}

/// A node that knows its document.
#[derive(Clone, Copy, Debug)]
pub struct NodeRef<'t> {
    document: &'t Document<'t>,
    node: &'t Node<'t>,
}

impl Document<'_> {
    /// The outermost value.
    pub fn root(&self) -> NodeRef<'_> {
        self.node(self.root)
    }

    fn node(&self, id: usize) -> NodeRef<'_> {
        NodeRef {
            document: self,
            node: &self.nodes[id],
        }
    }
}

impl<'t> NodeRef<'t> {
    /// The value.
    pub fn value(self) -> &'t Value<'t> {
        &self.node.value
    }

    /// Its place.
    pub fn range(self) -> Range {
        self.node.range
    }

    /// Whether it is a scalar without quotes.
    pub fn is_plain(self) -> bool {
        self.node.plain
    }

    /// Whether it stands in for a value that was reported and dropped: nothing about it is worth
    /// saying.
    pub fn is_broken(self) -> bool {
        self.node.broken
    }

    /// Keys, their places and values, if it is a mapping.
    pub fn entries(self) -> impl Iterator<Item = (&'t str, Range, Self)> {
        let entries: &'t [Entry<'t>] = match &self.node.value {
            Value::Mapping(entries) => entries,
            Value::Null
            | Value::Bool(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::String(_)
            | Value::Sequence(_) => &[],
        };
        entries
            .iter()
            .map(move |it| (it.key.as_ref(), it.key_range, self.document.node(it.value)))
    }

    /// The items, if it is a list.
    pub fn items(self) -> impl Iterator<Item = Self> {
        let items: &'t [usize] = match &self.node.value {
            Value::Sequence(items) => items,
            Value::Null
            | Value::Bool(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::String(_)
            | Value::Mapping(_) => &[],
        };
        items.iter().map(move |id| self.document.node(*id))
    }

    /// The value of `key` and the key's place, if it is a mapping that has it.
    pub fn get(self, key: &str) -> Option<(Range, Self)> {
        self.entries()
            .find(|(name, ..)| *name == key)
            .map(|(_, range, value)| (range, value))
    }

    /// The text, if it is text.
    pub fn as_str(self) -> Option<&'t str> {
        match &self.node.value {
            Value::String(text) => Some(text),
            Value::Null
            | Value::Bool(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Sequence(_)
            | Value::Mapping(_) => None,
        }
    }

    /// The value as JSON. A number that JSON cannot hold (`.inf`, `.nan`) becomes `null`. Its depth
    /// is bounded by the parser.
    pub fn to_json(self) -> serde_json::Value {
        match &self.node.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Integer(value) => Number::from_i128(*value)
                .map_or_else(|| serde_json::Value::from(value.to_string()), Into::into),
            Value::Float(value) => (*value).into(),
            Value::String(text) => serde_json::Value::String(text.clone().into_owned()),
            Value::Sequence(_) => self.items().map(Self::to_json).collect(),
            Value::Mapping(entries) => {
                let mut map = Map::with_capacity(entries.len());
                for (key, _, value) in self.entries() {
                    map.insert(key.to_owned(), value.to_json());
                }
                map.into()
            }
        }
    }
}

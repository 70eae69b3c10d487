//! From events to the tree: aliases, merge keys, duplicate keys, limits.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::limits::{DEPTH_MAX, NODES_MAX};
use super::scalar;
use super::tree::{Document, Entry, Node, Value};
use crate::diagnostic::{Code, Diagnostic, Range, Span, quote};

/// Whether a document can be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    GoOn,
    /// A limit was passed, and reported.
    Abandon,
}

/// What stands before a value.
pub(super) struct Properties {
    /// The anchor's number; 0 is none.
    pub(super) anchor: usize,
    pub(super) tag: Option<Tagged>,
}

/// A tag.
pub(super) enum Tagged {
    /// One of YAML's own, without its prefix.
    Core(String),
    /// Any other, as written.
    Other(String),
}

/// Builds one document. Nothing recurses: open collections are on `open`.
pub(super) struct Builder<'f, 'a> {
    file: &'f str,
    index: u32,
    nodes: Vec<Node<'a>>,
    weight: usize,
    open: Vec<Frame<'a>>,
    root: Option<usize>,
    /// Node of each anchor; none while its collection is open.
    anchors: BTreeMap<usize, Option<usize>>,
    diagnostics: Vec<Diagnostic>,
    /// The document broke off: what is open is closed, limits no longer matter.
    closing: bool,
}

struct Frame<'a> {
    anchor: usize,
    range: Range,
    content: Content<'a>,
    weight: usize,
    height: usize,
}

enum Content<'a> {
    Sequence(Vec<usize>),
    Mapping {
        entries: Vec<Entry<'a>>,
        merges: Vec<(Range, usize)>,
        key: Key<'a>,
    },
}

/// The key whose value comes next.
enum Key<'a> {
    /// A key comes next.
    Awaited,
    Text(Cow<'a, str>, Range),
    Merge(Range),
    /// It was reported; its value is dropped.
    Bad,
}

impl<'f, 'a> Builder<'f, 'a> {
    pub(super) fn new(file: &'f str, index: u32) -> Self {
        Self {
            file,
            index,
            nodes: Vec::new(),
            weight: 0,
            open: Vec::new(),
            root: None,
            anchors: BTreeMap::new(),
            diagnostics: Vec::new(),
            closing: false,
        }
    }

    pub(super) fn scalar(
        &mut self,
        text: Cow<'a, str>,
        plain: bool,
        properties: &Properties,
        range: Range,
    ) -> Outcome {
        if plain && properties.tag.is_none() && self.is_merge(&text) {
            return self.set_key(Key::Merge(range));
        }
        let value = match &properties.tag {
            None if plain => Some(scalar::resolve(text)),
            None => Some(Value::String(text)),
            Some(tag) => self.tagged(tag, text, range),
        };
        let broken = value.is_none();
        let value = value.unwrap_or(Value::Null);
        let node = Node {
            value,
            range,
            plain,
            broken,
            weight: 1,
            height: 0,
        };
        self.place(node, properties.anchor)
    }

    pub(super) fn sequence_start(&mut self, properties: &Properties, range: Range) -> Outcome {
        self.check_tag(properties, "seq", range);
        self.start(Content::Sequence(Vec::new()), properties.anchor, range)
    }

    pub(super) fn mapping_start(&mut self, properties: &Properties, range: Range) -> Outcome {
        self.check_tag(properties, "map", range);
        let content = Content::Mapping {
            entries: Vec::new(),
            merges: Vec::new(),
            key: Key::Awaited,
        };
        self.start(content, properties.anchor, range)
    }

    fn start(&mut self, content: Content<'a>, anchor: usize, range: Range) -> Outcome {
        if self.open.len() >= DEPTH_MAX {
            let diagnostic = too_deep(self.span(range));
            self.report(diagnostic);
            return Outcome::Abandon;
        }
        if anchor != 0 {
            self.anchors.insert(anchor, None);
        }
        self.open.push(Frame {
            anchor,
            range,
            content,
            weight: 1,
            height: 1,
        });
        Outcome::GoOn
    }

    /// The innermost open collection ends; `range` is the closing bracket, or empty.
    pub(super) fn end(&mut self, range: Range) -> Outcome {
        let Some(frame) = self.open.pop() else {
            return Outcome::GoOn;
        };
        let (weight, height, anchor) = (frame.weight, frame.height, frame.anchor);
        let closed = range.end.offset > range.start.offset;
        let opened = frame.range.end.offset > frame.range.start.offset;
        let mut place = frame.range;
        if closed && opened {
            place.end = range.end;
        }
        let (value, extra) = match frame.content {
            Content::Sequence(items) => (Value::Sequence(items), 0),
            Content::Mapping {
                entries, merges, ..
            } => {
                if let (false, Some(first)) = (opened, entries.first()) {
                    place = first.key_range;
                }
                let mut entries = self.without_duplicates(entries);
                let extra = self.merge(&mut entries, &merges);
                (Value::Mapping(entries), extra)
            }
        };
        let node = Node {
            value,
            range: place,
            plain: false,
            broken: false,
            weight: weight + extra,
            height,
        };
        if extra > 0 && self.spend(extra, Code::TooManyAliases, range) == Outcome::Abandon {
            return Outcome::Abandon;
        }
        self.place(node, anchor)
    }

    pub(super) fn alias(&mut self, anchor: usize, range: Range) -> Outcome {
        let Some(id) = self.anchors.get(&anchor).copied().flatten() else {
            let diagnostic = Diagnostic::new(
                Code::BadAlias,
                self.span(range),
                "the alias stands for a value that contains it",
            );
            self.report(diagnostic);
            return self.place_broken(range);
        };
        let (weight, height) = (self.nodes[id].weight, self.nodes[id].height);
        if self.open.len() + height > DEPTH_MAX {
            let diagnostic = too_deep(self.span(range));
            self.report(diagnostic);
            return Outcome::Abandon;
        }
        if self.spend(weight, Code::TooManyAliases, range) == Outcome::Abandon {
            return Outcome::Abandon;
        }
        if self.awaits_key() {
            let text = text_of(&self.nodes[id].value);
            return self.take_key(text, range);
        }
        self.attach(id, weight, height);
        Outcome::GoOn
    }

    pub(super) fn unknown_alias(&mut self, name: &str, range: Range) -> Outcome {
        let message = format!("nothing before this place has the anchor {}", quote(name));
        let diagnostic = Diagnostic::new(Code::BadAlias, self.span(range), message)
            .with_help("mark the value with `&name` earlier in the same document");
        self.report(diagnostic);
        self.place_broken(range)
    }

    /// The innermost list or mapping in brackets that is open.
    pub(super) fn open_bracket(&self) -> Option<Range> {
        let range = self.open.last()?.range;
        (range.end.offset > range.start.offset).then_some(range)
    }

    /// The document, if it has content, and what was wrong with it.
    pub(super) fn finish(mut self, complete: bool) -> (Option<Document<'a>>, Vec<Diagnostic>) {
        let broken_off = !self.open.is_empty();
        self.closing = true;
        while let Some(frame) = self.open.last() {
            self.end(Range::at(frame.range.start));
        }
        let Some(root) = self.root else {
            return (None, self.diagnostics);
        };
        let complete = complete && !broken_off;
        let blank = matches!(self.nodes[root].value, Value::Null) && self.nodes[root].plain;
        let document = Document {
            index: self.index,
            sound: complete && self.diagnostics.is_empty(),
            complete,
            nodes: self.nodes,
            root,
        };
        ((!blank).then_some(document), self.diagnostics)
    }

    /// Puts a finished node where it belongs: the key, an entry, an item or the root.
    fn place(&mut self, node: Node<'a>, anchor: usize) -> Outcome {
        let (weight, height, range) = (node.weight, node.height, node.range);
        if self.spend(1, Code::TooManyNodes, range) == Outcome::Abandon {
            return Outcome::Abandon;
        }
        let id = self.nodes.len();
        if anchor != 0 {
            self.anchors.insert(anchor, Some(id));
        }
        if self.awaits_key() {
            let outcome = self.take_key(text_of(&node.value), range);
            if anchor != 0 {
                self.nodes.push(node);
            }
            return outcome;
        }
        self.nodes.push(node);
        self.attach(id, weight, height);
        Outcome::GoOn
    }

    fn place_broken(&mut self, range: Range) -> Outcome {
        if self.awaits_key() {
            return self.set_key(Key::Bad);
        }
        let node = Node {
            value: Value::Null,
            range,
            plain: false,
            broken: true,
            weight: 1,
            height: 0,
        };
        self.place(node, 0)
    }

    fn attach(&mut self, id: usize, weight: usize, height: usize) {
        let Some(frame) = self.open.last_mut() else {
            self.root = Some(id);
            return;
        };
        frame.weight += weight;
        frame.height = frame.height.max(height + 1);
        match &mut frame.content {
            Content::Sequence(items) => items.push(id),
            Content::Mapping {
                entries,
                merges,
                key,
            } => match std::mem::replace(key, Key::Awaited) {
                Key::Text(key, key_range) => entries.push(Entry {
                    key,
                    key_range,
                    value: id,
                }),
                Key::Merge(range) => merges.push((range, id)),
                Key::Bad | Key::Awaited => {}
            },
        }
    }

    fn awaits_key(&self) -> bool {
        self.open.last().is_some_and(|frame| match &frame.content {
            Content::Mapping { key, .. } => matches!(key, Key::Awaited),
            Content::Sequence(_) => false,
        })
    }

    fn is_merge(&self, text: &str) -> bool {
        text == "<<" && self.awaits_key()
    }

    /// The awaited key, which has to be text.
    fn take_key(&mut self, text: Option<Cow<'a, str>>, range: Range) -> Outcome {
        match text {
            Some(text) => self.set_key(Key::Text(text, range)),
            None => self.bad_key(range),
        }
    }

    fn set_key(&mut self, new: Key<'a>) -> Outcome {
        if let Some(Frame {
            content: Content::Mapping { key, .. },
            ..
        }) = self.open.last_mut()
        {
            *key = new;
        }
        Outcome::GoOn
    }

    fn bad_key(&mut self, range: Range) -> Outcome {
        let diagnostic =
            Diagnostic::new(Code::KeyNotText, self.span(range), "this key is not text")
                .with_help("put it in quotes if text was meant");
        self.report(diagnostic);
        self.set_key(Key::Bad)
    }

    fn without_duplicates(&mut self, entries: Vec<Entry<'a>>) -> Vec<Entry<'a>> {
        let mut order: Vec<usize> = (0..entries.len()).collect();
        order.sort_by(|a, b| entries[*a].key.cmp(&entries[*b].key).then(a.cmp(b)));
        let mut first: Option<usize> = None;
        let mut later = Vec::new();
        for at in order {
            match first {
                Some(first) if entries[at].key == entries[first].key => {
                    later.push((at, first));
                }
                _ => first = Some(at),
            }
        }
        if later.is_empty() {
            return entries;
        }
        for (at, first) in &later {
            let message = format!("the key {} is here twice", quote(&entries[*at].key));
            let diagnostic = Diagnostic::new(
                Code::DuplicateKey,
                self.span(entries[*at].key_range),
                message,
            )
            .with_label(self.span(entries[*first].key_range), "first here");
            self.report(diagnostic);
        }
        let later: BTreeSet<usize> = later.iter().map(|(at, _)| *at).collect();
        let kept = entries.into_iter().enumerate();
        kept.filter(|(at, _)| !later.contains(at))
            .map(|(_, entry)| entry)
            .collect()
    }

    /// Copies what merge keys name and the mapping lacks; how many values that added.
    fn merge(&mut self, entries: &mut Vec<Entry<'a>>, merges: &[(Range, usize)]) -> usize {
        let mut sources = Vec::new();
        for (range, id) in merges {
            match &self.nodes[*id].value {
                Value::Mapping(_) => sources.push((*range, *id)),
                Value::Sequence(items) => sources.extend(items.iter().map(|item| (*range, *item))),
                Value::Null
                | Value::Bool(_)
                | Value::Integer(_)
                | Value::Float(_)
                | Value::String(_) => sources.push((*range, *id)),
            }
        }
        let mut known: BTreeSet<Cow<'a, str>> = if sources.is_empty() {
            return 0;
        } else {
            entries.iter().map(|entry| entry.key.clone()).collect()
        };
        let mut added = 0;
        for (range, id) in sources {
            let Value::Mapping(source) = &self.nodes[id].value else {
                let message = "`<<` needs a mapping or a list of mappings";
                let diagnostic = Diagnostic::new(Code::BadMerge, self.span(range), message);
                self.report(diagnostic);
                continue;
            };
            for entry in source {
                if known.insert(entry.key.clone()) {
                    added += self.nodes[entry.value].weight;
                    entries.push(entry.clone());
                }
            }
        }
        added
    }

    fn tagged(&mut self, tag: &Tagged, text: Cow<'a, str>, range: Range) -> Option<Value<'a>> {
        let shown = match tag {
            Tagged::Core(suffix) if suffix == "str" => return Some(Value::String(text)),
            Tagged::Core(suffix) => {
                let value = scalar::resolve(text);
                let fits = match &value {
                    Value::Null => suffix == "null",
                    Value::Bool(_) => suffix == "bool",
                    Value::Integer(_) => suffix == "int" || suffix == "float",
                    Value::Float(_) => suffix == "float",
                    Value::String(_) | Value::Sequence(_) | Value::Mapping(_) => false,
                };
                if fits {
                    return Some(value);
                }
                format!("!!{suffix}")
            }
            Tagged::Other(tag) if tag == "!" => return Some(Value::String(text)),
            Tagged::Other(tag) => tag.clone(),
        };
        self.bad_tag(&shown, range);
        None
    }

    fn check_tag(&mut self, properties: &Properties, own: &str, range: Range) {
        match &properties.tag {
            Some(Tagged::Core(suffix)) if suffix != own => {
                self.bad_tag(&format!("!!{suffix}"), range);
            }
            Some(Tagged::Other(tag)) if tag != "!" => self.bad_tag(tag, range),
            Some(Tagged::Core(_) | Tagged::Other(_)) | None => {}
        }
    }

    fn bad_tag(&mut self, tag: &str, range: Range) {
        let message = format!("the tag {} does not fit this value", quote(tag));
        let diagnostic = Diagnostic::new(Code::UnknownTag, self.span(range), message)
            .with_help("remove the tag; quotes make a value text");
        self.report(diagnostic);
    }

    fn spend(&mut self, weight: usize, code: Code, range: Range) -> Outcome {
        self.weight += weight;
        if self.weight <= NODES_MAX || self.closing {
            return Outcome::GoOn;
        }
        let message = match code {
            Code::TooManyAliases => {
                format!(
                    "with its aliases written out, the document has more than {NODES_MAX} values"
                )
            }
            _ => format!("the document has more than {NODES_MAX} values"),
        };
        let diagnostic = Diagnostic::new(code, self.span(range), message)
            .with_help("split it into several objects");
        self.report(diagnostic);
        Outcome::Abandon
    }

    fn span(&self, range: Range) -> Span {
        range.in_file(self.file)
    }

    fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic.in_document(self.index));
    }
}

/// The finding for nesting below the limit.
pub(super) fn too_deep(span: Span) -> Diagnostic {
    let message = format!("lists and mappings nest more than {DEPTH_MAX} deep here");
    Diagnostic::new(Code::TooDeep, span, message)
}

/// The text of a value that is text.
fn text_of<'a>(value: &Value<'a>) -> Option<Cow<'a, str>> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Null
        | Value::Bool(_)
        | Value::Integer(_)
        | Value::Float(_)
        | Value::Sequence(_)
        | Value::Mapping(_) => None,
    }
}

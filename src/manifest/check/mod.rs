//! Rules between objects, one function each. They read the decoded catalog and name places by
//! path; only where something is wrong is the file read again to find the place's line.

mod budget;
mod identity;
mod reference;
mod value;

use std::collections::BTreeMap;

use super::walk::{Step, pointer};
use super::{ManifestFile, envelope};
use crate::diagnostic::{Code, Diagnostic, Range, Span};
use crate::model::desired::Catalog;
use crate::model::kind::ObjectRef;
use crate::yaml::{self, Parsed};

/// A document: the file's place in path order, the document's place in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) file: usize,
    pub(super) document: u32,
}

/// Every object that a document names, with all documents that name it, in order.
pub(super) type Declared = BTreeMap<ObjectRef, Vec<Place>>;

/// What rules read and write.
struct Context<'c> {
    catalog: &'c Catalog,
    declared: &'c Declared,
    findings: Vec<Finding>,
}

/// Something wrong between objects.
pub(super) struct Finding {
    code: Code,
    target: Target,
    message: String,
    help: Option<String>,
    labels: Vec<(Target, String)>,
}

/// A place in a document, by path.
#[derive(Clone)]
struct Target {
    place: Place,
    path: Vec<Step>,
    /// The last key itself rather than its value.
    is_key: bool,
}

const RULES: [fn(&mut Context<'_>); 14] = [
    identity::objects_are_unique,
    identity::fleet_is_one,
    identity::uids_are_unique,
    reference::workspaces_exist,
    reference::workspaces_list_repos,
    reference::spaces_use_what_exists,
    reference::agents_use_what_exists,
    reference::work_goes_to_agents_of_its_space,
    reference::modes_can_be_met,
    value::lists_are_sets,
    value::times_exist,
    value::variables_are_settable,
    value::commands_have_a_program,
    budget::scopes_fit,
];

/// Applies every rule.
pub(super) fn run(catalog: &Catalog, declared: &Declared) -> Vec<Finding> {
    let mut context = Context {
        catalog,
        declared,
        findings: Vec::new(),
    };
    for rule in RULES {
        rule(&mut context);
    }
    context.findings
}

impl Context<'_> {
    /// A finding in the first document that declares `object`.
    fn report(
        &mut self,
        code: Code,
        object: &ObjectRef,
        path: Vec<Step>,
        message: String,
    ) -> &mut Finding {
        let target = self.target(object, path);
        self.report_at(code, target, message)
    }

    fn report_at(&mut self, code: Code, target: Target, message: String) -> &mut Finding {
        let at = self.findings.len();
        self.findings.push(Finding {
            code,
            target,
            message,
            help: None,
            labels: Vec::new(),
        });
        &mut self.findings[at]
    }

    fn target(&self, object: &ObjectRef, path: Vec<Step>) -> Target {
        Target {
            place: self.declared[object][0],
            path,
            is_key: false,
        }
    }
}

impl Finding {
    fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(help.into());
        self
    }

    /// The last key of the path, not its value.
    fn at_key(&mut self) -> &mut Self {
        self.target.is_key = true;
        self
    }

    fn label(&mut self, target: Target, message: &str) -> &mut Self {
        self.labels.push((target, message.to_owned()));
        self
    }
}

/// A path from keys and indexes.
macro_rules! at {
    ($($step:expr),* $(,)?) => { vec![$($crate::manifest::walk::Step::from($step)),*] };
}
use at;

/// Turns findings into diagnostics by reading the files that they are in once more.
pub(super) fn locate(findings: Vec<Finding>, files: &[&ManifestFile]) -> Vec<Diagnostic> {
    let mut trees = Trees {
        files,
        parsed: BTreeMap::new(),
    };
    findings
        .into_iter()
        .map(|finding| {
            let labels = finding.labels.iter();
            let labels: Vec<(Span, String)> = labels
                .map(|(target, message)| (trees.span(target), message.clone()))
                .collect();
            let place = finding.target.place;
            let span = trees.span(&finding.target);
            let mut diagnostic =
                Diagnostic::new(finding.code, span, finding.message).in_document(place.document);
            diagnostic.path = pointer(&finding.target.path);
            diagnostic.object = trees.root(place).and_then(|root| {
                let name = envelope::read(root).name;
                name.as_ref().map(envelope::object_name)
            });
            diagnostic.help = finding.help;
            for (span, message) in labels {
                diagnostic = diagnostic.with_label(span, message);
            }
            diagnostic
        })
        .collect()
}

/// Files that were read again.
struct Trees<'f> {
    files: &'f [&'f ManifestFile],
    parsed: BTreeMap<usize, Parsed<'f>>,
}

impl<'f> Trees<'f> {
    fn root(&mut self, place: Place) -> Option<yaml::NodeRef<'_>> {
        let file: &'f ManifestFile = self.files[place.file];
        let parse = || yaml::parse(&file.path, &file.bytes);
        let parsed = self.parsed.entry(place.file).or_insert_with(parse);
        let documents = &parsed.documents;
        let at = documents.binary_search_by_key(&place.document, |it| it.index);
        Some(documents[at.ok()?].root())
    }

    fn span(&mut self, target: &Target) -> Span {
        let file: &'f ManifestFile = self.files[target.place.file];
        let range = self.root(target.place).map(|root| find(root, target));
        let start = Range::at(crate::diagnostic::Position::START);
        range.unwrap_or(start).in_file(&file.path)
    }
}

/// The place that a path leads to, or the last on its way that is written.
fn find(root: yaml::NodeRef<'_>, target: &Target) -> Range {
    let mut node = root;
    let mut range = root.range();
    let mut is_written = true;
    for step in &target.path {
        let next = match step {
            Step::Key(key) => node.get(key),
            Step::Index(index) => node.items().nth(*index).map(|item| (item.range(), item)),
        };
        let Some((key, value)) = next else {
            is_written = false;
            break;
        };
        range = key;
        node = value;
    }
    let is_empty = node.range().start == node.range().end;
    if target.is_key || is_empty || !is_written {
        range
    } else {
        node.range()
    }
}

//! From files to desired state: every fault of every document in one pass, or a catalog.
//!
//! Stages: text → spanned tree ([`crate::yaml`]) → envelope (which kind, which object) → shape
//! (the tree against the kind's JSON Schema) → typed decoding of clean documents → rules between
//! objects. The first three go on after faults; nothing here reads a file or a clock.

/// Evaluates `$body` with `$spec` naming the spec struct of `$kind`.
macro_rules! with_spec {
    ($kind:expr, $spec:ident => $body:expr) => {
        match $kind {
            Kind::Fleet => {
                type $spec = $crate::model::spec::FleetSpec;
                $body
            }
            Kind::Workspace => {
                type $spec = $crate::model::spec::WorkspaceSpec;
                $body
            }
            Kind::Repo => {
                type $spec = $crate::model::spec::RepoSpec;
                $body
            }
            Kind::Adapter => {
                type $spec = $crate::model::spec::AdapterSpec;
                $body
            }
            Kind::BudgetPolicy => {
                type $spec = $crate::model::spec::BudgetPolicySpec;
                $body
            }
            Kind::Agent => {
                type $spec = $crate::model::spec::AgentSpec;
                $body
            }
            Kind::Space => {
                type $spec = $crate::model::spec::SpaceSpec;
                $body
            }
            Kind::Ticket => {
                type $spec = $crate::model::spec::TicketSpec;
                $body
            }
            Kind::Dispatch => {
                type $spec = $crate::model::spec::DispatchSpec;
                $body
            }
            Kind::Schedule => {
                type $spec = $crate::model::spec::ScheduleSpec;
                $body
            }
        }
    };
}

mod allow;
mod check;
mod decode;
mod envelope;
pub mod field;
mod refine;
pub mod schema;
mod shape;
#[cfg(test)]
mod tests;
mod walk;

pub use decode::{CatalogError, catalog_of};

use std::collections::BTreeMap;
use std::sync::LazyLock;

use strum::IntoEnumIterator;

use self::check::Place;
use self::envelope::Envelope;
use self::shape::Shape;
use self::walk::Fault;
use crate::diagnostic::render::{Checked, Report};
use crate::diagnostic::{self, Allowed, Diagnostic, ObjectName, Severity};
use crate::model::desired::{Catalog, Document};
use crate::model::kind::{Kind, ObjectRef, Origin};
use crate::yaml;

/// A file of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFile {
    /// Path within the source, with `/`.
    pub path: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// What a set of files declares.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Every valid object in canonical form, in reference order.
    pub documents: Vec<Document>,
    /// The same objects, decoded.
    pub catalog: Catalog,
    /// What is wrong, in report order. With an error among them the revision is not accepted, and
    /// documents and catalog hold only the objects that were valid by themselves.
    pub diagnostics: Vec<Diagnostic>,
    /// Warnings that a comment lets pass, in report order.
    pub allowed: Vec<Allowed>,
    /// How much was looked at.
    pub checked: Checked,
}

impl Loaded {
    /// Whether the files can be accepted.
    pub fn is_valid(&self) -> bool {
        let error = |it: &Diagnostic| it.severity() == Severity::Error;
        !self.diagnostics.iter().any(error)
    }

    /// What renderers are given.
    pub fn report(&self) -> Report<'_> {
        Report {
            diagnostics: &self.diagnostics,
            allowed: &self.allowed,
            checked: self.checked,
        }
    }
}

/// Reads, checks and decodes files. The result depends on paths and contents alone, not on order.
pub fn load(files: &[ManifestFile]) -> Loaded {
    let mut sorted: Vec<&ManifestFile> = files.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    let mut loader = Loader::default();
    for (index, file) in sorted.iter().enumerate() {
        loader.file(index, file);
    }
    let findings = check::run(&loader.loaded.catalog, &loader.declared);
    let mut loaded = loader.loaded;
    loaded.diagnostics.extend(check::locate(findings, &sorted));
    loaded
        .documents
        .sort_by(|a, b| a.reference.cmp(&b.reference));
    loaded.checked.files = sorted.len();
    diagnostic::sort(&mut loaded.diagnostics);
    loaded.allowed = allow::apply(&sorted, &mut loaded.diagnostics);
    diagnostic::sort(&mut loaded.diagnostics);
    loaded
}

/// Whether a file of the source is read: `.yaml` or `.yml`, in no directory (and of no name) that
/// begins with a dot. `path` is within the source, with `/`.
pub fn is_manifest_path(path: &str) -> bool {
    let hidden = path.split('/').any(|part| part.starts_with('.'));
    !hidden && (path.ends_with(".yaml") || path.ends_with(".yml"))
}

#[derive(Default)]
struct Loader {
    loaded: Loaded,
    /// Every object that some document names, also where the rest of the document is wrong.
    declared: BTreeMap<ObjectRef, Vec<Place>>,
}

impl Loader {
    fn file(&mut self, index: usize, file: &ManifestFile) {
        let parsed = yaml::parse(&file.path, &file.bytes);
        let mut names = BTreeMap::new();
        for document in &parsed.documents {
            self.loaded.checked.documents += 1;
            if let Some(name) = self.document(index, &file.path, document) {
                names.insert(document.index, name);
            }
        }
        let named = parsed.diagnostics.into_iter().map(|mut diagnostic| {
            let document = diagnostic.document;
            diagnostic.object = document.and_then(|it| names.get(&it).cloned());
            diagnostic
        });
        self.loaded.diagnostics.extend(named);
    }

    /// Checks and decodes one document; the object that it names.
    fn document(
        &mut self,
        file: usize,
        path: &str,
        document: &yaml::Document<'_>,
    ) -> Option<ObjectName> {
        let Envelope { kind, name, faults } = envelope::read(document.root());
        let object = name.as_ref().map(envelope::object_name);
        if let Some(reference) = &name {
            let place = Place {
                file,
                document: document.index,
            };
            let places = self.declared.entry(reference.clone()).or_default();
            places.push(place);
        }
        if !document.complete {
            return object;
        }
        let mut faults = faults;
        if let Some(kind) = kind {
            let found = walk::check(shape_of(kind), document.root());
            faults.extend(found.into_iter().map(|fault| refine::refine(kind, fault)));
        }
        let clean = document.sound && !faults.iter().any(Fault::is_error);
        let report = |fault: Fault| to_diagnostic(fault, path, document.index, object.clone());
        self.loaded
            .diagnostics
            .extend(faults.into_iter().map(report));
        if let (true, Some(reference)) = (clean, name) {
            self.decode(&reference, path, document);
        }
        object
    }

    fn decode(&mut self, reference: &ObjectRef, path: &str, document: &yaml::Document<'_>) {
        let root = document.root();
        let origin = Origin {
            path: path.to_owned(),
            line: root.range().start.line,
        };
        match decode::decode(reference, root, origin, &mut self.loaded.catalog) {
            Ok(Some(document)) => self.loaded.documents.push(document),
            // The second of two definitions: reported between objects.
            Ok(None) => {}
            Err(error) => {
                let message = format!("{reference} cannot be decoded: {error}");
                let span = root.range().in_file(path);
                let diagnostic = Diagnostic::new(diagnostic::Code::BadFormat, span, message);
                self.loaded
                    .diagnostics
                    .push(diagnostic.in_document(document.index));
            }
        }
    }
}

fn to_diagnostic(
    fault: Fault,
    file: &str,
    document: u32,
    object: Option<ObjectName>,
) -> Diagnostic {
    Diagnostic {
        span: fault.range.in_file(file),
        code: fault.code,
        message: fault.message,
        path: walk::pointer(&fault.path),
        document: Some(document),
        object,
        labels: Vec::new(),
        help: fault.help,
    }
}

/// The compiled schema of a kind.
fn shape_of(kind: Kind) -> &'static Shape {
    static SHAPES: LazyLock<BTreeMap<Kind, Shape>> = LazyLock::new(|| {
        let compiled = |kind| shape::compile(&schema::of_kind(kind));
        let shape = |kind| compiled(kind).expect("a test compiles the schema of every kind");
        Kind::iter().map(|kind| (kind, shape(kind))).collect()
    });
    &SHAPES[&kind]
}

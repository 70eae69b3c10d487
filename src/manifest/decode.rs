//! Typed decoding, and the canonical form that the store keeps.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::model::desired::{Catalog, Document};
use crate::model::id::Uid;
use crate::model::kind::{API_VERSION, Kind, Metadata, ObjectRef, Origin, Resource};
use crate::model::spec::{
    AdapterSpec, AgentSpec, BudgetPolicySpec, DispatchSpec, FleetSpec, RepoSpec, ScheduleSpec,
    SpaceSpec, TicketSpec, WorkspaceSpec,
};
use crate::model::units::Name;
use crate::yaml::NodeRef;

/// A stored document that this version cannot read.
#[derive(Debug, thiserror::Error)]
#[error("decode the stored document of {reference}")]
pub struct CatalogError {
    reference: ObjectRef,
    #[source]
    source: serde_json::Error,
}

/// The catalog of documents that an earlier [`load`](super::load) returned.
pub fn catalog_of(documents: &[Document]) -> Result<Catalog, CatalogError> {
    let mut catalog = Catalog::default();
    for document in documents {
        let decoded = with_spec!(document.reference.kind, Spec => {
            serde_json::from_str::<Canonical<Spec>>(&document.json)
                .map(|canonical| canonical.store(document, &mut catalog))
        });
        decoded.map_err(|source| CatalogError {
            reference: document.reference.clone(),
            source,
        })?;
    }
    Ok(catalog)
}

/// Decodes a document without faults into `catalog`; its canonical form, or nothing if the catalog
/// has an object of this name already. An error says that schema and decoder disagree, which is
/// our fault.
pub(super) fn decode(
    reference: &ObjectRef,
    root: NodeRef<'_>,
    origin: Origin,
    catalog: &mut Catalog,
) -> Result<Option<Document>, serde_json::Error> {
    let member = |key| root.get(key).map(|(_, node)| node.to_json());
    let metadata = serde_json::from_value(member("metadata").unwrap_or_default())?;
    let spec = member("spec").unwrap_or_default();
    with_spec!(reference.kind, Spec => {
        let spec: Spec = serde_json::from_value(spec)?;
        let canonical = Canonical {
            api_version: API_VERSION.to_owned(),
            kind: reference.kind,
            metadata,
            spec,
        };
        let document = canonical.document(reference, origin)?;
        Ok(canonical.store(&document, catalog).then_some(document))
    })
}

/// A whole document in canonical form: defaults filled in, keys in the order of the fields here
/// and in the specs.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Canonical<S> {
    api_version: String,
    kind: Kind,
    metadata: CanonicalMetadata,
    spec: S,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct CanonicalMetadata {
    name: Name,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    workspace: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid: Option<Uid>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
}

impl<S: Stored + Serialize + DeserializeOwned> Canonical<S> {
    fn document(
        &self,
        reference: &ObjectRef,
        origin: Origin,
    ) -> Result<Document, serde_json::Error> {
        let spec = serde_json::to_vec(&self.spec)?;
        Ok(Document {
            reference: reference.clone(),
            json: serde_json::to_string(self)?,
            spec_hash: hex(&Sha256::digest(&spec)),
            origin,
        })
    }

    /// Puts the object into the catalog; whether its place was free.
    fn store(self, document: &Document, catalog: &mut Catalog) -> bool {
        let metadata = Metadata {
            name: self.metadata.name,
            workspace: self.metadata.workspace,
            uid: self.metadata.uid,
            labels: self.metadata.labels,
            annotations: self.metadata.annotations,
        };
        let resource = Resource {
            metadata,
            spec: self.spec,
            spec_hash: document.spec_hash.clone(),
            origin: document.origin.clone(),
        };
        S::store(catalog, &document.reference, resource)
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(text, "{byte:02x}").expect("a String takes everything");
    }
    text
}

/// A spec that knows its place in the catalog.
trait Stored: Sized {
    /// Puts the object there unless one of its name is; whether it did.
    fn store(catalog: &mut Catalog, reference: &ObjectRef, resource: Resource<Self>) -> bool;
}

impl Stored for FleetSpec {
    fn store(catalog: &mut Catalog, _reference: &ObjectRef, resource: Resource<Self>) -> bool {
        let is_free = catalog.fleet.is_none();
        catalog.fleet.get_or_insert(resource);
        is_free
    }
}

macro_rules! stored {
    ($($spec:ident in $field:ident;)*) => {
        $(impl Stored for $spec {
            fn store(
                catalog: &mut Catalog,
                reference: &ObjectRef,
                resource: Resource<Self>,
            ) -> bool {
                let is_free = !catalog.$field.contains_key(reference);
                catalog.$field.entry(reference.clone()).or_insert(resource);
                is_free
            }
        })*
    };
}

stored! {
    WorkspaceSpec in workspaces;
    RepoSpec in repos;
    AdapterSpec in adapters;
    BudgetPolicySpec in budget_policies;
    AgentSpec in agents;
    SpaceSpec in spaces;
    TicketSpec in tickets;
    DispatchSpec in dispatches;
    ScheduleSpec in schedules;
}

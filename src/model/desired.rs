//! Desired state: every object of one accepted revision.

use std::collections::BTreeMap;

use super::kind::{Kind, Metadata, ObjectRef, Origin, Resource};
use super::spec::{
    AdapterSpec, AgentSpec, BudgetPolicySpec, DispatchSpec, FleetSpec, RepoSpec, ScheduleSpec,
    SpaceSpec, TicketSpec, WorkspaceSpec,
};
use super::units::Name;

/// The canonical form of one object, as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Which object.
    pub reference: ObjectRef,
    /// The whole object as JSON with defaults filled in, keys in the schema's order.
    pub json: String,
    /// Hex SHA-256 of the canonical spec.
    pub spec_hash: String,
    /// Where it was written.
    pub origin: Origin,
}

/// The objects of one kind.
pub type Objects<S> = BTreeMap<ObjectRef, Resource<S>>;

/// Every valid object at one revision. References between objects were checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalog {
    /// The one Fleet, if the source declares it.
    pub fleet: Option<Resource<FleetSpec>>,
    /// Workspaces.
    pub workspaces: Objects<WorkspaceSpec>,
    /// Repos.
    pub repos: Objects<RepoSpec>,
    /// Adapters.
    pub adapters: Objects<AdapterSpec>,
    /// Budget policies.
    pub budget_policies: Objects<BudgetPolicySpec>,
    /// Agents.
    pub agents: Objects<AgentSpec>,
    /// Spaces.
    pub spaces: Objects<SpaceSpec>,
    /// Tickets.
    pub tickets: Objects<TicketSpec>,
    /// Dispatches.
    pub dispatches: Objects<DispatchSpec>,
    /// Schedules.
    pub schedules: Objects<ScheduleSpec>,
}

impl Catalog {
    /// The fleet's settings, or their defaults.
    pub fn fleet_spec(&self) -> FleetSpec {
        self.fleet
            .as_ref()
            .map(|fleet| fleet.spec.clone())
            .unwrap_or_default()
    }

    /// Metadata and origin of every object, with its spec hash, in reference order.
    pub fn index(&self) -> BTreeMap<ObjectRef, ObjectIndex<'_>> {
        let mut index = BTreeMap::new();
        if let Some(fleet) = &self.fleet {
            index.insert(
                reference_of(Kind::Fleet, &fleet.metadata),
                ObjectIndex::of(fleet),
            );
        }
        collect(&mut index, &self.workspaces);
        collect(&mut index, &self.repos);
        collect(&mut index, &self.adapters);
        collect(&mut index, &self.budget_policies);
        collect(&mut index, &self.agents);
        collect(&mut index, &self.spaces);
        collect(&mut index, &self.tickets);
        collect(&mut index, &self.dispatches);
        collect(&mut index, &self.schedules);
        index
    }

    /// Names of the repos that a space provisions: its allowlist, or all of its workspace's.
    pub fn repos_of_space(&self, space: &ObjectRef) -> Vec<Name> {
        let Some(resource) = self.spaces.get(space) else {
            return Vec::new();
        };
        if let Some(repos) = &resource.spec.repos {
            return repos.clone();
        }
        let Some(workspace) = &space.workspace else {
            return Vec::new();
        };
        let reference = ObjectRef {
            kind: Kind::Workspace,
            workspace: None,
            name: workspace.clone(),
        };
        self.workspaces
            .get(&reference)
            .map(|it| it.spec.repos.clone())
            .unwrap_or_default()
    }
}

/// What every kind's object has in common, borrowed from a catalog.
#[derive(Clone, Copy, Debug)]
pub struct ObjectIndex<'a> {
    /// Its metadata.
    pub metadata: &'a Metadata,
    /// Hash of its canonical spec.
    pub spec_hash: &'a str,
    /// Where it was written.
    pub origin: &'a Origin,
}

impl<'a> ObjectIndex<'a> {
    fn of<S>(resource: &'a Resource<S>) -> Self {
        Self {
            metadata: &resource.metadata,
            spec_hash: &resource.spec_hash,
            origin: &resource.origin,
        }
    }
}

fn collect<'a, S>(index: &mut BTreeMap<ObjectRef, ObjectIndex<'a>>, objects: &'a Objects<S>) {
    for (reference, resource) in objects {
        index.insert(reference.clone(), ObjectIndex::of(resource));
    }
}

/// The reference of the object that `metadata` names.
pub fn reference_of(kind: Kind, metadata: &Metadata) -> ObjectRef {
    ObjectRef {
        kind,
        workspace: metadata.workspace.clone(),
        name: metadata.name.clone(),
    }
}

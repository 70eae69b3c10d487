//! The prune guard: whether a revision may be accepted, or removes so much that somebody has to
//! confirm it first.

use std::collections::BTreeSet;

use super::PlanInput;
use crate::model::desired::Catalog;
use crate::model::id::Uid;
use crate::model::kind::{Kind, ObjectRef};
use crate::model::observed::{ObjectState, Observed};
use crate::model::spec::FirstRevision;
use crate::model::ticket::TicketStatus;

/// The annotation on the Fleet that confirms a removal. Its value is the exact count.
pub const ALLOW_PRUNE: &str = "homeostat/allow-prune";

/// Whether somebody confirmed the revision beside the commit itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// Nobody did.
    None,
    /// An operator approved this revision.
    Given,
}

/// What becomes of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// It is accepted.
    Accept {
        /// Whether its run-once objects are held, because this database never accepted a revision
        /// before.
        first_revision_held: bool,
    },
    /// It waits for a confirmation.
    Hold {
        /// How many objects it removes: what the annotation has to say.
        removed: usize,
        /// What it removes, and how to confirm it.
        message: String,
    },
}

/// Judges the revision whose objects are `input.catalog` by what exists.
pub fn judge(input: &PlanInput<'_>, approval: Approval) -> Verdict {
    let PlanInput {
        catalog, observed, ..
    } = *input;
    let fleet = catalog.fleet_spec();
    let is_first = observed.revision.is_none();
    let accept = Verdict::Accept {
        first_revision_held: is_first && fleet.first_revision == FirstRevision::Hold,
    };
    let removal = Removal::of(observed, catalog);
    let count = removal.objects.len();
    let Some(why) = removal.objection(catalog) else {
        return accept;
    };
    if approval == Approval::Given || allowed(catalog) == Some(count) {
        return accept;
    }
    Verdict::Hold {
        removed: count,
        message: format!(
            "it removes {why}; confirm with the annotation {ALLOW_PRUNE}: \"{count}\" on the \
             Fleet, or approve the revision"
        ),
    }
}

/// What a revision removes.
struct Removal<'a> {
    objects: BTreeSet<&'a ObjectRef>,
    /// Objects that count, removed or not.
    total: usize,
    /// The first removed space with a live run.
    busy: Option<&'a ObjectRef>,
}

impl<'a> Removal<'a> {
    fn of(observed: &'a Observed, catalog: &Catalog) -> Self {
        let declared = catalog.index();
        // A pinned uid keeps its object over a rename.
        let pinned: BTreeSet<Uid> = declared.values().filter_map(|it| it.metadata.uid).collect();
        let counting = observed.objects.iter().filter(|(reference, state)| {
            state.deletion_requested_at.is_none() && !has_finished(observed, reference, state)
        });
        let counting: Vec<(&ObjectRef, &ObjectState)> = counting.collect();
        let removed = counting.iter().filter(|(reference, state)| {
            !declared.contains_key(*reference) && !pinned.contains(&state.uid)
        });
        let removed: Vec<(&ObjectRef, &ObjectState)> = removed.copied().collect();
        let busy = removed.iter().find(|(_, state)| {
            let mut runs = observed.live_runs.values();
            runs.any(|run| run.space == state.uid)
        });
        Self {
            busy: busy.map(|(reference, _)| *reference),
            objects: removed.iter().map(|(reference, _)| *reference).collect(),
            total: counting.len(),
        }
    }

    /// Why the removal needs a confirmation, if it does.
    fn objection(&self, catalog: &Catalog) -> Option<String> {
        let prune = catalog.fleet_spec().prune;
        let (count, total) = (self.objects.len(), self.total);
        let max = usize::try_from(prune.objects_max).unwrap_or(usize::MAX);
        let from = usize::try_from(prune.percent_from).unwrap_or(usize::MAX);
        let percent = usize::try_from(prune.percent_max).unwrap_or(100);
        if count == 0 {
            return None;
        }
        if count == total {
            return Some(format!("all {total} objects"));
        }
        if let Some(space) = self.busy {
            return Some(format!("{space}, which has a live run"));
        }
        if count > max {
            let objects = if count == 1 { "object" } else { "objects" };
            return Some(format!("{count} {objects}, more than {max}"));
        }
        if count >= from && count.saturating_mul(100) > total.saturating_mul(percent) {
            return Some(format!("{count} of {total} objects, more than {percent} %"));
        }
        None
    }
}

/// Whether a run-once object is over, so that its absence removes nothing.
fn has_finished(observed: &Observed, reference: &ObjectRef, state: &ObjectState) -> bool {
    match reference.kind {
        Kind::Dispatch => state.dispatched_generation == Some(state.generation),
        Kind::Ticket => {
            let ticket = observed.tickets.get(&state.uid);
            ticket.is_some_and(|it| TicketStatus::is_terminal(it.status))
        }
        Kind::Fleet
        | Kind::Workspace
        | Kind::Repo
        | Kind::Adapter
        | Kind::BudgetPolicy
        | Kind::Agent
        | Kind::Space
        | Kind::Schedule => false,
    }
}

/// The removal that the Fleet's annotation confirms.
fn allowed(catalog: &Catalog) -> Option<usize> {
    let fleet = catalog.fleet.as_ref()?;
    fleet.metadata.annotations.get(ALLOW_PRUNE)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use jiff::Timestamp;

    use super::{Approval, Verdict, judge};
    use crate::model::desired::{Catalog, reference_of};
    use crate::model::id::Uid;
    use crate::model::kind::{Kind, Metadata, Origin, Resource, Revision};
    use crate::model::observed::{ObjectState, Observed};
    use crate::model::spec::WorkspaceSpec;
    use crate::plan::PlanInput;

    fn workspace(name: &str, uid: Option<Uid>) -> Resource<WorkspaceSpec> {
        Resource {
            metadata: Metadata {
                name: name.parse().unwrap(),
                workspace: None,
                uid,
                labels: BTreeMap::new(),
                annotations: BTreeMap::new(),
            },
            spec: WorkspaceSpec {
                display_name: None,
                owner: None,
                repos: Vec::new(),
            },
            spec_hash: "hash".to_owned(),
            origin: Origin {
                path: "fleet.yaml".to_owned(),
                line: 1,
            },
        }
    }

    #[test]
    fn a_pinned_uid_keeps_its_object_over_a_rename() {
        let uid = Uid::derived(&["old"]);
        let now = Timestamp::UNIX_EPOCH;
        let state = ObjectState {
            uid,
            generation: 1,
            spec_hash: "hash".to_owned(),
            revision: Revision::new("one"),
            created_at: now,
            generation_since: now,
            dispatched_generation: None,
            first_revision_generation: None,
            deletion_requested_at: None,
        };
        let old = reference_of(Kind::Workspace, &workspace("old", None).metadata);
        let observed = Observed {
            revision: Some(Revision::new("one")),
            objects: BTreeMap::from([(old, state)]),
            ..Observed::default()
        };
        for (pin, is_accepted) in [(Some(uid), true), (None, false)] {
            let new = workspace("new", pin);
            let reference = reference_of(Kind::Workspace, &new.metadata);
            let catalog = Catalog {
                workspaces: BTreeMap::from([(reference, new)]),
                ..Catalog::default()
            };
            let input = PlanInput {
                catalog: &catalog,
                observed: &observed,
                now,
            };
            let verdict = judge(&input, Approval::None);
            let accepted = matches!(verdict, Verdict::Accept { .. });
            assert_eq!(accepted, is_accepted, "{verdict:?}");
        }
    }
}

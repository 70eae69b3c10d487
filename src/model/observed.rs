//! Observed state: what exists at one instant, as rows, disk and processes say.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

use super::backoff::{BACKOFF_MAX, to_come};
use super::budget::{BudgetPause, IncidentKind, Reservation, ScopeKey, Spend};
use super::id::{OverrideId, RunId, Uid, WorktreeId};
use super::kind::{Kind, ObjectRef, Revision};
use super::run::{EndedRun, LiveRun};
use super::spec::{BudgetScope, BudgetScopeKind, Mode};
use super::ticket::TicketStatus;
use super::wake::QueuedWake;

/// What is remembered of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectState {
    /// Its identity.
    pub uid: Uid,
    /// Rises with every change of its spec.
    pub generation: i64,
    /// Hash of the spec at that generation.
    pub spec_hash: String,
    /// The revision that brought that generation.
    pub revision: Revision,
    /// When it was first seen.
    pub created_at: Timestamp,
    /// When that generation was accepted.
    pub generation_since: Timestamp,
    /// The highest generation that was dispatched (Dispatch objects).
    pub dispatched_generation: Option<i64>,
    /// The generation that a first revision brought: it is held while it is still this one.
    pub first_revision_generation: Option<i64>,
    /// When a revision stopped declaring it. Its finalizers have not finished.
    pub deletion_requested_at: Option<Timestamp>,
}

/// How far a worktree or a space's root has come.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum TreePhase {
    /// Its row is written; it may be half made.
    Provisioning,
    /// It is complete.
    Ready,
    /// It is on its way to the trash.
    Reclaiming,
}

/// A space's working root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceRoot {
    /// Its workspace.
    pub workspace: Uid,
    /// Absolute path.
    pub path: String,
    /// How far it has come.
    pub phase: TreePhase,
    /// Absolute path of each agent's overlay directory.
    pub overlays: BTreeMap<Uid, String>,
}

/// One worktree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worktree {
    /// Its id.
    pub id: WorktreeId,
    /// Its workspace.
    pub workspace: Uid,
    /// Its space.
    pub space: Uid,
    /// Its repo.
    pub repo: Uid,
    /// The repo's name when it was made.
    pub repo_name: String,
    /// Absolute path.
    pub path: String,
    /// The branch it is on.
    pub branch: String,
    /// The commit that the branch started from, hex; none until it is ready.
    pub base: Option<String>,
    /// `reflink` or `git`.
    pub backend: WorktreeBackend,
    /// How far it has come.
    pub phase: TreePhase,
}

/// How worktrees are made: a host's setting.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum WorktreeBackend {
    /// Copy-on-write clones.
    Reflink,
    /// Ordinary checkouts, for hosts that cannot reflink.
    Git,
}

/// What is remembered of a ticket beside its spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketState {
    /// Where it is.
    pub status: TicketStatus,
    /// Whom it was last assigned to.
    pub assignee: Option<Uid>,
    /// How often it was assigned.
    pub assignments: u32,
}

/// An operator's pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorPause {
    /// Its id.
    pub id: OverrideId,
    /// What is paused: an Agent.
    pub target: Uid,
    /// Who paused it.
    pub by: String,
    /// Why.
    pub reason: Option<String>,
    /// When it was set.
    pub since: Timestamp,
    /// When it expires; none: when it is removed.
    pub until: Option<Timestamp>,
}

/// What a provider asked one run of an Adapter for, and thereby every run of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderPause {
    /// Until when it asked to be left alone.
    pub until: Timestamp,
    /// The status of the answer that said so.
    pub status: u16,
    /// The run that got it.
    pub run: RunId,
}

/// A space that a person took over: nothing runs there until it is handed back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Takeover {
    /// Its id.
    pub id: OverrideId,
    /// The space.
    pub space: Uid,
    /// Who took it over.
    pub by: String,
    /// Why.
    pub reason: Option<String>,
    /// When.
    pub since: Timestamp,
}

/// The emergency stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estop {
    /// Who set it.
    pub by: String,
    /// Why.
    pub reason: Option<String>,
}

/// An action that failed lately, by the action's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// How often in a row.
    pub failures: u32,
    /// When it may be tried again; none: not before the generation changes.
    pub not_before: Option<Timestamp>,
    /// The generation that it was planned against.
    pub generation: i64,
    /// The reason code of the failure.
    pub code: String,
    /// What went wrong, with the remedy.
    pub message: String,
}

impl Backoff {
    /// Until when the action is left alone, if it is at `now`; none also where only a change of the
    /// spec helps. No wait is longer than [`BACKOFF_MAX`]: a next try that lies further away was set
    /// by a clock that was put back since, and is due.
    pub fn waits_until(&self, now: Timestamp) -> Option<Timestamp> {
        to_come(self.not_before?, BACKOFF_MAX, now)
    }

    /// Whether the action is left alone at `now`, for a time or until the spec changes.
    pub fn waits(&self, now: Timestamp) -> bool {
        self.not_before.is_none() || self.waits_until(now).is_some()
    }
}

/// Everything that the planner reads beside the catalog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The accepted revision; none before the first.
    pub revision: Option<Revision>,
    /// Every object that exists, or is being deleted.
    pub objects: BTreeMap<ObjectRef, ObjectState>,
    /// Roots by space.
    pub roots: BTreeMap<Uid, SpaceRoot>,
    /// Worktrees.
    pub worktrees: BTreeMap<WorktreeId, Worktree>,
    /// Wakes that wait, in queue order.
    pub wakes: Vec<QueuedWake>,
    /// Runs whose row is live, by id.
    pub live_runs: BTreeMap<RunId, LiveRun>,
    /// Closed runs that are not settled, oldest first.
    pub ended_runs: Vec<EndedRun>,
    /// Tickets by uid.
    pub tickets: BTreeMap<Uid, TicketState>,
    /// The last slot that each schedule fired or skipped.
    pub schedule_slots: BTreeMap<Uid, Timestamp>,
    /// Operators' pauses.
    pub operator_pauses: Vec<OperatorPause>,
    /// Pauses that providers asked for, by the Adapter's name. Those that an Adapter's earlier
    /// generation was asked for are over: it may have another key now.
    pub provider_pauses: BTreeMap<String, ProviderPause>,
    /// Spaces that people took over, by uid.
    pub takeovers: BTreeMap<Uid, Takeover>,
    /// Budgets' pauses.
    pub budget_pauses: BTreeMap<ScopeKey, BudgetPause>,
    /// Month-to-date spend by the budget's object (a BudgetPolicy, or an Agent's own figure).
    pub spend: BTreeMap<ObjectRef, Spend>,
    /// What a run of each agent in a mode is expected to use at most; none while too few runs tell.
    pub estimates: BTreeMap<(Uid, Mode), Reservation>,
    /// Agents whose model has no price, with the model.
    pub unpriced: BTreeMap<Uid, String>,
    /// Incidents recorded, by scope, window and kind.
    pub incidents: BTreeSet<(ScopeKey, String, IncidentKind)>,
    /// The emergency stop of this host, if it is set.
    pub estop: Option<Estop>,
    /// Failures that wait, by action key.
    pub backoffs: BTreeMap<String, Backoff>,
    /// Whether the daemon is stopping: nothing new is admitted.
    pub is_draining: bool,
    /// How worktrees are made on this host.
    pub backend: Option<WorktreeBackend>,
}

impl Observed {
    /// What the budget declared as `budget` is over, by identity; none while the object that
    /// `scope` names is not there.
    pub fn scope_key(&self, budget: &ObjectRef, scope: &BudgetScope) -> Option<ScopeKey> {
        if scope.kind == BudgetScopeKind::Fleet {
            return Some(ScopeKey {
                kind: scope.kind,
                uid: None,
            });
        }
        let kind = scope.kind.kind();
        let workspace = budget.workspace.clone().filter(|_| kind != Kind::Workspace);
        let reference = ObjectRef {
            kind,
            workspace,
            name: scope.name.clone()?,
        };
        let uid = self.active(&reference)?.uid;
        Some(ScopeKey {
            kind: scope.kind,
            uid: Some(uid),
        })
    }

    /// The state of the object, if it is known and not being deleted.
    pub fn active(&self, reference: &ObjectRef) -> Option<&ObjectState> {
        self.objects
            .get(reference)
            .filter(|state| state.deletion_requested_at.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::{BACKOFF_MAX, Backoff};
    use jiff::Timestamp;
    use std::time::Duration;

    #[test]
    fn a_clock_that_was_put_back_holds_nothing_for_hours() {
        let at = |secs| Timestamp::from_second(secs).unwrap();
        let backoff = |not_before| Backoff {
            failures: 3,
            not_before,
            generation: 1,
            code: "dispatch".to_owned(),
            message: "drive a run".to_owned(),
        };
        let next = at(10_000);
        let waiting = backoff(Some(next));
        let longest = next.saturating_sub(BACKOFF_MAX).unwrap();
        let earlier = longest.saturating_sub(Duration::from_nanos(1)).unwrap();
        for (now, until) in [
            (next, None),
            (at(9_999), Some(next)),
            (longest, Some(next)),
            (earlier, None),
            (at(0), None),
        ] {
            assert_eq!(waiting.waits_until(now), until, "{now}");
            assert_eq!(waiting.waits(now), until.is_some(), "{now}");
        }
        let terminal = backoff(None);
        assert!(terminal.waits(next) && terminal.waits_until(next).is_none());
    }
}

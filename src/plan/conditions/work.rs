//! Conditions of spaces, and of what makes agents work.

use super::{Facts, Says, Stand, no, yes};
use crate::model::action::HoldReason;
use crate::model::condition::{ConditionReason, ConditionType};
use crate::model::id::Uid;
use crate::model::kind::{Kind, ObjectRef};
use crate::model::observed::ObjectState;
use crate::model::ticket::TicketStatus;
use crate::plan::provision::missing;

impl Facts<'_> {
    /// Whether the space's root, overlays and worktrees are there.
    pub(super) fn provisioned(&self, space: Uid) -> Says {
        const KIND: ConditionType = ConditionType::Provisioned;
        let Some(space) = self.view.spaces.get(&space) else {
            return no(KIND, ConditionReason::Deleting, "it is being removed");
        };
        let wanted = missing(self.view, space);
        let failure = wanted.iter().find_map(|it| self.view.failure_of(it));
        if let Some(failure) = failure {
            let message = format!("{}: {}", failure.code, failure.message);
            return no(KIND, ConditionReason::ProvisionFailed, message);
        }
        if !wanted.is_empty() || !space.awaited.is_empty() {
            let message = "its root or its worktrees are being made";
            return no(KIND, ConditionReason::Provisioning, message);
        }
        if self.view.overlays_wanted(space).is_empty() {
            let message = "no agent serves it, so nothing is made";
            return no(KIND, ConditionReason::Idle, message);
        }
        let names: Vec<&str> = space.repos.keys().map(|name| name.as_str()).collect();
        let message = match names.as_slice() {
            [] => "its root is there; it has no repo".to_owned(),
            names => format!("worktrees of {}", names.join(", ")),
        };
        yes(KIND, ConditionReason::AsDeclared, message)
    }

    /// Whether a person has the space, so that no agent works there.
    pub(super) fn taken_over(&self, space: Uid) -> Says {
        const KIND: ConditionType = ConditionType::Paused;
        match self.view.takeover(space) {
            Some(takeover) => yes(KIND, ConditionReason::TakenOver, takeover),
            None => no(KIND, ConditionReason::Active, "nobody has taken it over"),
        }
    }

    pub(super) fn stand_of_space(&self, space: Uid) -> Stand {
        if let Some(takeover) = self.view.takeover(space) {
            // An override is drift from what git says.
            return Stand::Stuck(ConditionReason::TakenOver, takeover);
        }
        let provisioned = self.provisioned(space);
        let Says {
            reason, message, ..
        } = provisioned;
        if matches!(reason, ConditionReason::AsDeclared | ConditionReason::Idle) {
            Stand::Ready(reason, message)
        } else {
            Stand::Moving(reason, message)
        }
    }

    pub(super) fn stand_of_ticket(&self, ticket: Uid) -> Stand {
        let status = self.view.ticket_state(ticket).status;
        let message = format!("status {status}");
        match status {
            TicketStatus::Failed => {
                let message = "status failed: its last run failed".to_owned();
                Stand::Stuck(ConditionReason::LastRunFailed, message)
            }
            TicketStatus::Blocked => {
                let message = "status blocked: somebody has to look".to_owned();
                Stand::Stuck(ConditionReason::Waiting, message)
            }
            TicketStatus::Backlog
            | TicketStatus::Open
            | TicketStatus::InProgress
            | TicketStatus::InReview
            | TicketStatus::Done
            | TicketStatus::Cancelled => Stand::Ready(ConditionReason::AsDeclared, message),
        }
    }

    /// Whether a run of the object is live, or waits.
    pub(super) fn dispatching(&self, reference: &ObjectRef, state: &ObjectState) -> Says {
        const KIND: ConditionType = ConditionType::Dispatching;
        if let Some(agent) = self.running.get(&state.uid) {
            let message = format!("a run of {} is live", self.view.name(*agent));
            return yes(KIND, ConditionReason::Running, message);
        }
        let waiting = self.waiting.get(&state.uid).map_or(&[][..], Vec::as_slice);
        if let Some(first) = waiting.first() {
            let hold = self.wake_holds.get(&first.id);
            let message = match hold {
                Some(hold) => format!("{}: {}", hold.reason, hold.message),
                None => "its run is about to start".to_owned(),
            };
            return yes(KIND, ConditionReason::Waiting, message);
        }
        let hold = self.holds.get(reference);
        if let Some(hold) = hold.filter(|hold| hold.reason == HoldReason::FirstRevision) {
            return no(KIND, ConditionReason::FirstRevision, hold.message.clone());
        }
        if reference.kind == Kind::Dispatch && state.dispatched_generation == Some(state.generation)
        {
            let message = format!("generation {} was dispatched", state.generation);
            return no(KIND, ConditionReason::Dispatched, message);
        }
        no(KIND, ConditionReason::Idle, "nothing runs or waits")
    }
}

//! What the steps write: actions, holds, and when to look again.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::view::View;
use crate::model::action::{Action, Hold, HoldReason, HoldSubject, Plan, TicketChange};
use crate::model::id::{Uid, WakeId};
use crate::model::observed::Backoff;
use crate::model::ticket::TicketStatus;

/// A plan in the making.
#[derive(Debug)]
pub(super) struct PlanCx<'a> {
    /// What is read.
    pub(super) view: &'a View<'a>,
    actions: Vec<Action>,
    holds: BTreeMap<HoldSubject, (HoldReason, String)>,
    wake_at: Option<Timestamp>,
    /// Tickets whose status this plan changes, with the status that it leaves them in.
    ticket_changes: BTreeMap<Uid, TicketStatus>,
    /// Wakes that live runs are told of.
    told: BTreeSet<WakeId>,
}

impl<'a> PlanCx<'a> {
    /// An empty plan.
    pub(super) const fn new(view: &'a View<'a>) -> Self {
        Self {
            view,
            actions: Vec::new(),
            holds: BTreeMap::new(),
            wake_at: None,
            ticket_changes: BTreeMap::new(),
            told: BTreeSet::new(),
        }
    }

    /// Adds an action that no earlier failure may delay.
    pub(super) fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// Adds `action`, unless an earlier failure of it still waits: then `subject` is held.
    /// Answers whether it was added.
    pub(super) fn act(&mut self, action: Action, subject: HoldSubject) -> bool {
        match self.view.failure_of(&action) {
            Some(failure) => {
                self.hold_failed(subject, failure);
                false
            }
            None => {
                self.actions.push(action);
                true
            }
        }
    }

    fn hold_failed(&mut self, subject: HoldSubject, failure: &Backoff) {
        let Backoff {
            failures,
            code,
            message,
            ..
        } = failure;
        match failure.not_before {
            Some(at) => {
                self.look_at(at);
                let text = format!("{code}: {message} (failed {failures}×, next try at {at})");
                self.hold(subject, HoldReason::Backoff, text);
            }
            None => {
                let text = format!("{code}: {message} (waits for a change of the spec)");
                self.hold(subject, HoldReason::Terminal, text);
            }
        }
    }

    /// Says why something waits. The first reason of a subject stays: steps come in order of
    /// importance.
    pub(super) fn hold(&mut self, subject: HoldSubject, reason: HoldReason, message: String) {
        if let Entry::Vacant(entry) = self.holds.entry(subject) {
            entry.insert((reason, message));
        }
    }

    /// Holds `subject` for what stands over the whole fleet, if anything does.
    pub(super) fn hold_for_standing(&mut self, subject: HoldSubject) {
        if let Some((reason, message)) = self.view.standing.hold() {
            self.hold(subject, reason, message);
        }
    }

    /// Asks for a plan at `at`, if that is still to come.
    pub(super) fn look_at(&mut self, at: Timestamp) {
        if at > self.view.now && self.wake_at.is_none_or(|earliest| at < earliest) {
            self.wake_at = Some(at);
        }
    }

    /// The ticket's status as this plan leaves it.
    pub(super) fn ticket_status(&self, ticket: Uid) -> TicketStatus {
        self.ticket_changes
            .get(&ticket)
            .copied()
            .unwrap_or_else(|| self.view.ticket_state(ticket).status)
    }

    /// Whether this plan already changes the ticket's status: one step a pass.
    pub(super) fn changes_ticket(&self, ticket: Uid) -> bool {
        self.ticket_changes.contains_key(&ticket)
    }

    /// Notes a change of status that some action of this plan carries.
    pub(super) fn note_change(&mut self, change: &TicketChange) {
        debug_assert!(change.from.may_become(change.to), "{change:?}");
        self.ticket_changes.insert(change.ticket, change.to);
    }

    /// Notes that this plan has a live run told of the wake.
    pub(super) fn note_told(&mut self, wake: WakeId) {
        self.told.insert(wake);
    }

    /// Whether this plan has a live run told of the wake.
    pub(super) fn is_told(&self, wake: WakeId) -> bool {
        self.told.contains(&wake)
    }

    /// The plan.
    pub(super) fn finish(self) -> Plan {
        let holds = self
            .holds
            .into_iter()
            .map(|(subject, (reason, message))| Hold {
                subject,
                reason,
                message,
            });
        Plan {
            actions: self.actions,
            holds: holds.collect(),
            wake_at: self.wake_at,
        }
    }
}

use std::collections::BTreeMap;
use std::fmt::Display;

use rusqlite::Connection;
use strum::IntoEnumIterator;

use super::INIT;
use crate::model::action::HoldReason;
use crate::model::budget::{IncidentKind, Meter};
use crate::model::condition::{ConditionReason, ConditionStatus, ConditionType};
use crate::model::event::{AgentEvent, DomainEventType, UsageReport};
use crate::model::kind::Kind;
use crate::model::observed::{TreePhase, WorktreeBackend};
use crate::model::run::{EndReason, ErrorFamily, Liveness, RunStatus};
use crate::model::spec::{AdapterType, BudgetScopeKind, Mode, Priority};
use crate::model::ticket::TicketStatus;
use crate::model::tool::Verb;
use crate::model::wake::{Delivery, WakeReason, WakeState};
use crate::store::close::Pricing;
use crate::store::message::AuthorKind;
use crate::store::operator::OverrideKind;
use crate::store::outbox::DeliveryState;
use crate::store::revision::RevisionState;
use crate::store::status::SubjectKind;

fn names<E: IntoEnumIterator + Display>() -> Vec<String> {
    E::iter().map(|variant| variant.to_string()).collect()
}

/// One event of each type, which the match in `type_name` keeps complete.
fn event_names() -> Vec<String> {
    let text = String::new;
    [
        AgentEvent::Thinking { text: text() },
        AgentEvent::Text { text: text() },
        AgentEvent::ToolCall {
            id: text(),
            name: text(),
            args: serde_json::Value::Null,
        },
        AgentEvent::ToolResult {
            id: text(),
            output: text(),
            is_error: false,
            is_partial: false,
        },
        AgentEvent::Usage {
            model: None,
            usage: UsageReport::default(),
        },
        AgentEvent::Error {
            message: text(),
            code: None,
        },
        AgentEvent::SandboxViolation {
            operation: text(),
            source: text(),
        },
        AgentEvent::Debug { message: text() },
        AgentEvent::Done {},
    ]
    .iter()
    .map(|event| event.type_name().to_owned())
    .collect()
}

/// The enum behind every closed list, by `table.column`.
fn expected() -> BTreeMap<&'static str, Vec<String>> {
    let flag = || vec!["0".to_owned(), "1".to_owned()];
    BTreeMap::from([
        ("budget_pauses.meter", names::<Meter>()),
        ("budget_pauses.scope_kind", names::<BudgetScopeKind>()),
        ("conditions.reason", names::<ConditionReason>()),
        ("conditions.status", names::<ConditionStatus>()),
        ("conditions.type", names::<ConditionType>()),
        ("deliveries.state", names::<DeliveryState>()),
        ("documents.kind", names::<Kind>()),
        ("holds.is_current", flag()),
        ("holds.reason", names::<HoldReason>()),
        ("holds.subject_kind", names::<SubjectKind>()),
        ("incidents.kind", names::<IncidentKind>()),
        ("incidents.meter", names::<Meter>()),
        ("incidents.scope_kind", names::<BudgetScopeKind>()),
        ("ledger.are_tokens_estimated", flag()),
        ("ledger.is_estimated", flag()),
        ("messages.author_kind", names::<AuthorKind>()),
        ("objects.kind", names::<Kind>()),
        ("outbox.type", names::<DomainEventType>()),
        ("overrides.kind", names::<OverrideKind>()),
        ("revisions.state", names::<RevisionState>()),
        ("roots.phase", names::<TreePhase>()),
        ("run_events.type", event_names()),
        ("runs.is_retryable", flag()),
        ("runs.provider_is_shared", flag()),
        ("run_trees.is_dirty", flag()),
        ("run_trees.start_is_dirty", flag()),
        ("runs.end_reason", names::<EndReason>()),
        ("runs.error_family", names::<ErrorFamily>()),
        ("runs.contract", names::<Verb>()),
        ("runs.is_settled", flag()),
        ("runs.liveness", names::<Liveness>()),
        ("runs.mode", names::<Mode>()),
        ("runs.pricing", names::<Pricing>()),
        ("runs.status", names::<RunStatus>()),
        ("runs.stop_requested", names::<EndReason>()),
        ("runs.wake_reason", names::<WakeReason>()),
        ("runs.worktree_backend", names::<WorktreeBackend>()),
        ("sessions.adapter", names::<AdapterType>()),
        ("tickets.status", names::<TicketStatus>()),
        ("wakes.delivery", names::<Delivery>()),
        ("wakes.priority", names::<Priority>()),
        ("wakes.reason", names::<WakeReason>()),
        ("wakes.state", names::<WakeState>()),
        ("worktrees.backend", names::<WorktreeBackend>()),
        ("worktrees.phase", names::<TreePhase>()),
    ])
}

/// Every `CHECK (column IN (…))` of the schema, by `table.column`.
fn closed_lists() -> BTreeMap<String, Vec<String>> {
    let mut lists = BTreeMap::new();
    let mut table = "";
    for line in INIT.lines() {
        if let Some(rest) = line.strip_prefix("CREATE TABLE ") {
            table = rest.split(' ').next().unwrap_or_default();
        }
        let Some((_, check)) = line.split_once("CHECK (") else {
            continue;
        };
        let Some((column, list)) = check.split_once(" IN (") else {
            continue;
        };
        if column.contains(' ') {
            continue;
        }
        let list = list.split_once(')').map_or(list, |(list, _)| list);
        let values = list
            .split(", ")
            .map(|value| value.trim_matches('\'').to_owned())
            .collect();
        lists.insert(format!("{table}.{column}"), values);
    }
    lists
}

#[test]
fn every_closed_list_is_its_enum() {
    let expected = expected();
    let lists = closed_lists();
    for (column, values) in &expected {
        assert_eq!(lists.get(*column), Some(values), "{column}");
    }
    let unknown: Vec<_> = lists
        .keys()
        .filter(|column| !expected.contains_key(column.as_str()))
        .collect();
    assert!(unknown.is_empty(), "no enum is named for {unknown:?}");
}

#[test]
fn every_table_is_strict() {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(INIT).unwrap();
    let lax: Vec<String> = conn
        .prepare(
            "SELECT name FROM pragma_table_list
             WHERE schema = 'main' AND type = 'table' AND strict = 0
               AND name NOT LIKE 'sqlite_%'",
        )
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<rusqlite::Result<_>>()
        .unwrap();
    assert!(lax.is_empty(), "{lax:?}");
}

#[test]
fn the_views_answer() {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(INIT).unwrap();
    for view in ["run_log", "queue"] {
        let rows: i64 = conn
            .query_row(&format!("SELECT count(*) FROM {view}"), [], |row| {
                row.get(0)
            })
            .unwrap();
        assert_eq!(rows, 0, "{view}");
    }
}

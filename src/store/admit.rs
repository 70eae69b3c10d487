//! The exec boundary: the one conditional update that turns a wake into a run. Whatever the plan
//! saw, nothing starts unless the rows allow it here and now.

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::{Value, json};

use super::effect::leaving;
use super::money::{reserved_in, settled_in};
use super::operator::{pauses, takeovers};
use super::provider::pauses as pauses_by_provider;
use super::sql::{At, Columns, Json, Text, int};
use super::tree::worktree_phase;
use super::wake::{ensure_conversation, queued_wake};
use super::{Store, StoreError};
use crate::model::action::HoldReason;
use crate::model::id::RunId;
use crate::model::observed::{TreePhase, WorktreeBackend};
use crate::model::run::{Liveness, RunOrder, RunStatus};
use crate::model::spec::Lifecycle;
use crate::model::tool::Verb;
use crate::model::units::{Money, Tokens};
use crate::model::wake::{Wake, WakeState};

/// What the daemon knows of a start beside the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmitFacts {
    /// The daemon's life: differs after every start of it.
    pub incarnation: String,
    /// Which sandbox backend wraps the run.
    pub sandbox_state: String,
    /// Where the model's credential comes from; never its value.
    pub credential_source: String,
    /// How the worktrees were made.
    pub backend: WorktreeBackend,
    /// Absolute path of the run's log.
    pub log_path: String,
    /// The verb that hands in what the run owes; none where it owes nothing in particular, or has
    /// no way to call it.
    pub contract: Option<Verb>,
    /// Now.
    pub now: Timestamp,
}

/// The answer at the exec boundary.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Admission {
    /// The wake is claimed, the run's row is written, the worktrees are leased.
    Admitted,
    /// A gate is closed; the wake still waits.
    Refused(HoldReason, String),
    /// The wake does not wait any more: it was claimed, finished or cancelled.
    Stale(String),
}

impl Store {
    /// Claims the order's wake, in one transaction: the wake must be pending; the agent must exist
    /// and not be paused, archived or on its way out; nobody may have taken the space over; the
    /// fleet must not be stopped; no other run of the conversation may be live; every worktree must
    /// be ready and in no other run's hands.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn admit(
        &self,
        order: &RunOrder,
        facts: AdmitFacts,
    ) -> Result<Admission, StoreError> {
        let order = order.clone();
        self.connections
            .write("admission of a run", move |conn| {
                let wake = conn
                    .prepare_cached("SELECT * FROM wakes WHERE id = ?1")?
                    .query_row([Text(order.wake)], |row| {
                        Ok((row.text::<WakeState>("state")?, queued_wake(row)?.wake))
                    })
                    .optional()?;
                let wake = match wake {
                    None => {
                        let why = format!("wake {} is not known", order.wake);
                        return Ok(Admission::Stale(why));
                    }
                    Some((WakeState::Pending, wake)) => wake,
                    Some((
                        state @ (WakeState::Claimed | WakeState::Finished | WakeState::Cancelled),
                        wake,
                    )) => return Ok(Admission::Stale(format!("wake {} is {state}", wake.id))),
                };
                if let Some((reason, message)) = closed_gate(conn, &order, &facts)? {
                    return Ok(Admission::Refused(reason, message));
                }
                conn.prepare_cached("UPDATE wakes SET state = ?2 WHERE id = ?1")?
                    .execute(params![Text(order.wake), Text(WakeState::Claimed)])?;
                ensure_conversation(conn, order.conversation, order.space, facts.now)?;
                insert_run(conn, &order, &wake, &facts)?;
                insert_trees(conn, &order, facts.now)?;
                Ok(Admission::Admitted)
            })
            .await
    }
}

/// The first gate that is closed.
fn closed_gate(
    conn: &Connection,
    order: &RunOrder,
    facts: &AdmitFacts,
) -> rusqlite::Result<Option<(HoldReason, String)>> {
    if let Some(refusal) = stopped_fleet(conn)? {
        return Ok(Some(refusal));
    }
    if let Some(why) = leaving(conn, order.agent)? {
        return Ok(Some((HoldReason::AgentArchived, why)));
    }
    if let Some(refusal) = git_lifecycle(conn, order)? {
        return Ok(Some(refusal));
    }
    if let Some(pause) = pauses(conn, Some(order.agent), facts.now)?.first() {
        let message = format!("paused by {}", pause.by);
        return Ok(Some((HoldReason::PausedByOperator, message)));
    }
    if let Some(takeover) = takeovers(conn)?.get(&order.space) {
        let message = format!("taken over by {}", takeover.by);
        return Ok(Some((HoldReason::TakenOver, message)));
    }
    if let Some(why) = leaving(conn, order.space)? {
        return Ok(Some((HoldReason::NotProvisioned, why)));
    }
    let busy: Option<RunId> = conn
        .prepare_cached(
            "SELECT id FROM runs
             WHERE conversation = ?1 AND status IN ('pending', 'running') LIMIT 1",
        )?
        .query_row([Text(order.conversation)], |row| row.text("id"))
        .optional()?;
    if let Some(other) = busy {
        let message = format!("run {} of the conversation is live", other.short());
        return Ok(Some((HoldReason::ConversationBusy, message)));
    }
    if let Some(refusal) = provider_pause(conn, order, facts.now)? {
        return Ok(Some(refusal));
    }
    if let Some(refusal) = spent_budget(conn, order)? {
        return Ok(Some(refusal));
    }
    closed_tree(conn, order)
}

/// A pause that the provider of the order's adapter asked for.
fn provider_pause(
    conn: &Connection,
    order: &RunOrder,
    now: Timestamp,
) -> rusqlite::Result<Option<(HoldReason, String)>> {
    let pause = pauses_by_provider(conn, now)?.remove(&order.adapter_name);
    Ok(pause.map(|pause| {
        let message = format!("the provider asked to be left alone until {}", pause.until);
        (HoldReason::PausedByProvider, message)
    }))
}

/// A budget in whose rest the reservation does not fit, by the rows of this instant.
fn spent_budget(
    conn: &Connection,
    order: &RunOrder,
) -> rusqlite::Result<Option<(HoldReason, String)>> {
    for guard in &order.guards {
        let meter = guard.ceiling.meter();
        let Some(reservation) = order.reservation.of(meter) else {
            continue;
        };
        let settled = settled_in(conn, guard.scope, &guard.window)?
            .spent
            .of(meter);
        let reserved = reserved_in(conn, guard.scope)?.of(meter);
        let taken = settled.count().saturating_add(reserved.count());
        if taken.saturating_add(reservation.count()) > guard.ceiling.count() {
            let message = format!(
                "{}: {settled} spent and {reserved} set aside of {}; the run needs {reservation}",
                guard.budget, guard.ceiling
            );
            return Ok(Some((HoldReason::BudgetExceeded, message)));
        }
    }
    Ok(None)
}

/// The emergency stop or suspension that the accepted revision declares.
fn stopped_fleet(conn: &Connection) -> rusqlite::Result<Option<(HoldReason, String)>> {
    let fleet: Option<(bool, bool)> = conn
        .prepare_cached(
            "SELECT coalesce(json_extract(json, '$.spec.estop'), 0),
               coalesce(json_extract(json, '$.spec.suspend'), 0)
             FROM documents WHERE kind = 'Fleet' LIMIT 1",
        )?
        .query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    Ok(match fleet {
        Some((true, _)) => Some((HoldReason::Estop, "set by the Fleet object".to_owned())),
        Some((false, true)) => Some((HoldReason::Suspended, "the fleet is suspended".to_owned())),
        Some((false, false)) | None => None,
    })
}

/// What the accepted revision says about the agent's lifecycle.
fn git_lifecycle(
    conn: &Connection,
    order: &RunOrder,
) -> rusqlite::Result<Option<(HoldReason, String)>> {
    let lifecycle: Option<Lifecycle> = conn
        .prepare_cached(
            "SELECT json_extract(d.json, '$.spec.lifecycle') AS lifecycle
             FROM objects o JOIN documents d ON d.reference = o.reference
             WHERE o.uid = ?1 AND o.deleted_at IS NULL",
        )?
        .query_row([Text(order.agent)], |row| row.text_opt("lifecycle"))
        .optional()?
        .flatten();
    Ok(match lifecycle {
        Some(Lifecycle::Paused) => Some((
            HoldReason::PausedByGit,
            "its manifest says lifecycle: paused".to_owned(),
        )),
        Some(Lifecycle::Archived) => Some((
            HoldReason::AgentArchived,
            "its manifest says lifecycle: archived".to_owned(),
        )),
        Some(Lifecycle::Active) | None => None,
    })
}

/// A worktree of the order that is not ready, or that another run holds.
fn closed_tree(
    conn: &Connection,
    order: &RunOrder,
) -> rusqlite::Result<Option<(HoldReason, String)>> {
    for tree in &order.trees {
        let phase = worktree_phase(conn, tree.id)?;
        if phase != Some(TreePhase::Ready) {
            let is = phase.map_or_else(|| "not there".to_owned(), |phase| phase.to_string());
            let message = format!("the worktree of {} is {is}", tree.repo_name);
            return Ok(Some((HoldReason::NotProvisioned, message)));
        }
        let holder: Option<RunId> = conn
            .prepare_cached("SELECT run FROM leases WHERE worktree = ?1")?
            .query_row([Text(tree.id)], |row| row.text("run"))
            .optional()?;
        if let Some(holder) = holder {
            let message = format!(
                "run {} holds the worktree of {}",
                holder.short(),
                tree.repo_name
            );
            return Ok(Some((HoldReason::WorktreeBusy, message)));
        }
    }
    Ok(None)
}

/// The ids that the run is told, absent ones left out.
fn wake_context(order: &RunOrder, wake: &Wake) -> Value {
    let mut context = json!({
        "wakeReason": wake.reason,
        "runId": order.run,
        "agentId": order.agent,
        "workspaceId": order.workspace,
        "spaceId": order.space,
        "conversationId": order.conversation,
        "ticketId": order.ticket,
        "messageId": wake.message,
        "causeId": wake.cause,
        "previousRunId": wake.previous_run,
    });
    if let Value::Object(fields) = &mut context {
        fields.retain(|_, value| !value.is_null());
    }
    context
}

fn insert_run(
    conn: &Connection,
    order: &RunOrder,
    wake: &Wake,
    facts: &AdmitFacts,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO runs (id, wake, workspace, agent, agent_name, agent_title, space, space_name,
           conversation, ticket, wake_reason, wake_context_json, revision, generation, retry_of,
           attempt, requested_by, adapter, credential_source, sandbox_state, worktree_backend, cwd,
           git_name, git_email, silence_seconds, log_path, incarnation, status, liveness,
           started_at, reservation_micros, mode, contract, adapter_generation, reservation_tokens)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18,
           ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34,
           ?35)",
    )?
    .execute(params![
        Text(order.run),
        Text(order.wake),
        Text(order.workspace),
        Text(order.agent),
        Text(&order.agent_ref.name),
        order.agent_title,
        Text(order.space),
        order.space_name,
        Text(order.conversation),
        order.ticket.map(Text),
        Text(order.reason),
        Json(wake_context(order, wake)),
        order.revision.as_str(),
        order.generation,
        wake.previous_run.map(Text),
        order.attempt,
        wake.requested_by,
        order.adapter_name,
        facts.credential_source,
        facts.sandbox_state,
        Text(facts.backend),
        order.cwd,
        order.identity.name,
        order.identity.email,
        int(order.silence.as_secs()),
        facts.log_path,
        facts.incarnation,
        Text(RunStatus::Pending),
        Text(Liveness::Alive),
        At(facts.now),
        order.reservation.money.map(Money::micros),
        Text(order.mode),
        facts.contract.map(Text),
        order.adapter_generation,
        order.reservation.tokens.map(Tokens::count)
    ])?;
    Ok(())
}

fn insert_trees(conn: &Connection, order: &RunOrder, now: Timestamp) -> rusqlite::Result<()> {
    for tree in &order.trees {
        conn.prepare_cached(
            "INSERT INTO run_trees (run, worktree, repo, repo_name, path, branch, base)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute(params![
            Text(order.run),
            Text(tree.id),
            Text(tree.repo),
            tree.repo_name,
            tree.path,
            tree.branch,
            tree.base
        ])?;
        conn.prepare_cached("INSERT INTO leases (worktree, run, taken_at) VALUES (?1, ?2, ?3)")?
            .execute(params![Text(tree.id), Text(order.run), At(now)])?;
    }
    Ok(())
}

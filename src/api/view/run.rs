//! Runs, what they emitted and what they were told; and what happened in the fleet.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::name::find;
use crate::api::dto::{
    DomainEvent, DomainEvents, Prompt, Run, RunEvent, RunEvents, RunList, RunTree, Transcript,
    WaitStatus, Waited,
};
use crate::api::problem::Failure;
use crate::model::id::{RunId, WakeId};
use crate::model::kind::Kind;
use crate::model::spec::GitIdentity;
use crate::model::wake::{QueuedWake, WakeState};
use crate::store::{RunFilter, RunTreeView, RunView, Store, WakeRecord};

/// Events that one answer holds.
const PAGE: u32 = 500;

/// Which runs. Objects are named `name` or `workspace/name`, or by uid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RunQuery {
    /// Of this agent.
    #[serde(default)]
    pub agent: Option<String>,
    /// In this space.
    #[serde(default)]
    pub space: Option<String>,
    /// At most so many.
    #[serde(default = "limit_default")]
    pub limit: u32,
}

const fn limit_default() -> u32 {
    100
}

/// The most that one answer lists.
const LIMIT_MAX: u32 = 1_000;

/// The latest runs, newest first.
///
/// # Errors
/// When an object that the query names is not there.
pub async fn runs(store: &Store, query: &RunQuery) -> Result<RunList, Failure> {
    let mut filter = RunFilter {
        limit: query.limit.min(LIMIT_MAX),
        ..RunFilter::default()
    };
    if let Some(agent) = &query.agent {
        filter.agent = Some(find(store, Kind::Agent, agent).await?.state.uid);
    }
    if let Some(space) = &query.space {
        filter.space = Some(find(store, Kind::Space, space).await?.state.uid);
    }
    let runs = store.runs(filter).await?;
    Ok(RunList {
        runs: runs.into_iter().map(shown).collect(),
    })
}

/// The run whose id is, or alone begins with, `id`.
///
/// # Errors
/// When there is none, or more than one.
pub async fn run(store: &Store, id: &str) -> Result<Run, Failure> {
    let record = record(store, id).await?;
    let output = store.output_of(record.id).await?;
    Ok(Run {
        output,
        ..shown(record)
    })
}

/// The wake whose run will have an id that is, or begins with, `id`.
pub(super) fn run_to_come<'w>(wakes: &'w [QueuedWake], id: &str) -> Option<&'w QueuedWake> {
    let is_meant = |queued: &&QueuedWake| {
        let run = RunId::of(queued.wake.id).to_string();
        run.starts_with(&id.to_ascii_lowercase())
    };
    let mut meant = wakes.iter().filter(is_meant);
    meant
        .next()
        .filter(|_| !id.is_empty() && meant.next().is_none())
}

/// What an id of a run stands for.
#[derive(Debug)]
pub(in crate::api) enum Sought {
    /// A run.
    Run(Box<RunView>),
    /// The wake that will become it.
    ToCome(WakeId),
}

/// The run whose id is, or alone begins with, `id`, also when it has not started.
///
/// # Errors
/// When the database fails.
pub(in crate::api) async fn sought(
    store: &Store,
    id: &str,
    now: Timestamp,
) -> Result<Option<Sought>, Failure> {
    // The wakes first: one that is claimed in between is found as its run.
    let observed = store.observe(now).await?;
    if let Some(run) = store.run(id).await? {
        return Ok(Some(Sought::Run(Box::new(run))));
    }
    let queued = run_to_come(&observed.wakes, id);
    Ok(queued.map(|queued| Sought::ToCome(queued.wake.id)))
}

/// Events of a run behind `after`, from the first one if it is none.
///
/// # Errors
/// When there is no such run.
pub async fn run_events(store: &Store, id: &str, after: Option<u64>) -> Result<RunEvents, Failure> {
    // The run first: if it was over by then, nothing is added to what is read next.
    let run = record(store, id).await?;
    let stored = store.events_after(run.id, after, PAGE).await?;
    let is_whole = u32::try_from(stored.len()).is_ok_and(|count| count < PAGE);
    let events: Vec<RunEvent> = stored
        .into_iter()
        .map(|it| RunEvent {
            seq: it.seq,
            at: it.at,
            event: it.event,
        })
        .collect();
    Ok(RunEvents {
        next: events.last().map(|event| event.seq).or(after),
        is_over: is_whole && run.ended_at.is_some(),
        events,
    })
}

/// What a run said and did.
///
/// # Errors
/// When there is no such run, or it is not over.
pub async fn transcript(store: &Store, id: &str) -> Result<Transcript, Failure> {
    let run = record(store, id).await?;
    let Some(json) = store.transcript(run.id).await? else {
        return Err(
            Failure::not_found(format!("run {} has no transcript yet", run.id))
                .detail("it is written when the run closes; its events are there before"),
        );
    };
    let segments = serde_json::from_str(&json).map_err(|error| {
        tracing::error!(run = %run.id, %error, "a stored transcript cannot be read");
        Failure::internal(format!("the transcript of run {} cannot be read", run.id))
    })?;
    Ok(Transcript {
        run: run.id,
        segments,
    })
}

/// Exactly what a run was told.
///
/// # Errors
/// When there is no such run, or its prompt was not made yet.
pub async fn prompt(store: &Store, id: &str) -> Result<Prompt, Failure> {
    let run = record(store, id).await?;
    let prompt = store
        .run_prompt(run.id)
        .await?
        .ok_or_else(|| Failure::not_found(format!("run {} was not told anything yet", run.id)))?;
    Ok(Prompt {
        run: run.id,
        prompt: prompt.prompt,
        sha256: prompt.sha256,
    })
}

/// What happened in the fleet behind `after`, oldest first.
///
/// # Errors
/// When the database fails.
pub async fn events(store: &Store, after: i64) -> Result<DomainEvents, Failure> {
    let stored = store.outbox_after(after, PAGE).await?;
    let events: Vec<DomainEvent> = stored
        .into_iter()
        .map(|it| DomainEvent {
            seq: it.seq,
            at: it.at,
            kind: it.r#type,
            subject: it.subject,
            payload: it.payload,
        })
        .collect();
    Ok(DomainEvents {
        next: events.last().map_or(after, |event| event.seq),
        events,
    })
}

async fn record(store: &Store, id: &str) -> Result<RunView, Failure> {
    let run = store.run(id).await?;
    run.ok_or_else(|| Failure::not_found(format!("there is no run '{id}'")))
}

/// A run as it is shown.
pub(super) fn shown(run: RunView) -> Run {
    Run {
        id: run.id,
        wake: run.wake,
        reason: run.wake_reason,
        agent: run.agent,
        agent_name: run.agent_name,
        space: run.space,
        space_name: run.space_name,
        conversation: run.conversation,
        ticket: run.ticket,
        attempt: run.attempt,
        retry_of: run.retry_of,
        requested_by: run.requested_by,
        status: run.status,
        liveness: run.liveness,
        error_family: run.error_family,
        error_code: run.error_code,
        end_reason: run.end_reason,
        stop_requested: run.stop_requested,
        output: None,
        summary: run.summary,
        adapter: run.adapter,
        model: run.model,
        sandbox: run.sandbox_state,
        credential_source: run.credential_source,
        worktree_backend: run.worktree_backend,
        cwd: run.cwd,
        git_identity: GitIdentity {
            name: run.git_name,
            email: run.git_email,
        },
        process: run.identity,
        exit_code: run.exit_code,
        exit_signal: run.exit_signal,
        usage: run.usage,
        trees: run.trees.into_iter().map(tree).collect(),
        log_path: run.log_path,
        revision: run.revision,
        generation: run.generation,
        started_at: run.started_at,
        released_at: run.released_at,
        ended_at: run.ended_at,
    }
}

fn tree(tree: RunTreeView) -> RunTree {
    RunTree {
        repo: tree.repo_name,
        path: tree.path,
        branch: tree.branch,
        base: tree.base,
        head: tree.head,
        is_dirty: tree.is_dirty,
    }
}

/// What became of the run so far, also of one that has not started.
///
/// # Errors
/// When there is no such run, and no wake that will become it.
pub(in crate::api) async fn waited(
    store: &Store,
    id: &str,
    now: Timestamp,
) -> Result<Waited, Failure> {
    let run = match sought(store, id, now).await? {
        Some(Sought::Run(run)) => shown(*run),
        Some(Sought::ToCome(_)) => return Ok(Waited::default()),
        None => return dropped(store, id).await,
    };
    let status = match run.ended_at {
        None => WaitStatus::Timeout,
        Some(_) if run.is_ok() => WaitStatus::Ok,
        Some(_) => WaitStatus::Error,
    };
    Ok(Waited {
        status,
        started_at: Some(run.started_at),
        ended_at: run.ended_at,
        error: (status == WaitStatus::Error).then(|| failure_of(&run)),
        liveness: run.liveness,
    })
}

/// A run whose wake was dropped before it started.
async fn dropped(store: &Store, id: &str) -> Result<Waited, Failure> {
    let cancelled = store.wakes(WakeState::Cancelled, LIMIT_MAX).await?;
    let is_meant = |it: &&WakeRecord| RunId::of(it.wake.id).to_string() == id;
    let wake = cancelled
        .iter()
        .find(is_meant)
        .ok_or_else(|| Failure::not_found(format!("there is no run '{id}'")))?;
    let because = wake.because.as_deref().unwrap_or("no reason was given");
    Ok(Waited {
        status: WaitStatus::Error,
        ended_at: wake.ended_at,
        error: Some(format!("it never started: {because}")),
        ..Waited::default()
    })
}

fn failure_of(run: &Run) -> String {
    let mut text = run
        .end_reason
        .map_or_else(|| "unknown".to_owned(), |reason| reason.to_string());
    if let Some(summary) = run.summary.as_ref().filter(|it| !it.is_empty()) {
        text.push_str(": ");
        text.push_str(summary);
    }
    text
}

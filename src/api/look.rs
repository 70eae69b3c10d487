//! Requests that only look.

use std::pin::Pin;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

use super::control::{Control, SourceReport};
use super::dto::{
    BudgetList, DomainEvents, Health, Object, ObjectList, Prompt, Run, RunEvents, RunList,
    SourceRead, SourceStatus, Surroundings, Trace, Transcript, WaitStatus, Waited, Why,
};
use super::problem::Failure;
use super::view::{self, RunQuery};
use crate::model::kind::Kind;
use crate::reconcile::Outcome;
use crate::store::RevisionState;

/// The longest that one request waits. A client that has more time asks again.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Commits that follow each other this closely are looked at once.
const FOLD: Duration = Duration::from_millis(20);

type Answer<T> = Result<Json<T>, Failure>;
type Asked<T> = Result<Query<T>, QueryRejection>;

/// How the daemon is, after really looking.
pub(super) async fn health(State(control): State<Control>) -> Response {
    let health = examine(&control).await;
    let status = if health.is_healthy {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, Json(health)).into_response()
}

async fn examine(control: &Control) -> Health {
    let revisions = control.store().revisions(REVISIONS).await;
    let (source, pulse) = ((control.levers().source)(), (control.levers().pulse)());
    let facts = control.facts();
    let store = match &revisions {
        Ok(_) => "ok".to_owned(),
        Err(error) => crate::model::chain::chain(error),
    };
    let serving = revisions.iter().flatten().find(|it| it.is_current);
    Health {
        is_healthy: revisions.is_ok() && source.is_ok && pulse.is_ok,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        revision: serving.map(|it| it.revision.clone()),
        store,
        source: source.message,
        source_waiting_since: source.waiting_since,
        source_failing_since: source.failing_since,
        last_pass_secs_ago: pulse.since_last_pass.as_secs(),
        sandbox: facts.sandbox.clone(),
        worktree_backend: facts.worktree_backend,
    }
}

/// Revisions that are looked through for the one that serves.
const REVISIONS: u32 = 100;

/// Whether there is a desired state to serve.
pub(super) async fn ready(State(control): State<Control>) -> Answer<Health> {
    let revisions = control.store().revisions(REVISIONS).await?;
    let is_served = |state| matches!(state, RevisionState::Accepted);
    if revisions
        .iter()
        .any(|it| it.is_current && is_served(it.state))
    {
        return Ok(Json(examine(&control).await));
    }
    let source = (control.levers().source)();
    Err(Failure::unavailable("no revision was accepted yet").detail(source.message))
}

/// In what runs' programs and credentials are looked for.
pub(super) async fn surroundings(State(control): State<Control>) -> Json<Surroundings> {
    std::future::ready(Json(control.facts().surroundings.clone())).await
}

/// Every object.
pub(super) async fn objects(State(control): State<Control>) -> Answer<ObjectList> {
    listed(&control, None).await
}

/// Objects of one kind.
pub(super) async fn objects_of_kind(
    State(control): State<Control>,
    Path(kind): Path<String>,
) -> Answer<ObjectList> {
    listed(&control, Some(kind_of(&kind)?)).await
}

/// Objects, and why they may not be what the source holds.
async fn listed(control: &Control, kind: Option<Kind>) -> Answer<ObjectList> {
    let source = (control.levers().source)();
    let mut list = view::objects(control.store(), kind, control.now()).await?;
    list.source_fault = (!source.is_ok).then_some(source.message);
    Ok(Json(list))
}

/// One object: `name`, or `workspace%2Fname`.
pub(super) async fn object(
    State(control): State<Control>,
    Path((kind, name)): Path<(String, String)>,
) -> Answer<Object> {
    let kind = kind_of(&kind)?;
    Ok(Json(
        view::object(control.store(), kind, &name, control.now()).await?,
    ))
}

fn kind_of(text: &str) -> Result<Kind, Failure> {
    Kind::from_argument(text).ok_or_else(|| Failure::bad_request(format!("'{text}' is no kind")))
}

/// The latest runs.
pub(super) async fn runs(
    State(control): State<Control>,
    query: Asked<RunQuery>,
) -> Answer<RunList> {
    let Query(query) = query?;
    Ok(Json(view::runs(control.store(), &query).await?))
}

/// One run.
pub(super) async fn run(State(control): State<Control>, Path(run): Path<String>) -> Answer<Run> {
    Ok(Json(view::run(control.store(), &run).await?))
}

/// Where a stream goes on, and how long it waits for more.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Cursor<T> {
    after: Option<T>,
    #[serde(default)]
    wait_secs: u64,
}

/// Events of one run.
pub(super) async fn run_events(
    State(control): State<Control>,
    Path(run): Path<String>,
    cursor: Asked<Cursor<u64>>,
) -> Answer<RunEvents> {
    let Query(cursor) = cursor?;
    let mut vigil = Vigil::begin(&control, cursor.wait_secs);
    loop {
        let page = view::run_events(control.store(), &run, cursor.after).await?;
        if page.is_over || !page.events.is_empty() || !vigil.goes_on().await {
            return Ok(Json(page));
        }
    }
}

/// What happened in the fleet.
pub(super) async fn events(
    State(control): State<Control>,
    cursor: Asked<Cursor<i64>>,
) -> Answer<DomainEvents> {
    let Query(cursor) = cursor?;
    let mut vigil = Vigil::begin(&control, cursor.wait_secs);
    loop {
        let page = view::events(control.store(), cursor.after.unwrap_or(0)).await?;
        if !page.events.is_empty() || !vigil.goes_on().await {
            return Ok(Json(page));
        }
    }
}

/// What one run said and did.
pub(super) async fn transcript(
    State(control): State<Control>,
    Path(run): Path<String>,
) -> Answer<Transcript> {
    Ok(Json(view::transcript(control.store(), &run).await?))
}

/// Which commit, file and line made a run.
pub(super) async fn trace(
    State(control): State<Control>,
    Path(run): Path<String>,
) -> Answer<Trace> {
    Ok(Json(view::trace(control.store(), &run).await?))
}

/// What one run was told.
pub(super) async fn prompt(
    State(control): State<Control>,
    Path(run): Path<String>,
) -> Answer<Prompt> {
    Ok(Json(view::prompt(control.store(), &run).await?))
}

/// A reading of the source, and how long to wait for it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Awaited {
    #[serde(default)]
    reading: u64,
    #[serde(default)]
    wait_secs: u64,
}

/// What becomes of the source's revision.
pub(super) async fn source(
    State(control): State<Control>,
    awaited: Asked<Awaited>,
) -> Answer<SourceRead> {
    let Query(Awaited { reading, wait_secs }) = awaited?;
    let wait = Duration::from_secs(wait_secs).min(WAIT_MAX);
    tokio::select! {
        () = (control.levers().finished)(reading) => {}
        () = tokio::time::sleep(wait) => {}
        () = control.shutdown().cancelled() => {}
    }
    let report = (control.levers().source)();
    Ok(Json(came_to(report, reading)))
}

fn came_to(report: SourceReport, reading: u64) -> SourceRead {
    let of = |status, revision, reason| SourceRead {
        status,
        revision,
        reason,
    };
    if report.finished < reading.max(1) {
        return of(SourceStatus::Pending, None, None);
    }
    match report.attempted {
        _ if report.failing_since.is_some() => {
            of(SourceStatus::Unreadable, None, Some(report.message))
        }
        None => of(SourceStatus::Pending, None, None),
        Some((revision, Outcome::Accepted)) => of(SourceStatus::Accepted, Some(revision), None),
        Some((revision, Outcome::Rejected { reason })) => {
            of(SourceStatus::Rejected, Some(revision), Some(reason))
        }
        Some((revision, Outcome::Held { reason })) => {
            of(SourceStatus::Held, Some(revision), Some(reason))
        }
    }
}

/// How long to wait.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Patience {
    #[serde(default)]
    wait_secs: u64,
}

/// What becomes of one run. That the time runs out touches nothing.
pub(super) async fn wait(
    State(control): State<Control>,
    Path(run): Path<String>,
    patience: Asked<Patience>,
) -> Answer<Waited> {
    let Query(patience) = patience?;
    let mut vigil = Vigil::begin(&control, patience.wait_secs);
    loop {
        let waited = view::waited(control.store(), &run, control.now()).await?;
        if waited.status != WaitStatus::Timeout || !vigil.goes_on().await {
            return Ok(Json(waited));
        }
    }
}

/// What is asked about.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Subject {
    subject: String,
}

/// Why something is as it is.
pub(super) async fn why(State(control): State<Control>, subject: Asked<Subject>) -> Answer<Why> {
    let Query(asked) = subject?;
    Ok(Json(
        view::why(control.store(), &asked.subject, control.now()).await?,
    ))
}

/// Budgets with their spend.
pub(super) async fn budget(State(control): State<Control>) -> Answer<BudgetList> {
    Ok(Json(view::budgets(control.store(), control.now()).await?))
}

/// Patience for an answer that is not there yet.
struct Vigil {
    commits: watch::Receiver<u64>,
    time_is_up: Pin<Box<Sleep>>,
    shutdown: CancellationToken,
}

impl Vigil {
    /// Begins before the first look, so that nothing is missed between looks.
    fn begin(control: &Control, wait_secs: u64) -> Self {
        let mut commits = control.store().subscribe();
        commits.mark_unchanged();
        let wait = Duration::from_secs(wait_secs).min(WAIT_MAX);
        Self {
            commits,
            time_is_up: Box::pin(tokio::time::sleep(wait)),
            shutdown: control.shutdown().clone(),
        }
    }

    /// Whether to look again: something was stored. False when the time is up or the daemon stops.
    async fn goes_on(&mut self) -> bool {
        tokio::select! {
            () = &mut self.time_is_up => return false,
            () = self.shutdown.cancelled() => return false,
            changed = self.commits.changed() => {
                if changed.is_err() {
                    return false;
                }
            }
        }
        tokio::time::sleep(FOLD).await;
        true
    }
}

//! Requests that act. Each writes its row first, pulls a lever after, and is audited then: a lever
//! that is not pulled leaves the row to the next pass, which may be minutes away.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{ConnectInfo, Path, State};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::control::Control;
use super::dto::{
    Accepted, DispatchRequest, Empty, HandedBack, MessageAccepted, MessageRequest, PauseRequest,
    Paused, Reconciling, Resumed, SteerAccepted, SteerOutcome, SteerRequest, TakenOver,
    TakeoverRequest,
};
use super::peer::Peer;
use super::problem::Failure;
use super::view::{Sought, find, sought};
use crate::dispatch::TreeChange;
use crate::model::id::{ConversationId, MessageId, OverrideId, RunId, Uid, WakeId};
use crate::model::kind::{Kind, ObjectRef, Revision};
use crate::model::observed::{OperatorPause, Takeover};
use crate::model::run::EndReason;
use crate::model::spec::{Priority, SpaceSpec};
use crate::model::units::Name;
use crate::model::units::{OWN_VARIABLES, is_variable_name};
use crate::model::wake::{Delivery, Wake, WakeReason};
use crate::store::{Author, Effect, NewMessage, ObjectView, Posted};

type Answer<T> = Result<Json<T>, Failure>;
type Body<T> = Result<Json<T>, JsonRejection>;

/// The longest prompt or message, in characters; what a manifest allows.
const PROMPT_CHARS_MAX: usize = 100_000;
/// Files that a hand-back names.
const HANDBACK_FILES_MAX: usize = 12;
/// The longest idempotency key, in bytes.
const KEY_BYTES_MAX: usize = 200;

/// Accepts a run. It is durable before it is acknowledged.
pub(super) async fn dispatch(
    State(control): State<Control>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    body: Body<DispatchRequest>,
) -> Answer<Accepted> {
    let Json(request) = body?;
    check_text("prompt", &request.prompt)?;
    check_key(request.idempotency_key.as_deref())?;
    check_variables(&request.env)?;
    let place = Place::find(&control, &request.space).await?;
    let agent = place.agent(&control, &request.agent).await?;
    let ticket = match &request.ticket {
        Some(ticket) => Some(place.sibling(&control, Kind::Ticket, ticket).await?),
        None => None,
    };
    let wake = Wake {
        conversation: place.conversation(request.conversation.as_deref())?,
        ticket: ticket.map(|it| it.state.uid),
        env: request.env,
        git_identity: request.git_identity,
        priority: request.priority,
        ..wake(
            &control,
            &place,
            &agent,
            WakeReason::FollowUp,
            peer,
            request.prompt,
        )
    };
    let accepted_at = wake.created_at;
    let posted = control
        .store()
        .record_wake(wake, request.idempotency_key)
        .await?;
    let accepted = accepted(&posted, accepted_at)?;
    (control.levers().trigger)("dispatched");
    if !posted.was_duplicate {
        audit(&control, peer, "dispatch", &accepted.run_id.to_string()).await?;
    }
    Ok(Json(accepted))
}

fn accepted(posted: &Posted, accepted_at: jiff::Timestamp) -> Result<Accepted, Failure> {
    // The key may have been used for a message that woke nobody.
    let wake = posted
        .wake
        .ok_or_else(|| Failure::refused("the idempotency key belongs to a message"))?;
    Ok(Accepted {
        run_id: RunId::of(wake),
        wake_id: wake,
        accepted_at,
    })
}

/// Posts a message. The agent that it names (`@name`) is woken, else the space's first.
pub(super) async fn message(
    State(control): State<Control>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    body: Body<MessageRequest>,
) -> Answer<MessageAccepted> {
    let Json(request) = body?;
    check_text("text", &request.text)?;
    check_key(request.idempotency_key.as_deref())?;
    let place = Place::find(&control, &request.space).await?;
    let message = place.message(&control, peer, &request.text)?;
    let wake = match place.addressee(&request.text) {
        Some(name) => {
            let agent = place.agent(&control, name.as_str()).await?;
            let reason = WakeReason::UserMessage;
            let wake = wake(&control, &place, &agent, reason, peer, request.text);
            Some(Wake {
                message: Some(message.id),
                delivery: request.delivery,
                ..wake
            })
        }
        None => None,
    };
    let (id, accepted_at) = (message.id, message.created_at);
    let posted = control
        .store()
        .post_message(message, wake, request.idempotency_key)
        .await?;
    (control.levers().trigger)("message posted");
    if !posted.was_duplicate {
        audit(&control, peer, "message", &id.to_string()).await?;
    }
    Ok(Json(MessageAccepted {
        message_id: posted.message.unwrap_or(id),
        run_id: posted.wake.map(RunId::of),
        accepted_at,
    }))
}

/// Says something to the agent of a live run. It is a message of the run's conversation, for the
/// run's agent: what can't be told now is answered later.
pub(super) async fn steer(
    State(control): State<Control>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(id): Path<String>,
    body: Body<SteerRequest>,
) -> Answer<SteerAccepted> {
    let Json(request) = body?;
    check_text("text", &request.text)?;
    check_key(request.idempotency_key.as_deref())?;
    let store = control.store();
    let none = || Failure::not_found(format!("there is no run '{id}'"));
    let run = store.run(&id).await?.ok_or_else(none)?;
    if !run.status.is_live() {
        let hint = format!("`homeostat send {}` begins another", run.space_name);
        return Err(Failure::refused(format!("run {} is over", run.id)).detail(hint));
    }
    let place = Place::find(&control, &run.space.to_string()).await?;
    let agent = place.agent(&control, &run.agent.to_string()).await?;
    let reason = WakeReason::UserMessage;
    let message = NewMessage {
        conversation: run.conversation,
        ..place.message(&control, peer, &request.text)?
    };
    let wake = Wake {
        conversation: run.conversation,
        ticket: run.ticket,
        message: Some(message.id),
        delivery: Delivery::Steer,
        ..wake(&control, &place, &agent, reason, peer, request.text)
    };
    let (message_id, accepted_at) = (message.id, message.created_at);
    let posted = store
        .post_message(message, Some(wake), request.idempotency_key)
        .await?;
    let outcome = match (control.levers().is_listening)(run.id) {
        true => SteerOutcome::Steering,
        false => SteerOutcome::QueuedAsFollowUp,
    };
    let run_id = accepted(&posted, accepted_at)?.run_id;
    (control.levers().trigger)("run steered");
    if !posted.was_duplicate {
        audit(&control, peer, "steer", &run.id.to_string()).await?;
    }
    Ok(Json(SteerAccepted {
        outcome,
        message_id: posted.message.unwrap_or(message_id),
        run_id,
        accepted_at,
    }))
}

/// Ends a run. One that has not started yet never will.
pub(super) async fn stop(
    State(control): State<Control>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(id): Path<String>,
) -> Answer<Empty> {
    let store = control.store();
    let now = control.now();
    let (by, reason) = (peer.actor(), EndReason::StoppedByHuman);
    let none = || Failure::not_found(format!("there is no run '{id}'"));
    let mut found = sought(store, &id, now).await?.ok_or_else(none)?;
    if let Sought::ToCome(wake) = found {
        let because = format!("stopped by {by} before it started");
        let effect = store.cancel_wake(wake, because, now).await?;
        if !matches!(effect, Effect::Stale(_)) {
            (control.levers().trigger)("wake dropped");
            audit(&control, peer, "stop", &id).await?;
            return Ok(Json(Empty {}));
        }
        // It has started meanwhile.
        found = sought(store, &id, now).await?.ok_or_else(none)?;
    }
    let Sought::Run(run) = found else {
        return Err(Failure::refused(format!("run {id} is about to start")));
    };
    require(store.request_stop(run.id, reason, by, now).await?)?;
    if !(control.levers().stop)(run.id, reason) {
        // No task of this daemon drives it: the next pass reaps it.
        (control.levers().trigger)("stop requested");
    }
    audit(&control, peer, "stop", &run.id.to_string()).await?;
    Ok(Json(Empty {}))
}

/// Holds an agent's wakes. Live runs go on.
pub(super) async fn pause(
    State(control): State<Control>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(agent): Path<String>,
    body: Body<PauseRequest>,
) -> Answer<Paused> {
    let Json(request) = body?;
    let agent = find(control.store(), Kind::Agent, &agent).await?;
    let since = control.now();
    let until = match request.for_secs {
        Some(seconds) => {
            let end = since.checked_add(Duration::from_secs(seconds));
            Some(end.map_err(|_overflow| Failure::bad_request("that is longer than time goes on"))?)
        }
        None => None,
    };
    let pause = OperatorPause {
        id: OverrideId::from_uuid(control.ids().mint()),
        target: agent.state.uid,
        by: peer.actor(),
        reason: request.reason,
        since,
        until,
    };
    let id = pause.id;
    require(control.store().pause(pause).await?)?;
    (control.levers().trigger)("agent paused");
    Ok(Json(Paused {
        id,
        agent: agent.reference.to_string(),
        until,
    }))
}

/// Takes back operators' pauses of an agent, and nothing else.
pub(super) async fn resume(
    State(control): State<Control>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(agent): Path<String>,
) -> Answer<Resumed> {
    let agent = find(control.store(), Kind::Agent, &agent).await?;
    let (uid, now) = (agent.state.uid, control.now());
    let removed = control.store().resume(uid, peer.actor(), now).await?;
    (control.levers().trigger)("agent resumed");
    Ok(Json(Resumed {
        agent: agent.reference.to_string(),
        removed,
    }))
}

/// Takes a space over: its runs end, and nothing runs there until it is handed back.
pub(super) async fn takeover(
    State(control): State<Control>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(space): Path<String>,
    body: Body<TakeoverRequest>,
) -> Answer<TakenOver> {
    let Json(request) = body?;
    let (store, now) = (control.store(), control.now());
    let space = find(store, Kind::Space, &space).await?;
    let takeover = Takeover {
        id: OverrideId::from_uuid(control.ids().mint()),
        space: space.state.uid,
        by: peer.actor(),
        reason: request.reason,
        since: now,
    };
    let id = takeover.id;
    require(store.take_over(takeover).await?)?;
    // What of it was live when the row was written; the next pass ends whatever came after.
    let observed = store.observe(now).await?;
    let mut ending = Vec::new();
    let live = observed.live_runs.values();
    for run in live.filter(|run| run.space == space.state.uid) {
        let (by, reason) = (peer.actor(), EndReason::TakenOver);
        let asked = store.request_stop(run.id, reason, by, now).await?;
        if !matches!(asked, Effect::Stale(_)) {
            (control.levers().stop)(run.id, reason);
            ending.push(run.id);
        }
    }
    (control.levers().trigger)("space taken over");
    let trees = store.trees_as_left(space.state.uid).await?;
    Ok(Json(TakenOver {
        id,
        space: space.reference.to_string(),
        ending,
        trees: trees.into_iter().map(|left| left.tree.path).collect(),
    }))
}

/// Hands a space back, also one that is being removed: that goes on then. Its agents are told what
/// changed.
pub(super) async fn handback(
    State(control): State<Control>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(space): Path<String>,
) -> Answer<HandedBack> {
    let (store, now) = (control.store(), control.now());
    let space = find(store, Kind::Space, &space).await?;
    let place = Place::of(&control, space, Vec::new()).await?;
    let uid = place.space.state.uid;
    let observed = store.observe(now).await?;
    if let Some(run) = observed.live_runs.values().find(|run| run.space == uid) {
        let id = run.id.short();
        return Err(Failure::refused(format!("run {id} is still ending")));
    }
    let changes = (control.levers().changes)(uid).await;
    let changes = changes.map_err(|error| {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "no look at worktrees"
        );
        Failure::internal("the worktrees can't be looked at")
    })?;
    let message = NewMessage {
        author: Author::System,
        ..place.message(&control, peer, &handed_back(&peer.actor(), &changes))?
    };
    let text = message.text.clone();
    require(store.hand_back(message, peer.actor()).await?)?;
    (control.levers().trigger)("space handed back");
    Ok(Json(HandedBack {
        space: place.space.reference.to_string(),
        message: text,
    }))
}

/// What a hand-back says in the conversation.
fn handed_back(by: &str, changes: &[TreeChange]) -> String {
    let mut lines = vec![format!(
        "{by} had taken this space over and has handed it back."
    )];
    if changes.is_empty() {
        lines.push("The worktrees are as they were left.".to_owned());
    }
    let mut left = HANDBACK_FILES_MAX;
    for change in changes {
        let short = |commit: &str| commit.chars().take(12).collect::<String>();
        let from = short(&change.from);
        let mut parts = vec![match &change.to {
            Some(to) if *to != change.from => format!("now at {}, was at {from}", short(to)),
            Some(_) | None => format!("at {from}"),
        }];
        let names = change.changed.iter().map(String::as_str).take(left);
        let names: Vec<_> = names.collect();
        left -= names.len();
        if change.changed.is_empty() {
            parts.push("all is committed".to_owned());
        } else if !names.is_empty() {
            parts.push(format!("not committed: {}", names.join(", ")));
        }
        match change.changed.len() - names.len() {
            0 => {}
            more => parts.push(format!("{more} more not committed")),
        }
        lines.push(format!("- {}: {}", change.repo, parts.join("; ")));
    }
    lines.join("\n")
}

/// Makes the loop look at the source and at everything else. What failed, for good or for now, is
/// tried again: whoever asks may have put right what no manifest shows.
pub(super) async fn reconcile(
    State(control): State<Control>,
    ConnectInfo(peer): ConnectInfo<Peer>,
) -> Answer<Reconciling> {
    audit(&control, peer, "reconcile", "fleet").await?;
    control.store().forget_failures().await?;
    let reading = (control.levers().reconcile)();
    Ok(Json(Reconciling { reading }))
}

/// Makes the loop look at its rows and at the emergency stop's file, and nothing else: what failed
/// goes on waiting. It changes nothing, so that no record of it is kept.
pub(super) async fn poke(State(control): State<Control>) -> Json<Empty> {
    (control.levers().trigger)("poked");
    std::future::ready(Json(Empty {})).await
}

/// Lets a held revision pass. It is named by its id, or the beginning of one.
pub(super) async fn approve(
    State(control): State<Control>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Path(text): Path<String>,
) -> Answer<Empty> {
    const LATEST: u32 = 1_000;
    let known = control.store().revisions(LATEST).await?;
    let is_meant = |revision: &Revision| {
        revision.as_str().starts_with(&text)
            || (text.len() >= 4 && revision.as_str().starts_with(&format!("sha256:{text}")))
    };
    let mut meant = known.into_iter().map(|it| it.revision).filter(is_meant);
    let revision = meant
        .next()
        .filter(|_| !text.is_empty())
        .ok_or_else(|| Failure::not_found(format!("there is no revision '{text}'")))?;
    if meant.next().is_some() {
        return Err(Failure::ambiguous(format!(
            "'{text}' names more than one revision"
        )));
    }
    let subject = revision.to_string();
    let approved = control
        .store()
        .approve_revision(revision, peer.actor(), control.now())
        .await?;
    require(approved)?;
    let _nobody_waits = (control.levers().reconcile)();
    audit(&control, peer, "approve", &subject).await?;
    Ok(Json(Empty {}))
}

/// Where a run happens.
struct Place {
    space: ObjectView,
    workspace: Uid,
    agents: Vec<Name>,
}

impl Place {
    async fn find(control: &Control, space: &str) -> Result<Self, Failure> {
        let space = find(control.store(), Kind::Space, space).await?;
        let removed = || Failure::refused(format!("{} is being removed", space.reference));
        let json = space.json.as_deref().ok_or_else(removed)?;
        let agents = spec_of::<SpaceSpec>(json)?.agents;
        Self::of(control, space, agents).await
    }

    async fn of(control: &Control, space: ObjectView, agents: Vec<Name>) -> Result<Self, Failure> {
        let name = space.reference.workspace.clone();
        let name = name.ok_or_else(|| Failure::internal("a space has no workspace"))?;
        let reference = ObjectRef {
            kind: Kind::Workspace,
            workspace: None,
            name,
        };
        let workspace = control.store().object(reference).await?;
        let workspace = workspace.ok_or_else(|| Failure::refused("its workspace is gone"))?;
        Ok(Self {
            workspace: workspace.state.uid,
            agents,
            space,
        })
    }

    /// The object of `kind` in the space's own workspace.
    async fn sibling(
        &self,
        control: &Control,
        kind: Kind,
        text: &str,
    ) -> Result<ObjectView, Failure> {
        let workspace = self.space.reference.workspace.as_ref();
        let text = match workspace {
            Some(workspace) if !text.contains('/') && text.parse::<Uid>().is_err() => {
                format!("{workspace}/{text}")
            }
            Some(_) | None => text.to_owned(),
        };
        let object = find(control.store(), kind, &text).await?;
        if object.reference.workspace.as_ref() != workspace {
            return Err(Failure::refused(format!(
                "{} and {} are not of one workspace",
                object.reference, self.space.reference
            )));
        }
        Ok(object)
    }

    /// The agent, which has to serve the space.
    async fn agent(&self, control: &Control, text: &str) -> Result<ObjectView, Failure> {
        let agent = self.sibling(control, Kind::Agent, text).await?;
        if self.agents.contains(&agent.reference.name) {
            return Ok(agent);
        }
        let served: Vec<&str> = self.agents.iter().map(Name::as_str).collect();
        Err(Failure::refused(format!(
            "{} does not serve {}",
            agent.reference, self.space.reference
        ))
        .detail(format!("its agents are: {}", served.join(", "))))
    }

    /// The main conversation, or the side conversation of this name.
    fn conversation(&self, name: Option<&str>) -> Result<ConversationId, Failure> {
        let space = self.space.state.uid;
        let Some(name) = name else {
            return Ok(ConversationId::main_of(space));
        };
        let name: Name = name
            .parse()
            .map_err(|error| Failure::bad_request(format!("conversation: {error}")))?;
        Ok(ConversationId::derived(&[
            &space.to_string(),
            name.as_str(),
        ]))
    }

    /// A message of the peer's in the main conversation.
    fn message(&self, control: &Control, peer: Peer, text: &str) -> Result<NewMessage, Failure> {
        Ok(NewMessage {
            id: MessageId::from_uuid(control.ids().mint()),
            workspace: self.workspace,
            space: self.space.state.uid,
            conversation: self.conversation(None)?,
            author: Author::Human { name: peer.actor() },
            text: text.to_owned(),
            requested_by: Some(peer.actor()),
            created_at: control.now(),
        })
    }

    /// The first agent that the text names, else the space's first.
    fn addressee(&self, text: &str) -> Option<&Name> {
        let mentions = text
            .split_whitespace()
            .filter_map(|word| word.strip_prefix('@'))
            .map(|word| word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()));
        mentions
            .filter_map(|name| self.agents.iter().find(|agent| agent.as_str() == name))
            .next()
            .or_else(|| self.agents.first())
    }
}

/// The spec of a stored document. What our own encoder wrote and we cannot read is a bug.
fn spec_of<S: DeserializeOwned>(json: &str) -> Result<S, Failure> {
    let read = || {
        let mut document: Value = serde_json::from_str(json)?;
        serde_json::from_value(document["spec"].take())
    };
    read().map_err(|error: serde_json::Error| {
        tracing::error!(%error, "a stored document cannot be read");
        Failure::internal("a stored document cannot be read")
    })
}

fn wake(
    control: &Control,
    place: &Place,
    agent: &ObjectView,
    reason: WakeReason,
    peer: Peer,
    prompt: String,
) -> Wake {
    let space = place.space.state.uid;
    Wake {
        id: WakeId::from_uuid(control.ids().mint()),
        reason,
        workspace: place.workspace,
        agent: agent.state.uid,
        space,
        conversation: ConversationId::main_of(space),
        ticket: None,
        message: None,
        cause: None,
        previous_run: None,
        attempt: 0,
        continuation: None,
        delay: None,
        prompt,
        requested_by: Some(peer.actor()),
        env: BTreeMap::new(),
        git_identity: None,
        delivery: Delivery::FollowUp,
        priority: Priority::None,
        revision: None,
        created_at: control.now(),
    }
}

/// A row that is no longer what the request was about.
fn require(effect: Effect) -> Result<(), Failure> {
    match effect {
        Effect::Applied | Effect::Unchanged => Ok(()),
        Effect::Stale(why) => Err(Failure::refused(why)),
    }
}

async fn audit(control: &Control, peer: Peer, action: &str, subject: &str) -> Result<(), Failure> {
    let (actor, now) = (peer.actor(), control.now());
    let (action, subject) = (action.to_owned(), subject.to_owned());
    control
        .store()
        .audit(actor, action, subject, json!({}), now)
        .await?;
    Ok(())
}

fn check_text(field: &str, text: &str) -> Result<(), Failure> {
    let length = text.chars().count();
    if (1..=PROMPT_CHARS_MAX).contains(&length) {
        return Ok(());
    }
    Err(Failure::bad_request(format!(
        "{field} has {length} characters; it may have 1 to {PROMPT_CHARS_MAX}"
    )))
}

fn check_key(key: Option<&str>) -> Result<(), Failure> {
    match key {
        Some(key) if key.is_empty() || key.len() > KEY_BYTES_MAX => Err(Failure::bad_request(
            format!("an idempotency key has 1 to {KEY_BYTES_MAX} bytes"),
        )),
        Some(_) | None => Ok(()),
    }
}

/// The same names as in a manifest: what homeostat sets is its own.
fn check_variables(env: &BTreeMap<String, String>) -> Result<(), Failure> {
    let is_settable = |name: &str| is_variable_name(name) && !name.starts_with(OWN_VARIABLES);
    match env.keys().find(|name| !is_settable(name)) {
        Some(name) => Err(Failure::bad_request(format!(
            "'{name}' is no variable that a run may have"
        ))),
        None => Ok(()),
    }
}

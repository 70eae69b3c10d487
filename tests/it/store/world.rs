//! A small fleet in a database of its own. Uids are pinned, so that two worlds are alike.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use homeostat::clock::SeededIds;
use homeostat::model::budget::Reservation;
use homeostat::model::desired::Document;
use homeostat::model::id::{ConversationId, RunId, Uid, WakeId, WorktreeId};
use homeostat::model::kind::{Kind, ObjectRef, Origin, Revision};
use homeostat::model::observed::{TreePhase, Worktree, WorktreeBackend};
use homeostat::model::run::{EndReason, Liveness, RunOrder, RunStatus, RunTree, Usage};
use homeostat::model::spec::{AdapterSpec, AdapterType, GitIdentity, Mode, OutputFormat, Priority};
use homeostat::model::wake::{Delivery, Wake, WakeReason};
use homeostat::store::{Accept, Accepted, AdmitFacts, FirstObjects, RunClose, Store, StoreError};
use jiff::Timestamp;
use rusqlite::types::ValueRef;
use tempfile::TempDir;

/// The instant `second` seconds into the tests' time.
pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_796_000_000 + second).unwrap()
}

/// The uid that stands for `name`.
pub(super) fn uid(name: &str) -> Uid {
    Uid::derived(&[name])
}

pub(super) fn reference(text: &str) -> ObjectRef {
    let parts: Vec<&str> = text.split('/').collect();
    let (workspace, name) = match parts.as_slice() {
        [_, name] => (None, *name),
        [_, workspace, name] => (Some(*workspace), *name),
        _ => panic!("{text:?} is no reference"),
    };
    ObjectRef {
        kind: parts[0].parse::<Kind>().unwrap(),
        workspace: workspace.map(|it| it.parse().unwrap()),
        name: name.parse().unwrap(),
    }
}

/// A document whose hash is its spec.
pub(super) fn document(text: &str, pin: Option<Uid>, spec: &str) -> Document {
    let reference = reference(text);
    let mut metadata = serde_json::json!({ "name": reference.name });
    if let Some(workspace) = &reference.workspace {
        metadata["workspace"] = serde_json::json!(workspace);
    }
    if let Some(pin) = pin {
        metadata["uid"] = serde_json::json!(pin);
    }
    let json = serde_json::json!({
        "apiVersion": "homeostat/v1alpha1",
        "kind": reference.kind,
        "metadata": metadata,
        "spec": serde_json::from_str::<serde_json::Value>(spec).unwrap(),
    });
    Document {
        reference,
        json: json.to_string(),
        spec_hash: spec.to_owned(),
        origin: Origin {
            path: "fleet.yaml".to_owned(),
            line: 1,
        },
    }
}

/// A document with the uid of its name.
pub(super) fn pinned(text: &str, spec: &str) -> Document {
    let name = text.rsplit('/').next().unwrap();
    document(text, Some(uid(name)), spec)
}

/// The objects of the small fleet.
pub(super) fn fleet() -> Vec<Document> {
    vec![
        pinned("Workspace/acme", "{}"),
        pinned("Repo/acme/app", "{}"),
        pinned("Agent/acme/ada", "{}"),
        pinned("Agent/acme/bob", "{}"),
        pinned("Space/acme/room", "{}"),
        pinned("Ticket/acme/fix", "{}"),
        pinned("Dispatch/acme/once", "{}"),
        pinned("Schedule/acme/daily", "{}"),
    ]
}

pub(super) fn accept(revision: &str, documents: Vec<Document>, second: i64) -> Accept {
    Accept {
        revision: Revision::new(revision),
        documents,
        author: Some("Grace <grace@example.com>".to_owned()),
        committed_at: Some(at(second)),
        first_revision: FirstObjects::Run,
        now: at(second),
    }
}

pub(super) async fn accept_into(
    store: &Store,
    revision: &str,
    documents: Vec<Document>,
    second: i64,
) -> Result<Accepted, StoreError> {
    let ids = Arc::new(SeededIds::new(u64::try_from(second).unwrap()));
    store.accept(accept(revision, documents, second), ids).await
}

/// A database in a directory that goes with it.
#[derive(Debug)]
pub(super) struct World {
    pub(super) store: Store,
    pub(super) dir: TempDir,
}

impl World {
    /// An empty database.
    pub(super) fn empty() -> Self {
        let dir = tempfile::Builder::new().prefix("store-").tempdir().unwrap();
        let store = Store::open(&dir.path().join("homeostat.db")).unwrap();
        Self { store, dir }
    }

    /// The small fleet, its one worktree ready.
    pub(super) async fn new() -> Self {
        let world = Self::empty();
        accept_into(&world.store, "r1", fleet(), 0).await.unwrap();
        provision(&world.store).await.unwrap();
        world
    }

    pub(super) fn path(&self) -> PathBuf {
        self.dir.path().join("homeostat.db")
    }
}

/// Makes the fleet's root and worktree ready.
pub(super) async fn provision(store: &Store) -> Result<(), StoreError> {
    let (acme, room) = (uid("acme"), uid("room"));
    let _effect = store
        .record_root(acme, room, "/data/room".to_owned(), at(1))
        .await?;
    let overlays = BTreeMap::from([(uid("ada"), "/data/room/ada".to_owned())]);
    let _effect = store.root_ready(room, overlays).await?;
    let _effect = store.record_worktree(worktree(), at(2)).await?;
    let _effect = store
        .worktree_ready(worktree().id, "c0ffee".to_owned(), at(3))
        .await?;
    Ok(())
}

pub(super) fn worktree() -> Worktree {
    Worktree {
        id: WorktreeId::of(uid("room"), uid("app")),
        workspace: uid("acme"),
        space: uid("room"),
        repo: uid("app"),
        repo_name: "app".to_owned(),
        path: "/data/room/app".to_owned(),
        branch: "homeostat/room".to_owned(),
        base: None,
        backend: WorktreeBackend::Reflink,
        phase: TreePhase::Provisioning,
    }
}

/// A wake of ada in the room's main conversation.
pub(super) fn wake(name: &str) -> Wake {
    Wake {
        id: WakeId::derived(&[name]),
        reason: WakeReason::UserMessage,
        workspace: uid("acme"),
        agent: uid("ada"),
        space: uid("room"),
        conversation: ConversationId::main_of(uid("room")),
        ticket: None,
        message: None,
        cause: None,
        previous_run: None,
        attempt: 0,
        continuation: None,
        delay: None,
        prompt: format!("do {name}"),
        requested_by: Some("grace".to_owned()),
        env: BTreeMap::from([("KEY".to_owned(), "value".to_owned())]),
        git_identity: Some(GitIdentity {
            name: "Grace".to_owned(),
            email: "grace@example.com".to_owned(),
        }),
        delivery: Delivery::Steer,
        priority: Priority::None,
        revision: Some(Revision::new("r1")),
        created_at: at(10),
    }
}

/// The order that starts the run of `wake`, with the fleet's worktree.
pub(super) fn order(wake: &Wake) -> RunOrder {
    let tree = worktree();
    RunOrder {
        trees: vec![RunTree {
            id: tree.id,
            repo: tree.repo,
            repo_name: tree.repo_name,
            path: tree.path,
            branch: tree.branch,
            base: "c0ffee".to_owned(),
        }],
        ..order_without_trees(wake)
    }
}

/// The order that starts the run of `wake` beside the worktree.
pub(super) fn order_without_trees(wake: &Wake) -> RunOrder {
    RunOrder {
        run: RunId::of(wake.id),
        wake: wake.id,
        reason: wake.reason,
        attempt: wake.attempt,
        workspace: wake.workspace,
        workspace_name: "acme".to_owned(),
        agent: wake.agent,
        agent_ref: reference("Agent/acme/ada"),
        agent_title: "Ada".to_owned(),
        persona: None,
        skills: Vec::new(),
        space: wake.space,
        space_name: "room".to_owned(),
        roster: Vec::new(),
        mode: Mode::Chat,
        conversation: wake.conversation,
        ticket: wake.ticket,
        adapter_name: "script".to_owned(),
        adapter: AdapterSpec {
            prices: Vec::new(),
            r#type: AdapterType::Command,
            command: Some("/bin/true".to_owned()),
            args: Vec::new(),
            env: BTreeMap::new(),
            output: OutputFormat::Text,
        },
        adapter_generation: 1,
        model: None,
        effort: None,
        cwd: "/data/room/app".to_owned(),
        trees: Vec::new(),
        identity: GitIdentity {
            name: "Ada".to_owned(),
            email: "ada@agents.homeostat.local".to_owned(),
        },
        silence: Duration::from_secs(900),
        reservation: Reservation::default(),
        guards: Vec::new(),
        revision: Revision::new("r1"),
        generation: 1,
    }
}

pub(super) fn facts(second: i64) -> AdmitFacts {
    AdmitFacts {
        incarnation: "life-1".to_owned(),
        sandbox_state: "none".to_owned(),
        credential_source: "adapter".to_owned(),
        backend: WorktreeBackend::Reflink,
        log_path: "/data/runs/x.ndjson".to_owned(),
        contract: None,
        now: at(second),
    }
}

/// A clean end.
pub(super) fn close(run: RunId, second: i64) -> RunClose {
    RunClose {
        run,
        status: RunStatus::Completed,
        liveness: Liveness::Completed,
        family: None,
        end_reason: EndReason::AgentFinished,
        error_code: None,
        is_retryable: false,
        exit_code: Some(0),
        signal: None,
        summary: Some("done".to_owned()),
        usage: Usage {
            input_tokens: 10,
            output_tokens: 5,
            cost_micros: Some(1_500),
            ..Usage::default()
        },
        model: Some("small".to_owned()),
        price_table: None,
        reply: Some("It is done.".to_owned()),
        transcript_json: Some("[]".to_owned()),
        trees: Vec::new(),
        continuation: None,
        ended_at: at(second),
    }
}

/// Every row of every table, in the order of the first columns, as text.
pub(super) fn dump(path: &std::path::Path) -> Vec<String> {
    let conn = rusqlite::Connection::open(path).unwrap();
    let tables: Vec<String> = conn
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<rusqlite::Result<_>>()
        .unwrap();
    let mut lines = Vec::new();
    for table in tables {
        let mut statement = conn
            .prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2"))
            .unwrap();
        let width = statement.column_count();
        let mut rows = statement.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            let cells: Vec<String> = (0..width)
                .map(|index| match row.get_ref(index).unwrap() {
                    ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
                    other => format!("{other:?}"),
                })
                .collect();
            lines.push(format!("{table}: {}", cells.join(" ")));
        }
    }
    lines
}

/// Fails with the rows that differ.
#[track_caller]
pub(super) fn assert_same(left: &[String], right: &[String], what: &str) {
    let only = |a: &[String], b: &[String]| -> Vec<String> {
        a.iter().filter(|row| !b.contains(row)).cloned().collect()
    };
    let (gone, new) = (only(left, right), only(right, left));
    assert!(
        gone.is_empty() && new.is_empty(),
        "{what}: gone {gone:#?} new {new:#?}"
    );
}

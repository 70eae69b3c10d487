//! Revisions: accepting one whole, refusing it, holding it, and what the last good one was.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;
use serde_json::json;
use strum::{Display, EnumIter, EnumString};

use super::sql::{At, Columns, Text};
use super::{Effect, Store, StoreError, outbox};
use crate::clock::IdSource;
use crate::model::desired::Document;
use crate::model::event::DomainEventType;
use crate::model::id::Uid;
use crate::model::kind::{Kind, ObjectRef, Origin, Revision};
use crate::model::ticket::TicketStatus;

/// A revision to accept.
#[derive(Clone, Debug)]
pub struct Accept {
    /// Which.
    pub revision: Revision,
    /// Every document of it. A reference occurs once.
    pub documents: Vec<Document>,
    /// Author of the commit.
    pub author: Option<String>,
    /// When it was committed.
    pub committed_at: Option<Timestamp>,
    /// What happens to run-once objects if no revision was ever accepted here.
    pub first_revision: FirstObjects,
    /// Now.
    pub now: Timestamp,
}

/// What the first revision that a database accepts does with run-once objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstObjects {
    /// They run.
    Run,
    /// They are held while they stay as they are.
    Hold,
}

/// What accepting a revision changed, each list in reference order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Objects that are new, or were revived.
    pub created: Vec<ObjectRef>,
    /// Objects with a new generation, or a new name.
    pub changed: Vec<ObjectRef>,
    /// Objects that it no longer declares.
    pub removed: Vec<ObjectRef>,
}

/// The latest verdict on a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Display, EnumString, EnumIter)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum RevisionState {
    /// It was, or is, the desired state.
    Accepted,
    /// It has faults.
    Rejected,
    /// It waits for a person.
    Held,
}

/// One revision that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RevisionView {
    /// Which.
    pub revision: Revision,
    /// The verdict.
    pub state: RevisionState,
    /// Whether it is the one that serves.
    pub is_current: bool,
    /// Author of the commit.
    pub author: Option<String>,
    /// When it was committed.
    pub committed_at: Option<Timestamp>,
    /// When the verdict was reached.
    pub decided_at: Timestamp,
    /// Why it is held.
    pub message: Option<String>,
    /// Why it was rejected: a JSON list of diagnostics.
    pub diagnostics_json: Option<String>,
    /// Who approved it.
    pub approved_by: Option<String>,
}

impl Store {
    /// Makes `accept.revision` the desired state, in one transaction: documents replaced, objects
    /// created, changed, revived or asked to go, `RevisionAccepted` published. Again with the same
    /// revision and documents it changes nothing.
    ///
    /// An object keeps its uid over edits, and gets a new one when it is deleted and made again,
    /// except that a Dispatch with the same name and spec is the same Dispatch: it does not run
    /// again. `metadata.uid` pins the uid, over a rename too.
    ///
    /// # Errors
    /// [`StoreError::UidConflict`] when a pin contradicts what is stored; nothing is changed then.
    pub async fn accept(
        &self,
        accept: Accept,
        ids: Arc<dyn IdSource>,
    ) -> Result<Accepted, StoreError> {
        self.connections
            .write("accepted revision", move |conn| {
                accept_revision(conn, &accept, ids.as_ref())
            })
            .await?
            .map_err(|conflict| StoreError::UidConflict {
                reference: conflict.reference,
                pinned: conflict.pinned,
                because: conflict.because,
            })
    }

    /// Records that a revision has faults; the last good one serves on.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn reject(
        &self,
        revision: Revision,
        diagnostics_json: String,
        now: Timestamp,
    ) -> Result<Effect, StoreError> {
        self.verdict(
            revision,
            RevisionState::Rejected,
            None,
            Some(diagnostics_json),
            now,
        )
        .await
    }

    /// Records that a revision waits for a person.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn hold_revision(
        &self,
        revision: Revision,
        message: String,
        now: Timestamp,
    ) -> Result<Effect, StoreError> {
        self.verdict(revision, RevisionState::Held, Some(message), None, now)
            .await
    }

    async fn verdict(
        &self,
        revision: Revision,
        state: RevisionState,
        message: Option<String>,
        diagnostics_json: Option<String>,
        now: Timestamp,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("revision verdict", move |conn| {
                let known: Option<(String, Option<String>, Option<String>)> = conn
                    .prepare_cached(
                        "SELECT state, message, diagnostics_json FROM revisions WHERE revision = ?1",
                    )?
                    .query_row([revision.as_str()], |row| {
                        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                    })
                    .optional()?;
                if known == Some((state.to_string(), message.clone(), diagnostics_json.clone())) {
                    return Ok(Effect::Unchanged);
                }
                conn.prepare_cached(
                    "INSERT INTO revisions (revision, state, seq, decided_at, message, diagnostics_json)
                     VALUES (?1, ?2, (SELECT coalesce(max(seq), 0) + 1 FROM revisions), ?3, ?4, ?5)
                     ON CONFLICT (revision) DO UPDATE SET
                       state = excluded.state, seq = excluded.seq, decided_at = excluded.decided_at,
                       message = excluded.message, diagnostics_json = excluded.diagnostics_json",
                )?
                .execute(params![
                    revision.as_str(),
                    Text(state),
                    At(now),
                    message,
                    diagnostics_json
                ])?;
                let event = if state == RevisionState::Held {
                    DomainEventType::RevisionHeld
                } else {
                    DomainEventType::RevisionRejected
                };
                let payload = json!({ "revision": revision.as_str(), "message": message });
                outbox::publish(conn, event, None, revision.as_str(), &payload, now)?;
                Ok(Effect::Applied)
            })
            .await
    }

    /// Lets a held revision pass. Stale when no such revision is held.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn approve_revision(
        &self,
        revision: Revision,
        by: String,
        now: Timestamp,
    ) -> Result<Effect, StoreError> {
        self.connections
            .write("approval of a revision", move |conn| {
                let row: Option<(String, bool)> = conn
                    .prepare_cached(
                        "SELECT state, approved_at IS NOT NULL FROM revisions WHERE revision = ?1",
                    )?
                    .query_row([revision.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))
                    .optional()?;
                match row {
                    None => return Ok(Effect::stale(format!("revision {revision} is not known"))),
                    Some((_, true)) => return Ok(Effect::Unchanged),
                    Some((state, _)) if state != RevisionState::Held.to_string() => {
                        return Ok(Effect::stale(format!("revision {revision} is {state}")));
                    }
                    Some(_) => {}
                }
                conn.prepare_cached(
                    "UPDATE revisions SET approved_by = ?2, approved_at = ?3 WHERE revision = ?1",
                )?
                .execute(params![revision.as_str(), by, At(now)])?;
                Ok(Effect::Applied)
            })
            .await
    }

    /// Whether a person let the revision pass.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn is_approved(&self, revision: Revision) -> Result<bool, StoreError> {
        self.connections
            .read("approval of a revision", move |conn| {
                conn.prepare_cached(
                    "SELECT 1 FROM revisions WHERE revision = ?1 AND approved_at IS NOT NULL",
                )?
                .exists([revision.as_str()])
            })
            .await
    }

    /// The revision that serves, with its documents in reference order.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn last_good(&self) -> Result<Option<(Revision, Vec<Document>)>, StoreError> {
        self.connections
            .read("last good revision", |conn| {
                let Some(revision) = current(conn)? else {
                    return Ok(None);
                };
                let mut documents: Vec<Document> = conn
                    .prepare_cached("SELECT * FROM documents")?
                    .query_map([], document)?
                    .collect::<rusqlite::Result<_>>()?;
                documents.sort_by(|a, b| a.reference.cmp(&b.reference));
                Ok(Some((revision, documents)))
            })
            .await
    }

    /// Revisions with their verdicts, the latest first.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn revisions(&self, limit: u32) -> Result<Vec<RevisionView>, StoreError> {
        self.connections
            .read("revisions", move |conn| {
                let current = current(conn)?;
                conn.prepare_cached("SELECT * FROM revisions ORDER BY seq DESC LIMIT ?1")?
                    .query_map([limit], |row| revision_view(row, current.as_ref()))?
                    .collect()
            })
            .await
    }
}

fn revision_view(row: &Row<'_>, current: Option<&Revision>) -> rusqlite::Result<RevisionView> {
    let revision = row.revision("revision")?;
    Ok(RevisionView {
        state: row.text("state")?,
        is_current: current == Some(&revision),
        author: row.get("author")?,
        committed_at: row.at_opt("committed_at")?,
        decided_at: row.at("decided_at")?,
        message: row.get("message")?,
        diagnostics_json: row.get("diagnostics_json")?,
        approved_by: row.get("approved_by")?,
        revision,
    })
}

/// The revision that serves.
pub(super) fn current(conn: &Connection) -> rusqlite::Result<Option<Revision>> {
    conn.prepare_cached(
        "SELECT revision FROM revisions WHERE accepted_seq IS NOT NULL
         ORDER BY accepted_seq DESC LIMIT 1",
    )?
    .query_row([], |row| row.revision("revision"))
    .optional()
}

fn document(row: &Row<'_>) -> rusqlite::Result<Document> {
    Ok(Document {
        reference: row.reference("reference")?,
        json: row.get("json")?,
        spec_hash: row.get("spec_hash")?,
        origin: Origin {
            path: row.get("path")?,
            line: row.count32("line")?,
        },
    })
}

struct Conflict {
    reference: ObjectRef,
    pinned: Uid,
    because: String,
}

/// A row of `objects` as far as accepting needs it.
#[derive(Clone, Debug)]
struct Known {
    uid: Uid,
    reference: ObjectRef,
    spec_hash: String,
    is_deleting: bool,
    is_tombstone: bool,
}

/// What becomes of one object.
enum Fate {
    /// A row is inserted.
    Create { uid: Uid },
    /// A row goes on, under this reference and spec.
    Keep { known: Known },
}

fn accept_revision(
    conn: &Connection,
    accept: &Accept,
    ids: &dyn IdSource,
) -> rusqlite::Result<Result<Accepted, Conflict>> {
    let before = current(conn)?;
    let live = live_objects(conn)?;
    let mut fates = Vec::with_capacity(accept.documents.len());
    for document in &accept.documents {
        match fate(conn, document, &live, ids)? {
            Ok(fate) => fates.push((document, fate)),
            Err(conflict) => return Ok(Err(conflict)),
        }
    }
    let kept: BTreeSet<Uid> = fates
        .iter()
        .map(|(_, fate)| match fate {
            Fate::Create { uid } => *uid,
            Fate::Keep { known } => known.uid,
        })
        .collect();
    if let Some(conflict) = taken_name(&fates, &live, &kept) {
        return Ok(Err(conflict));
    }

    let mut accepted = Accepted::default();
    let is_held = before.is_none() && accept.first_revision == FirstObjects::Hold;
    vacate_renamed(conn, &fates)?;
    for (document, fate) in &fates {
        match fate {
            Fate::Create { uid } => {
                insert_object(conn, accept, document, *uid, is_held)?;
                accepted.created.push(document.reference.clone());
            }
            Fate::Keep { known } => keep_object(conn, accept, document, known, &mut accepted)?,
        }
    }
    for known in live.values().filter(|known| !kept.contains(&known.uid)) {
        if !known.is_deleting {
            conn.prepare_cached("UPDATE objects SET deletion_requested_at = ?2 WHERE uid = ?1")?
                .execute(params![Text(known.uid), At(accept.now)])?;
            accepted.removed.push(known.reference.clone());
        }
    }
    let is_rewritten = replace_documents(conn, &accept.documents)?;
    let is_new = before.as_ref() != Some(&accept.revision);
    if is_new || is_rewritten || accepted != Accepted::default() {
        record_acceptance(conn, accept, &accepted)?;
    }
    accepted.created.sort();
    accepted.changed.sort();
    accepted.removed.sort();
    Ok(Ok(accepted))
}

fn known(row: &Row<'_>) -> rusqlite::Result<Known> {
    Ok(Known {
        uid: row.text("uid")?,
        reference: row.reference("reference")?,
        spec_hash: row.get("spec_hash")?,
        is_deleting: row.at_opt("deletion_requested_at")?.is_some(),
        is_tombstone: row.at_opt("deleted_at")?.is_some(),
    })
}

fn live_objects(conn: &Connection) -> rusqlite::Result<BTreeMap<ObjectRef, Known>> {
    conn.prepare_cached("SELECT * FROM objects WHERE deleted_at IS NULL")?
        .query_map([], known)?
        .map(|row| row.map(|row| (row.reference.clone(), row)))
        .collect()
}

/// `metadata.uid` of the canonical document.
fn pin(document: &Document) -> Option<Uid> {
    if !document.json.contains("\"uid\"") {
        return None;
    }
    let json: serde_json::Value = serde_json::from_str(&document.json).ok()?;
    json.pointer("/metadata/uid")?.as_str()?.parse().ok()
}

fn fate(
    conn: &Connection,
    document: &Document,
    live: &BTreeMap<ObjectRef, Known>,
    ids: &dyn IdSource,
) -> rusqlite::Result<Result<Fate, Conflict>> {
    let here = live.get(&document.reference);
    let Some(pinned) = pin(document) else {
        if let Some(known) = here {
            let known = known.clone();
            return Ok(Ok(Fate::Keep { known }));
        }
        return Ok(Ok(match tombstone_of_dispatch(conn, document)? {
            Some(known) => Fate::Keep { known },
            None => Fate::Create {
                uid: Uid::from_uuid(ids.mint()),
            },
        }));
    };
    let conflict = |because: String| {
        Ok(Err(Conflict {
            reference: document.reference.clone(),
            pinned,
            because,
        }))
    };
    let holder = conn
        .prepare_cached("SELECT * FROM objects WHERE uid = ?1")?
        .query_row([Text(pinned)], known)
        .optional()?;
    match holder {
        None => Ok(Ok(Fate::Create { uid: pinned })),
        Some(known) if known.reference.kind == document.reference.kind => {
            Ok(Ok(Fate::Keep { known }))
        }
        Some(known) => conflict(format!("that is {}", known.reference)),
    }
}

/// A Dispatch of the same name and spec that was there once.
fn tombstone_of_dispatch(
    conn: &Connection,
    document: &Document,
) -> rusqlite::Result<Option<Known>> {
    if document.reference.kind != Kind::Dispatch {
        return Ok(None);
    }
    conn.prepare_cached(
        "SELECT * FROM objects WHERE reference = ?1 AND spec_hash = ?2 AND deleted_at IS NOT NULL
         ORDER BY deleted_at DESC, rowid DESC LIMIT 1",
    )?
    .query_row(
        params![Text(&document.reference), document.spec_hash],
        known,
    )
    .optional()
}

/// Two documents that name one object, or a name that an object on its way out still has.
fn taken_name(
    fates: &[(&Document, Fate)],
    live: &BTreeMap<ObjectRef, Known>,
    kept: &BTreeSet<Uid>,
) -> Option<Conflict> {
    let mut seen = BTreeMap::new();
    for (document, fate) in fates {
        let uid = match fate {
            Fate::Create { uid } => *uid,
            Fate::Keep { known } => known.uid,
        };
        let conflict = |because: String| Conflict {
            reference: document.reference.clone(),
            pinned: uid,
            because,
        };
        if let Some(other) = seen.insert(uid, &document.reference) {
            return Some(conflict(format!("{other} has that uid too")));
        }
        let holder = live.get(&document.reference);
        if let Some(holder) = holder.filter(|it| it.uid != uid && !kept.contains(&it.uid)) {
            return Some(conflict(if holder.is_deleting {
                "the object of that name is still being removed".to_owned()
            } else {
                format!("the object of that name has uid {}", holder.uid)
            }));
        }
    }
    None
}

/// Frees the names of objects that get another one, so that two may swap theirs.
fn vacate_renamed(conn: &Connection, fates: &[(&Document, Fate)]) -> rusqlite::Result<()> {
    for (document, fate) in fates {
        if let Fate::Keep { known } = fate
            && known.reference != document.reference
        {
            conn.prepare_cached("UPDATE objects SET reference = uid WHERE uid = ?1")?
                .execute([Text(known.uid)])?;
        }
    }
    Ok(())
}

fn insert_object(
    conn: &Connection,
    accept: &Accept,
    document: &Document,
    uid: Uid,
    is_held: bool,
) -> rusqlite::Result<()> {
    let reference = &document.reference;
    let held = (is_held && reference.kind.is_run_once()).then_some(1);
    conn.prepare_cached(
        "INSERT INTO objects (uid, reference, kind, workspace, name, generation, generation_since,
           spec_hash, revision, created_at, first_revision_generation)
         VALUES (?1, ?2, ?3, ?4, ?5, 1, ?8, ?6, ?7, ?8, ?9)",
    )?
    .execute(params![
        Text(uid),
        Text(reference),
        Text(reference.kind),
        reference.workspace.as_ref().map(Text),
        Text(&reference.name),
        document.spec_hash,
        accept.revision.as_str(),
        At(accept.now),
        held
    ])?;
    if reference.kind == Kind::Ticket {
        conn.prepare_cached(
            "INSERT INTO tickets (uid, status, assignments, changed_at) VALUES (?1, ?2, 0, ?3)",
        )?
        .execute(params![Text(uid), Text(TicketStatus::Open), At(accept.now)])?;
    }
    Ok(())
}

fn keep_object(
    conn: &Connection,
    accept: &Accept,
    document: &Document,
    known: &Known,
    accepted: &mut Accepted,
) -> rusqlite::Result<()> {
    let reference = &document.reference;
    let is_edited = known.spec_hash != document.spec_hash;
    let is_renamed = known.reference != *reference;
    if known.is_tombstone {
        accepted.created.push(reference.clone());
    } else if is_edited || is_renamed || known.is_deleting {
        accepted.changed.push(reference.clone());
    } else {
        return Ok(());
    }
    conn.prepare_cached(
        "UPDATE objects SET reference = ?2, workspace = ?3, name = ?4,
           deletion_requested_at = NULL, deleted_at = NULL,
           generation = generation + ?5, spec_hash = ?6, revision = iif(?5, ?7, revision),
           generation_since = iif(?8, ?9, generation_since)
         WHERE uid = ?1",
    )?
    .execute(params![
        Text(known.uid),
        Text(reference),
        reference.workspace.as_ref().map(Text),
        Text(&reference.name),
        is_edited,
        document.spec_hash,
        accept.revision.as_str(),
        is_edited || known.is_tombstone,
        At(accept.now)
    ])?;
    Ok(())
}

/// Writes the documents that differ from the stored ones. Whether there were any.
fn replace_documents(conn: &Connection, documents: &[Document]) -> rusqlite::Result<bool> {
    let mut stored: BTreeMap<ObjectRef, Document> = conn
        .prepare_cached("SELECT * FROM documents")?
        .query_map([], document)?
        .map(|row| row.map(|row| (row.reference.clone(), row)))
        .collect::<rusqlite::Result<_>>()?;
    let mut is_changed = false;
    for document in documents {
        if stored.remove(&document.reference).as_ref() == Some(document) {
            continue;
        }
        is_changed = true;
        let reference = &document.reference;
        conn.prepare_cached(
            "INSERT OR REPLACE INTO documents
               (reference, kind, workspace, name, json, spec_hash, path, line)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            Text(reference),
            Text(reference.kind),
            reference.workspace.as_ref().map(Text),
            Text(&reference.name),
            document.json,
            document.spec_hash,
            document.origin.path,
            document.origin.line
        ])?;
    }
    for reference in stored.keys() {
        is_changed = true;
        conn.prepare_cached("DELETE FROM documents WHERE reference = ?1")?
            .execute([Text(reference)])?;
    }
    Ok(is_changed)
}

fn record_acceptance(
    conn: &Connection,
    accept: &Accept,
    accepted: &Accepted,
) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO revisions
           (revision, state, seq, accepted_seq, author, committed_at, decided_at)
         VALUES (?1, ?2, (SELECT coalesce(max(seq), 0) + 1 FROM revisions),
           (SELECT coalesce(max(accepted_seq), 0) + 1 FROM revisions), ?3, ?4, ?5)
         ON CONFLICT (revision) DO UPDATE SET
           state = excluded.state, seq = excluded.seq, accepted_seq = excluded.accepted_seq,
           author = excluded.author, committed_at = excluded.committed_at,
           decided_at = excluded.decided_at, message = NULL, diagnostics_json = NULL",
    )?
    .execute(params![
        accept.revision.as_str(),
        Text(RevisionState::Accepted),
        accept.author,
        accept.committed_at.map(At),
        At(accept.now)
    ])?;
    let payload = json!({
        "revision": accept.revision.as_str(),
        "created": accepted.created.len(),
        "changed": accepted.changed.len(),
        "removed": accepted.removed.len(),
    });
    outbox::publish(
        conn,
        DomainEventType::RevisionAccepted,
        None,
        accept.revision.as_str(),
        &payload,
        accept.now,
    )
}

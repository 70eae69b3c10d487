//! Accepting a revision: documents replaced and objects reconciled by identity, whole or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde_json::json;

use super::revision::{RevisionState, current, document};
use super::sql::{At, Columns, Text};
use super::{Store, StoreError, outbox};
use crate::clock::IdSource;
use crate::model::desired::Document;
use crate::model::event::DomainEventType;
use crate::model::id::Uid;
use crate::model::kind::{Kind, ObjectRef, Revision};
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

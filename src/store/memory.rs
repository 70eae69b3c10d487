//! What agents noted for later runs of their workspace, found again by its words (BM25).

use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::sql::{At, Text, int};
use super::{Store, StoreError};
use crate::model::id::{RunId, Uid};
use crate::model::tool::MemoryFact;

/// Current facts that one workspace has at most.
pub const FACTS_MAX: u64 = 5_000;
/// Words of a query that are looked for.
const WORDS_MAX: usize = 64;
/// Words that say nothing of a matter. Among few facts they would look rare, and decide.
const FILLERS: [&str; 32] = [
    "a", "an", "and", "are", "as", "at", "be", "by", "do", "does", "for", "from", "how", "in",
    "is", "it", "its", "of", "on", "or", "so", "that", "the", "this", "to", "was", "we", "what",
    "when", "which", "why", "with",
];

/// A fact to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFact {
    /// Where it holds.
    pub workspace: Uid,
    /// What it is about. A current fact with the same key is superseded.
    pub key: String,
    /// What is so.
    pub text: String,
    /// Who learned it.
    pub agent: Uid,
    /// In which run.
    pub run: RunId,
    /// When.
    pub created_at: Timestamp,
}

/// What became of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Noted {
    /// It is kept.
    New,
    /// It is kept, and supersedes an older one.
    Superseding,
    /// A current fact says exactly this; nothing was written.
    Already,
    /// The workspace has [`FACTS_MAX`] current facts; nothing was written.
    Full,
}

impl Store {
    /// Keeps a fact. The one that it supersedes stays, as history.
    ///
    /// # Errors
    /// When the database fails, or the run is not known.
    pub async fn remember(&self, fact: NewFact) -> Result<Noted, StoreError> {
        self.connections
            .write("fact", move |conn| {
                let older: Option<(i64, String)> = conn
                    .prepare_cached(
                        "SELECT seq, text FROM facts
                         WHERE workspace = ?1 AND key = ?2 AND superseded_by IS NULL",
                    )?
                    .query_row(params![Text(fact.workspace), fact.key], |row| {
                        Ok((row.get("seq")?, row.get("text")?))
                    })
                    .optional()?;
                match &older {
                    Some((_, text)) if *text == fact.text => return Ok(Noted::Already),
                    None if is_full(conn, fact.workspace)? => return Ok(Noted::Full),
                    Some(_) | None => {}
                }
                let seq = insert(conn, &fact)?;
                let Some((older, _)) = older else {
                    return Ok(Noted::New);
                };
                conn.prepare_cached("UPDATE facts SET superseded_by = ?2 WHERE seq = ?1")?
                    .execute([older, seq])?;
                conn.prepare_cached("DELETE FROM fact_words WHERE rowid = ?1")?
                    .execute([older])?;
                Ok(Noted::Superseding)
            })
            .await
    }

    /// Current facts of a workspace that share a word with `query`, best match first, at most
    /// `limit`. Whatever `query` is, it is words, never an expression.
    ///
    /// # Errors
    /// When the database fails.
    pub async fn recall(
        &self,
        workspace: Uid,
        query: &str,
        limit: u32,
    ) -> Result<Vec<MemoryFact>, StoreError> {
        let Some(words) = any_word_of(query) else {
            return Ok(Vec::new());
        };
        self.connections
            .read("facts", move |conn| {
                conn.prepare_cached(
                    "SELECT f.key, f.text FROM fact_words w JOIN facts f ON f.seq = w.rowid
                     WHERE fact_words MATCH ?1 AND f.workspace = ?2
                     ORDER BY bm25(fact_words, 2.0, 1.0), f.seq DESC LIMIT ?3",
                )?
                .query_map(params![words, Text(workspace), limit], memory_fact)?
                .collect()
            })
            .await
    }
}

fn is_full(conn: &Connection, workspace: Uid) -> rusqlite::Result<bool> {
    conn.prepare_cached(
        "SELECT count(*) >= ?2 FROM facts WHERE workspace = ?1 AND superseded_by IS NULL",
    )?
    .query_row(params![Text(workspace), int(FACTS_MAX)], |row| row.get(0))
}

/// Writes the fact and its words; its number.
fn insert(conn: &Connection, fact: &NewFact) -> rusqlite::Result<i64> {
    conn.prepare_cached(
        "INSERT INTO facts (workspace, key, text, agent, run, created_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![
        Text(fact.workspace),
        fact.key,
        fact.text,
        Text(fact.agent),
        Text(fact.run),
        At(fact.created_at)
    ])?;
    let seq = conn.last_insert_rowid();
    conn.prepare_cached("INSERT INTO fact_words (rowid, key, text) VALUES (?1, ?2, ?3)")?
        .execute(params![seq, fact.key, fact.text])?;
    Ok(seq)
}

fn memory_fact(row: &Row<'_>) -> rusqlite::Result<MemoryFact> {
    Ok(MemoryFact {
        key: row.get("key")?,
        text: row.get("text")?,
    })
}

/// The query as an expression of FTS5 that any of its words satisfies: `"flaky" OR "test"`. A word
/// is letters and digits only, so that nothing of it is an operator. None when no word is left.
fn any_word_of(query: &str) -> Option<String> {
    let is_filler = |word: &str| FILLERS.iter().any(|it| it.eq_ignore_ascii_case(word));
    let words: Vec<_> = query
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty() && !is_filler(word))
        .take(WORDS_MAX)
        .map(|word| format!("\"{word}\""))
        .collect();
    (!words.is_empty()).then(|| words.join(" OR "))
}

#[cfg(test)]
mod tests {
    use super::any_word_of;

    #[test]
    fn a_query_is_words_and_never_an_expression() {
        for (query, expected) in [
            ("Why is the test flaky?", Some("\"test\" OR \"flaky\"")),
            (
                "NEAR(x y) NOT key:c* - \"d",
                Some("\"NEAR\" OR \"x\" OR \"y\" OR \"NOT\" OR \"key\" OR \"c\" OR \"d\""),
            ),
            ("größe_2", Some("\"größe\" OR \"2\"")),
            (" \"*():^- the", None),
            ("", None),
        ] {
            assert_eq!(any_word_of(query).as_deref(), expected, "{query:?}");
        }
    }
}

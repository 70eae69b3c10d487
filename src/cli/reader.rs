//! Where a command that only looks gets its answers: the daemon, else the database itself.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::client::{self, Client, of_problem};
use super::error::{CliError, CliResult, Kind};
use super::host::Host;
use super::ui::Ui;
use crate::api::dto::{
    BudgetList, DomainEvents, ObjectList, Prompt, Run, RunEvents, RunList, Trace, Transcript, Why,
};
use crate::api::problem::Failure;
use crate::api::view::{self, RunQuery};
use crate::clock::{Clock, SystemClock};
use crate::model::kind::Kind as ObjectKind;
use crate::store::Store;

/// Both answer with the same words: the daemon's come from the same views.
#[derive(Debug)]
pub(crate) enum Reader {
    /// A daemon answers.
    Daemon(Client),
    /// None does; the database is open for reading only.
    Database {
        /// The database.
        store: Store,
        /// What its reads run on.
        runtime: tokio::runtime::Runtime,
    },
}

impl Reader {
    /// The daemon if it answers, else its database, with a note to the person.
    ///
    /// # Errors
    /// When there is neither.
    pub(crate) fn open(host: &Host, ui: &mut Ui) -> CliResult<Self> {
        let paths = host.client()?;
        let Err(refused) = UnixStream::connect(&paths.socket) else {
            return Ok(Self::Daemon(Client::new(paths.socket)?));
        };
        let database = paths.database();
        if !database.exists() {
            return Err(CliError::new(
                Kind::Unreachable,
                format!("no daemon answers on {}", paths.socket.display()),
            )
            .because(&refused)
            .hint(format!(
                "{} holds no state either",
                paths.data_dir.display()
            ))
            .hint("start `homeostat daemon`, or pass the --data-dir of another one"));
        }
        let runtime = client::runtime()?;
        let store = Store::open_read_only(&database).map_err(|error| {
            CliError::caused(Kind::Usage, "failed to read what the daemon stored", &error)
        })?;
        ui.say_once(format_args!(
            "note: no daemon answers; this is what {} holds",
            database.display()
        ));
        Ok(Self::Database { store, runtime })
    }

    /// Whether more may come while one waits.
    pub(crate) const fn is_live(&self) -> bool {
        matches!(self, Self::Daemon(_))
    }

    /// Objects of one kind, or all.
    ///
    /// # Errors
    /// When nothing answers. Every method below may fail so, and as it says.
    pub(crate) fn objects(&self, kind: Option<ObjectKind>) -> CliResult<ObjectList> {
        match self {
            Self::Daemon(client) => match kind {
                Some(kind) => client.get(&format!("/v1/objects/{kind}")),
                None => client.get("/v1/objects"),
            },
            Self::Database { store, runtime } => {
                answer(runtime.block_on(view::objects(store, kind, SystemClock.now())))
            }
        }
    }

    /// Runs, newest first.
    pub(crate) fn runs(&self, query: &RunQuery) -> CliResult<RunList> {
        match self {
            Self::Daemon(client) => client.get(&format!("/v1/runs?{}", query_text(query))),
            Self::Database { store, runtime } => answer(runtime.block_on(view::runs(store, query))),
        }
    }

    /// One run, with what it handed in.
    pub(crate) fn run(&self, id: &str) -> CliResult<Run> {
        match self {
            Self::Daemon(client) => client.get(&format!("/v1/runs/{}", escape(id))),
            Self::Database { store, runtime } => answer(runtime.block_on(view::run(store, id))),
        }
    }

    /// Which commit, file and line made a run.
    pub(crate) fn trace(&self, id: &str) -> CliResult<Trace> {
        match self {
            Self::Daemon(client) => client.get(&format!("/v1/runs/{}/trace", escape(id))),
            Self::Database { store, runtime } => answer(runtime.block_on(view::trace(store, id))),
        }
    }

    /// Events of the run behind `after`, waiting up to `wait` for the first.
    pub(crate) fn run_events(
        &self,
        id: &str,
        after: Option<u64>,
        wait: Duration,
    ) -> CliResult<RunEvents> {
        match self {
            Self::Daemon(client) => {
                let (id, seconds) = (escape(id), wait.as_secs());
                let after = after.map(|it| format!("&after={it}")).unwrap_or_default();
                let path = format!("/v1/runs/{id}/events?waitSecs={seconds}{after}");
                client.get_waiting(&path, wait)
            }
            Self::Database { store, runtime } => {
                answer(runtime.block_on(view::run_events(store, id, after)))
            }
        }
    }

    /// What the run said and did.
    pub(crate) fn transcript(&self, id: &str) -> CliResult<Transcript> {
        match self {
            Self::Daemon(client) => client.get(&format!("/v1/runs/{}/transcript", escape(id))),
            Self::Database { store, runtime } => {
                answer(runtime.block_on(view::transcript(store, id)))
            }
        }
    }

    /// What the run was told.
    pub(crate) fn prompt(&self, id: &str) -> CliResult<Prompt> {
        match self {
            Self::Daemon(client) => client.get(&format!("/v1/runs/{}/prompt", escape(id))),
            Self::Database { store, runtime } => answer(runtime.block_on(view::prompt(store, id))),
        }
    }

    /// Why `subject` is as it is.
    pub(crate) fn why(&self, subject: &str) -> CliResult<Why> {
        match self {
            Self::Daemon(client) => client.get(&format!("/v1/why?subject={}", escape(subject))),
            Self::Database { store, runtime } => {
                answer(runtime.block_on(view::why(store, subject, SystemClock.now())))
            }
        }
    }

    /// Budgets with their spend.
    pub(crate) fn budgets(&self) -> CliResult<BudgetList> {
        match self {
            Self::Daemon(client) => client.get("/v1/budget"),
            Self::Database { store, runtime } => {
                answer(runtime.block_on(view::budgets(store, SystemClock.now())))
            }
        }
    }

    /// What happened behind `after`, waiting up to `wait` for the first.
    pub(crate) fn events(&self, after: i64, wait: Duration) -> CliResult<DomainEvents> {
        match self {
            Self::Daemon(client) => {
                let seconds = wait.as_secs();
                client.get_waiting(
                    &format!("/v1/events?after={after}&waitSecs={seconds}"),
                    wait,
                )
            }
            Self::Database { store, runtime } => {
                answer(runtime.block_on(view::events(store, after)))
            }
        }
    }
}

fn query_text(query: &RunQuery) -> String {
    let named = [("agent", &query.agent), ("space", &query.space)];
    let named = named.into_iter().filter_map(|(name, value)| {
        let value = value.as_ref()?;
        Some(format!("&{name}={}", escape(value)))
    });
    format!("limit={}{}", query.limit, named.collect::<String>())
}

/// Text as part of a URL: what is not a letter, a digit or one of `-._` as `%XX`.
pub(crate) fn escape(text: &str) -> String {
    let escaped = text.bytes().map(|byte| {
        if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    });
    escaped.collect()
}

fn answer<T>(answer: Result<T, Failure>) -> CliResult<T> {
    answer.map_err(|failure| of_problem(&failure.into_problem()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_url_would_read_otherwise_is_escaped() {
        assert_eq!(
            escape("core/writer?x=\u{e9}&y"),
            "core%2Fwriter%3Fx%3D%C3%A9%26y"
        );
        let query = RunQuery {
            agent: Some("a b".to_owned()),
            space: None,
            limit: 7,
        };
        assert_eq!(query_text(&query), "limit=7&agent=a%20b");
    }
}

//! Everything that a run is launched with, resolved before any process starts: whose key pays, the
//! tools, the session that it resumes, the prompt, the environment, the program. What can't be had
//! is a [`Refusal`], which closes the run with its reason.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::close::{self, RunDirs};
use super::ingest::{Ingest, Metering};
use super::model::{self, AccessError};
use super::reach::{Reach, ToolAccess, mint_token};
use super::registry::Shared;
use super::runner::{DriveError, applied};
use super::tools::tools_of;
use crate::adapter::{self, Adapter, Endpoint, Launch, LaunchSpec, McpServer, Session};
use crate::model::chain::chain;
use crate::model::id::SessionId;
use crate::model::run::RunOrder;
use crate::model::tool::Tool;
use crate::model::wake::Wake;
use crate::price::PriceTable;
use crate::prompt::{self, FACTS_MAX, HistoryMessage, PromptInput};
use crate::sandbox::none;
use crate::store::{Author, MessageView, StoredSession};
use crate::task::blocking;
use crate::worktree::session::{SessionRequest, open_session};

/// Messages that a prompt is made from; what does not fit in its window is left out anyway.
const HISTORY_MESSAGES_MAX: u32 = 500;

/// Why an agent was not started.
pub(super) struct Refusal {
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl Refusal {
    fn directory(error: &std::io::Error) -> Self {
        Self {
            code: "run_directory",
            message: chain(error),
        }
    }

    pub(super) fn shim(error: &none::LaunchError) -> Self {
        Self {
            code: "launch",
            message: chain(error),
        }
    }

    fn access(error: &AccessError) -> Self {
        Self {
            code: error.code(),
            message: chain(error),
        }
    }
}

/// What a run is launched with, and what it is heard by.
pub(super) struct Prepared {
    pub(super) launch: Launch,
    pub(super) hearing: Hearing,
}

/// What the daemon hears and talks to an agent by.
pub(super) struct Hearing {
    pub(super) adapter: Box<dyn Adapter>,
    pub(super) reach: Reach,
    pub(super) ingest: Ingest,
    /// What the program remembers from then on, once it has begun.
    pub(super) session: Option<StoredSession>,
}

/// A run whose launch is being prepared.
pub(super) struct Preparing<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) order: &'a RunOrder,
    pub(super) wake: &'a Wake,
}

/// A refusal is not a failure to prepare: the inner error is told to people, the outer one is ours.
type Step<T> = Result<Result<T, Refusal>, DriveError>;

impl Preparing<'_> {
    /// Resolves everything.
    pub(super) async fn prepare(&self) -> Step<Prepared> {
        let (order, shared) = (self.order, self.shared);
        let adapter = adapter::for_spec(&order.adapter);
        let tools = tools_of(order);
        let (reach, ingest) = match self.reach(&tools).await? {
            Ok(made) => made,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let known = self.known_session(adapter.as_ref()).await?;
        let (prompt, told) = self.prompt(&tools, known.as_ref()).await?;
        let made = self.directories(adapter.as_ref()).await?;
        let (directories, state) = match made {
            Ok(made) => made,
            Err(error) => return Ok(Err(Refusal::directory(&error))),
        };
        let session = match &known {
            Some(known) => Session::Resume(known.id.uuid()),
            None => Session::New(order.run.uuid()),
        };
        let servers: Vec<McpServer<'_>> = reach.tools.iter().map(ToolAccess::server).collect();
        let spec = LaunchSpec {
            prompt: &prompt,
            search_path: &shared.settings.path,
            home: &directories.home.to_string_lossy(),
            tmp: &directories.tmp.to_string_lossy(),
            user: "homeostat",
            time_zone: "UTC",
            git_env: &prompt::git_environment(&order.identity, self.wake.requested_by.as_deref()),
            caller_env: &self.wake.env,
            wake_env: &prompt::wake_environment(order.run, self.wake),
            model: order.model.as_deref(),
            effort: order.effort,
            endpoint: reach.model.as_ref().map(|access| Endpoint {
                base_url: access.gateway.base_url(),
                key: &access.run_key,
            }),
            session,
            config_dir: &directories.config.to_string_lossy(),
            state_dir: &state,
            mcp_servers: &servers,
        };
        let launch = match adapter.launch(&spec) {
            Ok(launch) => launch,
            Err(error) => {
                return Ok(Err(Refusal {
                    code: error.code(),
                    message: format!("{}; {}", chain(&error), error.remedy()),
                }));
            }
        };
        let (files, config) = (launch.files.clone(), directories.config.clone());
        let user = shared.settings.user();
        let written = blocking("write agent's configuration", move || {
            close::write_config(&config, &files, user)
        });
        if let Err(error) = written.await? {
            return Ok(Err(Refusal::directory(&error)));
        }
        let session = adapter.session_files().map(|_carried| StoredSession {
            conversation: order.conversation,
            agent: order.agent,
            adapter: order.adapter.r#type,
            id: match session {
                Session::New(id) | Session::Resume(id) => SessionId::from_uuid(id),
            },
            told,
        });
        let hearing = Hearing {
            adapter,
            reach,
            ingest,
            session,
        };
        Ok(Ok(Prepared { launch, hearing }))
    }

    /// Opens the ways to the model and to the tools, records whose key pays, and makes the stage
    /// that prices and redacts what the run says.
    async fn reach(&self, tools: &[Tool]) -> Step<(Reach, Ingest)> {
        let (order, shared) = (self.order, self.shared);
        let model = match model::open(shared, order, self.wake).await? {
            Ok(model) => model,
            Err(error) => return Ok(Err(Refusal::access(&error))),
        };
        let mut secrets: Vec<_> = model::secrets_of(&order.adapter.env)
            .chain(model::secrets_of(&self.wake.env))
            .collect();
        let mut metering = Metering::Reported;
        if let Some(access) = &model {
            let source = access.source.clone();
            applied(
                shared
                    .store
                    .store_credential_source(order.run, source, access.is_shared)
                    .await?,
            )?;
            secrets.extend(access.secrets.iter().cloned());
            metering = Metering::Metered;
        }
        let token = mint_token();
        secrets.push(("tools token".to_owned(), token.clone()));
        let ingest = Ingest::new(&secrets, self.prices().await?, metering);
        let tools = if tools.is_empty() {
            None
        } else {
            let tools = tools.to_vec();
            match ToolAccess::open(shared, order, tools, token, ingest.redactor()) {
                Ok(tools) => Some(tools),
                Err(error) => return Ok(Err(Refusal::access(&error))),
            }
        };
        Ok(Ok((Reach { model, tools }, ingest)))
    }

    /// The prices that hold for the run.
    async fn prices(&self) -> Result<Arc<PriceTable>, DriveError> {
        let overrides = self.order.adapter.prices.clone();
        if overrides.is_empty() {
            return Ok(Arc::clone(&self.shared.settings.prices));
        }
        let table = move || PriceTable::embedded(&overrides);
        Ok(Arc::new(blocking("make price table", table).await?))
    }

    /// The session that the agent's program can go on with.
    async fn known_session(
        &self,
        adapter: &dyn Adapter,
    ) -> Result<Option<StoredSession>, DriveError> {
        if adapter.session_files().is_none() {
            return Ok(None);
        }
        let (conversation, agent) = (self.order.conversation, self.order.agent);
        let known = self.shared.store.session(conversation, agent).await?;
        Ok(known.filter(|known| known.adapter == self.order.adapter.r#type))
    }

    /// Makes the prompt and stores it: what is stored is exactly what is sent. Also answers with the
    /// number of the last message that it tells of.
    async fn prompt(
        &self,
        tools: &[Tool],
        known: Option<&StoredSession>,
    ) -> Result<(String, i64), DriveError> {
        let (store, order) = (&self.shared.store, self.order);
        let history = store
            .history(order.conversation, HISTORY_MESSAGES_MAX)
            .await?;
        let last = history.messages.last().map(|message| message.seq);
        let told = last.or(known.map(|known| known.told)).unwrap_or_default();
        let heard = match known {
            Some(known) => {
                let heard = store.heard(order.conversation, order.agent, known.told);
                heard.await?
            }
            None => BTreeSet::new(),
        };
        let messages: Vec<_> = history
            .messages
            .into_iter()
            .filter(|message| known.is_none_or(|known| is_news(message, known)))
            .filter(|message| !heard.contains(&message.id))
            .map(|message| HistoryMessage {
                id: message.id,
                author: message.author.name().to_owned(),
                at: message.created_at,
                text: message.text,
            })
            .collect();
        let limit = u32::try_from(FACTS_MAX).unwrap_or(u32::MAX);
        let facts = match tools.is_empty() {
            true => Vec::new(),
            false => {
                let (workspace, about) = (order.workspace, &self.wake.prompt);
                store.recall(workspace, about, limit).await?
            }
        };
        let input = PromptInput {
            order,
            wake: self.wake,
            history: &messages,
            older: match known {
                Some(_) => 0,
                None => history.older,
            },
            is_resumed: known.is_some(),
            tools,
            facts: &facts,
        };
        let prompt = prompt::assemble(&input).render();
        applied(store.store_prompt(order.run, prompt.clone()).await?)?;
        Ok((prompt, told))
    }

    /// Makes the run's own directories, and the one that its program keeps between runs.
    async fn directories(
        &self,
        adapter: &dyn Adapter,
    ) -> Result<std::io::Result<(RunDirs, String)>, DriveError> {
        let (order, settings) = (self.order, &self.shared.settings);
        let (path, user) = (self.shared.run_dir(order.run), settings.user());
        let (layout, carried) = (settings.layout.clone(), adapter.session_files());
        let request = SessionRequest {
            workspace: order.workspace,
            space: order.space,
            agent: order.agent,
            conversation: order.conversation,
            user,
        };
        let make = move || {
            let directories = close::make_run_dir(&path, user)?;
            let state = match carried {
                Some(carried) => open_session(&layout, request, carried)?,
                None => directories.home.join(".agent"),
            };
            Ok((directories, state.to_string_lossy().into_owned()))
        };
        Ok(blocking("make run directory", make).await?)
    }
}

/// Whether the session has not been told of a message, and did not say it itself.
fn is_news(message: &MessageView, known: &StoredSession) -> bool {
    let is_own = matches!(&message.author, Author::Agent { uid, .. } if *uid == known.agent);
    message.seq > known.told && !is_own
}

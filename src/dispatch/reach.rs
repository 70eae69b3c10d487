//! What of the daemon a run reaches while it lives: its model, and tools to call back with.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

use tokio::sync::mpsc;

use super::model::{AccessError, ModelAccess};
use super::registry::Shared;
use super::tools::RecordTools;
use crate::adapter::McpServer;
use crate::clock::{IdSource, RandomIds};
use crate::gateway::{McpGateway, McpSpec, Notice, RunToken};
use crate::model::event::AgentEvent;
use crate::model::run::RunOrder;
use crate::model::tool::{Principal, TOOL_SERVER, Tool};
use crate::redact::Redactor;

/// Notes of calls that wait to be recorded; a call waits while there is no room.
const NOTES_MAX: usize = 64;

/// What a run reaches. Dropping it ends both ways.
#[derive(Default)]
pub(super) struct Reach {
    pub(super) model: Option<ModelAccess>,
    pub(super) tools: Option<ToolAccess>,
}

/// What came from one of them.
pub(super) enum Heard {
    /// Of the wire to the model.
    Model(Notice),
    /// Of a tool that was called.
    Tool(AgentEvent),
}

impl Reach {
    /// What comes next; never, where nothing can. Cancel-safe: both ways are.
    pub(super) async fn next(&mut self) -> Heard {
        let notice = async {
            match &mut self.model {
                Some(model) => model.notices.recv().await,
                None => None,
            }
        };
        let note = async {
            match &mut self.tools {
                Some(tools) => tools.notes.recv().await,
                None => None,
            }
        };
        tokio::select! {
            Some(notice) = notice => Heard::Model(notice),
            Some(note) = note => Heard::Tool(note),
            else => std::future::pending().await,
        }
    }

    /// What came and was not heard yet.
    pub(super) fn rest(&mut self) -> Vec<Heard> {
        let mut rest = Vec::new();
        if let Some(model) = &mut self.model {
            rest.extend(std::iter::from_fn(|| model.notices.try_recv().ok()).map(Heard::Model));
        }
        if let Some(tools) = &mut self.tools {
            rest.extend(std::iter::from_fn(|| tools.notes.try_recv().ok()).map(Heard::Tool));
        }
        rest
    }

    /// Lets no call to the model through any more, and ends the answers that are on their way.
    pub(super) fn close_model(&self, reason: &str) {
        if let Some(model) = &self.model {
            model.close(reason);
        }
    }
}

/// The run's way to the daemon's own tools.
pub(super) struct ToolAccess {
    gateway: McpGateway,
    notes: mpsc::Receiver<AgentEvent>,
    token: String,
}

impl ToolAccess {
    /// Serves these tools on the run's behalf. `token` is what its calls show.
    pub(super) fn open(
        shared: &Shared,
        order: &RunOrder,
        tools: Vec<Tool>,
        token: String,
        redactor: Arc<Redactor>,
    ) -> Result<Self, AccessError> {
        let (sink, notes) = mpsc::channel(NOTES_MAX);
        let spec = McpSpec {
            token: RunToken::new(token.clone())?,
            principal: Principal {
                run: order.run,
                agent: order.agent,
                workspace: order.workspace,
                conversation: order.conversation,
            },
            tools,
            notes: sink,
        };
        let port = RecordTools::new(shared.store.clone(), Arc::clone(&shared.clock), redactor);
        let gateway = McpGateway::start(
            listener()?,
            spec,
            Arc::new(port),
            Arc::clone(&shared.clock),
            &shared.tracker,
        )?;
        Ok(Self {
            gateway,
            notes,
            token,
        })
    }

    /// The server, as an adapter configures it.
    pub(super) fn server(&self) -> McpServer<'_> {
        McpServer {
            name: TOOL_SERVER,
            url: self.gateway.url(),
            token: &self.token,
        }
    }
}

/// A place for a run's gateway, that no other program can take any more.
pub(super) fn listener() -> Result<TcpListener, AccessError> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(AccessError::Bind)
}

/// A text that nobody guesses.
pub(super) fn mint_token() -> String {
    format!("{}{}", RandomIds.mint().simple(), RandomIds.mint().simple())
}

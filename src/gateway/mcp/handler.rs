//! The protocol's side: which tools there are, and a call with its note.

use std::sync::Arc;
use std::time::Duration;

use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    Implementation, ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig,
    Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use tokio::sync::mpsc::OwnedPermit;

use super::Gate;
use super::rate::Allowance;
use crate::clock::Clock;
use crate::model::event::AgentEvent;
use crate::model::tool::{TOOL_SERVER, Verb};
use crate::tool::{self, ToolPort};

/// Answers one request.
pub(super) struct Handler<P> {
    gate: Arc<Gate>,
    port: Arc<P>,
}

impl<P> Handler<P> {
    pub(super) const fn new(gate: Arc<Gate>, port: Arc<P>) -> Self {
        Self { gate, port }
    }
}

impl<P: ToolPort> ServerHandler for Handler<P> {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let version = env!("CARGO_PKG_VERSION");
        ServerConfig::new(capabilities).with_server_info(Implementation::new(TOOL_SERVER, version))
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.gate.spec.tools.iter().map(|tool| {
            Tool::new(
                tool.verb.to_string(),
                tool.description,
                Arc::new(tool.schema.clone()),
            )
        });
        Ok(ListToolsResult::with_all_items(tools.collect()))
    }

    /// What goes wrong is said as the tool's answer: an error of the protocol never reaches the
    /// model.
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Gate { spec, clock, .. } = &*self.gate;
        let Ok(permit) = spec.notes.clone().reserve_owned().await else {
            return Ok(wrong("the run is over"));
        };
        let mut note = Note::new(permit, &request.name, Arc::clone(clock));
        let mutates = request.name.parse().is_ok_and(Verb::mutates);
        let allowance = self.gate.rates().call(mutates, clock.monotonic());
        if let Allowance::Later(wait) = allowance {
            note.outcome = "refused: too often".to_owned();
            let seconds = wait.as_secs() + 1;
            return Ok(wrong(&format!("too many calls; wait {seconds} s")));
        }
        let args = request.arguments.unwrap_or_default();
        let (port, by, tools) = (&*self.port, spec.principal, &spec.tools);
        let answer = tool::call(port, by, tools, &request.name, args).await;
        Ok(match answer {
            Ok(text) => {
                note.outcome = "ok".to_owned();
                CallToolResult::success(vec![ContentBlock::text(text)]).into()
            }
            Err(error) => {
                note.outcome = format!("failed: {error}");
                wrong(&error.to_string())
            }
        })
    }
}

fn wrong(words: &str) -> CallToolResponse {
    CallToolResult::error(vec![ContentBlock::text(words)]).into()
}

/// The note of one call. It is written whatever becomes of the call: also when the caller hangs up.
struct Note {
    permit: Option<OwnedPermit<AgentEvent>>,
    tool: String,
    outcome: String,
    clock: Arc<dyn Clock>,
    since: Duration,
}

/// Characters of a tool's name that a note shows: what was called need not be a tool.
const NAME_CHARS_MAX: usize = 100;

impl Note {
    fn new(permit: OwnedPermit<AgentEvent>, tool: &str, clock: Arc<dyn Clock>) -> Self {
        Self {
            permit: Some(permit),
            tool: tool.chars().take(NAME_CHARS_MAX).collect(),
            outcome: "given up".to_owned(),
            since: clock.monotonic(),
            clock,
        }
    }
}

impl Drop for Note {
    fn drop(&mut self) {
        let took = self.clock.monotonic().saturating_sub(self.since);
        let message = format!(
            "tool {}: {} ({} ms)",
            self.tool,
            self.outcome,
            took.as_millis()
        );
        if let Some(permit) = self.permit.take() {
            // The channel's other end may be gone by now; the run is over then.
            drop(permit.send(AgentEvent::Debug { message }));
        }
    }
}

//! `claudeCode`: the `claude` program of Claude Code, over JSON lines in both directions.
//!
//! One run is one process and, on the program's side, one session that a later run of the same
//! conversation resumes. The prompt is the first line of its standard input, a message to a running
//! agent is another one, and the end of standard input is the end of the process. Configuration of
//! the repo that it works on is not read (`--setting-sources user`, `--strict-mcp-config`): an
//! agent must not be able to configure the next one.
//!
//! The output is read by `parser`; what is written is made by `input`; `probe` asks the program
//! which version it is and which options it knows.

mod input;
mod parser;
mod probe;
mod usage;
mod version;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::{Map, Value, json};

pub use self::probe::{Probe, ProbeError, probe, unknown_options};
pub use self::version::{OLDEST, Version, VersionError};
use super::{
    Adapter, Capabilities, ConfigFile, Endpoint, EventParser, Launch, LaunchError, LaunchSpec,
    McpServer, Session, env, program,
};
use crate::model::spec::{AdapterSpec, AdapterType};

/// The program that the Adapter finds on the search path when it names none.
pub const PROGRAM: &str = "claude";

/// What to do where it is not.
const REMEDY: &str = "install Claude Code for the user of the daemon, or on its PATH \
     (npm install --global @anthropic-ai/claude-code), or give the path of the program as the \
     Adapter's spec.command";

/// Every option that a run may be started with.
pub const OPTIONS: &[&str] = &[
    "--dangerously-skip-permissions",
    "--effort",
    "--input-format",
    "--mcp-config",
    "--model",
    "--output-format",
    "--print",
    "--resume",
    "--session-id",
    "--setting-sources",
    "--settings",
    "--strict-mcp-config",
    "--verbose",
];

/// The names of generated files.
const MCP_FILE: &str = "mcp.json";
const SETTINGS_FILE: &str = "settings.json";

/// What a run of it needs to be quiet, bounded and ours. An Adapter may say otherwise; a dispatch
/// may not.
const DEFAULTS: &[(&str, &str)] = &[
    // No update, telemetry, error report, release note or account lookup.
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("DISABLE_AUTOUPDATER", "1"),
    ("DISABLE_ERROR_REPORTING", "1"),
    ("DISABLE_TELEMETRY", "1"),
    // Ten would take three minutes, also for a wrong key. The planner tries a run again.
    ("CLAUDE_CODE_MAX_RETRIES", "2"),
    // Until an answer's head. The gateway's own limits are shorter, and say what happened.
    ("API_TIMEOUT_MS", "900000"),
];

/// Variables by which it would reach a model past the gateway, or as somebody else.
const PROVIDER_VARIABLES: &[&str] = &[
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_BEDROCK_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_FOUNDRY_API_KEY",
    "ANTHROPIC_FOUNDRY_BASE_URL",
    "ANTHROPIC_UNIX_SOCKET",
    "ANTHROPIC_VERTEX_BASE_URL",
    "AWS_BEARER_TOKEN_BEDROCK",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_FOUNDRY",
    "CLAUDE_CODE_USE_VERTEX",
];

/// The adapter.
#[derive(Debug)]
pub(super) struct ClaudeCode {
    command: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
}

impl ClaudeCode {
    pub(super) fn new(spec: &AdapterSpec) -> Self {
        Self {
            command: spec.command.clone(),
            args: spec.args.clone(),
            env: spec.env.clone(),
        }
    }

    /// The whole environment: the run's own, then the defaults, then what is not negotiable.
    fn environment(&self, spec: &LaunchSpec<'_>) -> Result<BTreeMap<String, String>, LaunchError> {
        let mut env = env::build(spec, &self.env)?;
        for (name, value) in DEFAULTS {
            if !self.env.contains_key(*name) {
                env.insert((*name).to_owned(), (*value).to_owned());
            }
        }
        env.insert("CLAUDE_CONFIG_DIR".to_owned(), spec.state_dir.to_owned());
        if let Some(Endpoint { base_url, key }) = spec.endpoint {
            let closed: BTreeSet<_> = PROVIDER_VARIABLES.iter().copied().collect();
            env.retain(|name, _| !closed.contains(name.to_ascii_uppercase().as_str()));
            env.insert("ANTHROPIC_BASE_URL".to_owned(), base_url.to_owned());
            env.insert("ANTHROPIC_API_KEY".to_owned(), key.to_owned());
        }
        Ok(env)
    }

    /// The arguments after the program. Each is one that the program knows; the Adapter's own come
    /// last.
    fn arguments(&self, spec: &LaunchSpec<'_>) -> Vec<String> {
        let file = |name: &str| format!("{}/{name}", spec.config_dir);
        let mut args: Vec<String> = [
            "--print",
            "--verbose",
            "--input-format",
            "stream-json",
            "--output-format",
            "stream-json",
            // Nobody is there to be asked. What it may do is decided around it, not by it.
            "--dangerously-skip-permissions",
            "--strict-mcp-config",
            "--setting-sources",
            "user",
        ]
        .map(str::to_owned)
        .to_vec();
        let mut option = |name: &str, value: String| args.extend([name.to_owned(), value]);
        option("--mcp-config", file(MCP_FILE));
        option("--settings", file(SETTINGS_FILE));
        if let Some(model) = spec.model {
            option("--model", model.to_owned());
        }
        if let Some(effort) = spec.effort {
            option("--effort", effort.to_string());
        }
        match spec.session {
            Session::New(id) => option("--session-id", id.hyphenated().to_string()),
            Session::Resume(id) => option("--resume", id.hyphenated().to_string()),
        }
        args.extend(self.args.iter().cloned());
        args
    }
}

impl Adapter for ClaudeCode {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            observes_contract: AdapterType::ClaudeCode.observes_contract(),
            is_steerable: true,
            reports_usage: true,
            reports_cost: true,
            ..Capabilities::default()
        }
    }

    fn launch(&self, spec: &LaunchSpec<'_>) -> Result<Launch, LaunchError> {
        let path = find(self.command.as_deref(), spec.search_path)?;
        let env = self.environment(spec)?;
        // Both parts of the path were text.
        let mut argv = vec![path.to_string_lossy().into_owned()];
        argv.extend(self.arguments(spec));
        program::refuse_nul(&argv)?;
        Ok(Launch {
            argv,
            env,
            stdin: input::message(spec.prompt),
            keeps_stdin: true,
            files: vec![
                ConfigFile {
                    name: MCP_FILE,
                    text: mcp_config(spec.mcp_servers),
                },
                ConfigFile {
                    name: SETTINGS_FILE,
                    text: settings(),
                },
            ],
        })
    }

    fn parser(&self) -> Box<dyn EventParser> {
        Box::new(parser::Parser::default())
    }

    fn session_files(&self) -> Option<&'static [&'static str]> {
        Some(&["projects"])
    }

    fn message(&self, text: &str) -> Option<String> {
        Some(input::message(text))
    }

    fn interrupt(&self, id: &str) -> Option<String> {
        Some(input::interrupt(id))
    }
}

/// Where the program is: what the Adapter names, or the one on the search path.
///
/// # Errors
/// [`LaunchError::NotInstalled`] when the Adapter names none and there is none.
pub fn find(command: Option<&str>, search_path: &str) -> Result<PathBuf, LaunchError> {
    let Some(command) = command else {
        return program::resolve(PROGRAM, search_path).map_err(|error| match error {
            LaunchError::ProgramNotFound { looked_in, .. } => LaunchError::NotInstalled {
                program: PROGRAM,
                looked_in,
                remedy: REMEDY,
            },
            other => other,
        });
    };
    program::resolve(command, search_path)
}

/// The only servers of tools that it has.
fn mcp_config(servers: &[McpServer<'_>]) -> String {
    let servers: Map<String, Value> = servers
        .iter()
        .map(|server| {
            let entry = json!({
                "type": "http",
                "url": server.url,
                "headers": { "Authorization": format!("Bearer {}", server.token) },
            });
            (server.name.to_owned(), entry)
        })
        .collect();
    json!({ "mcpServers": servers }).to_string()
}

/// Its settings. Whom a commit is credited to is the prompt's to say, and git's.
fn settings() -> String {
    json!({
        "includeCoAuthoredBy": false,
        "attribution": { "commit": "", "pr": "" },
    })
    .to_string()
}

#[cfg(test)]
mod tests;

//! The files of a first config repository.

use std::path::{Path, PathBuf};

use crate::manifest::schema;
use crate::model::units::Name;

/// What the files say of the host.
#[derive(Debug)]
pub(super) struct Facts {
    /// Where the daemon keeps its state.
    pub(super) data_dir: PathBuf,
    /// Whether files can be cloned there.
    pub(super) has_reflink: bool,
    /// Where, or why not.
    pub(super) reflink: String,
    /// Agent programs that were found.
    pub(super) tools: Vec<Tool>,
    /// Repositories to declare.
    pub(super) repos: Vec<Repo>,
}

/// An agent program.
#[derive(Debug)]
pub(super) struct Tool {
    /// What it is called.
    pub(super) name: String,
    /// Where it is.
    pub(super) path: String,
}

/// A repository.
#[derive(Debug)]
pub(super) struct Repo {
    /// Its name in the workspace.
    pub(super) name: Name,
    /// Its absolute path.
    pub(super) source: String,
}

/// The schema's path in the repository. The source leaves out names that begin with a dot.
const SCHEMA: &str = ".homeostat/homeostat.schema.json";

/// Path and text of every file.
pub(super) fn files(facts: &Facts) -> Vec<(String, String)> {
    let schema = schema::files()
        .into_iter()
        .find(|(name, _)| SCHEMA.ends_with(name.as_str()));
    let schema = schema.map(|(_, text)| (SCHEMA.to_owned(), text));
    [
        ("fleet.yaml", fleet(facts)),
        ("workspace.yaml", workspace(facts)),
        ("agents.yaml", agents(facts)),
        ("tickets.yaml", TICKET.to_owned()),
    ]
    .map(|(path, text)| (path.to_owned(), format!("{MODELINE}{text}")))
    .into_iter()
    .chain(schema)
    .collect()
}

const MODELINE: &str = "# yaml-language-server: $schema=.homeostat/homeostat.schema.json\n";

/// What to do with it, for the person.
pub(super) fn next(directory: &Path, facts: &Facts) -> String {
    let directory = directory.display();
    let backend = if facts.has_reflink {
        ""
    } else {
        " --worktree-backend git"
    };
    let clone = if facts.has_reflink {
        String::new()
    } else {
        format!(
            "\nfiles cannot be cloned in {} ({}): `homeostat volume create` makes a volume where \
             they can\n",
            facts.data_dir.display(),
            facts.reflink
        )
    };
    format!(
        "\nnext:\n  homeostat validate {directory}\n  \
         homeostat daemon --source {directory}{backend}\n{clone}"
    )
}

fn fleet(facts: &Facts) -> String {
    let worktrees = if facts.has_reflink {
        "worktrees are copied on write here, which costs no space".to_owned()
    } else {
        format!(
            "files cannot be cloned here ({}): start the daemon with `--worktree-backend git`, or\n\
             #   make a volume with `homeostat volume create`",
            facts.reflink
        )
    };
    format!(
        "\
# The fleet: settings of the whole. There is one.
#
# What `homeostat init` found on this host:
#   data directory: {data_dir}
#   {worktrees}
#   agent programs: {tools}
#   sandbox: no backend is supported yet, so that runs are not wrapped
apiVersion: homeostat/v1alpha1
kind: Fleet
metadata: {{ name: fleet }}
spec:
  # A database that never accepted a revision runs assigned Tickets and Dispatches at once. `hold`,
  # the default, is what you want once a lost database must not run old work again.
  firstRevision: run
  # How many runs may be live at once; 0 is no cap.
  concurrency: {{ fleet: 8 }}
  # Budgets and schedules count in this time zone unless they name one.
  zone: UTC
",
        data_dir = facts.data_dir.display(),
        tools = tools(facts),
    )
}

fn tools(facts: &Facts) -> String {
    if facts.tools.is_empty() {
        return "none".to_owned();
    }
    let found: Vec<String> = facts
        .tools
        .iter()
        .map(|tool| format!("{} ({})", tool.name, tool.path))
        .collect();
    found.join(", ")
}

fn workspace(facts: &Facts) -> String {
    let names: Vec<&str> = facts.repos.iter().map(|repo| repo.name.as_str()).collect();
    let workspace = format!(
        "\
# The workspace: everything else belongs to it.
apiVersion: homeostat/v1alpha1
kind: Workspace
metadata: {{ name: main }}
spec:
  # Repos that its spaces may use.
  repos: [{}]
---
# The space: a conversation, the agents that serve it, and a worktree of each of its repos.
apiVersion: homeostat/v1alpha1
kind: Space
metadata: {{ name: desk, workspace: main }}
spec:
  title: The desk
  # The first one answers a message that names none.
  agents: [writer]
  # Left out: every repo of the workspace. A list: only those. `[]`: none.
  # repos: []
",
        names.join(", ")
    );
    if facts.repos.is_empty() {
        return workspace + NO_REPO;
    }
    let repos = facts.repos.iter().map(|repo| {
        format!(
            "\
---
# A repo: a local checkout or bare repository. It is read, never written.
apiVersion: homeostat/v1alpha1
kind: Repo
metadata: {{ name: \"{}\", workspace: main }}
spec:
  source: {}
",
            repo.name,
            quoted(&repo.source)
        )
    });
    workspace + &repos.collect::<String>()
}

const NO_REPO: &str = "\
# ---
# A repo: a local checkout or bare repository. It is read, never written. Add its name to the
# workspace's `repos` as well.
# apiVersion: homeostat/v1alpha1
# kind: Repo
# metadata: { name: site, workspace: main }
# spec:
#   source: /path/to/checkout
";

/// As a YAML text in double quotes, which JSON's are.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The program that has a type of its own.
const CLAUDE: &str = "claude";

const CLAUDE_ADAPTER: &str = "\
# ---
# claude was found on this host. `homeostat login anthropic` gives its runs a key, and `homeostat
# doctor adapters` says whether they could start.
# apiVersion: homeostat/v1alpha1
# kind: Adapter
# metadata: { name: claude }
# spec: { type: claudeCode }
";

fn agents(facts: &Facts) -> String {
    let found = facts.tools.iter().map(|tool| {
        if tool.name == CLAUDE {
            return CLAUDE_ADAPTER.to_owned();
        }
        format!(
            "\
# ---
# {name} was found on this host. It needs its credentials in `env`, and arguments that make it read
# its prompt from standard input.
# apiVersion: homeostat/v1alpha1
# kind: Adapter
# metadata: {{ name: {name} }}
# spec:
#   type: command
#   command: {path}
#   args: []
",
            name = tool.name,
            path = quoted(&tool.path)
        )
    });
    [ADAPTER.to_owned(), found.collect(), AGENT.to_owned()].concat()
}

const ADAPTER: &str = "\
# The adapter: how an agent is reached. `command` runs any program with the prompt on its standard
# input; nothing of the daemon's environment is inherited. This one needs no model: it answers with
# the last line of what it is told.
apiVersion: homeostat/v1alpha1
kind: Adapter
metadata: { name: parrot }
spec:
  type: command
  command: sh
  args: [\"-c\", \"echo \\\"I was told: $(tail -n 1)\\\"\"]
";

const AGENT: &str = "\
---
apiVersion: homeostat/v1alpha1
kind: Agent
metadata: { name: writer, workspace: main }
spec:
  title: Writer
  # A layer of its prompt.
  persona: You write short and plain sentences.
  adapter: parrot
  # How long a run may say nothing before it is ended: 1m to 240m.
  silenceTimeout: 15m
---
# The budget: what a scope may spend in a calendar month. Spent, it pauses the scope.
apiVersion: homeostat/v1alpha1
kind: BudgetPolicy
metadata: { name: writer, workspace: main }
spec:
  scope: { kind: agent, name: writer }
  # In money, in tokens, or in both.
  monthly: \"$20.00\"
  tokens: 20000000
  softThresholdPercent: 80
";

const TICKET: &str = "\
# The first ticket. Its assignment wakes the agent once.
apiVersion: homeostat/v1alpha1
kind: Ticket
metadata: { name: first, workspace: main }
spec:
  title: Say that you are there
  description: One sentence is enough.
  space: desk
  assignee: writer
";

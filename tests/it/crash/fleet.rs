//! What the fleet under test declares, and the agent that tells on it.

use std::fmt::Write as _;
use std::path::Path;

/// Agents; each serves every space.
const AGENTS: usize = 3;

/// The agent: a shell script that marks what it does in a file of its own, whatever the daemon
/// records. Its `beat`s come from a process that has left its session and ignores TERM, so that a
/// run which was not ended to the last process goes on marking. How long it takes varies from run
/// to run, and is the same for the same run. While it is held it is as in the middle of a git
/// command.
const AGENT: &str = r#"
set -eu
mark() { printf '%s %s\n' "$1" "$HOMEOSTAT_RUN_ID" >>"$MARKS"; }
mark start
setsid sh -c 'trap "" TERM
  while :; do printf "beat %s\n" "$HOMEOSTAT_RUN_ID" >>"$MARKS"; sleep 0.1; done' \
  </dev/null >/dev/null 2>&1 &
printf '{"type":"thinking","text":"I begin."}\n'
sum=$(printf %s "$HOMEOSTAT_RUN_ID" | cksum)
while [ -e "$MARKS.hold" ]; do : >.git/index.lock; sleep 0.05; done
sleep "$(printf '0.%03d' $((${sum%% *} % 400)))"
printf '%s\n' "$HOMEOSTAT_RUN_ID" >>NOTES.md
git add NOTES.md
git commit --quiet -m "run $HOMEOSTAT_RUN_ID"
printf '{"type":"usage","inputTokens":10,"outputTokens":5,"costMicros":1000}\n'
mark end
printf '{"type":"text","text":"Done: %s"}\n{"type":"done"}\n' "$HOMEOSTAT_RUN_ID"
"#;

/// The declared fleet: one repo, a few spaces, and wakes in batches.
#[derive(Clone, Debug)]
pub(super) struct Fleet {
    pub(super) spaces: usize,
    /// Wakes that were asked for so far.
    pub(super) wakes: usize,
    /// Runs at once.
    pub(super) at_once: usize,
}

impl Fleet {
    /// So many wakes, and place for a few of them at once.
    pub(super) const fn of(wakes: usize) -> Self {
        Self {
            spaces: 3,
            wakes,
            at_once: 3,
        }
    }

    /// As one file of manifests. Wakes of spaces that are not declared any more are not either.
    pub(super) fn manifests(&self, marks: &Path) -> String {
        let mut out = String::new();
        let agent = AGENT.trim().replace("$MARKS", &marks.to_string_lossy());
        let agent = agent.replace('\n', "\n        ");
        object(
            &mut out,
            "Fleet",
            "fleet",
            None,
            &format!(
                "firstRevision: run\n  drain: 1s\n  concurrency: {{ fleet: {0}, perWorkspace: {0}, perRepo: {0} }}",
                self.at_once
            ),
        );
        object(&mut out, "Workspace", "core", None, "repos: [app]");
        object(
            &mut out,
            "Repo",
            "app",
            Some("core"),
            "source: ../app\n  defaultBranch: main",
        );
        object(
            &mut out,
            "Adapter",
            "sh",
            None,
            &format!(
                "type: command\n  command: sh\n  output: jsonLines\n  args:\n    - -c\n    - |\n        {agent}"
            ),
        );
        for number in 0..AGENTS {
            let spec = format!(
                "title: Agent {number}\n  adapter: sh\n  concurrency: {}",
                self.at_once
            );
            object(
                &mut out,
                "Agent",
                &format!("agent-{number}"),
                Some("core"),
                &spec,
            );
        }
        for number in 0..self.spaces {
            let spec = "agents: [agent-0, agent-1, agent-2]";
            object(
                &mut out,
                "Space",
                &format!("space-{number}"),
                Some("core"),
                spec,
            );
        }
        for number in 0..self.wakes {
            self.work(&mut out, number);
        }
        out
    }

    /// Turn by turn a ticket, a dispatch, and a dispatch in a conversation beside.
    fn work(&self, out: &mut String, number: usize) {
        let (agent, space) = (number % AGENTS, number / 2 % self.spaces);
        if number.is_multiple_of(2) {
            let spec = format!(
                "title: Ticket {number}\n  assignee: agent-{agent}\n  space: space-{space}"
            );
            object(
                out,
                "Ticket",
                &format!("ticket-{number}"),
                Some("core"),
                &spec,
            );
            return;
        }
        let mut spec =
            format!("agent: agent-{agent}\n  space: space-{space}\n  prompt: Go {number}.");
        if number % 4 == 3 {
            spec.push_str("\n  conversation: beside");
        }
        object(
            out,
            "Dispatch",
            &format!("dispatch-{number}"),
            Some("core"),
            &spec,
        );
    }
}

fn object(out: &mut String, kind: &str, name: &str, workspace: Option<&str>, spec: &str) {
    let workspace = workspace
        .map(|name| format!(", workspace: {name}"))
        .unwrap_or_default();
    // Approves of what a later revision leaves out.
    let annotations = match kind {
        "Fleet" => ", annotations: { homeostat/allow-prune: \"100\" }",
        _ => "",
    };
    writeln!(
        out,
        "---\napiVersion: homeostat/v1alpha1\nkind: {kind}\n\
         metadata: {{ name: {name}{workspace}{annotations} }}\nspec:\n  {spec}"
    )
    .unwrap();
}

//! The silence watchdog.

use std::time::Duration;

use homeostat::model::run::{EndReason, ErrorFamily, Liveness, RunStatus};

use super::turned::{Short, turn};

/// Long enough that a busy machine isn't silent, and the agent says more for longer than this.
const SILENCE: Duration = Duration::from_secs(3);

const FLEET: &str = r#"
{apiVersion: homeostat/v1alpha1, kind: Fleet, metadata: {name: fleet}, spec: {firstRevision: run}}
---
{apiVersion: homeostat/v1alpha1, kind: Workspace, metadata: {name: shop}, spec: {repos: []}}
---
apiVersion: homeostat/v1alpha1
kind: Adapter
metadata: {name: slow}
spec:
  type: command
  command: sh
  args: [-c, "for word in one two three four five six seven eight; do echo $word; sleep 0.5; done; sleep 300"]
---
apiVersion: homeostat/v1alpha1
kind: Agent
metadata: {name: ada, workspace: shop}
spec: {title: Ada, adapter: slow}
---
apiVersion: homeostat/v1alpha1
kind: Space
metadata: {name: room, workspace: shop}
spec: {agents: [ada], repos: []}
---
apiVersion: homeostat/v1alpha1
kind: Dispatch
metadata: {name: once, workspace: shop}
spec: {agent: ada, space: room, prompt: Count.}
"#;

#[test]
fn an_agent_that_falls_silent_is_ended() {
    let short = Short {
        silence: Some(SILENCE),
        ..Short::default()
    };
    let (run, said) = turn(FLEET, short);
    assert_eq!(run.status, RunStatus::Error);
    assert_eq!(run.liveness, Some(Liveness::Stalled));
    assert_eq!(run.error_family, Some(ErrorFamily::SilentRun));
    assert_eq!(run.end_reason, Some(EndReason::Silence));
    assert_eq!(
        run.summary.as_deref(),
        Some("said nothing for 3s and was ended")
    );
    assert_eq!(said.matches("\"type\":\"text\"").count(), 8, "{said}");
}

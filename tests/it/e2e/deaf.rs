//! An agent that is to be told something and can't hear it: what was said has a run of its own.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use super::claude::verdict;
use super::rig::Fleet;

/// Speaks as Claude Code does, and closes its input at once. Its turn ends when `GATE` is there.
const DEAF: &str = r#"#!/bin/sh
read -r prompt
exec 0<&-
echo '{"type":"system","subtype":"init","session_id":"one"}'
until [ -e GATE ]; do sleep 0.05; done
echo '{"type":"assistant","message":{"content":[{"type":"text","text":"Did it."}]}}'
echo '{"type":"result","subtype":"success","is_error":false}'
"#;

#[test]
fn what_an_agent_can_not_be_told_is_said_once_and_waits_for_a_run() {
    let mut fleet = Fleet::plain();
    let program = fleet.path("deaf.sh");
    let gate = fleet.path("open").join("go");
    std::fs::write(&program, DEAF.replace("GATE", gate.to_str().unwrap())).unwrap();
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let adapter = json!({
        "type": "claudeCode", "command": program, "env": {"ANTHROPIC_API_KEY": "sk-ant-of-nobody"},
    });
    fleet.put("Adapter", "claude", &adapter);
    fleet.put(
        "Agent",
        "ada",
        &json!({"title": "Ada", "adapter": "claude"}),
    );
    fleet.commit("Ada hears nothing");
    fleet.start();
    let run = fleet.dispatch("Work.");
    fleet.until("the agent has begun", |fleet| {
        let events = fleet.run(&["logs", &run, "--output", "json"]).stdout;
        events.contains("session one").then_some(())
    });
    let answer = fleet.run(&["steer", &run, "Are you there?"]).expect(0);
    assert!(answer.stderr.contains("the agent is told"), "{answer:?}");
    let told = answer.line();
    fleet.held(&told, "ConversationBusy");
    fleet.open("go");
    let over = fleet.over(&run);
    assert_eq!(verdict(&over), ["completed", "completed", ""], "{over}");
    let events = fleet.run(&["logs", &run, "--output", "json"]).stdout;
    assert_eq!(events.matches("told while it works").count(), 1, "{events}");
    let next = fleet.over(&told);
    assert_eq!(verdict(&next), ["completed", "completed", ""], "{next}");
}

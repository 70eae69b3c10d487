//! `doctor adapters`: what it says of programs that are there, that are not, and that are something
//! else, and of the real one.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};
use snapbox::str;

use crate::claude::programs;
use crate::env::TestEnv;

/// Every option that a run may be started with, as a help text names them.
const HELP: &str = "Usage: claude\n  -p, --print  Print\n  --dangerously-skip-permissions --effort <level> \
                    --input-format --mcp-config --model --output-format -r, --resume [id], \
                    --session-id --setting-sources --settings --strict-mcp-config --verbose";

/// A directory that every user may look into, as those of programs are.
fn open_directory() -> tempfile::TempDir {
    let dir = tempfile::Builder::new().tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    dir
}

/// A program that says that, by its arguments.
fn program(path: &Path, version: &str, help: &str) -> String {
    let script = format!("#!/bin/sh\n[ \"$1\" = --help ] && echo '{help}' || echo '{version}'\n");
    fs::write(path, script).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn adapter(name: &str, spec: &Value) -> String {
    let object = json!({
        "apiVersion": "homeostat/v1alpha1", "kind": "Adapter",
        "metadata": {"name": name}, "spec": spec,
    });
    format!("---\n{object}\n")
}

/// What `doctor adapters` finds of the Adapters in `fleet`, by their names.
fn findings(env: &TestEnv, args: &[&str]) -> (Vec<Value>, i32) {
    let args = [
        &["doctor", "adapters", "-o", "json", "--source", "fleet"],
        args,
    ]
    .concat();
    let output = env.homeostat(&args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let found: Value = serde_json::from_slice(&output.stdout).expect(&said);
    let found = found.as_array().unwrap().iter();
    let declared = found.filter(|it| !it["adapter"].is_null()).cloned();
    (declared.collect(), output.status.code().unwrap())
}

#[test]
fn without_adapters_the_types_are_checked() {
    let env = TestEnv::new();
    let report = env
        .homeostat(&["doctor", "adapters"])
        .env("PATH", "/nonexistent");
    report.assert().code(1).stdout_eq(str![[r#"
ADAPTER  TYPE        VERDICT        VERSION  PROGRAM  CREDENTIAL  TURN
-        command     good           -        -        -           -
-        claudeCode  not installed  -        -        -           -
claudeCode: can't find "claude" (looked in "/nonexistent")
  remedy: install Claude Code for the user of the daemon, or on its PATH (npm install --global @anthropic-ai/claude-code), or give the path of the program as the Adapter's spec.command
claudeCode: no credential for anthropic: run `homeostat login anthropic`, or set ANTHROPIC_AUTH_TOKEN or ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN
  remedy: run `homeostat login anthropic`, or set it in the daemon's environment

"#]]).stderr_eq(str![[r#"
note: PATH and environment are this command's; a daemon's may be others

"#]]);
    let dir = open_directory();
    program(&dir.path().join("claude"), "2.1.999 (Claude Code)", HELP);
    let report = env
        .homeostat(&["doctor", "adapters"])
        .env("PATH", dir.path());
    let report = report
        .env("ANTHROPIC_API_KEY", "hidden-value")
        .output()
        .unwrap();
    let said = String::from_utf8(report.stdout).unwrap();
    assert!(report.status.success(), "{said}");
    assert!(
        said.contains("processEnvironment (ANTHROPIC_API_KEY)"),
        "{said}"
    );
    assert!(!said.contains("hidden-value"), "{said}");
    assert!(!env.data().exists(), "it looks and leaves nothing");
}

/// An Adapter of a program in `dir` that says that.
fn claude(dir: &Path, name: &str, version: &str, help: &str) -> Value {
    let command = program(&dir.join(name), version, help);
    json!({"type": "claudeCode", "command": command, "env": {"ANTHROPIC_API_KEY": "k"}})
}

/// Adapters with what is wrong with each; name, spec, verdict, a part of the problem.
fn cases(dir: &Path) -> Vec<(&'static str, Value, &'static str, &'static str)> {
    let command = |name: &str| json!({"type": "command", "command": name});
    let new = "2.1.999 (Claude Code)";
    vec![
        ("a", claude(dir, "good", new, HELP), "good", ""),
        ("b", command("sh"), "good", ""),
        (
            "c",
            claude(
                dir,
                "new",
                "3.0.0 (Claude Code)",
                "--print --verbose --settings-file",
            ),
            "warning",
            "does not name --dangerously-skip-permissions, --effort",
        ),
        (
            "d",
            claude(dir, "old", "2.0.1 (Claude Code)", HELP),
            "bad",
            "older than 2.1.0",
        ),
        (
            "e",
            claude(dir, "other", "hello", HELP),
            "bad",
            "a version of Claude Code in \"hello\"",
        ),
        (
            "f",
            claude(dir, "mute", "", HELP),
            "bad",
            "a version of Claude Code in \"\"",
        ),
        (
            "g",
            command("no-such-agent"),
            "notInstalled",
            "can't find the agent's program",
        ),
    ]
}

#[test]
fn each_adapter_is_told_what_is_wrong_with_it() {
    let env = TestEnv::new();
    let dir = open_directory();
    let cases = cases(dir.path());
    let text = cases.iter().map(|(name, spec, ..)| adapter(name, spec));
    env.write("fleet/adapters.yaml", text.collect::<String>());
    let (found, code) = findings(&env, &[]);
    assert_eq!(code, 1);
    assert_eq!(found.len(), cases.len());
    for (found, (name, _, verdict, problem)) in found.iter().zip(&cases) {
        assert_eq!(found["adapter"], *name);
        assert_eq!(found["verdict"], *verdict, "{found}");
        let problems = found["problems"].as_array().unwrap();
        assert_eq!(problems.len(), usize::from(*verdict != "good"), "{found}");
        for each in problems {
            assert!(
                each["problem"].as_str().unwrap().contains(problem),
                "{found}"
            );
            assert!(!each["remedy"].as_str().unwrap().is_empty(), "{found}");
        }
    }
    assert_eq!(found[0]["version"], "2.1.999");
    assert_eq!(
        found[0]["credential"],
        "adapterOverride (ANTHROPIC_API_KEY)"
    );

    // What is warned of does not keep runs from starting.
    let usable = cases[..3]
        .iter()
        .map(|(name, spec, ..)| adapter(name, spec));
    env.write("fleet/adapters.yaml", usable.collect::<String>());
    assert_eq!(findings(&env, &[]).1, 0);
}

#[test]
fn a_program_that_is_closed_to_the_runs_user_is_no_program() {
    if !rustix::process::geteuid().is_root() {
        eprintln!(
            "SKIP a_program_that_is_closed_to_the_runs_user_is_no_program: not root, so that runs \
             have this user"
        );
        return;
    }
    let env = TestEnv::new();
    let dir = open_directory();
    let inner = dir.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let command = program(&inner.join("agent"), "", "");
    let agent = json!({"type": "command", "command": command});
    env.write("fleet/adapters.yaml", adapter("closed", &agent));
    assert_eq!(findings(&env, &[]).1, 0);
    fs::set_permissions(&inner, Permissions::from_mode(0o700)).unwrap();
    let (found, code) = findings(&env, &[]);
    assert_eq!((found[0]["verdict"].as_str(), code), (Some("bad"), 1));
    let problem = found[0]["problems"][0]["problem"].as_str().unwrap();
    assert!(
        problem.ends_with("inner is closed to uid 70007, as which agents run"),
        "{problem}"
    );
}

#[test]
fn the_real_program_takes_a_turn() {
    for program in programs("the_real_program_takes_a_turn") {
        let env = TestEnv::new();
        // A key that would be refused, at a place that would not answer: neither is used.
        let variables =
            json!({"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"});
        let spec = json!({"type": "claudeCode", "command": program, "env": variables});
        env.write("fleet/adapters.yaml", adapter("claude", &spec));
        let (found, code) = findings(&env, &["--smoke"]);
        let found = &found[0];
        assert_eq!(
            (found["verdict"].as_str(), code),
            (Some("good"), 0),
            "{found}"
        );
        let version = program.ancestors().nth(3).unwrap().file_name().unwrap();
        assert_eq!(found["version"], version.to_str().unwrap());
        let smoke = &found["smoke"];
        assert!(smoke["inputTokens"].as_u64() >= Some(11), "{found}");
        assert!(smoke["outputTokens"].as_u64() >= Some(5), "{found}");
        assert!(
            smoke["turnMs"].as_u64() >= smoke["startMs"].as_u64(),
            "{found}"
        );
    }
}

#[test]
fn a_program_that_takes_no_turn_is_told() {
    let env = TestEnv::new();
    let dir = open_directory();
    // It knows everything, reads what it is told, and says nothing.
    let path = dir.path().join("claude");
    let command = program(&path, "2.1.999 (Claude Code)", HELP);
    let spec = json!({"type": "claudeCode", "command": command, "env": {"ANTHROPIC_API_KEY": "k"}});
    env.write("fleet/adapters.yaml", adapter("claude", &spec));
    let (found, code) = findings(&env, &["--smoke"]);
    assert_eq!(
        (found[0]["verdict"].as_str(), code),
        (Some("bad"), 1),
        "{found:?}"
    );
    let problem = found[0]["problems"][0]["problem"].as_str().unwrap();
    assert!(problem.starts_with("one turn failed: can't "), "{problem}");
}

//! The command line from outside: what it prints, where, and how it exits.

use snapbox::str;

use crate::env::TestEnv;

const VALID: &str = "\
apiVersion: homeostat/v1alpha1
kind: Workspace
metadata: { name: core }
spec: {}
";

#[test]
fn version_is_one_line_or_json() {
    let env = TestEnv::new();
    let text = env.homeostat(&["version"]).assert().success();
    text.stdout_eq(str![[r#"
homeostat [VERSION]

"#]])
        .stderr_eq("");
    let json = env.homeostat(&["version", "--output", "json"]).assert();
    json.success()
        .stdout_eq(str![[r#"
{
  "version": "[VERSION]",
  "apiVersion": "homeostat/v1alpha1"
}

"#]])
        .stderr_eq("");
}

#[test]
fn help_names_every_command() {
    let env = TestEnv::new();
    let help = env.homeostat(&["--help"]).assert().success();
    help.stdout_eq(str![[r#"
GitOps for coding agents: keep a fleet of agents where a git repository says

Usage: homeostat [OPTIONS] <COMMAND>

Commands:
  demo         Watch the main job once, offline, in a throw-away directory
  daemon       Run the daemon in the foreground
  init         Write a config repository that fits this host
  validate     Check manifests, and report every fault with its place
  plan         Show what a revision would do: what it creates, changes and removes, and the first pass after it
  schema       Print the JSON Schemas of the kinds
  explain      Explain a code of `validate`, a kind, or a field of a kind
  get          Show objects and their status
  describe     Show one object with its status, its holds and its latest runs
  why          Say why something waits, runs, was refused or ended
  trace        Show which commit, file and line made a run
  events       Show what happened in the fleet, oldest first
  runs         List runs, newest first, or show one with all that is recorded of it
  logs         Show the events of a run
  transcript   Show what a run said and did
  prompt       Show exactly what a run was told
  budget       Show budgets, what was spent of them this month, and what they pause
  dispatch     Ask for one run of an agent in a space
  send         Say something in a space, and wake the agent that is meant
  wait         Wait until a run is over
  steer        Say something to the agent of a live run, which goes on
  stop         End a run; one that has not started yet never will
  takeover     Work in a space yourself: its runs end, and none starts until you hand it back
  handback     Hand a space back to its agents, who are told what changed
  pause        Hold an agent's wakes; its live runs go on
  resume       Take back operators' pauses of an agent, and nothing else
  reconcile    Look at the source and at everything else now
  approve      Let a held revision pass
  estop        Stop every run and every start, also when the daemon is sick or down
  login        Store a key or token for a model provider, read from standard input
  logout       Remove what is stored for a model provider
  credentials  Show what is stored for model providers, and which credential a run would use
  doctor       Check what this host can do, by trying, and say what to do about what it cannot
  volume       Make, see or remove a volume on which worktrees are copied on write
  completions  Print completions for a shell
  man          Print the manual, or write a page for every command
  version      Print the version

Options:
  -h, --help     Print help
  -V, --version  Print version

Host settings:
      --config <FILE>   Read settings from this file
      --data-dir <DIR>  Keep, or look for, the daemon's state here
      --socket <PATH>   Listen, or reach the daemon, on this UNIX socket

"#]])
        .stderr_eq("");
}

#[test]
fn what_is_asked_wrongly_is_2_and_said_on_stderr() {
    let env = TestEnv::new();
    let wrong = env.homeostat(&["frobnicate"]).assert().code(2);
    wrong.stdout_eq("").stderr_eq(str![[r#"
error: unrecognized subcommand 'frobnicate'

Usage: homeostat [OPTIONS] <COMMAND>

For more information, try '--help'.

"#]]);
    let wrong = env.homeostat(&["validate", "--loud"]).assert().code(2);
    wrong.stdout_eq("").stderr_eq(str![[r#"
error: unexpected argument '--loud' found

  tip: a similar argument exists: '--out'

Usage: homeostat validate --out <FORMAT=FILE> [PATH]...

For more information, try '--help'.

"#]]);
    let wrong = env.homeostat(&["schema", "agens"]).assert().code(2);
    wrong.stdout_eq("").stderr_eq(str![[r#"
error: 'agens' is no kind
hint: did you mean `agents`?

"#]]);
}

#[test]
fn validate_without_findings_prints_nothing_on_stdout() {
    let env = TestEnv::new();
    env.write("fleet/a.yaml", VALID);
    env.write("fleet/.hidden/b.yaml", "not: [read");
    env.write("fleet/notes.txt", "not: [read");
    let valid = env.homeostat(&["validate", "fleet"]).assert().success();
    valid.stdout_eq("").stderr_eq(str![[r#"
valid (1 document in 1 file)

"#]]);
    let nothing = env.homeostat(&["validate", "../home"]).assert();
    nothing.success().stdout_eq("").stderr_eq(str![[r#"
there are no manifests

"#]]);
}

#[test]
fn validate_reports_every_fault_of_every_file_with_its_place() {
    let env = TestEnv::new();
    env.write("fleet/a.yaml", VALID);
    env.write(
        "fleet/b.yaml",
        "apiVersion: homeostat/v1alpha1\nkind: Agnet\n---\napiVersion: homeostat/v1alpha1\n\
         kind: Agent\nmetadata: { name: writer, workspace: core }\nspec:\n  title: Writer\n  \
         adpater: echo\n",
    );
    let found = env.homeostat(&["validate", "fleet"]).assert().code(1);
    found
        .stdout_eq(str![[r#"
error[H0203 unknown-kind]: there is no kind `Agnet`
 --> fleet/b.yaml:2:7
  |
2 | kind: Agnet
  |       ^^^^^
  |
  = help: did you mean `Agent`?

error[H0302 missing-field]: the field `adapter` in `spec` is missing
 --> fleet/b.yaml:7:1
  |
7 | spec:
  | ^^^^

error[H0301 unknown-field]: unknown field `adpater`
 --> fleet/b.yaml:9:3
  |
9 |   adpater: echo
  |   ^^^^^^^
  |
  = help: did you mean `adapter`?

"#]])
        .stderr_eq(str![[r#"
3 errors (3 documents in 2 files)

"#]]);
}

#[test]
fn validate_reports_to_programs_as_json() {
    let env = TestEnv::new();
    env.write(
        "fleet/b.yaml",
        "apiVersion: homeostat/v1alpha1\nkind: Agnet\n",
    );
    let found = env.homeostat(&["validate", "-o", "json", "fleet/b.yaml"]);
    found
        .assert()
        .code(1)
        .stdout_eq(str![[r#"
{
  "formatVersion": "1.0",
  "valid": false,
  "errorCount": 1,
  "warningCount": 0,
  "fileCount": 1,
  "documentCount": 1,
  "diagnostics": [
    {
      "code": "H0203",
      "name": "unknown-kind",
      "severity": "error",
      "message": "there is no kind `Agnet`",
      "path": "/kind",
      "span": {
        "file": "fleet/b.yaml",
        "start": {
          "offset": 37,
          "line": 2,
          "column": 7
        },
        "end": {
          "offset": 42,
          "line": 2,
          "column": 12
        }
      },
      "document": 0,
      "object": null,
      "labels": [],
      "help": "did you mean `Agent`?"
    }
  ],
  "allowed": []
}

"#]])
        .stderr_eq("");
}

#[test]
fn validate_reads_standard_input() {
    let env = TestEnv::new();
    let found = env
        .homeostat(&["validate", "-"])
        .stdin("kind: 7\n")
        .assert();
    found.code(1).stdout_eq(str![[r#"
error[H0303 wrong-type]: `kind` must be text
 --> <stdin>:1:7
  |
1 | kind: 7
  |       ^

"#]]);
    let valid = env.homeostat(&["validate", "-"]).stdin(VALID).assert();
    valid.success().stdout_eq("");
}

#[test]
fn warnings_pass_unless_they_are_denied() {
    let env = TestEnv::new();
    env.write(
        "a.yaml",
        VALID.replace("core }", "core, labels: { enabled: yes } }"),
    );
    let passed = env.homeostat(&["validate"]).assert().success();
    passed
        .stdout_eq(str![[r#"
warning[H0114 ambiguous-text]: `yes` is text here, not true or false
 --> a.yaml:3:44
  |
3 | metadata: { name: core, labels: { enabled: yes } }
  |                                            ^^^
  |
  = help: write `"yes"`

"#]])
        .stderr_eq(str![[r#"
valid, with 1 warning (1 document in 1 file)

"#]]);
    let denied = env.homeostat(&["validate", "--deny-warnings"]).assert();
    denied.code(1);
}

#[test]
fn a_file_that_cannot_be_read_is_2() {
    let env = TestEnv::new();
    let missing = env
        .homeostat(&["validate", "missing.yaml"])
        .assert()
        .code(2);
    missing.stdout_eq("").stderr_eq(str![[r#"
error: failed to read missing.yaml
  caused by: No such file or directory (os error 2)

"#]]);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let env = TestEnv::new();
    let script = format!("{} schema | head -1", env!("CARGO_BIN_EXE_homeostat"));
    let piped = snapbox::cmd::Command::new("sh").args(["-c", &script]);
    let piped = piped.current_dir(env.work()).assert().success();
    piped.stdout_eq("{\n").stderr_eq("");
}

#[test]
fn schemas_are_printed_or_written() {
    let env = TestEnv::new();
    let one = env.homeostat(&["schema", "workspace"]).assert().success();
    one.stdout_eq(snapbox::file!["../../schemas/workspace.schema.json"]);
    let all = env.homeostat(&["schema", "--out", "made/schemas"]).assert();
    all.success()
        .stdout_eq(str![[r#"
made/schemas/fleet.schema.json
made/schemas/workspace.schema.json
made/schemas/repo.schema.json
made/schemas/adapter.schema.json
made/schemas/budgetpolicy.schema.json
made/schemas/agent.schema.json
made/schemas/space.schema.json
made/schemas/ticket.schema.json
made/schemas/dispatch.schema.json
made/schemas/schedule.schema.json
made/schemas/homeostat.schema.json

"#]])
        .stderr_eq("");
    let written = std::fs::read(env.work().join("made/schemas/fleet.schema.json")).unwrap();
    let checked_in = concat!(env!("CARGO_MANIFEST_DIR"), "/schemas/fleet.schema.json");
    assert_eq!(written, std::fs::read(checked_in).unwrap());
}

#[test]
fn init_writes_a_repository_that_is_valid_and_committed() {
    let env = TestEnv::new();
    std::fs::create_dir_all(env.work().join("My Site.git")).unwrap();
    let made = env
        .homeostat(&["init", "fleet", "--repo", "My Site.git"])
        .assert();
    made.success().stdout_eq(str![[r#"
fleet/fleet.yaml
fleet/workspace.yaml
fleet/agents.yaml
fleet/tickets.yaml
fleet/.homeostat/homeostat.schema.json

"#]]);
    let valid = env
        .homeostat(&["validate", "--deny-warnings", "fleet"])
        .assert();
    valid.success().stdout_eq("").stderr_eq(str![[r#"
valid (8 documents in 4 files)

"#]]);
    let workspace = std::fs::read_to_string(env.work().join("fleet/workspace.yaml")).unwrap();
    assert!(workspace.contains("name: \"my-site\""), "{workspace}");
    let git = |args: &[&str]| {
        let git = snapbox::cmd::Command::new("git").args(args);
        git.env("GIT_CONFIG_GLOBAL", "/dev/null")
            .current_dir(env.work().join("fleet"))
    };
    git(&["status", "--porcelain"])
        .assert()
        .success()
        .stdout_eq("");
    git(&["log", "--format=%s (%an)", "main"])
        .assert()
        .success()
        .stdout_eq(str![[r#"
Declare a fleet of one agent (homeostat init)

"#]]);
}

#[test]
fn init_offers_what_it_finds() {
    let env = TestEnv::new();
    env.write("bin/claude", "#!/bin/sh\n");
    let program = env.work().join("bin/claude");
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, executable).unwrap();
    let path = format!("{}:/usr/bin:/bin", env.work().join("bin").display());
    let init = env.homeostat(&["init", "fleet"]).env("PATH", path);
    init.assert().success();
    let agents = std::fs::read_to_string(env.work().join("fleet/agents.yaml")).unwrap();
    let offer = "# kind: Adapter\n# metadata: { name: claude }\n# spec: { type: claudeCode }\n";
    assert!(agents.contains(offer), "{agents}");
    // Taken up, it is valid.
    let taken = "kind: Adapter\nmetadata: { name: claude }\nspec: { type: claudeCode }\n";
    let taken = agents.replace(offer, &format!("apiVersion: homeostat/v1alpha1\n{taken}"));
    env.write("fleet/agents.yaml", taken.replace("# ---", "---"));
    let valid = env.homeostat(&["validate", "--deny-warnings", "fleet"]);
    valid.assert().success();
}

#[test]
fn init_touches_nothing_that_is_there() {
    let env = TestEnv::new();
    env.write("fleet/notes.txt", "mine");
    let refused = env.homeostat(&["init", "fleet"]).assert().code(3);
    refused.stdout_eq("").stderr_eq(str![[r#"
error: fleet is not empty
hint: name a directory that is empty or not there

"#]]);
    assert_eq!(
        std::fs::read_dir(env.work().join("fleet")).unwrap().count(),
        1
    );
}

#[test]
fn doctor_reports_every_check_with_a_remedy() {
    let env = TestEnv::new();
    let report = env
        .homeostat(&["doctor", "-o", "json", "--repo", "missing"])
        .output()
        .unwrap();
    assert_eq!(report.status.code(), Some(1), "a source that is not there");
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let findings = &report["host"];
    for finding in findings.as_array().unwrap() {
        let is_good = finding["verdict"] == "good";
        assert_eq!(is_good, finding.get("remedy").is_none(), "{finding}");
    }
    let source = findings
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["check"] == "source");
    assert_eq!(source.unwrap()["verdict"], "bad");
    let types = report["adapters"].as_array().unwrap();
    let types: Vec<_> = types.iter().map(|it| &it["type"]).collect();
    assert_eq!(types, ["command", "claudeCode"]);
    assert!(!env.data().exists(), "it looks and leaves nothing");
}

#[test]
fn a_volume_that_was_never_made_is_not_found() {
    let env = TestEnv::new();
    let missing = env.homeostat(&["volume", "status"]).assert().code(1);
    missing.stdout_eq("").stderr_eq(str![[r#"
error: failed to find the volume [ROOT]/data.xfs
hint: `homeostat volume create` makes one

"#]]);
    let size = env
        .homeostat(&["volume", "create", "--size", "20GB"])
        .assert()
        .code(2);
    size.stdout_eq("").stderr_eq(str![[r#"
error: invalid value '20GB' for '--size <SIZE>': write a size such as 500Mi, 20Gi or 1Ti

For more information, try '--help'.

"#]]);
}

#[test]
fn settings_that_nothing_reads_are_errors() {
    let env = TestEnv::new();
    let wrong = env
        .homeostat(&["get", "agents"])
        .env("HOMEOSTAT_CONFIG_DATADIR", "/x");
    wrong.assert().code(2).stdout_eq("").stderr_eq(str![[r#"
error: HOMEOSTAT_CONFIG_DATADIR is no setting
hint: did you mean HOMEOSTAT_CONFIG_DATA_DIR?

"#]]);
    env.write("homeostat.yaml", "dataDri: /x\nsandbox: 7\n");
    let wrong = env.homeostat(&["--config", "homeostat.yaml", "get", "agents"]);
    wrong.assert().code(2).stdout_eq("").stderr_eq(str![[r#"
error: [ROOT]/here/homeostat.yaml has faults
error[H0301 unknown-field]: `dataDri` is no setting
 --> [ROOT]/here/homeostat.yaml:1:1
  |
1 | dataDri: /x
  | ^^^^^^^
  |
  = help: did you mean `dataDir`?

error[H0303 wrong-type]: sandbox takes one of on, off
 --> [ROOT]/here/homeostat.yaml:2:10
  |
2 | sandbox: 7
  |          ^

"#]]);
}

#[test]
fn without_daemon_and_state_there_is_nothing_to_ask() {
    let env = TestEnv::new();
    for args in [
        &["get", "agents"][..],
        &["runs"],
        &["reconcile"],
        &["wait", "1234"],
    ] {
        let unreachable = env.homeostat(args).output().unwrap();
        assert_eq!(unreachable.status.code(), Some(5), "{args:?}");
        assert!(unreachable.stdout.is_empty(), "{args:?}");
    }
    let looked = env.homeostat(&["get", "agents"]).assert().code(5);
    looked.stderr_eq(str![[r#"
error: no daemon answers on [ROOT]/data/homeostat.sock
  caused by: No such file or directory (os error 2)
hint: [ROOT]/data holds no state either
hint: start `homeostat daemon`, or pass the --data-dir of another one

"#]]);
    let acted = env.homeostat(&["stop", "1234"]).assert().code(5);
    acted.stderr_eq(str![[r#"
error: no daemon answers
  caused by: No such file or directory (os error 2)
hint: is `homeostat daemon` running? It listens on [ROOT]/data/homeostat.sock

"#]]);
}

#[test]
fn an_emergency_stop_needs_no_daemon() {
    let env = TestEnv::new();
    let nowhere = env.homeostat(&["estop"]).assert().code(2);
    nowhere.stdout_eq("").stderr_eq(str![[r#"
error: [ROOT]/data is no data directory
hint: pass the daemon's --data-dir

"#]]);
    std::fs::create_dir(env.data()).unwrap();
    let set = env
        .homeostat(&["estop", "--reason", "smoke"])
        .env("USER", "ada")
        .assert();
    set.success().stdout_eq("").stderr_eq(str![[r#"
nothing starts any more
no run is left; `homeostat estop --clear` lets runs start again

"#]]);
    let file = std::fs::read_to_string(env.data().join("ESTOP")).unwrap();
    let file: serde_json::Value = serde_json::from_str(&file).unwrap();
    assert_eq!(file["reason"], "smoke");
    assert!(
        file["by"].as_str().unwrap().starts_with("ada (uid "),
        "{file}"
    );
    let cleared = env.homeostat(&["estop", "--clear"]).assert();
    cleared.success().stderr_eq(str![[r#"
runs may start again

"#]]);
    assert!(!env.data().join("ESTOP").exists());
}

const FLEET: &str = "\
apiVersion: homeostat/v1alpha1
kind: Fleet
metadata: { name: fleet }
spec: { firstRevision: run }
---
apiVersion: homeostat/v1alpha1
kind: Workspace
metadata: { name: core }
spec: {}
---
apiVersion: homeostat/v1alpha1
kind: Adapter
metadata: { name: echo }
spec: { type: command, command: cat }
---
apiVersion: homeostat/v1alpha1
kind: Agent
metadata: { name: writer, workspace: core }
spec: { title: Writer, adapter: echo }
---
apiVersion: homeostat/v1alpha1
kind: Space
metadata: { name: desk, workspace: core }
spec: { agents: [writer] }
---
apiVersion: homeostat/v1alpha1
kind: Ticket
metadata: { name: hello, workspace: core }
spec: { title: Say hello, space: desk, assignee: writer }
";

#[test]
fn a_plan_says_what_is_made_and_what_happens_first() {
    let env = TestEnv::new();
    env.write("fleet/all.yaml", FLEET);
    let plan = env.homeostat(&["plan", "fleet"]).assert().success();
    plan.stdout_eq(str![[r#"
revision 77a45b3fda: 6 to create, 0 to change, 0 to remove
  + Fleet/fleet
  + Workspace/core
  + Adapter/echo
  + Agent/core/writer
  + Space/core/desk
  + Ticket/core/hello
the first pass after it:
do    ensureSpaceRoot  Space/core/desk  make the root, with overlays of Agent/core/writer
do    assignTicket  Ticket/core/hello  assign to Agent/core/writer, wake assignment of Agent/core/writer

"#]]).stderr_eq(str![[r#"
note: [ROOT]/data holds no state; this is a plan against nothing

"#]]);
    env.homeostat(&["plan", "fleet", "--detailed-exitcode"])
        .assert()
        .code(2);
    let json = env
        .homeostat(&["plan", "fleet", "-o", "json"])
        .output()
        .unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["changes"][0]["step"], "create");
    assert_eq!(json["held"], serde_json::Value::Null);
    assert!(!env.data().exists(), "it looks and leaves nothing");
}

#[test]
fn a_plan_of_a_range_is_what_its_end_does_to_its_beginning() {
    let env = TestEnv::new();
    let git = |args: &[&str]| {
        let git = snapbox::cmd::Command::new("git").current_dir(env.work().join("fleet"));
        let user = ["-c", "user.name=Olga", "-c", "user.email=olga@example.com"];
        git.args(user).args(args).assert().success();
    };
    env.write("fleet/all.yaml", FLEET);
    git(&["init", "--quiet", "--initial-branch=main"]);
    git(&["add", "--all"]);
    git(&["commit", "--quiet", "--message", "Begin"]);
    let changed = FLEET
        .replace("Say hello", "Say good bye")
        .replace("name: echo }", "name: say }")
        .replace("adapter: echo", "adapter: say");
    env.write("fleet/all.yaml", &changed);
    git(&["commit", "--quiet", "--all", "--message", "Change"]);
    let range = |rev: &str| env.homeostat(&["plan", "fleet", "--rev", rev]);
    range("HEAD~1..HEAD")
        .assert()
        .success()
        .stdout_eq(str![[r#"
revision [..]: 1 to create, 2 to change, 1 to remove
  - Adapter/echo
  + Adapter/say
  ~ Agent/core/writer
      spec.adapter: "echo" → "say"
  ~ Ticket/core/hello
      spec.title: "Say hello" → "Say good bye"

"#]])
        .stderr_eq("");
    range("HEAD..").arg("--detailed-exitcode").assert().code(0);
    range("HEAD..HEAD~1")
        .arg("--detailed-exitcode")
        .assert()
        .code(2);
    env.write("fleet/all.yaml", "kind: Agnet\n");
    git(&["commit", "--quiet", "--all", "--message", "Break"]);
    range("HEAD..HEAD~1").assert().code(2);
    range("HEAD~1..HEAD").assert().code(1);
}

#[test]
fn a_plan_of_what_is_not_valid_is_the_findings() {
    let env = TestEnv::new();
    env.write("fleet/all.yaml", "kind: Agnet\n");
    let plan = env.homeostat(&["plan", "fleet", "--detailed-exitcode"]);
    plan.assert().code(1).stdout_eq(str![[r#"
error[H0203 unknown-kind]: there is no kind `Agnet`
 --> all.yaml:1:7
  |
1 | kind: Agnet
  |       ^^^^^
  |
  = help: did you mean `Agent`?

"#]]);
    let nowhere = env.homeostat(&["plan"]).assert().code(2);
    nowhere.stdout_eq("").stderr_eq(str![[r#"
error: no source: nothing says where the manifests are
hint: pass --source DIR, or --source-repo PATH-OR-URL; `homeostat init` makes one

"#]]);
    let missing = env.homeostat(&["plan", "missing"]).assert().code(2);
    missing.stdout_eq("").stderr_eq(str![[r#"
error: failed to take in the source
  caused by: read missing
  caused by: No such file or directory (os error 2)

"#]]);
}

#[test]
fn a_plan_of_a_commit_ignores_what_is_not_committed() {
    let env = TestEnv::new();
    env.homeostat(&["init", "fleet"]).assert().success();
    env.write("fleet/broken.yaml", "kind: Agnet\n");
    env.homeostat(&["plan", "fleet"]).assert().code(1);
    let plan = env
        .homeostat(&["plan", "fleet", "--rev", "main"])
        .output()
        .unwrap();
    let text = String::from_utf8(plan.stdout).unwrap();
    assert!(
        text.contains(": 7 to create, 0 to change, 0 to remove\n"),
        "{text}"
    );
    let plan = env
        .homeostat(&["plan", "fleet", "--rev", "nowhere"])
        .assert();
    plan.code(2).stderr_eq(str![[r#"
error: there is no revision 'nowhere' in fleet

"#]]);
}

#[test]
fn shells_and_manuals_know_every_command() {
    let env = TestEnv::new();
    let said = |args: &[&str]| {
        let output = env.homeostat(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for shell in ["bash", "zsh", "fish"] {
        let script = said(&["completions", shell]);
        assert!(
            script.contains("takeover") && script.contains("reconcile"),
            "{shell}"
        );
    }
    // The script is one that the shell takes.
    std::fs::write(
        env.work().join("completions.bash"),
        said(&["completions", "bash"]),
    )
    .unwrap();
    let bash = snapbox::cmd::Command::new("bash").current_dir(env.work());
    let complete = "source ./completions.bash && complete -p homeostat";
    let known = bash.args(["--norc", "-c", complete]).assert().success();
    let known = String::from_utf8(known.get_output().stdout.clone()).unwrap();
    assert!(known.contains("-F _homeostat"), "{known}");
    let manual = said(&["man"]);
    assert!(
        manual.contains(".TH homeostat 1") && manual.contains("takeover"),
        "{manual}"
    );
    said(&["man", "--out", "man"]);
    assert!(env.work().join("man/homeostat-takeover.1").exists());
    env.homeostat(&["completions", "cmd"]).assert().code(2);
}

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
  validate    Check manifests, and report every fault with its place
  schema      Print the JSON Schemas of the kinds
  get         Show objects and their status
  describe    Show one object with its status, its holds and its latest runs
  why         Say why something waits, runs, was refused or ended
  events      Show what happened in the fleet, oldest first
  runs        List runs, newest first
  logs        Show the events of a run
  transcript  Show what a run said and did
  prompt      Show exactly what a run was told
  budget      Show budgets, what was spent of them this month, and what they pause
  dispatch    Ask for one run of an agent in a space
  send        Say something in a space, and wake the agent that is meant
  wait        Wait until a run is over
  stop        End a run; one that has not started yet never will
  pause       Hold an agent's wakes; its live runs go on
  resume      Take back operators' pauses of an agent, and nothing else
  reconcile   Look at the source and at everything else now
  approve     Let a held revision pass
  estop       Stop every run and every start, also when the daemon is sick or down
  version     Print the version

Options:
  -h, --help  Print help

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

  tip: to pass '--loud' as a value, use '-- --loud'

Usage: homeostat validate [OPTIONS] [PATH]...

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
    let found = env.homeostat(&["validate", "-o", "json", "fleet/b.yaml"]);
    found
        .assert()
        .code(1)
        .stdout_eq(str![[r#"
{
  "formatVersion": "1.0",
  "valid": false,
  "errorCount": 3,
  "warningCount": 0,
  "fileCount": 1,
  "documentCount": 2,
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
    },
    {
      "code": "H0302",
      "name": "missing-field",
      "severity": "error",
      "message": "the field `adapter` in `spec` is missing",
      "path": "/spec/adapter",
      "span": {
        "file": "fleet/b.yaml",
        "start": {
          "offset": 134,
          "line": 7,
          "column": 1
        },
        "end": {
          "offset": 138,
          "line": 7,
          "column": 5
        }
      },
      "document": 1,
      "object": {
        "kind": "Agent",
        "workspace": "core",
        "name": "writer"
      },
      "labels": [],
      "help": null
    },
    {
      "code": "H0301",
      "name": "unknown-field",
      "severity": "error",
      "message": "unknown field `adpater`",
      "path": "/spec/adpater",
      "span": {
        "file": "fleet/b.yaml",
        "start": {
          "offset": 158,
          "line": 9,
          "column": 3
        },
        "end": {
          "offset": 165,
          "line": 9,
          "column": 10
        }
      },
      "document": 1,
      "object": {
        "kind": "Agent",
        "workspace": "core",
        "name": "writer"
      },
      "labels": [],
      "help": "did you mean `adapter`?"
    }
  ]
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

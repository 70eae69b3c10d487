//! What `validate` hands to other programs, what it reads from git, and what `explain` says.

use std::fs;

use snapbox::str;

use crate::env::TestEnv;

/// A workspace with these labels, one a line.
fn workspace(labels: &str) -> String {
    format!(
        "apiVersion: homeostat/v1alpha1\nkind: Workspace\nmetadata:\n  name: core\n  labels:\n\
         {labels}spec: {{}}\n"
    )
}

fn git(env: &TestEnv, args: &[&str]) {
    let git = snapbox::cmd::Command::new("git")
        .args(["-c", "user.name=Ada", "-c", "user.email=ada@example.com"])
        .args(args);
    git.env("GIT_CONFIG_GLOBAL", "/dev/null")
        .current_dir(env.work())
        .assert()
        .success();
}

#[test]
fn one_check_writes_several_reports() {
    let env = TestEnv::new();
    env.write("a.yaml", workspace("    paid: yes\n"));
    env.write("made/x.sarif", "what was there before");
    let args = [
        "validate",
        "--out",
        "sarif=made/x.sarif",
        "--out",
        "json=x.json",
        "--out",
        "text=x.txt",
    ];
    let found = env.homeostat(&args).assert().success();
    let text = "\
warning[H0114 ambiguous-text]: `yes` is text here, not true or false
 --> a.yaml:6:11
  |
6 |     paid: yes
  |           ^^^
  |
  = help: write `\"yes\"`
";
    found.stdout_eq(text);
    let read = |path: &str| fs::read_to_string(env.work().join(path)).unwrap();
    assert_eq!(read("x.txt"), text);
    for (path, format) in [("made/x.sarif", "sarif"), ("x.json", "json")] {
        let printed = env.homeostat(&["validate", "-o", format]).output().unwrap();
        assert_eq!(read(path), String::from_utf8(printed.stdout).unwrap());
    }
    // Nothing else is left in either directory.
    assert_eq!(fs::read_dir(env.work().join("made")).unwrap().count(), 1);
    assert_eq!(fs::read_dir(env.work()).unwrap().count(), 4);
}

#[test]
fn a_report_that_cannot_be_written_is_2() {
    let env = TestEnv::new();
    env.write("a.yaml", workspace("    paid: one\n"));
    let failed = env.homeostat(&["validate", "--out", "json=none/x.json"]);
    failed.assert().code(2).stderr_eq(str![[r#"
error: failed to write none/x.json
  caused by: No such file or directory[..]

"#]]);
    for wrong in ["json", "json=", "yaml=x"] {
        env.homeostat(&["validate", "--out", wrong])
            .assert()
            .code(2);
    }
}

#[test]
fn github_shows_the_worst_ten_and_keeps_the_others_in_the_summary() {
    let env = TestEnv::new();
    let labels: String = (0..11).map(|n| format!("    l{n}: no\n")).collect();
    env.write("a.yaml", workspace(&labels));
    env.write("b.yaml", "kind: Agnet\n");
    let summary = env.work().join("summary.md");
    fs::write(&summary, "# Of another step\n").unwrap();
    let found = env
        .homeostat(&["validate", "-o", "github"])
        .env("GITHUB_STEP_SUMMARY", &summary)
        .output()
        .unwrap();
    assert_eq!(found.status.code(), Some(1));
    let annotations = String::from_utf8(found.stdout).unwrap();
    let lines: Vec<&str> = annotations.lines().collect();
    assert_eq!(lines.len(), 10);
    assert_eq!(
        lines[0],
        "::error file=b.yaml,line=1,endLine=1,col=7,endColumn=12,title=H0203 unknown-kind::there \
         is no kind `Agnet`%0Adid you mean `Agent`?"
    );
    assert!(lines[1].starts_with("::warning file=a.yaml,line=6,"));
    snapbox::assert_data_eq!(
        fs::read_to_string(&summary).unwrap(),
        str![[r#"
# Of another step
### homeostat validate

Errors: 1, warnings: 11. The worst 10 are annotations; these are the others.

````text
warning[H0114 ambiguous-text]: `no` is text here, not true or false (a.yaml:15:9)
warning[H0114 ambiguous-text]: `no` is text here, not true or false (a.yaml:16:10)
````

"#]]
    );
    let said = env.homeostat(&["validate", "-o", "github"]).assert();
    said.code(1).stderr_eq(str![[r#"
1 error, 11 warnings (2 documents in 2 files)
note: only the worst 10 findings are annotations, and there is no GITHUB_STEP_SUMMARY for the others

"#]]);
}

#[test]
fn a_comment_lets_a_warning_pass_and_is_said() {
    let env = TestEnv::new();
    env.write(
        "a.yaml",
        workspace("    paid: yes # homeostat: allow(H0114) for an older tool\n"),
    );
    let passed = env.homeostat(&["validate", "--deny-warnings"]).assert();
    passed.success().stdout_eq("").stderr_eq(str![[r#"
valid, 1 allowed (1 document in 1 file)

"#]]);
}

#[test]
fn a_revision_is_checked_as_it_was_committed() {
    let env = TestEnv::new();
    git(&env, &["init", "-q", "-b", "main"]);
    env.write("fleet/a.yaml", workspace("    paid: one\n"));
    env.write("fleet/.hidden/b.yaml", "not: [read");
    env.write("other/c.yaml", "kind: 7\n");
    git(&env, &["add", "-A"]);
    git(&env, &["commit", "-q", "-m", "one"]);
    env.write("fleet/a.yaml", "kind: Agnet\n");
    env.homeostat(&["validate", "fleet"]).assert().code(1);
    for rev in ["HEAD", "main", "HEAD^0"] {
        let valid = env.homeostat(&["validate", "--rev", rev, "fleet/"]);
        valid.assert().success().stdout_eq("").stderr_eq(str![[r#"
valid (1 document in 1 file)

"#]]);
    }
    // Paths are those of the working directory, also below the root and of what is gone.
    fs::remove_dir_all(env.work().join("other")).unwrap();
    let found = env
        .homeostat(&["validate", "--rev", "HEAD", "../other/c.yaml"])
        .current_dir(env.work().join("fleet"))
        .assert();
    found.code(1).stdout_eq(str![[r#"
error[H0303 wrong-type]: `kind` must be text
 --> ../other/c.yaml:1:7
  |
1 | kind: 7
  |       ^

"#]]);
    for (args, why) in [
        (
            ["--rev", "nothing", "fleet"],
            "there is no revision 'nothing' in [ROOT]/here",
        ),
        (["--rev", "HEAD", "absent"], "there is no absent in HEAD"),
        (
            ["--rev", "HEAD", "../home"],
            "no git repository holds ../home",
        ),
    ] {
        let refused = env.homeostat(&["validate"]).args(args).assert().code(2);
        refused.stderr_eq(format!("error: {why}\n"));
    }
    let refused = env.homeostat(&["validate", "--rev", "HEAD", "-"]).assert();
    refused.code(2);
}

#[test]
fn what_changed_or_what_that_broke_is_reported() {
    let env = TestEnv::new();
    git(&env, &["init", "-q", "-b", "main"]);
    let repo = |name: &str| {
        format!(
            "apiVersion: homeostat/v1alpha1\nkind: Repo\nmetadata: {{ name: {name}, workspace: core }}\n\
             spec: {{ source: ../{name} }}\n"
        )
    };
    let core = workspace("    paid: yes\n").replace("spec: {}", "spec: { repos: [site] }");
    env.write("fleet/core.yaml", core);
    env.write("fleet/old.yaml", "kind: Agnet\n");
    env.write("fleet/site.yaml", repo("site"));
    git(&env, &["add", "-A"]);
    git(&env, &["commit", "-q", "-m", "one"]);
    // The repo is renamed: its own file is fine, and the workspace's, untouched, is not.
    env.write("fleet/site.yaml", repo("front"));
    let args = ["validate", "--changed-since", "HEAD", "fleet"];
    let found = env.homeostat(&args).assert().code(1);
    found
        .stdout_eq(str![[r#"
error[H0404 unknown-reference]: there is no Repo `site` in the workspace `core`
 --> fleet/core.yaml:7:17
  |
7 | spec: { repos: [site] }
  |                 ^^^^

"#]])
        .stderr_eq(str![[r#"
1 error (3 documents in 3 files)
2 findings from before left out

"#]]);
    // With nothing changed there is nothing to say, whatever was wrong before.
    git(&env, &["commit", "-q", "-a", "-m", "two"]);
    env.homeostat(&args).assert().success().stdout_eq("");
    // A change says everything about its file.
    env.write("fleet/old.yaml", "\nkind: Agnet\n");
    env.homeostat(&args).assert().code(1);
}

#[test]
fn explain_explains_a_code() {
    let env = TestEnv::new();
    let page = env.homeostat(&["explain", "H0301"]).assert().success();
    page.stdout_eq(str![[r#"
H0301 unknown-field (error)
A field that does not exist.

A field that nothing reads is a typing error or a wish that would silently not be
granted. Top-level fields whose names begin with `x-` are yours.

wrong:

    apiVersion: homeostat/v1alpha1
    kind: Agent
    metadata: { name: ada, workspace: core }
    spec:
      title: Ada
      adapter: echo
      modle: small

right:

    apiVersion: homeostat/v1alpha1
    kind: Agent
    metadata: { name: ada, workspace: core }
    spec:
      title: Ada
      adapter: echo
      model: small

"#]]);
    for same in ["h0301", "unknown-field"] {
        let page = env.homeostat(&["explain", same]).output().unwrap();
        let first = env.homeostat(&["explain", "H0301"]).output().unwrap();
        assert_eq!(page, first, "{same}");
    }
    let page = env.homeostat(&["explain", "H0114"]).output().unwrap();
    let page = String::from_utf8(page.stdout).unwrap();
    assert!(
        page.contains("    # homeostat: allow(H0114) reason\n"),
        "{page}"
    );
    let page = env.homeostat(&["explain", "H0405", "-o", "json"]);
    let page: serde_json::Value = serde_json::from_slice(&page.output().unwrap().stdout).unwrap();
    assert_eq!(page["code"], "H0405");
    assert_eq!(page["severity"], "error");
    assert_eq!(page["allowable"], false);
    let wrong = page["wrong"].as_str().unwrap();
    assert!(wrong.contains("\n  agents: [writer, writer]\n"), "{wrong}");
}

#[test]
fn explain_explains_kinds_and_fields() {
    let env = TestEnv::new();
    let kind = env.homeostat(&["explain", "repo"]).assert().success();
    kind.stdout_eq(str![[r#"
Repo
A source repository. It is read, never written.

type      a mapping
required  yes

fields:
  apiVersion  The version of this format. (one of a set of words, required)
  kind        What this document declares. (one of a set of words, required)
  metadata    Which object this is. (a mapping, required)
  spec        A source repository. It is read, never written. (a mapping, required)

"#]]);
    let spec = env.homeostat(&["explain", "workspace.spec"]).assert();
    spec.success().stdout_eq(str![[r#"
Workspace.spec
The container that everything else belongs to.

type      a mapping
required  yes

fields:
  displayName  What people call it. (text)
  owner        Who answers for it: a person's name or address. (text)
  repos        Repos that its spaces may use. (a list, each text)

"#]]);
    let field = env.homeostat(&["explain", "Agent.spec.concurrency"]);
    field.assert().success().stdout_eq(str![[r#"
Agent.spec.concurrency
How many of its runs may be live at once.

type      a whole number
required  no
default   1
limits    1 to 1000

"#]]);
    let choices = env.homeostat(&["explain", "tickets.spec.priority"]);
    choices.assert().success().stdout_eq(str![[r#"
Ticket.spec.priority
Its place in the queue.

type      one of a set of words
required  no
default   "none"

choices:
  urgent  Before everything.
  high    Early.
  medium  In turn.
  low     Late.
  none    After everything that says more.

"#]]);
}

#[test]
fn explain_suggests_what_may_be_meant() {
    let env = TestEnv::new();
    for (subject, said) in [
        (
            "agnet",
            "'agnet' is no code and no kind\nhint: did you mean `Agent`?",
        ),
        (
            "H0399",
            "'H0399' is no code and no kind\nhint: did you mean `H0309`?",
        ),
        (
            "unknown-feild",
            "'unknown-feild' is no code and no kind\nhint: did you mean `unknown-field`?",
        ),
        (
            "xyzzy",
            "'xyzzy' is no code and no kind\nhint: `homeostat explain` lists what there is",
        ),
        (
            "agent.spec.adpater",
            "Agent.spec has no field adpater\nhint: did you mean `Agent.spec.adapter`?",
        ),
        (
            "agent.adapter",
            "Agent has no field adapter\nhint: did you mean `Agent.spec.adapter`?",
        ),
        (
            "fleet.spec.zone.x",
            "Fleet.spec.zone has no field x\nhint: it holds no fields",
        ),
    ] {
        let unknown = env.homeostat(&["explain", subject]).assert().code(2);
        unknown.stdout_eq("").stderr_eq(format!("error: {said}\n"));
    }
    let all = env.homeostat(&["explain"]).output().unwrap();
    let all = String::from_utf8(all.stdout).unwrap();
    assert!(all.contains("  H0301 unknown-field "), "{all}");
    assert!(all.contains("  BudgetPolicy "), "{all}");
}

//! `login`, `logout` and `credentials`: what is stored and where, what is shown of it, and which
//! of all sources a run would use.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use homeostat::task::{Tracker, blocking};
use serde_json::{Value, json};
use snapbox::str;

use crate::env::TestEnv;
use crate::support::model_server::ModelServer;

const KEY: &str = "sk-ant-api03-nobody-sees-it";

fn store(env: &TestEnv) -> PathBuf {
    env.data().join("credentials.json")
}

fn login(env: &TestEnv, key: &str) {
    let login = env.homeostat(&["login", "anthropic"]).stdin(key.to_owned());
    login.assert().success();
}

/// What `credentials` says, and whether it exits with 0.
fn credentials(env: &TestEnv, args: &[&str], variables: &[(&str, &str)]) -> (Value, bool) {
    let args = [&["credentials", "-o", "json"], args].concat();
    let output = env.homeostat(&args).envs(variables.to_vec()).output();
    let output = output.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains(KEY), "{text}");
    (
        serde_json::from_str(&text).unwrap(),
        output.status.success(),
    )
}

#[test]
fn what_is_stored_is_listed_and_removed_and_never_shown() {
    let env = TestEnv::new();
    let login = env
        .homeostat(&["login", "anthropic"])
        .stdin(format!("  {KEY}\r\n"));
    login.assert().success().stdout_eq("").stderr_eq(str![[r#"
stored for anthropic; `homeostat credentials` shows which runs use it

"#]]);
    let metadata = fs::metadata(store(&env)).unwrap();
    assert_eq!(metadata.mode() & 0o7777, 0o600);
    let kept: Value = serde_json::from_slice(&fs::read(store(&env)).unwrap()).unwrap();
    assert_eq!(kept["credentials"][0]["secret"], KEY);
    assert_eq!(kept["credentials"][0]["scheme"], "apiKey");

    let shown = env.homeostat(&["credentials"]).assert().success();
    shown
        .stdout_eq(str![[r#"
STORED     ACCOUNT  KIND    SINCE  EXPIRES
anthropic  login    apiKey  [..]     -

ADAPTER  PROVIDER   USES                 WHY                                      PASSED OVER  TEST
-        anthropic  daemonStore (login)  it is stored, and the Adapter sets none  -            -

"#]])
        .stderr_eq(str![[r#"
note: the environment is this command's; a daemon's may be another

"#]]);

    // A second one takes the first one's place, and looks are not everything.
    let login = env
        .homeostat(&["login", "anthropic", "--bearer"])
        .stdin("other");
    login.assert().success();
    let from_env = env.homeostat(&["login", "openai", "--from-env", "MINE"]);
    from_env.env("MINE", KEY).assert().success();
    let (shown, is_good) = credentials(&env, &[], &[]);
    assert!(is_good);
    let stored = shown["stored"].as_array().unwrap();
    let kinds = stored.iter().map(|it| [&it["provider"], &it["kind"]]);
    let expected = [
        [&json!("anthropic"), &json!("bearer")],
        [&json!("openai"), &json!("bearer")],
    ];
    assert_eq!(kinds.collect::<Vec<_>>(), expected);
    assert!(
        stored.iter().all(|it| it.get("secret").is_none()),
        "{shown}"
    );

    env.homeostat(&["logout", "anthropic"]).assert().success();
    let again = env.homeostat(&["logout", "anthropic"]).assert().code(1);
    again.stdout_eq("").stderr_eq(str![[r#"
nothing was stored for anthropic

"#]]);
    let (shown, is_good) = credentials(&env, &[], &[]);
    assert!(!is_good, "runs have no key");
    assert_eq!(shown["stored"].as_array().unwrap().len(), 1);
}

#[test]
fn what_is_no_key_is_refused_and_nothing_is_stored() {
    let env = TestEnv::new();
    let long = "x".repeat(10_000);
    for input in [
        "",
        "\n",
        "one\ntwo",
        "nul\0",
        "two words",
        "sch\u{f6}n",
        &long,
    ] {
        let login = env
            .homeostat(&["login", "anthropic"])
            .stdin(input.to_owned());
        let refused = login.output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{input:?}: {said}");
        assert!(said.contains("is no key or token"), "{said}");
        assert!(input.len() < 3 || !said.contains(input), "{said}");
    }
    for (name, value) in [("EMPTY", ""), ("LINES", "one\ntwo"), ("UNSET", "")] {
        let mut login = env.homeostat(&["login", "anthropic", "--from-env", name]);
        if name != "UNSET" {
            login = login.env(name, value);
        }
        login.assert().code(2).stdout_eq("");
    }
    // Never as an argument: others can list those.
    env.homeostat(&["login", "anthropic", KEY]).assert().code(2);
    let unknown = env.homeostat(&["login", "nobody"]).assert().code(2);
    unknown.stdout_eq("").stderr_eq(str![[r#"
error: invalid value 'nobody' for '<PROVIDER>'
  [possible values: anthropic, openai, google]

For more information, try '--help'.

"#]]);
    env.homeostat(&["logout", "anthropic"]).assert().code(1);
    assert!(!env.data().exists());
}

#[test]
fn a_store_that_others_can_reach_is_not_used() {
    let env = TestEnv::new();
    login(&env, KEY);
    let open =
        |path: PathBuf, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    open(store(&env), 0o640);
    for command in [
        &["credentials"][..],
        &["login", "anthropic"],
        &["logout", "anthropic"],
    ] {
        let refused = env.homeostat(command).stdin("new").assert().code(3);
        refused.stdout_eq("").stderr_eq(str![[r#"
error: the credential store can't be used
  caused by: [ROOT]/data/credentials.json is open to others (mode 640, owner [..]): make it the daemon's with mode 600, and replace the credentials in it

"#]]);
    }
    open(store(&env), 0o600);
    open(env.data(), 0o777);
    let refused = env.homeostat(&["login", "anthropic"]).stdin("new").assert();
    refused.code(3).stderr_eq(str![[r#"
error: the credential store can't be used
  caused by: the data directory [ROOT]/data is owner [..]'s with mode 777: log in as the daemon's user, and let nobody else write there

"#]]);
    assert!(fs::read_to_string(store(&env)).unwrap().contains(KEY));
}

const ADAPTERS: &str = r#"
apiVersion: homeostat/v1alpha1
kind: Adapter
metadata: { name: own }
spec: { type: claudeCode, env: { ANTHROPIC_API_KEY: from-the-adapter } }
---
apiVersion: homeostat/v1alpha1
kind: Adapter
metadata: { name: plain }
spec: { type: claudeCode, env: { ANTHROPIC_API_KEY: "" } }
---
apiVersion: homeostat/v1alpha1
kind: Adapter
metadata: { name: sh }
spec: { type: command, command: sh }
"#;

#[test]
fn the_source_that_wins_is_shown_with_what_it_passes_over() {
    let env = TestEnv::new();
    env.write("fleet/adapters.yaml", ADAPTERS);
    let used = |variables: &[(&str, &str)]| {
        let (shown, is_good) = credentials(&env, &["--source", "fleet"], variables);
        let used = shown["used"].as_array().unwrap().clone();
        let used = used.into_iter().map(|it| {
            let of = |name: &str| it[name].as_str().unwrap_or_default().to_owned();
            let passed_over = it["passedOver"].as_array().unwrap().len();
            (of("adapter"), of("source"), passed_over)
        });
        (used.collect::<Vec<_>>(), is_good)
    };
    let row = |adapter: &str, source: &str, passed_over| {
        (adapter.to_owned(), source.to_owned(), passed_over)
    };
    let own = "adapterOverride (ANTHROPIC_API_KEY)";
    assert_eq!(
        used(&[]),
        (vec![row("own", own, 0), row("plain", "", 0)], false)
    );
    let shell = [("ANTHROPIC_AUTH_TOKEN", "shell"), ("ANTHROPIC_API_KEY", "")];
    let process = "processEnvironment (ANTHROPIC_AUTH_TOKEN)";
    let expected = vec![row("own", own, 1), row("plain", process, 0)];
    assert_eq!(used(&shell), (expected, true));
    login(&env, KEY);
    let expected = vec![row("own", own, 2), row("plain", "daemonStore (login)", 1)];
    assert_eq!(used(&shell), (expected, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_is_asked_whether_it_takes_the_key() {
    let tracker = Tracker::new();
    let server = ModelServer::start(&tracker).await;
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let cases = [
        (server.base("ok"), "ok"),
        (server.base("e401"), "refused"),
        (server.base("e529"), "unclear"),
        (closed, "unreachable"),
        ("nowhere".to_owned(), "unreachable"),
    ];
    let asked = blocking("credentials --test", move || {
        let env = TestEnv::new();
        login(&env, KEY);
        for (base, expected) in cases {
            let variables = [("ANTHROPIC_BASE_URL", base.as_str())];
            let (shown, is_good) = credentials(&env, &["--test"], &variables);
            assert_eq!(shown["used"][0]["test"]["result"], expected, "{shown}");
            assert_eq!(shown["used"][0]["test"]["baseUrl"], base);
            assert_eq!(is_good, expected == "ok");
        }
    });
    asked.await.unwrap();
    let seen = server.seen();
    assert_eq!(seen.len(), 3, "one question each");
    for seen in seen {
        assert!(seen.path.ends_with("/v1/models?limit=1"), "{}", seen.path);
        assert_eq!(seen.headers["x-api-key"], KEY);
        assert_eq!(seen.headers["anthropic-version"], "2023-06-01");
    }
}

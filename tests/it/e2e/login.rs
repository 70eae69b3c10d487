//! `login` at a terminal, and beside a daemon that runs.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use homeostat::process::deadline::{Deadline, poll_until};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};

use super::rig::{Fleet, LONG, program};
use crate::support::disk::Disk;

const KEY: &str = "sk-ant-api03-nobody-sees-it";

#[test]
fn a_terminal_does_not_show_what_is_typed() {
    let disk = Disk::plain();
    let data = disk.path().join("data");
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY;
    let inside: OwnedFd = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap();
    let mut command = program(env!("CARGO_BIN_EXE_homeostat"), &disk.path());
    command
        .args(["login", "anthropic"])
        .env("HOMEOSTAT_CONFIG_DATA_DIR", &data)
        .stdin(inside.try_clone().unwrap())
        .stdout(Stdio::null())
        .stderr(inside);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut terminal = File::from(terminal);
    let mut shown = until(&terminal, "it is not shown");
    // A typing error, and a second thought.
    terminal
        .write_all(format!("oops\u{15}x\u{7f}{KEY}\r").as_bytes())
        .unwrap();
    shown += &until(&terminal, "stored for anthropic");
    assert!(child.wait().unwrap().success());
    assert!(!shown.contains(KEY) && !shown.contains("oops"), "{shown}");
    let kept = fs::read_to_string(data.join("credentials.json")).unwrap();
    assert!(kept.contains(&format!("\"{KEY}\"")), "{kept}");
}

/// Reads what a terminal shows until that is among it.
fn until(terminal: &File, text: &str) -> String {
    let deadline = Deadline::after(LONG);
    let mut shown = Vec::new();
    loop {
        let mut fds = [PollFd::new(terminal, PollFlags::IN)];
        let is_there = poll_until(&mut fds, Some(deadline)).unwrap();
        assert!(is_there, "never {text:?}: {shown:?}");
        let mut piece = [0; 1024];
        let read = rustix::io::read(terminal, &mut piece).unwrap();
        shown.extend_from_slice(&piece[..read]);
        let so_far = String::from_utf8_lossy(&shown);
        if so_far.contains(text) && so_far.ends_with('\n') {
            return so_far.into_owned();
        }
    }
}

/// Asks for a run; which credential it used, and what went wrong.
fn credential_of_a_run(fleet: &Fleet) -> [String; 2] {
    let run = fleet.over(&fleet.dispatch("Look."));
    ["credentialSource", "errorCode"].map(|name| run[name].as_str().unwrap_or_default().to_owned())
}

#[test]
fn of_a_daemon_its_own_environment_counts() {
    let mut fleet = Fleet::plain();
    fleet.put("Adapter", "claude", &json!({"type": "claudeCode"}));
    fleet.commit("Declare Claude Code");
    fleet.variables = vec![("ANTHROPIC_API_KEY", KEY.to_owned())];
    fleet.start();
    // What the command itself has in its environment is not what runs get.
    let own = [("ANTHROPIC_AUTH_TOKEN", "mine"), ("PATH", "/nonexistent")];
    let answer = fleet
        .run_with(&["credentials", "--test", "-o", "json"], &own)
        .expect(1);
    assert!(
        !answer.stdout.contains(KEY) && answer.stderr.is_empty(),
        "{answer:?}"
    );
    let shown: Value = serde_json::from_str(&answer.stdout).unwrap();
    let used = &shown["used"][0];
    assert_eq!(used["source"], "processEnvironment (ANTHROPIC_API_KEY)");
    assert_eq!(used["passedOver"], json!([]));
    assert_eq!(used["test"]["result"], "unclear");
    let answer = fleet.run_with(&["doctor", "adapters", "-o", "json"], &own);
    let found: Value = serde_json::from_str(&answer.stdout).unwrap();
    let declared = found
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["adapter"] == "claude");
    let declared = declared.unwrap();
    assert_eq!(
        declared["credential"],
        "processEnvironment (ANTHROPIC_API_KEY)"
    );
    let sh = found
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["adapter"] == "told");
    assert_eq!(sh.unwrap()["verdict"], "good", "its PATH is the daemon's");
}

#[test]
fn a_daemon_uses_what_was_stored_beside_it_for_the_next_run() {
    let mut fleet = Fleet::plain();
    // What its program does is not the point: the key is found before it is started.
    let nowhere = json!({"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"});
    let spec = json!({"type": "claudeCode", "command": "false", "env": nowhere});
    fleet.put("Adapter", "claude", &spec);
    fleet.put(
        "Agent",
        "ada",
        &json!({"title": "Ada", "adapter": "claude"}),
    );
    fleet.commit("Ada is Claude Code");
    fleet.start();
    let missing = ["none", "credential_missing"];
    assert_eq!(credential_of_a_run(&fleet), missing);
    fleet
        .run_with(
            &["login", "anthropic", "--from-env", "MINE"],
            &[("MINE", KEY)],
        )
        .expect(0);
    let used = fleet.json(&["credentials"])["used"].clone();
    assert_eq!(used[0]["adapter"], "claude");
    assert_eq!(used[0]["source"], "daemonStore (login)");
    let [source, error] = credential_of_a_run(&fleet);
    assert_eq!(source, "daemonStore (login)");
    assert_ne!(error, "credential_missing");
    fleet.run(&["logout", "anthropic"]).expect(0);
    assert_eq!(credential_of_a_run(&fleet), missing);
    fleet.run(&["credentials"]).expect(1);
}

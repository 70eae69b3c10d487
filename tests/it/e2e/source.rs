//! Where the daemon reads from: a repository elsewhere, a part of one, and how to wait for it.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use serde_json::{Value, json};

use super::rig::Fleet;
use crate::support::git_http::GitServer;

/// `ann:sesame`, as a header has it.
const LOGIN: &str = "YW5uOnNlc2FtZQ==";

/// A fleet whose repos are named by paths that hold anywhere.
fn fleet() -> Fleet {
    let fleet = Fleet::plain();
    for source in ["app", "lib"] {
        fleet.put("Repo", source, &json!({"source": fleet.path(source)}));
    }
    fleet.commit("Name repos by whole paths");
    fleet
}

/// Asks for the source as it is now; the exit code, and what became of it.
fn reconciled(fleet: &Fleet) -> (i32, Value) {
    let args = [
        "reconcile",
        "--wait",
        "--timeout",
        "100s",
        "--output",
        "json",
    ];
    let answer = fleet.run(&args);
    let read = serde_json::from_str(&answer.stdout);
    (answer.code, read.unwrap_or_else(|_| panic!("{answer:?}")))
}

#[track_caller]
fn accepts(fleet: &Fleet, revision: &str) {
    let read = json!({"status": "accepted", "revision": revision});
    assert_eq!(reconciled(fleet), (0, read));
}

fn works(fleet: &Fleet, what: &str) {
    let run = fleet.dispatch(&format!("say {what}"));
    assert_eq!(fleet.over(&run)["summary"], what);
}

/// Every file below a directory that holds the text.
fn files_with(directory: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files_with(&entry.path(), text));
        } else if let Ok(bytes) = fs::read(entry.path())
            && bytes.windows(text.len()).any(|it| it == text.as_bytes())
        {
            found.push(entry.path().display().to_string());
        }
    }
    found
}

#[test]
fn a_remote_repository_is_followed_and_its_absence_outlived() {
    let mut fleet = fleet();
    let server = GitServer::start(&fleet.path(""), LOGIN);
    fleet.remote = Some(server.url("ann:sesame@", "config"));
    fleet.arguments = vec!["--poll-secs", "1"];
    fleet.start();
    works(&fleet, "Near");
    fleet.put("Agent", "bea", &json!({"title": "Bea", "adapter": "told"}));
    let revision = fleet.commit("Hire Bea");
    accepts(&fleet, &revision);
    fleet.put("Agent", "cyd", &json!({"title": "Cyd", "adapter": "told"}));
    let revision = fleet.commit("Hire Cyd, and tell nobody");
    fleet.until("the next look finds it", |fleet| {
        (fleet.health()["revision"] == *revision).then_some(())
    });
    // The branch forgets that there was a Cyd.
    fleet.git("config", &["reset", "--quiet", "--hard", "HEAD~1"]);
    accepts(&fleet, &fleet.git("config", &["rev-parse", "HEAD"]));

    drop(server);
    let (code, read) = reconciled(&fleet);
    assert_eq!((code, &read["status"]), (2, &json!("unreadable")), "{read}");
    let since = fleet.health()["sourceFailingSince"].clone();
    let since = since.as_str().unwrap();
    let listed = fleet.run(&["get", "agents"]).expect(0).stderr;
    let expected = format!("note: the source: unreadable since {since}: ");
    assert!(listed.contains(&expected), "{listed}");
    works(&fleet, "Far");
    fleet.restart();
    works(&fleet, "Again");
    fleet.until("it is said", |fleet| {
        fleet.said().contains("source unreadable").then_some(())
    });
    for told in [fleet.said(), fleet.health().to_string(), listed] {
        assert!(!told.contains("sesame"), "{told}");
    }
    assert_eq!(files_with(&fleet.path("data"), "sesame"), [""; 0]);
}

#[test]
fn a_part_of_a_repository_is_a_source_while_it_is_there() {
    let mut fleet = Fleet::plain();
    let (config, part) = (fleet.path("config"), fleet.path("config/teams/shop"));
    fs::create_dir_all(&part).unwrap();
    for entry in fs::read_dir(&config).unwrap() {
        let name = entry.unwrap().file_name();
        if Path::new(&name).extension().is_some() {
            fs::rename(config.join(&name), part.join(&name)).unwrap();
        }
    }
    // Somebody else's, and no manifest.
    fs::write(config.join("values.yaml"), "replicas: [").unwrap();
    let good = fleet.commit("Move in with others");
    fleet.arguments = vec!["--source-path", "teams/shop"];
    fleet.start();
    works(&fleet, "Here");
    let agent = part.join("Agent-ada.yaml");
    let was = fs::read_to_string(&agent).unwrap();
    fs::write(&agent, "kind: Agent\n").unwrap();
    let bad = fleet.commit("Write half an agent");
    let (code, read) = reconciled(&fleet);
    assert_eq!(
        (code, &read["status"], &read["revision"]),
        (1, &json!("rejected"), &json!(bad))
    );
    let reason = read["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("teams/shop/Agent-ada.yaml:1:"),
        "{reason}"
    );
    fs::write(&agent, was).unwrap();
    fs::rename(config.join("teams"), config.join("groups")).unwrap();
    fleet.commit("Move out");
    let (code, read) = reconciled(&fleet);
    assert_eq!((code, &read["status"]), (2, &json!("unreadable")));
    let reason = read["reason"].as_str().unwrap();
    assert!(reason.contains("\"teams/shop\""), "{reason}");
    assert_eq!(fleet.health()["revision"], *good);
    works(&fleet, "Still");
    fs::rename(config.join("groups"), config.join("teams")).unwrap();
    accepts(&fleet, &fleet.commit("Move back"));
}

#[test]
fn whoever_waits_for_a_revision_is_told_what_became_of_it() {
    let mut fleet = fleet();
    fleet.put("Space", "hall", &json!({"agents": ["ada"], "repos": []}));
    fleet.put("Space", "yard", &json!({"agents": ["ada"], "repos": []}));
    fleet.put("Space", "shed", &json!({"agents": ["ada"], "repos": []}));
    let first = fleet.commit("Open rooms");
    fleet.start();
    accepts(&fleet, &first);
    for space in ["hall", "yard", "shed"] {
        fleet.remove("Space", space);
    }
    let held = fleet.commit("Close rooms");
    let answer = fleet.run(&["reconcile", "--wait"]).expect(1);
    assert_eq!(answer.stdout, format!("{held} held\n"));
    assert!(answer.stderr.contains("removes 3 of "), "{answer:?}");
    fleet.run(&["approve", &held]).expect(0);
    accepts(&fleet, &held);

    // Another remote is looked at without a daemon.
    let url = format!("file://{}", fleet.path("config").display());
    let planned = fleet.run(&["plan", "--source-repo", &url]).expect(0);
    assert!(planned.stdout.contains(&held[..7]), "{planned:?}");

    // A remote that takes calls and says nothing.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    fleet.remote = Some(format!("http://{}/config", listener.local_addr().unwrap()));
    fleet.restart();
    let args = ["reconcile", "--wait", "--timeout", "1s"];
    let answer = fleet.run(&args).expect(124);
    assert_eq!(answer.stdout, "");
    works(&fleet, "Meanwhile");
}

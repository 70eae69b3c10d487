//! What becomes of a commit: accepted, rejected, held; and starts that are refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rusqlite::Connection;
use serde_json::{Value, json};

use super::rig::Fleet;

fn serving(fleet: &Fleet) -> Value {
    fleet.json(&["get", "all"])["revision"].clone()
}

fn accepted(fleet: &Fleet, revision: &str) {
    fleet.until(&format!("{revision} is served"), |fleet| {
        serving(fleet).to_string().contains(revision).then_some(())
    });
}

fn happened(fleet: &Fleet, event: &str, about: &str) {
    fleet.until(&format!("{event} {about}"), |fleet| {
        let events = fleet.run(&["events"]).stdout;
        let is_so = |line: &str| line.contains(event) && line.contains(&about[..7]);
        events.lines().any(is_so).then_some(())
    });
}

fn exists(fleet: &Fleet, kind: &str, name: &str) -> bool {
    fleet.run(&["get", kind, name]).code == 0
}

#[test]
fn a_faulty_commit_is_refused_whole_and_the_last_good_one_serves_on() {
    let mut fleet = Fleet::plain();
    fleet.start();
    let works = |fleet: &Fleet| {
        let run = fleet.dispatch("say Works");
        assert_eq!(fleet.over(&run)["liveness"], "completed");
    };
    works(&fleet);
    let good = serving(&fleet);
    fleet.put("Agent", "new", &json!({"title": "New", "adapter": "told"}));
    fleet.put(
        "Agent",
        "ada",
        &json!({"title": "Ada", "adapter": "nowhere"}),
    );
    let bad = fleet.commit("Point at nothing");
    happened(&fleet, "RevisionRejected", &bad);
    works(&fleet);
    fleet.restart();
    happened(&fleet, "RevisionRejected", &bad);
    works(&fleet);
    assert_eq!(serving(&fleet), good);
    assert!(!exists(&fleet, "agent", "new"));
    fleet.put("Agent", "ada", &json!({"title": "Ada", "adapter": "told"}));
    accepted(&fleet, &fleet.commit("Point at something"));
    fleet.until("the new agent is there", |fleet| {
        exists(fleet, "agent", "new").then_some(())
    });
}

#[test]
fn a_commit_that_removes_much_waits_for_somebody() {
    let mut fleet = Fleet::plain();
    for name in ["a", "b", "c", "d", "e", "f"] {
        fleet.put("Space", name, &json!({"agents": ["ada"], "repos": []}));
    }
    fleet.commit("Open rooms");
    fleet.start();
    for name in ["a", "b", "c"] {
        fleet.remove("Space", name);
    }
    let held = fleet.commit("Close three");
    happened(&fleet, "RevisionHeld", &held);
    assert!(exists(&fleet, "space", "a"));
    fleet.run(&["approve", &held]).expect(0);
    accepted(&fleet, &held);
    fleet.until("it is gone", |fleet| {
        (!exists(fleet, "space", "a")).then_some(())
    });

    for name in ["d", "e", "f"] {
        fleet.remove("Space", name);
    }
    let held = fleet.commit("Close the others");
    happened(&fleet, "RevisionHeld", &held);
    fleet.annotate("Fleet", "fleet", "homeostat/allow-prune", "3");
    accepted(&fleet, &fleet.commit("Mean it"));
    fleet.until("it is gone", |fleet| {
        (!exists(fleet, "space", "d")).then_some(())
    });
}

#[test]
fn an_empty_database_runs_no_old_work_unless_told_to() {
    let mut fleet = Fleet::plain();
    fleet.put("Fleet", "fleet", &json!({}));
    fleet.put(
        "Dispatch",
        "old",
        &json!({"agent": "ada", "space": "room", "prompt": "note Old"}),
    );
    fleet.put(
        "Ticket",
        "old",
        &json!({"title": "note Old", "assignee": "ada", "space": "room"}),
    );
    fleet.commit("Have history");
    fleet.start();
    fleet.held("dispatch/old", "FirstRevision");
    fleet.held("ticket/old", "FirstRevision");
    fleet.put(
        "Dispatch",
        "new",
        &json!({"agent": "ada", "space": "room", "prompt": "say New"}),
    );
    fleet.commit("Ask for something new");
    let run = fleet.until("the new one ran", |fleet| {
        fleet
            .runs()
            .into_iter()
            .find(|run| !run["endedAt"].is_null())
    });
    assert_eq!(run["summary"], "New");
    fleet.held("dispatch/old", "FirstRevision");
    assert_eq!(fleet.runs().len(), 1);
}

#[test]
fn a_dispatch_never_runs_again_whatever_is_reverted() {
    let mut fleet = Fleet::plain();
    fleet.put(
        "Dispatch",
        "once",
        &json!({"agent": "ada", "space": "room", "prompt": "say Once"}),
    );
    fleet.commit("Ask once");
    fleet.start();
    let run = fleet.until("it runs", |fleet| fleet.runs().pop());
    fleet.over(run["id"].as_str().unwrap());
    fleet.remove("Dispatch", "once");
    accepted(&fleet, &fleet.commit("Forget it"));
    fleet.until("it is gone", |fleet| {
        (!exists(fleet, "dispatch", "once")).then_some(())
    });
    fleet.git("config", &["revert", "--no-edit", "HEAD"]);
    accepted(&fleet, &fleet.git("config", &["rev-parse", "HEAD"]));
    fleet.until("it is back", |fleet| {
        exists(fleet, "dispatch", "once").then_some(())
    });
    fleet.restart();
    // What is asked for later goes last: if the old one ran again, it would have by now.
    let next = fleet.dispatch("say Next");
    fleet.over(&next);
    assert_eq!(fleet.runs().len(), 2);
    // Another spec is another request.
    fleet.put(
        "Dispatch",
        "once",
        &json!({"agent": "ada", "space": "room", "prompt": "say Twice"}),
    );
    fleet.commit("Ask for something else");
    fleet.until("it runs", |fleet| (fleet.runs().len() == 3).then_some(()));
}

#[test]
fn a_removed_space_ends_its_runs_and_loses_no_work() {
    let mut fleet = Fleet::plain();
    fleet.put(
        "Fleet",
        "fleet",
        &json!({"firstRevision": "run", "drain": "1s"}),
    );
    fleet.commit("Drain quickly");
    fleet.start();
    let live = fleet.dispatch(&format!(
        "echo precious >unsaved; touch {}; {}",
        fleet.path("open").join("is-written").display(),
        fleet.gate("never")
    ));
    fleet.running(&live);
    fleet.until("it is written", |fleet| fleet.left("is-written"));
    fleet.remove("Space", "room");
    let held = fleet.commit("Close the room");
    happened(&fleet, "RevisionHeld", &held);
    fleet.run(&["approve", &held]).expect(0);
    let run = fleet.over(&live);
    assert_eq!(
        (&run["status"], &run["endReason"]),
        (&"error".into(), &"removed".into())
    );
    assert!(run["errorFamily"].is_null(), "{run}");
    let tree = PathBuf::from(run["trees"][0]["path"].as_str().unwrap());
    fleet.until("the tree is gone", |_| (!tree.exists()).then_some(()));
    fleet.until("the space is gone", |fleet| {
        (!exists(fleet, "space", "room")).then_some(())
    });
    let salvages = fleet.salvages();
    let [(repository, reference)] = &salvages[..] else {
        panic!("{salvages:?}");
    };
    let content = fleet.git(repository, &["show", &format!("{reference}:unsaved")]);
    assert_eq!(content, "precious");
    fleet.until("the trash is empty", |fleet| {
        let left = fs::read_dir(fleet.path("data/trash")).unwrap().count();
        (left == 0).then_some(())
    });
    // Its history stays.
    assert_eq!(fleet.runs().len(), 1);
}

#[test]
fn a_daemon_starts_only_where_it_can_serve() {
    let mut fleet = Fleet::plain();
    fs::write(fleet.file_of("Agent", "ada"), "kind: Agent").unwrap();
    fleet.commit("Write half an agent");
    let refused = fleet.start_refused().expect(78);
    assert!(refused.stderr.contains("homeostat validate"), "{refused:?}");
    fleet.put("Agent", "ada", &json!({"title": "Ada", "adapter": "told"}));
    fleet.commit("Write the whole agent");
    fleet.start();
    let refused = fleet.start_refused().expect(3);
    assert!(refused.stderr.contains("another daemon"), "{refused:?}");
    // The daemon's state is its own.
    let mode = fs::metadata(fleet.path("data/homeostat.db"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
    fleet.signal(rustix::process::Signal::TERM);
    assert!(fleet.ended().success());
    let database = Connection::open(fleet.path("data/homeostat.db")).unwrap();
    database.pragma_update(None, "user_version", 99).unwrap();
    drop(database);
    let refused = fleet.start_refused().expect(3);
    assert!(refused.stderr.contains("99"), "{refused:?}");
    // So that what cleans up can read it again.
    let database = Connection::open(fleet.path("data/homeostat.db")).unwrap();
    database.pragma_update(None, "user_version", 1).unwrap();
}

#[test]
fn objects_are_found_by_their_labels() {
    let mut fleet = Fleet::plain();
    for (name, team) in [("max", "red"), ("eve", "blue")] {
        fleet.put("Agent", name, &json!({"title": name, "adapter": "told"}));
        fleet.label("Agent", name, "team", team);
    }
    fleet.commit("Two teams");
    fleet.start();
    let found = |selector: &str| {
        let args = ["get", "agents", "-o", "name", "-l", selector];
        let lines = fleet.run(&args).expect(0).stdout;
        lines.lines().map(ToOwned::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(found("team=red"), ["Agent/shop/max"]);
    assert_eq!(found("team"), ["Agent/shop/eve", "Agent/shop/max"]);
    assert_eq!(found("!team"), ["Agent/shop/ada"]);
    assert_eq!(found("team!=red"), ["Agent/shop/ada", "Agent/shop/eve"]);
    let wrong = fleet.run(&["get", "agents", "-l", "team=red,"]).expect(2);
    assert!(wrong.stderr.contains("is no term"), "{wrong:?}");
}

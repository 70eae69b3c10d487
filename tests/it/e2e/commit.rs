//! The main job: a commit, and nothing else, becomes a run in a worktree.

use serde_json::{Value, json};

use super::rig::{Fleet, fingerprint};
use crate::support::disk::Disk;

#[test]
fn a_committed_ticket_becomes_a_commit_in_a_reflinked_worktree() {
    let test = "a_committed_ticket_becomes_a_commit_in_a_reflinked_worktree";
    if let Some(disk) = Disk::xfs(test) {
        ticket_becomes_commit(disk, "reflink");
    }
}

#[test]
fn a_committed_ticket_becomes_a_commit_in_an_ordinary_checkout() {
    ticket_becomes_commit(Disk::plain(), "git");
}

fn ticket_becomes_commit(disk: Disk, backend: &'static str) {
    let mut fleet = Fleet::on(disk, backend);
    fleet.start();
    let before = fingerprint(&fleet.path("app"));
    let open = fleet.path("open").display().to_string();
    let work = format!(
        "git status --porcelain >{open}/status; ls -A >{open}/listing; note 'Add the thing'; \
         spend 1500; say 'It is added'"
    );
    let ticket = |assignee| {
        json!({
            "title": ": 'Add the thing'", "description": work, "assignee": assignee,
            "space": "room", "requestedBy": "Olga <olga@example.com>",
        })
    };
    fleet.put(
        "Agent",
        "max",
        &json!({"title": "Max", "adapter": "told", "lifecycle": "paused"}),
    );
    fleet.put(
        "Space",
        "room",
        &json!({"agents": ["ada", "max"], "repos": ["app"]}),
    );
    fleet.put("Ticket", "thing", &ticket("ada"));
    fleet.put("Ticket", "other", &ticket("max"));
    let revision = fleet.commit("Ask for the thing");

    let run = fleet.until("the run is over", |fleet| {
        let runs = fleet.runs();
        runs.into_iter().find(|run| !run["endedAt"].is_null())
    });
    assert_eq!(
        (&run["status"], &run["liveness"]),
        (&json!("completed"), &json!("productive"))
    );
    assert_eq!(run["reason"], "assignment");
    assert_eq!(run["worktreeBackend"], backend);
    assert!(run["revision"].to_string().contains(&revision), "{run}");
    assert!(run["process"]["pid"].as_u64().is_some(), "{run}");
    assert_eq!(run["usage"]["costMicros"], 1500);
    assert_eq!(run["summary"], "It is added");
    made_by_the_agent(&fleet, &run);
    let prompt = fleet
        .run(&["prompt", run["id"].as_str().unwrap()])
        .expect(0)
        .stdout;
    assert!(
        prompt.contains("\nCo-Authored-By: Olga <olga@example.com>\n"),
        "{prompt}"
    );
    assert_eq!(fleet.left("status").as_deref(), Some(""));
    assert_eq!(fleet.left("listing").as_deref(), Some(".git\nREADME.md\n"));
    assert_eq!(fingerprint(&fleet.path("app")), before);

    let why = fleet.held("ticket/other", "PausedByGit");
    assert!(why.contains("max"), "{why}");
    fleet.until("the ticket is done", |fleet| {
        (fleet.get("ticket", "thing")["ticket"] == "done").then_some(())
    });
    assert_eq!(fleet.runs().len(), 1);
    traced(&fleet, &run, &revision);
}

/// That the run is led back to the commit, and to the lines of its ticket, agent and so on.
fn traced(fleet: &Fleet, run: &Value, revision: &str) {
    let id = run["id"].as_str().unwrap();
    let text = fleet.run(&["trace", &id[..8]]).expect(0).stdout;
    for expected in [
        format!("{revision}, Olga <olga@example.com>"),
        "Ticket/shop/thing  Ticket-thing.yaml:1".to_owned(),
        "Agent/shop/ada     Agent-ada.yaml:1".to_owned(),
        "Adapter/told       Adapter-told.yaml:1".to_owned(),
    ] {
        assert!(text.contains(&expected), "{expected}: {text}");
    }
    assert!(!text.contains("changed since"), "{text}");
    let ada = json!({"title": "Ada", "adapter": "told", "persona": "Be brief."});
    fleet.put("Agent", "ada", &ada);
    fleet.commit("Ada is brief");
    let changed = fleet.until("the change is accepted", |fleet| {
        let trace = fleet.json(&["trace", id]);
        let objects = trace["objects"].as_array().unwrap();
        let agent = objects.iter().find(|it| it["role"] == "agent").unwrap();
        (agent["hasChanged"] == true).then(|| trace.clone())
    });
    assert_eq!(changed["revision"]["isCurrent"], false, "{changed}");
    fleet.run(&["trace", "ffffffff"]).expect(1);
}

/// That the run's one commit is `ada`'s, on top of what the source has.
pub(super) fn made_by_the_agent(fleet: &Fleet, run: &Value) {
    let tree = &run["trees"][0];
    let (base, head) = (&tree["base"], &tree["head"]);
    assert_eq!(*base, fleet.git("app", &["rev-parse", "HEAD"]));
    assert!(head.is_string() && head != base, "{tree}");
    assert_eq!(tree["isDirty"], false);
    let log = [
        "-c",
        "safe.directory=*",
        "log",
        "-1",
        "--format=%H%n%an <%ae>%n%cn <%ce>%n%s",
    ];
    let log = fleet.git(tree["path"].as_str().unwrap(), &log);
    let agent = format!(
        "Ada (agent) <{}@agents.homeostat.local>",
        run["agent"].as_str().unwrap()
    );
    let expected = [head.as_str().unwrap(), &agent, &agent, "Add the thing"].join("\n");
    assert_eq!(log, expected);
}

#[test]
fn a_saved_file_of_a_plain_directory_is_followed_as_well() {
    let mut fleet = Fleet::plain();
    fleet.source = "--source";
    fleet.start();
    fleet.put(
        "Ticket",
        "thing",
        &json!({"title": "note 'Add the thing'", "assignee": "ada", "space": "room"}),
    );
    let run = fleet.until("the run is over", |fleet| {
        let runs = fleet.runs();
        runs.into_iter().find(|run| !run["endedAt"].is_null())
    });
    assert_eq!(run["liveness"], "productive");
    assert!(
        run["revision"].as_str().unwrap().starts_with("sha256:"),
        "{run}"
    );
}

#[test]
fn the_identity_of_who_asks_wins_over_the_agents() {
    let mut fleet = Fleet::plain();
    fleet.put(
        "Dispatch",
        "asked",
        &json!({
            "agent": "ada", "space": "room", "prompt": "note \"$WORD\"",
            "env": {"WORD": "Asked"}, "gitIdentity": {"name": "Release", "email": "r@example.com"},
        }),
    );
    fleet.commit("Ask under another name");
    fleet.start();
    let run = fleet.until("the run is over", |fleet| {
        let runs = fleet.runs();
        runs.into_iter().find(|run| !run["endedAt"].is_null())
    });
    let tree = run["trees"][0]["path"].as_str().unwrap();
    let log = [
        "-c",
        "safe.directory=*",
        "log",
        "-1",
        "--format=%an <%ae> %cn <%ce> %s",
    ];
    let expected = "Release <r@example.com> Release <r@example.com> Asked";
    assert_eq!(fleet.git(tree, &log), expected);
}
